"""The main text of a web page, found in a process of its own.

A page can be written to keep a parser busy for minutes, or to make it fall over. Here only a process that was started
for this one page is lost, and it is ended when its time is up or nobody waits for it any more.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from typing import Any
from urllib.parse import urljoin, urlsplit

from toolsemble.builtin.child import LIMITS, Program, ended
from toolsemble.errors import ToolExecutionError

_PROGRAM = "from toolsemble.builtin.article import main; main()"
_MOST_MEMORY = 1 << 30
_LEAST_ROOM = 1 << 20
_KEPT_LINKS = {"http", "https", "mailto"}


@dataclass(frozen=True, slots=True)
class Article:
    """What a page has to say."""

    title: str
    """The title; empty when there is none."""
    text: str
    """The main text, as Markdown; empty when there is none."""


async def article(html: str, url: str, seconds: float) -> Article:
    """Give the title and the main text of a page; raise when it cannot be read in time."""
    job = json.dumps({"html": html, "url": url}).encode()
    program = reader(len(job))
    try:
        end = await ended(program, job, seconds)
    except TimeoutError:
        raise ToolExecutionError("The page takes too long to read") from None
    if end.code or len(end.output) > program.max_output:
        raise ToolExecutionError("The page cannot be read: it is too deep or too large")
    return Article(**json.loads(end.output))


def reader(size: int) -> Program:
    """Give the program that reads a page of so many bytes: this module, with room for links that become longer.

    >>> reader(1000).inherit_env
    ('LD_LIBRARY_PATH',)
    """
    return Program(
        (sys.executable, "-c", _PROGRAM),
        # The same packages as here, and nothing else of what this process knows.
        env={"PYTHONPATH": os.pathsep.join(sys.path), "PYTHONIOENCODING": "utf-8"},
        inherit_env=("LD_LIBRARY_PATH",),
        max_output=_LEAST_ROOM + 4 * size,
        max_memory=_MOST_MEMORY if LIMITS else 0,
    )


def main() -> None:
    """Read a page from standard input, write what it says to standard output."""
    sys.stdout.write(json.dumps(extracted(**json.load(sys.stdin))))


def extracted(html: str, url: str) -> dict[str, str]:
    """Give the title and the main text of a page, in this process.

    >>> page = "<html><title>News</title><body><article><p>It rained all day in Rome.</p></article></body></html>"
    >>> extracted(page, "https://example.com/news")
    {'title': 'News', 'text': 'It rained all day in Rome.'}
    """
    import trafilatura  # noqa: PLC0415 - heavy, and only the process that reads pages needs it

    tree: Any = trafilatura.load_html(html)
    if tree is None:  # not a document; as a part of one it can be read
        tree = trafilatura.load_html(f"<html><body><div>{html}</div><div></div></body></html>")
    title = " ".join((tree.findtext("head/title") or "").split())
    _disarm(tree, url)
    found = trafilatura.extract_with_metadata(
        tree, url=url, output_format="markdown", include_links=True, include_comments=False
    )
    if found is None or not found.text:
        return {"title": title, "text": trafilatura.html2txt(tree).strip()}
    return {"title": title or " ".join((found.title or "").split()), "text": _without_header(found.text)}


def _disarm(tree: Any, url: str) -> None:
    """Make links whole, and take away those that do something else than lead somewhere."""
    for link in tree.iter("a"):
        try:
            whole = urljoin(url, link.get("href", ""))
            kept = urlsplit(whole).scheme in _KEPT_LINKS
        except ValueError:
            kept = False
        if kept:
            link.set("href", whole)
        else:
            link.tag = "span"


def _without_header(text: str) -> str:
    """Give Markdown without the block of metadata on top."""
    return text.partition("\n---\n")[2].strip() if text.startswith("---\n") else text.strip()
