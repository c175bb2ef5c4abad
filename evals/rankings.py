"""The compared searches: `Catalog`'s, other libraries', and the overlap of words.

Only toolsemble's has a floor. So that all can be compared at the same number of false offers, each is asked for the
score of its best tool, too; the floor is then put where it lets through as many unserved questions as wanted.
"""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from bfcl import Function

from toolsemble.catalog._search import WEIGHTS, Index, Weights, describe_tool

MOST = 5
"""How many tools each search finds."""


class Answer(NamedTuple):
    """The tools that a search finds."""

    names: list[str]
    """Their names, best first."""
    score: float
    """How well the best one fits, in the search's own measure; 0 if there is none."""


class Search(NamedTuple):
    """A search over all tools."""

    name: str
    """The name of the library, and of its search."""
    answer: Callable[[str], Answer]
    """Returns what is found for a query, without a floor."""
    floor: float
    """The least score of what it really offers."""


def search_catalog(functions: Sequence[Function], weights: Weights = WEIGHTS) -> Search:
    """Return the search of a catalog."""
    documents = [describe_tool(each.name, "", each.description, each.parameters) for each in functions]
    index = Index(documents, weights)

    def answer(query: str) -> Answer:
        ranking = index.rank(query, MOST)
        return Answer([functions[number].name for number in ranking.numbers], ranking.fitness)

    return Search("toolsemble", answer, weights.floor)


def search_overlap(functions: Sequence[Function]) -> Search:
    """Return a plain search: by the number of words that a query shares with the texts of a tool."""
    words = {each.name: _words(f"{each.name} {each.description} {each.parameters}") for each in functions}

    def answer(query: str) -> Answer:
        asked = _words(query)
        common = {name: len(asked & own) for name, own in words.items()}
        best = sorted((name for name in common if common[name]), key=lambda name: -common[name])[:MOST]
        return Answer(best, common[best[0]] if best else 0)

    return Search("keyword overlap", answer, 1)


def search_fastmcp(functions: Sequence[Function]) -> Search:
    """Return the search of FastMCP's transform for BM25."""
    from fastmcp.server.transforms.search import BM25SearchTransform
    from fastmcp.tools.base import Tool

    offered = [Tool(name=each.name, description=each.description, parameters=each.parameters) for each in functions]
    transform: Any = BM25SearchTransform(max_results=MOST)
    places = {each.name: place for place, each in enumerate(functions)}

    def answer(query: str) -> Answer:
        found = [each.name for each in asyncio.run(transform._search(offered, query))]  # noqa: SLF001 - it needs a server
        return Answer(found, _score_bm25(transform._index, places[found[0]], query) if found else 0.0)  # noqa: SLF001

    return Search("FastMCP BM25", answer, 0.0)


def _score_bm25(index: Any, place: int, query: str) -> float:
    """Return the score of a tool, which FastMCP's index computes and does not return."""
    from fastmcp.server.transforms.search.bm25 import _tokenize

    length = 1 - index.b + index.b * index._doc_lengths[place] / index._avg_dl  # noqa: SLF001 - as above
    score = 0.0
    for term in _tokenize(query):
        if count := index._tf[place].get(term, 0):  # noqa: SLF001 - as above
            tools = index._df[term]  # noqa: SLF001 - as above
            rarity = math.log((index._n - tools + 0.5) / (tools + 0.5) + 1)  # noqa: SLF001 - as above
            score += rarity * count * (index.k1 + 1) / (count + index.k1 * length)
    return score


def search_pydantic_ai(functions: Sequence[Function]) -> Search:
    """Return the search of pydantic-ai for tools that are loaded later."""
    from pydantic_ai.tools import ToolDefinition
    from pydantic_ai.toolsets._tool_search import keywords_search_fn

    definitions = [ToolDefinition(name=each.name, description=each.description) for each in functions]
    words = {each.name: _words(f"{each.name} {each.description}") for each in definitions}
    context: Any = None

    def answer(query: str) -> Answer:
        found = keywords_search_fn(context, [query], definitions)[:MOST]
        return Answer(found, len(_words(query) & words[found[0]]) if found else 0)

    return Search("pydantic-ai keywords", answer, 1)


def _words(text: str) -> set[str]:
    return set(re.findall(r"[a-z0-9]+", text.lower()))
