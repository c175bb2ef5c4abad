// What waits for a decision, oldest first.
import { html, useEffect, useState } from "../html.mjs";
import { useGet } from "../api.mjs";
import { subscribe } from "../feed.mjs";
import { ago, visible } from "../format.mjs";
import { navigate, setQuery } from "../router.mjs";
import { ApprovalForm } from "../approval.mjs";
import { Empty, Page, Problem, useKeys } from "../parts.mjs";

export const Approvals = ({ query, me }) => {
  const { data, error, reload } = useGet("/api/approvals");
  const [gone, setGone] = useState(null);
  useEffect(() => subscribe((message) => { if (message.kind !== "events") reload(); }), [reload]);
  const waiting = (data?.requests ?? []).filter((request) => !query.run || request.run_id === query.run);
  const at = Math.max(0, waiting.findIndex((request) => request.id === query.request));
  const current = waiting[at];
  // A request that somebody else answers stays on the screen until another one is chosen.
  const shown = query.request && !current ? null : current;
  const select = (index) => { const next = waiting[Math.min(Math.max(index, 0), waiting.length - 1)]; if (next) setQuery({ request: next.id }); };
  useKeys({ j: () => select(at + 1), k: () => select(at - 1) });
  const done = (id) => {
    setGone(id);
    document.querySelector("main").focus(); // the button that was pressed goes away
    const next = waiting[at + 1] ?? waiting[at - 1];
    setQuery({ request: next?.id });
    reload();
  };
  const visibleOnes = waiting.filter((request) => request.id !== gone);
  return html`<${Page} title="Approvals" note=${visibleOnes.length > 0 && html`<span class="small keys">Keys: <kbd>j</kbd> next, <kbd>k</kbd> previous, <kbd>a</kbd> approve, <kbd>e</kbd> edit, <kbd>r</kbd> reject, <kbd>Esc</kbd> leave a field</span>`}
      actions=${query.run && html`<button onClick=${() => navigate("/approvals")}>Show all runs</button>`}>
    <${Problem} error=${error} />
    ${data && visibleOnes.length === 0 ? html`<div class="card"><${Empty}>${data.exists ? "Nothing waits for a decision." : html`<p>Nothing waits. Programs ask here with</p><pre class="mono">Agent(..., review=QueueReview(ReviewStore(".toolsemble/reviews.db")))</pre>`}<//></div>` : null}
    ${visibleOnes.length > 0 && html`<div class="split">
      <nav class="card menu" aria-label="Waiting requests">${visibleOnes.map((request) => html`<button key=${request.id} aria-current=${request.id === shown?.id ? "true" : undefined} onClick=${() => setQuery({ request: request.id })}>
        <span class="mono">${visible(request.tool_name)}</span> <span class="small faint">${ago(request.asked_at)}</span>
        <small>${visible(typeof request.arguments === "string" ? request.arguments : JSON.stringify(request.arguments))}</small></button>`)}</nav>
      <div>${shown && shown.id !== gone && html`<${ApprovalForm} key=${shown.id} id=${shown.id} me=${me} keys=${true} onDone=${done} />`}</div>
    </div>`}
  <//>`;
};
