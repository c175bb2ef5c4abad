"""The part of the path that a call with limits walks in place of its plain body."""

from __future__ import annotations

import time
from collections.abc import Generator
from dataclasses import replace
from functools import partial
from typing import Any

from toolsemble.context import ToolContext
from toolsemble.deadline import TimedOutError, left, sooner
from toolsemble.definition import ToolDefinition
from toolsemble.limits import Place, Slots, held_place
from toolsemble.policy import Inner, Layer, Policy
from toolsemble.record import note
from toolsemble.result import ToolResult
from toolsemble.work import TakeSlot, Work

_NOTHING = Policy()


def limited(
    definition: ToolDefinition, value: Any, context: ToolContext, slots: Slots | None, body: Inner
) -> Generator[Work, Any, Any]:
    """Walk the layers of a tool and its body, within its time; give what a body would return.

    :param slots: the places of the toolbox; None for any number
    :param body: gives the path of the body itself, for the context that it has to run in
    """
    policy = definition.policy or _NOTHING
    started = time.monotonic()
    own = None if policy.timeout is None else started + policy.timeout
    deadline = sooner(own, context.deadline)
    bounded = context.derive({"deadline": deadline})
    if slots is not None:
        body = partial(_placed, slots, body)
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
    return replace(returned, error_message=message)


def _placed(slots: Slots, inner: Inner, context: ToolContext) -> Generator[Work, Any, Any]:
    """Walk what is inside when there is a place; calls inside a call that has one need no other."""
    if held_place() is not None or not (yield TakeSlot(slots)):
        return (yield from inner(context))
    place = Place(slots)
    try:
        return (yield from inner(context))
    finally:
        place.leave()


def _around(layer: Layer, definition: ToolDefinition, value: Any, inner: Inner) -> Inner:
    return lambda context: layer.around(definition, value, context, inner)
