"""The body of a call with limits: its own, the toolbox's, or an enclosing call's deadline."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Hashable
from concurrent.futures import Executor
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from toolsemble._engine.context import ToolContext
from toolsemble._engine.definition import Inner, Layer, Policy, ToolDefinition
from toolsemble._engine.execution.call import Call
from toolsemble._engine.limits.rate import RateLimit, count_start, wait_for_turn
from toolsemble._engine.record import count_and_log
from toolsemble._engine.work.body import (
    RunBody,
    Start,
    TimedOutError,
    Work,
    check_time_left,
    earliest,
    is_past,
    run_in_context,
)
from toolsemble._engine.work.snapshot import Snapshot, is_bound
from toolsemble._engine.work.timeout import RunUntil
from toolsemble._engine.work.wait import Acquire, Sleep, WouldBlockLoopError
from toolsemble._runtime.lazy import LazyModule
from toolsemble._runtime.locks import TABLE, DeadlockError, Hold, Slots, current_hold
from toolsemble._runtime.text import describe_with_class
from toolsemble._runtime.watchers import tell
from toolsemble._runtime.work_clock import WorkClock, current_clock
from toolsemble._vocabulary.errors import LimitReachedError, PassThroughError
from toolsemble._vocabulary.result import ToolResult
from toolsemble.events import CallTimedOut

Path: TypeAlias = Generator[Work, Any, Any]

_NO_LIMITS = Policy()
_UNCAUGHT = PassThroughError
_DEADLOCK = "Deadlock: it needs a resource that an enclosing call holds"


def apply_limits(definition: ToolDefinition, value: Any, context: ToolContext, box: Slots | None, body: Inner) -> Path:
    """Run the layers of a tool and its body within its timeout; return what the body returns.

    :param box: the slots of the toolbox; None for no limit
    :param body: returns the path of the body itself, in the given context
    """
    policy = definition.policy or _NO_LIMITS
    for layer in policy.nearest:
        body = _wrap(layer, definition, value, body)
    if policy.layers or policy.timeout is not None or context.deadline is not None:
        return _run_within_timeout(definition, policy, value, context, box, body)
    return _within_slots(policy, box, definition, value, body)(context)


def _within_slots(policy: Policy, box: Slots | None, definition: ToolDefinition, value: Any, inner: Inner) -> Inner:
    """Return the path that runs once the call has its slots, resources and rate limit turns."""
    if box is None and policy.needs is None and not policy.rates:
        return inner
    return partial(_run_in_slots, box, definition, value, inner)


def _run_within_timeout(
    definition: ToolDefinition, policy: Policy, value: Any, context: ToolContext, box: Slots | None, body: Inner
) -> Path:
    """Run the layers of a tool and its body until the deadline; a later end is a timeout.

    A nested call with the same deadline may notice it first, and the body may then return or raise anything, so what
    counts is when the body ended, not what it returned.
    """
    started = time.monotonic()
    own = None if policy.timeout is None else started + policy.timeout
    deadline = earliest(own, context.deadline)
    bounded = context if deadline == context.deadline else context.derive({"deadline": deadline})
    started_bodies: list[Inner] = []
    body = _within_slots(policy, box, definition, value, partial(_start_body, started_bodies, body))
    for layer in policy.layers:
        body = _wrap(layer, definition, value, body)
    returned: Any = None
    cause = ""
    try:
        check_time_left(bounded)
        returned = yield from body(bounded)
    except TimedOutError:
        yield from _wait_until(deadline)
    except Exception as error:
        # The reason why a call could not start is more useful than a timeout.
        if not started_bodies or not is_past(deadline) or _is_uncaught(error):
            raise
        cause = f"; then it raised {describe_with_class(error)}"
    else:
        # A flow checks the deadline itself, while it can still undo its steps.
        is_flow = definition.flow is not None and isinstance(returned, ToolResult)
        if not is_past(deadline) or (is_flow and returned.is_success):
            return returned
    seconds = policy.timeout if deadline == own and policy.timeout is not None else time.monotonic() - started
    message = f"Tool '{definition.name}' timed out after {round(seconds, 3):g} s"
    count_and_log(context, "timeouts", message + cause)
    tell(CallTimedOut.of(context, seconds=seconds))
    if isinstance(returned, ToolResult) and not returned.is_success:
        # Its attributes list a pipeline's finished steps.
        return replace(returned, error_message=message, error_kind="timeout")
    # For a journal: a body that was cut off may have taken effect.
    is_unknown = bool(started_bodies) and context.place is not None
    facts = {"outcome": "unknown"} if is_unknown else None
    return ToolResult.failure(message, attributes=facts, error_kind="timeout")


def _start_body(started_bodies: list[Inner], body: Inner, context: ToolContext) -> Path:
    """Return the path of a body, and record that it was started."""
    started_bodies.append(body)
    return body(context)


def _wait_until(deadline: float | None) -> Path:
    """Wait until a deadline has passed: timers may wake a little early, and others compare the clock."""
    while deadline is not None and (rest := deadline - time.monotonic()) > 0:
        yield Sleep(rest)


def _is_uncaught(error: Exception) -> bool:
    """Return whether an exception, or one in a group, must reach the caller."""
    return isinstance(error, _UNCAUGHT) or (isinstance(error, ExceptionGroup) and error.subgroup(_UNCAUGHT) is not None)


def _run_in_slots(
    box: Slots | None, definition: ToolDefinition, value: Any, inner: Inner, context: ToolContext
) -> Path:
    """Run the inner path once the call has its slots and resources, and its rate limits let it start."""
    policy, enclosing = definition.policy or _NO_LIMITS, current_hold()
    needed: tuple[Hashable, ...] = () if policy.needs is None else tuple(policy.needs(value))
    # Calls nested in a call with a toolbox slot need no slot of their own.
    if box is not None and not (enclosing is not None and enclosing.has_box_slot()):
        needed = (*needed, box)
    if policy.rates:
        return (
            yield from _run_rate_limited(definition, policy.rates, partial(Hold, needed, enclosing), inner, context)
        )
    if not needed:
        return (yield from inner(context))
    hold = Hold(needed, enclosing)
    try:
        if not TABLE.acquire(hold):
            yield from _wait_for_hold(hold, context)
        hold.enter()
        return (yield from inner(context))
    except DeadlockError:
        raise LimitReachedError(_DEADLOCK) from None
    finally:
        try:
            hold.leave()
        except BaseException:
            hold.leave()  # an interrupt cut it off
            raise


def _wait_for_hold(hold: Hold, context: ToolContext) -> Path:
    """Wait until a call has its slots and resources, or can continue without them."""
    try:
        yield Acquire(hold, context)
    except WouldBlockLoopError:
        # If only the toolbox is full, tasks of this event loop may hold its slots: the call then runs without one.
        if not all(isinstance(name, Slots) and name.box for name in hold.names):
            raise
        TABLE.release(hold)


def _run_rate_limited(
    definition: ToolDefinition,
    rates: tuple[RateLimit, ...],
    make_hold: Callable[[], Hold],
    inner: Inner,
    context: ToolContext,
) -> Path:
    """Run the inner path once the call has its slots and resources, and its rate limits let it start.

    No slot is held during the wait for a rate limit: other calls may need it. A call that has its slots but may not
    start releases them and queues again, at its old position.
    """
    number: int | None = None
    while True:
        hold, start = make_hold(), Start()
        number = hold.number = hold.number if number is None else number
        try:
            started = yield from wait_for_turn(rates, start, number, context, partial(_has_slots, hold))
            if not started and not hold.slots and hold.names:
                yield from _wait_for_hold(hold, context)
                started = count_start(rates, start)
            if started:
                hold.enter()
                return (yield from _count_body(definition, inner(context), start))
        except DeadlockError:
            raise LimitReachedError(_DEADLOCK) from None
        finally:
            start.wanted = False
            try:
                hold.leave()
            except BaseException:
                hold.leave()  # as above
                raise


def _has_slots(hold: Hold) -> bool:
    return not hold.names or TABLE.acquire(hold)


def _count_body(definition: ToolDefinition, path: Path, start: Start) -> Path:
    """Run a body's path, and count the body when it starts."""
    if definition.flow is not None or (definition.policy or _NO_LIMITS).nearest:
        start.begin()
        return (yield from path)
    try:
        work: Any = next(path)  # the body: the path of a tool that is not a flow yields nothing else
        work.track_start(start)
        done = yield work
    except BaseException as error:
        if path.gi_frame is None:  # type: ignore[attr-defined]  # a generator
            raise  # the path has ended with it
        return path.throw(error)
    try:
        return path.send(done)
    except StopIteration as end:
        return end.value


