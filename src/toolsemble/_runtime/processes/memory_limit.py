"""Memory limits for bodies in worker processes."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress

from toolsemble._runtime.event_loops import Outcome
from toolsemble._vocabulary.errors import ToolExecutionError

SUPPORTED = sys.platform != "win32"
"""Whether this system can limit the memory of a process."""


def run_within_memory(job: Callable[[], Outcome], max_memory: int) -> Outcome:
    """Run a worker process's job within a memory limit for the process; return its outcome.

    A MemoryError becomes an error that names the limit.

    >>> run_within_memory(lambda: ["done", None], 2**40)
    ['done', None]
    """
    import resource  # not on every system

    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    limit = max_memory if hard == resource.RLIM_INFINITY else min(max_memory, hard)
    # Only the soft limit is changed: the process runs other jobs afterwards.
    resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
    try:
        outcome = job()
    finally:
        with suppress(ValueError, OSError):  # the body has lowered the hard limit
            resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
    if isinstance(outcome[1], MemoryError):
        return [None, ToolExecutionError(f"The tool needs more memory than its max_memory of {max_memory} bytes")]
    return outcome
