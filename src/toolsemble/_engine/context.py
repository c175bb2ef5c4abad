"""``ToolContext``: the data of one call, passed on by a context variable and never stored on a tool."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from concurrent.futures import Executor
from contextvars import ContextVar, Token
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeAlias, TypeVar, Unpack

from toolsemble._runtime.metrics import SilentMetrics, ToolMetrics
from toolsemble._runtime.threads import THREADS
from toolsemble._runtime.watchers import tell
from toolsemble._vocabulary.call import GeneratedRunId, new_id, new_run_id

if TYPE_CHECKING:
    pass

if TYPE_CHECKING:
    from typing_extensions import TypeVar as DefaultedTypeVar

    from toolsemble._vocabulary.place import Place
    from toolsemble.models._message import UserMessage
    from toolsemble.review import ReviewDecision, ReviewHandler
    from toolsemble.review._gate import InheritedGate
    from toolsemble.review._terms import ReviewTerms

LOGGER = logging.getLogger("toolsemble.tool")
LOGGER.addHandler(logging.NullHandler())  # prints nothing if the program has not configured logging
SILENT = SilentMetrics()

Exposure: TypeAlias = Literal["all", "declared"]
"""Which error messages the model sees."""

# Type checkers read a plain ``ToolContext`` as ``ToolContext[Any]``; Python has such defaults since 3.13 only.
if TYPE_CHECKING:
    DepsT_co = DefaultedTypeVar("DepsT_co", covariant=True, default=Any)
else:
    DepsT_co = TypeVar("DepsT_co", covariant=True)


class InvocationParameters(MutableMapping[str, Any]):
    """A mapping that the tools of one run share, for values that the model must not see or set.

    It reads and writes the mapping that it is created from.

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


