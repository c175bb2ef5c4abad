"""What modules and tools print by themselves: it is not the answer, and must not get into it."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext, redirect_stdout
from typing import Any


def aside() -> AbstractContextManager[Any]:
    """Send what others print to standard error, unless a person looks at both.

    A screen that was made before goes on with the stream that it has.

    >>> with aside():
    ...     print("loaded")
    """
    # At a terminal it does no harm, and whoever asks the person there needs the stream as it is.
    return nullcontext() if sys.stdout.isatty() else redirect_stdout(sys.stderr)
