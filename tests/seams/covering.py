"""A covering array: few cases in which every pair of values occurs, and every triple of chosen fields."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import combinations, product
from random import Random

from seams.case import DIMENSIONS, TRIPLES, Case

Values = dict[str, str]
Target = frozenset[tuple[str, str]]
"""Values that are to occur together, by the names of their fields."""


@cache
def all_cases(seed: int = 1) -> tuple[Case, ...]:
    """Return the cases; a seed always gives the same cases in the same order.

    Each begins with the first combination that is missing, and takes the values that add the most others; of equally
    good ones the least used.
    """
    missing = dict.fromkeys(find_targets())  # a set that keeps its order
    chance = Random(seed)  # noqa: S311 - a test that can be repeated
    used = {(name, value): chance.random() for name, values in DIMENSIONS.items() for value in values}
    cases = []
    while missing:
        values = dict(next(iter(missing)))
        while len(values) < len(DIMENSIONS):
            name, value = max(_choices(values), key=lambda it: (_count_new(missing, values, it), -used[it]))
            values[name] = value
        for choice in values.items():
            used[choice] += 1
        for target in _targets_of(values):
            missing.pop(target, None)
        cases.append(Case(**values))
    return tuple(cases)


def few_cases() -> tuple[Case, ...]:
    """Return cases in which every value occurs once, if possible."""
    missing = {(name, value) for name, values in DIMENSIONS.items() for value in values}
    chosen = []
    while missing:
        best = max(all_cases(), key=lambda case: len(missing & _pairs_of(case)))
        missing -= _pairs_of(best)
        chosen.append(best)
    return tuple(chosen)


def find_targets() -> Iterator[Target]:
    """Yield every combination that a case can have."""
    for names in (*TRIPLES, *combinations(DIMENSIONS, 2)):
        for values in product(*[DIMENSIONS[name] for name in names]):
            target = dict(zip(names, values, strict=True))
            if is_possible(target):
                yield frozenset(target.items())


def is_possible(values: Values) -> bool:
    """Return whether some case has these values."""
    if not all(rule.holds(values) for rule in Case.rules):
        return False
    open_names = [name for rule in Case.rules for name in rule.names if name not in values]
    if not open_names:
        return True
    return any(is_possible({**values, open_names[0]: value}) for value in DIMENSIONS[open_names[0]])


def _choices(values: Values) -> Iterator[tuple[str, str]]:
    name = next(name for name in DIMENSIONS if name not in values)
    return ((name, value) for value in DIMENSIONS[name] if is_possible({**values, name: value}))


def _count_new(missing: dict[Target, None], values: Values, choice: tuple[str, str]) -> int:
    """Return how many missing combinations a further value adds."""
    name, value = choice
    grown = {**values, name: value}
    return sum(target in missing for target in _targets_of(grown) if choice in target)


def _targets_of(values: Values) -> Iterator[Target]:
    for names in (*TRIPLES, *combinations(values, 2)):
        if all(name in values for name in names):
            yield frozenset((name, values[name]) for name in names)


def _pairs_of(case: Case) -> set[tuple[str, str]]:
    return {(name, getattr(case, name)) for name in DIMENSIONS}
