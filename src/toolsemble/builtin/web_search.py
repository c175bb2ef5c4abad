"""``web_search``: titles, addresses and snippets for a query."""

from __future__ import annotations

import html
import os
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field

from toolsemble.builtin.search import (
    BraveSearch,
    DuckDuckGoSearch,
    SearchHit,
    SearchProvider,
    SearxngSearch,
    SerpApiSearch,
    TavilySearch,
)
from toolsemble.errors import ToolArgumentsError, ToolDefinitionError, ToolExecutionError
from toolsemble.result import ToolResult
from toolsemble.runtime.concurrency import is_awaitable
from toolsemble.tools.typed import TypedTool

_PROVIDERS: dict[str, tuple[Callable[[], SearchProvider], tuple[str, ...]]] = {
    "tavily": (TavilySearch, ("TAVILY_API_KEY",)),
    "brave": (BraveSearch, ("BRAVE_API_KEY", "BRAVE_SEARCH_API_KEY")),
    "serpapi": (SerpApiSearch, ("SERPAPI_API_KEY", "SERPAPI_KEY")),
    "searxng": (SearxngSearch, ("SEARXNG_URL",)),
    "duckduckgo": (DuckDuckGoSearch, ()),
}
_MOST = 20
_LONGEST_QUERY = 1000
_LONGEST_TITLE = 200
_LONGEST_SNIPPET = 500
_LONGEST_URL = 2000
_TAG = re.compile(r"</?[a-zA-Z][^<>]{0,200}>")
_UNSEEN = re.compile("[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff\\s]+")
_LINK = re.compile(r"https?://[^\s\x00-\x20\x7f-\x9f]+", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class WebSearchInput:
    """What is searched for."""

    query: Annotated[str, Field(description="What to search for", min_length=1, max_length=_LONGEST_QUERY)]
    """The query."""
    max_results: Annotated[int, Field(description="How many results to return at most", ge=1, le=_MOST)] = 5
    """How many hits are given at most."""


class WebSearchTool(TypedTool[WebSearchInput]):
    """Searches the web with a provider, and gives numbered titles, addresses and snippets.

    :param provider: any object with ``search(query, max_results)``, sync or async; or the name of one: ``"tavily"``,
        ``"brave"``, ``"serpapi"``, ``"searxng"``, ``"duckduckgo"``; without one, the first of these that the
        environment has a key or an address for

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

    def __init__(self, provider: SearchProvider | str | None = None) -> None:
        self._provider = _chosen(provider)

    def run(self, input: WebSearchInput) -> ToolResult | Awaitable[ToolResult]:
        """Give the hits for a query."""
        if not input.query.strip():
            raise ToolArgumentsError("query: it is blank; say what to search for")
        found = self._provider.search(input.query, input.max_results)
        return _later(found, input.max_results) if is_awaitable(found) else _result(found, input.max_results)


def _chosen(provider: Any) -> SearchProvider:
    if provider is None:
        provider = next(name for name, (_, keys) in _PROVIDERS.items() if not keys or any(map(os.environ.get, keys)))
    if isinstance(provider, str) and provider in _PROVIDERS:
        return _PROVIDERS[provider][0]()
    if isinstance(provider, type) or not callable(getattr(provider, "search", None)):
        raise ToolDefinitionError(
            f"provider must have a method search(query, max_results), or be one of {', '.join(_PROVIDERS)}; "
            f"it is {provider!r:.80}"
        )
    found: SearchProvider = provider
    return found


async def _later(found: Awaitable[Any], most: int) -> ToolResult:
    return _result(await found, most)


def _result(found: Any, most: int) -> ToolResult:
    hits = list(_clean(_checked(found)))[:most]
    if not hits:
        return ToolResult.success("No results found.", [])
    return ToolResult.success("\n\n".join(_told(number, hit) for number, hit in enumerate(hits, 1)), hits)


def _checked(found: Any) -> list[SearchHit]:
    """Give what a provider found; refuse what is no list of hits, with words for whoever wrote the provider."""
    hits = list(found) if isinstance(found, Iterable) and not isinstance(found, (str, Mapping)) else [found]
    if wrong := [each for each in hits if not _is_hit(each)]:
        raise ToolExecutionError(
            f"The search provider must give a list of SearchHit, each of three texts; it gave {wrong[0]!r:.80}"
        )
    return hits


def _is_hit(value: Any) -> bool:
    return isinstance(value, SearchHit) and all(
        isinstance(each, str) for each in (value.title, value.url, value.snippet)
    )


def _clean(found: Iterable[SearchHit]) -> Iterable[SearchHit]:
    """Give the hits that lead to a page, each on its lines: what a page says of itself cannot pass for another hit."""
    for hit in found:
        link = _LINK.fullmatch(hit.url.strip())
        if link and len(link[0]) <= _LONGEST_URL:
            title = _line(hit.title, _LONGEST_TITLE) or link[0]
            yield SearchHit(title, link[0], _line(hit.snippet, _LONGEST_SNIPPET))


def _line(text: str, limit: int) -> str:
    plain = _UNSEEN.sub(" ", html.unescape(_TAG.sub("", text))).strip()
    return plain if len(plain) <= limit else f"{plain[:limit].rstrip()}..."


def _told(number: int, hit: SearchHit) -> str:
    return "\n   ".join(filter(None, (f"{number}. {hit.title}", hit.url, hit.snippet)))
