// The pipelines of the server, as pictures.
import { html } from "../html.mjs";
import { useGet } from "../api.mjs";
import { visible } from "../format.mjs";
import { Link } from "../router.mjs";
import { Graph } from "../graph.mjs";
import { Empty, Loading, Page, Problem } from "../parts.mjs";

export const Pipelines = () => {
  const { data, error } = useGet("/api/pipelines");
  return html`<${Page} title="Pipelines" note="Tools that consist of other tools.">
    <${Problem} error=${error} />
    ${!data && !error && html`<div class="card"><${Loading} /></div>`}
    ${data && data.pipelines.length === 0 && html`<div class="card"><${Empty}><p>No pipelines. Start the server with a file that defines one:</p><pre class="mono">toolsemble ui my_tools.py</pre><//></div>`}
    ${data?.pipelines.map((pipeline) => html`<section class="card" key=${pipeline.name} aria-label=${pipeline.name}><div class="row wrap"><h2 class="mono grow flat">${visible(pipeline.name)}</h2><${Link} class="button" to=${`/playground?tool=${encodeURIComponent(pipeline.name)}`}>Try it<//></div>
      ${pipeline.description && html`<p class="dim">${visible(pipeline.description)}</p>`}<${Graph} node=${pipeline.graph} /></section>`)}
  <//>`;
};
