"""Names that two libraries accept: mapped where the rules differ, and never twice the same."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from toolsemble._vocabulary.specification import LONGEST_NAME, is_name

_NOT_ADMITTED = re.compile(r"[^a-zA-Z0-9_-]+")


def map_names(names: Iterable[str], fit: Callable[[str], str]) -> dict[str, str]:
    """Return for each name one that fits; names that would become equal get a number.

    >>> map_names(["get-tea", "get_tea"], lambda name: name.replace("-", "_"))
    {'get-tea': 'get_tea_2', 'get_tea': 'get_tea'}
    """
    listed = list(names)
    mapped = {name: name for name in listed if fit(name) == name}
    taken = set(mapped)
    for name in listed:
        if name not in mapped:
            mapped[name] = _add_number(fit(name), taken)
            taken.add(mapped[name])
    return {name: mapped[name] for name in listed}


def _add_number(name: str, taken: set[str]) -> str:
    number, found = 2, name
    while found in taken:
        found = f"{name[: LONGEST_NAME - 4]}_{number}"
        number += 1
    return found


def fit_name(name: str) -> str:
    """Return a name that a toolbox accepts.

    >>> fit_name("Search the web!"), fit_name("_search"), fit_name("")
    ('Search_the_web', '_search', 'tool')
    """
    if is_name(name):
        return name
    return _NOT_ADMITTED.sub("_", name).strip("_")[:LONGEST_NAME] or "tool"
