// Numbers, times and texts as people read them.
const two = (value) => String(value).padStart(2, "0");

export const clock = (seconds) => {
  const time = new Date(seconds * 1000);
  return `${two(time.getHours())}:${two(time.getMinutes())}:${two(time.getSeconds())}`;
};

export const day = (seconds) => {
  const time = new Date(seconds * 1000);
  return `${time.getFullYear()}-${two(time.getMonth() + 1)}-${two(time.getDate())}`;
};

export const moment = (seconds) => `${day(seconds)} ${clock(seconds)}`;

// The time alone, if it is today.
export const time = (seconds) => (day(seconds) === day(Date.now() / 1000) ? clock(seconds) : moment(seconds));

export const ago = (seconds, now = Date.now() / 1000) => {
  const passed = Math.max(0, now - seconds);
  if (passed < 60) return "just now";
  if (passed < 3600) return `${Math.floor(passed / 60)} min ago`;
  if (passed < 86400) return `${Math.floor(passed / 3600)} h ago`;
  return day(seconds);
};

export const duration = (seconds) => {
  if (seconds === null || seconds === undefined) return "";
  if (seconds > 0 && seconds < 0.0005) return "<1 ms";
  if (seconds < 0.0995) return `${Math.max(0, Math.round(seconds * 1000))} ms`;
  if (seconds < 59.95) return `${seconds.toFixed(seconds < 9.95 ? 2 : 1)} s`;
  const whole = Math.round(seconds);
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${whole % 60} s`;
  return `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
};

export const count = (value) => (value ?? 0).toLocaleString("en-US");

export const cost = (value) => {
  if (value === null || value === undefined) return "";
  return value !== 0 && Math.abs(value) < 0.01 ? `$${value.toFixed(5)}` : `$${value.toFixed(2)}`;
};

export const plural = (number, word, many = `${word}s`) => `${count(number)} ${number === 1 ? word : many}`;

// Characters that are not drawn, or that turn the direction of text, are shown as escapes.
const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff0-\ufffb\ud800-\udfff]|[\u{e0000}-\u{e0fff}]/gu;
const JOINER = /[\u200c\u200d]/;
const LETTER = /[\p{L}\p{M}\p{Extended_Pictographic}\ufe0f]/u;

export const visible = (text) => {
  if (typeof text !== "string") return text;
  return text.replace(HIDDEN, (found, at) => {
    // Joiners between letters or in emoji belong to the writing.
    if (JOINER.test(found) && LETTER.test(text[at - 1] ?? "") ) return found;
    if (found === "\r" && text[at + 1] === "\n") return "";
    const code = found.codePointAt(0).toString(16);
    return code.length <= 2 ? `\\x${code.padStart(2, "0")}` : code.length <= 4 ? `\\u${code.padStart(4, "0")}` : `\\U${code.padStart(8, "0")}`;
  });
};

// JSON text in which hidden characters are written as escapes: it means the same.
export const visibleJson = (text) => text.replace(HIDDEN, (found) => [...Array(found.length).keys()].map((at) => `\\u${found.charCodeAt(at).toString(16).padStart(4, "0")}`).join(""));

export const hasHidden = (text) => visible(text) !== text;

// A summary keeps the start of a text.
const SUMMARY = 300;
export const summary = (text) => visible(text.length >= SUMMARY ? `${text}…` : text);

// The class of an error without its module.
export const shortError = (text) => text.replace(/^(?:\w+\.)+(\w+(?::|$))/, "$1");

export const pretty = (value) => (typeof value === "string" ? value : JSON.stringify(value, null, 2));

// JSON text is laid out; any other text stays as it is.
export const prettyText = (text) => {
  const first = text.trimStart()[0];
  if (first !== "{" && first !== "[") return text;
  try { return JSON.stringify(JSON.parse(text), null, 2); } catch { return text; }
};
