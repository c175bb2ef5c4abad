// Who decided what, newest first; entries are never changed.
import { html, useEffect, useState } from "../html.mjs";
import { get, useGet } from "../api.mjs";
import { subscribe } from "../feed.mjs";
import { moment, time, visible } from "../format.mjs";
import { Link, runLink, setQuery } from "../router.mjs";
import { Empty, Facts, Json, Loading, Page, Problem, Text } from "../parts.mjs";

const KINDS = { asked: "", answered: "good", used: "good", refused: "bad", expired: "warn", withdrawn: "", abandoned: "warn" };

const DECISIONS = { continue: "approved", edit: "approved as edited", exit_early: "rejected" };

// A decision is stored as its kind and its text.
const describe = (event) => {
  const [first] = event.detail.split(" ", 1);
  if (!["answered", "used"].includes(event.kind) || !(first in DECISIONS)) return { text: event.detail };
  return { decision: DECISIONS[first], kind: first, text: event.detail.slice(first.length + 1) };
};

const Detail = ({ event }) => {
  const { decision, kind, text } = describe(event);
  return html`<div>${decision && html`<span class="tag ${kind === "exit_early" ? "bad" : "good"}">${decision}</span> `}${text && html`<span class="small prose ${kind === "exit_early" ? "" : "mono"}">${visible(text)}</span>`}</div>`;
};

// All of one request, when its entries are shown alone.
const Request = ({ id }) => {
  const { data } = useGet("/api/approval", { id });
  if (!data) return null;
  const { request } = data;
  return html`<section class="card stack" aria-label="Request"><h2 class="mono">${visible(request.tool_name)}</h2>
    <${Facts} of=${[["Run", request.run_id ? html`<${Link} to=${runLink(request.run_id)}>${visible(request.run_id)}<//>` : ""], ["Agent", request.agent_role === "unknown" ? "" : request.agent_role], ["Required role", request.required_role]]} />
    ${typeof request.arguments === "string" ? html`<${Text} text=${request.arguments} />` : html`<${Json} value=${request.arguments} />`}</section>`;
};

export const Audit = ({ query }) => {
  const { data, error, reload } = useGet("/api/audit", { request: query.request, limit: 100 });
  const [older, setOlder] = useState([]);
  const [more, setMore] = useState(null);
  useEffect(() => { setOlder([]); setMore(null); }, [query.request]);
  useEffect(() => subscribe((message) => { if (message.kind !== "events") reload(); }), [reload]);
  const events = [...(data?.events ?? []), ...older.filter((event) => !data?.events.some((each) => each.number === event.number))];
  const load = async () => {
    const page = await get("/api/audit", { request: query.request, limit: 100, before: events.at(-1).number });
    setOlder((known) => [...known, ...page.events]);
    setMore(page.more);
  };
  return html`<${Page} title="Audit" note="Who asked and who answered, newest first." actions=${query.request && html`<button onClick=${() => setQuery({ request: undefined })}>Show all requests</button>`}>
    <${Problem} error=${error} />
    ${query.request && html`<${Request} id=${query.request} />`}
    <div class="card flush">${!data ? !error && html`<${Loading} />` : events.length === 0 ? html`<${Empty}>Nothing was asked yet.<//>` : html`<table class="cards">
      <thead><tr><th>When</th><th>What</th><th>Tool</th><th>Person</th><th>Detail</th><th>Request</th></tr></thead>
      <tbody>${events.map((event) => html`<tr key=${event.number}><td data-label="When" class="nowrap num dim" title=${moment(event.at)}>${time(event.at)}</td><td data-label="What"><span class="tag ${KINDS[event.kind] ?? ""}">${visible(event.kind)}</span></td><td data-label="Tool" class="mono"><span>${visible(event.tool_name)}</span></td>
        <td data-label="Person">${event.person && html`<span>${visible(event.person)}${event.role ? html` <span class="dim">(${visible(event.role)})</span>` : ""}</span>`}</td><td data-label="Detail">${event.detail && html`<${Detail} event=${event} />`}</td>
        <td data-label="Request" class="mono small"><${Link} to=${`/audit?request=${encodeURIComponent(event.request_id)}`}>${visible(event.request_id.slice(0, 10))}<//></td></tr>`)}</tbody></table>`}</div>
    ${(more ?? data?.more) && html`<div><button onClick=${load}>Show older entries</button></div>`}
  <//>`;
};
