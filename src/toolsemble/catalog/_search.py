"""The search of a catalog: an index of terms, with weights, and queries against it.

In "the weather in Rome on May 3", the words say which tool is needed; "Rome" and "May 3" are its values. Numbers,
quoted texts and names weigh less in the ranking, and nothing in the decision whether a tool fits at all.
"""

from __future__ import annotations

import math
import re
import unicodedata
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from heapq import nlargest
from typing import Any, NamedTuple

LONGEST_TEXT = 20_000
"""The maximum number of indexed characters of a text."""
_LONGEST_WORD = 40

# Marks such as vowel signs belong to words, so a word is delimited by white space and punctuation.
WORD = re.compile(
    r"[^\s\x00-\x2f\x3a-\x40\x5b-\x60\x7b-\xa9\xab-\xb1\xb4\xb6-\xb8\xbb\xbf\u02c2-\u02df\u055a-\u055f\u0589\u05be"
    r"\u05c0\u05c3\u060c\u061b\u061f\u066a-\u066d\u06d4\u0964\u0965\u0e2f\u0e5a\u0e5b\u1361-\u1368\u2000-\u206f"
    r"\u20a0-\u20cf\u2190-\u2bff\u2e00-\u2e7f\u3000-\u3004\u3008-\u3020\u3030\u303d\u30a0\u30fb\ufe10-\ufe6f"
    r"\U0001f000-\U0001faff]+"
)
"""A word in a text of any script."""
_PARTS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|(?<=[a-zA-Z])(?=[0-9])|(?<=[0-9])(?=[a-zA-Z])")
_DIACRITICS = re.compile("[\u0300-\u036f]+")
# Thai to Lao, Burmese, Khmer, Japanese, Chinese and Korean: no spaces between words, or many suffixes.
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff]+"
)

_STOP_LIST = """
a an the and or but if then else of to in on at by for with from into onto as is are was were be been being am do
does did doing done i me my mine we us our you your he she it its they them their his her this that these those
there here can could would will shall should may might must not no yes please want wants like need needs help let
lets so than too very just also some any all each every both other such same own few more most up down out off over
under again about between during before after above below have has had having get got give tell s t re ve ll d m
what which who whom whose when where why how using use used given specified specific based provided provide
provides particular
"""
STOP_WORDS = frozenset(_STOP_LIST.split())
"""Stop words, which do not describe what a tool does."""

# In the singular, the longest ones first: plurals are cut before.
_ENDINGS = (
    "ization", "ational", "ation", "ating", "ement", "ator", "ated", "ment", "edly", "ness", "able", "ible", "ical",
    "ing", "ate", "ion", "ity", "ive", "ed", "er", "or", "ly", "al",
)  # fmt: skip
_SHORTEST_STEM = 3
_IRREGULAR = {
    "bought": "buy", "children": "child", "conversion": "convert", "conversions": "convert", "found": "find",
    "paid": "pay", "people": "person", "percentage": "percent", "percentages": "percent", "sent": "send",
    "sold": "sell", "spent": "spend", "written": "write",
}  # fmt: skip
_VOWELS = frozenset("aeiouy")


def split_terms(text: str) -> list[str]:
    """Return the terms of a text, in order and with repetitions.

    >>> split_terms("Creates calendarEvents for the café (24h)"), split_terms("天气预报")
    (['cre', 'calendar', 'event', 'cafe', '24', 'h'], ['天气', '气预', '预报'])
    """
    return [term for word in WORD.findall(text[:LONGEST_TEXT]) for term in terms_of(word)]


@lru_cache(maxsize=50_000)
def terms_of(word: str) -> tuple[str, ...]:
    """Return the terms of one word: its camel case parts, or character bigrams in scripts without spaces.

    >>> terms_of("getWeatherForecasts"), terms_of("the")
    (('weath', 'forecast'), ())
    """
    if not word.isascii():
        return _foreign_terms(word)
    parts = (part.lower()[:_LONGEST_WORD] for part in _PARTS.split(word))
    return tuple(stem(part) for part in parts if part not in STOP_WORDS)


