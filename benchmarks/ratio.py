"""What pairs of measurements say: the ratio within them, and how far it spreads."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

Pair = tuple[float, float]
"""What one way and the other took, right after each other."""


def compared(pairs: Sequence[Pair]) -> dict[str, float]:
    """Return the median ratio of the first to the second, its spread, and the number of pairs.

    >>> compared([(2.0, 1.0), (4.0, 1.0), (6.0, 2.0)])
    {'ratio': 3.0, 'low': 2.0, 'high': 4.0, 'pairs': 3}
    """
    ratios = [one / other for one, other in pairs]
    low, high = spread(ratios)
    median = rounded(statistics.median(ratios))
    return {"ratio": median, "low": rounded(low), "high": rounded(high), "pairs": len(pairs)}


def spread(values: Sequence[float]) -> tuple[float, float]:
    """Return the values that the lowest and the highest tenth lie beyond."""
    ordered = sorted(values)
    tenth = len(ordered) // 10
    return ordered[tenth], ordered[-1 - tenth]


def rounded(number: float) -> float:
    """Return four digits of a number: the others are noise."""
    return round(number, 3 - math.floor(math.log10(abs(number)))) if number else 0.0
