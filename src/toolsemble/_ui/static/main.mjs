// The frame around the pages: navigation, theme, the state of the connection, and signing in.
import { html, render, useEffect, useRef, useState } from "./html.mjs";
import { get, post, setSignedOut } from "./api.mjs";
import { start, subscribe, watchState } from "./feed.mjs";
import { Link, navigate, useLocation } from "./router.mjs";
import { Page, Problem, Toasts, useKeys } from "./parts.mjs";
import { visible } from "./format.mjs";
import { Runs } from "./pages/runs.mjs";
import { Run } from "./pages/run.mjs";
import { Compare } from "./pages/compare.mjs";
import { Approvals } from "./pages/approvals.mjs";
import { Audit } from "./pages/audit.mjs";
import { Playground } from "./pages/playground.mjs";
import { Chat } from "./pages/chat.mjs";
import { Pipelines } from "./pages/pipelines.mjs";
import { Outcomes } from "./pages/outcomes.mjs";
import { Durable } from "./pages/durable.mjs";

const PAGES = {
  "/": Runs, "/runs": Runs, "/run": Run, "/compare": Compare, "/approvals": Approvals, "/audit": Audit,
  "/playground": Playground, "/chat": Chat, "/pipelines": Pipelines, "/outcomes": Outcomes, "/durable": Durable,
};

const MENU = [
  ["Watch", [["/runs", "Runs", "1"], ["/durable", "Durable runs", "2"], ["/compare", "Compare", "3"]]],
  ["Decide", [["/approvals", "Approvals", "4", "approvals"], ["/audit", "Audit", "5"], ["/outcomes", "Unknown outcomes", "6", "outcomes"]]],
  ["Try", [["/playground", "Playground", "7"], ["/chat", "Chat", "8"], ["/pipelines", "Pipelines", "9"]]],
];

const STATES = { live: "Live", connecting: "Connecting", reconnecting: "Reconnecting", resting: "Resting" };
const THEMES = { auto: "System theme", light: "Light theme", dark: "Dark theme" };

const readTheme = () => { const kept = localStorage.getItem("toolsemble-theme"); return kept in THEMES ? kept : "auto"; };

const applyTheme = (theme) => {
  if (theme === "auto") delete document.documentElement.dataset.theme; else document.documentElement.dataset.theme = theme;
};

const ThemeButton = () => {
  const [theme, setTheme] = useState(readTheme);
  const next = { auto: "light", light: "dark", dark: "auto" }[theme];
  return html`<button class="plain" onClick=${() => { localStorage.setItem("toolsemble-theme", next); applyTheme(next); setTheme(next); }}
    title="Change the theme">${THEMES[theme]}</button>`;
};

const Connection = () => {
  const [state, setState] = useState("connecting");
  useEffect(() => watchState(setState), []);
  return html`<span class="link-state" role="status" data-connection=${state}><span class="dot ${state === "live" ? "on" : state === "reconnecting" ? "failed" : ""}"></span>${STATES[state]}</span>`;
};

const pageName = (path) => MENU.flatMap(([, items]) => items).find(([to]) => isHere(path, to))?.[1] ?? "";

const isHere = (path, target) => path === target || (target === "/runs" && (path === "/" || path === "/run"));

// On a small screen, the pages are behind a button.
const MenuButton = ({ counts, isOpen, onClick }) => {
  const waiting = (counts.approvals ?? 0) + (counts.outcomes ?? 0);
  return html`<button class="menu-button" aria-expanded=${String(isOpen)} aria-controls="pages" onClick=${onClick}>Menu${waiting ? html`<span class="count">${waiting}</span>` : null}</button>`;
};

