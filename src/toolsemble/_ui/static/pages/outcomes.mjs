// Calls that began, and whose outcome was not recorded: find out, then settle them.
import { html, useEffect, useState } from "../html.mjs";
import { post, useGet } from "../api.mjs";
import { subscribe } from "../feed.mjs";
import { moment, visible } from "../format.mjs";
import { Link, runLink } from "../router.mjs";
import { Empty, Facts, Page, Problem, Text, toast } from "../parts.mjs";

const Outcome = ({ call, me, onDone }) => {
  const [result, setResult] = useState("");
  const [error, setError] = useState("");
  const settle = async (happened) => {
    try {
      await post("/api/unknown", { kind: call.kind, key: call.key, run_id: call.run_id, happened, result: happened ? result : "" });
      toast(happened ? `${call.tool}: recorded as done` : `${call.tool}: may be called again`);
      onDone();
    } catch (problem) { setError(problem.message); }
  };
  return html`<section class="card stack" aria-label=${`Unknown outcome of ${call.tool} in ${call.run_id}, ${call.key}`}>
    <h2 class="mono">${visible(call.tool)}</h2>
    <${Facts} of=${[["Run", html`<${Link} to=${runLink(call.run_id)}>${visible(call.run_id)}<//>`], [call.kind === "step" ? "Place in the run" : "Key", call.key], ["Began", call.began ? moment(call.began) : ""]]} />
    <div><div class="label">Arguments</div><${Text} text=${call.arguments} /></div>
    <input type="text" aria-label="Result, if it happened" placeholder="Result, if it happened" value=${result} disabled=${!me.may_operate} onInput=${(event) => setResult(event.target.value)} />
    <${Problem} error=${error} />
    <div class="row wrap"><button disabled=${!me.may_operate} onClick=${() => settle(true)}>It happened</button><button disabled=${!me.may_operate} onClick=${() => settle(false)}>It did not happen</button></div>
    <p class="small dim flat">If it happened, repeated calls get the result. If it did not, the call may be made again.</p>
  </section>`;
};

export const Outcomes = ({ me }) => {
  const { data, error, reload } = useGet("/api/unknown");
  useEffect(() => subscribe((message) => { if (message.kind !== "events") reload(); }), [reload]);
  return html`<${Page} title="Unknown outcomes" note="These calls were running when their process ended. Find out whether they took effect, then settle them.">
    <${Problem} error=${error} />
    ${data && data.unknown.length === 0 && html`<div class="card"><${Empty}>${data.exists ? "Every call has an outcome." : "There is no effects.db or runs.db in the data folder."}<//></div>`}
    ${data?.unknown.map((call) => html`<${Outcome} key=${call.kind + call.run_id + call.key} call=${call} me=${me} onDone=${reload} />`)}
  <//>`;
};
