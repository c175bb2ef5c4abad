"""Where an agent that is a tool of another run can be paused: in a call that the model of that run made."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple, NoReturn

from toolsemble.agent.result import InnerRun, PausedRun
from toolsemble.context import ToolContext, current_context
from toolsemble.errors import CallPausedError
from toolsemble.review.decision import ReviewDecision


class Resumed(NamedTuple):
    """The paused run of an agent inside of a call, and the decisions about its calls."""

    inner: InnerRun
    decisions: Mapping[str, ReviewDecision]


class PausePoint(NamedTuple):
    """The turn of a run that can be paused."""

    is_own: Callable[[ToolContext], bool]
    """Returns whether a call is one of the turn, and can be left open while it runs."""
    resumed: dict[str, Resumed]
    """The runs to resume, by the ids of their calls; each of them is resumed once."""


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
    if context is None or point is None or not point.is_own(context):
        yield None
        return
    token = _agent_call.set(context)
    try:
        yield point.resumed.pop(context.call_id, None)
    finally:
        _agent_call.reset(token)


def leave_agent_open(paused: PausedRun, resumed: Resumed | None) -> NoReturn:
    """Raise CallPausedError for the current call, because the run of its agent is paused."""
    error = CallPausedError("The run of the agent inside of this call waits for approval")
    error.context, error.inner = current_context(), paused
    error.edited = None if resumed is None else resumed.inner.edited
    raise error
