"""One step after the other: the flow of a pipeline."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Generator
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from toolsemble.context import ToolContext
from toolsemble.definition.definition import ToolDefinition, always_gated_in, dry_result, to_dry_run
from toolsemble.execution.approval import check_reviewer
from toolsemble.execution.failure import failed_beside, passing
from toolsemble.execution.path import CallPath, Trace, Walk
from toolsemble.pipeline.handoff import Handed, Read, as_it_is, shown_input
from toolsemble.pipeline.step import Adapter, Part
from toolsemble.pipeline.strategy import ErrorStrategy
from toolsemble.pipeline.undo import StepRecord, Undo, in_time, must_undo, undone, with_undone
from toolsemble.result import ToolResult
from toolsemble.work.body import Apply, Work


@dataclass(frozen=True, slots=True)
class Line:
    """Steps that are walked in order, each with what the one before it gave."""

    steps: tuple[Part, ...]
    """The steps, in order."""
    dry: bool = False
    """Whether nothing is run, so that only the first step's input is known."""
    always_gated: tuple[ToolDefinition, ...] = field(init=False)
    """The steps, at every depth, that ask a reviewer whenever their turn comes."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "always_gated", always_gated_in(self.parts()))

    def __call__(self, value: Any, context: ToolContext, walk: Walk, trace: Trace | None) -> CallPath:
        """Walk the steps; give the last one's result, or that of the one that failed, with a record of all."""
        check_reviewer(self.always_gated, context)
        progress = _Progress()
        records, undos = progress.records, progress.undos
        try:
            result = yield from self._walked(value, context, walk, progress)
        except BaseException as error:
            if must_undo(error):
                told = yield from undone(undos, walk)
                if trace is not None:
                    trace.undone = (*progress.trace.undone, *told)
            raise
        if self.dry and (result.error_message is None or self.steps[0].strategy is not ErrorStrategy.FAIL_FAST):
            result = self._unknown(context, records)
        result = in_time(result, context)
        parts = (result.output, result.error_message, result.structured_output, result.contents)
        result = ToolResult(*parts, MappingProxyType({**result.attributes, "steps": tuple(records)}))
        if undos and result.error_message is not None:
            return with_undone(result, (yield from undone(undos, walk)))
        if undos and trace is not None:
            trace.undos = tuple(undos)
        return result

    def _walked(self, value: Any, context: ToolContext, walk: Walk, progress: _Progress) -> CallPath:
        read: Read = as_it_is  # the pipeline has read its input as its first step would
        last = 1 if self.dry else len(self.steps)
        for number, step in enumerate(self.steps[:last], 1):
            trace = progress.trace = Trace()
            name = step.definition.name
            result = yield from walk.path(step.definition, read, value, context, trace, number)
            given = trace.given if type(trace.given) is str else shown_input(trace.given)
            progress.undos += trace.undos
            if trace.threw:
                result = _threw(trace.threw, result)
            elif result.error_message is None:
                if step.compensation is not None:
                    progress.undos.append(Undo(name, step.compensation, given, result, context))
                if number < last:
                    if step.adapter is None:
                        value = result
                    else:
                        result, value = yield from _adapted(name, step.adapter, result, context)
            progress.records.append(StepRecord(name, given, result, trace.duration))
            if result.error_message is not None:
                if step.strategy is ErrorStrategy.FAIL_FAST:
                    break
                value = Handed(result.error_message)
            if number < last:
                read = self.steps[number].read
        return result

    def _unknown(self, context: ToolContext, records: list[StepRecord]) -> ToolResult:
        """Put down the steps after the first, whose inputs nobody knows before it has run."""
        names = [step.definition.name for step in self.steps[1:]]
        records += [StepRecord(name, None, dry_result(name), 0.0) for name in names]
        return dry_result(context.tool_name)

    def to_dry_run(self) -> Line:
        """Give the same steps for a dry run."""
        return replace(self.map(to_dry_run), dry=True)

    def map(self, change: Callable[[ToolDefinition], ToolDefinition]) -> Line:
        """Give the same steps with other tools."""
        return replace(self, steps=tuple(step.changed(change) for step in self.steps))

    def parts(self) -> tuple[ToolDefinition, ...]:
        """Give the steps' tools."""
        return tuple(step.definition for step in self.steps)

    def tools(self) -> tuple[ToolDefinition, ...]:
        """Give the steps' tools, and those that undo steps."""
        undos = [step.compensation.tool for step in self.steps if step.compensation is not None]
        return (*self.parts(), *(undo for undo in undos if undo is not None))

    @property
    def how(self) -> str:
        """How the steps are walked, in words."""
        return "one after the other"


@dataclasses.dataclass(slots=True)
class _Progress:
    """How far a walk through the steps has come."""

    records: list[StepRecord] = field(default_factory=list)
    """What became of the steps."""
    undos: list[Undo] = field(default_factory=list)
    """How to undo them, oldest first."""
    trace: Trace = field(default_factory=Trace)
    """That of the step whose turn it is."""


def _adapted(
    name: str, adapter: Adapter, result: ToolResult, context: ToolContext
) -> Generator[Work, Any, tuple[ToolResult, Handed | None]]:
    """Give the step's result and what the next step gets; an adapter that raises makes it a failure."""
    try:
        return result, Handed.value((yield Apply(adapter, context, result)), exact=True)
    except Exception as error:  # noqa: BLE001 - it is logged with the failure
        if (through := passing(error)) is not None:
            raise through from (None if through is error else error)
        return _threw(name, failed_beside(error, context, f"The adapter of step '{name}'")), None


def _threw(name: str, result: ToolResult) -> ToolResult:
    return replace(result, error_message=f"Step '{name}' threw: {result.error_message}")
