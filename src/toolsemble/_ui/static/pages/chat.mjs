// A conversation with an agent: its text as it is written, its calls and approvals in line.
import { html, useEffect, useRef, useState } from "../html.mjs";
import { ApiError, openPost } from "../api.mjs";
import { visible } from "../format.mjs";
import { Link, runLink, setQuery } from "../router.mjs";
import { ApprovalForm } from "../approval.mjs";
import { Markdown } from "../markdown.mjs";
import { Empty, Json, Page, Problem, Text } from "../parts.mjs";

const newId = () => `chat-${crypto.randomUUID().slice(0, 13)}`;

// Yield the events of a stream that a POST has opened.
async function* readEvents(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const parts = (rest + value).split("\n\n");
    rest = parts.pop();
    for (const part of parts) {
      const kind = part.match(/^event: (.*)$/m)?.[1];
      const data = part.split("\n").filter((line) => line.startsWith("data: ")).map((line) => line.slice(6)).join("\n");
      if (data) yield { ...JSON.parse(data), ...(kind ? { kind } : {}) };
    }
  }
}

// The parts of an answer, changed by one event.
const reduce = (parts, event) => {
  const last = parts.at(-1);
  const swap = (test, change) => parts.map((part) => (test(part) ? { ...part, ...change } : part));
  switch (event.kind) {
    case "text_delta": return last?.kind === "text" ? [...parts.slice(0, -1), { ...last, text: last.text + event.text }] : [...parts, { kind: "text", text: event.text }];
    case "thought_delta": return last?.kind === "thought" ? [...parts.slice(0, -1), { ...last, text: last.text + event.text }] : [...parts, { kind: "thought", text: event.text }];
    case "model_retried": return [...(last?.kind === "text" ? [...parts.slice(0, -1), { ...last, text: last.text.slice(0, last.text.length - event.discarded.length) }] : parts), { kind: "note", text: "The model failed and is asked again." }];
    case "call_requested": return [...parts, { kind: "call", ...event.call }];
    case "call_replied": return parts.some((part) => part.kind === "call" && part.id === event.call.id) ? swap((part) => part.kind === "call" && part.id === event.call.id, { text: event.text, is_error: event.is_error, arguments: event.arguments }) : [...parts, { kind: "call", ...event.call, text: event.text, is_error: event.is_error }];
    case "call_progress": return swap((part) => part.kind === "call" && part.id === event.call_id, { progress: event.message });
    case "review_requested": return [...parts, { kind: "review", id: event.request.id, tool: event.request.tool_name }];
    case "review_decided": return swap((part) => part.kind === "review" && part.id === event.request_id, { decision: event.decision });
    case "run": return [...parts, { kind: "run", run: event.run_id }];
    case "error": return [...parts, { kind: "error", text: event.message }];
    case "final": return parts.some((part) => part.kind === "text" && part.text.trim()) || !event.text ? [...parts, { kind: "end", reason: event.stop_reason }] : [...parts, { kind: "text", text: event.text }, { kind: "end", reason: event.stop_reason }];
    case "parked": case "interrupted": case "cancelled": return [...parts, { kind: "end", reason: event.kind }];
    default: return parts;
  }
};

const DECISIONS = { continue: "approved", edit: "approved as edited", reject: "rejected" };

const Call = ({ part }) => {
  const isDone = part.text !== undefined;
  return html`<details class="call ${part.is_error ? "failed" : isDone ? "" : "open"}"><summary><span class="dot ${part.is_error ? "failed" : isDone ? "done" : "running"}"></span><span class="name">${visible(part.name)}</span><span class="args cut">${visible(JSON.stringify(part.arguments))}</span>${part.progress && !isDone && html`<span class="small dim">${visible(part.progress)}</span>`}</summary>
    <div class="inside"><div><div class="label">Arguments</div><${Json} value=${part.arguments} /></div>${isDone && html`<div><div class="label">What the model was told</div><${Text} text=${part.text} /></div>`}</div></details>`;
};

