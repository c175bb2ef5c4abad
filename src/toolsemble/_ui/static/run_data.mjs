// The data of one run, kept up to date: calls by their number, turns by theirs, so that nothing is lost or doubled.
import { useEffect, useMemo, useRef, useState } from "./html.mjs";
import { get } from "./api.mjs";
import { subscribe, throttle } from "./feed.mjs";

const MORE = 5000;

const readTable = ({ names, rows }) => rows.map((row) => Object.fromEntries(names.map((name, index) => [name, row[index]])));

const merge = (known, found, keyOf) => {
  const all = new Map(known);
  for (const each of found) all.set(keyOf(each), each);
  return all;
};

const lastKey = (map) => { let last = 0; for (const key of map.keys()) if (key > last) last = key; return last; };

const EMPTY = { run: null, durable: null, agents: [], reviews: [], pending: 0, turns: new Map(), calls: new Map(), isComplete: false };

const add = (old, data) => ({
  ...old,
  ...(data.run ? { run: data.run } : {}),
  ...(data.durable ? { durable: data.durable } : {}),
  ...(data.agents ? { agents: data.agents, reviews: data.reviews, pending: data.pending } : {}),
  turns: merge(old.turns, data.turns ?? [], (turn) => turn.number),
  calls: merge(old.calls, readTable(data.calls), (call) => call.number),
});

const byNumber = (map) => [...map.values()].sort((first, second) => first.number - second.number);

export const useRun = (id) => {
  const [state, setState] = useState(EMPTY);
  const [error, setError] = useState("");
  const latest = useRef(EMPTY);
  latest.current = state;
  useEffect(() => {
    let isOver = false;
    let isBusy = false;
    let again = false;
    const set = (change) => { if (!isOver) { latest.current = change(latest.current); setState(latest.current); } };
    const load = async () => {
      const first = await get("/api/run", { id, limit: 1000 });
      set((old) => ({ ...add(old, first), isComplete: first.calls.rows.length < 1000 }));
      while (!isOver && !latest.current.isComplete) {
        const page = await get("/api/run/calls", { id, after: lastKey(latest.current.calls), limit: MORE });
        set((old) => ({ ...add(old, { calls: page }), isComplete: page.rows.length < MORE }));
      }
    };
    const refresh = async () => {
      if (!latest.current.isComplete) return;
      if (isBusy) { again = true; return; }
      isBusy = true;
      try {
        const open = [...latest.current.calls.values()].filter((call) => call.finished === null).slice(-300).map((call) => call.number);
        const data = await get("/api/run/changes", { id, after: lastKey(latest.current.calls), turn: lastKey(latest.current.turns), open: open.join(",") });
        set((old) => add(old, data));
        setError("");
      } catch (problem) { setError(problem.message); }
      isBusy = false;
      if (again) { again = false; soon(); }
    };
    const soon = throttle(() => { if (!isOver) refresh(); }, 100);
    load().then(soon).catch((problem) => { if (!isOver) setError(problem.message); });
    const stop = subscribe((message) => {
      // A journal or a store may change without an event: a run is cancelled, or a question expires.
      if (message.kind !== "events" || message.events.some((event) => event.run_id === id)) soon();
    });
    return () => { isOver = true; soon.stop(); stop(); };
  }, [id]);
  const calls = useMemo(() => byNumber(state.calls), [state.calls]);
  const turns = useMemo(() => byNumber(state.turns), [state.turns]);
  return { ...state, calls, turns, error };
};
