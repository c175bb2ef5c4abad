"""How much memory this process has."""

from __future__ import annotations

import resource
import sys
from pathlib import Path


def resident() -> int:
    """Give this process's resident bytes: what is allocated outside Python counts too."""
    statistics = Path("/proc/self/statm")
    if statistics.exists():
        return int(statistics.read_text(encoding="utf-8").split()[1]) * resource.getpagesize()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
