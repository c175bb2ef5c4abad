// A list that draws only the rows that can be seen; rows may have any height, and may change it.
import { html, useEffect, useLayoutEffect, useRef, useState } from "./html.mjs";

const MARGIN = 500;

const findRow = (offsets, place) => {
  let low = 0;
  let high = offsets.length - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (offsets[middle] <= place) low = middle; else high = middle - 1;
  }
  return low;
};

// `follow`: stay at the end while new rows come, if the end is in view.
export const VirtualList = ({ items, keyOf, render, height = 30, label, follow = false }) => {
  const box = useRef(null);
  const heights = useRef(new Map());
  const [view, setView] = useState({ top: 0, size: 900 });
  const [, redraw] = useState(0);
  const atEnd = useRef(false);
  const offsets = [0];
  for (const item of items) offsets.push(offsets[offsets.length - 1] + (heights.current.get(keyOf(item)) ?? height));
  const total = offsets[items.length];
  const first = Math.min(findRow(offsets, Math.max(0, view.top - MARGIN)), items.length);
  const end = Math.min(items.length, findRow(offsets, view.top + view.size + MARGIN) + 1);

  useEffect(() => {
    const scroller = box.current.closest("main");
    const look = () => {
      const top = scroller.getBoundingClientRect().top - box.current.getBoundingClientRect().top;
      atEnd.current = scroller.scrollHeight - scroller.scrollTop - scroller.clientHeight < 40;
      setView((old) => (Math.abs(old.top - top) < 100 && old.size === scroller.clientHeight ? old : { top, size: scroller.clientHeight }));
    };
    look();
    scroller.addEventListener("scroll", look, { passive: true });
    addEventListener("resize", look);
    return () => { scroller.removeEventListener("scroll", look); removeEventListener("resize", look); };
  }, []);

  useLayoutEffect(() => {
    if (follow && atEnd.current) { const scroller = box.current.closest("main"); scroller.scrollTop = scroller.scrollHeight; }
  }, [items.length, follow]);

  useLayoutEffect(() => {
    const rows = box.current.firstElementChild.children;
    const measure = () => {
      let changed = false;
      for (const row of rows) {
        const key = keyOf(items[Number(row.dataset.index)] ?? {});
        const size = row.offsetHeight;
        if (size && (heights.current.get(key) ?? height) !== size) { heights.current.set(key, size); changed = true; }
      }
      if (changed) redraw((number) => number + 1);
    };
    measure();
    const observer = new ResizeObserver(measure);
    for (const row of rows) observer.observe(row);
    return () => observer.disconnect();
  }, [items, first, end]);

  return html`<div class="vlist" ref=${box} role="list" aria-label=${label} style=${{ height: `${total}px` }}>
    <div style=${{ transform: `translateY(${offsets[first]}px)` }}>
      ${items.slice(first, end).map((item, index) => html`<div key=${keyOf(item)} role="listitem" data-index=${first + index}
        aria-setsize=${items.length} aria-posinset=${first + index + 1}>${render(item, first + index)}</div>`)}
    </div>
  </div>`;
};
