"""Compensation: how completed steps are undone when a later step fails."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from toolsemble._engine.context import ToolContext
from toolsemble._engine.definition import ToolDefinition
from toolsemble._engine.execution.call import Call, CallPath, CallSettings, SubCallReport
from toolsemble._engine.execution.call_path import start_sub_call
from toolsemble._engine.execution.failure import find_fatal_error, to_failure
from toolsemble._engine.execution.journaled_call import StepRecord
from toolsemble._engine.work.body import RunBody, Work, is_past, run_in_context
from toolsemble._runtime.event_loops import is_async
from toolsemble._runtime.lazy import LazyModule
from toolsemble._runtime.threads import THREADS
from toolsemble._schema.decode import Read
from toolsemble._schema.display import to_display
from toolsemble._schema.masking import mask_error, mask_text
from toolsemble._schema.result_shape import to_result
from toolsemble._tools.collection import collect_tools
from toolsemble._tools.pipeline.handoff import Handoff, make_reader, pass_through, unwrap_results
from toolsemble._vocabulary.errors import CallPausedError, RunError, ToolDefinitionError
from toolsemble._vocabulary.result import ToolResult

if TYPE_CHECKING:
    from toolsemble._engine.execution import journaled_call as journaled
else:
    journaled = LazyModule("toolsemble._engine.execution.journaled_call")

_PARAMETERS = {"input", "result"}


@dataclass(frozen=True, slots=True)
class Compensation:
    """A function or a tool that undoes a step."""

    definition: ToolDefinition
    """The tool, or an internal definition around the function."""
    read: Read | None
    """Reads the tool's input; None for a function."""

    @property
    def tool(self) -> ToolDefinition | None:
        """The tool; None for a function."""
        return None if self.read is None else self.definition

    def map_definition(self, change: Callable[[ToolDefinition], ToolDefinition]) -> Compensation:
        """Return a copy whose tool is replaced by ``change(tool)``, so that its gates also apply here."""
        return self if self.read is None else replace(self, definition=change(self.definition))


def build_compensation(owner: str, source: Any) -> Compensation | None:
    """Return a step's compensation, or None; raise if it is not a function or a tool with matching parameters."""
    if source is None:
        return None
    found = [] if isinstance(source, type) else collect_tools(source)
    if not found:
        return Compensation(_define_function(owner, source), None)
    if len(found) > 1:
        raise ToolDefinitionError(f"{owner}: compensate has {len(found)} tools; pass one of them")
    definition = found[0][1]
    if definition.arguments is not None:
        schema = definition.arguments.schema
        names, required = set(schema.get("properties", ())), set(schema.get("required", ()))
        if required - _PARAMETERS or (names and not names & _PARAMETERS):
            raise ToolDefinitionError(
                f"{owner}: compensate is given 'input' and 'result', but '{definition.name}' takes "
                f"{', '.join(sorted(names))}; pass a function (input, result) that calls it"
            )
    return Compensation(definition, make_reader(definition))


def _define_function(owner: str, function: Any) -> ToolDefinition:
    if not callable(function):
        raise ToolDefinitionError(f"{owner}: compensate must be a function or a tool, not {function!r:.80}")
    try:
        inspect.signature(function).bind(None, None)
    except TypeError as problem:
        raise ToolDefinitionError(f"{owner}: compensate takes (input, result): {problem}") from None
    except ValueError:
        pass  # some builtins have no signature

    def body(given: tuple[Any, ToolResult]) -> Any:
        return function(*given)

    return ToolDefinition(owner, "", body=body, decode=pass_through, accept=pass_through, awaits=is_async(function))


