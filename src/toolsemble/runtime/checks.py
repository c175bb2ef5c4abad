"""Numbers that a program sets, and must not set wrongly."""

from __future__ import annotations

import math

from toolsemble.errors import ToolDefinitionError

_WHOLE = 100  # from so many seconds on, fractions of one tell nobody anything


def is_seconds(value: object, *, zero: bool = False) -> bool:
    """Whether a value is a number of seconds, above 0 or from 0 on.

    >>> is_seconds(0.5), is_seconds(True), is_seconds(0, zero=True)
    (True, False, True)
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return 0 < value < math.inf or (zero and value == 0)


def check_seconds(what: str, value: object, *, zero: bool = False) -> None:
    """Refuse what is no number of seconds.

    >>> check_seconds("RateLimit per", "1")
    Traceback (most recent call last):
    ...
    toolsemble.errors.ToolDefinitionError: RateLimit per must be a number of seconds above 0, not '1'
    """
    if not is_seconds(value, zero=zero):
        least = "from 0 on" if zero else "above 0"
        raise ToolDefinitionError(f"{what} must be a number of seconds {least}, not {value!r:.80}")


def check_count(what: str, value: object, *, least: int, other: str = "") -> None:
    """Refuse what is no whole number, or one that is too small.

    >>> check_count("Toolbox max_concurrency", 0, least=1)
    Traceback (most recent call last):
    ...
    toolsemble.errors.ToolDefinitionError: Toolbox max_concurrency must be a whole number from 1 on, not 0
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ToolDefinitionError(f"{what} must be a whole number from {least} on{other}, not {value!r:.80}")


def format_seconds(seconds: float) -> str:
    """Give a number of seconds as people read it: three digits, and whole seconds where there are more.

    >>> format_seconds(0.01234), format_seconds(3599.6)
    ('0.0123 s', '3600 s')
    """
    return f"{seconds:.3g} s" if seconds < _WHOLE else f"{seconds:.0f} s"
