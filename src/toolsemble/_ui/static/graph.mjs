// A pipeline as a picture: boxes inside boxes, because a pipeline is a tree.
import { html } from "./html.mjs";
import { visible } from "./format.mjs";

const Arrow = () => html`<span class="arrow" aria-hidden="true">→</span>`;

const Leaf = ({ node }) => html`<div class="node ${node.approval ? "gated" : ""}" title=${visible(node.description)}>
  <b>${visible(node.name)}</b>
  <div class="small dim">${node.approval ? `${node.approval === "always" ? "needs approval" : "may need approval"}${node.role ? ` by ${visible(node.role)}` : ""}` : ""}${node.undo ? ` undone by ${visible(node.undo)}` : ""}${node.is_adapted ? " output adapted" : ""}</div>
</div>`;

const NAMES = { parallel: "at the same time", choice: "one of them", each: "for each item", retry: "until it succeeds", sequence: "" };

export const Node = ({ node }) => {
  if (!node.parts.length) return html`<${Leaf} node=${node} />`;
  if (node.kind === "sequence") return html`<div class="graph">${node.parts.flatMap((part, index) => [index ? html`<${Arrow} />` : null, html`<${Node} node=${part} />`])}</div>`;
  return html`<div class="cluster"><div class="label">${visible(node.name)}${NAMES[node.kind] ? html` <span class="faint">${NAMES[node.kind]}</span>` : ` (${visible(node.kind)})`}${node.approval ? html` <span class="warn">needs approval</span>` : ""}</div>${node.parts.map((part, index) => html`<${Node} key=${index} node=${part} />`)}</div>`;
};

export const Graph = ({ node }) => html`<div class="graph" role="img" aria-label=${`The steps of ${node.name}`}><${Node} node=${node} /></div>`;
