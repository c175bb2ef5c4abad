"""A search index of tools: BM25F over names, titles, descriptions and parameters, with a floor."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from heapq import nlargest
from typing import Any, NamedTuple

from toolsemble.catalog.query import RELATED, Query, read_query
from toolsemble.catalog.terms import split_terms

_MOST_NODES = 500  # of the schema of one tool that are read


class Field(NamedTuple):
    """A part of a tool's texts."""

    weight: float
    """How much a term in it counts."""
    length: float
    """How much a long text counts less, from 0 to 1."""


# Chosen on one half of the questions of `evals/catalog.py`; a title counts as a name that was written for people.
FIELDS = {
    "name": Field(3.0, 0.5),
    "title": Field(3.0, 0.5),
    "description": Field(2.0, 0.9),
    "parameters": Field(0.6, 0.7),
    "texts": Field(0.6, 0.5),
    "choices": Field(0.4, 0.3),
}
_SATURATION = 1.7
_RARITY = 0.6  # the power of the inverse document frequency
_LEAST_TOOLS = 200  # in a small catalog all words are rare or common; it counts as part of one of this size
FLOOR = 1.57
"""The least fitness of a tool that is found; ``evals/catalog.py`` shows the recall and the false offers of others."""
_SHORT_FLOOR = 1.2
_RELATED = 0.25  # how much a word counts of which the tool has only a synonym
_SHORT = 2  # words of a task, of which one may be missing


class Document(NamedTuple):
    """The texts of a tool, by field."""

    name: str
    title: str
    description: str
    parameters: str
    texts: str
    choices: str


def describe_tool(name: str, title: str, description: str, schema: Mapping[str, Any]) -> Document:
    """Return the texts of a tool that are searched.

    >>> schema = {"properties": {"city": {"description": "Its name", "enum": ["Rome", "Oslo"]}}}
    >>> describe_tool("weather", "", "The weather today", schema).choices
    'Rome Oslo'
    """
    names: list[str] = []
    texts: list[str] = []
    choices: list[str] = []
    for key, node in _walk(schema):
        names.append(key)
        if isinstance(text := node.get("description"), str):
            texts.append(text)
        if isinstance(values := node.get("enum"), list):
            choices += [each for each in values if isinstance(each, str)]
    return Document(name, title, description, " ".join(names), " ".join(texts), " ".join(choices))


def _walk(schema: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the names and schemas of parameters at every depth; a hostile schema may be large, but has no cycle."""
    waiting: list[tuple[str, Any]] = [("", schema)]
    left = _MOST_NODES
    while waiting and left:
        left -= 1
        name, node = waiting.pop()
        if not isinstance(node, Mapping):
            continue
        if node is not schema:
            yield name, node
        for key in ("properties", "$defs", "definitions"):
            if isinstance(inside := node.get(key), Mapping):
                waiting += [(str(each) if key == "properties" else "", part) for each, part in inside.items()]
        waiting += [("", node[key]) for key in ("items", "additionalProperties") if key in node]
        for key in ("anyOf", "oneOf", "allOf"):
            if isinstance(inside := node.get(key), list):
                waiting += [("", part) for part in inside]


class Index:
    """The terms of tools, to search in.

    >>> index = Index([describe_tool("weather", "", "The weather in a city", {})])
    >>> index.search("Will it rain? Show the weather", 5), index.search("bake a cake", 5)
    ([0], [])
    """

    def __init__(self, documents: Sequence[Document]) -> None:
        self._size = len(documents)
        self._postings: dict[str, tuple[list[int], list[float]]] = {}
        split = [[split_terms(text) for text in document] for document in documents]
        averages = [max(1.0, sum(map(len, column)) / self._size) for column in zip(*split, strict=True)]
        for number, fields in enumerate(split):
            self._add(number, fields, averages)
        tools = max(self._size, _LEAST_TOOLS)
        self._unknown = math.log(1 + (tools + 0.5) / 0.5)
        self._rarity = {
            term: math.log(1 + (tools - len(found) + 0.5) / (len(found) + 0.5)) / self._unknown
            for term, (found, _) in self._postings.items()
        }

    def _add(self, number: int, fields: Sequence[Sequence[str]], averages: Sequence[float]) -> None:
        counts: dict[str, float] = {}
        for terms, average, field in zip(fields, averages, FIELDS.values(), strict=True):
            if terms:
                share = field.weight / (1 - field.length + field.length * len(terms) / average)
                for term in terms:
                    counts[term] = counts.get(term, 0.0) + share
        for term, count in counts.items():
            numbers, scores = self._postings.setdefault(term, ([], []))
            numbers.append(number)
            scores.append(count * (_SATURATION + 1) / (_SATURATION + count))

    def search(self, text: str, limit: int) -> list[int]:
        """Return the numbers of the tools that fit a query best, best first; none if the best one does not fit.

        Equally good ones are in their own order.
        """
        query = read_query(text)
        scores = self._score(query)
        best = [each for each in nlargest(limit, range(self._size), key=scores.__getitem__) if scores[each]]
        return best if best and self._fits(query, best[0], scores[best[0]]) else []

    def fitness(self, text: str) -> float:
        """Return how well the best tool fits a query: its score, less for each word of the task that it lacks.

        It is infinite if the tool lacks none of them.

        >>> Index([]).fitness("bake a cake")
        0.0
        """
        query = read_query(text)
        scores = self._score(query)
        best = max(range(self._size), key=scores.__getitem__, default=None)
        return 0.0 if best is None else self._measure(query, best, scores[best])

    def _fits(self, query: Query, number: int, score: float) -> bool:
        least = _SHORT_FLOOR if len(query.task) <= _SHORT else FLOOR
        return self._measure(query, number, score) >= least

    def _measure(self, query: Query, number: int, score: float) -> float:
        needed = missing = 0.0
        for term, share in query.task.items():
            rarity = share * self._rarity.get(term, 1.0)
            if self._has(number, term):
                needed += rarity
            elif any(self._has(number, other) for other in RELATED.get(term, ())):
                needed += rarity * _RELATED
            else:
                missing += rarity
        if not missing:
            return math.inf if score else 0.0
        return score * math.sqrt(score / (needed + missing))

    def _has(self, number: int, term: str) -> bool:
        numbers, _ = self._postings.get(term, ([], []))
        place = bisect_left(numbers, number)
        return place < len(numbers) and numbers[place] == number

    def _score(self, query: Query) -> list[float]:
        """Return the score of each tool."""
        scores = [0.0] * self._size
        for term, weight in query.weights.items():
            if term in self._postings:
                factor = weight * self._rarity[term] ** _RARITY
                for number, score in zip(*self._postings[term], strict=True):
                    scores[number] += factor * score
        return scores