def _foreign_terms(word: str) -> tuple[str, ...]:
    """Return the terms of a non-ASCII word, ignoring accents, which users often omit."""
    plain = _DIACRITICS.sub("", unicodedata.normalize("NFKD", word))
    folded = unicodedata.normalize("NFKC", plain).casefold()
    if folded.isascii():
        return tuple(term for part in WORD.findall(folded) for term in terms_of(part))
    terms: list[str] = []
    for run in _UNSPACED.findall(folded):
        terms += [run[at : at + 2] for at in range(max(1, min(len(run), _LONGEST_WORD) - 1))]
    terms += [part[:_LONGEST_WORD] for part in WORD.findall(_UNSPACED.sub(" ", folded))]
    return tuple(terms)


@lru_cache(maxsize=50_000)
def stem(word: str) -> str:
    """Return the stem of an English word, so that its forms are equal; it need not be a word itself.

    >>> stem("calculates") == stem("calculating") == stem("calculation") == stem("calculator")
    True
    >>> stem("cities") == stem("city"), stem("bus"), stem("403")
    (True, 'bus', '403')
    """
    if len(word) <= _SHORTEST_STEM or not word.isalpha():
        return word
    cut = _cut_ending(_cut_plural(_IRREGULAR.get(word, word)))
    if len(cut) > _SHORTEST_STEM + 1 and cut[-1] == cut[-2] and cut[-1] not in "lsz":
        cut = cut[:-1]  # planned, plan
    if len(cut) > _SHORTEST_STEM + 1 and cut.endswith("e"):
        cut = cut[:-1]
    return f"{cut[:-1]}i" if len(cut) > _SHORTEST_STEM and cut.endswith("y") else cut


def _cut_plural(word: str) -> str:
    if word.endswith("ies") and len(word) > _SHORTEST_STEM + 1:
        return f"{word[:-3]}y"
    if word.endswith(("sses", "xes", "ches", "shes", "zes")):
        return word[:-2]
    return word[:-1] if word.endswith("s") and not word.endswith(("ss", "us", "is")) else word


def _cut_ending(word: str) -> str:
    for ending in _ENDINGS:
        if word.endswith(ending):
            rest = word[: -len(ending)]
            if len(rest) >= _SHORTEST_STEM and not _VOWELS.isdisjoint(rest):
                return rest
    return word


@dataclass(frozen=True, slots=True)
class Weights:
    """The numbers of the ranking and of the floor; `evals/catalog_weights.py` chooses them.

    >>> Weights().name > Weights().description > Weights().parameters
    True
    """

    name: float = 4.8
    """A term in the name of a tool, or in its title."""
    description: float = 1.7
    """A term in its description."""
    parameters: float = 0.7
    """A term in the name of a parameter."""
    texts: float = 0.6
    """A term in the description of a parameter."""
    choices: float = 1.0
    """A term in a value that a parameter may have."""
    name_length: float = 0.5
    """The length normalization of names, from 0 to 1."""
    description_length: float = 0.9
    """The same for descriptions."""
    parameters_length: float = 0.3
    """The same for names, descriptions and values of parameters."""
    longest: float = 2.0
    """The cap of the length normalization, in average lengths, so that long descriptions are not penalized."""
    saturation: float = 2.4
    """The saturation of repeated terms."""
    rarity: float = 0.6
    """The power of the inverse document frequency."""
    number: float = 0.2
    """A number in a query."""
    quoted: float = 1.0
    """A word in quotation marks."""
    date: float = 0.6
    """The terms of dates, if a query contains a date."""
    place: float = 0.6
    """The terms of places, if a query contains a place name."""
    asked: float = 0.5
    """The terms implied by a question word, such as "distance" for "how far"."""
    synonym: float = 0.11
    """A synonym of a word, for the ranking."""
    related: float = 0.25
    """A task word matched only by a synonym, for the floor."""
    caseless: float = 0.2
    """A task word in a script without capitals, where names look like words, and bigrams overlap."""
    short: float = 1.5
    """The bonus for a task of one or two words, of which one may be missing."""
    floor: float = 2.0
    """The floor: the minimum fitness of a found tool; `evals/catalog.py` shows recall and false offers for others."""


WEIGHTS = Weights()
"""The weights of every catalog."""


LONGEST_QUERY = 4_000
"""The maximum number of characters of a query."""
_MOST_TERMS = 64

