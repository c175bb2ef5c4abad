// Every tool as a form: call it as a model would, and see exactly what the model would be told.
import { html, useEffect, useRef, useState } from "../html.mjs";
import { get, post, useGet } from "../api.mjs";
import { subscribe } from "../feed.mjs";
import { count, duration, plural, pretty, visible } from "../format.mjs";
import { Link, runLink, setQuery } from "../router.mjs";
import { ApprovalForm } from "../approval.mjs";
import { Form } from "../form.mjs";
import { Graph } from "../graph.mjs";
import { CopyButton, Empty, Json, Loading, Page, Problem, Search, Tabs, Text } from "../parts.mjs";

const newId = () => crypto.randomUUID().replaceAll("-", "").slice(0, 16);

const isImage = (url) => /^data:image\/(png|jpeg|gif|webp);base64,/.test(url);

const Answer = ({ reply }) => {
  const names = Object.keys(reply.wire);
  const [provider, setProvider] = useState("");
  return html`<section class="card stack" aria-label="Reply">
    <div class="row wrap"><span class="tag ${reply.is_error ? "bad" : "good"}">${reply.is_error ? "error" : "success"}</span>${reply.dry_run && html`<span class="tag">dry run: the body did not run</span>`}
      <span class="small dim num">${duration(reply.seconds)}</span>${!reply.dry_run && html`<${Link} class="small" to=${runLink(reply.run_id)}>Open the run<//>`}
      <select class="end" aria-label="As sent to" value=${provider} onChange=${(event) => setProvider(event.target.value)}><option value="">text</option>${names.map((name) => html`<option key=${name} value=${name}>${name}</option>`)}</select></div>
    <div class="label">What the model would be told</div>
    ${provider ? html`<${Json} value=${reply.wire[provider]} />` : reply.text === "" ? html`<div class="box dim">The text is empty.</div>` : html`<${Text} text=${reply.text} />`}
    ${reply.images.filter(isImage).map((url, index) => html`<img key=${index} src=${url} alt="Image of the result" style=${{ maxWidth: "100%" }} />`)}
    ${reply.contents.length > reply.images.length && html`<p class="small dim">and ${reply.contents.join(", ")}, which is not shown here</p>`}
    ${reply.repairs.length > 0 && html`<div><div class="label">Repairs of the arguments</div><${Json} value=${reply.repairs} /></div>`}
  </section>`;
};

const Shown = ({ providers }) => {
  const [current, setCurrent] = useState(providers[0].name);
  const view = providers.find((each) => each.name === current);
  return html`<section class="card stack" aria-label="What providers are shown"><h2 class="flat">What each provider is shown</h2>
    <${Tabs} label="Providers" wrap=${true} tabs=${providers.map((each) => [each.name, html`${each.name}${each.notes.length ? html` <span class="tag warn" title=${plural(each.notes.length, "loss", "losses")}>${each.notes.length}</span>` : ""}`])} current=${current} onSelect=${setCurrent} />
    ${view.notes.length > 0 && html`<div><div class="label">What its model does not see as declared</div><ul class="small">${view.notes.map((note, index) => html`<li key=${index}>${visible(note)}</li>`)}</ul></div>`}
    ${view.error ? html`<${Problem} error=${view.error} />` : html`<pre class="box mono code" tabindex="0">${visible(pretty(view.shown))}</pre>`}</section>`;
};

const SNIPPETS = [["python", "Python"], ["command", "Command"], ["curl", "curl"]];

const Code = ({ snippets }) => {
  const [kind, setKind] = useState("python");
  return html`<section class="card stack" aria-label="The call as code"><div class="row wrap"><h2 class="grow flat">The call as code</h2><${CopyButton} text=${snippets[kind]} /></div>
    <${Tabs} label="Kinds of code" tabs=${SNIPPETS} current=${kind} onSelect=${setKind} /><pre class="box mono code" tabindex="0">${visible(snippets[kind])}</pre></section>`;
};

const useWaiting = (callId) => {
  const [waiting, setWaiting] = useState([]);
  useEffect(() => {
    if (!callId) { setWaiting([]); return undefined; }
    const look = () => get("/api/approvals").then(({ requests }) => setWaiting(requests.filter((request) => request.call_id === callId)), () => {});
    look();
    return subscribe((message) => { if (message.kind !== "events") look(); });
  }, [callId]);
  return waiting;
};

const Try = ({ tool, me }) => {
  const [tab, setTab] = useState("form");
  const [form, setForm] = useState(tool.form);
  const [text, setText] = useState("{}");
  const [reply, setReply] = useState(null);
  const [snippets, setSnippets] = useState(null);
  const [error, setError] = useState("");
  const [calling, setCalling] = useState("");
  const abort = useRef(null);
  const waiting = useWaiting(calling);
  const given = () => (tab === "json" ? { text } : { form });
  const convert = async (body) => post("/api/tool/convert", { name: tool.name, ...body });
  useEffect(() => {
    if (!me.may_change) return undefined;
    const timer = setTimeout(() => convert(given()).then((found) => { setSnippets(found.snippets); setError(""); }, (problem) => setError(problem.message)), 200);
    return () => clearTimeout(timer);
  }, [form, text, tab]);
  useEffect(() => () => abort.current?.abort(), []);
  const select = async (next) => {
    try {
      const found = await convert(given());
      if (next === "json") { setText(prettyOr(found.text)); } else if (found.form) { setForm(found.form); } else { setError("This text is not JSON, so it has no form"); return; }
      setError("");
      setTab(next);
    } catch (problem) { setError(problem.message); }
  };
  const call = async (dryRun) => {
    const id = newId();
    abort.current = new AbortController();
    setCalling(id);
    setError("");
    try { setReply(await post("/api/tool/call", { name: tool.name, dry_run: dryRun, call_id: id, ...given() }, { signal: abort.current.signal })); } catch (problem) { setError(problem.message); }
    setCalling("");
  };
  return html`<div class="stack gap">
    <section class="card stack" aria-label="Arguments">
      <div><h2 class="mono">${visible(tool.name)}</h2><p class="dim prose">${visible(tool.description)}</p></div>
      ${(tool.gated || tool.effects) && html`<div class="row wrap">${tool.gated && html`<span class="tag warn">needs approval</span>`}${tool.effects && html`<span class="tag">effects: ${visible(tool.effects)}</span>`}</div>`}
      ${tool.graph && html`<${Graph} node=${tool.graph} />`}
      <${Tabs} label="Arguments" tabs=${[["form", "Form"], ["json", "JSON"]]} current=${tab} onSelect=${select} />
      ${tab === "form" ? html`<${Form} form=${form} onChange=${setForm} onExpand=${(place) => get("/api/tool/expand", { name: tool.name, place }).then((found) => found.field)} />`
        : html`<textarea class="code" rows="12" spellcheck=${false} aria-label="Arguments as JSON" value=${text} onInput=${(event) => setText(event.target.value)}></textarea>`}
      <${Problem} error=${error} />
      <div class="row wrap"><button class="primary" disabled=${!me.may_operate || calling} onClick=${() => call(false)}>Call</button><button disabled=${!me.may_operate || calling} onClick=${() => call(true)}>Dry run</button>
        ${calling && html`<button onClick=${() => abort.current.abort()}>Stop</button><span class="dim" role="status">${waiting.length ? "Waits for approval" : "Running"}</span>`}
        ${!me.may_operate && html`<span class="dim small">You may look, and not call.</span>`}</div>
    </section>
    ${waiting.map((request) => html`<${ApprovalForm} key=${request.id} id=${request.id} me=${me} />`)}
    ${reply && html`<${Answer} key=${reply.run_id} reply=${reply} />`}
    <div class="two late">${snippets ? html`<${Code} snippets=${snippets} />` : html`<div></div>`}<${Shown} providers=${tool.providers} /></div>
  </div>`;
};

const prettyOr = (text) => { try { return pretty(JSON.parse(text)); } catch { return text; } };

export const Playground = ({ query, me }) => {
  const list = useGet("/api/tools");
  const [text, setText] = useState("");
  const tools = list.data?.tools ?? [];
  const name = query.tool ?? tools[0]?.name;
  const { data, error, isCurrent } = useGet(name ? "/api/tool" : null, { name });
  const found = tools.filter((tool) => `${tool.name} ${tool.description}`.toLowerCase().includes(text.toLowerCase()));
  if (list.data && tools.length === 0) return html`<${Page} title="Playground"><div class="card"><${Empty}><p>No tools. Start the server with a file or a module that defines some:</p><pre class="mono">toolsemble ui my_tools.py</pre><//></div><//>`;
  return html`<${Page} title="Playground" note="Call a tool as a model would, on the same path.">
    <${Problem} error=${list.error ?? error} />
    <div class="split"><nav class="card menu" aria-label="Tools">
        ${tools.length > 8 && html`<${Search} value=${text} label=${`Search ${count(tools.length)} tools`} onChange=${setText} />`}
        ${found.slice(0, 500).map((tool) => html`<${Link} key=${tool.name} to=${`/playground?tool=${encodeURIComponent(tool.name)}`} aria-current=${tool.name === name ? "true" : undefined}><span class="mono">${visible(tool.name)}</span>${tool.gated && html` <span class="tag warn">approval</span>`}<small>${visible(tool.description)}</small><//>`)}</nav>
      <div>${!(data && isCurrent) && !error && !list.error && html`<div class="card"><${Loading} /></div>`}${data && isCurrent && html`<${Try} key=${data.name} tool=${data} me=${me} />`}</div></div>
  <//>`;
};
