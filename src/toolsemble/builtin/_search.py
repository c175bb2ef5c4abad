"""Web search providers: Tavily, Brave, SerpAPI, SearXNG and DuckDuckGo."""

from __future__ import annotations

import json
import os
from collections.abc import Awaitable, Iterable, Mapping
from dataclasses import dataclass
from html.parser import HTMLParser
from ssl import SSLContext
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import parse_qs, urljoin, urlsplit

from toolsemble._runtime.extras import import_extra
from toolsemble._runtime.guard.urls import UrlGuard
from toolsemble._vocabulary.errors import ToolDefinitionError, ToolExecutionError
from toolsemble.builtin._charset import decode_body
from toolsemble.builtin._endpoint import FORM, Endpoint, Redactor, make_endpoint

if TYPE_CHECKING:
    from toolsemble.builtin._fetch import Fetcher

_MAX_BYTES = 2_000_000
_MAX_ERROR = 300


@dataclass(frozen=True, slots=True)
class SearchHit:
    """One result of a search.

    >>> SearchHit("Example", "https://example.com/", "An example.").url
    'https://example.com/'
    """

    title: str
    """The page's title."""
    url: str
    """The URL of the page."""
    snippet: str
    """The part of the page that matches the query."""


class SearchProvider(Protocol):
    """The protocol of search providers: any object with this method, sync or async.

    >>> class Archive:
    ...     def search(self, query, max_results):
    ...         return [SearchHit("Rain in Rome", "https://archive.example/7", f"About {query}")]
    >>> Archive().search("rain", 5)[0].title
    'Rain in Rome'
    """

    def search(self, query: str, max_results: int) -> list[SearchHit] | Awaitable[list[SearchHit]]:
        """Return the hits, best first."""
        ...


