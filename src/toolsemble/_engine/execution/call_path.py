"""The drivers of a call path: in this thread, on an event loop, or in a worker while the caller continues.

A path yields work; a driver does it, knows nothing about tools, and sends the result or throws the exception.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from concurrent.futures import Executor
from typing import TYPE_CHECKING, Any, TypeVar, cast

from toolsemble._engine.context import ToolContext, current_context, enter, restore, was_run
from toolsemble._engine.definition import ToolDefinition
from toolsemble._engine.execution.call import Call, CallPath, CallSettings, SubCallReport, check_deps
from toolsemble._engine.record import record, record_repairs
from toolsemble._engine.work.body import RunBody, Work
from toolsemble._runtime.event_loops import SharedLoop, unwrap_outcome
from toolsemble._runtime.lazy import LazyModule
from toolsemble._runtime.watchers import watchers
from toolsemble._schema.decode import Read
from toolsemble._vocabulary.errors import ToolArgumentsError
from toolsemble._vocabulary.result import ToolResult

if TYPE_CHECKING:
    from toolsemble._engine.execution import (
        journaled_call as journaled,
        limited_call as limited,
        observed_call as observed,
    )
else:  # loaded by the first call that needs them; most calls have no limits, no journal and no sinks
    journaled, limited, observed = (
        LazyModule("toolsemble._engine.execution.journaled_call"),
        LazyModule("toolsemble._engine.execution.limited_call"),
        LazyModule("toolsemble._engine.execution.observed_call"),
    )


T = TypeVar("T")


def drive(path: Generator[Work, Any, T], interrupt: BaseException | None = None) -> T:
    """Return what a path returns, such as the result of a call, doing its work in this thread.

    :param interrupt: an exception to raise where the path is suspended
    """
    try:
        work = path.send(None) if interrupt is None else path.throw(interrupt)
        while True:
            try:
                done = work.do()
            except BaseException as error:  # the path handles it
                work = path.throw(error)
            else:
                work = path.send(done)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]  # StopIteration does not have the generator's type
    except BaseException as raised:
        if path.gi_frame is None:  # type: ignore[attr-defined]  # it is a generator
            raise  # the path has ended with it
        return drive(path, raised)  # an interrupt came just after the path had yielded


async def adrive(path: Generator[Work, Any, T]) -> T:
    """Return what a path returns, such as the result of a call, awaiting its work."""
    try:
        work = path.send(None)
        while True:
            try:
                doing = work.ado()
                del work  # fewer objects for the garbage collector when thousands of calls wait
                done = await doing
            except BaseException as error:  # the path handles it
                work = path.throw(error)
            else:
                work = path.send(done)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]  # StopIteration does not have the generator's type
    except BaseException:
        path.close()  # an interrupt may come just after the path has yielded; otherwise this does nothing
        raise


def drive_in_worker(path: CallPath, loop: SharedLoop, ended: Callable[[], object]) -> Generator[None, None, ToolResult]:
    """Return the result of a call whose body blocks, without waiting in this thread.

    Yields once the body runs in a worker; resume it after ``ended`` was called.
    """
    try:
        work = path.send(None)
        while True:
            try:
                future = cast("RunBody", work).begin(loop)  # such paths yield nothing else
                future.add_done_callback(lambda _: ended())
                try:
                    yield
                except BaseException:
                    future.cancel()  # no caller waits for its result
                    raise
                done = unwrap_outcome(future.result())
            except BaseException as error:  # the path handles it
                work = path.throw(error)
            else:
                work = path.send(done)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]  # as above


def call_path(call: Call) -> CallPath:
    """Run one call from its input as sent to its result; raise only what must reach the caller."""
    call.started = time.perf_counter()
    observe(call)
    try:
        try:
            if call.instrumentation is None and call.definition.gate is None:
                goes_on = read(call)
            else:
                goes_on = yield from observed.read_and_approve(call)
            if goes_on:
                call.succeed((yield from run(call)))
        except BaseException as error:
            if not call.fail(error):
                raise
        if call.settings.hooks is not None:
            yield from observed.answer(call)
    finally:
        try:
            end(call)
        except BaseException:
            if call.instrumentation is not None:
                call.instrumentation.forget_secrets()  # an interrupt came before end() was done
            raise
    return call.result  # type: ignore[return-value]  # a call without a result has raised


def start_call(call: Call) -> CallPath:
    """Return the path of a call; a journaled call is answered from the journal if its result is recorded."""
    path = call_path(call)
    return path if call.context.place is None else journaled.run_once(call, path)


def observe(call: Call) -> None:
    """Create the instrumentation of a call that needs it; most calls do not."""
    if (watching := watchers()) or call.definition.secret or call.settings.hooks is not None:
        observed.instrument(call, watching)


def read(call: Call) -> bool:
    """Read and validate the arguments; return whether the call continues."""
    try:
        call.given, call.repairs = call.read(call.given, call.settings.steps)
    except ToolArgumentsError as refusal:
        call.refuse(refusal)
        return False
    if call.definition.deps_need is not None:
        check_deps(call)
    return True


def run(call: Call) -> Generator[Work, Any, Any]:
    """Return the path of the body: directly, or within its limits."""
    definition, context, settings = call.definition, call.context, call.settings
    if call.repairs and not was_run(context):
        record_repairs(context, call.repairs, settings.log_limit)
    if call.report is not None:
        call.report.begin(call.given)
    policy = definition.policy
    limits = policy is not None and policy.limits
    if limits or context.deadline is not None or settings.slots is not None or context.place is not None:
        return limited.run_limited(call)
    if definition.flow is not None:
        return definition.flow(call.given, context, settings.for_parts_of(definition), call.report)
    return _run_body(definition, call.given, context, settings.workers)


def _run_body(
    definition: ToolDefinition, given: Any, context: ToolContext, workers: Executor
) -> Generator[Work, Any, Any]:
    """Run a body inside its context: :func:`run_in_context`, which keeps nothing while the body runs.

    Thousands of calls may wait at once: the fewer objects each keeps, the less the garbage collector has to visit.
    """
    before = current_context()
    try:
        enter(context)
        returned = yield RunBody(definition, given, context, workers)
    except GeneratorExit:
        restore(context, before)
        raise
    except BaseException:
        enter(before)  # one call into C: an interrupt cannot split it
        raise
    enter(before)  # as above
    return returned


def end(call: Call) -> None:
    """Record the call, and notify its observers."""
    duration = time.perf_counter() - call.started
    given, result, raised = call.given, call.result, call.raised
    call.raised = None  # its traceback refers to the path; without the cycle both are freed at once
    if call.report is not None:
        call.report.end(call.definition.name, given, result, raised, duration)
    record(call.context, given, result, raised, duration, call.settings.log_limit)
    if call.instrumentation is not None:
        call.instrumentation.finish(given, result, raised, duration)


def start_sub_call(
    settings: CallSettings,
    part: ToolDefinition,
    read: Read,
    given: Any,
    context: ToolContext,
    report: SubCallReport,
    number: int,
    *,
    place_name: str = "",
) -> CallPath:
    """Return the path of a sub-call; its id is the id of the parent and a number.

    :param place_name: its name in a journal; empty: the number
    """
    whole, place = context.call_id, context.place
    changes = {"tool_name": part.name, "call_id": f"{whole}.{number}", "parent_id": whole, "logger": part.logger}
    if place is not None:
        changes["place"] = place.inner(place_name or number, is_scope=part.delegates)
    return start_call(Call(part, read, given, context.derive(changes), settings, report))
