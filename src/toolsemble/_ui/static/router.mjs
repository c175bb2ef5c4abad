// Addresses of pages: real paths, so that links can be shared and opened in another tab.
import { html, useEffect, useState } from "./html.mjs";
import { address } from "./api.mjs";

const listeners = new Set();

export const navigate = (target, { replace = false } = {}) => {
  history[replace ? "replaceState" : "pushState"]({}, "", target);
  listeners.forEach((each) => each());
};

export const useLocation = () => {
  const [, redraw] = useState(0);
  useEffect(() => {
    const update = () => redraw((number) => number + 1);
    listeners.add(update);
    addEventListener("popstate", update);
    return () => { listeners.delete(update); removeEventListener("popstate", update); };
  }, []);
  return { path: location.pathname, query: Object.fromEntries(new URLSearchParams(location.search)) };
};

// Replace some parameters of the address, such as a filter.
export const setQuery = (changes) =>
  navigate(address(location.pathname, { ...Object.fromEntries(new URLSearchParams(location.search)), ...changes }), { replace: true });

const isPlain = (event) => event.button === 0 && !event.metaKey && !event.ctrlKey && !event.shiftKey && !event.altKey;

export const Link = ({ to, children, onClick, ...rest }) => html`<a href=${to} ...${rest} onClick=${(event) => {
  onClick?.(event);
  if (!event.defaultPrevented && isPlain(event)) { event.preventDefault(); navigate(to); }
}}>${children}</a>`;

export const runLink = (id, more = {}) => address("/run", { id, ...more });
