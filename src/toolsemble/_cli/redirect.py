"""Redirect the prints of modules and tools to standard error, so that standard output has only the answer."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext, redirect_stdout
from typing import Any


def redirect_prints() -> AbstractContextManager[Any]:
    """Return a context in which prints go to standard error, unless standard output is a terminal.

    A screen that was created before keeps its stream.

    >>> with redirect_prints():
    ...     print("loaded")
    """
    # At a terminal it does no harm, and a reviewer that asks there needs the original stream.
    return nullcontext() if sys.stdout.isatty() else redirect_stdout(sys.stderr)
