"""What is measured, how often, and what comes out of it."""

import statistics
from collections.abc import Sequence

from ratio import Pair, compared, rounded

FIGURES = {
    "import": 0.1,
    "define": 1,
    "call": 1,
    "number_as_text": 0.5,
    "broken_json": 0.5,
    "refused": 0.5,
    "thousand": 0.1,
    "look_up": 0.5,
    "pipeline": 0.5,
    "agent": 0.5,
    "async_200": 0.5,
    "async_2000": 0.2,
    "blocking_200": 0.2,
    "ten_thousand": 0,
}
"""What is measured, and which share of the rounds: what takes long gets fewer, and comes last."""
FRESH = {"thousand": 1_000, "ten_thousand": 10_000}
"""The figures of that many tools, each made in its own process because memory counts, too."""
ONCE = {"ten_thousand"}
"""What takes so long that there is just one pair of it."""
LEAST = 5
"""Pairs of everything else, where that many rounds are asked for."""


def number(what: str, rounds: int) -> int:
    """Return how many pairs of a figure there are in that many rounds.

    >>> [number(what, 40) for what in ("call", "import", "ten_thousand")]
    [40, 5, 1]
    """
    return 1 if what in ONCE else max(min(LEAST, rounds), round(rounds * FIGURES[what]))


def figure(pairs: Sequence[Pair]) -> dict[str, float]:
    """Return the participant's median duration, and what its pairs with the reference say.

    >>> figure([(2.0, 1.0), (4.0, 1.0), (6.0, 2.0)])
    {'seconds': 4.0, 'ratio': 3.0, 'low': 2.0, 'high': 4.0, 'pairs': 3}
    """
    return {"seconds": rounded(statistics.median(own for own, _ in pairs)), **compared(pairs)}
