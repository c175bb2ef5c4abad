"""The part of the path that a call with limits walks in place of its plain body."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Hashable
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias

from toolsemble.context import ToolContext
from toolsemble.definition.definition import ToolDefinition
from toolsemble.definition.policy import Inner, Layer, Policy
from toolsemble.errors import ExitEarlyError, ToolConfigurationError, ToolExecutionError
from toolsemble.events import CallTimedOut
from toolsemble.limits.rate import RateLimit, counted, lined_up
from toolsemble.locks.claims import Seats
from toolsemble.locks.holds import TABLE, Hold, held
from toolsemble.locks.table import EndlessWaitError
from toolsemble.observers.watchers import tell
from toolsemble.record import count_and_log
from toolsemble.result import ToolResult
from toolsemble.shape import describe_error
from toolsemble.work.body import Work
from toolsemble.work.deadline import TimedOutError, check_time_left, earliest, is_past
from toolsemble.work.start import Start
from toolsemble.work.wait import Acquire, Sleep, WouldBlockLoopError

Path: TypeAlias = Generator[Work, Any, Any]

_NOTHING = Policy()
_PASSING = (ExitEarlyError, ToolConfigurationError)
_ENDLESS = "It needs what the calls around it hold, or what waits for them, so it would wait for ever"


def limited(definition: ToolDefinition, value: Any, context: ToolContext, box: Seats | None, body: Inner) -> Path:
    """Walk the layers of a tool and its body, within its time; give what a body would return.

    :param box: the places of the toolbox; None for any number
    :param body: gives the path of the body itself, for the context that it has to run in
    """
    policy = definition.policy or _NOTHING
    for layer in policy.nearest:
        body = _around(layer, definition, value, body)
    if policy.layers or policy.timeout is not None or context.deadline is not None:
        return _timed(definition, policy, value, context, box, body)
    return _placed(box, definition, value, body, context)


def _timed(
    definition: ToolDefinition, policy: Policy, value: Any, context: ToolContext, box: Seats | None, body: Inner
) -> Path:
    """Walk the layers of a tool and its body until its time is up; whatever comes later is a timeout.

    A call inside another one that has its deadline may notice first, and the body around it may then return or raise
    anything: so it counts when something came, not what. Who has set the deadline is past it by then, too.
    """
    started = time.monotonic()
    own = None if policy.timeout is None else started + policy.timeout
    deadline = earliest(own, context.deadline)
    bounded = context if deadline == context.deadline else context.derive({"deadline": deadline})
    begun: list[Inner] = []
    body = partial(_begin, begun, body)
    if box is not None or policy.needs is not None or policy.rates:
        body = partial(_placed, box, definition, value, body)
    for layer in policy.layers:
        body = _around(layer, definition, value, body)
    returned: Any = None
    cause = ""
    try:
        check_time_left(bounded)
        returned = yield from body(bounded)
    except TimedOutError:
        yield from _waited_out(deadline)
    except Exception as error:
        # Why a call could not even begin is worth more than that it has no time left.
        if not begun or not is_past(deadline) or _must_pass(error):
            raise
        cause = f"; then it raised {type(error).__name__}: {describe_error(error)}"
    else:
        if not is_past(deadline) or (definition.flow is not None and _succeeded(returned)):
            return returned
    seconds = policy.timeout if deadline == own and policy.timeout is not None else time.monotonic() - started
    message = f"Tool '{definition.name}' timed out after {round(seconds, 3):g} s"
    count_and_log(context, "timeouts", message + cause)
    tell(CallTimedOut.of(context, seconds=seconds))
    if isinstance(returned, ToolResult) and not returned.is_success:
        return replace(returned, error_message=message)  # what a pipeline did until then stands in its attributes
    return ToolResult.failure(message)


def _begin(begun: list[Inner], body: Inner, context: ToolContext) -> Path:
    """Return the path of a body, and note that it was begun."""
    begun.append(body)
    return body(context)


def _waited_out(deadline: float | None) -> Path:
    """Wait until a deadline has really passed: timers may wake a little early, and others look at the clock."""
    while deadline is not None and (rest := deadline - time.monotonic()) > 0:
        yield Sleep(rest)


def _succeeded(returned: Any) -> bool:
    """Return whether a flow has succeeded: it has looked at the clock itself, while it still could undo its steps."""
    return isinstance(returned, ToolResult) and returned.is_success


def _must_pass(error: Exception) -> bool:
    """Return whether an exception must reach the caller, also one inside a group."""
    return isinstance(error, _PASSING) or (isinstance(error, ExceptionGroup) and error.subgroup(_PASSING) is not None)


def _placed(box: Seats | None, definition: ToolDefinition, value: Any, inner: Inner, context: ToolContext) -> Path:
    """Walk what is inside when the call has all that it holds while it runs, and its rate limits let it begin."""
    policy, around = definition.policy or _NOTHING, held()
    needed: tuple[Hashable, ...] = () if policy.needs is None else tuple(policy.needs(value))
    # Calls inside a call that has a place of a box need no other.
    if box is not None and not (around is not None and around.in_box()):
        needed = (*needed, box)
    if policy.rates:
        return (yield from _rated(definition, policy.rates, partial(Hold, needed, around), inner, context))
    if not needed:
        return (yield from inner(context))
    hold = Hold(needed, around)
    try:
        if not TABLE.ask(hold):
            yield from _waited(hold, context)
        hold.enter()
        return (yield from inner(context))
    except EndlessWaitError:
        raise ToolExecutionError(_ENDLESS) from None
    finally:
        try:
            hold.leave()
        except BaseException:
            hold.leave()  # an interrupt came before it was done
            raise


def _waited(hold: Hold, context: ToolContext) -> Path:
    """Wait until a call has what it asked for, or can go on without."""
    try:
        yield Acquire(hold, context)
    except WouldBlockLoopError:
        # Where only the box is full, the event loop's own tasks may fill it: the call is not counted then.
        if not all(isinstance(name, Seats) and name.box for name in hold.names):
            raise
        TABLE.give_back(hold)


def _rated(
    definition: ToolDefinition,
    rates: tuple[RateLimit, ...],
    make_hold: Callable[[], Hold],
    inner: Inner,
    context: ToolContext,
) -> Path:
    """Walk what is inside when the call has what it holds while it runs, and may begin, both at the same time.

    No place is held while a rate limit is waited for: other calls may need it. So a call that has waited for its
    places, and may not begin when it has them, gives them back and lines up again, where it stood before.
    """
    number: int | None = None
    while True:
        hold, start = make_hold(), Start()
        number = hold.number = hold.number if number is None else number
        try:
            began = yield from lined_up(rates, start, number, context, partial(_has_places, hold))
            if not began and not hold.seats and hold.names:
                yield from _waited(hold, context)
                began = counted(rates, start)
            if began:
                hold.enter()
                return (yield from _counted(definition, inner(context), start))
        except EndlessWaitError:
            raise ToolExecutionError(_ENDLESS) from None
        finally:
            start.wanted = False
            try:
                hold.leave()
            except BaseException:
                hold.leave()  # as above
                raise


def _has_places(hold: Hold) -> bool:
    return not hold.names or TABLE.ask(hold)


def _counted(definition: ToolDefinition, path: Path, start: Start) -> Path:
    """Walk the path of a body, and have it taken down when the body begins."""
    if definition.flow is not None or (definition.policy or _NOTHING).nearest:
        start.begin()
        return (yield from path)
    try:
        work: Any = next(path)  # the body: the path of a tool that is not made of tools asks for nothing else
        work.track_start(start)
        done = yield work
    except BaseException as error:
        if path.gi_frame is None:  # type: ignore[attr-defined]  # it is a generator of ours
            raise  # the path has come to its end with it
        return path.throw(error)
    try:
        return path.send(done)
    except StopIteration as end:
        return end.value


def _around(layer: Layer, definition: ToolDefinition, value: Any, inner: Inner) -> Inner:
    return lambda context: layer.around(definition, value, context, inner)
