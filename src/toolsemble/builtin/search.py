"""Services that search the web, each behind the same small protocol."""

from __future__ import annotations

import json
import os
from collections.abc import Awaitable, Iterable, Mapping
from dataclasses import dataclass
from html.parser import HTMLParser
from ssl import SSLContext
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import parse_qs, urljoin, urlsplit

from toolsemble.builtin.charset import decoded
from toolsemble.builtin.endpoint import FORM, Endpoint, Redactor, endpoint
from toolsemble.errors import ToolDefinitionError, ToolExecutionError
from toolsemble.guard.urls import UrlGuard
from toolsemble.runtime.extras import import_extra

if TYPE_CHECKING:
    from toolsemble.builtin.fetch import Fetcher

_LARGEST = 2_000_000
_LONGEST_PROBLEM = 300


@dataclass(frozen=True, slots=True)
class SearchHit:
    """One result of a search.

    >>> SearchHit("Example", "https://example.com/", "An example.").url
    'https://example.com/'
    """

    title: str
    """The page's title."""
    url: str
    """Where the page is."""
    snippet: str
    """What the page says about the query."""


class SearchProvider(Protocol):
    """Whoever can search: any object with this one method, sync or async.

    >>> class Archive:
    ...     def search(self, query, max_results):
    ...         return [SearchHit("Rain in Rome", "https://archive.example/7", f"About {query}")]
    >>> Archive().search("rain", 5)[0].title
    'Rain in Rome'
    """

    def search(self, query: str, max_results: int) -> list[SearchHit] | Awaitable[list[SearchHit]]:
        """Give the best hits first."""
        ...


