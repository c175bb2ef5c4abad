"""The covering array has what it promises."""

from itertools import combinations, product

import pytest

from seams.case import DIMENSIONS, TRIPLES, Case
from seams.covering import all_cases, few_cases, is_possible

FIRST = "run-none-none-approve-none-sync-once-text-none-none-steady-none-none"


def values_of(case, names):
    return tuple(getattr(case, name) for name in names)


@pytest.mark.parametrize("names", [*combinations(DIMENSIONS, 2), *TRIPLES], ids="-".join)
def test_all_combinations_that_make_sense_occur(names):
    possible = {
        values
        for values in product(*[DIMENSIONS[name] for name in names])
        if is_possible(dict(zip(names, values, strict=True)))
    }
    assert {values_of(case, names) for case in all_cases()} == possible


def test_every_value_occurs_in_a_case():
    for cases in (all_cases(), few_cases()):
        assert {name: {getattr(case, name) for case in cases} for name in DIMENSIONS} == {
            name: set(values) for name, values in DIMENSIONS.items()
        }


def test_the_cases_are_few():
    assert len(few_cases()) <= 12
    assert len(set(all_cases())) == len(all_cases()) <= 300


def test_every_case_can_be_named():
    assert [Case.parse(str(case)) for case in all_cases()] == list(all_cases())
    assert Case.parse(FIRST) == Case()


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        (FIRST.replace("sync", "slow"), "tool: expected one of sync, async, .*, got 'slow'"),
        (FIRST.replace("run-none", "server-none"), "makes no sense: a worker does the runs of a journal"),
        ("run", "shorter"),
    ],
)
def test_a_case_that_cannot_be_played_is_refused(name, problem):
    with pytest.raises(ValueError, match=problem):
        Case.parse(name)
