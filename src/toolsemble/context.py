"""What belongs to one call: it travels with the call, and is never stored on a tool."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from concurrent.futures import Executor
from contextvars import ContextVar, Token
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal, TypeAlias, Unpack

from toolsemble.events import CallProgress
from toolsemble.masking.secrets import mask_object
from toolsemble.metrics import SilentMetrics, ToolMetrics
from toolsemble.observers.watchers import tell
from toolsemble.review import (
    Continue,
    OnTimeout,
    ReviewDecision,
    ReviewHandler,
    ReviewRequest,
    ReviewTiming,
)
from toolsemble.review.automatic import AutoReject
from toolsemble.review.gate import check_terms
from toolsemble.review.inherited import InheritedGate
from toolsemble.review.question import Question
from toolsemble.review.request import TIMEOUT, ReviewTerms, digest
from toolsemble.runtime.concurrency import THREADS

LOGGER = logging.getLogger("toolsemble.tool")
LOGGER.addHandler(logging.NullHandler())  # a program that has not set up logging gets nothing printed
SILENT = SilentMetrics()

Exposure: TypeAlias = Literal["all", "declared"]
"""Which errors a model is told in their own words."""


class InvocationParameters(MutableMapping[str, Any]):
    """A mapping shared by the tools of one run, for what the model must not see or choose.

    Made from a mapping, it writes through to it.

    >>> mine = {"user": "ada"}
    >>> shared = InvocationParameters(mine)
    >>> shared["seen"] = 3
    >>> mine
    {'user': 'ada', 'seen': 3}
    """

    __slots__ = ("_values",)

    def __init__(self, values: MutableMapping[str, Any] | None = None) -> None:
        self._values: MutableMapping[str, Any] = {} if values is None else values

    def __getitem__(self, key: str) -> Any:
        return self._values[key]

    def __setitem__(self, key: str, value: Any) -> None:
        self._values[key] = value

    def __delitem__(self, key: str) -> None:
        del self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"InvocationParameters({dict(self._values)!r})"


# Without slots: a context is made for every call, and copying a dict is several times faster than setting
# the fields of a frozen object one by one.
@dataclass(frozen=True)
class ToolContext:
    """The surroundings of one call.

    Each field has a sensible default, so that a tool can be executed on its own.

    >>> from toolsemble import InMemoryMetrics
    >>> context = ToolContext(agent_role="researcher", metrics=InMemoryMetrics())
    >>> context.agent_role, context.memory_id
    ('researcher', 'default')
    """

    tool_name: str = ""
    """The tool that is called."""
    call_id: str = ""
    """The call's id: the provider's, or one made for it."""
    run_id: str = ""
    """The id that the calls of one run share."""
    memory_id: str = "default"
    """The conversation or user that the call belongs to."""
    agent_role: str = "unknown"
    """The role of the agent that calls."""
    logger: logging.Logger = LOGGER
    """The tool's logger."""
    metrics: ToolMetrics = SILENT
    """Where the call is counted."""
    executor: Executor = THREADS
    """Where blocking work can be done beside the call."""
    review: ReviewHandler | None = None
    """Who approves calls that need it."""
    parameters: InvocationParameters = field(default_factory=InvocationParameters)
    """What the tools of one run share."""
    deadline: float | None = None
    """When the call must end, on the clock of ``time.monotonic``; None for never."""
    parent_id: str = ""
    """The call that this one is made inside; empty for none."""
    expose_errors: Exposure = "all"
    """Which errors the model is told in their own words: all, or only those that tools declare to be meant for it."""

    gates: tuple[InheritedGate, ...] = ()
    """The gates of the toolboxes that the call is made inside, for calls that other toolboxes make inside this one."""

    def derive(self, changes: dict[str, Any]) -> ToolContext:
        """Give a copy with other values in some fields.

        >>> ToolContext(memory_id="ada").derive({"agent_role": "writer"}).memory_id
        'ada'
        """
        derived = _blank(ToolContext)
        _set_fields(derived, self.__dict__ | changes)
        return derived

    def of_call(self, run: dict[str, Any], call_id: str) -> ToolContext:
        """Give a copy for one call of a run; as :meth:`derive`, for what every call pays.

        >>> ToolContext(memory_id="ada").of_call({"run_id": "run_1"}, "call_1").call_id
        'call_1'
        """
        fields = self.__dict__ | run
        fields["call_id"] = call_id
        derived = _blank(ToolContext)
        _set_fields(derived, fields)
        return derived

    def detached(self) -> ToolContext:
        """Give the part that can be sent to another process: live objects stay behind, and nobody there can agree."""
        nobody = AutoReject("the reviewer cannot be asked from a worker process")
        gates = tuple(each.detached(nobody) for each in self.gates)
        review = None if self.review is None else nobody
        return self.derive({"metrics": SILENT, "executor": THREADS, "review": review, "gates": gates})

    def progress(self, fraction: float | None, message: str = "") -> None:
        """Tell whoever watches the run how far the call has come; the model does not hear of it.

        :param fraction: how much of the work is done, from 0 to 1; None when that is not known. What is below or above
            counts as 0 or 1, and what is no number as not known: a wrong estimate fails no call.
        :param message: what is being done

        >>> ToolContext().progress(0.4, "page 4 of 10")
        """
        tell(CallProgress.of(self, fraction=_share(fraction), message=message))

    def request_approval(self, description: str, **terms: Unpack[ReviewTerms]) -> ReviewDecision:
        """Ask the reviewer in the middle of a tool's work, and wait in this thread; without a reviewer, go on.

        It raises :class:`~toolsemble.ReviewTimeoutError` when nobody answers in time and ``on_timeout`` says so.

        :param description: what is to be decided
        :param terms: ``arguments`` to show, a dict or a text (none); ``timeout`` in seconds (300; 0 or None for any
            number), ``on_timeout`` (``EXIT_EARLY``), and the ``required_role`` of whoever answers (None)

        >>> ToolContext().request_approval("Send it?")
        Continue(always=None)
        """
        if self.review is None:
            return Continue()
        return Question(self.review, self._request(description, **terms)).do()

    async def arequest_approval(self, description: str, **terms: Unpack[ReviewTerms]) -> ReviewDecision:
        """Ask the reviewer in the middle of a tool's work, without blocking the event loop."""
        if self.review is None:
            return Continue()
        return await Question(self.review, self._request(description, **terms)).ado()

    def patience(self, timeout: float | None, on_timeout: OnTimeout) -> dict[str, Any]:
        """Give how long a reviewer may be waited for, as fields of a request; the call's own deadline stands above."""
        if self.deadline is not None:
            left = max(self.deadline - time.monotonic(), _SHORTEST)
            if not timeout or left < timeout:
                # What the request says about silence does not hold for a call that has ended.
                timeout, on_timeout = left, OnTimeout.EXIT_EARLY
        return {"timeout": timeout, "on_timeout": on_timeout, "asked_at": time.time()}

    def _request(
        self,
        description: str,
        *,
        arguments: Any = MappingProxyType({}),
        timeout: float | None = TIMEOUT,
        on_timeout: OnTimeout = OnTimeout.EXIT_EARLY,
        required_role: str | None = None,
    ) -> ReviewRequest:
        check_terms(f"Tool '{self.tool_name}': the ", timeout, on_timeout, required_role)
        exact = [description, dict(arguments) if isinstance(arguments, Mapping) else arguments]
        shown = [mask_object(each) for each in exact]
        return ReviewRequest(
            shown[0],
            self.tool_name,
            shown[1],
            ReviewTiming.DURING_EXECUTION,
            required_role=required_role,
            call_id=self.call_id,
            run_id=self.run_id,
            agent_role=self.agent_role,
            hidden_digest="" if shown == exact else digest([self.run_id, *exact]),
            **self.patience(timeout, on_timeout),
        )


