// One run: the conversation, the timeline, the tree of calls, and the raw events.
import { html, useEffect, useMemo, useState } from "../html.mjs";
import { address, get, post } from "../api.mjs";
import { clock, cost, count, duration, moment, plural, pretty, shortError, summary, time, visible } from "../format.mjs";
import { Link, navigate, runLink, setQuery } from "../router.mjs";
import { VirtualList } from "../list.mjs";
import { Markdown as MarkdownBody } from "../markdown.mjs";
import { CallView, Message } from "../call_view.mjs";
import { useRun } from "../run_data.mjs";
import { Timeline, Tree } from "../timeline.mjs";
import { Empty, Facts, FoldAway, Loading, Page, Problem, State, Tabs, toast } from "../parts.mjs";

const TABS = [["conversation", "Conversation"], ["timeline", "Timeline"], ["tree", "Tree"], ["raw", "Raw"]];
const ROLES = { system: "Instructions", user: "User", assistant: "Model", tool: "Result of a call" };

const messageOf = (message) => ({
  role: message.role,
  text: message.role === "tool" ? message.output ?? message.error_message ?? "" : message.text ?? "",
  calls: (message.calls ?? []).map((call) => call.name),
});

// A run starts with its instructions, with what was said in earlier runs, and with the new prompt.
const messagesOf = (event) => {
  const messages = (event.values.messages ?? []).map((message, index) => ({ kind: "message", key: `${event.number}.${index}`, number: event.number, ...messageOf(message) }));
  const prompt = messages.findLastIndex((message) => message.role === "user");
  const isEarlier = (message, index) => message.role !== "system" && index < prompt;
  const { earlier } = event.values;
  const count = messages.filter(isEarlier).length + (earlier?.messages ?? 0);
  const fresh = messages.filter((message, index) => !isEarlier(message, index));
  if (!count) return fresh;
  const at = fresh.findIndex((message) => message.role !== "system");
  const item = { kind: "earlier", key: `${event.number}.earlier`, number: event.number, count, runId: earlier?.run_id };
  return at < 0 ? [...fresh, item] : [...fresh.slice(0, at), item, ...fresh.slice(at)];
};

// The items of a conversation: those directly inside one call, or on the outermost level. An agent that waited, or was
// interrupted, starts again and goes on: only its first start and its last end are shown.
const itemsInside = ({ turns, calls, agents }, parent) => {
  const items = [];
  const firsts = new Set(agents.map((agent) => agent.number));
  for (const event of turns) {
    if (event.parent_id !== parent || event.values.stop_reason === "taken_over") continue;
    if (event.kind === "run_started" && !firsts.has(event.number)) {
      if (items.at(-1)?.kind === "run_finished") items.pop();
    } else if (event.kind === "run_started") items.push(...messagesOf(event));
    else items.push({ kind: event.kind, key: `e${event.number}`, number: event.number, event });
  }
  for (const call of calls) if (call.parent_id === parent) items.push({ kind: "call", key: `c${call.number}`, number: call.number, call });
  return items.sort((first, second) => first.number - second.number);
};

// Instructions repeat in every run, and are long: the first line is enough.
const Instructions = ({ text }) => html`<${FoldAway} title="Instructions" note=${visible(text.slice(0, 200))}><p class="prose">${visible(text)}</p><//>`;

// What was said before is fetched when somebody wants to see it.
const Earlier = ({ item }) => {
  const [messages, setMessages] = useState(null);
  const [error, setError] = useState("");
  const load = async () => {
    if (messages) return;
    try {
      const { event } = await get("/api/event", { number: item.number });
      const all = event.values.messages.map(messageOf);
      setMessages(all.slice(0, all.findLastIndex((message) => message.role === "user")).filter((message) => message.role !== "system"));
    } catch (problem) { setError(problem.message); }
  };
  return html`<${FoldAway} title="Earlier in this conversation" note=${plural(item.count, "message")} onOpen=${load}>
    ${item.runId && html`<p class="small"><${Link} to=${runLink(item.runId)}>Open the run before<//></p>`}<${Problem} error=${error} />
    ${messages?.map((message, index) => html`<${Message} key=${index} kind=${message.role} who=${ROLES[message.role] ?? message.role} text=${message.text || `Calls ${message.calls.join(", ")}`} plain=${message.role !== "assistant" || !message.text} />`)}
  <//>`;
};

