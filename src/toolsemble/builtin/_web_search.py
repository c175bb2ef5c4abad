"""``web_search``, and its providers: Tavily, Brave, SerpAPI, SearXNG and DuckDuckGo."""

from __future__ import annotations

import html
import json
import os
import re
from collections.abc import Awaitable, Iterable, Mapping
from dataclasses import dataclass
from html.parser import HTMLParser
from ssl import SSLContext
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Protocol, cast
from urllib.parse import parse_qs, urljoin, urlsplit

from pydantic import Field

from toolsemble._runtime.event_loops import is_awaitable
from toolsemble._runtime.extras import import_extra
from toolsemble._runtime.urls import UrlGuard
from toolsemble._tools.typed import TypedTool
from toolsemble._vocabulary.errors import ToolArgumentsError, ToolDefinitionError, ToolExecutionError
from toolsemble._vocabulary.result import ToolResult
from toolsemble.builtin._endpoint import FORM, Endpoint, Redactor, make_endpoint
from toolsemble.builtin._fetch import decode_body

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
    """The environment variables for the key or the URL, if one is needed."""

    def __init__(self, endpoint: Endpoint, timeout: float, tls: SSLContext | None) -> None:
        fetch = import_extra("toolsemble.builtin._fetch", extra="web", user=type(self).__name__)
        # The configured host is trusted, even if it is not public; redirect targets are not.
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


_PROVIDERS: dict[str, Any] = {
    "tavily": TavilySearch,
    "brave": BraveSearch,
    "serpapi": SerpApiSearch,
    "searxng": SearxngSearch,
    "duckduckgo": DuckDuckGoSearch,
}
_MAX_RESULTS = 20
_MAX_QUERY = 1000
_MAX_TITLE = 200
_MAX_SNIPPET = 500
_MAX_URL = 2000
_TAG = re.compile(r"</?[a-zA-Z][^<>]{0,200}>")
_INVISIBLE = re.compile("[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff\\s]+")
_LINK = re.compile(r"https?://[^\s\x00-\x20\x7f-\x9f]+", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class WebSearchInput:
    """The arguments of ``web_search``."""

    query: Annotated[str, Field(description="What to search for", min_length=1, max_length=_MAX_QUERY)]
    """The query."""
    max_results: Annotated[int, Field(description="How many results to return at most", ge=1, le=_MAX_RESULTS)] = 5
    """The maximum number of hits to return."""


class WebSearchTool(TypedTool[WebSearchInput]):
    """A tool that searches the web with a provider and returns numbered titles, URLs and snippets.

    :param provider: any object with ``search(query, max_results)``, sync or async; or the name of one: ``"tavily"``,
        ``"brave"``, ``"serpapi"``, ``"searxng"``, ``"duckduckgo"``; the default is the first of these that has a key
        or a URL in the environment
    :param name: another name for the model
    :param description: another description for the model

    >>> class Archive:
    ...     def search(self, query, max_results):
    ...         return [SearchHit("Rain in Rome", "https://archive.example/7", f"About {query}.")]
    >>> print(WebSearchTool(Archive()).execute('{"query": "rain"}').output)
    1. Rain in Rome
       https://archive.example/7
       About rain.
    """

    name = "web_search"
    description = (
        "Searches the web and returns titles, URLs and snippets of the best results. Use it to find pages or current "
        "facts; read a page that it finds with another tool."
    )

    def __init__(
        self,
        provider: SearchProvider | str | None = None,
        *,
        name: str | None = None,
        description: str | None = None,
    ) -> None:
        self._set_names(name, description)
        self._provider = _choose_provider(provider)

    def run(self, input: WebSearchInput) -> ToolResult | Awaitable[ToolResult]:
        """Return the hits for a query."""
        if not input.query.strip():
            raise ToolArgumentsError("query must not be blank")
        found = self._provider.search(input.query, input.max_results)
        return (
            _await_result(found, input.max_results) if is_awaitable(found) else _make_result(found, input.max_results)
        )


def _choose_provider(provider: Any) -> SearchProvider:
    if provider is None:
        kinds = ((name, kind.variables) for name, kind in _PROVIDERS.items())
        provider = next(name for name, keys in kinds if not keys or any(map(os.environ.get, keys)))
    if isinstance(provider, str) and provider in _PROVIDERS:
        provider = _PROVIDERS[provider]()
    if isinstance(provider, type) or not callable(getattr(provider, "search", None)):
        raise ToolDefinitionError(
            f"provider must have a method search(query, max_results), or be one of {', '.join(_PROVIDERS)}; "
            f"it is {provider!r:.80}"
        )
    return cast("SearchProvider", provider)


async def _await_result(found: Awaitable[Any], max_results: int) -> ToolResult:
    return _make_result(await found, max_results)


def _make_result(found: Any, max_results: int) -> ToolResult:
    hits = list(_clean_hits(_check_hits(found)))[:max_results]
    if not hits:
        return ToolResult.success("No results found.", [])
    return ToolResult.success("\n\n".join(_format_hit(number, hit) for number, hit in enumerate(hits, 1)), hits)


def _check_hits(found: Any) -> list[SearchHit]:
    """Return the hits of a provider; raise if it did not return a list of hits."""
    hits = list(found) if isinstance(found, Iterable) and not isinstance(found, (str, Mapping)) else [found]
    if wrong := [each for each in hits if not _is_hit(each)]:
        raise ToolExecutionError(
            f"The search provider must return a list of SearchHit with str fields, not {wrong[0]!r:.80}"
        )
    return hits


def _is_hit(value: Any) -> bool:
    return isinstance(value, SearchHit) and all(
        isinstance(each, str) for each in (value.title, value.url, value.snippet)
    )


def _clean_hits(found: Iterable[SearchHit]) -> Iterable[SearchHit]:
    """Yield the hits with a valid URL, each field on one line, so that a field cannot imitate another hit."""
    for hit in found:
        link = _LINK.fullmatch(hit.url.strip())
        if link and len(link[0]) <= _MAX_URL:
            title = _clean_line(hit.title, _MAX_TITLE) or link[0]
            yield SearchHit(title, link[0], _clean_line(hit.snippet, _MAX_SNIPPET))


def _clean_line(text: str, limit: int) -> str:
    plain = _INVISIBLE.sub(" ", html.unescape(_TAG.sub("", text))).strip()
    return plain if len(plain) <= limit else f"{plain[:limit].rstrip()}..."


def _format_hit(number: int, hit: SearchHit) -> str:
    return "\n   ".join(filter(None, (f"{number}. {hit.title}", hit.url, hit.snippet)))