_blank = object.__new__
_set_fields = vars(ToolContext)["__dict__"].__set__


def _share(said: Any) -> float | None:
    try:
        share = float(said)
    except (TypeError, ValueError, OverflowError):
        return None
    return None if math.isnan(share) else min(max(share, 0.0), 1.0)


_SHORTEST = 0.001  # a timeout of 0 would wait for ever


_current: ContextVar[ToolContext | None] = ContextVar("toolsemble.context", default=None)


# Without functions of our own around them: every call pays for these.
current_context: Callable[[], ToolContext | None] = _current.get
"""Gives the context of the call that is being executed here, or None outside of one."""

enter: Callable[[ToolContext | None], Token[ToolContext | None]] = _current.set
"""Makes a context the current one, until :func:`leave`, or until the one of before is entered again.

Where an interrupt may come, that is read before: an interrupt could come before the token is known."""


reset: Callable[[Token[ToolContext | None]], None] = _current.reset
"""Makes the context of before the current one again; raises ``ValueError`` where the other one was not entered."""


def leave(token: Token[ToolContext | None]) -> None:
    """Make the context of before the current one again."""
    try:  # noqa: SIM105 - suppress() would double the cost of entering and leaving
        _current.reset(token)
    except ValueError:
        # A coroutine that was dropped in the middle is closed wherever the collector runs: nothing to undo there.
        pass


def restore(context: ToolContext, before: ToolContext | None) -> None:
    """Make the context of before the current one again, if the other one still is.

    A coroutine that was dropped in the middle is closed wherever the collector runs: nothing to undo there.
    """
    if _current.get() is context:
        _current.set(before)
