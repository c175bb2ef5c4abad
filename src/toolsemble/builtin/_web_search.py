"""``web_search``: a tool that returns titles, URLs and snippets for a query."""

from __future__ import annotations

import html
import os
import re
from collections.abc import Awaitable, Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, cast

from pydantic import Field

from toolsemble._runtime.concurrency import is_awaitable
from toolsemble._tools.typed import TypedTool
from toolsemble._vocabulary.errors import ToolArgumentsError, ToolDefinitionError, ToolExecutionError
from toolsemble._vocabulary.result import ToolResult
from toolsemble.builtin._search import (
    BraveSearch,
    DuckDuckGoSearch,
    SearchHit,
    SearchProvider,
    SearxngSearch,
    SerpApiSearch,
    TavilySearch,
)

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
