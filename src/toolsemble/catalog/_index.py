"""A search index of tools: BM25F over names, titles, descriptions and parameters, with a floor."""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from heapq import nlargest
from typing import Any, NamedTuple

from toolsemble.catalog._query import RELATED, Query, read_query
from toolsemble.catalog._terms import split_terms, stem
from toolsemble.catalog._weights import WEIGHTS, Weights

_MOST_NODES = 500  # of the schema of one tool that are read


_LEAST_TOOLS = 200  # in a small catalog all words are rare or common; it counts as part of one of this size
_SHORTEST_PART = 4  # characters of a part of a compound such as "datetime"
_COMPOUND = re.compile(rf"[a-z]{{{2 * _SHORTEST_PART},40}}")
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


class Ranking(NamedTuple):
    """The tools that fit a query best."""

    numbers: list[int]
    """Their numbers, best first; equally good ones are in their own order."""
    fitness: float
    """How well the best of them fits: its score, less for each word of the task that it lacks; infinite if it lacks
    none of them."""


class Index:
    """The terms of tools, to search in.

    >>> index = Index([describe_tool("weather", "", "The weather in a city", {})])
    >>> index.search("Will it rain? Show the weather", 5), index.search("bake a cake", 5)
    ([0], [])
    """

    def __init__(self, documents: Sequence[Document], weights: Weights = WEIGHTS) -> None:
        self._size = len(documents)
        self._weights = weights
        self._postings: dict[str, tuple[list[int], list[float]]] = {}
        split = [_split_fields(document) for document in documents]
        averages = [max(1.0, sum(map(len, column)) / self._size) for column in zip(*split, strict=True)]
        for number, fields in enumerate(split):
            self._add(number, fields, averages)
        tools = max(self._size, _LEAST_TOOLS)
        unknown = math.log(1 + (tools + 0.5) / 0.5)
        self._rarity = {
            term: math.log(1 + (tools - len(found) + 0.5) / (len(found) + 0.5)) / unknown
            for term, (found, _) in self._postings.items()
        }

    def _add(self, number: int, fields: Sequence[Sequence[str]], averages: Sequence[float]) -> None:
        counts: dict[str, float] = {}
        for terms, average, (weight, length) in zip(fields, averages, _weigh_fields(self._weights), strict=True):
            if terms:
                share = weight / (1 - length + length * min(len(terms) / average, self._weights.longest))
                for term in terms:
                    counts[term] = counts.get(term, 0.0) + share
        saturation = self._weights.saturation
        for term, count in counts.items():
            numbers, scores = self._postings.setdefault(term, ([], []))
            numbers.append(number)
            scores.append(count * (saturation + 1) / (saturation + count))

    def search(self, text: str, limit: int) -> list[int]:
        """Return the numbers of the tools that fit a query best, best first; none if the best one does not fit."""
        ranking = self.rank(text, limit)
        return ranking.numbers if ranking.fitness >= self._weights.floor else []

    def rank(self, text: str, limit: int) -> Ranking:
        """Return the tools that share words with a query, whether they fit or not.

        >>> Index([]).rank("bake a cake", 5)
        Ranking(numbers=[], fitness=0.0)
        """
        query = read_query(text, self._weights)
        scores = self._score(query)
        best = [each for each in nlargest(limit, range(self._size), key=scores.__getitem__) if scores[each]]
        return Ranking(best, self._measure(query, best[0], scores[best[0]]) if best else 0.0)

    def _measure(self, query: Query, number: int, score: float) -> float:
        """Return how well a tool fits a query."""
        needed = missing = 0.0
        for term, share in query.task.items():
            rarity = share * self._rarity.get(term, 1.0)
            if self._has(number, term):
                needed += rarity
            elif any(self._has(number, other) for other in RELATED.get(term, ())):
                needed += rarity * self._weights.related
            else:
                missing += rarity
        if not missing:
            return math.inf
        fitness = score * math.sqrt(score / (needed + missing))
        return fitness * self._weights.short if len(query.task) <= _SHORT else fitness

    def _has(self, number: int, term: str) -> bool:
        numbers, _ = self._postings.get(term, ([], []))
        place = bisect_left(numbers, number)
        return place < len(numbers) and numbers[place] == number

    def _score(self, query: Query) -> list[float]:
        """Return the score of each tool."""
        scores = [0.0] * self._size
        for term, weight in query.weights.items():
            if term in self._postings:
                factor = weight * self._rarity[term] ** self._weights.rarity
                for number, score in zip(*self._postings[term], strict=True):
                    scores[number] += factor * score
        return scores


def _split_fields(document: Document) -> list[list[str]]:
    """Return the terms of each text; a compound in a name is also its parts, if the other texts have both as words."""
    name, *others = [split_terms(text) for text in document]
    known = {term for terms in others for term in terms}
    for word in _COMPOUND.findall(document.name.lower()):
        for end in range(_SHORTEST_PART, len(word) - _SHORTEST_PART + 1):
            parts = [stem(word[:end]), stem(word[end:])]
            if known.issuperset(parts):
                name += parts
    return [name, *others]


def _weigh_fields(weights: Weights) -> list[tuple[float, float]]:
    """Return the weight of each field of a document, and how much a long text counts less."""
    parameters = [
        (weight, weights.parameters_length) for weight in (weights.parameters, weights.texts, weights.choices)
    ]
    # A title counts as a name that was written for people.
    return [*[(weights.name, weights.name_length)] * 2, (weights.description, weights.description_length), *parameters]
