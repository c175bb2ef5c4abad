"""The path of a call: one generator for all calls, one small function for each step.

The path yields the work it needs done and is sent the outcome, so that the same steps serve sync and async callers.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, TypeAlias

from toolsemble.context import ToolContext, current_context, enter, reset, restore
from toolsemble.definition.definition import ToolDefinition
from toolsemble.errors import ToolArgumentsError
from toolsemble.execution.approval import RejectedError, ask_reviewers
from toolsemble.execution.failure import find_fatal_error, to_failure, to_refusal
from toolsemble.execution.hooks import AnsweredError, CallHooks, Read
from toolsemble.execution.instrumentation import Instrumentation
from toolsemble.limits.apply import apply_limits
from toolsemble.locks.claims import Slots
from toolsemble.observers.watchers import watchers
from toolsemble.record import LOG_LIMIT, record, record_repairs
from toolsemble.result import ToolResult
from toolsemble.runtime.concurrency import THREADS, unwrap_stop_iteration
from toolsemble.schema.decode import Decoded, Repair
from toolsemble.schema.repair import STEPS
from toolsemble.shape import to_result
from toolsemble.work.body import RunBody, Work, run_in_context
from toolsemble.work.process import RunInProcess
from toolsemble.work.snapshot import Snapshot, is_bound
from toolsemble.work.timeout import RunUntil

CallPath: TypeAlias = Generator[Work, Any, ToolResult]


class SubCallReport:
    """The outcome of a sub-call, reported to its parent."""

    # Class attributes: one is created for every step, and most fields keep their default.
    given: Any = None
    """What the body got; what was handed over, if that was invalid."""
    raised_by: str = ""
    """The tool whose body raised instead of returning a failed result; empty for none."""
    duration: float = 0.0
    """Seconds of work."""
    undos: tuple[Any, ...] = ()
    """How to undo what was done, oldest first."""
    undone: tuple[Any, ...] = ()
    """The records of undoing it, if an exception ended the call and there is no result to hold them."""

    def end(self, name: str, given: Any, result: ToolResult | None, raised: BaseException | None, took: float) -> None:
        """Store how the call ended."""
        self.given, self.duration = given, took
        if raised is not None and (result is None or result.error_message is not None):
            self.raised_by = name


@dataclass(frozen=True, slots=True)
class CallSettings:
    """Settings that the calls of a toolbox and their sub-calls share."""

    steps: frozenset[str] = STEPS
    """The repair steps that are allowed."""
    slots: Slots | None = None
    """The slots for bodies; None: no limit."""
    workers: Executor = THREADS
    """The executor for blocking bodies."""
    log_limit: int = LOG_LIMIT
    """The most characters of input and output in a log line."""
    hooks: CallHooks | None = None
    """The hooks before and after each call."""
    approved: bool = False
    """Whether a reviewer approved what the parts get, so that no part may change it for another."""

    def start_sub_call(
        self,
        part: ToolDefinition,
        read: Callable[[Any, frozenset[str]], Decoded],
        given: Any,
        context: ToolContext,
        report: SubCallReport,
        number: int,
    ) -> CallPath:
        """Return the path of a sub-call; its id is the id of the parent and a number."""
        whole = context.call_id
        own = context.derive(
            {"tool_name": part.name, "call_id": f"{whole}.{number}", "parent_id": whole, "logger": part.logger}
        )
        return call_path(Call(part, read, given, own, self, report))


class Call:
    """One call on its path: its input, its surroundings, and its outcome so far."""

    __slots__ = (
        "context",
        "definition",
        "given",
        "instrumentation",
        "raised",
        "read",
        "repairs",
        "report",
        "result",
        "settings",
        "started",
    )

    def __init__(
        self,
        definition: ToolDefinition,
        read: Read,
        given: Any,
        context: ToolContext,
        settings: CallSettings = CallSettings(),  # noqa: B008 - it never changes
        report: SubCallReport | None = None,
    ) -> None:
        self.definition = definition
        self.read = read
        self.given = given
        """What was sent; then, what the body gets."""
        self.context = context
        self.settings = settings
        self.report = report
        self.repairs: Sequence[Repair] = ()
        self.result: ToolResult | None = None
        self.raised: BaseException | None = None
        self.instrumentation: Instrumentation | None = None
        """None for most calls: nobody watches, there are no secrets and no hooks."""
        self.started = 0.0
        """When the work began: the time of a reviewer, or of a queue, is not the tool's."""

    def refuse(self, refusal: BaseException) -> None:
        """Set the refusal as the result: the body does not run."""
        self.result = to_refusal(refusal, self.context)
        if self.instrumentation is not None:
            self.instrumentation.refusal = refusal

    def fail(self, error: BaseException) -> bool:
        """Set an exception as the result; return False for one that must reach the caller."""
        self.raised = error = unwrap_stop_iteration(error)
        through = find_fatal_error(error)
        if through is None:
            result = to_failure(error, self.context)
            self.result = self._add_repairs(result) if self.repairs else result
        elif through is not error:
            raise through from error
        return through is None

    def succeed(self, returned: object) -> None:
        """Set what the body returned as the result."""
        result = to_result(returned)
        self.result = self._add_repairs(result) if self.repairs else result

    def _add_repairs(self, result: ToolResult) -> ToolResult:
        return replace(result, attributes=MappingProxyType({**result.attributes, "repairs": tuple(self.repairs)}))


