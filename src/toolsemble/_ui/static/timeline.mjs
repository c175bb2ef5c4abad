// The rows of a run: as bars on an axis whose waits are folded, or as a tree.
import { html, useEffect, useMemo, useRef } from "./html.mjs";
import { useGet } from "./api.mjs";
import { clock, duration, visible } from "./format.mjs";
import { VirtualList } from "./list.mjs";
import { Empty, Loading, Problem } from "./parts.mjs";

const WIDTH = 1000;

const useTimeline = (id, last) => {
  const { data, error, reload } = useGet("/api/run/timeline", { id });
  const timer = useRef(0);
  const seen = useRef(last);
  useEffect(() => {
    if (last === seen.current) return;
    seen.current = last;
    if (!timer.current) timer.current = setTimeout(() => { timer.current = 0; reload(); }, 300);
  }, [last]);
  useEffect(() => () => clearTimeout(timer.current), []);
  const rows = useMemo(() => (data ? data.rows.rows.map((row) => Object.fromEntries(data.rows.names.map((name, index) => [name, row[index]]))) : []), [data]);
  return { rows, segments: data?.segments ?? [], ticks: data?.ticks ?? [], isCut: data?.is_cut, error, isLoaded: data !== null };
};

const keyOf = (row) => `${row.kind}${row.number}`;

const barOf = (row) => {
  if (row.kind === "call") return row.state === "done" ? "" : row.state;
  return row.state === "running" ? "running" : row.kind === "turn" ? "reply" : "agent";
};

const seconds = (row) => (row.ended === null ? "" : duration(row.ended - row.started));

const Bars = ({ row, folds }) => html`<svg viewBox=${`0 0 ${WIDTH} 18`} preserveAspectRatio="none" aria-hidden="true">
  ${folds.map((fold) => html`<rect key=${fold.start} class="fold" x=${fold.start * WIDTH} y="0" width=${Math.max(1, (fold.end - fold.start) * WIDTH)} height="18" />`)}
  <rect class="bar ${barOf(row)}" x=${Math.min(row.start * WIDTH, WIDTH - 2)} y=${row.kind === "agent" ? 8 : 4} width=${Math.max(2, (row.end - row.start) * WIDTH)} height=${row.kind === "agent" ? 2 : 10} />
  ${row.waits.map(([start, end]) => html`<rect key=${start} class="bar review" x=${start * WIDTH} y="4" width=${Math.max(2, (end - start) * WIDTH)} height="10" />`)}
</svg>`;

const TimeRow = ({ row, folds }) => html`<div class="time-row" title=${`${clock(row.started)}, ${seconds(row) || row.state}`}>
  <span class="cut mono small" style=${{ paddingLeft: `${Math.min(row.level, 12) * 12}px` }}>${row.kind === "call" ? visible(row.name) : html`<span class="dim">${visible(row.name) || row.kind}</span>`}</span>
  <${Bars} row=${row} folds=${folds} />
  <span class="num small dim">${seconds(row)}</span>
</div>`;

const Ruler = ({ ticks }) => html`<div class="time-row ruler" aria-hidden="true"><span></span><div>${ticks.map(([place, seconds]) => html`<span key=${place} style=${{ left: `${place * 100}%` }}>${seconds ? duration(seconds) : "0"}</span>`)}</div><span></span></div>`;

const Axis = ({ segments }) => {
  const folded = segments.filter((segment) => segment.is_folded);
  if (!segments.length) return null;
  return html`<div class="row wrap axis"><span>${clock(segments[0].started)} to ${clock(segments.at(-1).ended)}</span>
    ${folded.slice(0, 8).map((segment) => html`<span key=${segment.started}>folded: ${duration(segment.ended - segment.started)}${segment.is_review ? " of waiting for a person" : ""}</span>`)}
    ${folded.length > 8 && html`<span>and ${folded.length - 8} more</span>`}</div>`;
};

const LEGEND = html`<div class="legend" aria-hidden="true"><span><i></i>call</span><span><i class="failed"></i>failed call</span><span><i class="reply"></i>reply of a model</span><span><i class="review"></i>waits for a person</span><span><i class="wait"></i>folded: nothing was done</span></div>`;

export const Timeline = ({ id, last }) => {
  const { rows, segments, ticks, isCut, error, isLoaded } = useTimeline(id, last);
  const folds = useMemo(() => segments.filter((segment) => segment.is_folded), [segments]);
  return html`<div class="stack"><${Problem} error=${error} /><${Axis} segments=${segments} />${LEGEND}
    <div class="card flush">${!isLoaded ? !error && html`<${Loading} />` : rows.length === 0 ? html`<${Empty}>Nothing has happened yet.<//>` : html`<${Ruler} ticks=${ticks} /><${VirtualList} label="Timeline" items=${rows} keyOf=${keyOf} height=${28} render=${(row) => html`<${TimeRow} row=${row} folds=${folds} />`} />`}</div>
    ${isCut && html`<p class="dim">The run is longer than what is shown.</p>`}</div>`;
};

const dotOf = (row) => (row.kind === "call" || row.state === "running" ? row.state : "");

const TreeRow = ({ row }) => html`<div class="line" style=${{ paddingLeft: `${14 + Math.min(row.level, 20) * 20}px` }}>
  <span class="dot ${dotOf(row)}" role="img" aria-label=${dotOf(row) || row.kind}></span><span class="cut grow">${row.kind === "call" ? html`<span class="mono small">${visible(row.name)}</span>` : html`<span class="dim">${row.kind === "turn" ? "reply of " : "agent "}${visible(row.name)}</span>`}</span>
  ${row.waits.length > 0 && html`<span class="tag warn">asked a person</span>`}<span class="small dim num">${seconds(row)}</span><span class="small faint num">${clock(row.started)}</span>
</div>`;

export const Tree = ({ id, last }) => {
  const { rows, error, isLoaded } = useTimeline(id, last);
  return html`<div class="stack"><${Problem} error=${error} /><div class="card flush tree">${!isLoaded ? !error && html`<${Loading} />` : rows.length === 0 ? html`<${Empty}>Nothing has happened yet.<//>` : html`<${VirtualList} label="Tree of calls" items=${rows} keyOf=${keyOf} height=${30} render=${(row) => html`<${TreeRow} row=${row} />`} />`}</div></div>`;
};
