// The one stream of events of this browser: it reconnects, and continues after the last event that was seen. A browser
// has only six connections to a server, so one of several tabs has the stream, and passes on its events; when it is
// closed, the next one takes over. Where locks are not available, each tab has its own, and rests while it is hidden.
const subscribers = new Set();
const watchers = new Set();
const canShare = "locks" in navigator && "BroadcastChannel" in window;
let channel = null;
let source = null;
let last = null;
let state = "connecting";
let timer = 0;

const setState = (next) => {
  if (next === state) return;
  state = next;
  watchers.forEach((each) => each(state));
};

const receive = (message) => {
  if (message.kind === "state") { setState(message.state); return; }
  if (message.kind === "hello") {
    // A history that was deleted and begun again has smaller numbers.
    if (last === null || message.number < last) last = message.number;
  }
  if (message.kind === "events") {
    message = { ...message, events: message.events.filter((each) => last === null || each.number > last) };
    if (!message.events.length) return;
    last = message.events[message.events.length - 1].number;
  }
  subscribers.forEach((each) => each(message));
};

const pass = (message) => { channel?.postMessage(message); receive(message); };

const close = () => {
  clearTimeout(timer);
  source?.close();
  source = null;
};

const open = () => {
  close();
  source = new EventSource(last === null ? "/api/feed" : `/api/feed?after=${last}`);
  source.onopen = () => pass({ kind: "state", state: "live" });
  source.addEventListener("hello", (event) => pass({ kind: "hello", ...JSON.parse(event.data) }));
  source.addEventListener("events", (event) => pass({ kind: "events", events: JSON.parse(event.data) }));
  source.addEventListener("changed", (event) => pass({ kind: "changed", ...JSON.parse(event.data) }));
  source.onerror = () => {
    pass({ kind: "state", state: "reconnecting" });
    // The browser's own repetition sends an address that is out of date.
    close();
    timer = setTimeout(open, 700);
  };
};

const shareStream = () => {
  channel = new BroadcastChannel("toolsemble-feed");
  channel.onmessage = ({ data }) => {
    if (data.kind === "who") { if (source) channel.postMessage({ kind: "state", state }); } else receive(data);
  };
  channel.postMessage({ kind: "who" });
  // The lock is held until the tab is closed.
  navigator.locks.request("toolsemble-feed", () => { open(); return new Promise(() => {}); });
};

const keepOwnStream = () => {
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) { close(); setState("resting"); } else open();
  });
  open();
};

let isStarted = false;
export const start = () => {
  if (isStarted) return;
  isStarted = true;
  addEventListener("pagehide", close);
  if (canShare) shareStream(); else keepOwnStream();
};

// Return a function that acts at once, and while it is called often, once in a while; the last call is not lost.
export const throttle = (action, wait) => {
  let timer = 0;
  let last = -Infinity;
  const run = () => { timer = 0; last = performance.now(); action(); };
  const call = () => { if (!timer) timer = setTimeout(run, Math.max(0, last + wait - performance.now())); };
  call.stop = () => clearTimeout(timer);
  return call;
};

export const subscribe = (action) => { subscribers.add(action); return () => subscribers.delete(action); };
export const watchState = (action) => { watchers.add(action); action(state); return () => watchers.delete(action); };
