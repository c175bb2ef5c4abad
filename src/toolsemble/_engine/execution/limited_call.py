"""The body of a call with limits: its own, those of the toolbox, or the deadline of a call around it.

Most calls have none, and do not load this.
"""

from __future__ import annotations

import time
from collections.abc import Generator
from concurrent.futures import Executor
from typing import TYPE_CHECKING, Any

from toolsemble._engine.context import ToolContext
from toolsemble._engine.definition import ToolDefinition
from toolsemble._engine.execution.call import Call
from toolsemble._engine.limits.apply import apply_limits
from toolsemble._engine.work.body import RunBody, Work, run_in_context
from toolsemble._engine.work.snapshot import Snapshot, is_bound
from toolsemble._engine.work.timeout import RunUntil
from toolsemble._runtime.lazy import LazyModule
from toolsemble._runtime.work_clock import WorkClock, current_clock

if TYPE_CHECKING:
    from toolsemble._engine.execution import journaled_call as journaled
else:
    journaled = LazyModule("toolsemble._engine.execution.journaled_call")


def run_limited(call: Call) -> Generator[Work, Any, Any]:
    """Return the path of the body with its limits around it."""
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
    """The work of a body in a run whose time is measured."""

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
