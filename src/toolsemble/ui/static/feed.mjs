// The one stream of events of this page: reconnects, continues after the last event it has seen, and rests while the
// page is hidden, because a browser has only six connections to a server.
const subscribers = new Set();
const watchers = new Set();
let source = null;
let last = null;
let state = "connecting";
let timer = 0;

const setState = (next) => {
  if (next === state) return;
  state = next;
  watchers.forEach((each) => each(state));
};

const pass = (message) => subscribers.forEach((each) => each(message));

const close = () => {
  clearTimeout(timer);
  source?.close();
  source = null;
};

const open = () => {
  close();
  source = new EventSource(last === null ? "/api/feed" : `/api/feed?after=${last}`);
  source.onopen = () => setState("live");
  source.addEventListener("hello", (event) => {
    const { number } = JSON.parse(event.data);
    // A history that was deleted and begun again has smaller numbers.
    if (last === null || number < last) last = number;
    pass({ kind: "hello" });
  });
  source.addEventListener("events", (event) => {
    const fresh = JSON.parse(event.data).filter((each) => last === null || each.number > last);
    if (!fresh.length) return;
    last = fresh[fresh.length - 1].number;
    pass({ kind: "events", events: fresh });
  });
  source.addEventListener("changed", (event) => pass({ kind: "changed", ...JSON.parse(event.data) }));
  source.onerror = () => {
    setState("reconnecting");
    // The browser's own repetition sends an address that is out of date.
    close();
    timer = setTimeout(open, 700);
  };
};

export const start = () => {
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) { close(); setState("resting"); } else open();
  });
  addEventListener("pagehide", close);
  open();
};

export const subscribe = (action) => { subscribers.add(action); return () => subscribers.delete(action); };
export const watchState = (action) => { watchers.add(action); action(state); return () => watchers.delete(action); };