# Without slots: a context is created for every call, and copying a dict is several times faster than setting the
# fields of a frozen object one by one.
@dataclass(frozen=True)
class ToolContext(Generic[DepsT_co]):
    """The data of one call besides its arguments.

    Each field has a default, so that a tool can be executed without a toolbox. ``ToolContext[Shop]`` tells type
    checkers that ``deps`` is a ``Shop``.

    >>> from toolsemble import InMemoryMetrics
    >>> context = ToolContext(agent_role="researcher", metrics=InMemoryMetrics())
    >>> context.agent_role, context.memory_id
    ('researcher', 'default')
    """

    tool_name: str = ""
    """The tool that is called."""
    call_id: str = ""
    """The id of the call: the provider's, or a generated one."""
    run_id: str = ""
    """The id that the calls of one run share."""
    memory_id: str = "default"
    """The conversation or user that the call belongs to."""
    agent_role: str = "unknown"
    """The role of the agent that calls."""
    logger: logging.Logger = LOGGER
    """The tool's logger."""
    metrics: ToolMetrics = SILENT
    """Counts calls and measures their duration."""
    executor: Executor = THREADS
    """An executor for blocking work of the tool."""
    review: ReviewHandler | None = None
    """The review handler that approves calls; None: no reviewer."""
    parameters: InvocationParameters = field(default_factory=InvocationParameters)
    """Values that the tools of one run share."""
    deadline: float | None = None
    """When the call must end, on the clock of ``time.monotonic``; None: no deadline."""
    parent_id: str = ""
    """The id of the enclosing call; empty if there is none."""
    expose_errors: Exposure = "all"
    """Which error messages the model sees: all, or only the ones that tools declare for it."""

    gates: tuple[InheritedGate, ...] = ()
    """The approval gates of the enclosing toolboxes, which also apply to nested calls."""

    deps: DepsT_co = None  # type: ignore[assignment]  # None is not of the type, but a run without deps has nothing else
    """The dependencies of the run, as passed to ``agent.run(deps=...)`` or ``box.execute(deps=...)``; hidden from the
    model."""

    user_message: UserMessage | None = None
    """The user's message that the agent's run answers; None outside an agent. A nested agent has its own:
    its prompt."""

    place: Place | None = None
    """The call's place in a journaled run; None without a journal."""

    @property
    def idempotency_key(self) -> str:
        """A key that all attempts to make this call share, for services that take one.

        With a journal it is the same after a crash. Without one it consists of the run id and the call id.

        >>> ToolContext(run_id="order-7", call_id="c1").idempotency_key
        'order-7/c1'
        """
        return f"{self.run_id}/{self.call_id}" if self.place is None else f"{self.run_id}{self.place.path}"

    def derive(self, changes: dict[str, Any]) -> ToolContext[DepsT_co]:
        """Return a copy with some fields replaced.

        >>> ToolContext(memory_id="ada").derive({"agent_role": "writer"}).memory_id
        'ada'
        """
        derived: ToolContext[DepsT_co] = _blank(ToolContext)
        _set_fields(derived, self.__dict__ | changes)
        return derived

    def of_call(self, run: dict[str, Any], call_id: str) -> ToolContext[DepsT_co]:
        """Return a copy for one call of a run; a faster :meth:`derive`, because every call needs it.

        >>> ToolContext(memory_id="ada").of_call({"run_id": "run_1"}, "call_1").call_id
        'call_1'
        """
        fields = self.__dict__ | run
        fields["call_id"] = call_id
        derived: ToolContext[DepsT_co] = _blank(ToolContext)
        _set_fields(derived, fields)
        return derived

    def detach(self) -> ToolContext[Any]:
        """Return a copy that can be pickled for another process: without live objects, and with reviews rejected."""
        from toolsemble.review._automatic import AutoReject

        reject = AutoReject("the reviewer cannot be asked from a worker process")
        gates = tuple(each.detach(reject) for each in self.gates)
        review = None if self.review is None else reject
        # Without its images, which would be copied for every call.
        asked = None if self.user_message is None else type(self.user_message)(self.user_message.text)
        live = {"metrics": SILENT, "executor": THREADS, "deps": None}
        return self.derive({**live, "review": review, "gates": gates, "user_message": asked})

    def progress(self, fraction: float | None, message: str = "") -> None:
        """Report the progress of the call to sinks and streams; the model does not see it.

        :param fraction: the completed fraction of the work, from 0 to 1; None: unknown. Other numbers are clamped, and
            other values count as unknown, so that a wrong estimate does not fail the call.
        :param message: what is being done

        >>> ToolContext().progress(0.4, "page 4 of 10")
        """
        from toolsemble.events import CallProgress

        tell(CallProgress.of(self, fraction=_clamp_fraction(fraction), message=message))

    def request_approval(self, description: str, **terms: Unpack[ReviewTerms]) -> ReviewDecision:
        """Ask the reviewer during a call, and wait in this thread; return ``Continue()`` if there is no reviewer.

        It raises :class:`~toolsemble.ReviewTimeoutError` if no answer arrives in time and ``on_timeout`` is ``FAIL``.

        :param description: what the reviewer has to decide
        :param terms: ``arguments`` to show, a dict or a str (default: none); ``timeout`` in seconds (300; 0 or None
            waits forever), ``on_timeout`` (``EXIT_EARLY``), and the ``required_role`` of the reviewer (None)

        >>> ToolContext().request_approval("Send it?")
        Continue(always=None)
        """
        from toolsemble.review._gate import ask_during_call

        return ask_during_call(self, description, **terms)

    async def arequest_approval(self, description: str, **terms: Unpack[ReviewTerms]) -> ReviewDecision:
        """Ask the reviewer during a call, without blocking the event loop."""
        from toolsemble.review._gate import aask_during_call

        return await aask_during_call(self, description, **terms)


_blank = object.__new__
_set_fields = vars(ToolContext)["__dict__"].__set__


def _clamp_fraction(value: Any) -> float | None:
    try:
        fraction = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return None if math.isnan(fraction) else min(max(fraction, 0.0), 1.0)


_current: ContextVar[ToolContext | None] = ContextVar("toolsemble._engine.context", default=None)


_NONE: Mapping[tuple[str, str], bool] = {}

resumed_calls: ContextVar[Mapping[tuple[str, str], bool]] = ContextVar("toolsemble.resumed_calls", default=_NONE)
"""The resumed calls of a paused run, by enclosing call and id, and whether their work had begun.

The calls of a journaled run have a place instead."""


def is_resumed(context: ToolContext) -> bool:
    """Return whether a call began before its run was paused, parked or interrupted: sinks know its start.

    >>> is_resumed(ToolContext("pay", "call_1"))
    False
    """
    place = context.place
    if place is None:
        return (context.parent_id, context.call_id) in resumed_calls.get()
    return place.run is not None and place.run.has_begun(place.path)


def was_run(context: ToolContext) -> bool:
    """Return whether the work of a call began before its run was paused, parked or interrupted.

    >>> was_run(ToolContext("pay", "call_1"))
    False
    """
    place = context.place
    if place is None:
        return resumed_calls.get().get((context.parent_id, context.call_id), False)
    return place.run is not None and place.run.has_begun(place.path, asked=False)


