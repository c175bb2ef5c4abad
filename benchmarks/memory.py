"""How much memory this process has, and how much of it something takes."""

from __future__ import annotations

import gc
import resource
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from timing import Clock

Made = TypeVar("Made")


def weighed(make: Callable[[int], Made], count: int, clock: Clock) -> tuple[Made, dict[str, float]]:
    """Make many of something, and give it with its seconds and bytes."""
    make(2)  # what is loaded or built on first use is no part of it
    gc.collect()
    before, started = resident(), clock()
    made = make(count)
    seconds = clock() - started
    gc.collect()
    return made, {"seconds": seconds, "bytes": max(1, resident() - before)}


def resident() -> int:
    """Return this process's resident bytes: what is allocated outside Python counts too."""
    statistics = Path("/proc/self/statm")
    if statistics.exists():
        return int(statistics.read_text(encoding="utf-8").split()[1]) * resource.getpagesize()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