def _wrap(layer: Layer, definition: ToolDefinition, value: Any, inner: Inner) -> Inner:
    return lambda context: layer.around(definition, value, context, inner)


if TYPE_CHECKING:
    from toolsemble._engine.execution import journaled_call as journaled
else:
    journaled = LazyModule("toolsemble._engine.execution.journaled_call")


def run_limited(call: Call) -> Generator[Work, Any, Any]:
    """Return the path of the body within its limits."""
    definition, settings = call.definition, call.settings
    own = Snapshot(definition, call.given) if is_bound(definition) else None
    if own is not None:
        call.given = own.value

    has_begun = False

    def body(bounded: ToolContext) -> Generator[Work, Any, Any]:
        nonlocal has_begun
        value = call.given if own is None else own.take()
        begins, has_begun = not has_begun, True
        if begins:  # a retry belongs to the work
            call.started = time.perf_counter()
        if definition.flow is not None:
            return (yield from definition.flow(value, bounded, settings.for_parts_of(definition), call.report))
        work = _choose_work(definition, value, bounded, settings.workers)
        if begins and bounded.place is not None:
            work = journaled.record_start(call, work, value)
        if not definition.delegates and (clock := current_clock.get()) is not None:
            work = _MeasuredWork(work, clock)
        return (yield from run_in_context(work, bounded))

    # The functions that derive keys and resource names get a copy, too: they may change their argument.
    return apply_limits(definition, call.given if own is None else own.take(), call.context, settings.slots, body)


class _MeasuredWork:
    """A body's work in a run whose working time is measured."""

    __slots__ = ("_clock", "_work")

    def __init__(self, work: Any, clock: WorkClock) -> None:
        self._work = work
        self._clock = clock

    def track_start(self, start: Any) -> None:
        """Report to a start when the body begins."""
        self._work.track_start(start)

    def do(self) -> Any:
        """Run the body here."""
        with self._clock.working():
            return self._work.do()

    async def ado(self) -> Any:
        """Run the body without blocking the event loop."""
        with self._clock.working():
            return await self._work.ado()


def _choose_work(definition: ToolDefinition, given: Any, context: ToolContext, workers: Executor) -> Work:
    """Return the work that runs a body within its limits."""
    if definition.policy is not None and definition.policy.cluster is not None:
        from toolsemble._engine.work.remote import RunOnCluster

        return RunOnCluster(definition, given, context)
    if definition.policy is not None and definition.policy.isolation == "process":
        from toolsemble._engine.work.remote import RunInProcess

        return RunInProcess(definition, given, context)
    # A body that never blocks needs no timer.
    if context.deadline is None or (definition.inline and not definition.awaits):
        return RunBody(definition, given, context, workers)
    return RunUntil(definition, given, context, workers)
