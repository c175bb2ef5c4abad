"""Every capability with every other one: the same invariants hold in all combinations.

``make seams`` plays all cases, ``make test`` a few in which every value occurs; ``make seams CASE=…`` plays one, and
``make seams SEED=2`` other ones that cover as much.
"""

from __future__ import annotations

import os

import pytest

from seams.case import Case
from seams.covering import all_cases, few_cases
from seams.invariants import INVARIANTS
from seams.stage import Stage

CHOSEN, SEED = os.environ.get("SEAMS", ""), int(os.environ.get("SEAMS_SEED", "1"))


def choose_cases() -> tuple[Case, ...]:
    """Return the cases to play: all, a few, or one that is named."""
    if CHOSEN in ("", "all"):
        return all_cases(SEED) if CHOSEN else few_cases()
    return (Case.parse(CHOSEN),)


@pytest.mark.slow
@pytest.mark.parametrize("case", choose_cases(), ids=str)
def test_all_invariants_hold(case, tmp_path, request):
    postgres = request.getfixturevalue("postgres_url") if case.journal == "postgres" else ""
    with Stage(case, tmp_path / "case", postgres) as stage:
        seen = stage.play()
    problems = [problem for check in INVARIANTS if (problem := find_problem(check, seen))]
    assert not problems, "\n\n".join([f"make seams CASE={case}", *problems])


def find_problem(check, seen):
    """Return what does not hold, with the sentence that says what should; empty if all is well."""
    try:
        check(seen)
    except AssertionError as error:
        return f"{check.__name__.replace('_', ' ')}:\n{error}"
    return ""
