"""What comes out of pairs of measurements."""

import statistics
from collections.abc import Sequence

Pair = tuple[float, float]
"""Seconds, measured right after each other: the reference's, then the participant's own."""

FIGURES = {
    "import": 0.2,
    "define": 1,
    "call": 1,
    "repaired": 0.5,
    "refused": 0.5,
    "thousand": 0.05,
    "ten_thousand": 0.025,
    "look_up": 0.5,
    "pipeline": 0.5,
    "agent": 0.5,
    "async_200": 0.5,
    "async_2000": 0.2,
    "blocking_200": 0.2,
}
"""What is measured, and which share of the rounds: what takes long gets fewer."""
FRESH = {"thousand": 1_000, "ten_thousand": 10_000}
"""The figures of that many tools, each made in a process of its own because memory counts, too."""


def figure(pairs: Sequence[Pair]) -> dict[str, float]:
    """Give the participant's median duration, and the median ratio to the reference with its 10 to 90 % spread.

    >>> figure([(1.0, 2.0), (1.0, 4.0), (2.0, 6.0)])
    {'seconds': 4.0, 'ratio': 3.0, 'low': 2.0, 'high': 4.0}
    """
    ratios = sorted(own / reference for reference, own in pairs)
    tenth = len(ratios) // 10
    return {
        "seconds": statistics.median(own for _, own in pairs),
        "ratio": statistics.median(ratios),
        "low": ratios[tenth],
        "high": ratios[-1 - tenth],
    }
