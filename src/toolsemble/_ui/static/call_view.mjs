// One call: a line, and all about it when it is opened.
import { html, useEffect, useState } from "./html.mjs";
import { get } from "./api.mjs";
import { clock, count, duration, plural, shortError, visible } from "./format.mjs";
import { Json, Problem, Text } from "./parts.mjs";
import { Markdown } from "./markdown.mjs";

const DECISIONS = { continue: "approved", edit: "approved as edited", reject: "rejected", withdrawn: "withdrawn" };

const TAGS = { continue: "good", edit: "good", reject: "bad", withdrawn: "" };

const tagOf = (decision) => (decision ? TAGS[decision] ?? "" : "warn");

export const stateOf = (call, isWaiting, runState) => {
  if (call.finished !== null) return { success: "done", cancelled: "cancelled" }[call.outcome] ?? "failed";
  if (isWaiting || runState === "waiting") return "waiting";
  return runState === "running" && call.ended === null ? "running" : "interrupted";
};

export const Review = ({ review }) => html`<div class="small">
  ${review.decision ? html`<span class="tag ${tagOf(review.decision)}">${DECISIONS[review.decision] ?? review.decision}</span>` : html`<span class="tag warn">waits for approval</span>`}
  ${review.person ? ` by ${visible(review.person)}` : ""}${review.answered ? ` after ${duration(review.answered - review.asked)}` : ""}${review.reason ? html`: ${visible(review.reason)}` : ""}
</div>`;

const Cut = ({ event, place, onWhole }) => {
  const length = event.cut?.[place];
  return length ? html`<button class="plain" onClick=${onWhole}>Show all ${count(length)} characters</button>` : null;
};

const textOf = ({ result, error_type: type, error }) => {
  if (!result) return shortError(`${type}: ${error}`);
  return result.error_message === null ? result.output : `Error: ${result.error_message}`;
};

const Details = ({ runId, call, refreshed }) => {
  const [data, setData] = useState(null);
  const [error, setError] = useState("");
  useEffect(() => { get("/api/call", { id: runId, number: call.number }).then(setData, (problem) => setError(problem.message)); }, [runId, call.number, refreshed]);
  if (!data) return error ? html`<${Problem} error=${error} />` : html`<span class="small dim" role="status">Loading…</span>`;
  const find = (kind) => data.events.filter((event) => event.kind === kind);
  const [started] = find("call_started");
  const [finished] = find("call_finished");
  const showAll = async (event) => {
    const { event: whole } = await get("/api/event", { number: event.number });
    setData((old) => ({ ...old, events: old.events.map((each) => (each.number === whole.number ? whole : each)) }));
  };
  const ran = finished?.values.arguments;
  const isEdited = ran !== undefined && ran !== null && started && JSON.stringify(ran) !== JSON.stringify(started.values.arguments);
  return html`
    ${started && html`<div><div class="label">Arguments</div><${Json} value=${started.values.arguments} /></div>`}
    ${find("call_repaired").map((event) => html`<div key=${event.number}><div class="label">Repairs</div><${Json} value=${event.values.repairs} /></div>`)}
    ${data.reviews.map((review) => html`<${Review} key=${review.request_id} review=${review} />`)}
    ${isEdited && html`<div><div class="label">Arguments that ran</div><${Json} value=${ran} /></div>`}
    ${find("call_retried").map((event) => html`<div key=${event.number} class="small warn">Retry ${event.values.attempt} after ${duration(event.values.wait)}: ${visible(event.values.error)}</div>`)}
    ${find("call_timed_out").map((event) => html`<div key=${event.number} class="small bad">Timed out after ${duration(event.values.seconds)}</div>`)}
    ${finished && call.outcome !== "cancelled" && html`<div><div class="label">${call.outcome === "success" ? "What the model was told" : "What the model was told: an error"}</div>
      <${Text} text=${textOf(finished.values)} />
      <${Cut} event=${finished} place="/result/output" onWhole=${() => showAll(finished)} /></div>`}
    <div class="small faint">Started ${clock(call.started)}, id <span class="mono">${visible(call.call_id)}</span></div>`;
};

// `inner(call)` returns what ran inside the call: calls, and the turns of an agent.
export const CallView = ({ runId, call, review, inner, runState = "running", isOpen = false }) => {
  const [open, setOpen] = useState(isOpen);
  const state = stateOf(call, review && !review.decision, runState);
  const inside = open ? inner(call) : [];
  return html`<details class="call ${state === "failed" ? "failed" : state === "waiting" ? "waiting" : state === "running" ? "open" : ""}" open=${open} onToggle=${(event) => setOpen(event.currentTarget.open)}>
    <summary><span class="dot ${state}" role="img" aria-label=${state}></span><span class="name">${visible(call.tool_name)}</span><span class="args cut">${visible(call.arguments)}</span>
      ${call.repairs > 0 && html`<span class="tag">${plural(call.repairs, "repair")}</span>`}
      ${call.retries > 0 && html`<span class="tag warn">${plural(call.retries, "retry", "retries")}</span>`}
      ${call.is_cached && html`<span class="tag">cached</span>`}
      ${review && html`<span class="tag ${tagOf(review.decision)}">${!review.decision ? "waits for approval" : `${DECISIONS[review.decision] ?? review.decision}${review.person ? ` by ${visible(review.person)}` : ""}`}</span>`}
      ${call.finished === null && call.progress !== null && html`<span class="small dim num">${Math.round(call.progress * 100)} %</span>`}
      <span class="small dim num nowrap">${duration(call.duration)}</span>
    </summary>
    ${open && html`<div class="inside"><${Details} runId=${runId} call=${call} refreshed=${call.finished} />${inside}</div>`}
  </details>`;
};

export const Message = ({ who, text, note, kind, plain }) => html`<div class="say ${kind}">
  <div class="who"><b>${visible(who)}</b>${note}</div>
  <div class="body">${plain ? html`<p class="prose">${visible(text)}</p>` : html`<${Markdown} text=${text} />`}</div>
</div>`;