class _Service:
    """Asks one service, at its own place and nowhere else; says what went wrong without the key."""

    label = ""

    def __init__(self, place: Endpoint, timeout: float, tls: SSLContext | None) -> None:
        fetch = import_extra("toolsemble.builtin.fetch", extra="web", user=type(self).__name__)
        # Whoever configures a place trusts it; where it redirects to is another matter.
        guard = UrlGuard([str(urlsplit(place.url).hostname)])
        self._place = place
        self._request = fetch.Request
        self._fetcher: Fetcher = fetch.Fetcher(guard, timeout=timeout, limit=_LARGEST, tls=tls)
        self._redacted = Redactor(place)

    async def _asked(self, arguments: Mapping[str, Any]) -> str:
        url, headers, body = self._place.request(arguments)
        try:
            response = await self._fetcher.fetch(self._request(self._place.method, url, headers, body))
        except ToolExecutionError as problem:
            raise self._problem(str(problem)) from None  # the cause may show the URL
        text = decoded(response.body, response.charset, cut=response.truncated)
        if response.failed:
            raise self._problem(response.failure(self._redacted(text, cut=response.truncated)))
        return text

    async def _json(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        try:
            answer = json.loads(await self._asked(arguments))
        except (ValueError, RecursionError):
            answer = None
        if not isinstance(answer, Mapping):
            raise self._problem("the answer is no JSON object")
        return answer

    def _problem(self, text: str) -> ToolExecutionError:
        return ToolExecutionError(f"{self.label}: {self._redacted(text)[:_LONGEST_PROBLEM]}")

    def _hits(self, items: Any, *names: str) -> list[SearchHit]:
        """Give the hits in an answer, without the key that a service may repeat; what is none is left out."""
        known = [each for each in items if isinstance(each, Mapping)] if isinstance(items, Iterable) else []
        return [SearchHit(*(self._redacted(str(each.get(name) or "")) for name in names)) for each in known]


class TavilySearch(_Service):
    """Searches with Tavily.

    :param api_key: the key; by default what the environment has as ``TAVILY_API_KEY``

    >>> TavilySearch("tvly-key").label
    'Tavily'
    """

    label = "Tavily"

    def __init__(
        self,
        api_key: str | None = None,
        *,
        base_url: str = "https://api.tavily.com",
        timeout: float = 15,
        tls: SSLContext | None = None,
    ) -> None:
        key = _key("TavilySearch", api_key, "TAVILY_API_KEY")
        super().__init__(
            _place("POST", f"{base_url.rstrip('/')}/search", {"Authorization": "Bearer {KEY}"}, key), timeout, tls
        )

    async def search(self, query: str, max_results: int) -> list[SearchHit]:
        """Give the best hits first."""
        answer = await self._json({"query": query, "max_results": max_results})
        return self._hits(answer.get("results"), "title", "url", "content")


class BraveSearch(_Service):
    """Searches with Brave.

    :param api_key: the key; by default what the environment has as ``BRAVE_API_KEY`` or ``BRAVE_SEARCH_API_KEY``

    >>> BraveSearch("key").label
    'Brave'
    """

    label = "Brave"

    def __init__(
        self,
        api_key: str | None = None,
        *,
        base_url: str = "https://api.search.brave.com",
        timeout: float = 15,
        tls: SSLContext | None = None,
    ) -> None:
        key = _key("BraveSearch", api_key, "BRAVE_API_KEY", "BRAVE_SEARCH_API_KEY")
        headers = {"X-Subscription-Token": "{KEY}", "Accept": "application/json"}
        super().__init__(_place("GET", f"{base_url.rstrip('/')}/res/v1/web/search", headers, key), timeout, tls)

    async def search(self, query: str, max_results: int) -> list[SearchHit]:
        """Give the best hits first."""
        answer = await self._json({"q": query, "count": max_results})
        web = answer.get("web")
        return self._hits(web.get("results") if isinstance(web, Mapping) else None, "title", "url", "description")


class SerpApiSearch(_Service):
    """Searches Google with SerpAPI.

    :param api_key: the key; by default what the environment has as ``SERPAPI_API_KEY`` or ``SERPAPI_KEY``

    >>> SerpApiSearch("key").label
    'SerpAPI'
    """

    label = "SerpAPI"

    def __init__(
        self,
        api_key: str | None = None,
        *,
        base_url: str = "https://serpapi.com",
        timeout: float = 15,
        tls: SSLContext | None = None,
    ) -> None:
        key = _key("SerpApiSearch", api_key, "SERPAPI_API_KEY", "SERPAPI_KEY")
        # The service takes its key in the URL only; it is filled in when a request is sent.
        super().__init__(
            _place("GET", f"{base_url.rstrip('/')}/search.json?engine=google&api_key={{KEY}}", {}, key), timeout, tls
        )

    async def search(self, query: str, max_results: int) -> list[SearchHit]:
        """Give the best hits first."""
        answer = await self._json({"q": query, "num": max_results})
        state = answer.get("search_metadata")
        if "error" in answer and not (isinstance(state, Mapping) and state.get("status") == "Success"):
            raise self._problem(str(answer["error"]))
        return self._hits(answer.get("organic_results"), "title", "link", "snippet")


class SearxngSearch(_Service):
    """Searches with a SearXNG of your own, which needs no key; its settings must allow the format ``json``.

    :param base_url: where it is; by default what the environment has as ``SEARXNG_URL``

    >>> SearxngSearch("http://localhost:8888").label
    'SearXNG'
    """

    label = "SearXNG"

    def __init__(self, base_url: str | None = None, *, timeout: float = 15, tls: SSLContext | None = None) -> None:
        place = base_url or os.environ.get("SEARXNG_URL")
        if not place:
            raise ToolDefinitionError("SearxngSearch needs to know where it is: pass base_url, or set SEARXNG_URL")
        super().__init__(_place("GET", f"{place.rstrip('/')}/search?format=json", {}, ""), timeout, tls)

    async def search(self, query: str, max_results: int) -> list[SearchHit]:  # noqa: ARG002 - it takes no number
        """Give the best hits first."""
        answer = await self._json({"q": query})
        return self._hits(answer.get("results"), "title", "url", "content")


class DuckDuckGoSearch(_Service):
    """Searches with DuckDuckGo's pages for simple browsers, which need no key.

    >>> DuckDuckGoSearch().label
    'DuckDuckGo'
    """

    label = "DuckDuckGo"

    def __init__(
        self, *, base_url: str = "https://html.duckduckgo.com", timeout: float = 15, tls: SSLContext | None = None
    ) -> None:
        url, places = f"{base_url.rstrip('/')}/html/", {"body": "form", "content_type": FORM}
        super().__init__(endpoint("POST", url, headers=None, auth=None, secrets=None, **places), timeout, tls)

    async def search(self, query: str, max_results: int) -> list[SearchHit]:  # noqa: ARG002 - it takes no number
        """Give the best hits first."""
        page = _ResultPage()
        page.feed(await self._asked({"form": {"q": query}}))
        page.close()
        if page.challenged:
            raise self._problem("it takes this for a robot; wait a while, or use a service with a key")
        return [
            SearchHit(*map("".join, (each["title"], [_target(each["url"])], each["snippet"]))) for each in page.found
        ]


class _ResultPage(HTMLParser):
    """Collects the hits of a result page: titles are links of one class, snippets elements of another."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[dict[str, Any]] = []
        self.challenged = False
        self._into: list[str] | None = None
        self._tag = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Begin a hit, or a part of one."""
        given = dict(attrs)
        classes = (given.get("class") or "").split()
        self.challenged = self.challenged or any(name.startswith("anomaly-modal") for name in classes)
        if tag == "a" and "result__a" in classes:
            self.found.append({"title": [], "url": given.get("href") or "", "snippet": []})
            self._into, self._tag = self.found[-1]["title"], tag
        elif "result__snippet" in classes and self.found:
            self._into, self._tag = self.found[-1]["snippet"], tag

    def handle_endtag(self, tag: str) -> None:
        """End a part."""
        if tag == self._tag:
            self._into = None

    def handle_data(self, data: str) -> None:
        """Take the text of a part."""
        if self._into is not None:
            self._into.append(data)


def _target(link: str) -> str:
    """Give where a link of a result page leads; the page counts clicks, and advertising has an address of its own."""
    try:
        whole = urljoin("https://duckduckgo.com/", link)
        parts = urlsplit(whole)
    except ValueError:
        return ""
    if parts.hostname is None or not f".{parts.hostname}".endswith(".duckduckgo.com"):
        return whole
    return parse_qs(parts.query).get("uddg", [""])[0]


def _key(owner: str, given: str | None, *variables: str) -> str:
    key = given or next(filter(None, map(os.environ.get, variables)), "")
    if not key:
        raise ToolDefinitionError(f"{owner} needs a key: pass api_key, or set {variables[0]}")
    return key


def _place(method: str, url: str, headers: Mapping[str, str], key: str) -> Endpoint:
    return endpoint(method, url, headers=headers, auth=None, secrets={"KEY": key})
