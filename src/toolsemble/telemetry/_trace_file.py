"""Trace files: a sink that writes events as JSON lines, and a reader."""

from __future__ import annotations

import dataclasses
import errno
import json
import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, get_args

from toolsemble._engine.event_codec import EventCodec
from toolsemble._runtime.metrics import Outcome
from toolsemble._runtime.sinks import Sink
from toolsemble._runtime.threads import fork_safe_lock
from toolsemble._schema.display import to_display_or_repr
from toolsemble._vocabulary.serialization import compact_json
from toolsemble.events import (
    CallFinished,
    CallProgress,
    CallStarted,
    Event,
    ModelReplied,
    ReviewDecided,
    ReviewRequested,
    RunEvent,
)
from toolsemble.review import ReviewDecision

_CODEC = EventCodec(get_args(Event), to_display_or_repr)
_MESSAGES = ("messages", "message", "text")  # the fields with messages in a run's events
_NO_MESSAGE = {"role": "assistant", "text": "", "calls": []}
_OLD_DECISIONS = {"continue": "continue", "edit": "edit", "exit_early": "reject"}


def write_event(event: Any, *, messages: bool = True) -> dict[str, Any]:
    """Return an event as JSON values, with its kind first.

    :param messages: whether the messages of a run are included

    >>> from toolsemble.events import CallAbandoned
    >>> write_event(CallAbandoned("search", "call_1", at=0.0))["kind"]
    'call_abandoned'
    """
    values = _CODEC.write(event)
    if isinstance(event, ReviewRequested):
        return values | {"at": event.at}  # every line has its time
    if isinstance(event, RunEvent) and not messages:
        return {name: each for name, each in values.items() if name not in _MESSAGES}
    return values


def read_event(values: Any) -> Event:
    """Return an event written by :func:`write_event`, in any version; raise ``ValueError`` otherwise.

    >>> read_event({"kind": "call_abandoned", "tool_name": "search", "call_id": "call_1"}).tool_name
    'search'
    """
    kind = values.get("kind") if isinstance(values, dict) else None
    if kind == ModelReplied.kind:
        values = {"message": _NO_MESSAGE, **values}
    if kind == CallProgress.kind:
        values = {**values, **_upgrade_progress(values)}
    if kind == ReviewDecided.kind:
        values = {**values, "decision": _upgrade_decision(values.get("decision"))}
    event: Event = _CODEC.read(values)
    return event


def _upgrade_progress(values: dict[str, Any]) -> dict[str, Any]:
    """Return a call's progress in the current form; earlier versions did not validate it."""
    fraction = values.get("fraction")
    return {
        "fraction": fraction if isinstance(fraction, (int, float)) else None,
        "message": str(values.get("message", "")),
    }


def _upgrade_decision(values: Any) -> Any:
    """Return a decision in the current form; earlier versions had a ``name`` in it."""
    if not isinstance(values, dict) or values.get("name") not in [*_OLD_DECISIONS]:
        return values
    return {**values, "decision": _OLD_DECISIONS[values["name"]]}


try:
    import fcntl
except ImportError:  # without file locks, only a single process's lines are atomic
    fcntl = None  # type: ignore[assignment]  # a module elsewhere

_MAX_PREVIEW = 80


class TraceFile(Sink):
    """A sink that appends each event to a file as a line of JSON; threads and processes can share the file.

    Each line is appended in one write. Failures, such as a full disk, are logged and do not affect calls. Prompts,
    replies and answers are written only with ``messages=True``.

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

    def __init__(self, path: str | os.PathLike[str], *, messages: bool = False) -> None:
        """Set the path; the file is created with the first event.

        :param messages: whether to write messages of runs, not only tokens and times; arguments of tools with secret
        parameters are omitted
        """
        self._path = Path(path)
        self._messages = messages
        self._lock = fork_safe_lock(self)

    def emit(self, event: Any) -> None:
        """Append one line; raise ``OSError`` if that fails."""
        values = write_event(event, messages=self._messages)
        line = compact_json(values, ensure_ascii=True, allow_nan=False).encode("ascii") + b"\n"
        with self._lock:
            # Opened each time, so that a moved file or a repaired folder is noticed.
            file = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
            try:
                _append(file, line)
            finally:
                _close(file)


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A trace line that is not an event, such as the last line of a killed program.

    >>> Unreadable(3, '{"kind":"call_st', "it is cut off").number
    3
    """

    number: int
    """The line number, from 1."""
    text: str
    """The start of the line."""
    reason: str
    """The parse error."""


@dataclass(frozen=True, slots=True)
class CallTrace:
    """The trace of a call; unknown values are None.

    >>> CallTrace("weather", "call_1").outcome is None
    True
    """

    tool_name: str
    """The name of the called tool."""
    call_id: str
    """The id of the call."""
    run_id: str = ""
    """The id of its run."""
    parent_id: str = ""
    """The id of the enclosing call; empty for none."""
    arguments: Any = None
    """The arguments of the body, as a reviewer would see them."""
    started: float | None = None
    """The start time, in seconds since the epoch."""
    duration: float | None = None
    """The duration in seconds."""
    outcome: Outcome | None = None
    """The outcome."""
    text: str | None = None
    """The text for the model."""
    decisions: tuple[ReviewDecision, ...] = ()
    """The reviewers' decisions."""
    events: tuple[Event, ...] = ()
    """All events of the call, in order."""


@dataclasses.dataclass(frozen=True)
class Trace:
    """The contents of a trace file.

    >>> Trace((), ()).calls
    ()
    """

    events: tuple[Event, ...]
    """The events, in the order of the file."""
    unreadable: tuple[Unreadable, ...] = ()
    """The lines that are not events."""

    @cached_property
    def calls(self) -> tuple[CallTrace, ...]:
        """The calls, including sub-calls, in the order of their start."""
        by_call: dict[tuple[str, str, str], list[Event]] = {}
        for event in self.events:
            if isinstance(event, RunEvent):
                continue
            by_call.setdefault((event.run_id, event.call_id, event.tool_name), []).append(event)
        return tuple(_build_call(events) for events in by_call.values())

    def run(self, run_id: str) -> Trace:
        """Return the trace of one run.

        >>> from toolsemble.events import CallAbandoned
        >>> Trace((CallAbandoned("search", "call_1", run_id="a"),)).run("b").events
        ()
        """
        return Trace(tuple(event for event in self.events if event.run_id == run_id), self.unreadable)


def read_trace(path: str | os.PathLike[str]) -> Trace:
    """Return the contents of a :class:`TraceFile` file; invalid lines are listed in ``unreadable``."""
    events: list[Event] = []
    unreadable: list[Unreadable] = []
    for number, line in enumerate(Path(path).read_bytes().split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            events.append(read_event(json.loads(line)))
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as problem:
            start = line[:_MAX_PREVIEW].decode(errors="replace")
            unreadable.append(Unreadable(number, start, f"{type(problem).__name__}: {problem}"))
    return Trace(tuple(events), tuple(unreadable))


def _build_call(events: list[Event]) -> CallTrace:
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
    """Append a line to a file atomically; terminate an unfinished last line first."""
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
    """Unlock and close a file."""
    try:
        if fcntl is not None:
            # Closing is not enough: a process forked in the meantime has the file open and would keep the lock.
            fcntl.flock(file, fcntl.LOCK_UN)
    finally:
        os.close(file)
