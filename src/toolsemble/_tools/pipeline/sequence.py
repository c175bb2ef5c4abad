"""The flow of a pipeline: one step after another."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, ClassVar, Literal

from toolsemble._engine.context import ToolContext
from toolsemble._engine.definition import ToolDefinition, always_gated_in, dry_result, to_dry_run
from toolsemble._engine.execution.approval import check_reviewer
from toolsemble._engine.execution.call import CallPath, CallSettings, SubCallReport
from toolsemble._engine.execution.failure import find_fatal_error, to_logged_failure
from toolsemble._engine.execution.journal_values import StepRecord
from toolsemble._engine.execution.path import start_sub_call
from toolsemble._engine.work.body import Apply, Work
from toolsemble._schema.decode import Read
from toolsemble._tools.pipeline.handoff import Handoff, describe_failures, pass_through, unwrap_input
from toolsemble._tools.pipeline.step import Adapter, ErrorStrategy, Part
from toolsemble._tools.pipeline.undo import Undo, add_undone, fail_if_late, must_undo, run_undos
from toolsemble._vocabulary.result import ToolResult


@dataclass(frozen=True, slots=True)
class StepSequence:
    """Steps that run in order, each on the output of the previous one."""

    how: ClassVar[str] = "one after the other"
    """How the steps are run, for the description of a plan."""
    kind: ClassVar[Literal["sequence"]] = "sequence"
    """How the parts are run, for programs."""
    steps: tuple[Part, ...]
    dry: bool = False
    """Whether this is a dry run: only the first step's input is known."""
    always_gated: tuple[ToolDefinition, ...] = field(init=False)
    """The steps, at every depth, that always ask a reviewer."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "always_gated", always_gated_in(self.parts()))

    def __call__(
        self, value: Any, context: ToolContext, settings: CallSettings, report: SubCallReport | None
    ) -> CallPath:
        """Run the steps; return the result of the last or of the failed one, with the records of all."""
        check_reviewer(self.always_gated, context)
        progress = _Progress()
        records, undos = progress.records, progress.undos
        try:
            result = yield from self._run_steps(value, context, settings, progress)
        except BaseException as error:
            if must_undo(error):
                undone = yield from run_undos(undos, settings)
                if report is not None:
                    report.undone = (*progress.report.undone, *undone)
            raise
        if self.dry and (result.error_message is None or self.steps[0].strategy is not ErrorStrategy.FAIL_FAST):
            result = self._record_unknown(context, records)
        result = fail_if_late(result, context)
        parts = (result.output, result.error_message, result.structured_output, result.contents)
        result = ToolResult(*parts, MappingProxyType({**result.attributes, "steps": tuple(records)}), result.error_kind)
        if undos and result.error_message is not None:
            return add_undone(result, (yield from run_undos(undos, settings)))
        if undos and report is not None:
            report.undos = tuple(undos)
        return result

    def _run_steps(self, value: Any, context: ToolContext, settings: CallSettings, progress: _Progress) -> CallPath:
        read: Read = pass_through  # the pipeline has read its input with the first step's schema
        last = 1 if self.dry else len(self.steps)
        for number, step in enumerate(self.steps[:last], 1):
            report = progress.report = SubCallReport()
            report.is_intermediate = number < last
            name = step.definition.name
            result = yield from start_sub_call(settings, step.definition, read, value, context, report, number)
            given = report.given if type(report.given) is str else unwrap_input(report.given)
            progress.undos += report.undos
            if report.raised_by:
                result = _add_step_name(report.raised_by, result)
            elif result.error_message is None:
                if step.compensation is not None:
                    progress.undos.append(Undo(name, step.compensation, given, result, context))
                if number < last:
                    if step.adapter is None:
                        result = value = _fail_with_parts(name, result, result.structured_output)
                    else:
                        result, value = yield from _adapt(name, step.adapter, result, context)
            progress.records.append(StepRecord(name, given, result, report.duration))
            if result.error_message is not None:
                if step.strategy is ErrorStrategy.FAIL_FAST:
                    break
                value = Handoff(result.error_message)
            if number < last:
                read = self.steps[number].read
        return result

    def _record_unknown(self, context: ToolContext, records: list[StepRecord]) -> ToolResult:
        """Add records for the steps after the first, whose inputs are not known in a dry run; return the result."""
        names = [step.definition.name for step in self.steps[1:]]
        records += [StepRecord(name, None, dry_result(name), 0.0) for name in names]
        return dry_result(context.tool_name)

    def to_dry_run(self) -> StepSequence:
        """Return a copy for a dry run."""
        return replace(self.map(to_dry_run), dry=True)

    def map(self, change: Callable[[ToolDefinition], ToolDefinition]) -> StepSequence:
        """Return a copy with each tool replaced by ``change(tool)``."""
        return replace(self, steps=tuple(step.map_definition(change) for step in self.steps))

    def parts(self) -> tuple[ToolDefinition, ...]:
        """Return the steps' tools."""
        return tuple(step.definition for step in self.steps)

    def tools(self) -> tuple[ToolDefinition, ...]:
        """Return the steps' tools, and the tools that undo steps."""
        undos = [step.compensation.tool for step in self.steps if step.compensation is not None]
        return (*self.parts(), *(undo for undo in undos if undo is not None))


@dataclass(slots=True)
class _Progress:
    """The progress of a run through the steps."""

    records: list[StepRecord] = field(default_factory=list)
    """The records of the steps so far."""
    undos: list[Undo] = field(default_factory=list)
    """The undos of completed steps, oldest first."""
    report: SubCallReport = field(default_factory=SubCallReport)
    """The report of the current step."""


def _adapt(
    name: str, adapter: Adapter, result: ToolResult, context: ToolContext
) -> Generator[Work, Any, tuple[ToolResult, Handoff | None]]:
    """Return the step's result and the next step's input; if the adapter raises, the result is a failure."""
    try:
        made = yield Apply(adapter, context, result)
        return _fail_with_parts(name, result, made), Handoff.from_value(made, exact=True)
    except Exception as error:  # logged with the failure
        if (through := find_fatal_error(error)) is not None:
            raise through from (None if through is error else error)
        return _add_step_name(name, to_logged_failure(error, context, f"The adapter of step '{name}'")), None


def _fail_with_parts(name: str, result: ToolResult, handed: Any) -> ToolResult:
    """Return the result of a step, or a failure if what it hands over has failed items or branches."""
    if type(handed) is str or handed is None or not (failures := describe_failures(handed)):
        return result
    return replace(result, output="", error_message=f"'{name}' failed for {failures}")


def _add_step_name(name: str, result: ToolResult) -> ToolResult:
    return replace(result, error_message=f"Step '{name}' raised: {result.error_message}")
