"""Extract the main text of a web page in a separate process.

A hostile page can keep a parser busy for minutes, or crash it. The process reads one page after the other, and is
killed on timeout or cancellation.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from typing import Any
from urllib.parse import urljoin, urlsplit

from toolsemble._vocabulary.errors import ToolExecutionError
from toolsemble.builtin._child_process import LIMITS, Program
from toolsemble.builtin._reader_process import ReaderFailedError, ReaderPool, serve

_PROGRAM = "from toolsemble.builtin._article import main; main()"
_MAX_MEMORY = 1 << 30
_MIN_OUTPUT = 1 << 20
_LINK_SCHEMES = {"http", "https", "mailto"}


@dataclass(frozen=True, slots=True)
class Article:
    """The content of a page."""

    title: str
    """The title; empty when there is none."""
    text: str
    """The main text, as Markdown; empty when there is none."""


async def read_article(html: str, url: str, seconds: float) -> Article:
    """Return the title and the main text of a page; raise if it cannot be read in time."""
    job = json.dumps({"html": html, "url": url}).encode()
    limit = _MIN_OUTPUT + 4 * len(job)  # larger than the page, as links are made absolute
    try:
        return Article(**json.loads(await READERS.run(job, limit, seconds)))
    except TimeoutError:
        raise ToolExecutionError("The page takes too long to read") from None
    except ReaderFailedError:
        raise ToolExecutionError("The page cannot be read: it is too deep or too large") from None


def extraction_program() -> Program:
    """Return the program that extracts pages.

    >>> extraction_program().inherit_env
    ('LD_LIBRARY_PATH',)
    """
    return Program(
        (sys.executable, "-c", _PROGRAM),
        # The same packages as in this process, and no other variables.
        env={"PYTHONPATH": os.pathsep.join(sys.path), "PYTHONIOENCODING": "utf-8"},
        inherit_env=("LD_LIBRARY_PATH",),
        max_memory=_MAX_MEMORY if LIMITS else 0,
    )


READERS = ReaderPool(extraction_program)


def main() -> None:
    """Extract the pages that come on standard input, in a process of their own."""
    serve(lambda job: json.dumps(extract(**json.loads(job))).encode())


def extract(html: str, url: str) -> dict[str, str]:
    """Return the title and the main text of a page, in this process.

    >>> page = "<html><title>News</title><body><article><p>It rained all day in Rome.</p></article></body></html>"
    >>> extract(page, "https://example.com/news")
    {'title': 'News', 'text': 'It rained all day in Rome.'}
    """
    import trafilatura  # slow to import, and needed only in the extracting process

    tree: Any = trafilatura.load_html(html)
    if tree is None:  # a fragment, not a document
        tree = trafilatura.load_html(f"<html><body><div>{html}</div><div></div></body></html>")
    title = " ".join((tree.findtext("head/title") or "").split())
    _rewrite_links(tree, url)
    found = trafilatura.extract_with_metadata(
        tree, url=url, output_format="markdown", include_links=True, include_comments=False
    )
    if found is None or not found.text:
        return {"title": title, "text": trafilatura.html2txt(tree).strip()}
    return {"title": title or " ".join((found.title or "").split()), "text": _strip_front_matter(found.text)}


def _rewrite_links(tree: Any, url: str) -> None:
    """Make links absolute, and remove those with other schemes, such as ``javascript:``."""
    for link in tree.iter("a"):
        try:
            absolute = urljoin(url, link.get("href", ""))
            kept = urlsplit(absolute).scheme in _LINK_SCHEMES
        except ValueError:
            kept = False
        if kept:
            link.set("href", absolute)
        else:
            link.tag = "span"


def _strip_front_matter(text: str) -> str:
    """Return Markdown without its front matter."""
    return text.partition("\n---\n")[2].strip() if text.startswith("---\n") else text.strip()
