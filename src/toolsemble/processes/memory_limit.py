"""A limit for the memory of a body that runs in a process of its own."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress

from toolsemble.errors import ToolExecutionError
from toolsemble.runtime.concurrency import Outcome

SUPPORTED = sys.platform != "win32"
"""Whether this system can limit what a process uses."""


class WithinMemory:
    """A job for a worker process, with a limit for the bytes of memory that the process may have meanwhile.

    >>> WithinMemory(lambda: ["done", None], 2**40)()
    ['done', None]
    """

    def __init__(self, job: Callable[[], Outcome], max_memory: int) -> None:
        self._job = job
        self._max_memory = max_memory

    def __call__(self) -> Outcome:
        """Run the job; return its outcome, in which a lack of memory is an error that names the limit."""
        import resource  # noqa: PLC0415 - not on every system

        soft, hard = resource.getrlimit(resource.RLIMIT_AS)
        most = self._max_memory if hard == resource.RLIM_INFINITY else min(self._max_memory, hard)
        # The hard limit stays as it is: the process serves other tools afterwards.
        resource.setrlimit(resource.RLIMIT_AS, (most, hard))
        try:
            outcome = self._job()
        finally:
            with suppress(ValueError, OSError):  # the body has lowered it for good
                resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
        if isinstance(outcome[1], MemoryError):
            told = f"The tool needs more memory than its max_memory of {self._max_memory} bytes"
            return [None, ToolExecutionError(told)]
        return outcome