const Side = ({ me, counts, path, isOpen, onMenu }) => html`<header class="side ${isOpen ? "open" : ""}">
  <${Link} to="/runs" class="brand"><img src="/static/favicon.svg" alt="" /><span>toolsemble</span><//>
  <${MenuButton} counts=${counts} isOpen=${isOpen} onClick=${onMenu} />
  <nav aria-label="Pages" id="pages">
    ${MENU.map(([title, items]) => html`<h2 key=${title}>${title}</h2>${items.map(([to, name, , count]) => html`
      <${Link} key=${to} to=${to} class="nav" aria-current=${isHere(path, to) ? "page" : undefined}>${name}${counts[count] ? html`<span class="count" aria-label=${`${counts[count]} waiting`}>${counts[count]}</span>` : null}<//>`)}`)}
  </nav>
  <div class="foot">
    <${Connection} />
    <span class="wide">${visible(me.person)}${me.roles.length ? ` (${visible(me.roles.join(", "))})` : ""}${me.read_only ? ", read-only" : ""}</span>
    <span class="wide"><${ThemeButton} /></span>
  </div>
</header>`;

const SignIn = ({ onDone }) => {
  const [token, setToken] = useState("");
  const [error, setError] = useState("");
  const submit = async (event) => {
    event.preventDefault();
    try { await post("/api/login", { token }); onDone(); } catch (problem) { setError(problem.message); }
  };
  useEffect(() => { document.title = "Sign in · toolsemble"; }, []);
  return html`<main class="signin"><form class="card stack" onSubmit=${submit}>
    <h1>Sign in</h1>
    <p class="dim">Open the link that <code>toolsemble ui</code> printed in its terminal; it works once. If you were given a token, paste it here.</p>
    <input type="password" aria-label="Token" placeholder="Token" value=${token} autocomplete="off" onInput=${(event) => setToken(event.target.value)} />
    <${Problem} error=${error} />
    <button class="primary" disabled=${!token}>Sign in</button>
  </form></main>`;
};

const Frame = ({ me }) => {
  const { path, query } = useLocation();
  const [counts, setCounts] = useState({ approvals: me.approvals, outcomes: me.outcomes });
  const [isMenuOpen, setMenuOpen] = useState(false);
  const isFirst = useRef(true);
  useEffect(() => subscribe((message) => {
    if (message.kind === "changed") setCounts({ approvals: message.approvals, outcomes: message.outcomes });
  }), []);
  useEffect(() => {
    document.querySelector("main")?.scrollTo(0, 0);
    setMenuOpen(false);
    // Who follows a link with a keyboard or a screen reader continues at the new page.
    if (isFirst.current) isFirst.current = false; else document.querySelector("main")?.focus();
  }, [path, query.id]);
  useKeys(Object.fromEntries(MENU.flatMap(([, items]) => items).map(([to, , key]) => [key, () => navigate(to)])));
  const Shown = PAGES[path];
  return html`<${Toasts} /><a class="skip" href="#main" onClick=${(event) => { event.preventDefault(); document.querySelector("main").focus(); }}>Skip to the page</a><div class="frame">
    <${Side} me=${me} counts=${counts} path=${path} isOpen=${isMenuOpen} onMenu=${() => setMenuOpen(!isMenuOpen)} />
    <main id="main" tabindex="-1" aria-label=${pageName(path) || "Page"}>${Shown ? html`<${Shown} key=${path + (query.id ?? "")} me=${me} query=${query} />` : html`<${Page} title="There is no such page"><p><${Link} to="/runs">Go to the runs<//></p><//>`}</main>
  </div>`;
};

const App = () => {
  const [me, setMe] = useState(null);
  const [signedOut, setSignedOutState] = useState(false);
  const [error, setError] = useState("");
  const load = async () => {
    try { setMe(await get("/api/me")); setSignedOutState(false); start(); } catch (problem) { if (problem.status !== 401) setError(problem.message); }
  };
  useEffect(() => { setSignedOut(() => setSignedOutState(true)); load(); }, []);
  if (signedOut) return html`<${SignIn} onDone=${load} />`;
  if (error) return html`<main class="signin"><${Problem} error=${error} /></main>`;
  return me ? html`<${Frame} me=${me} />` : html`<div></div>`;
};

applyTheme(readTheme());
render(html`<${App} />`, document.getElementById("app"));
