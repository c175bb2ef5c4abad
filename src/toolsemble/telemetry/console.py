"""A sink that writes events to the console."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any, TextIO

from toolsemble.runtime.checks import format_seconds
from toolsemble.runtime.text import preview


class ConsoleSink:
    """A sink that writes a line for each event, by default to standard error.

    >>> import sys
    >>> from toolsemble.events import CallProgress
    >>> sink = ConsoleSink(sys.stdout, times=False)
    >>> sink.emit(CallProgress("scrape", "call_1", 0.4, "page 4 of 10"))
    scrape call_1: 40 % page 4 of 10
    """

    def __init__(self, stream: TextIO | None = None, *, limit: int = 100, times: bool = True) -> None:
        """Set the stream and the format.

        :param stream: the stream to write to; by default the current standard error
        :param limit: the maximum characters of arguments and results
        :param times: whether each line starts with the time of day
        """
        self._stream = stream
        self._limit = limit
        self._times = times

    def emit(self, event: Any) -> None:
        """Write one line."""
        describe = _DESCRIPTIONS.get(event.kind)
        text = event.kind if describe is None else describe(event)
        clock = f"{time.strftime('%H:%M:%S', time.localtime(event.at))} " if self._times else ""
        line = f"{clock}{_name(event)}: {preview(text, self._limit)}\n"
        (self._stream or sys.stderr).write(line)


def _name(event: Any) -> str:
    """Return the tool and the id of a call, or the id of a run."""
    return f"{event.tool_name} {preview(event.call_id)}" if event.tool_name else f"run {preview(event.run_id)}"


def _describe_reply(event: Any) -> str:
    calls = ", ".join(call.name for call in event.message.calls)
    tokens = "" if event.usage is None else f", {event.usage.total} tokens"
    return f"{event.model} replied in {format_seconds(event.duration)}{tokens}: {calls or event.message.text}"


def _describe_progress(event: Any) -> str:
    percentage = "" if event.fraction is None else f"{event.fraction:.0%}".replace("%", " %")
    return f"{percentage} {event.message}".strip()


_DESCRIPTIONS: dict[str, Callable[[Any], str]] = {
    "call_started": lambda event: f"called with {event.arguments}",
    "call_repaired": lambda event: f"repaired {', '.join(str(each['path']) for each in event.repairs)}",
    "call_retried": lambda event: f"failed ({event.error}); retry {event.attempt} in {format_seconds(event.wait)}",
    "call_progress": _describe_progress,
    "call_timed_out": lambda event: f"timed out after {format_seconds(event.seconds)}",
    "call_abandoned": lambda _: "still running in the background",
    "cache_hit": lambda _: "answered from the cache",
    "call_finished": lambda event: f"{event.outcome} in {event.duration * 1000:.0f} ms: {event.text}",
    "run_started": lambda event: f"{event.model} is asked: {event.messages[-1].text if event.messages else ''}",
    "model_replied": _describe_reply,
    "model_retried": lambda event: f"the model failed ({event.reason}); retry in {format_seconds(event.seconds)}",
    "run_finished": lambda event: (
        f"{event.stop_reason} in {format_seconds(event.duration)}: {event.text or event.error}"
    ),
    "review_requested": lambda event: f"review requested: {event.request.arguments}",
    "review_decided": lambda event: f"review decided: {event.decision}",
}
