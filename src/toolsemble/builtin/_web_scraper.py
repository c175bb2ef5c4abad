"""``web_scraper``: a tool that returns the main text of a web page as Markdown.

A hostile page can keep a parser busy for minutes, or crash it. The process reads one page after the other, and is
killed on timeout or cancellation.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from http import HTTPStatus
from ssl import SSLContext
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urljoin, urlsplit

from pydantic import Field

from toolsemble._runtime.extras import import_extra
from toolsemble._runtime.urls import Resolver, UrlGuard, resolve
from toolsemble._tools.typed import TypedTool
from toolsemble._vocabulary.errors import ToolExecutionError
from toolsemble._vocabulary.result import ToolResult
from toolsemble.builtin._child_process import LIMITS, Program
from toolsemble.builtin._fetch import decode_body
from toolsemble.builtin._reader_process import ReaderFailedError, ReaderPool, serve

if TYPE_CHECKING:
    from toolsemble.builtin._fetch import Fetcher, Response


_PROGRAM = "from toolsemble.builtin._web_scraper import main; main()"
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
    limit = _MIN_OUTPUT + 4 * len(job)  # larger than the page, because links are made absolute
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
    """Extract pages from standard input, in a separate process."""
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


MAX_LENGTH = 5000
"""The default number of characters to return."""

_MAX_LENGTH = 100_000
_ACCEPTED = "text/html, application/xhtml+xml, text/plain;q=0.9, application/json;q=0.8, */*;q=0.1"
_HTML_TYPES = {"text/html", "application/xhtml+xml"}
_TEXT_TYPES = {
    "application/json",
    "application/xml",
    "application/javascript",
    "application/yaml",
    "application/x-ndjson",
}
_TEXT_SUFFIXES = ("+json", "+xml", "+yaml")
_SIGNATURES = {b"%PDF-": "application/pdf", b"\x89PNG": "image/png", b"PK\x03\x04": "application/zip"}
_SUCCESS = set(range(200, 300)) - {HTTPStatus.NO_CONTENT, HTTPStatus.RESET_CONTENT}


@dataclass(frozen=True, slots=True)
class WebScraperInput:
    """The arguments of ``web_scraper``."""

    url: Annotated[str, Field(description="The address of the page; it begins with http:// or https://")]
    """The URL of the page."""
    max_length: Annotated[int, Field(description="How many characters to return at most", ge=1, le=_MAX_LENGTH)] = (
        MAX_LENGTH
    )
    """The maximum number of characters to return."""


@dataclass(frozen=True, slots=True)
class Page:
    """A fetched page: the structured output of the tool.

    >>> Page("https://example.com/", "Example", "An example.").title
    'Example'
    """

    url: str
    """Its URL, after all redirects."""
    title: str
    """Its title; empty if it has none."""
    text: str
    """Its full main text: Markdown for a web page, else unchanged."""


class WebScraperTool(TypedTool[WebScraperInput]):
    """A tool that fetches a page of the public Internet and returns its main text as Markdown, with title and links.

    Each redirect is checked and followed; a page that is not text is an error that names its type.

    :param allow_hosts: host names or addresses that may be reached although they are not public
    :param timeout: seconds for one page, from name resolution to its text
    :param max_bytes: the size limit of a page
    :param tls: the TLS context; the default trusts the system's certificates
    :param resolver: returns the addresses of a host name; the default is the system's
    :param name: another name for the model
    :param description: another description for the model

    >>> WebScraperTool().execute('{"url": "http://169.254.169.254/latest/meta-data"}').text
    "Error: Access denied: '169.254.169.254' is not a public address"
    """

    name = "web_scraper"
    description = (
        "Fetches a web page and returns its main text as Markdown, with its title and links, without menus and "
        "advertising. Use it to read a page whose URL you know."
    )

    def __init__(
        self,
        *,
        allow_hosts: Iterable[str] = (),
        timeout: float = 15,
        max_bytes: int = 5_000_000,
        tls: SSLContext | None = None,
        resolver: Resolver = resolve,
        name: str | None = None,
        description: str | None = None,
    ) -> None:
        self._set_names(name, description)
        import_extra("trafilatura", extra="web", user="WebScraperTool")
        fetch = import_extra("toolsemble.builtin._fetch", extra="web", user="WebScraperTool")
        self._request = fetch.Request
        self._timeout = timeout
        self._max_bytes = max_bytes
        guard = UrlGuard(allow_hosts, resolver=resolver)
        self._fetcher: Fetcher = fetch.Fetcher(guard, timeout=timeout, limit=max_bytes, tls=tls)

    async def run(self, input: WebScraperInput) -> ToolResult:
        """Return the text of a page, truncated to the requested length."""
        started = time.monotonic()
        response = await self._fetcher.fetch(self._request("GET", input.url, {"Accept": _ACCEPTED}))
        self._check(response)
        left = max(self._timeout - (time.monotonic() - started), 1)
        page = await _read_page(response, left)
        titled = page.text.lstrip("# ").startswith(page.title)  # also true for an empty title
        shown = page.text if titled else f"# {page.title}\n\n{page.text}"
        if len(shown) > input.max_length:
            shown = f"{shown[: input.max_length]} [truncated at {input.max_length} chars]"
        return ToolResult.success(shown, page)

    def _check(self, response: Response) -> None:
        if response.status not in _SUCCESS:
            raise ToolExecutionError(response.failure())
        if response.truncated:
            raise ToolExecutionError(f"The page is too large: more than {self._max_bytes} bytes")


async def _read_page(response: Response, seconds: float) -> Page:
    kind = _media_type(response)
    text = decode_body(response.body, response.charset)
    if "\0" in text:
        raise ToolExecutionError(f"The page is binary, although its content type is {kind!r}")
    if kind in _HTML_TYPES:
        found = await read_article(text, response.url, seconds)
    else:
        found = Article("", text.strip())
    if not found.text:
        raise ToolExecutionError("The page has no readable text; it may need a browser to show it")
    return Page(response.url, found.title, found.text)


def _media_type(response: Response) -> str:
    """Return the media type of a text response, detected if the server sends none; raise if it is not text."""
    declared = response.media_type
    kind = next((kind for start, kind in _SIGNATURES.items() if response.body.startswith(start)), declared)
    if not kind:
        kind = "text/html" if response.body.lstrip()[:1] == b"<" else "text/plain"
    if kind in _HTML_TYPES | _TEXT_TYPES or kind.startswith("text/") or kind.endswith(_TEXT_SUFFIXES):
        return kind
    raise ToolExecutionError(
        f"Cannot read content of type {kind[:80]!r}; only web pages, text, JSON and XML can be read"
    )
