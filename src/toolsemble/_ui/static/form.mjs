// Draws a form that the server made: the page holds the tree of fields, changes it, and sends it back. It validates
// nothing and needs no schema.
import { html, useState } from "./html.mjs";
import { hasHidden, visible, visibleJson } from "./format.mjs";

const update = (field, change) => ({ ...field, ...change });

const replaceAt = (fields, index, field) => fields.map((each, at) => (at === index ? field : each));

const renumber = (fields) => fields.map((each, index) => ({ ...each, name: String(index) }));

const LIMITS = {
  minimum: (value) => `at least ${value}`, exclusiveMinimum: (value) => `more than ${value}`, maximum: (value) => `at most ${value}`,
  exclusiveMaximum: (value) => `less than ${value}`, multipleOf: (value) => `a multiple of ${value}`, minLength: (value) => `at least ${value} characters`,
  maxLength: (value) => `at most ${value} characters`, minItems: (value) => `at least ${value} items`, maxItems: (value) => `at most ${value} items`,
  pattern: (value) => `pattern ${value}`, format: (value) => `format ${value}`,
};

const hint = (field) => {
  const known = { ...field.limits };
  if (known.format === "password") delete known.format;
  const limits = [];
  for (const [least, most, unit] of [["minLength", "maxLength", "characters"], ["minItems", "maxItems", "items"]]) {
    if (known[least] === undefined || known[least] !== known[most]) continue;
    limits.push(`exactly ${known[least]} ${unit}`);
    delete known[least];
    delete known[most];
  }
  limits.push(...Object.keys(LIMITS).filter((name) => name in known).map((name) => LIMITS[name](known[name])));
  const parts = [...limits, ...(field.default !== null && field.default !== undefined ? [`default ${field.default}`] : [])];
  return parts.join(", ");
};

const signature = (field) => JSON.stringify([field.state, field.text, field.chosen, field.kind === "union" ? null : field.name,
  (field.fields ?? []).map(signature)]);

// What differs from the form as it came; objects are compared field by field.
export const isChanged = (field, first) => first !== undefined && signature(field) !== signature(first);

const States = ({ field, onChange }) => {
  const states = [["unset", "not set"], ...(field.nullable ? [["null", "null"]] : []), ["value", "value"]];
  if (field.required && !field.nullable) return null;
  return html`<span class="states" role="group" aria-label=${`State of ${field.name}`}>${states.filter(([state]) => !(field.required && state === "unset" && field.state !== "unset")).map(([state, name]) => html`
    <button key=${state} type="button" aria-pressed=${String(field.state === state)} onClick=${() => onChange(update(field, { state, ...(state === "value" && field.kind === "union" && field.chosen === null ? { chosen: 0 } : {}) }))}>${name}</button>`)}</span>`;
};

const Control = ({ field, id, onChange, name }) => {
  const set = (text) => onChange(update(field, { text, state: "value" }));
  const common = { id, "aria-label": name, class: "control", value: field.state === "value" ? field.text : "", placeholder: field.state === "null" ? "null" : field.state === "unset" ? "not set" : "" };
  if (field.kind === "constant") return html`<code>${visible(field.text)}</code>`;
  if (field.kind === "boolean" || field.kind === "choice") {
    const options = field.kind === "boolean" ? [{ label: "true", text: "true" }, { label: "false", text: "false" }] : field.options;
    return html`<select id=${id} aria-label=${name} class="control" value=${field.state === "value" ? field.text : ""} onChange=${(event) => (event.target.value === "" ? onChange(update(field, { state: "unset" })) : set(event.target.value))}>
      <option value="">${field.state === "null" ? "null" : "not set"}</option>
      ${options.map((option) => html`<option key=${option.text} value=${option.text}>${visible(option.label)}</option>`)}
      ${field.state === "value" && !options.some((option) => option.text === field.text) && html`<option value=${field.text}>${visible(field.text)}</option>`}
    </select>`;
  }
  if (field.kind === "json") return html`<textarea ...${common} value=${visibleJson(common.value)} class="control code" rows=${Math.min(12, 3 + Math.floor(field.text.length / 80))} spellcheck=${false} onInput=${(event) => set(event.target.value)}></textarea>`;
  if (field.kind === "text" && field.secret) return html`<input type="password" autocomplete="off" ...${common} onInput=${(event) => set(event.target.value)} />`;
  if (field.kind === "text" && (field.text.length > 70 || field.text.includes("\n") || field.limits?.format === undefined && /text|body|content|message|reason|description/i.test(field.name))) {
    return html`<textarea ...${common} rows=${Math.min(10, Math.max(2, field.text.split("\n").length + 1))} onInput=${(event) => set(event.target.value)}></textarea>`;
  }
  return html`<input type="text" inputmode=${field.kind === "text" ? undefined : "decimal"} spellcheck=${false} autocomplete="off" ...${common} onInput=${(event) => set(event.target.value)} />`;
};

// What is inside a field that was cut, for a field of the same kind.
const inner = (found) => ({ kind: found.kind, fields: found.fields, item: found.item, options: found.options, chosen: found.chosen, is_cut: false, state: "value" });