const Reply = ({ event, role, onRerun }) => {
  const { message, turn, usage, cost: price, duration: seconds } = event.values;
  const note = html`<span>turn ${turn}</span>${seconds >= 0.001 && html`<span class="num">${duration(seconds)}</span>`}
    ${usage && usage.input_tokens + usage.output_tokens > 0 && html`<span class="num">${count(usage.input_tokens)} in, ${count(usage.output_tokens)} out</span>`}${price ? html`<span class="num">${cost(price)}</span>` : null}
    ${onRerun && html`<button class="plain small" aria-label=${`Re-run from here, turn ${turn}`} onClick=${() => onRerun(turn)}>Re-run from here</button>`}`;
  return html`<div class="say assistant"><div class="who"><b>${visible(role)}</b>${note}</div>${message?.text ? html`<div class="body"><${MarkdownBody} text=${message.text} /></div>` : null}</div>`;
};


const STOPPED = {
  paused: "Waits for a decision.",
  parked: "Waits for a person. It continues after the answer.",
  interrupted: "Interrupted. It continues in another process, or later.",
  cancelled: "Cancelled.",
};

const agentOf = (event) => (event.values.agent_role === "unknown" ? "" : event.values.agent_role);

const Finish = ({ event, state }) => {
  const { stop_reason: told, error_type: type, error } = event.values;
  // A run that waits, or was interrupted, may be cancelled without an event.
  const reason = state === "cancelled" && STOPPED[told] ? "cancelled" : told;
  // The error of the whole run is at the top of the page.
  if (type) return event.parent_id ? html`<div class="banner bad">${visible(shortError(`${type}: ${error}`))}</div>` : null;
  return reason === "answer" ? null : html`<div class="small dim">${STOPPED[reason] ?? `Ended: ${visible(reason)}`}</div>`;
};

const Item = ({ item, context }) => {
  if (item.kind === "earlier") return html`<${Earlier} item=${item} />`;
  if (item.kind === "message" && item.role === "system") return html`<${Instructions} text=${item.text} />`;
  if (item.kind === "message") return html`<${Message} kind=${item.role} who=${ROLES[item.role] ?? item.role} text=${item.text} plain=${item.role !== "assistant"} />`;
  if (item.kind === "model_replied") return html`<${Reply} event=${item.event} role=${agentOf(item.event) || "Model"} onRerun=${item.event.parent_id === "" ? context.onRerun : null} />`;
  if (item.kind === "model_retried") return html`<div class="small warn">The model failed (${visible(item.event.values.reason)}); retried after ${duration(item.event.values.seconds)}</div>`;
  if (item.kind === "run_finished") return html`<${Finish} event=${item.event} state=${context.state} />`;
  const inner = (call) => itemsInside(context, call.call_id).filter((each) => each.number > call.number && (!call.finished || each.number < call.finished))
    .map((each) => html`<${Item} key=${each.key} item=${each} context=${context} />`);
  return html`<${CallView} runId=${context.id} call=${item.call} runState=${context.state} review=${context.reviews.get(item.call.call_id)} inner=${inner} />`;
};

const Conversation = ({ context, isLive }) => {
  const items = useMemo(() => itemsInside(context, ""), [context.turns, context.calls, context.agents]);
  return html`<${VirtualList} label="Conversation" items=${items} keyOf=${(item) => item.key} height=${34} follow=${isLive}
    render=${(item) => html`<${Item} item=${item} context=${context} />`} />`;
};

const JOURNAL = `Agent(..., name="clerk", journal=RunJournal(".toolsemble/runs.db"))`;

// A history has secrets masked and long texts cut; only a journal has what a run needs to go on from a step.
const NoJournal = () => html`<div class="card" role="status"><p>This run has no journal, so that it cannot be repeated from a step. Runs of a program with a journal in the data folder can:</p>
  <pre class="box mono code" tabindex="0">${JOURNAL}</pre><p class="small dim note">They have “Re-run from here” next to each reply.</p></div>`;

const RawEvent = ({ event }) => {
  const [whole, setWhole] = useState(null);
  const isCut = Object.keys(event.cut).length > 0;
  return html`<details class="event"><summary><span class="num faint small">${event.number}</span><span class="mono">${visible(event.kind)}</span><span class="dim cut grow">${visible(event.tool_name)}</span><span class="small faint num">${clock(event.at)}</span></summary>
    <pre class="mono">${visible(pretty((whole ?? event).values))}</pre>
    ${isCut && !whole && html`<button class="plain" onClick=${async () => setWhole((await get("/api/event", { number: event.number })).event)}>Show long texts in full</button>`}</details>`;
};

