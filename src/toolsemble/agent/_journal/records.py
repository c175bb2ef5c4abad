"""What a journal keeps: runs, their steps and places, and calls of unknown outcome."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

RunStatus: TypeAlias = Literal["queued", "running", "waiting", "done", "failed", "cancelled"]
"""The state of a run."""

STATES: tuple[RunStatus, ...] = ("queued", "running", "waiting", "done", "failed", "cancelled")
"""All states of runs."""


@dataclass(frozen=True, slots=True)
class RunRecord:
    """A run in a journal.

    >>> RunRecord("order-7", "clerk", "done", "Refund order 7", "", 1700000000.0, 1700000060.0).state
    'done'
    """

    run_id: str
    """The id of the run."""
    agent: str
    """The name of its agent."""
    state: RunStatus
    """``queued``: not started, or requeued by a worker; ``waiting``: for a person."""
    prompt: str
    """The prompt's text."""
    error: str
    """Why it failed; empty if it did not."""
    created: float
    """When it was recorded, in seconds since the epoch."""
    updated: float
    """When it last changed."""
    text: str = ""
    """The answer's text; empty if there is none yet."""
    owner: str = ""
    """The process that drives it, or did last; empty if none has."""
    waits_for: str = ""
    """The calls that a waiting run needs approval for; empty if it does not wait for approval."""
    output: Any = None
    """The answer as JSON values: of the output type, or the text; None until the run is done."""
    usage: Mapping[str, float] | None = None
    """The run's usage, by the field names of :class:`~toolsemble.agent.Usage`; None until it is done."""
    stop_reason: str | None = None
    """Why the run ended, as in :class:`~toolsemble.AgentResult`; None until it is done."""


@dataclass(frozen=True, slots=True)
class UnknownCall:
    """A call that was started, and whose outcome was not recorded.

    >>> UnknownCall("order-7", "/3.1", "refund", '{"order": 7}').place
    '/3.1'
    """

    run_id: str
    """The id of the run."""
    place: str
    """The place of the call in the run."""
    tool: str
    """The tool that was called."""
    arguments: str
    """The arguments as JSON text, with secrets masked; truncated if they are long."""


@dataclass(frozen=True, slots=True)
class Step:
    """A step of a run: a model reply, or a call.

    >>> Step("/3.1", "call", "started", "refund", '{"order": 7}', None).is_done
    False
    """

    place: str
    """Its place in the run."""
    kind: Literal["reply", "call", "question"]
    """The kind: a model reply, a call, or a reviewer question about a call."""
    state: Literal["started", "repeatable", "done", "unknown", "settled", "closing"]
    """``repeatable``: started, and may be retried; ``unknown``: done for the model, and unsettled for people;
    ``closing``: a question of a cancelled run that is to be closed."""
    tool: str
    """The tool; empty for a reply."""
    arguments: str
    """The arguments of a call, for display."""
    data: Any
    """The reply, or the result of the call, as JSON values; None if there is none yet."""
    elapsed: float = 0.0
    """The seconds that the run had worked."""

    @property
    def is_done(self) -> bool:
        """Whether it has a result."""
        return self.state in ("done", "unknown", "settled")

    @property
    def repeatable(self) -> bool:
        """Whether it may be retried."""
        return self.state == "repeatable"


_TURN = re.compile(r"/(\d+)")


def is_turn(place: str) -> bool:
    """Return whether a place is a turn of the outermost agent; ``/0`` is the stored conversation before the first.

    >>> [is_turn(place) for place in ("/3", "/0", "/3.1", "/3.1/1")]
    [True, False, False, False]
    """
    return place.count("/") == 1 and "." not in place and find_turn(place) > 0


def find_turn(place: str) -> int:
    """Return the number of the turn of the outermost agent that a place belongs to.

    >>> find_turn("/3"), find_turn("/12.1/1.2")
    (3, 12)
    """
    found = _TURN.match(place)
    return 0 if found is None else int(found[1])


def describe_step(step: Step) -> dict[str, str]:
    """Return a step's kind and summary for display; arguments with secrets are not shown.

    >>> describe_step(Step("/1", "reply", "done", "", "", {"text": "Rome", "stop_reason": "stop"}))
    {'what': 'model', 'about': 'Rome'}
    """
    if step.kind == "reply":
        return {"what": "model", "about": _describe_reply(step.data)}
    if step.kind == "question":
        return {"what": "question", "about": ""}
    outcome = _describe_result(step.data)
    return {"what": step.tool, "about": " -> ".join(part for part in (step.arguments, outcome) if part)}


def find_changes(steps: Iterable[Step]) -> list[str]:
    """Return the turns of the outermost agent at which its model, instructions or tools changed.

    >>> turns = [Step(f"/{n}", "reply", "done", "", "", {"agent": mark}) for n, mark in enumerate("aab", 1)]
    >>> find_changes(turns)
    ['3']
    """
    # The part after a slash is what a function returned for the turn: a difference there is not a change of the agent.
    marks = [(step.place[1:], step.data["agent"].partition("/")[0]) for step in steps if _is_turn(step)]
    return [turn for (turn, mark), (_, before) in zip(marks[1:], marks, strict=False) if mark != before]


def _is_turn(step: Step) -> bool:
    return step.kind == "reply" and is_turn(step.place)


def _describe_reply(data: dict[str, Any]) -> str:
    if "stored" in data:
        return f"{data['stored']} messages of the conversation came before"
    calls = ", ".join(call["name"] for call in data.get("calls", ()))
    return ": ".join(part for part in (f"calls {calls}" if calls else "", data["text"]) if part)


def _describe_result(data: Any) -> str:
    if data is None:
        return ""
    if "error" in data:
        return f"Error: {data['error']}"
    return data["output"] if isinstance(data["output"], str) else json.dumps(data["output"], ensure_ascii=False)
