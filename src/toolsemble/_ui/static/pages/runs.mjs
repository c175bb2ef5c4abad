// The list of runs: live, with filters, those that wait for a person first.
import { html, useEffect, useMemo, useState } from "../html.mjs";
import { get, useGet } from "../api.mjs";
import { subscribe, throttle } from "../feed.mjs";
import { ago, cost, count, duration, moment, plural, shortError, summary, visible } from "../format.mjs";
import { Link, navigate, runLink, setQuery } from "../router.mjs";
import { VirtualList } from "../list.mjs";
import { Dot, Empty, Loading, Page, Problem, Search } from "../parts.mjs";

const STATES = ["waiting", "running", "queued", "done", "failed", "cancelled", "lost"];
const FIRST_STEPS = `from toolsemble import Agent
from toolsemble.telemetry import RunHistory

agent = Agent("openai:gpt-5-mini", tools, sinks=[RunHistory(".toolsemble/history.db")])`;

const isLive = (run) => run.state === "running" || run.state === "waiting";

const seconds = (run) => (run.ended ?? (isLive(run) ? Date.now() / 1000 : run.updated)) - run.started;

const subtitle = (run) => {
  const parts = [run.is_agent ? run.agent_role : "call", run.model, run.run_id];
  return parts.filter((part) => part && part !== "unknown").join(" · ");
};

const Row = ({ run, picked, onPick }) => html`<${Link} class="run" to=${runLink(run.run_id)}
    onClick=${(event) => { if (onPick) { event.preventDefault(); onPick(run.run_id); } }}>
  <span class="pick"><input type="checkbox" checked=${picked} tabindex="-1" aria-label=${`Compare ${run.run_id}`} /></span>
  <${Dot} state=${run.state} />
  <span class="what"><div>${summary(run.prompt) || visible(run.run_id)}</div><div class="small ${run.error ? "bad" : "dim"}">${visible(run.error ? shortError(run.error) : subtitle(run))}</div></span>
  <span class="wide cut dim">${run.waiting ? html`<span class="warn">${plural(run.waiting, "approval")} open</span>` : run.failures ? html`<span class="bad">${plural(run.failures, "failed call")}</span>` : run.error || run.stop_reason === "answer" ? "" : visible(run.stop_reason)}</span>
  <span class="num mid">${count(run.calls)}</span>
  <span class="num wide">${cost(run.cost)}</span>
  <span class="num mid">${duration(seconds(run))}</span>
  <span class="num" title=${moment(run.started)}>${ago(run.started)}</span>
<//>`;

const usePages = (query) => {
  const wanted = { state: query.state, tool: query.tool, text: query.text };
  const { data, error, reload, isCurrent } = useGet("/api/runs", { ...wanted, limit: 100 });
  const [older, setOlder] = useState([]);
  const [more, setMore] = useState(null);
  useEffect(() => { setOlder([]); setMore(null); }, [query.state, query.tool, query.text]);
  const next = more ?? (data?.more ? data.before : 0);
  const loadMore = async () => {
    const page = await get("/api/runs", { ...wanted, limit: 200, before: next });
    setOlder((known) => [...known, ...page.runs]);
    setMore(page.more ? page.before : 0);
  };
  const runs = useMemo(() => {
    const known = new Map();
    for (const run of [...(data?.runs ?? []), ...older]) if (!known.has(run.run_id)) known.set(run.run_id, run);
    return [...known.values()];
  }, [data, older]);
  return { runs, exists: data?.exists, error, reload, next, loadMore, isLoaded: data !== null && isCurrent };
};

export const Runs = ({ query, me }) => {
  const { runs, exists, error, reload, next, loadMore, isLoaded } = usePages(query);
  const [picking, setPicking] = useState(false);
  const [picked, setPicked] = useState([]);
  useEffect(() => {
    const soon = throttle(reload, 150);
    const stop = subscribe(soon);
    return () => { stop(); soon.stop(); };
  }, [reload]);
  const pick = (id) => {
    const chosen = picked.includes(id) ? picked.filter((each) => each !== id) : [...picked, id].slice(-2);
    setPicked(chosen);
    if (chosen.length === 2) navigate(`/compare?first=${encodeURIComponent(chosen[0])}&second=${encodeURIComponent(chosen[1])}`);
  };
  const isFiltered = query.state || query.tool || query.text;
  return html`<${Page} title="Runs" actions=${html`${picking && html`<span class="dim" role="status">Choose two runs</span>`}<button onClick=${() => { setPicking(!picking); setPicked([]); }}>${picking ? "Cancel" : "Compare"}</button>`}>
    <div class="filters">
      <${Search} value=${query.text ?? ""} label="Search in runs" onChange=${(text) => setQuery({ text })} />
      <select aria-label="State" value=${query.state ?? ""} onChange=${(event) => setQuery({ state: event.target.value })}>
        <option value="">All states</option>${STATES.map((state) => html`<option key=${state} value=${state}>${state}</option>`)}
      </select>
      <${Search} value=${query.tool ?? ""} label="Name of a tool" onChange=${(tool) => setQuery({ tool })} />
    </div>
    <${Problem} error=${error} />
    <div class="card flush runs ${picking ? "picking" : ""}">
      ${runs.length > 0 && html`<div class="run titles" aria-hidden="true"><span class="pick"></span><span></span><span>Prompt</span><span class="wide"></span><span class="num mid">Calls</span><span class="num wide">Cost</span><span class="num mid">Time</span><span class="num">Started</span></div>`}
      ${runs.length > 0 && html`<${VirtualList} label="Runs" items=${runs} keyOf=${(run) => run.run_id} height=${56}
        render=${(run) => html`<${Row} run=${run} picked=${picked.includes(run.run_id)} onPick=${picking ? pick : null} />`} />`}
      ${!isLoaded && runs.length === 0 && !error && html`<${Loading} />`}
      ${isLoaded && runs.length === 0 && html`<${Empty}>${isFiltered ? html`<p>No run fits the filters.</p><button onClick=${() => setQuery({ text: "", state: "", tool: "" })}>Show all runs</button>` : html`<p>No runs yet. A program records its runs with</p><pre class="mono">${FIRST_STEPS}</pre><p class="small">This server reads ${me.folder}${exists ? "" : ", where there is no history.db yet"}.</p>`}<//>`}
    </div>
    ${next ? html`<div><button onClick=${loadMore}>Show older runs</button></div>` : null}
    <span class="hidden" data-runs=${count(runs.length)}></span>
  <//>`;
};
