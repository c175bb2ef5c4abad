"""Read a query: weigh its terms, add related ones, and tell the words of the task from the values in it.

In "the weather in Rome on May 3", the words say which tool is needed; "Rome" and "May 3" are values for it. Numbers,
quoted texts and names count less for the ranking, and nothing for the question whether a tool fits at all.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from toolsemble.catalog._terms import STOP_WORDS, WORD, split_terms, terms_of
from toolsemble.catalog._weights import WEIGHTS, Weights

LONGEST_QUERY = 4_000
"""The number of characters of a query that are read."""
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
_TITLED = 0.6  # the share of capitals from which on they do not mark names

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
# Verbs that stand before any task.
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
    """The terms that tools are ranked by."""
    task: dict[str, float] = field(default_factory=dict)
    """The terms that say what is to be done, without values and general verbs, each with how much it counts when a
    tool lacks it."""


def read_query(text: str, weights: Weights = WEIGHTS) -> Query:
    """Return the terms of a query; without terms if it has no words but stop words.

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
    """Yield the terms of each word with their weight, and how much they count as part of the task; 0 for values."""
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
    """Return whether a word in the middle of a sentence is written as a name; longer acronyms are not."""
    return word[0].isupper() and (word[1:].islower() or len(word) <= len("NY"))
