// Two runs side by side: where they diverge, and what changed.
import { html, useState } from "../html.mjs";
import { get, useGet } from "../api.mjs";
import { cost, count, duration, visible } from "../format.mjs";
import { Link, runLink, setQuery } from "../router.mjs";
import { VirtualList } from "../list.mjs";
import { Empty, Loading, Page, Problem, State } from "../parts.mjs";

const MARKS = { "=": "same", "-": "removed", "+": "added" };
const CHANGES = { same: "", changed: "warn", added: "good", removed: "bad" };

const Diff = ({ lines }) => html`<div class="diff">${lines.map((line, index) => html`<div key=${index} class=${MARKS[line.mark]}>${visible(line.text)}</div>`)}</div>`;

const Section = ({ title, lines }) => (lines.length ? html`<div class="card flush"><h2 class="titled">${title}</h2><${Diff} lines=${lines} /></div>` : null);

const PairRow = ({ pair, first, second, isDivergence }) => {
  const [difference, setDifference] = useState(null);
  const open = async (event) => {
    if (!event.currentTarget.open || difference) return;
    const found = await get("/api/compare/calls", { first, second, first_number: pair.first?.number, second_number: pair.second?.number });
    setDifference(found.difference);
  };
  const call = pair.first ?? pair.second;
  return html`<details class="call ${pair.change === "same" ? "" : "waiting"}" onToggle=${open}>
    <summary><span class="tag ${CHANGES[pair.change]}">${pair.change}</span><span class="name">${visible(call.tool_name)}</span>
      <span class="args cut">${visible(pair.first?.arguments ?? "")}${pair.change === "changed" && pair.first?.arguments !== pair.second?.arguments ? html` → ${visible(pair.second.arguments)}` : pair.first ? "" : visible(call.arguments)}</span>
      ${isDivergence && html`<span class="tag warn">first difference</span>`}<span class="small dim num nowrap">${duration(pair.first?.duration)}${pair.first && pair.second ? " / " : ""}${duration(pair.second?.duration)}</span></summary>
    ${difference && html`<div class="inside">${difference.arguments.length ? html`<div><div class="label">Arguments</div><${Diff} lines=${difference.arguments} /></div>` : null}
      ${difference.text.length ? html`<div><div class="label">What the model was told</div><${Diff} lines=${difference.text} /></div>` : null}
      ${!difference.arguments.length && !difference.text.length && html`<span class="dim">No difference in arguments and result.</span>`}</div>`}
  </details>`;
};

// Rows on a small screen, columns on a large one; what differs is bold.
const Versus = ({ first, second }) => html`<div class="card flush"><div class="versus" role="table" aria-label="Both runs">
  <div role="row"><span role="columnheader"><span class="hidden">What</span></span><span role="columnheader"><${Link} to=${runLink(first.run_id)}>First run<//></span><span role="columnheader"><${Link} to=${runLink(second.run_id)}>Second run<//></span></div>
  ${FACTS.map(([name, value, plain = value]) => { const mark = plain(first) === plain(second) ? "" : "differs"; return html`<div role="row" key=${name}><span role="rowheader">${name}</span><span role="cell" class=${mark}>${value(first)}</span><span role="cell" class=${mark}>${value(second)}</span></div>`; })}
</div></div>`;

const FACTS = [
  ["State", (run) => html`<${State} state=${run.state} />`, (run) => run.state], ["Model", (run) => visible(run.model)], ["Turns", (run) => count(run.turns)],
  ["Calls", (run) => (run.failures ? `${count(run.calls)}, ${count(run.failures)} failed` : count(run.calls))],
  ["Tokens", (run) => `${count(run.input_tokens)} in, ${count(run.output_tokens)} out`], ["Cost", (run) => cost(run.cost)],
  ["Time", (run) => duration((run.ended ?? run.updated) - run.started)],
];

const Choice = ({ label, value, runs, onChange }) => html`<label class="stack grow" style=${{ gap: "3px" }}><span class="label">${label}</span><select aria-label=${label} value=${value ?? ""} style=${{ width: "100%" }} onChange=${(event) => onChange(event.target.value)}>
  <option value="">choose a run</option>${value && !runs.some((run) => run.run_id === value) && html`<option value=${value}>${visible(value)}</option>`}
  ${runs.map((run) => html`<option key=${run.run_id} value=${run.run_id}>${visible((run.prompt || run.run_id).slice(0, 60))} · ${visible(run.run_id)}</option>`)}</select></label>`;

export const Compare = ({ query }) => {
  const { first, second } = query;
  const list = useGet("/api/runs", { limit: 200 });
  const { data, error } = useGet(first && second ? "/api/compare" : null, { first, second });
  const found = first && second ? data?.comparison : null;
  const runs = list.data?.runs ?? [];
  return html`<${Page} title="Compare two runs">
    <div class="two"><${Choice} label="First run" value=${first} runs=${runs} onChange=${(id) => setQuery({ first: id })} /><${Choice} label="Second run" value=${second} runs=${runs} onChange=${(id) => setQuery({ second: id })} /></div>
    <${Problem} error=${error} />
    ${!found && !error && html`<div class="card">${first && second ? html`<${Loading} />` : html`<${Empty}>${first || second ? "Choose another run to compare it with." : "Choose two runs to see where they diverge."}<//>`}</div>`}
    ${found && html`
      <div class="banner ${found.divergence === null ? "info" : ""}" role="status">${found.divergence === null ? "The calls of both runs are the same." : `The runs diverge at call ${found.divergence + 1} of ${found.pairs.length}.`}${found.is_cut ? " Only the first calls of a very long run are compared." : ""}</div>
      <${Versus} first=${found.first} second=${found.second} />
      <${Section} title="Prompt" lines=${found.prompt} />
      <div class="wide-calls"><h2>Calls</h2><${VirtualList} label="Calls of both runs" items=${found.pairs.map((pair, index) => ({ ...pair, index }))} keyOf=${(pair) => pair.index} height=${34} render=${(pair) => html`<${PairRow} pair=${pair} first=${first} second=${second} isDivergence=${pair.index === found.divergence} />`} /></div>
      <${Section} title="Answer" lines=${found.answer} />`}
  <//>`;
};
