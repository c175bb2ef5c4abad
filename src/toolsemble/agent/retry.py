"""When a model that failed is asked again, and after how long.

A loop of our own: what decides is the provider's word about this one error, and the wait is an event of the run.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from toolsemble.errors import ModelError
from toolsemble.runtime.checks import check_count, check_seconds


@dataclass(frozen=True, slots=True)
class Retry:
    """How often, and after how long.

    >>> Retry(attempts=1, wait=0).pause(ModelError("Too many requests", retryable=True), 0)
    0.0
    >>> Retry(attempts=1).pause(ModelError("No such model"), 0) is None
    True
    """

    attempts: int = 3
    """How many times the model is asked again."""
    wait: float = 0.5
    """About how many seconds pass before the first time; twice as many before each further one."""
    longest: float = 60.0
    """The longest that is waited; a provider that asks for more is not asked again."""

    def __post_init__(self) -> None:
        check_count("Retry attempts", self.attempts, least=0)
        check_seconds("Retry wait", self.wait, zero=True)
        check_seconds("Retry longest", self.longest, zero=True)

    def pause(self, error: Exception, tried: int) -> float | None:
        """Give how long to wait before the model is asked again; None for not at all."""
        if tried >= self.attempts or not _worth(error):
            return None
        asked = error.retry_after if isinstance(error, ModelError) else None
        if asked is not None:
            return asked if asked <= self.longest else None
        # Not all at once: those who failed together would fail together again.
        spread = random.uniform(0.5, 1)  # noqa: S311 - nobody gains by guessing it
        return min(self.wait * 2.0**tried * spread, self.longest)


def _worth(error: Exception) -> bool:
    """Whether the same request may be answered the next time."""
    return error.retryable if isinstance(error, ModelError) else isinstance(error, (ConnectionError, TimeoutError))
