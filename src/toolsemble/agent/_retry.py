"""When and after what delay a failed model request is retried.

Not a generic retry library: the provider's word about the single error decides, and the delay is an event of the run.
"""

from __future__ import annotations

from dataclasses import dataclass

from toolsemble._runtime.checks import check_count, check_seconds
from toolsemble._vocabulary.errors import ModelError


@dataclass(frozen=True, slots=True)
class Retry:
    """The retries of a failed model request: how many attempts, and how long apart.

    For failed calls of tools, see :class:`~toolsemble.Retries`.

    >>> Retry(attempts=2, wait=0).pause(ModelError("Too many requests", retryable=True), 0)
    0.0
    >>> Retry(attempts=2).pause(ModelError("No such model"), 0) is None
    True
    """

    attempts: int = 4
    """The most requests, including the first: ``Retry(attempts=3)`` sends up to 3; 1, or 0, sends one."""
    wait: float = 0.5
    """The approximate seconds before the first retry; doubled before each further one."""
    longest: float = 60.0
    """The longest delay in seconds; if a provider asks for a longer one, there is no retry."""

    def __post_init__(self) -> None:
        check_count("Retry attempts (including the first)", self.attempts, least=0)
        check_seconds("Retry wait", self.wait, zero=True)
        check_seconds("Retry longest", self.longest, zero=True)

    def pause(self, error: Exception, tried: int) -> float | None:
        """Return the seconds to wait before the next retry; None if there is none."""
        if tried + 1 >= self.attempts or not _is_retryable(error):
            return None
        requested = error.retry_after if isinstance(error, ModelError) else None
        if requested is not None:
            return requested if requested <= self.longest else None
        import random

        # With jitter: requests that failed together would fail together again.
        spread = random.uniform(0.5, 1)  # noqa: S311 - not used for security
        return min(self.wait * 2.0**tried * spread, self.longest)


def _is_retryable(error: Exception) -> bool:
    """Whether the same request may succeed the next time."""
    return error.retryable if isinstance(error, ModelError) else isinstance(error, (ConnectionError, TimeoutError))
