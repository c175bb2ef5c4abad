"""What a journal keeps: runs, their steps, and calls of unknown outcome."""

from __future__ import annotations

from collections.abc import Mapping
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
    """The name of the agent that does it."""
    state: RunStatus
    """``queued``: nobody has begun it, or a worker gave it back; ``waiting``: for a person."""
    prompt: str
    """The text of the prompt."""
    error: str
    """Why it failed; empty if it did not."""
    created: float
    """When it was recorded, in seconds since the epoch."""
    updated: float
    """When it last changed."""
    text: str = ""
    """The text of the answer; empty if there is none yet."""
    owner: str = ""
    """The process that drives it, or did last; empty if none has."""
    waits_for: str = ""
    """The calls that a waiting run needs approval for; empty if it does not wait for approval."""
    output: Any = None
    """The answer as JSON values: of the output type, or the text; None until the run is done."""
    usage: Mapping[str, float] | None = None
    """What the run has spent, by the names of the fields of :class:`~toolsemble.agent.Usage`; None until it is done."""
    stop_reason: str | None = None
    """Why the run ended, as in :class:`~toolsemble.AgentResult`; None until it is done."""


@dataclass(frozen=True, slots=True)
class UnknownCall:
    """A call that was begun, and whose outcome nobody recorded.

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
    """A step of a run: a reply of a model, or a call.

    >>> Step("/3.1", "call", "started", "refund", '{"order": 7}', None).is_done
    False
    """

    place: str
    """Its place in the run."""
    kind: Literal["reply", "call", "question"]
    """What it is: a reply of a model, a call, or the question to a reviewer about one."""
    state: Literal["started", "repeatable", "done", "unknown", "settled", "closing"]
    """``repeatable``: started, and may be made again; ``unknown``: done for the model, and open for people;
    ``closing``: a question of a cancelled run that is to be closed."""
    tool: str
    """The tool; empty for a reply."""
    arguments: str
    """The arguments of a call, for people."""
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
        """Whether it may be made again."""
        return self.state == "repeatable"
