// Markdown as nodes: headings, lists, quotes, code, bold, emphasis and links. Never as HTML.
import { html } from "./html.mjs";
import { visible } from "./format.mjs";

const INLINE = /(`+)([\s\S]+?)\1|\*\*(\S(?:[\s\S]*?\S)?)\*\*|(?<![*\w])\*(\S(?:[^*]*?\S)?)\*(?!\*)|\[([^\]\n]{1,300})\]\((https?:\/\/[^\s)]{1,2000})\)|(https?:\/\/[^\s<>"'`)\]]{1,2000})/g;

const hostOf = (link) => { try { return new URL(link).host; } catch { return ""; } };

const link = (target, text) => {
  const host = hostOf(target);
  if (!host) return visible(text);
  const more = text.includes(host) ? "" : html`<span class="host"> (${visible(host)})</span>`;
  return html`<a href=${target} target="_blank" rel="noreferrer noopener nofollow">${visible(text)}</a>${more}`;
};

export const inline = (text) => {
  const parts = [];
  let end = 0;
  for (const found of text.matchAll(INLINE)) {
    if (found.index > end) parts.push(visible(text.slice(end, found.index)));
    const [all, , code, bold, emphasis, label, target, bare] = found;
    if (code !== undefined) parts.push(html`<code>${visible(code)}</code>`);
    else if (bold !== undefined) parts.push(html`<strong>${inline(bold)}</strong>`);
    else if (emphasis !== undefined) parts.push(html`<em>${inline(emphasis)}</em>`);
    else if (label !== undefined) parts.push(link(target, label));
    else parts.push(link(bare.replace(/[.,;:!?]+$/, ""), bare.replace(/[.,;:!?]+$/, "")), bare.match(/[.,;:!?]*$/)[0]);
    end = found.index + all.length;
  }
  if (end < text.length) parts.push(visible(text.slice(end)));
  return parts;
};

const BULLET = /^\s{0,3}[-*+]\s+(.*)$/;
const NUMBER = /^\s{0,3}\d{1,9}[.)]\s+(.*)$/;
const START = /^(```|~~~|#{1,6}\s|\s{0,3}[-*+]\s|\s{0,3}\d{1,9}[.)]\s|>)/;

const take = (lines, at, pattern) => {
  const items = [];
  while (at < lines.length) {
    const found = lines[at].match(pattern);
    if (found) items.push(found[1]);
    else if (items.length && /^\s{2,}\S/.test(lines[at])) items[items.length - 1] += `\n${lines[at].trim()}`;
    else break;
    at += 1;
  }
  return [items, at];
};

const blocks = (text) => {
  const lines = text.replace(/\r\n/g, "\n").split("\n");
  const out = [];
  let at = 0;
  while (at < lines.length) {
    const line = lines[at];
    const fence = line.match(/^(```|~~~)/);
    if (fence) {
      let end = at + 1;
      while (end < lines.length && !lines[end].startsWith(fence[1])) end += 1;
      out.push(html`<pre><code>${visible(lines.slice(at + 1, end).join("\n"))}</code></pre>`);
      at = end + 1;
    } else if (/^#{1,6}\s/.test(line)) {
      out.push(html`<h4>${inline(line.replace(/^#+\s+/, ""))}</h4>`);
      at += 1;
    } else if (BULLET.test(line)) {
      const [items, next] = take(lines, at, BULLET);
      out.push(html`<ul>${items.map((item) => html`<li>${inline(item)}</li>`)}</ul>`);
      at = next;
    } else if (NUMBER.test(line)) {
      const [items, next] = take(lines, at, NUMBER);
      out.push(html`<ol>${items.map((item) => html`<li>${inline(item)}</li>`)}</ol>`);
      at = next;
    } else if (line.startsWith(">")) {
      let end = at;
      while (end < lines.length && lines[end].startsWith(">")) end += 1;
      out.push(html`<blockquote>${inline(lines.slice(at, end).map((each) => each.replace(/^>\s?/, "")).join("\n"))}</blockquote>`);
      at = end;
    } else if (!line.trim()) {
      at += 1;
    } else {
      let end = at + 1;
      while (end < lines.length && lines[end].trim() && !START.test(lines[end])) end += 1;
      out.push(html`<p>${lines.slice(at, end).flatMap((each, index) => (index ? [html`<br />`, ...inline(each)] : inline(each)))}</p>`);
      at = end;
    }
  }
  return out;
};

export const Markdown = ({ text }) => html`<div class="md">${blocks(text)}</div>`;
