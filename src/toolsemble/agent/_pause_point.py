"""Where an agent that is a tool of another run can be paused: in a call that the model of that run made."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple, NoReturn, Protocol

from toolsemble._engine.context import ToolContext, current_context
from toolsemble._vocabulary.errors import CallPausedError
from toolsemble.agent._result import InnerRun, PausedRun
from toolsemble.review._decision import ReviewDecision


class Resumed(NamedTuple):
    """The paused run of an agent inside of a call, and the decisions about its calls."""

    inner: InnerRun
    decisions: Mapping[str, ReviewDecision]


class PausePoint(Protocol):
    """The turn of a run that can be paused."""

    def can_leave_open(self, context: ToolContext) -> bool:
        """Return whether a call is one of the turn, and can be left open while the agent inside of it waits."""
        ...

    def take_resumed(self, call_id: str) -> Resumed | None:
        """Return the run to resume inside of a call, once; None if the call is new."""
        ...


pause_point: ContextVar[PausePoint | None] = ContextVar("toolsemble.pause_point", default=None)
"""The turn around the current call; None if the run of the turn cannot be paused."""

_agent_call: ContextVar[ToolContext | None] = ContextVar("toolsemble.agent_call", default=None)


def can_pause() -> bool:
    """Return whether a run that begins here can be paused: outside of all calls, or as an agent that is a tool.

    >>> can_pause()
    True
    """
    context = current_context()
    return context is None or _agent_call.get() is context


def is_inside_agent_tool() -> bool:
    """Return whether a run that begins here is that of an agent that is a tool, and can be paused."""
    return current_context() is not None and can_pause()


@contextmanager
def enter_agent_call() -> Iterator[Resumed | None]:
    """Let the run of the agent of the current call be paused, if the run around it can be; yield what is resumed."""
    context, point = current_context(), pause_point.get()
    if context is None or point is None or not point.can_leave_open(context):
        yield None
        return
    token = _agent_call.set(context)
    try:
        yield point.take_resumed(context.call_id)
    finally:
        _agent_call.reset(token)


def leave_agent_open(paused: PausedRun, resumed: Resumed | None) -> NoReturn:
    """Raise CallPausedError for the current call, because the run of its agent is paused."""
    error = CallPausedError("The run of the agent inside of this call waits for approval")
    error.context, error.inner = current_context(), paused
    error.edited = None if resumed is None else resumed.inner.edited
    raise error
