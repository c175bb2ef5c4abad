"""The one path of a call, written once, and the drivers that walk it.

The path is a generator: it yields what it needs done and is sent what came of it. The sync driver does the
work in its thread, the async driver awaits it, and a third one has it begun in a worker and lets others go on
meanwhile; none of them knows what the path is about.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, TypeAlias, cast

from toolsemble.context import ToolContext, current_context, enter, reset, restore
from toolsemble.definition.definition import ToolDefinition
from toolsemble.errors import ToolArgumentsError
from toolsemble.execution.approval import RejectedError, approved
from toolsemble.execution.failure import failed, passing, refused
from toolsemble.execution.hooks import AnsweredError, Around
from toolsemble.execution.instrumentation import Escort
from toolsemble.limits.apply import apply_limits
from toolsemble.locks.claims import Slots
from toolsemble.observers.watchers import watchers
from toolsemble.record import LOG_LIMIT, record, record_repairs
from toolsemble.result import ToolResult
from toolsemble.runtime.concurrency import THREADS, SharedLoop, received, unwrapped
from toolsemble.schema.decode import Decoded, Repair
from toolsemble.schema.repair import STEPS
from toolsemble.shape import shaped
from toolsemble.work.body import RunBody, Work, entered
from toolsemble.work.process import RunApart
from toolsemble.work.snapshot import Snapshot, is_bound
from toolsemble.work.timeout import RunUntil

CallPath: TypeAlias = Generator[Work, Any, ToolResult]


class Trace:
    """What became of one call, for the call that it is a part of."""

    # Defaults of the class: a trace is made for every step, and most of them stay as they are.
    given: Any = None
    """What the body got, or what was handed over when that did not fit."""
    threw: str = ""
    """The tool whose body raised, and did not just give a failed result; empty for none."""
    duration: float = 0.0
    """How many seconds the work took."""
    undos: tuple[Any, ...] = ()
    """How to undo what was done inside, oldest first."""
    undone: tuple[Any, ...] = ()
    """What became of undoing it, where an exception ended the call and there is no result to tell."""

    def end(self, name: str, given: Any, result: ToolResult | None, raised: BaseException | None, took: float) -> None:
        """Take down the end of the call of a tool."""
        self.given, self.duration = given, took
        if raised is not None and (result is None or result.error_message is not None):
            self.threw = name


@dataclass(frozen=True, slots=True)
class Walk:
    """How paths are walked: what the calls of a toolbox, and the calls inside those, have in common."""

    steps: frozenset[str] = STEPS
    """The steps of repair that are allowed."""
    slots: Slots | None = None
    """The places that bodies take; None for any number."""
    workers: Executor = THREADS
    """Where blocking bodies run beside each other."""
    log_limit: int = LOG_LIMIT
    """How many characters of input and output a log line shows."""
    hooks: Around | None = None
    """What the program does before and after each call; None for nothing."""
    approved: bool = False
    """Whether a reviewer has approved what the parts are given, so that none of them may change it for another."""

    def path(
        self,
        part: ToolDefinition,
        read: Callable[[Any, frozenset[str]], Decoded],
        given: Any,
        context: ToolContext,
        trace: Trace,
        number: int,
    ) -> CallPath:
        """Give the path of a call of one part, inside the context of the whole; its id is the whole's and a number."""
        whole = context.call_id
        own = context.derive(
            {"tool_name": part.name, "call_id": f"{whole}.{number}", "parent_id": whole, "logger": part.logger}
        )
        return call_path(part, read, given, own, self, trace)


