"""Split texts of any script into search terms: normalized, folded, without stop words, English words stemmed."""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

LONGEST_TEXT = 20_000
"""The number of characters of a text that are read; the rest is ignored."""
_LONGEST_WORD = 40

# Marks such as vowel signs belong to words, so a word is what lies between white space and punctuation.
WORD = re.compile(
    r"[^\s\x00-\x2f\x3a-\x40\x5b-\x60\x7b-\xa9\xab-\xb1\xb4\xb6-\xb8\xbb\xbf\u02c2-\u02df\u055a-\u055f\u0589\u05be"
    r"\u05c0\u05c3\u060c\u061b\u061f\u066a-\u066d\u06d4\u0964\u0965\u0e2f\u0e5a\u0e5b\u1361-\u1368\u2000-\u206f"
    r"\u20a0-\u20cf\u2190-\u2bff\u2e00-\u2e7f\u3000-\u3004\u3008-\u3020\u3030\u303d\u30a0\u30fb\ufe10-\ufe6f"
    r"\U0001f000-\U0001faff]+"
)
"""A word in a text of any script."""
_PARTS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|(?<=[a-zA-Z])(?=[0-9])|(?<=[0-9])(?=[a-zA-Z])")
_DIACRITICS = re.compile("[\u0300-\u036f]+")
# Thai to Lao, Burmese, Khmer, Japanese, Chinese and Korean: words have no spaces between them, or grow endings.
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
"""Words that say nothing about what a tool does."""

_ENDINGS = (
    "ization", "ational", "ations", "ements", "ation", "ators", "ating", "ement", "ments", "ator", "ated", "ment",
    "ings", "edly", "ions", "ness", "able", "ible", "ical", "ing", "ate", "ers", "ors", "ion", "ity", "ive", "ed",
    "er", "or", "ly", "al",
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
    """Return the terms of one word: its parts if it is written in camel case, pairs of characters without spaces.

    >>> terms_of("getWeatherForecasts"), terms_of("the")
    (('weath', 'forecast'), ())
    """
    if not word.isascii():
        return _foreign_terms(word)
    parts = (part.lower()[:_LONGEST_WORD] for part in _PARTS.split(word))
    return tuple(stem(part) for part in parts if part not in STOP_WORDS)


def _foreign_terms(word: str) -> tuple[str, ...]:
    """Return the terms of a word with other than ASCII characters; accents are ignored, as people leave them out."""
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
    """Return an English word without its ending, so that its forms are equal; it need not be a word itself.

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
