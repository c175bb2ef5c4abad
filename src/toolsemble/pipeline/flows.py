"""The flows of tools whose parts do not stand in one line: all at once, one for each item, one of two."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from toolsemble.context import ToolContext
from toolsemble.definition.definition import ToolDefinition, always_gated_in, to_dry_run
from toolsemble.execution.approval import check_reviewer
from toolsemble.execution.failure import failed_beside, passing
from toolsemble.execution.path import CallPath, Trace, Walk
from toolsemble.pipeline.branch import Branch, handed_to
from toolsemble.pipeline.handoff import Handed, as_handed, items_of
from toolsemble.pipeline.join import Spread, dry_together, together
from toolsemble.pipeline.return_types import either, given_by, named
from toolsemble.pipeline.undo import in_time, undone, with_undone
from toolsemble.result import ToolResult
from toolsemble.shape import to_result
from toolsemble.work.body import Apply
from toolsemble.work.snapshot import copy_input


@dataclass(frozen=True, slots=True)
class Fan:
    """All parts at the same time, on the same input."""

    branches: tuple[Branch, ...]
    """The parts."""
    merge: Callable[[dict[str, ToolResult]], Any] | None
    """Makes one result of theirs."""
    fail_fast: bool
    """Whether one failure cancels the others."""
    dry: bool = False
    """Whether nothing is run, so that there is nothing to merge."""
    always_gated: tuple[ToolDefinition, ...] = field(init=False)
    """The parts, at every depth, that ask a reviewer whenever their turn comes."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "always_gated", always_gated_in(self.parts()))

    def __call__(self, value: Any, context: ToolContext, walk: Walk, trace: Trace | None) -> CallPath:
        """Walk the parts; give their results by name, or what a function makes of them."""
        check_reviewer(self.always_gated, context)
        parts = list(zip(self.branches, handed_to(self.branches, value), strict=True))
        if walk.approved:
            parts = _apart(parts)
        spread = Spread(parts, fail_fast=self.fail_fast)
        own = trace or Trace()
        return (yield from spread.walk(len(self.branches), context, walk, own, partial(self._merged, context, own)))

    def _merged(self, context: ToolContext, trace: Trace, results: Sequence[ToolResult]) -> CallPath:
        results_by_name = {each.definition.name: result for each, result in zip(self.branches, results, strict=True)}
        if self.dry:
            return dry_together(context.tool_name, results_by_name, results)
        if self.merge is None:
            return together(results_by_name, results)
        try:
            return to_result((yield Apply(self.merge, context, results_by_name)))
        except Exception as error:  # noqa: BLE001 - it is logged with the failure
            if (through := passing(error)) is not None:
                raise through from (None if through is error else error)
            trace.threw = context.tool_name
            return failed_beside(error, context, f"The merge of '{context.tool_name}'")

    def map(self, change: Callable[[ToolDefinition], ToolDefinition]) -> Fan:
        """Give the same with other parts."""
        return replace(self, branches=tuple(each.changed(change) for each in self.branches))

    def to_dry_run(self) -> Fan:
        """Give the same for a dry run."""
        return replace(self.map(to_dry_run), dry=True)

    def parts(self) -> tuple[ToolDefinition, ...]:
        """Give the parts."""
        return tuple(each.definition for each in self.branches)

    tools = parts

    def returns(self) -> Any:
        """Give the type of the dict of results; of what a function makes of it, nothing is known."""
        if self.merge is not None:
            return Any
        return named({part.name: given_by(part, surely=self.fail_fast) for part in self.parts()})

    @property
    def how(self) -> str:
        """How the parts are walked, in words."""
        return "all of these, side by side"


def _apart(parts: Sequence[tuple[Branch, Handed]]) -> list[tuple[Branch, Handed]]:
    """Return the parts, each with a copy of its input: what was approved for one, no other one can change."""
    return [(branch, copy_input(branch.definition, handed)) for branch, handed in parts]


