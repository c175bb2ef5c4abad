// Who decided what, newest first; entries are never changed.
import { html, useEffect, useState } from "../html.mjs";
import { get, useGet } from "../api.mjs";
import { subscribe } from "../feed.mjs";
import { moment, visible } from "../format.mjs";
import { Link, setQuery } from "../router.mjs";
import { Empty, Page, Problem } from "../parts.mjs";

const KINDS = { asked: "", answered: "good", used: "good", refused: "bad", expired: "warn", withdrawn: "", abandoned: "warn" };

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
    <div class="card flush scroll-x">${data && events.length === 0 ? html`<${Empty}>Nothing was asked yet.<//>` : html`<table>
      <thead><tr><th>When</th><th>What</th><th>Tool</th><th>Person</th><th>Detail</th><th>Request</th></tr></thead>
      <tbody>${events.map((event) => html`<tr key=${event.number}><td class="nowrap num dim">${moment(event.at)}</td><td><span class="tag ${KINDS[event.kind] ?? ""}">${visible(event.kind)}</span></td><td class="mono">${visible(event.tool_name)}</td>
        <td>${visible(event.person)}${event.role ? html` <span class="dim">(${visible(event.role)})</span>` : ""}</td><td class="mono small">${visible(event.detail.length > 400 ? `${event.detail.slice(0, 400)}…` : event.detail)}</td>
        <td class="mono small"><${Link} to=${`/audit?request=${encodeURIComponent(event.request_id)}`}>${visible(event.request_id.slice(0, 10))}<//></td></tr>`)}</tbody></table>`}</div>
    ${(more ?? data?.more) && html`<div><button onClick=${load}>Show older entries</button></div>`}
  <//>`;
};