class _Service:
    """The base class of providers: sends requests to one endpoint, and keeps the key out of errors."""

    label = ""
    variables: tuple[str, ...] = ()
    """The environment variables that may have the key or the URL, if one is needed."""

    def __init__(self, endpoint: Endpoint, timeout: float, tls: SSLContext | None) -> None:
        fetch = import_extra("toolsemble.builtin._fetch", extra="web", user=type(self).__name__)
        # The configured host is trusted, even if it is not public; hosts that it redirects to are not.
        guard = UrlGuard([str(urlsplit(endpoint.url).hostname)])
        self._endpoint = endpoint
        self._request = fetch.Request
        self._fetcher: Fetcher = fetch.Fetcher(guard, timeout=timeout, limit=_MAX_BYTES, tls=tls)
        self._redact = Redactor(endpoint)

    async def _send(self, arguments: Mapping[str, Any]) -> str:
        url, headers, body = self._endpoint.request(arguments)
        try:
            response = await self._fetcher.fetch(self._request(self._endpoint.method, url, headers, body))
        except ToolExecutionError as problem:
            raise self._error(str(problem)) from None  # the cause may show the URL
        text = decode_body(response.body, response.charset, truncated=response.truncated)
        if response.failed:
            raise self._error(response.failure(self._redact(text, truncated=response.truncated)))
        return text

    async def _fetch_json(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        try:
            answer = json.loads(await self._send(arguments))
        except (ValueError, RecursionError):
            answer = None
        if not isinstance(answer, Mapping):
            raise self._error("the answer is not a JSON object")
        return answer

    def _error(self, text: str) -> ToolExecutionError:
        return ToolExecutionError(f"{self.label}: {self._redact(text)[:_MAX_ERROR]}")

    def _parse_hits(self, items: Any, *names: str) -> list[SearchHit]:
        """Return the hits of an answer, with the key masked; ignore items that are not objects."""
        known = [each for each in items if isinstance(each, Mapping)] if isinstance(items, Iterable) else []
        return [SearchHit(*(self._redact(str(each.get(name) or "")) for name in names)) for each in known]


class _KeyedService(_Service):
    """The base class of providers with a key."""

    url = ""
    method = "GET"
    path = ""
    headers: Mapping[str, str] = MappingProxyType({})

    def __init__(
        self,
        api_key: str | None = None,
        *,
        base_url: str | None = None,
        timeout: float = 15,
        tls: SSLContext | None = None,
    ) -> None:
        key = api_key or next(filter(None, map(os.environ.get, self.variables)), None)
        if not key:
            raise ToolDefinitionError(f"{type(self).__name__} needs a key: pass api_key, or set {self.variables[0]}")
        url = (self.url if base_url is None else base_url).rstrip("/") + self.path
        endpoint = make_endpoint(self.method, url, headers=self.headers, auth=None, secrets={"KEY": key})
        super().__init__(endpoint, timeout, tls)


class TavilySearch(_KeyedService):
    """A provider that searches with Tavily.

    :param api_key: the key; the default is the environment variable ``TAVILY_API_KEY``
    :param base_url: the URL of the service; the default is https://api.tavily.com

    >>> TavilySearch("tvly-key").label
    'Tavily'
    """

    label = "Tavily"
    variables = ("TAVILY_API_KEY",)
    url = "https://api.tavily.com"
    method = "POST"
    path = "/search"
    headers = MappingProxyType({"Authorization": "Bearer {KEY}"})

    async def search(self, query: str, max_results: int) -> list[SearchHit]:
        """Return the hits, best first."""
        answer = await self._fetch_json({"query": query, "max_results": max_results})
        return self._parse_hits(answer.get("results"), "title", "url", "content")


class BraveSearch(_KeyedService):
    """A provider that searches with Brave.

    :param api_key: the key; the default is the environment variable ``BRAVE_API_KEY`` or ``BRAVE_SEARCH_API_KEY``
    :param base_url: the URL of the service; the default is https://api.search.brave.com

    >>> BraveSearch("key").label
    'Brave'
    """

    label = "Brave"
    variables = ("BRAVE_API_KEY", "BRAVE_SEARCH_API_KEY")
    url = "https://api.search.brave.com"
    path = "/res/v1/web/search"
    headers = MappingProxyType({"X-Subscription-Token": "{KEY}", "Accept": "application/json"})

    async def search(self, query: str, max_results: int) -> list[SearchHit]:
        """Return the hits, best first."""
        answer = await self._fetch_json({"q": query, "count": max_results})
        web = answer.get("web")
        return self._parse_hits(web.get("results") if isinstance(web, Mapping) else None, "title", "url", "description")


class SerpApiSearch(_KeyedService):
    """A provider that searches Google with SerpAPI.

    :param api_key: the key; the default is the environment variable ``SERPAPI_API_KEY`` or ``SERPAPI_KEY``
    :param base_url: the URL of the service; the default is https://serpapi.com

    >>> SerpApiSearch("key").label
    'SerpAPI'
    """

    label = "SerpAPI"
    variables = ("SERPAPI_API_KEY", "SERPAPI_KEY")
    url = "https://serpapi.com"
    path = "/search.json?engine=google&api_key={KEY}"  # the service accepts its key in the URL only

    async def search(self, query: str, max_results: int) -> list[SearchHit]:
        """Return the hits, best first."""
        answer = await self._fetch_json({"q": query, "num": max_results})
        state = answer.get("search_metadata")
        if "error" in answer and not (isinstance(state, Mapping) and state.get("status") == "Success"):
            raise self._error(str(answer["error"]))
        return self._parse_hits(answer.get("organic_results"), "title", "link", "snippet")


class SearxngSearch(_Service):
    """A provider that searches with your own SearXNG, without a key; its settings must allow the format ``json``.

    :param base_url: its URL; the default is the environment variable ``SEARXNG_URL``

    >>> SearxngSearch("http://localhost:8888").label
    'SearXNG'
    """

    label = "SearXNG"
    variables = ("SEARXNG_URL",)

    def __init__(self, base_url: str | None = None, *, timeout: float = 15, tls: SSLContext | None = None) -> None:
        url = base_url or os.environ.get("SEARXNG_URL")
        if not url:
            raise ToolDefinitionError("SearxngSearch needs a URL: pass base_url, or set SEARXNG_URL")
        url = f"{url.rstrip('/')}/search?format=json"
        super().__init__(make_endpoint("GET", url, headers=None, auth=None, secrets=None), timeout, tls)

    async def search(self, query: str, max_results: int) -> list[SearchHit]:
        """Return the hits, best first."""
        answer = await self._fetch_json({"q": query})
        return self._parse_hits(answer.get("results"), "title", "url", "content")


class DuckDuckGoSearch(_Service):
    """A provider that searches with DuckDuckGo's HTML pages, without a key.

    >>> DuckDuckGoSearch().label
    'DuckDuckGo'
    """

    label = "DuckDuckGo"

    def __init__(
        self, *, base_url: str = "https://html.duckduckgo.com", timeout: float = 15, tls: SSLContext | None = None
    ) -> None:
        url, options = f"{base_url.rstrip('/')}/html/", {"body": "form", "content_type": FORM}
        super().__init__(make_endpoint("POST", url, headers=None, auth=None, secrets=None, **options), timeout, tls)

    async def search(self, query: str, max_results: int) -> list[SearchHit]:
        """Return the hits, best first."""
        page = _ResultPage()
        page.feed(await self._send({"form": {"q": query}}))
        page.close()
        if page.challenged:
            raise self._error("it blocks automated requests; try again later, or use a provider with a key")
        return [
            SearchHit(*map("".join, (each["title"], [_target_url(each["url"])], each["snippet"])))
            for each in page.found
        ]


class _ResultPage(HTMLParser):
    """A parser of DuckDuckGo's result page: titles are links of one class, snippets elements of another."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[dict[str, Any]] = []
        self.challenged = False
        self._part: list[str] | None = None
        self._tag = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Start a hit, its title or its snippet."""
        attributes = dict(attrs)
        classes = (attributes.get("class") or "").split()
        self.challenged = self.challenged or any(name.startswith("anomaly-modal") for name in classes)
        if tag == "a" and "result__a" in classes:
            self.found.append({"title": [], "url": attributes.get("href") or "", "snippet": []})
            self._part, self._tag = self.found[-1]["title"], tag
        elif "result__snippet" in classes and self.found:
            self._part, self._tag = self.found[-1]["snippet"], tag

    def handle_endtag(self, tag: str) -> None:
        """End a title or snippet."""
        if tag == self._tag:
            self._part = None

    def handle_data(self, data: str) -> None:
        """Add text to the title or snippet."""
        if self._part is not None:
            self._part.append(data)


def _target_url(link: str) -> str:
    """Return the target of a result's link, which may be a redirect that counts clicks; empty for advertisements."""
    try:
        whole = urljoin("https://duckduckgo.com/", link)
        parts = urlsplit(whole)
    except ValueError:
        return ""
    if parts.hostname is None or not f".{parts.hostname}".endswith(".duckduckgo.com"):
        return whole
    return parse_qs(parts.query).get("uddg", [""])[0]
