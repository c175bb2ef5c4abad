"""The part of the path that a call with limits walks in place of its plain body."""

from __future__ import annotations

import time
from collections.abc import Generator
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias

from toolsemble.claim import Seats
from toolsemble.context import ToolContext
from toolsemble.deadline import TimedOutError, left, sooner
from toolsemble.definition import ToolDefinition
from toolsemble.errors import ToolExecutionError
from toolsemble.events import CallTimedOut
from toolsemble.limits import TABLE, Hold, held
from toolsemble.policy import Inner, Layer, Policy
from toolsemble.record import note
from toolsemble.result import ToolResult
from toolsemble.table import EndlessWaitError
from toolsemble.waiting import StandstillError, Take
from toolsemble.watch import tell
from toolsemble.work import Work

Path: TypeAlias = Generator[Work, Any, Any]

_NOTHING = Policy()


def limited(definition: ToolDefinition, value: Any, context: ToolContext, box: Seats | None, body: Inner) -> Path:
    """Walk the layers of a tool and its body, within its time; give what a body would return.

    :param box: the places of the toolbox; None for any number
    :param body: gives the path of the body itself, for the context that it has to run in
    """
    policy = definition.policy or _NOTHING
    if policy.layers or policy.timeout is not None or context.deadline is not None:
        return _timed(definition, policy, value, context, box, body)
    return _placed(box, policy, value, body, context)


def _timed(
    definition: ToolDefinition, policy: Policy, value: Any, context: ToolContext, box: Seats | None, body: Inner
) -> Path:
    """Walk the layers of a tool and its body until its time is up."""
    started = time.monotonic()
    own = None if policy.timeout is None else started + policy.timeout
    deadline = sooner(own, context.deadline)
    bounded = context if deadline == context.deadline else context.derive({"deadline": deadline})
    if box is not None or policy.needs is not None:
        body = partial(_placed, box, policy, value, body)
    for layer in policy.layers:
        body = _around(layer, definition, value, body)
    try:
        left(bounded)
        returned = yield from body(bounded)
    except TimedOutError:
        returned = ToolResult.failure()
    else:
        late = deadline is not None and time.monotonic() >= deadline
        if not late or not isinstance(returned, ToolResult) or returned.is_success:
            return returned
    # What failed when the time was up, such as a step that inherited the deadline, failed for that reason.
    seconds = policy.timeout if deadline == own and policy.timeout is not None else time.monotonic() - started
    message = f"Tool '{definition.name}' timed out after {round(seconds, 3):g} s"
    note(context, "timeouts", message)
    tell(CallTimedOut.of(context, seconds=seconds))
    return replace(returned, error_message=message)


def _placed(box: Seats | None, policy: Policy, value: Any, inner: Inner, context: ToolContext) -> Path:
    """Walk what is inside when the call has all that it holds while it runs."""
    around = held()
    names = () if policy.needs is None else tuple(policy.needs(value))
    # Calls inside a call that has a place of a box need no other.
    counted = box is not None and not (around is not None and around.in_box())
    if not counted and not names:
        return (yield from inner(context))
    hold = Hold((*names, box) if counted else names, around)
    try:
        if not TABLE.ask(hold):
            yield Take(hold, context)
    except EndlessWaitError:
        raise ToolExecutionError(
            "It needs what the calls around it hold, or what waits for them, so it would wait for ever"
        ) from None
    except StandstillError:
        # Where only the box is full, the event loop's own tasks may fill it: the call is not counted then.
        if names:
            raise
        return (yield from inner(context))
    hold.enter()
    try:
        return (yield from inner(context))
    finally:
        hold.leave()


def _around(layer: Layer, definition: ToolDefinition, value: Any, inner: Inner) -> Inner:
    return lambda context: layer.around(definition, value, context, inner)
