"""Memory limits for bodies in worker processes."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress

from toolsemble.errors import ToolExecutionError
from toolsemble.runtime.concurrency import Outcome

SUPPORTED = sys.platform != "win32"
"""Whether this system can limit the memory of a process."""


class WithinMemory:
    """A job for a worker process, with a limit for the memory of the process while it runs.

    >>> WithinMemory(lambda: ["done", None], 2**40)()
    ['done', None]
    """

    def __init__(self, job: Callable[[], Outcome], max_memory: int) -> None:
        self._job = job
        self._max_memory = max_memory

    def __call__(self) -> Outcome:
        """Run the job and return its outcome; a MemoryError becomes an error that names the limit."""
        import resource  # noqa: PLC0415 - not on every system

        soft, hard = resource.getrlimit(resource.RLIMIT_AS)
        limit = self._max_memory if hard == resource.RLIM_INFINITY else min(self._max_memory, hard)
        # Only the soft limit is changed: the process runs other jobs afterwards.
        resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
        try:
            outcome = self._job()
        finally:
            with suppress(ValueError, OSError):  # the body has lowered the hard limit
                resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
        if isinstance(outcome[1], MemoryError):
            message = f"The tool needs more memory than its max_memory of {self._max_memory} bytes"
            return [None, ToolExecutionError(message)]
        return outcome
