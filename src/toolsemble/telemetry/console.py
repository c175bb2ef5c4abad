"""Events on the console, for people who want to watch."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any, TextIO

from toolsemble.runtime.checks import format_seconds
from toolsemble.runtime.text import preview


class ConsoleSink:
    """Writes a line for each event, to standard error or elsewhere.

    >>> import sys
    >>> from toolsemble.events import CallProgress
    >>> sink = ConsoleSink(sys.stdout, times=False)
    >>> sink.emit(CallProgress("scrape", "call_1", 0.4, "page 4 of 10"))
    scrape call_1: 40 % page 4 of 10
    """

    def __init__(self, stream: TextIO | None = None, *, limit: int = 100, times: bool = True) -> None:
        """Take down where to write.

        :param stream: where; by default whatever is standard error at the time
        :param limit: how many characters of arguments and results are shown
        :param times: whether each line begins with the time of day
        """
        self._stream = stream
        self._limit = limit
        self._times = times

    def emit(self, event: Any) -> None:
        """Write one line."""
        say = _SAID.get(event.kind)
        said = event.kind if say is None else say(event)
        clock = f"{time.strftime('%H:%M:%S', time.localtime(event.at))} " if self._times else ""
        line = f"{clock}{event.tool_name} {preview(event.call_id)}: {preview(said, self._limit)}\n"
        (self._stream or sys.stderr).write(line)


def _progress(event: Any) -> str:
    share = "" if event.fraction is None else f"{event.fraction:.0%}".replace("%", " %")
    return f"{share} {event.message}".strip()


_SAID: dict[str, Callable[[Any], str]] = {
    "call_started": lambda event: f"called with {event.arguments}",
    "call_repaired": lambda event: f"repaired {', '.join(str(each['path']) for each in event.repairs)}",
    "call_retried": lambda event: f"again in {format_seconds(event.wait)}, for {event.error}",
    "call_progress": _progress,
    "call_timed_out": lambda event: f"timed out after {format_seconds(event.seconds)}",
    "call_abandoned": lambda _: "left behind",
    "cache_hit": lambda _: "known already",
    "call_finished": lambda event: f"{event.outcome} in {event.duration * 1000:.0f} ms: {event.text}",
    "review_requested": lambda event: f"asked: {event.request.arguments}",
    "review_decided": lambda event: f"decided: {event.decision}",
}
