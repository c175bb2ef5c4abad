"""Groups of tools: by their server or source, else by a common prefix of their names."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from toolsemble._runtime.text import escape_line
from toolsemble.catalog._entry import Entry

OTHER = "other"
"""The group of tools that have nothing in common."""
_MOST_SHOWN = 20
_LONGEST_NAME = 40
_PREFIX = re.compile(r"([a-zA-Z0-9]+?)(?:[_-]|(?<=[a-z])(?=[A-Z]))")
# Prefixes that say what a tool does, and not where it belongs.
_VERB_LIST = """
add ask book buy calc calculate cancel change check close compute convert copy count create delete describe
download edit estimate execute export fetch find generate get import initialize insert is list load locate log
lookup make modify move open order perform play predict process publish query read remove render reserve reset
resolve restore retrieve run save scan schedule search send set show solve start stop submit sum track train
translate update upload validate view write
"""
_VERBS = frozenset(_VERB_LIST.split())


def group_tools(entries: Iterable[Entry]) -> dict[str, list[str]]:
    """Return the names of tools by group, in the order of the first tool of each; others come last.

    >>> from toolsemble._engine.definition.build import string_definition
    >>> names = ["crm_find", "crm_close", "now", "get_a", "get_b"]
    >>> group_tools([Entry(None, string_definition(name, "", str.upper)) for name in names])
    {'crm': ['crm_find', 'crm_close'], 'other': ['now', 'get_a', 'get_b']}
    """
    listed = list(entries)
    shared = Counter(_find_prefix(each.name) for each in listed if not each.group)
    groups: dict[str, list[str]] = {}
    others: list[str] = []
    for each in listed:
        prefix = _find_prefix(each.name)
        group = each.group or (prefix if prefix and shared[prefix] > 1 else "")
        (groups.setdefault(group, []) if group else others).append(each.name)
    if others:
        groups.setdefault(OTHER, []).extend(others)
    return groups


def name_groups(groups: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the names of the largest groups, as a model is shown them, without those of other tools.

    >>> name_groups({"files": ["a", "b"], "crm": ["c", "d", "e"], "other": ["f"]})
    ['crm', 'files']
    """
    largest = sorted((name for name in groups if name != OTHER), key=lambda name: -len(groups[name]))
    return [escape_line(name, _LONGEST_NAME) for name in largest[:_MOST_SHOWN]]


def _find_prefix(name: str) -> str:
    found = _PREFIX.match(name)
    prefix = found[1].lower() if found else ""
    return "" if prefix in _VERBS else prefix