@dataclass(frozen=True, slots=True)
class Each:
    """One part for each item of a list."""

    branch: Branch
    """The part."""
    limit: int
    """How many items are in work at the same time."""
    fail_fast: bool
    """Whether one failure cancels the others."""
    dry: bool = False
    """Whether nothing is run."""
    always_gated: tuple[ToolDefinition, ...] = field(init=False)
    """The part, and parts of it, that ask a reviewer whenever their turn comes."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "always_gated", always_gated_in(self.parts()))

    def __call__(self, value: Any, context: ToolContext, walk: Walk, trace: Trace | None) -> CallPath:
        """Walk the part for each item; give the results in the order of the items."""
        check_reviewer(self.always_gated, context)
        parts = [(self.branch, Handed.value(item)) for item in items_of(as_handed(value))]
        if walk.approved:
            parts = _apart(parts)
        spread = Spread(parts, fail_fast=self.fail_fast)
        return (yield from spread.walk(self.limit, context, walk, trace or Trace(), partial(self._listed, context)))

    def _listed(self, context: ToolContext, results: Sequence[ToolResult]) -> CallPath:
        yield from ()  # a path, as where results are merged
        return dry_together(context.tool_name, results, results) if self.dry else together(results, results)

    def map(self, change: Callable[[ToolDefinition], ToolDefinition]) -> Each:
        """Give the same with another part."""
        return replace(self, branch=self.branch.changed(change))

    def to_dry_run(self) -> Each:
        """Give the same for a dry run."""
        return replace(self.map(to_dry_run), dry=True)

    def parts(self) -> tuple[ToolDefinition, ...]:
        """Give the part."""
        return (self.branch.definition,)

    tools = parts

    def returns(self) -> Any:
        """Give the type of the list of results."""
        item = given_by(self.branch.definition, surely=self.fail_fast)
        return list[item]  # type: ignore[valid-type]  # it is only known here

    @property
    def how(self) -> str:
        """How the part is walked, in words."""
        return "this, for each item of the list"


@dataclass(frozen=True, slots=True)
class Choice:
    """One of two parts, as a predicate of the input says."""

    predicate: Callable[[Any], Any]
    """Tells whether the first part is walked."""
    then: Branch
    """The first part."""
    otherwise: Branch
    """The second part."""
    always_gated: tuple[ToolDefinition, ...] = field(init=False, default=())
    """None of the parts: which one is walked is not known before."""

    def __call__(self, value: Any, context: ToolContext, walk: Walk, trace: Trace | None) -> CallPath:
        """Walk the part that the predicate says; give its result."""
        texts = self.then.definition.arguments is None and self.otherwise.definition.arguments is None
        handed = as_handed(value)
        shown = handed.written if texts else handed.shown
        chosen = yield Apply(
            self.predicate, context, copy_input(self.then.definition, shown) if walk.approved else shown
        )
        branch = self.then if chosen else self.otherwise
        given = handed_to((self.then, self.otherwise), value)[0 if chosen else 1]
        own = Trace()
        try:
            result = yield from walk.path(branch.definition, branch.read, given, context, own, 1)
            if (timely := in_time(result, context)) is result:
                return result
            undos, own.undos = list(own.undos), ()
            return with_undone(timely, (yield from undone(undos, walk)))
        finally:
            if trace is not None:
                trace.undos, trace.undone, trace.threw = own.undos, own.undone, own.threw

    def map(self, change: Callable[[ToolDefinition], ToolDefinition]) -> Choice:
        """Give the same with other parts."""
        return replace(self, then=self.then.changed(change), otherwise=self.otherwise.changed(change))

    def to_dry_run(self) -> Choice:
        """Give the same for a dry run."""
        return self.map(to_dry_run)

    def parts(self) -> tuple[ToolDefinition, ToolDefinition]:
        """Give both parts."""
        return self.then.definition, self.otherwise.definition

    tools = parts

    def returns(self) -> Any:
        """Give the type of what one of the parts gives."""
        return either(*self.parts())

    @property
    def how(self) -> str:
        """How the parts are walked, in words."""
        return "one of these"