_QUOTES = re.compile(r"\"[^\"\n]{1,200}\"|(?<!\w)'[^'\n]{1,100}'(?!\w)|“[^”\n]{1,200}”|«[^»\n]{1,200}»")
_ENDS_SENTENCE = re.compile("[.?!:;\n\u3002\uff1f\uff01]")
_DATE_WORDS = """
january february march april june july august september october november december monday tuesday wednesday thursday
friday saturday sunday today tomorrow tonight yesterday jan feb mar apr jun jul aug sep oct nov dec mon tue wed thu
fri sat sun
"""
_DATES = frozenset(_DATE_WORDS.split())
_DAY_OR_YEAR = re.compile(r"\d{4}|\d+(st|nd|rd|th)")
_BEFORE_PLACES = frozenset(("in", "at", "near", "to", "from", "around"))
_TITLED = 0.6  # the share of capitals above which they do not mark names

_QUESTIONS = {
    "how much": "price cost amount",
    "how many": "number count",
    "how far": "distance",
    "how long": "duration time",
    "how old": "age",
    "how fast": "speed",
    "how tall": "height",
    "how big": "size",
    "how hot": "temperature",
    "how cold": "temperature",
    "where": "location place",
    "when": "date time",
    "who": "person name",
}
# Verbs that can start any task.
_GENERAL = frozenset(
    split_terms(
        "retrieve fetch find show list lookup display search obtain check view see know look looking make information "
        "details"
    )
)
_ASKS = re.compile(rf"\b({'|'.join(_QUESTIONS)})\b")
_ASKED_FOR = {question: tuple(split_terms(words)) for question, words in _QUESTIONS.items()}
_DATE_TERMS, _PLACE_TERMS = split_terms("date time"), split_terms("location city")

_SYNONYMS = (
    "retrieve fetch find show list lookup display search obtain check view see",
    "create make add new generate build set register",
    "delete remove cancel drop erase",
    "update change edit modify alter adjust replace",
    "calculate compute determine evaluate solve estimate",
    "buy purchase order",
    "book reserve schedule",
    "play listen watch stream",
    "send mail message",
    "begin start launch open run execute",
    "stop end close kill terminate finish",
    "convert exchange translate transform",
    "taxi cab ride",
    "movie film",
    "weather rain forecast sunny temperature snow",
    "car vehicle automobile",
    "picture image photo",
    "song music track",
    "house home property",
    "city town",
    "job work career",
    "doctor physician",
    "money cash fund",
    "price cost fee",
    "compare difference versus",
    "error bug fault",
    "issue ticket case",
    "largest biggest highest top",
    "flight plane airline",
    "hotel accommodation stay room",
    "food meal dish recipe",
    "web internet online",
    "average mean",
)


def _relate() -> dict[str, frozenset[str]]:
    related: dict[str, set[str]] = {}
    for group in _SYNONYMS:
        terms = set(split_terms(group))
        for term in terms:
            related.setdefault(term, set()).update(terms - {term})
    return {term: frozenset(others) for term, others in related.items()}


RELATED = _relate()
"""The synonyms of terms."""


@dataclass(frozen=True, slots=True)
class Query:
    """The terms of a query with their weights."""

    weights: dict[str, float] = field(default_factory=dict)
    """The ranking terms."""
    task: dict[str, float] = field(default_factory=dict)
    """The task terms, without values and general verbs, each with its penalty if a tool lacks it."""


def read_query(text: str, weights: Weights = WEIGHTS) -> Query:
    """Return a query's terms; empty if it has only stop words.

    >>> read_query("What is the weather in Rome?").task, read_query("the, of").weights
    ({'weath': 1.0}, {})
    """
    cut = text[:LONGEST_QUERY]
    ranked: dict[str, float] = {}
    task: dict[str, float] = {}
    for terms, weight, share in _weigh_words(cut, weights):
        _add(ranked, terms, weight)
        _add(task, terms, share)
        if len(ranked) >= _MOST_TERMS:
            break
    own = list(ranked)
    for question in _ASKS.findall(cut.casefold()) if own else ():
        _add(ranked, _ASKED_FOR[question], weights.asked)
    for term in own:
        _add(ranked, RELATED.get(term, ()), weights.synonym * ranked[term])
    words = task or dict.fromkeys(own, 1.0)
    return Query(ranked, {term: share for term, share in words.items() if term not in _GENERAL} or words)


