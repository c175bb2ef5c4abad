// One request: its form, and the answer. Used by the page of approvals, by chat and by the playground.
import { html, useEffect, useRef, useState } from "./html.mjs";
import { get, post } from "./api.mjs";
import { Form, isChanged } from "./form.mjs";
import { ago, hasHidden, pretty, time, visible, visibleJson } from "./format.mjs";
import { Link, runLink } from "./router.mjs";
import { Facts, Loading, Problem, Tabs, toast, useKeys } from "./parts.mjs";

const DONE = { approve: "Approved", edit: "Approved as edited", reject: "Rejected" };

const useRequest = (id) => {
  const [data, setData] = useState(null);
  const [error, setError] = useState("");
  useEffect(() => {
    setData(null);
    setError("");
    get("/api/approval", { id }).then(setData, (problem) => setError(problem.message));
  }, [id]);
  return { data, error };
};

const shown = (value) => visible(JSON.stringify(value) ?? "nothing");

const Repairs = ({ repairs }) => html`<div><div class="label">Repaired before you see it</div><ul class="small">${repairs.map((repair, index) => html`<li key=${index}><code>${visible(repair.path || "arguments")}</code>: <code>${shown(repair.from)}</code> became <code>${shown(repair.to)}</code> (${visible(repair.step)})</li>`)}</ul></div>`;

const TIMEOUTS = { EXIT_EARLY: "it is rejected", CONTINUE: "it runs", RAISE: "the run fails" };

export const ApprovalForm = ({ id, me, onDone, keys = false }) => {
  const { data, error: loadError } = useRequest(id);
  const [form, setForm] = useState(null);
  const [text, setText] = useState(null);
  const [tab, setTab] = useState("form");
  const [reason, setReason] = useState("");
  const [always, setAlways] = useState("");
  const [error, setError] = useState("");
  const [isBusy, setBusy] = useState(false);
  const root = useRef(null);
  const reasonBox = useRef(null);
  useEffect(() => {
    setForm(data?.form ?? null); setText(null); setTab(data && !data.form ? "json" : "form"); setReason(""); setAlways(""); setError("");
  }, [data]);
  const request = data?.request;
  const isEdited = Boolean(request) && (text !== null ? text !== original(request) : form !== null && isChanged(form, data.form));
  const may = Boolean(request?.may_answer && me.may_change);
  const send = async (decision) => {
    if (!may || isBusy) return;
    setBusy(true);
    setError("");
    const answer = { id, decision, arguments_digest: request.arguments_digest };
    if (decision === "approve") answer.always = always;
    if (decision === "reject") answer.reason = reason;
    if (decision === "edit") Object.assign(answer, text !== null ? { text } : { form });
    try {
      const receipt = await post("/api/approval", answer);
      toast(`${DONE[decision]} as ${receipt.person}`);
      onDone?.(id, decision);
    } catch (problem) { setError(problem.message); }
    setBusy(false);
  };
  const focusEdit = () => root.current?.querySelector(".form input, .form textarea, .form select, textarea.code")?.focus();
  useKeys(keys ? { a: () => send(isEdited ? "edit" : "approve"), e: focusEdit, r: () => reasonBox.current?.focus() } : {});
  if (!data) return html`<div class="card">${loadError ? html`<${Problem} error=${loadError} />` : html`<${Loading} />`}</div>`;
  const leave = (event) => { if (event.key === "Escape") event.target.blur(); };
  return html`<section class="card stack gap" ref=${root} onKeyDown=${leave} aria-label=${`Request for ${request.tool_name}`} data-request=${id}>
    <div><h2 class="mono">${visible(request.tool_name)}</h2>${request.description && html`<p class="dim prose">${visible(request.description)}</p>`}${request.prompt && html`<p class="warn">${visible(request.prompt)}</p>`}</div>
    <${Facts} of=${[
      ["Agent", request.agent_role === "unknown" ? "" : request.agent_role],
      ["Run", request.run_id ? html`<${Link} to=${runLink(request.run_id)}>${visible(request.run_id)}<//>` : ""],
      ["For", request.memory_id === "default" ? "" : request.memory_id],
      ["Asked", `${time(request.asked_at)}, ${ago(request.asked_at)}`],
      ["Deadline", request.deadline ? `${time(request.deadline)}, then ${TIMEOUTS[request.on_timeout] ?? request.on_timeout}` : ""],
      ["Required role", request.required_role],
    ]} />
    ${request.repairs.length > 0 && html`<${Repairs} repairs=${request.repairs} />`}
    ${request.is_question ? html`<div class="stack"><div class="label">Your answer</div><textarea rows="3" aria-label="Your answer" value=${text ?? ""} onInput=${(event) => setText(event.target.value)}></textarea></div>` : html`<div class="stack">
      <${Tabs} label="Arguments" tabs=${[["form", "Form"], ["json", "JSON"]]} current=${tab} onSelect=${(next) => { setTab(next); setText(next === "json" ? text ?? original(request) : null); }} />
      ${tab === "form" && form && html`<${Form} form=${form} first=${data.form} onChange=${setForm} onExpand=${(place) => get("/api/approval/expand", { id, place }).then((found) => found.field)} />`}
      ${tab === "form" && !data.has_schema && html`<p class="small dim">The request has no schema, so that its arguments are shown as JSON.</p>`}
      ${tab === "json" && html`<textarea class="code ${isEdited ? "changed" : ""}" rows="10" spellcheck=${false} aria-label="Arguments as JSON" value=${text ?? original(request)} onInput=${(event) => setText(event.target.value)}></textarea>${hasHidden(text ?? original(request)) ? html`<p class="small warn">With its hidden characters: <code>${visible(text ?? original(request))}</code></p>` : null}`}
      ${request.has_secrets && html`<p class="small dim">Secrets are masked. What you leave masked stays as it is.</p>`}
    </div>`}
    ${request.scopes.length > 0 && !isEdited && html`<label class="row">Approve <select aria-label="Scope" value=${always} onChange=${(event) => setAlways(event.target.value)}>
      <option value="">this call only</option>${request.scopes.includes("arguments") && html`<option value="arguments">always with these arguments, in this run</option>`}${request.scopes.includes("tool") && html`<option value="tool">always this tool, in this run</option>`}</select></label>`}
    <div class="answer ${keys ? "" : "still"}">
      <div class="row"><input ref=${reasonBox} type="text" aria-label="Reason of a rejection" placeholder="Reason of a rejection; the model sees it" value=${reason} disabled=${!may} onInput=${(event) => setReason(event.target.value)} onKeyDown=${(event) => { if (event.key === "Enter") send("reject"); }} /></div>
      <${Problem} error=${error} />
      ${!request.may_answer && html`<div class="banner">It takes the role ${visible(request.required_role ?? "")}, which you do not have. People with roles sign in where the server was started with --people.</div>`}
      <div class="row wrap">
        <button class="primary" disabled=${!may || isBusy || isEdited || request.is_question} onClick=${() => send("approve")}>Approve${keys && html` <kbd>a</kbd>`}</button>
        <button class=${isEdited ? "primary" : ""} disabled=${!may || isBusy || !isEdited} onClick=${() => send("edit")}>${request.is_question ? "Send the answer" : "Approve as edited"}</button>
        <button class="danger" disabled=${!may || isBusy} onClick=${() => send("reject")}>Reject${keys && html` <kbd>r</kbd>`}</button>
      </div>
    </div>
  </section>`;
};

// JSON shows hidden characters as escapes, which mean the same; other texts stay as they are.
const original = (request) => (request.editable || typeof request.arguments === "string" ? request.editable_text : visibleJson(pretty(request.arguments)));