def call_path(  # noqa: C901, PLR0912, PLR0915 - the one path: its steps stand here in their order
    definition: ToolDefinition,
    read: Callable[[Any, frozenset[str]], Decoded],
    given: Any,
    context: ToolContext,
    walk: Walk = Walk(),  # noqa: B008 - it never changes
    trace: Trace | None = None,
) -> CallPath:
    """Walk one call from what was given to its result; raise only what must reach the caller."""
    # Most calls are watched by nobody, take no secrets and have no hooks, no gate and no limits: they pay for none.
    escort: Escort | None = None
    if (watched := watchers()) or definition.secret or walk.hooks is not None:
        escort = Escort(definition, context, given, walk.hooks, watched)
        context = escort.context
    result: ToolResult | None = None
    raised: BaseException | None = None
    began: list[float] | None = None
    repairs: Sequence[Repair] = ()
    started = time.perf_counter()
    try:
        try:
            if escort is None and definition.gate is None:
                given, repairs = read(given, walk.steps)
            elif escort is not None and escort.only_reads:
                escort.enter()
                sent, given = given, escort.unread
                given, repairs = escort.read(read, sent, walk.steps)
            else:
                if escort is not None:
                    escort.enter()
                entry = _Entry(given, started)
                try:
                    yield from _agreed(definition, read, entry, context, walk, escort)
                finally:
                    given, repairs, started = entry.given, entry.repairs, entry.started
        except (ToolArgumentsError, RejectedError) as refusal:
            result = refused(refusal, context)
            if escort is not None:
                escort.refusal = refusal
        except AnsweredError as answer:
            result = answer.result
        else:
            if repairs:
                record_repairs(context, repairs, walk.log_limit)
            policy = definition.policy
            if (policy is None or not policy.limits) and context.deadline is None and walk.slots is None:
                if definition.flow is None:
                    before = current_context()  # as entered() does, for what nearly every call does
                    try:
                        token = enter(context)
                        returned = yield RunBody(definition, given, context, walk.workers)
                    except GeneratorExit:
                        restore(context, before)
                        raise
                    except BaseException:
                        enter(before)  # one call into C: no interrupt comes before it is done
                        raise
                    try:  # noqa: SIM105 - suppress() would double the cost of entering and leaving
                        reset(token)  # likewise, and quicker
                    except ValueError:
                        pass  # whoever drives it walks on in another context, where there is nothing to undo
                else:
                    returned = yield from definition.flow(given, context, _inside(definition, walk), trace)
            else:
                own = Snapshot(definition, given) if is_bound(definition) else None
                given = given if own is None else own.value
                returned = yield from _way(definition, own or given, context, walk, trace, began := [])
            result = shaped(returned)
            if repairs:
                result = _with_repairs(result, repairs)
        if escort is not None and walk.hooks is not None:
            result = yield from escort.answer(result)
    except BaseException as error:
        raised = error = unwrapped(error)
        if (through := passing(error)) is error:
            raise
        if through is not None:
            raise through from error
        result = failed(error, context)
        if repairs:
            result = _with_repairs(result, repairs)
        if escort is not None and walk.hooks is not None:
            result = yield from escort.answer(result)
    finally:
        try:
            duration = time.perf_counter() - (began[0] if began else started)
            if trace is not None:
                trace.end(definition.name, given, result, raised, duration)
            record(context, given, result, raised, duration, walk.log_limit)
            if escort is not None:
                escort.leave(given, result, raised, duration)
        except BaseException:
            if escort is not None:
                escort.forget()  # an interrupt came before it was done
            raise
        raised = None  # its traceback refers to this frame; without the cycle both are freed at once
    return result


class _Entry:
    """How far a call has come that does more before its work than to read its input."""

    __slots__ = ("given", "repairs", "started")

    def __init__(self, given: Any, started: float) -> None:
        self.given = given
        self.started = started
        self.repairs: Sequence[Repair] = ()


def _agreed(
    definition: ToolDefinition,
    read: Callable[[Any, frozenset[str]], Decoded],
    entry: _Entry,
    context: ToolContext,
    walk: Walk,
    escort: Escort | None,
) -> Generator[Work, Any, None]:
    """Walk until the input is read and agreed to: by hooks, then by a reviewer."""
    sent, steps = entry.given, walk.steps
    if escort is None:
        entry.given, entry.repairs = read(sent, steps)
    else:
        entry.given = escort.unread
        if walk.hooks is not None:
            read, sent = yield from escort.asked(read, sent, steps)
        entry.given, entry.repairs = escort.read(read, sent, steps)
    if definition.gate is not None:
        try:
            was = entry.given, entry.repairs
            entry.given, entry.repairs = yield from approved(definition, definition.gate, was, sent, steps, context)
        finally:
            entry.started = time.perf_counter()  # a person's time is not the tool's