def call_path(call: Call) -> CallPath:
    """Run one call from what was sent to its result; raise only what must reach the caller."""
    call.started = time.perf_counter()
    observe(call)
    try:
        try:
            if call.instrumentation is None and call.definition.gate is None:
                goes_on = read(call)
            else:
                goes_on = yield from read_and_approve(call)
            if goes_on:
                call.succeed((yield from run(call)))
        except BaseException as error:
            if not call.fail(error):
                raise
        if call.settings.hooks is not None:
            yield from answer(call)
    finally:
        try:
            end(call)
        except BaseException:
            if call.instrumentation is not None:
                call.instrumentation.forget_secrets()  # an interrupt came before end() was done
            raise
    return call.result  # type: ignore[return-value]  # a call that has none has raised


def observe(call: Call) -> None:
    """Create the instrumentation of a call that needs it; most calls do not."""
    if (watching := watchers()) or call.definition.secret or call.settings.hooks is not None:
        call.instrumentation = Instrumentation(call.definition, call.context, call.given, call.settings.hooks, watching)
        call.context = call.instrumentation.context


def read(call: Call) -> bool:
    """Read and validate the arguments; return whether the call goes on."""
    try:
        call.given, call.repairs = call.read(call.given, call.settings.steps)
    except ToolArgumentsError as refusal:
        call.refuse(refusal)
        return False
    return True


def read_and_approve(call: Call) -> Generator[Work, Any, bool]:
    """Ask the hooks, read the arguments, and ask the reviewer; return whether the call goes on."""
    sent, instrumentation = call.given, call.instrumentation
    try:
        if instrumentation is None:
            call.given, call.repairs = call.read(sent, call.settings.steps)
        else:
            instrumentation.enter()
            call.given = instrumentation.unread
            read, sent = yield from instrumentation.ask_hooks(call.read, sent, call.settings.steps)
            call.given, call.repairs = instrumentation.read(read, sent, call.settings.steps)
        if call.definition.gate is not None:
            yield from approve(call, sent)
    except (ToolArgumentsError, RejectedError) as refusal:
        call.refuse(refusal)
        return False
    except AnsweredError as answered:
        call.result = answered.result
        return False
    return True


def approve(call: Call, sent: Any) -> Generator[Work, Any, None]:
    """Ask the reviewer, who may change the arguments; the time of a person is not the tool's."""
    definition, gate = call.definition, call.definition.gate
    assert gate is not None  # noqa: S101 - only calls with a gate come here
    try:
        was = call.given, call.repairs
        agreed = yield from ask_reviewers(definition, gate, was, sent, call.settings.steps, call.context)
        call.given, call.repairs = agreed
    finally:
        call.started = time.perf_counter()