const Raw = ({ id, last }) => {
  const [events, setEvents] = useState([]);
  const [more, setMore] = useState(true);
  const [error, setError] = useState("");
  const load = async () => {
    try {
      const page = await get("/api/run/events", { id, after: events.at(-1)?.number, limit: 500 });
      setEvents((known) => [...known, ...page.events.filter((event) => event.number > (known.at(-1)?.number ?? 0))]);
      setMore(page.more);
    } catch (problem) { setError(problem.message); }
  };
  useEffect(() => { if (!more || events.length === 0) load(); }, [id, last]);
  return html`<${Problem} error=${error} /><div class="card flush raw"><${VirtualList} label="Events" items=${events} keyOf=${(event) => event.number} height=${35} render=${(event) => html`<${RawEvent} event=${event} />`} /></div>
    ${more && events.length > 0 && html`<div><button onClick=${load}>Show more events</button></div>`}`;
};

const isLive = (run) => run.state === "running" || run.state === "waiting";

const Summary = ({ run, agents }) => html`<div class="card"><${Facts} of=${[
  ["State", html`<${State} state=${run.state} />`],
  ["Agent", run.agent_role === "unknown" ? "" : run.agent_role],
  ["Model", run.model],
  ["Started", html`<span title=${moment(run.started)}>${time(run.started)}</span>`],
  ["Time", duration((run.ended ?? (isLive(run) ? Date.now() / 1000 : run.updated)) - run.started)],
  ["Turns", run.turns || ""],
  ["Calls", run.failures ? html`${count(run.calls)}, <span class="bad">${count(run.failures)} failed</span>` : count(run.calls)],
  ["Tokens", run.input_tokens || run.output_tokens ? `${count(run.input_tokens)} in, ${count(run.output_tokens)} out${run.cached_tokens ? `, ${count(run.cached_tokens)} cached` : ""}` : ""],
  ["Cost", cost(run.cost)],
  ["Repairs", run.repairs || ""],
  ["Retries", run.retries || ""],
  ["Reviewed by", run.reviewers.join(", ")],
  ["Agents inside", agents.length > 1 ? String(agents.length - 1) : ""],
  ["Conversation", run.memory_id === "default" ? "" : run.memory_id],
]} /></div>`;

export const Run = ({ query, me }) => {
  const { id } = query;
  const tab = TABS.some(([each]) => each === query.tab) ? query.tab : "conversation";
  const data = useRun(id);
  const [isExplained, setExplained] = useState(false);
  const { run, durable } = data;
  const reviews = useMemo(() => new Map(data.reviews.map((review) => [review.call_id, review])), [data.reviews]);
  const rerun = async (turn) => {
    try {
      const { id: fresh } = await post("/api/durable/fork", { id, after: `/${turn}` });
      if (durable.has_agent) await post("/api/durable/resume", { id: fresh });
      navigate(address("/durable", { id: fresh }));
    } catch (problem) { toast(problem.message); }
  };
  if (!run) return html`<${Page} title="Run">${data.error ? html`<${Problem} error=${data.error} /><p><${Link} to="/runs">Go to the runs<//></p>` : html`<${Loading} />`}<//>`;
  const canExplain = run.is_agent && !durable && me.may_operate;
  const context = { id, state: run.state, agents: data.agents, turns: data.turns, calls: data.calls, reviews, onRerun: durable && me.may_operate ? rerun : null };
  return html`<${Page} title=${run.prompt ? summary(run.prompt) : run.run_id} note=${html`<span class="mono small">${visible(run.run_id)}</span>`}
      actions=${html`${durable && html`<${Link} class="button" to=${address("/durable", { id })}>Durable run<//>`}${canExplain && html`<button aria-expanded=${String(isExplained)} onClick=${() => setExplained(!isExplained)}>Re-run from a step</button>`}<${Link} class="button" to=${address("/compare", { first: id })}>Compare<//>`}>
    ${data.pending > 0 && html`<div class="banner">${plural(data.pending, "call")} ${data.pending === 1 ? "waits" : "wait"} for approval. <${Link} to=${address("/approvals", { run: id })}>Decide<//></div>`}
    <${Problem} error=${data.error || run.error} />
    ${canExplain && isExplained && html`<${NoJournal} />`}
    <${Summary} run=${run} agents=${data.agents} />
    <${Tabs} label="Views of the run" tabs=${TABS} current=${tab} onSelect=${(next) => setQuery({ tab: next })} />
    <div data-calls=${data.calls.length} data-complete=${String(data.isComplete)}>
      ${tab === "conversation" && html`<${Conversation} context=${context} isLive=${isLive(run)} />`}
      ${tab === "timeline" && html`<${Timeline} id=${id} last=${run.last} />`}
      ${tab === "tree" && html`<${Tree} id=${id} last=${run.last} />`}
      ${tab === "raw" && html`<${Raw} id=${id} last=${run.last} />`}
      ${tab === "conversation" && data.isComplete && !data.calls.length && !data.turns.length && html`<${Empty}>Nothing has happened in this run yet.<//>`}
    </div>
  <//>`;
};