class Undo(NamedTuple):
    """A completed step, and its undo."""

    step: str
    """The name of the step's tool."""
    compensation: Compensation
    """Undoes the step."""
    input: Any
    """The input of the step's body."""
    result: ToolResult
    """The step's result."""
    context: ToolContext
    """The context of the step's pipeline."""

    def path(self, settings: CallSettings, number: int) -> Generator[Work, Any, StepRecord]:
        """Undo the step; a failure is logged and becomes part of the record.

        :param number: the step's number among the undone steps, counted from the last one to be undone
        """
        started, context, raised = time.perf_counter(), self.context, None
        try:
            result = yield from self._work(settings, f"undo{number}")
        except Exception as error:
            if isinstance(error, (CallPausedError, RunError)):
                raise  # the run continues later, here
            # The other steps must be undone in any case.
            result, raised = to_failure(error, context), mask_error(error)
        if result.error_message is not None:
            message = mask_text(result.error_message)
            context.logger.warning("The undo of step '%s' failed: %s", self.step, message, exc_info=raised)
        return StepRecord(self.step, self.input, result, time.perf_counter() - started)

    def _work(self, settings: CallSettings, place_name: str) -> Generator[Work, Any, ToolResult]:
        definition, read = self.compensation.definition, self.compensation.read
        # Steps are also undone after the deadline; a compensation can have its own timeout.
        context = self.context.derive({"deadline": None})
        if read is None:
            return (yield from self._call_function(definition, context, place_name))
        payload = unwrap_results(self.result.structured_output)
        given = {
            "input": to_display(self.input, reveal=True),
            "result": self.result.output if payload is None else to_display(payload, reveal=True),
        }
        return (
            yield from start_sub_call(
                settings, definition, read, Handoff(None, given), context, SubCallReport(), 0, place_name=place_name
            )
        )

    def _call_function(
        self, definition: ToolDefinition, context: ToolContext, place_name: str
    ) -> Generator[Work, Any, ToolResult]:
        given = self.input, self.result
        # Not the toolbox's executor: a function cannot always be sent to a process.
        if context.place is None:
            return to_result((yield from run_in_context(RunBody(definition, given, context, THREADS), context)))
        context = context.derive({"place": context.place.inner(place_name)})
        call, work = Call(definition, pass_through, given, context), RunBody(definition, given, context, THREADS)
        return (yield from journaled.run_once(call, _run_recorded(call, work)))


def _run_recorded(call: Call, work: Work) -> CallPath:
    """Run a function in a journaled run; a failure is a result, so that it is recorded."""
    try:
        recorded = journaled.record_start(call, work, call.given)
        return to_result((yield from run_in_context(recorded, call.context)))
    except Exception as error:
        if find_fatal_error(error) is not None:
            raise
        return to_failure(error, call.context)


def run_undos(undos: list[Undo], settings: CallSettings) -> Generator[Work, Any, tuple[StepRecord, ...]]:
    """Undo the steps, newest first, each once; return the records."""
    records = []
    while undos:
        number = len(undos)
        records.append((yield from undos.pop().path(settings, number)))
    return tuple(records)


def add_undone(result: ToolResult, records: tuple[StepRecord, ...]) -> ToolResult:
    """Return the result with the undo records in its attributes; unchanged if there are none.

    >>> add_undone(ToolResult.failure("no"), ())
    ToolResult.failure('no')
    """
    if not records:
        return result
    before = result.attributes.get("undone", ())
    return replace(result, attributes=MappingProxyType({**result.attributes, "undone": (*before, *records)}))


def fail_if_late(result: ToolResult, context: ToolContext) -> ToolResult:
    """Return a combined tool's result; a failure if the deadline has passed, so that its steps are undone.

    >>> fail_if_late(ToolResult.success("done"), ToolContext(deadline=0.0))
    ToolResult.failure('The time was up', error_kind='timeout')
    """
    if result.error_message is not None or not is_past(context.deadline):
        return result
    return ToolResult.failure(
        "The time was up",
        structured_output=result.structured_output,
        attributes=result.attributes,
        error_kind="timeout",
    )


def must_undo(error: BaseException) -> bool:
    """Whether to undo steps on an exception: not at program exit, nor if the call continues later.

    >>> must_undo(ValueError()), must_undo(KeyboardInterrupt())
    (True, False)
    """
    return not isinstance(error, (GeneratorExit, KeyboardInterrupt, SystemExit, CallPausedError, RunError))
