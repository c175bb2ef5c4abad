// Durable runs: their state and owner; cancel, resume, take over, fork from a step.
import { html, useEffect, useState } from "../html.mjs";
import { address, post, useGet } from "../api.mjs";
import { subscribe } from "../feed.mjs";
import { ago, duration, moment, summary, visible } from "../format.mjs";
import { Link, navigate, runLink, setQuery } from "../router.mjs";
import { Markdown } from "../markdown.mjs";
import { Empty, Facts, Loading, Page, Problem, State, toast } from "../parts.mjs";

const STATES = ["queued", "running", "waiting", "done", "failed", "cancelled", "lost"];

const useReload = (reload) => useEffect(() => subscribe((message) => { if (message.kind !== "events") reload(); }), [reload]);

const List = ({ query }) => {
  const { data, error, reload } = useGet("/api/durable", { state: query.state });
  useReload(reload);
  return html`<${Page} title="Durable runs" note="Runs in a journal continue after a crash, on this machine or by a worker.">
    <div class="filters"><select aria-label="State" value=${query.state ?? ""} onChange=${(event) => setQuery({ state: event.target.value })}><option value="">All states</option>${STATES.map((state) => html`<option key=${state} value=${state}>${state}</option>`)}</select></div>
    <${Problem} error=${error} />
    <div class="card flush scroll-x">${data && data.runs.length === 0 ? html`<${Empty}>${data.exists ? "No runs in this state." : html`<p>No durable runs. A program records them with</p><pre class="mono">Agent(..., journal=RunJournal(".toolsemble/runs.db"))</pre>`}<//>` : !data ? !error && html`<${Loading} />` : html`<table class="cards">
      <thead><tr><th>Run</th><th>State</th><th>Prompt</th><th>Agent</th><th>Owner</th><th>Changed</th></tr></thead>
      <tbody>${data.runs.map((run) => html`<tr key=${run.run_id}><td data-label="Run" class="mono small"><${Link} class="clamp" to=${address("/durable", { id: run.run_id })}>${visible(run.run_id)}<//></td><td data-label="State"><${State} state=${run.state} /></td><td data-label="Prompt"><div class="clamp">${summary(run.prompt)}</div></td><td data-label="Agent"><div class="clamp">${visible(run.agent)}</div></td><td data-label="Owner" class="dim nowrap">${run.is_driven && html`<div class="cut">${visible(run.owner)}</div>`}</td><td data-label="Changed" class="dim nowrap">${ago(run.updated)}</td></tr>`)}</tbody></table>`}</div>
    ${data && data.total > data.runs.length && html`<p class="dim">The latest ${data.runs.length} of ${data.total} runs are shown.</p>`}
  <//>`;
};

const Fork = ({ id, place }) => {
  const [name, setName] = useState("");
  const [isOpen, setOpen] = useState(false);
  const fork = async (event) => {
    event.preventDefault();
    try {
      const { id: fresh } = await post("/api/durable/fork", { id, after: place, new_id: name });
      toast(`Recorded ${fresh}`);
      navigate(address("/durable", { id: fresh }));
    } catch (problem) { toast(problem.message); }
  };
  if (!isOpen) return html`<button class="plain" aria-label=${`Fork after this turn, ${place}`} onClick=${() => setOpen(true)}>Fork after this turn</button>`;
  return html`<form class="row" onSubmit=${fork}><input type="text" aria-label="Id of the new run" placeholder="id of the new run" value=${name} onInput=${(event) => setName(event.target.value)} /><button>Fork</button></form>`;
};

const One = ({ id, me }) => {
  const { data, error, reload } = useGet("/api/durable/run", { id });
  useReload(reload);
  const act = async (action, done) => { try { await post(`/api/durable/${action}`, { id }); toast(done); reload(); } catch (problem) { toast(problem.message); } };
  if (!data) return html`<${Page} title=${id}>${error ? html`<${Problem} error=${error} />` : html`<${Loading} />`}<//>`;
  const { run, steps } = data;
  const isOpen = run.state !== "done" && run.state !== "cancelled";
  const isTurn = (step) => step.kind === "reply" && step.place.lastIndexOf("/") === 0;
  return html`<${Page} title=${run.prompt ? summary(run.prompt) : id} note=${html`<span class="mono small">${visible(id)}</span>`} actions=${html`
      ${data.in_history && html`<${Link} class="button" to=${runLink(id)}>Conversation and timeline<//>`}
      ${isOpen && html`<button disabled=${!me.may_operate || !run.can_resume} onClick=${() => act("resume", "Resumed in this server")}>Resume here</button>`}
      ${run.is_driven && html`<button disabled=${!me.may_operate} onClick=${() => act("take-over", "Taken from its process; it is queued")}>Take over</button>`}
      ${isOpen && html`<button class="danger" disabled=${!me.may_operate || !run.can_cancel} onClick=${() => act("cancel", "Cancelled")}>Cancel</button>`}`}>
    <${Problem} error=${error || run.error} />
    <div class="card"><${Facts} of=${[["State", html`<${State} state=${run.state} />`], ["Agent", run.agent], ["Owner", run.is_driven ? run.owner : isOpen ? "none" : ""], ["Recorded", moment(run.created)], ["Changed", moment(run.updated)]]} /></div>
    ${run.text && html`<div class="card"><h2>Answer</h2><${Markdown} text=${run.text} /></div>`}
    ${isOpen && !run.is_driven && !run.has_agent && html`<div class="banner info">To resume it here, start the server with a file that defines the agent ${visible(run.agent)}. A worker can do it, too.</div>`}
    <div class="card flush scroll-x"><table class="cards"><thead><tr><th>Place</th><th>Step</th><th>State</th><th>Arguments</th><th title="The time that the run had worked when the step was recorded">After</th><th><span class="hidden">Action</span></th></tr></thead>
      <tbody>${steps.map((step) => html`<tr key=${step.place + step.kind}><td data-label="Place" class="mono">${visible(step.place)}</td><td data-label="Step" class="nowrap">${step.kind === "reply" ? "reply of the model" : step.kind === "question" ? "question to a person" : html`<span>call <span class="mono">${visible(step.tool)}</span></span>`}</td><td data-label="State"><span class="tag ${step.state === "unknown" ? "bad" : ""}">${step.state}</span></td><td data-label="Arguments" class="mono small">${step.arguments ? html`<div class="clamp" title=${visible(step.arguments)}>${visible(step.arguments)}</div>` : null}</td><td data-label="After" class="num dim nowrap">${step.elapsed ? duration(step.elapsed) : ""}</td><td>${me.may_operate && isTurn(step) && html`<${Fork} id=${id} place=${step.place} />`}</td></tr>`)}</tbody></table>
      ${steps.length === 0 && html`<${Empty}>Nothing was done yet.<//>`}</div>
  <//>`;
};

export const Durable = ({ query, me }) => (query.id ? html`<${One} id=${query.id} me=${me} />` : html`<${List} query=${query} />`);