def _add(weights: dict[str, float], terms: Iterable[str], weight: float) -> None:
    for term in terms:
        if weight > weights.get(term, 0.0):
            weights[term] = weight


def _weigh_words(text: str, weights: Weights) -> Iterator[tuple[Sequence[str], float, float]]:
    """Yield each word's terms with their weight, and their weight in the task; 0 for values."""
    words = list(WORD.finditer(text))
    quoted = [each.span() for each in _QUOTES.finditer(text)]
    names_stand_out = sum(each[0][0].isupper() for each in words) <= _TITLED * len(words)
    end, before = 0, ""
    for each in words:
        word, folded = each[0], each[0].casefold()
        starts = not before or _ENDS_SENTENCE.search(text, end, each.start()) is not None
        is_name = names_stand_out and not starts and _is_name(word)
        is_number = any(character.isdigit() for character in word)
        if is_name and before in _BEFORE_PLACES:
            yield _PLACE_TERMS, weights.place, 0.0
        if folded in _DATES or _DAY_OR_YEAR.fullmatch(folded):
            yield _DATE_TERMS, weights.date, 0.0
            yield terms_of(word), weights.number, 0.0
        elif is_number:
            yield terms_of(word), weights.number, 0.0
        elif any(start <= each.start() < stop for start, stop in quoted):
            yield terms_of(word), weights.quoted, 0.0
        elif folded not in STOP_WORDS:
            yield terms_of(word), 1.0, 0.0 if is_name else weights.caseless if folded == word.upper() else 1.0
        end, before = each.end(), folded


def _is_name(word: str) -> bool:
    """Return whether a word within a sentence is capitalized like a name; longer acronyms are not names."""
    return word[0].isupper() and (word[1:].islower() or len(word) <= len("NY"))


_MOST_NODES = 500  # maximum texts read from one tool's schema


_LEAST_TOOLS = 200  # minimum catalog size for word frequencies: in a small catalog all words are rare or common
_SHORTEST_PART = 4  # characters of a part of a compound such as "datetime"
_COMPOUND = re.compile(rf"[a-z]{{{2 * _SHORTEST_PART},40}}")
_SHORT = 2  # task length up to which one word may be missing


class Document(NamedTuple):
    """The texts of a tool, by field."""

    name: str
    title: str
    description: str
    parameters: str
    texts: str
    choices: str


def describe_tool(name: str, title: str, description: str, schema: Mapping[str, Any]) -> Document:
    """Return a tool's searchable texts.

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
    """Their numbers, best first; ties keep their order."""
    fitness: float
    """The fitness of the best one: its score, reduced for each missing task word; infinite if none is missing."""


class Index:
    """The search index of tools.

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
        """Return the numbers of the best matching tools, best first; none if the best one does not fit."""
        ranking = self.rank(text, limit)
        return ranking.numbers if ranking.fitness >= self._weights.floor else []

    def rank(self, text: str, limit: int) -> Ranking:
        """Return the tools that share words with a query, relevant or not.

        >>> Index([]).rank("bake a cake", 5)
        Ranking(numbers=[], fitness=0.0)
        """
        query = read_query(text, self._weights)
        scores = self._score(query)
        best = [each for each in nlargest(limit, range(self._size), key=scores.__getitem__) if scores[each]]
        return Ranking(best, self._measure(query, best[0], scores[best[0]]) if best else 0.0)

    def _measure(self, query: Query, number: int, score: float) -> float:
        """Return a tool's fitness for a query."""
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
    """Return each text's terms; a compound in a name is also split, if the other texts contain both parts as words."""
    name, *others = [split_terms(text) for text in document]
    known = {term for terms in others for term in terms}
    for word in _COMPOUND.findall(document.name.lower()):
        for end in range(_SHORTEST_PART, len(word) - _SHORTEST_PART + 1):
            parts = [stem(word[:end]), stem(word[end:])]
            if known.issuperset(parts):
                name += parts
    return [name, *others]


def _weigh_fields(weights: Weights) -> list[tuple[float, float]]:
    """Return the weight of each field of a document, with length normalization."""
    parameters = [
        (weight, weights.parameters_length) for weight in (weights.parameters, weights.texts, weights.choices)
    ]
    # A title counts as a name.
    return [*[(weights.name, weights.name_length)] * 2, (weights.description, weights.description_length), *parameters]