const Part = ({ part, me, isOpen }) => {
  if (part.kind === "text") return html`<div class="body ${isOpen ? "caret" : ""}"><${Markdown} text=${part.text} /></div>`;
  if (part.kind === "thought") return html`<details class="small dim"><summary>Thoughts</summary><pre>${visible(part.text)}</pre></details>`;
  if (part.kind === "call") return html`<${Call} part=${part} />`;
  if (part.kind === "review") return part.decision ? html`<div class="small"><span class="tag ${part.decision === "reject" ? "bad" : "good"}">${visible(part.tool)}: ${DECISIONS[part.decision] ?? part.decision}</span></div>` : html`<${ApprovalForm} id=${part.id} me=${me} />`;
  if (part.kind === "error") return html`<${Problem} error=${part.text} />`;
  if (part.kind === "note") return html`<div class="small warn">${part.text}</div>`;
  if (part.kind === "end" && part.reason !== "answer") return html`<div class="small dim">Ended: ${visible(part.reason)}</div>`;
  return null;
};

const Exchange = ({ exchange, agent, me }) => {
  const run = exchange.parts.find((part) => part.kind === "run");
  return html`<div><div class="say user"><div class="who"><b>You</b></div><div class="body"><p class="prose">${visible(exchange.prompt)}</p></div></div>
    <div class="say assistant stack"><div class="who"><b>${visible(agent)}</b>${run && html`<${Link} class="small" to=${runLink(run.run)}>Open the run<//>`}</div>
      ${exchange.parts.map((part, index) => html`<${Part} key=${index} part=${part} me=${me} isOpen=${exchange.isOpen && index === exchange.parts.length - 1} />`)}</div></div>`;
};

export const Chat = ({ query, me }) => {
  const agent = query.agent ?? me.agents[0];
  const [exchanges, setExchanges] = useState([]);
  const [prompt, setPrompt] = useState("");
  const [chat, setChat] = useState(newId);
  const abort = useRef(null);
  const end = useRef(null);
  const isBusy = exchanges.at(-1)?.isOpen ?? false;
  useEffect(() => () => abort.current?.abort(), []);
  useEffect(() => { if (isBusy) end.current?.scrollIntoView({ block: "nearest" }); }, [exchanges]);
  if (!agent) return html`<${Page} title="Chat"><div class="card"><${Empty}><p>No agents. Start the server with a file that defines one:</p><pre class="mono">toolsemble ui bots.py</pre><//></div><//>`;
  const change = (work) => setExchanges((known) => [...known.slice(0, -1), work(known.at(-1))]);
  const fail = (message) => change((last) => ({ ...last, parts: [...last.parts, { kind: "error", text: message }] }));
  const send = async () => {
    const text = prompt.trim();
    if (!text || isBusy) return;
    setPrompt("");
    setExchanges((known) => [...known, { prompt: text, parts: [], isOpen: true }]);
    abort.current = new AbortController();
    try {
      const response = await openPost("/api/chat", { agent, prompt: text, chat }, { signal: abort.current.signal });
      if (!response.ok) throw new ApiError(response.status, (await response.json()).error);
      for await (const event of readEvents(response)) change((last) => ({ ...last, parts: reduce(last.parts, event) }));
    } catch (problem) { fail(problem.name === "AbortError" || abort.current.signal.aborted ? "Stopped" : problem.message); }
    change((last) => ({ ...last, isOpen: false }));
  };
  const restart = () => { abort.current?.abort(); setExchanges([]); setChat(newId()); };
  return html`<${Page} title="Chat" fill=${true} actions=${html`${me.agents.length > 1 && html`<select aria-label="Agent" value=${agent} onChange=${(event) => { restart(); setQuery({ agent: event.target.value }); }}>${me.agents.map((name) => html`<option key=${name} value=${name}>${visible(name)}</option>`)}</select>`}<button disabled=${!exchanges.length} onClick=${restart}>New conversation</button>`}>
    <div class="chat"><div class="log" aria-live="polite">${exchanges.length === 0 && html`<${Empty}>Say something to ${visible(agent)}.<//>`}
        ${exchanges.map((exchange, index) => html`<${Exchange} key=${index} exchange=${exchange} agent=${agent} me=${me} />`)}<div ref=${end}></div></div>
      <form class="composer" onSubmit=${(event) => { event.preventDefault(); send(); }}>
        <textarea rows="2" aria-label="Message" placeholder=${me.may_operate ? "Message; Enter sends it" : "You may look, and not chat"} value=${prompt} disabled=${!me.may_operate} onInput=${(event) => setPrompt(event.target.value)} onKeyDown=${(event) => { if (event.key === "Enter" && !event.shiftKey && !event.isComposing) { event.preventDefault(); send(); } }}></textarea>
        ${isBusy ? html`<button type="button" onClick=${() => abort.current.abort()}>Stop</button>` : html`<button class="primary" disabled=${!prompt.trim()}>Send</button>`}
      </form></div>
  <//>`;
};