const Many = ({ field, first, onChange, onExpand }) => {
  const isArray = field.kind === "array";
  const [key, setKey] = useState("");
  const grow = async () => {
    const inside = field.item.is_cut ? inner(await onExpand(field.item.place)) : {};
    const fresh = isArray ? { ...field.item, name: String(field.fields.length), state: field.item.state === "unset" ? "value" : field.item.state, ...inside } : { ...field.item, name: key, is_extra: true, ...inside };
    onChange(update(field, { state: "value", fields: [...field.fields, fresh] }));
    setKey("");
  };
  const drop = (index) => {
    const left = field.fields.filter((_, at) => at !== index);
    onChange(update(field, { fields: isArray ? renumber(left) : left }));
  };
  return html`<div class="group">
    ${field.fields.map((each, index) => html`<div class="item" key=${isArray ? index : each.name}><div class="grow"><${FieldView} isItem=${isArray} field=${each} first=${first?.fields?.[index]} onExpand=${onExpand}
        onChange=${(next) => onChange(update(field, { state: "value", fields: replaceAt(field.fields, index, next) }))} /></div>
      ${(isArray || each.is_extra) && html`<button type="button" class="plain" aria-label=${`Remove ${each.name}`} onClick=${() => drop(index)}>Remove</button>`}</div>`)}
    ${field.item && isArray && html`<div><button type="button" onClick=${grow}>Add an item</button></div>`}
    ${field.item && !isArray && html`<div class="row"><input type="text" aria-label="New key" placeholder="key" value=${key} onInput=${(event) => setKey(event.target.value)} /><button type="button" disabled=${!key || field.fields.some((each) => each.name === key)} onClick=${grow}>Add</button></div>`}
  </div>`;
};

const Union = ({ field, first, onChange, onExpand, id, name }) => html`
  <select id=${id} class="control" aria-label=${name} value=${field.state === "value" && field.chosen !== null ? String(field.chosen) : ""}
      onChange=${(event) => onChange(event.target.value === "" ? update(field, { state: "unset", chosen: null }) : update(field, { state: "value", chosen: Number(event.target.value) }))}>
    <option value="">${field.state === "null" ? "null" : "not set"}</option>
    ${field.options.map((option, index) => html`<option key=${index} value=${String(index)}>${visible(option.label)}</option>`)}
  </select>
  ${field.state === "value" && field.chosen !== null && field.fields[field.chosen] && html`<${FieldView} isInner=${true} field=${field.fields[field.chosen]} first=${first?.fields?.[field.chosen]} onExpand=${onExpand}
    onChange=${(next) => onChange(update(field, { fields: replaceAt(field.fields, field.chosen, next) }))} />`}`;

export const FieldView = ({ field, first, onChange, onExpand, isRoot = false, isInner = false, isItem = false }) => {
  const id = `field${field.path}`;
  const name = field.name || field.label || "value";
  const expand = async () => {
    onChange({ ...field, ...inner(await onExpand(field.place)) });
  };
  const body = field.is_cut ? html`<div><button type="button" onClick=${expand}>Show the fields inside</button></div>`
    : field.kind === "object" || field.kind === "array" ? (field.state === "value" || isRoot ? html`<${Many} ...${{ field, first, onChange, onExpand }} />` : null)
      : field.kind === "union" ? html`<${Union} ...${{ field, first, onChange, onExpand, id, name }} />`
        : html`<${Control} ...${{ field, id, onChange, name }} />`;
  if (isRoot) return html`<div class="form">${field.kind === "object" && field.fields.length === 0 && !field.item ? html`<p class="dim">This tool takes no arguments.</p>` : body}</div>`;
  if (isInner && (field.kind === "object" || field.kind === "array")) return body;
  const changed = first !== undefined ? isChanged(field, first) : field.changed;
  const help = hint(field);
  return html`<div class="field ${changed && !isInner ? "changed" : ""}">
    ${!isInner && html`<div class="title">${field.is_extra ? html`<input type="text" aria-label="Key" value=${field.name} onInput=${(event) => onChange(update(field, { name: event.target.value }))} />` : html`<label for=${id}>${visible(field.name)}</label>`}
      ${field.required && !isItem && field.kind !== "constant" && html`<span class="small faint">required</span>`}<${States} field=${field} onChange=${onChange} /></div>`}
    ${(field.description || help) && html`<div class="small dim">${visible(field.description)}${field.description && help ? " " : ""}${help && html`<span class="faint">(${visible(help)})</span>`}</div>`}
    ${body}
    ${field.state === "value" && field.kind === "text" && !field.secret && hasHidden(field.text) && html`<div class="small warn">With its hidden characters: <code>${visible(field.text)}</code></div>`}
    ${changed && first && first.state === "value" && first.kind !== "object" && first.kind !== "array" && first.kind !== "union" && !first.secret && html`<div class="small dim">was <code>${visible(first.text)}</code></div>`}
    ${changed && first && first.state !== "value" && html`<div class="small dim">was ${first.state === "null" ? "null" : "not set"}</div>`}
  </div>`;
};

export const Form = ({ form, first, onChange, onExpand }) => html`<${FieldView} isRoot=${true} ...${{ field: form, first, onChange, onExpand }} />`;