# Not wrapped in functions, because every call uses them.
current_context: Callable[[], ToolContext | None] = _current.get
"""Returns the context of the current call, or None outside a call."""

enter: Callable[[ToolContext | None], Token[ToolContext | None]] = _current.set
"""Makes a context the current one, until :func:`leave`, or until the previous one is entered again.

Code that must survive an interrupt reads the previous context first: it may come before the token is stored."""


def leave(token: Token[ToolContext | None]) -> None:
    """Make the previous context the current one again."""
    try:  # noqa: SIM105 - suppress() would double the cost
        _current.reset(token)
    except ValueError:
        # The garbage collector closes a dropped coroutine in any context, where there is nothing to reset.
        pass


def restore(context: ToolContext, before: ToolContext | None) -> None:
    """Make the previous context the current one again, if ``context`` is still the current one.

    The garbage collector closes a dropped coroutine in any context, where there is nothing to reset.
    """
    if _current.get() is context:
        _current.set(before)


Run: TypeAlias = dict[str, Any]
"""The context fields that the calls of a turn share."""


class UnnamedRunId(GeneratedRunId):
    """The id of a toolbox run for which the program did not set one.

    >>> new_unnamed_run() == new_unnamed_run()
    False
    """

    __slots__ = ()


def new_unnamed_run() -> UnnamedRunId:
    """Return a new run id whose type shows that the program did not set it."""
    return UnnamedRunId(new_id())


def choose_new_run(*, reviews: bool, pages: bool) -> Callable[[], str]:
    """Return the function that generates run ids; most toolboxes need no more than a str, which is the fastest."""
    if pages:
        return new_unnamed_run
    return new_run_id if reviews else new_id


def run_of(
    own: ToolContext,
    memory_id: str | None,
    parameters: MutableMapping[str, Any] | None,
    deps: object,
    run_id: str | None,
    new_run: Callable[[], str],
) -> Run:
    """Return the context fields that the calls of a turn share; inside another call they join its run.

    :param own: the context of the toolbox
    :param new_run: returns a run id, if the program did not set one

    >>> sorted(run_of(ToolContext(), "ada", None, None, "run_1", new_id))
    ['memory_id', 'parameters', 'run_id']
    """
    outer = current_context()
    if outer is None and parameters is None and memory_id is None and run_id is None and deps is None:
        return {"parameters": InvocationParameters(), "run_id": new_run()}
    if run_id is not None and not isinstance(run_id, str):
        raise _wrong_type("run_id", "a str", run_id)
    if outer is not None and parameters is None:
        parameters = outer.parameters
    elif not isinstance(parameters, InvocationParameters):
        if parameters is not None and not isinstance(parameters, MutableMapping):
            raise _wrong_type("parameters", "a mutable mapping such as {'user': 'ada'}", parameters)
        parameters = InvocationParameters(parameters)
    run: Run = {"parameters": parameters}
    if outer is not None:
        run |= _inherit_run(own, outer)
    if memory_id is not None:
        if not isinstance(memory_id, str):
            raise _wrong_type("memory_id", "a str", memory_id)
        run["memory_id"] = memory_id
    if deps is not None:
        run["deps"] = deps
    if run_id is not None or outer is None:
        run["run_id"] = run_id or new_run()
    return run


def _wrong_type(name: str, expected: str, given: object) -> TypeError:
    return TypeError(f"The {name} of a call must be {expected}, not {given!r:.80}")


def _inherit_run(own: ToolContext, outer: ToolContext) -> Run:
    """Return the fields that a call inherits from the enclosing call, unless the toolbox sets them."""
    run: Run = {"run_id": outer.run_id, "deadline": outer.deadline, "parent_id": outer.call_id}
    if outer.place is not None and outer.place.is_scope:
        run["place"] = outer.place  # of the turn, in a journaled run
    if outer.expose_errors == "declared":
        run["expose_errors"] = "declared"  # the outer call hides errors from the model
    if outer.deps is not None:
        run["deps"] = outer.deps
    if outer.user_message is not None:
        run["user_message"] = outer.user_message
    if own.memory_id == _DEFAULTS.memory_id:
        run["memory_id"] = outer.memory_id
    if own.agent_role == _DEFAULTS.agent_role:
        run["agent_role"] = outer.agent_role
    if own.review is None:
        run["review"] = outer.review
    if own.gates or outer.gates:
        from toolsemble.review._gate import extend_gates

        run["gates"] = extend_gates(outer.gates, own.gates, run.get("review", own.review))
    return run


_DEFAULTS = ToolContext()
