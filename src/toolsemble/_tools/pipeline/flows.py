"""The flows of combined tools: run all parts in parallel, one part for each item, or one of two parts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, Literal, TypedDict, Union

from toolsemble._engine.context import ToolContext
from toolsemble._engine.definition.definition import ToolDefinition
from toolsemble._engine.definition.variants import always_gated_in, to_dry_run
from toolsemble._engine.execution.approval import check_reviewer
from toolsemble._engine.execution.call import CallPath, CallSettings, SubCallReport
from toolsemble._engine.execution.edits import carry_edits
from toolsemble._engine.execution.failure import find_fatal_error, to_logged_failure
from toolsemble._engine.execution.path import start_sub_call
from toolsemble._engine.work.body import Apply
from toolsemble._engine.work.snapshot import copy_input
from toolsemble._schema.shape import to_result
from toolsemble._tools.pipeline.branch import Branch, split_input
from toolsemble._tools.pipeline.handoff import Handoff, as_handoff, read_items
from toolsemble._tools.pipeline.join import ParallelParts, join_dry_results, join_results
from toolsemble._tools.pipeline.return_types import return_type
from toolsemble._tools.pipeline.undo import add_undone, fail_if_late, run_undos
from toolsemble._vocabulary.result import ToolResult


@dataclass(frozen=True, slots=True)
class FanOut:
    """A flow that runs all parts in parallel on the same input."""

    how: ClassVar[str] = "all of these, side by side"
    """How the parts are run, for the description of a plan."""
    kind: ClassVar[Literal["parallel"]] = "parallel"
    """How the parts are run, for programs."""
    branches: tuple[Branch, ...]
    merge: Callable[[dict[str, ToolResult]], Any] | None
    """Merges the results into one; None returns them as a dict."""
    fail_fast: bool
    """Whether one failure cancels the others."""
    dry: bool = False
    """Whether this is a dry run: no part runs, and there is nothing to merge."""
    always_gated: tuple[ToolDefinition, ...] = field(init=False)
    """The parts, at every depth, that always ask a reviewer."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "always_gated", always_gated_in(self.parts()))

    def __call__(
        self, value: Any, context: ToolContext, settings: CallSettings, report: SubCallReport | None
    ) -> CallPath:
        """Run the parts; return their results by name, or the merged result."""
        check_reviewer(self.always_gated, context)
        parts = list(zip(self.branches, split_input(self.branches, value), strict=True))
        parallel = ParallelParts(parts, fail_fast=self.fail_fast)
        own = report or SubCallReport()
        merge = partial(self._merge_results, context, own)
        return (yield from parallel.run(len(self.branches), context, settings, own, merge))

    def _merge_results(self, context: ToolContext, report: SubCallReport, results: Sequence[ToolResult]) -> CallPath:
        results_by_name = {each.definition.name: result for each, result in zip(self.branches, results, strict=True)}
        if self.dry:
            return join_dry_results(context.tool_name, results_by_name, results)
        if self.merge is None:
            return join_results(results_by_name, results)
        try:
            return carry_edits(to_result((yield Apply(self.merge, context, results_by_name))), results)
        except Exception as error:  # logged with the failure
            if (through := find_fatal_error(error)) is not None:
                raise through from (None if through is error else error)
            report.raised_by = context.tool_name
            return to_logged_failure(error, context, f"The merge of '{context.tool_name}'")

    def map(self, change: Callable[[ToolDefinition], ToolDefinition]) -> FanOut:
        """Return a copy with each part replaced by ``change(part)``."""
        return replace(self, branches=tuple(each.map_definition(change) for each in self.branches))

    def to_dry_run(self) -> FanOut:
        """Return a copy for a dry run."""
        return replace(self.map(to_dry_run), dry=True)

    def parts(self) -> tuple[ToolDefinition, ...]:
        """Return the parts."""
        return tuple(each.definition for each in self.branches)

    tools = parts

    def returns(self) -> Any:
        """Return the type of the dict of results; Any if they are merged."""
        if self.merge is not None:
            return Any
        kinds = {part.name: return_type(part) for part in self.parts()}
        return TypedDict("Results", kinds)  # type: ignore[operator]  # the keys are only known at run time


