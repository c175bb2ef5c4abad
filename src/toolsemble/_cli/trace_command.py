"""The command ``trace``: print the runs and calls of a trace file as a tree."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from toolsemble._cli.options import Exit
from toolsemble._cli.screen import Screen
from toolsemble._runtime.checks import format_seconds
from toolsemble._runtime.text import escape_line
from toolsemble._vocabulary.errors import ToolConfigurationError
from toolsemble.events import Event, ModelReplied, RunEvent, RunFinished, RunStarted
from toolsemble.review import Continue, Edit, ReviewDecision
from toolsemble.telemetry._trace_file import CallTrace, Trace, read_trace

_WIDTH = 100  # maximum characters of a text, except with --full


@dataclass(slots=True)
class _Node:
    """A line of the tree, and the lines below it."""

    line: str
    children: list[_Node] = field(default_factory=list)


def trace(path: str, run_id: str | None, screen: Screen, *, full: bool) -> int:
    """Print the runs of a file, or one of them."""
    if not Path(path).is_file():
        raise ToolConfigurationError(f"There is no file {path}; write one with sinks=[TraceFile({path!r})]")
    found = read_trace(path)
    if run_id is not None:
        found = found.run(run_id)
        if not found.events:
            raise ToolConfigurationError(f"There is no run {run_id!r} in {path}; without --run all runs are shown")
    for line in _draw(_Tree(found, None if full else _WIDTH).nodes()):
        screen.write(line)
    for each in found.unreadable if run_id is None else ():
        screen.report(f"line {each.number} is not an event: {escape_line(each.reason, _WIDTH)}")
    if not found.events:
        screen.report(f"{path} has no events; write some with sinks=[TraceFile({path!r})]")
        return Exit.FAILED
    return Exit.DONE


class _Tree:
    """The runs and calls of a trace, each below its parent call."""

    def __init__(self, found: Trace, width: int | None) -> None:
        self._width = width
        self._items: dict[tuple[str, str], list[Any]] = {}
        calls = {(call.run_id, call.call_id, call.tool_name): call for call in found.calls}
        for event in found.events:
            item = event if isinstance(event, RunEvent) else calls.pop(_key(event), None)
            if item is not None:
                self._items.setdefault((item.run_id, item.parent_id), []).append(item)
        self._calls = {(call.run_id, call.call_id) for call in found.calls}

    def nodes(self) -> list[_Node]:
        """Return the top-level nodes."""
        outer = [each for each in self._items if each not in self._calls]
        return [node for each in outer for node in self._group(*each)]

    def _group(self, run_id: str, parent_id: str) -> list[_Node]:
        """Return an agent's run with its turns and calls, or calls without an agent."""
        nodes: list[_Node] = []
        run: _Node | None = None
        for item in self._items.get((run_id, parent_id), ()):
            if isinstance(item, RunStarted):
                run = _Node(f"run {self._cut(item.run_id)} of {self._cut(item.model)}")
                run.children += [_Node(self._cut(f"{each.role}: {each.text}")) for each in item.messages[-1:]]
                nodes.append(run)
            else:
                (nodes if run is None else run.children).append(self._node(item))
            if isinstance(item, RunFinished):
                run = None  # the same call may run its agent again
        return nodes

    def _node(self, item: CallTrace | RunEvent) -> _Node:
        if isinstance(item, CallTrace):
            return _Node(self._describe_call(item), self._below(item))
        if isinstance(item, ModelReplied):
            return _Node(self._describe_reply(item), self._text(item.message.text))
        if isinstance(item, RunFinished):
            return _Node(self._describe_end(item), self._text(item.error))
        return _Node(self._cut(f"{item.kind.replace('_', ' ')}: {getattr(item, 'reason', '')}"))

    def _below(self, call: CallTrace) -> list[_Node]:
        decisions = [_Node(self._cut(_describe_decision(each))) for each in call.decisions]
        return [*decisions, *self._group(call.run_id, call.call_id), *self._text(call.text or "")]

    def _describe_call(self, call: CallTrace) -> str:
        how = "not finished" if call.outcome is None else f"{call.outcome} in {_seconds(call.duration or 0.0)}"
        given = json.dumps(call.arguments, ensure_ascii=False, default=repr)
        return f"{call.tool_name} {self._cut(given)}: {how}"

    def _describe_reply(self, reply: ModelReplied) -> str:
        tokens = "" if reply.usage is None else f", {reply.usage.input} + {reply.usage.output} tokens"
        cost = "" if reply.cost is None else f", cost {reply.cost:g}"
        calls = ", ".join(self._cut(call.name) for call in reply.message.calls)
        return f"turn {reply.turn}: {_seconds(reply.duration)}{tokens}{cost}{calls and f', calls {calls}'}"

    def _describe_end(self, end: RunFinished) -> str:
        tokens = "" if end.usage is None else f", {end.usage.total} tokens"
        cost = "" if end.cost is None else f", cost {end.cost:g}"
        error = f" ({end.error_type})" if end.error_type else ""
        return f"end: {end.stop_reason}{error} after {_seconds(end.duration)}{tokens}{cost}"

    def _text(self, text: str) -> list[_Node]:
        return [_Node(self._cut(text))] if text else []

    def _cut(self, text: str) -> str:
        return escape_line(text, self._width)


def _describe_decision(decision: ReviewDecision) -> str:
    if isinstance(decision, Continue):
        return "reviewer: approved"
    if isinstance(decision, Edit):
        return f"reviewer: approved with {decision.revised}"
    return f"reviewer: rejected: {decision.reason}"


def _seconds(seconds: float) -> str:
    return f"{seconds * 1000:.1f} ms" if seconds < 1 else format_seconds(seconds)


def _key(event: Event) -> tuple[str, str, str]:
    return event.run_id, event.call_id, event.tool_name


def _draw(nodes: Sequence[_Node]) -> Iterator[str]:
    """Yield the lines of a tree."""
    for node in nodes:
        yield node.line
        yield from _draw_below(node.children, "")


def _draw_below(nodes: Sequence[_Node], indent: str) -> Iterator[str]:
    for number, node in enumerate(nodes, 1):
        is_last = number == len(nodes)
        yield f"{indent}{'└─ ' if is_last else '├─ '}{node.line}"
        yield from _draw_below(node.children, f"{indent}{'   ' if is_last else '│  '}")
