"""Warnings to the programmer, shown at the line of the program that caused them."""

from __future__ import annotations

import sys
import warnings

_PACKAGE = __name__.partition(".")[0]


def warn_user(message: str) -> None:
    """Warn at the line that called this library; Python shows the same warning of a line once.

    >>> with warnings.catch_warnings(record=True) as found:
    ...     warnings.simplefilter("always")
    ...     warn_user("the tool has no description")
    >>> str(found[0].message)
    'the tool has no description'
    """
    frame, level = sys._getframe(1), 2  # noqa: SLF001 - there is no public way to look at callers
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == _PACKAGE:
        frame, level = frame.f_back, level + 1
    warnings.warn(message, stacklevel=level)
