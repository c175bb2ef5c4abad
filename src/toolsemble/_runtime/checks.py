"""Checks of settings, and warnings attributed to the caller's line."""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Iterable, Mapping

from toolsemble._vocabulary.errors import ToolDefinitionError

_LONGEST_NAME = 64
_NEAR = 0.65  # retry is near to retries, return_direct is not
_WHOLE = 100  # from this many seconds on, fractions are not shown


def is_seconds(value: object, *, zero: bool = False) -> bool:
    """Return whether a value is a finite number of seconds > 0, or >= 0 with ``zero``.

    >>> is_seconds(0.5), is_seconds(True), is_seconds(0, zero=True)
    (True, False, True)
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return 0 < value < math.inf or (zero and value == 0)


def check_seconds(what: str, value: object, *, zero: bool = False) -> None:
    """Raise if a value is not a number of seconds.

    >>> check_seconds("RateLimit per", "1")
    Traceback (most recent call last):
    ...
    toolsemble.ToolDefinitionError: RateLimit per must be a number of seconds > 0, not '1'
    """
    if not is_seconds(value, zero=zero):
        least = ">= 0" if zero else "> 0"
        raise ToolDefinitionError(f"{what} must be a number of seconds {least}, not {value!r:.80}")


def check_amount(what: str, value: object) -> None:
    """Raise if a value is not a finite number >= 0.

    >>> check_amount("Tool 'train': gpus", "one")
    Traceback (most recent call last):
    ...
    toolsemble.ToolDefinitionError: Tool 'train': gpus must be a number >= 0, not 'one'
    """
    if not is_seconds(value, zero=True):
        raise ToolDefinitionError(f"{what} must be a number >= 0, not {value!r:.80}")


def check_count(what: str, value: object, *, least: int, other: str = "") -> None:
    """Raise if a value is not an int, or less than the minimum.

    >>> check_count("Toolbox max_concurrency", 0, least=1)
    Traceback (most recent call last):
    ...
    toolsemble.ToolDefinitionError: Toolbox max_concurrency must be an int >= 1, not 0
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ToolDefinitionError(f"{what} must be an int >= {least}{other}, not {value!r:.80}")


def check_setting(owner: str, name: str, known: Iterable[str], renamed: Mapping[str, str] | None = None) -> None:
    """Raise TypeError if a setting is unknown: with the closest name, or with all names if none is close.

    :param renamed: deprecated names among the known ones, mapped to the new names, which the message shows

    >>> check_setting("A tool", "require_approval", ["effects", "requires_approval"])
    Traceback (most recent call last):
    ...
    TypeError: A tool has no setting 'require_approval'; did you mean requires_approval?
    """
    names = sorted(known)
    if name in names:
        return
    from difflib import get_close_matches

    near = get_close_matches(name[:_LONGEST_NAME], names, n=1, cutoff=_NEAR)
    new = renamed or {}
    current = [each for each in names if each not in new]
    advice = f"did you mean {new.get(near[0], near[0])}?" if near else f"it takes {', '.join(current)}"
    raise TypeError(f"{owner} has no setting {name!r:.80}; {advice}")


def format_seconds(seconds: float) -> str:
    """Return seconds as text with three significant digits, without a fraction from 100 seconds up.

    >>> format_seconds(0.01234), format_seconds(3599.6)
    ('0.0123 s', '3600 s')
    """
    return f"{seconds:.3g} s" if seconds < _WHOLE else f"{seconds:.0f} s"


_PACKAGE = __name__.partition(".")[0]


def warn_deprecated(old: str, new: str, *, removed_in: str) -> None:
    """Warn with a :class:`DeprecationWarning` that a public name will be removed, and name its replacement.

    :param removed_in: the version that removes it, at least two minor versions after the first warning

    >>> with warnings.catch_warnings(record=True) as found:
    ...     warnings.simplefilter("always")
    ...     warn_deprecated("Toolbox.run", "Toolbox.execute", removed_in="9.0")
    >>> str(found[0].message)
    'Toolbox.run is deprecated and will be removed in toolsemble 9.0; use Toolbox.execute'
    """
    message = f"{old} is deprecated and will be removed in {_PACKAGE} {removed_in}; use {new}"
    warn_user(message, DeprecationWarning)


def warn_user(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the line that called this library; Python shows the same warning once per line."""
    frame, level = sys._getframe(1), 2  # noqa: SLF001 - there is no public way to inspect callers
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == _PACKAGE:
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)