def _way(
    definition: ToolDefinition,
    given: Any,
    context: ToolContext,
    walk: Walk,
    trace: Trace | None,
    began: list[float],
) -> Generator[Work, Any, Any]:
    """Return the path of the work itself, with the limits around it; it notes when the work began.

    :param given: the input, or a snapshot of it where each run of the body has to get the same
    """
    own = given if isinstance(given, Snapshot) else None

    def body(bounded: ToolContext) -> Generator[Work, Any, Any]:
        value = given if own is None else own.take()
        began.append(time.perf_counter())  # waiting for its turn was not the tool's work
        if definition.flow is not None:
            return (yield from definition.flow(value, bounded, _inside(definition, walk), trace))
        return (yield from entered(_run(definition, value, bounded, walk.workers), bounded))

    # What makes keys and names of the input gets a copy, too: it may be a function that changes what it is given.
    return apply_limits(definition, given if own is None else own.take(), context, walk.slots, body)


def _inside(definition: ToolDefinition, walk: Walk) -> Walk:
    """Return how the parts of a tool are walked."""
    return walk if definition.gate is None or walk.approved else replace(walk, approved=True)


def _run(definition: ToolDefinition, given: Any, context: ToolContext, workers: Executor) -> Work:
    """Give the work that runs a body within its limits."""
    if definition.policy is not None and definition.policy.isolation == "process":
        return RunApart(definition, given, context)
    # A body that never blocks needs no watch.
    if context.deadline is None or (definition.inline and not definition.awaits):
        return RunBody(definition, given, context, workers)
    return RunUntil(definition, given, context, workers)


def drive(path: CallPath, interrupt: BaseException | None = None) -> ToolResult:
    """Give the result of a call, doing its work in this thread.

    :param interrupt: is raised where the path stands still
    """
    try:
        work = path.send(None) if interrupt is None else path.throw(interrupt)
        while True:
            try:
                done = work.do()
            except BaseException as error:  # noqa: BLE001 - the path decides what becomes of it
                work = path.throw(error)
            else:
                work = path.send(done)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]  # the generator's type says so, StopIteration's does not
    except BaseException as raised:
        if path.gi_frame is None:  # type: ignore[attr-defined]  # it is a generator of ours
            raise  # the path has come to its end with it
        return drive(path, raised)  # it came from outside, when the path had just stopped for a work


async def adrive(path: CallPath) -> ToolResult:
    """Give the result of a call, awaiting its work."""
    try:
        work = path.send(None)
        while True:
            try:
                doing = work.ado()
                del work  # of thousands of calls that wait, the garbage collector has less to look at
                done = await doing
            except BaseException as error:  # noqa: BLE001 - the path decides what becomes of it
                work = path.throw(error)
            else:
                work = path.send(done)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]  # the generator's type says so, StopIteration's does not
    except BaseException:
        path.close()  # an interrupt may come when it has just stopped for a work; else this does nothing
        raise


def begun(path: CallPath, loop: SharedLoop, ended: Callable[[], object]) -> Generator[None, None, ToolResult]:
    """Give the result of a call whose body only blocks, waiting for nothing: whoever walks on has waited.

    It yields when a body has begun in a worker, and is to be resumed when it was told that this has ended.
    """
    try:
        work = path.send(None)
        while True:
            try:
                future = cast("RunBody", work).begin(loop)  # such paths ask for nothing else
                future.add_done_callback(lambda _: ended())
                try:
                    yield
                except BaseException:
                    future.cancel()  # nobody will ask for it
                    raise
                done = received(future.result())
            except BaseException as error:  # noqa: BLE001 - the path decides what becomes of it
                work = path.throw(error)
            else:
                work = path.send(done)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]  # as above


def _with_repairs(result: ToolResult, repairs: Sequence[Repair]) -> ToolResult:
    """Give the result with a record of what was repaired in the arguments."""
    return replace(result, attributes=MappingProxyType({**result.attributes, "repairs": tuple(repairs)}))
