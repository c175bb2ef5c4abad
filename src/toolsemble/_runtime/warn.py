"""Warnings to the programmer, shown at the line of the program that caused them."""

from __future__ import annotations

import sys
import warnings

_PACKAGE = __name__.partition(".")[0]


def warn_deprecated(old: str, new: str, *, removed_in: str) -> None:
    """Warn with a :class:`DeprecationWarning` that a public name goes away, and name what to write instead.

    :param removed_in: the version that will not have it any more, at least two minor versions after the first warning

    >>> with warnings.catch_warnings(record=True) as found:
    ...     warnings.simplefilter("always")
    ...     warn_deprecated("Toolbox.run", "Toolbox.execute", removed_in="9.0")
    >>> str(found[0].message)
    'Toolbox.run is deprecated and will be removed in toolsemble 9.0; use Toolbox.execute'
    """
    message = f"{old} is deprecated and will be removed in {_PACKAGE} {removed_in}; use {new}"
    warn_user(message, DeprecationWarning)


def warn_user(message: str, category: type[Warning] = UserWarning) -> None:
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
    warnings.warn(message, category, stacklevel=level)
