"""A sink that writes events to the console."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any, TextIO

from toolsemble._runtime.checks import format_seconds
from toolsemble._runtime.sinks import Sink
from toolsemble._runtime.text import preview


class ConsoleSink(Sink):
    """A sink that writes a line for each event, by default to standard error.

    >>> import sys
    >>> from toolsemble.events import CallProgress
    >>> sink = ConsoleSink(sys.stdout, times=False)
    >>> sink.emit(CallProgress("scrape", "call_1", 0.4, "page 4 of 10"))
    scrape call_1: 40 % page 4 of 10
    """

    def __init__(
        self, stream: TextIO | None = None, *, limit: int = 100, times: bool = True, messages: bool = False
    ) -> None:
        """Set the stream and the format.

        :param stream: the stream to write to; by default the current standard error
        :param limit: the maximum characters of arguments and results
        :param times: whether each line starts with the time of day
        :param messages: whether lines about runs contain the prompt, the replies and the answer
        """
        self._stream = stream
        self._limit = limit
        self._times = times
        self._messages = messages

    def emit(self, event: Any) -> None:
        """Write one line."""
        describe = _DESCRIPTIONS.get(event.kind)
        text = event.kind if describe is None else describe(event)
        if self._messages and event.kind in _MESSAGES:
            text = f"{text}: {_MESSAGES[event.kind](event)}"
        clock = f"{time.strftime('%H:%M:%S', time.localtime(event.at))} " if self._times else ""
        line = f"{clock}{_name(event)}: {preview(text, self._limit)}\n"
        (self._stream or sys.stderr).write(line)


def _name(event: Any) -> str:
    """Return the tool and the id of a call, or the id of a run."""
    return f"{event.tool_name} {preview(event.call_id)}" if event.tool_name else f"run {preview(event.run_id)}"


def _describe_reply(event: Any) -> str:
    calls = "".join(f", calls {call.name}" for call in event.message.calls)
    tokens = "" if event.usage is None else f", {event.usage.total} tokens"
    return f"{event.model} replied in {event.duration * 1000:.0f} ms{tokens}{calls}"


def _describe_end(event: Any) -> str:
    return f"{event.stop_reason} in {event.duration * 1000:.0f} ms{event.error and f': {event.error}'}"


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
    "run_started": lambda event: f"started with {event.model}",
    "model_replied": _describe_reply,
    "model_retried": lambda event: f"the model failed ({event.reason}); retry in {format_seconds(event.seconds)}",
    "run_finished": _describe_end,
    "review_requested": lambda event: f"review requested: {event.request.arguments}",
    "review_decided": lambda event: f"review decided: {event.decision}",
}

_MESSAGES: dict[str, Callable[[Any], str]] = {
    "run_started": lambda event: event.messages[-1].text if event.messages else "",
    "model_replied": lambda event: event.message.text,
    "run_finished": lambda event: event.text,
}
