// Small parts that several pages use.
import { html, useEffect, useRef, useState } from "./html.mjs";
import { pretty, prettyText, shortError, visible } from "./format.mjs";

const NAMES = { done: "done", failed: "failed", waiting: "waiting", running: "running", cancelled: "cancelled", lost: "lost", queued: "queued" };

export const State = ({ state }) => html`<span class="tag ${state}">${NAMES[state] ?? visible(state)}</span>`;

export const Dot = ({ state }) => html`<span class="dot ${state}" role="img" aria-label=${NAMES[state] ?? state} title=${NAMES[state] ?? state}></span>`;

export const Json = ({ value }) => html`<pre class="box mono" tabindex="0">${visible(pretty(value))}</pre>`;

export const Text = ({ text }) => html`<pre class="box mono" tabindex="0">${visible(prettyText(text))}</pre>`;

export const Page = ({ title, note, actions, children, fill = false }) => {
  useEffect(() => { document.title = `${typeof title === "string" ? title : "Run"} · toolsemble`; }, [title]);
  return html`<div class="page ${fill ? "fill" : ""}">
    <div class="head"><div class="grow"><h1 title=${title.length > 80 ? visible(title) : undefined}>${visible(title)}</h1>${note && html`<p class="dim">${note}</p>`}</div>${actions && html`<div class="row wrap">${actions}</div>`}</div>
    ${children}
  </div>`;
};

export const Problem = ({ error }) => (error ? html`<div class="banner bad" role="alert">${visible(shortError(error))}</div>` : null);

export const Loading = () => html`<${Empty}><span role="status">Loading…</span><//>`;

// What is folded away until somebody wants to see it.
export const FoldAway = ({ title, note, children, onOpen }) => html`<details class="fold-away" onToggle=${(event) => { if (event.currentTarget.open) onOpen?.(); }}><summary><b>${title}</b><span class="cut">${note}</span></summary><div class="inside">${children}</div></details>`;

export const Empty = ({ children }) => html`<div class="empty">${children}</div>`;

export const Facts = ({ of }) => html`<dl class="facts">${of.filter(([, value]) => value !== "" && value !== null && value !== undefined && value !== false)
  .map(([name, value]) => html`<div key=${name}><dt>${name}</dt><dd>${typeof value === "string" ? visible(value) : value}</dd></div>`)}</dl>`;

export const Tabs = ({ tabs, current, onSelect, label, wrap = false }) => html`<div class="tabs ${wrap ? "wrap" : ""}" role="tablist" aria-label=${label}>
  ${tabs.map(([id, name]) => html`<button key=${id} role="tab" aria-selected=${String(id === current)} tabindex=${id === current ? 0 : -1}
    onClick=${() => onSelect(id)} onKeyDown=${(event) => moveTab(event, tabs, id, onSelect)}>${name}</button>`)}
</div>`;

const moveTab = (event, tabs, id, onSelect) => {
  const at = tabs.findIndex(([each]) => each === id);
  const next = { ArrowRight: (at + 1) % tabs.length, ArrowLeft: (at + tabs.length - 1) % tabs.length, Home: 0, End: tabs.length - 1 }[event.key];
  if (next === undefined) return;
  event.preventDefault();
  onSelect(tabs[next][0]);
  event.currentTarget.parentElement.children[next].focus();
};

export const CopyButton = ({ text, label = "Copy" }) => {
  const [done, setDone] = useState(false);
  useEffect(() => { const timer = done ? setTimeout(() => setDone(false), 1500) : 0; return () => clearTimeout(timer); }, [done]);
  return html`<button type="button" class="plain" onClick=${async () => { await navigator.clipboard.writeText(text); setDone(true); }}>${done ? "Copied" : label}</button>`;
};

// What is typed is told to the page when the typing pauses.
export const Search = ({ value, label, onChange }) => {
  const [text, setText] = useState(value);
  useEffect(() => { setText(value); }, [value]);
  useEffect(() => {
    if (text === value) return undefined;
    const timer = setTimeout(() => onChange(text), 250);
    return () => clearTimeout(timer);
  }, [text]);
  return html`<input type="search" placeholder=${label} aria-label=${label} value=${text} onInput=${(event) => setText(event.target.value)} />`;
};

const toasts = new Set();
export const toast = (text) => toasts.forEach((each) => each(text));
export const Toasts = () => {
  const [text, setText] = useState("");
  useEffect(() => { toasts.add(setText); return () => toasts.delete(setText); }, []);
  useEffect(() => { const timer = text ? setTimeout(() => setText(""), 5000) : 0; return () => clearTimeout(timer); }, [text]);
  return html`<div role="status" aria-live="polite">${text && html`<div class="toast">${visible(text)}</div>`}</div>`;
};

// Keys for a page, unless somebody types into a field or holds a modifier. The latest actions count, also in a form
// that was changed by the key before.
export const useKeys = (keys) => {
  const latest = useRef(keys);
  latest.current = keys;
  useEffect(() => {
    const press = (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, textarea, select, [contenteditable]")) return;
      const action = latest.current[event.key];
      if (action) { event.preventDefault(); action(); }
    };
    addEventListener("keydown", press);
    return () => removeEventListener("keydown", press);
  }, []);
};
