"""The trace of runs as JSON: written by a sink, a line for each event, and read back as data."""

from __future__ import annotations

import dataclasses
import errno
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any

from toolsemble.events import (
    CacheHit,
    CallAbandoned,
    CallFinished,
    CallProgress,
    CallRepaired,
    CallRetried,
    CallStarted,
    CallTimedOut,
    Event,
    ReviewDecided,
    ReviewRequested,
)
from toolsemble.metrics import Outcome
from toolsemble.result import Content, ToolResult
from toolsemble.review import Continue, Edit, ExitEarly, ReviewDecision, ReviewRequest
from toolsemble.runtime.fork_locks import fork_safe_lock
from toolsemble.schema.display import presented
from toolsemble.serialization import read_typed_content, type_name

try:
    import fcntl
except ImportError:  # where the system has no such locks, the lines of one process are still whole
    fcntl = None  # type: ignore[assignment]

_CALLS: dict[str, type[Any]] = {
    each.kind: each
    for each in (
        CallStarted,
        CallRepaired,
        CallRetried,
        CallProgress,
        CallTimedOut,
        CallAbandoned,
        CacheHit,
        CallFinished,
    )
}
_DECISIONS: dict[str, Callable[..., ReviewDecision]] = {
    "continue": Continue,
    "edit": Edit,
    "exit_early": ExitEarly,
}
_SHOWN = 80