@dataclass(frozen=True, slots=True)
class ForEach:
    """A flow that runs one part for each item of a list."""

    how: ClassVar[str] = "this, for each item of the list"
    """How the parts are run, for the description of a plan."""
    kind: ClassVar[Literal["each"]] = "each"
    """How the parts are run, for programs."""
    branch: Branch
    limit: int
    """The most items to process at the same time."""
    fail_fast: bool
    """Whether one failure cancels the others."""
    dry: bool = False
    """Whether this is a dry run."""
    always_gated: tuple[ToolDefinition, ...] = field(init=False)
    """The part, and the parts inside it, that always ask a reviewer."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "always_gated", always_gated_in(self.parts()))

    def __call__(
        self, value: Any, context: ToolContext, settings: CallSettings, report: SubCallReport | None
    ) -> CallPath:
        """Run the part for each item; return the results in the order of the items."""
        check_reviewer(self.always_gated, context)
        parts = [(self.branch, Handoff.from_value(item)) for item in read_items(as_handoff(value))]
        parallel = ParallelParts(parts, fail_fast=self.fail_fast)
        collect = partial(self._list_results, context)
        return (yield from parallel.run(self.limit, context, settings, report or SubCallReport(), collect))

    def _list_results(self, context: ToolContext, results: Sequence[ToolResult]) -> CallPath:
        yield from ()  # makes this a generator, like FanOut._merge_results
        return join_dry_results(context.tool_name, results, results) if self.dry else join_results(results, results)

    def map(self, change: Callable[[ToolDefinition], ToolDefinition]) -> ForEach:
        """Return a copy with the part replaced by ``change(part)``."""
        return replace(self, branch=self.branch.map_definition(change))

    def to_dry_run(self) -> ForEach:
        """Return a copy for a dry run."""
        return replace(self.map(to_dry_run), dry=True)

    def parts(self) -> tuple[ToolDefinition, ...]:
        """Return the part."""
        return (self.branch.definition,)

    tools = parts

    def returns(self) -> Any:
        """Return the type of the list of results."""
        item = return_type(self.branch.definition)
        return list[item]  # type: ignore[valid-type]  # the type is only known at run time


@dataclass(frozen=True, slots=True)
class Choice:
    """A flow that runs one of two parts, chosen by a predicate of the input."""

    how: ClassVar[str] = "one of these"
    """How the parts are run, for the description of a plan."""
    kind: ClassVar[Literal["choice"]] = "choice"
    """How the parts are run, for programs."""
    predicate: Callable[[Any], Any]
    """Returns true to run the first part."""
    then: Branch
    """The first part."""
    otherwise: Branch
    """The second part."""
    always_gated: tuple[ToolDefinition, ...] = field(init=False, default=())
    """Empty: the part that will run is not known in advance."""

    def __call__(
        self, value: Any, context: ToolContext, settings: CallSettings, report: SubCallReport | None
    ) -> CallPath:
        """Run the part that the predicate chooses; return its result."""
        texts = self.then.definition.arguments is None and self.otherwise.definition.arguments is None
        handoff = as_handoff(value)
        shown = handoff.as_text if texts else handoff.as_value
        chosen = yield Apply(
            self.predicate, context, copy_input(self.then.definition, shown) if settings.approved else shown
        )
        branch = self.then if chosen else self.otherwise
        given = split_input((self.then, self.otherwise), value)[0 if chosen else 1]
        own = SubCallReport()
        try:
            result = yield from start_sub_call(settings, branch.definition, branch.read, given, context, own, 1)
            if (timely := fail_if_late(result, context)) is result:
                return result
            undos, own.undos = list(own.undos), ()
            return add_undone(timely, (yield from run_undos(undos, settings)))
        finally:
            if report is not None:
                report.undos, report.undone, report.raised_by = own.undos, own.undone, own.raised_by

    def map(self, change: Callable[[ToolDefinition], ToolDefinition]) -> Choice:
        """Return a copy with each part replaced by ``change(part)``."""
        return replace(self, then=self.then.map_definition(change), otherwise=self.otherwise.map_definition(change))

    def to_dry_run(self) -> Choice:
        """Return a copy for a dry run."""
        return self.map(to_dry_run)

    def parts(self) -> tuple[ToolDefinition, ToolDefinition]:
        """Return both parts."""
        return self.then.definition, self.otherwise.definition

    tools = parts

    def returns(self) -> Any:
        """Return the union of the types that the two parts return."""
        kinds = tuple(map(return_type, self.parts()))
        return Any if Any in kinds else Union[kinds]  # noqa: UP007 - the types are only known at run time