def run(call: Call) -> Generator[Work, Any, Any]:
    """Return the path of the body: straight to it, or through the limits around it."""
    definition, context, settings = call.definition, call.context, call.settings
    if call.repairs:
        record_repairs(context, call.repairs, settings.log_limit)
    policy = definition.policy
    if (policy is not None and policy.limits) or context.deadline is not None or settings.slots is not None:
        return _run_limited(call)
    if definition.flow is not None:
        return definition.flow(call.given, context, _derive_settings(definition, settings), call.report)
    return _run_body(RunBody(definition, call.given, context, settings.workers), context)


def _run_body(work: Work, context: ToolContext) -> Generator[Work, Any, Any]:
    """Run a body inside its context: :func:`run_in_context`, made faster for the usual call."""
    before = current_context()
    try:
        token = enter(context)
        returned = yield work
    except GeneratorExit:
        restore(context, before)
        raise
    except BaseException:
        enter(before)  # one call into C: no interrupt comes before it is done
        raise
    try:  # noqa: SIM105 - suppress() would double the cost of entering and leaving
        reset(token)  # likewise, and quicker
    except ValueError:
        pass  # the driver continues in another context, with nothing to undo
    return returned


def _run_limited(call: Call) -> Generator[Work, Any, Any]:
    """Return the path of the body with its limits around it."""
    definition, settings = call.definition, call.settings
    own = Snapshot(definition, call.given) if is_bound(definition) else None
    if own is not None:
        call.given = own.value

    has_begun = False

    def body(bounded: ToolContext) -> Generator[Work, Any, Any]:
        nonlocal has_begun
        value = call.given if own is None else own.take()
        if not has_begun:  # a retry belongs to the work
            has_begun, call.started = True, time.perf_counter()
        if definition.flow is not None:
            return (yield from definition.flow(value, bounded, _derive_settings(definition, settings), call.report))
        return (yield from run_in_context(_choose_work(definition, value, bounded, settings.workers), bounded))

    # The functions that derive keys and resource names get a copy, too: they may change their argument.
    return apply_limits(definition, call.given if own is None else own.take(), call.context, settings.slots, body)


def answer(call: Call) -> Generator[Work, Any, None]:
    """Ask the hooks after the call, which may replace the result."""
    assert call.instrumentation is not None and call.result is not None  # noqa: S101, PT018 - calls with hooks have one
    try:
        call.result = yield from call.instrumentation.answer(call.result)
    except BaseException as error:
        call.raised, call.result = unwrap_stop_iteration(error), None
        raise


def end(call: Call) -> None:
    """Record the call, and tell whoever observes it."""
    duration = time.perf_counter() - call.started
    given, result, raised = call.given, call.result, call.raised
    call.raised = None  # its traceback refers to the path; without the cycle both are freed at once
    if call.report is not None:
        call.report.end(call.definition.name, given, result, raised, duration)
    record(call.context, given, result, raised, duration, call.settings.log_limit)
    if call.instrumentation is not None:
        call.instrumentation.finish(given, result, raised, duration)


def _derive_settings(definition: ToolDefinition, settings: CallSettings) -> CallSettings:
    """Return the settings for the sub-calls of a tool."""
    return settings if definition.gate is None or settings.approved else replace(settings, approved=True)


def _choose_work(definition: ToolDefinition, given: Any, context: ToolContext, workers: Executor) -> Work:
    """Return the work that runs a body within its limits."""
    if definition.policy is not None and definition.policy.isolation == "process":
        return RunInProcess(definition, given, context)
    # A body that never blocks needs no timer.
    if context.deadline is None or (definition.inline and not definition.awaits):
        return RunBody(definition, given, context, workers)
    return RunUntil(definition, given, context, workers)