class TraceFile:
    """A sink that appends each event to a file, as a line of JSON; any number of threads and processes may share it.

    A line is written whole, in one go, at the end of the file. What cannot be written, because the disk is full for
    example, is in the log; calls go on.

    >>> import tempfile
    >>> from toolsemble import Toolbox, ToolCall, tool
    >>> @tool
    ... def shout(text: str) -> str:
    ...     '''Says it louder.'''
    ...     return text.upper()
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     box = Toolbox([shout], sinks=[TraceFile(f"{folder}/trace.jsonl")])
    ...     reply = box.execute(ToolCall("shout", {"text": "hello"}))
    ...     call = read_trace(f"{folder}/trace.jsonl").calls[0]
    >>> call.arguments, call.outcome, call.text
    ({'text': 'hello'}, 'success', 'HELLO')
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Take down the path; the file is made with the first event."""
        self._path = Path(path)
        self._lock = fork_safe_lock(self)

    def emit(self, event: Any) -> None:
        """Append one line; raises what the system says when it cannot."""
        line = json.dumps(written(event), ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode() + b"\n"
        with self._lock:
            # Opened each time: a file that was moved away or a folder that was mended is found again.
            file = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
            try:
                _append(file, line)
            finally:
                _close(file)


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A line of a trace that is no event, such as the last one of a program that was killed while it wrote.

    >>> Unreadable(3, '{"kind":"call_st', "it is cut off").number
    3
    """

    number: int
    """Which line it is, from 1 on."""
    text: str
    """How it begins."""
    reason: str
    """What is wrong with it."""


@dataclass(frozen=True, slots=True)
class CallTrace:
    """What is known of one call; what was not told is None.

    >>> CallTrace("weather", "call_1").outcome is None
    True
    """

    tool_name: str
    """The tool that was called."""
    call_id: str
    """The call."""
    run_id: str = ""
    """The run that it belongs to."""
    parent_id: str = ""
    """The call that it was made inside; empty for none."""
    arguments: Any = None
    """What the body got, as a reviewer would see it."""
    started: float | None = None
    """When it began, in seconds since the epoch."""
    duration: float | None = None
    """How many seconds the work took."""
    outcome: Outcome | None = None
    """How it ended."""
    text: str | None = None
    """What the model was told."""
    decisions: tuple[ReviewDecision, ...] = ()
    """What reviewers decided."""
    events: tuple[Event, ...] = ()
    """All that was told of it, in order."""


@dataclasses.dataclass(frozen=True)
class Trace:
    """A trace that was read back.

    >>> Trace((), ()).calls
    ()
    """

    events: tuple[Event, ...]
    """The events, in the order of the file."""
    unreadable: tuple[Unreadable, ...] = ()
    """The lines that are no events."""

    @cached_property
    def calls(self) -> tuple[CallTrace, ...]:
        """The calls, in the order of their beginnings; calls inside of calls among them."""
        told: dict[tuple[str, str, str], list[Event]] = {}
        for event in self.events:
            told.setdefault((event.run_id, event.call_id, event.tool_name), []).append(event)
        return tuple(_call(events) for events in told.values())

    def run(self, run_id: str) -> Trace:
        """Give the part of one run.

        >>> Trace((CallAbandoned("search", "call_1", run_id="a"),)).run("b").events
        ()
        """
        return Trace(tuple(event for event in self.events if event.run_id == run_id), self.unreadable)


def read_trace(path: str | os.PathLike[str]) -> Trace:
    """Give what a :class:`TraceFile` wrote; lines that are no events are told of, and do no harm."""
    events: list[Event] = []
    unreadable: list[Unreadable] = []
    for number, line in enumerate(Path(path).read_bytes().split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            events.append(_event(json.loads(line)))
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as problem:
            start = line[:_SHOWN].decode(errors="replace")
            unreadable.append(Unreadable(number, start, f"{type(problem).__name__}: {problem}"))
    return Trace(tuple(events), tuple(unreadable))


def written(event: Any) -> dict[str, Any]:
    """Give an event as JSON values, with its kind first.

    >>> written(CallAbandoned("search", "call_1", at=0.0))["kind"]
    'call_abandoned'
    """
    said: dict[str, Any] = {"kind": event.kind}
    if isinstance(event, (ReviewRequested, ReviewDecided)):
        said |= {"request": json.loads(event.request.to_json()), "at": event.at}
        if isinstance(event, ReviewDecided):
            said |= {"decision": _decided(event.decision)}
        return said
    said |= {each.name: _value(getattr(event, each.name)) for each in fields(event)}
    return said


def _value(value: Any) -> Any:
    if isinstance(value, ToolResult):
        whole = {each.name: _value(getattr(value, each.name)) for each in fields(value)}
        attributes = {name: _value(each) for name, each in value.attributes.items()}
        return {**whole, "contents": [_content(each) for each in value.contents], "attributes": attributes}
    try:
        shown = presented(value)
        json.dumps(shown, allow_nan=False)
    except Exception:  # noqa: BLE001 - an object of somebody's own; the rest of the event can still be told
        return repr(value)
    return shown


def _content(content: Content) -> dict[str, Any]:
    return {"type": type_name(content), **presented(content)}


def _decided(decision: ReviewDecision) -> dict[str, Any]:
    name = next(name for name, kind in _DECISIONS.items() if isinstance(decision, kind))  # type: ignore[arg-type]  # classes
    return {"name": name, **{each.name: getattr(decision, each.name) for each in fields(decision)}}


def _event(said: dict[str, Any]) -> Event:
    """Give the event that a line tells of."""
    kind = said.pop("kind")
    if kind == ReviewRequested.kind:
        return ReviewRequested(_request(said))
    if kind == ReviewDecided.kind:
        decision = dict(said["decision"])
        return ReviewDecided(_request(said), _DECISIONS[decision.pop("name")](**decision), at=said["at"])
    if isinstance(said.get("repairs"), list):
        said["repairs"] = tuple(said["repairs"])
    if isinstance(said.get("result"), dict):
        said["result"] = _result(said["result"])
    event: Event = _CALLS[kind](**said)
    return event


def _request(said: Mapping[str, Any]) -> ReviewRequest:
    return ReviewRequest.from_json(json.dumps(said["request"]))


def _result(said: dict[str, Any]) -> ToolResult:
    attributes = MappingProxyType(said.pop("attributes"))
    contents = tuple(read_typed_content(each) for each in said.pop("contents"))
    return ToolResult(**said, contents=contents, attributes=attributes)


def _call(events: list[Event]) -> CallTrace:
    first = events[0]
    facts: dict[str, Any] = {}
    for event in events:
        if isinstance(event, CallStarted):
            facts |= {"arguments": event.arguments, "started": event.at, "parent_id": event.parent_id}
        elif isinstance(event, CallFinished):
            facts |= {name: getattr(event, name) for name in ("arguments", "duration", "outcome", "text")}
    decisions = tuple(event.decision for event in events if isinstance(event, ReviewDecided))
    return CallTrace(first.tool_name, first.call_id, first.run_id, decisions=decisions, events=tuple(events), **facts)


def _append(file: int, line: bytes) -> None:
    """Write a line at the end of a file, whole or not at all; one that somebody left unfinished is ended first."""
    if fcntl is not None:
        fcntl.flock(file, fcntl.LOCK_EX)
    size = os.fstat(file).st_size
    if size:
        os.lseek(file, size - 1, os.SEEK_SET)
        line = line if os.read(file, 1) == b"\n" else b"\n" + line
    if os.write(file, line) < len(line):
        os.ftruncate(file, size)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _close(file: int) -> None:
    """Let others write, and close a file."""
    try:
        if fcntl is not None:
            # Closing is not enough: a fork that was made meanwhile has the file open, too, and would keep the lock.
            fcntl.flock(file, fcntl.LOCK_UN)
    finally:
        os.close(file)
