"""The main text of a web page, found in a process of its own.

A page can be written to keep a parser busy for minutes, or to make it fall over. Here only a process that was started
for this one page is lost, and it is ended when its time is up.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from typing import Any
from urllib.parse import urljoin, urlsplit

from toolsemble.errors import ToolExecutionError

_PROGRAM = "from toolsemble.builtin.article import bound, main; bound(); main()"
_MOST_MEMORY = 1 << 30
_KEPT_LINKS = {"http", "https", "mailto"}


@dataclass(frozen=True, slots=True)
class Article:
    """What a page has to say."""

    title: str
    """The title; empty when there is none."""
    text: str
    """The main text, as Markdown; empty when there is none."""


def article(html: str, url: str, seconds: float) -> Article:
    """Give the title and the main text of a page; raise when it cannot be read in time. Waits."""
    job = json.dumps({"html": html, "url": url}).encode()
    try:
        done = subprocess.run(  # noqa: S603 - the program is this module, the page goes in through a pipe
            [sys.executable, "-c", _PROGRAM], input=job, capture_output=True, timeout=seconds, env=_env(), check=True
        )
    except subprocess.TimeoutExpired:
        raise ToolExecutionError("The page takes too long to read") from None
    except subprocess.CalledProcessError:
        raise ToolExecutionError("The page cannot be read: it is too deep or too large") from None
    return Article(**json.loads(done.stdout))


def bound() -> None:
    """Let this process have so much memory and no more, where the system can do that."""
    try:
        import resource  # noqa: PLC0415 - not on every system
    except ImportError:
        return
    resource.setrlimit(resource.RLIMIT_AS, (_MOST_MEMORY, resource.getrlimit(resource.RLIMIT_AS)[1]))


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
    _disarm(tree, url)
    found = trafilatura.extract_with_metadata(
        tree, url=url, output_format="markdown", include_links=True, include_comments=False
    )
    title = " ".join((tree.findtext(".//title") or "").split())
    if found is None or not found.text:
        return {"title": title, "text": trafilatura.html2txt(tree).strip()}
    return {"title": " ".join((found.title or title).split()), "text": _without_header(found.text)}


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


def _env() -> dict[str, str]:
    # The same packages as here, and nothing else of what this process knows.
    kept = {name: os.environ[name] for name in ("SYSTEMROOT", "LD_LIBRARY_PATH") if name in os.environ}
    return {**kept, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONIOENCODING": "utf-8"}
