"""The flows of tools whose parts do not stand in one line: all at once, one for each item, one of two."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple, TypeAlias

from toolsemble.approval import check_reviewer
from toolsemble.context import ToolContext
from toolsemble.definition import ToolDefinition, asking_in, dried, dry_result
from toolsemble.pipeline.declared import either, given_by, named
from toolsemble.pipeline.handoff import Handed, Read, as_handed, items_of, reader, unwrapped
from toolsemble.pipeline.spread import SideBySide
from toolsemble.pipeline.undo import StepRecord, must_undo, undone, with_undone
from toolsemble.result import ToolResult
from toolsemble.runner import CallPath, Trace, Walk, failed, passing
from toolsemble.schema.pointer import resolved
from toolsemble.shape import shaped
from toolsemble.work import Apply, Work

Change: TypeAlias = Callable[[ToolDefinition], ToolDefinition]

_SHOWN = 3


class Branch(NamedTuple):
    """A part, and how it takes what is handed to it."""

    definition: ToolDefinition
    """The part."""
    read: Read
    """How it takes what is handed to it."""

    @classmethod
    def of(cls, definition: ToolDefinition) -> Branch:
        """Give the branch of a part."""
        return cls(definition, reader(definition))

    def changed(self, change: Change) -> Branch:
        """Give the same branch with another part."""
        return self._replace(definition=change(self.definition))

    def names(self) -> frozenset[str]:
        """Give the names of the values that the part takes; a text tool's is ``input``."""
        arguments = self.definition.arguments
        schema = {"properties": {"input": {}}} if arguments is None else resolved(arguments.schema, arguments.schema)
        return frozenset(schema.get("properties", ()))

    def share(self, values: Mapping[str, Any], others: frozenset[str], *, exact: bool) -> Handed:
        """Give the part's own among values that were made for several: without those that only others take."""
        if self.definition.arguments is None:
            return Handed.value(values.get("input", values))
        own = self.names()
        return Handed(None, {key: each for key, each in values.items() if key in own or key not in others}, exact)


def _handed(branches: Sequence[Branch], value: Any) -> list[Handed]:
    """Give the input as each part takes it: what a caller or an adapter made for all of them is shared out."""
    handed = as_handed(value)
    values = handed.payload
    made = handed.exact or not isinstance(value, Handed)
    if not made or not isinstance(values, Mapping) or all(each.definition.arguments is None for each in branches):
        return [handed] * len(branches)
    known = frozenset[str]().union(*(each.names() for each in branches))
    return [each.share(values, known, exact=handed.exact) for each in branches]


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
    asking: tuple[ToolDefinition, ...] = field(init=False)
    """The parts, at every depth, that ask a reviewer whenever their turn comes."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "asking", asking_in(self.parts()))

    def __call__(self, value: Any, context: ToolContext, walk: Walk, trace: Trace | None) -> CallPath:
        """Walk the parts; give their results by name, or what a function makes of them."""
        check_reviewer(self.asking, context)
        parts = list(zip(self.branches, _handed(self.branches, value), strict=True))
        spread = _Spread(parts, fail_fast=self.fail_fast)
        own = trace or Trace()
        return (yield from spread.walk(len(self.branches), context, walk, own, partial(self._merged, context, own)))

    def _merged(self, context: ToolContext, trace: Trace, results: Sequence[ToolResult]) -> CallPath:
        results_by_name = {each.definition.name: result for each, result in zip(self.branches, results, strict=True)}
        if self.dry:
            return _dry(context.tool_name, results_by_name, results)
        if self.merge is None:
            return _together(results_by_name, results)
        try:
            return shaped((yield Apply(self.merge, context, results_by_name)))
        except Exception as error:
            if (through := passing(error)) is not None:
                raise through from (None if through is error else error)
            context.logger.warning("The merge of '%s' failed", context.tool_name, exc_info=True)
            trace.threw = context.tool_name
            return failed(error)

    def mapped(self, change: Change) -> Fan:
        """Give the same with other parts."""
        return replace(self, branches=tuple(each.changed(change) for each in self.branches))

    def dried(self) -> Fan:
        """Give the same for a dry run."""
        return replace(self.mapped(dried), dry=True)

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
    asking: tuple[ToolDefinition, ...] = field(init=False)
    """The part, and parts of it, that ask a reviewer whenever their turn comes."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "asking", asking_in(self.parts()))

    def __call__(self, value: Any, context: ToolContext, walk: Walk, trace: Trace | None) -> CallPath:
        """Walk the part for each item; give the results in the order of the items."""
        check_reviewer(self.asking, context)
        parts = [(self.branch, Handed.value(item)) for item in items_of(as_handed(value))]
        spread = _Spread(parts, fail_fast=self.fail_fast)
        return (yield from spread.walk(self.limit, context, walk, trace or Trace(), partial(self._listed, context)))

    def _listed(self, context: ToolContext, results: Sequence[ToolResult]) -> CallPath:
        yield from ()  # a path, as where results are merged
        return _dry(context.tool_name, results, results) if self.dry else _together(results, results)

    def mapped(self, change: Change) -> Each:
        """Give the same with another part."""
        return replace(self, branch=self.branch.changed(change))

    def dried(self) -> Each:
        """Give the same for a dry run."""
        return replace(self.mapped(dried), dry=True)

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
    asking: tuple[ToolDefinition, ...] = field(init=False, default=())
    """None of the parts: which one is walked is not known before."""

    def __call__(self, value: Any, context: ToolContext, walk: Walk, trace: Trace | None) -> CallPath:
        """Walk the part that the predicate says; give its result."""
        texts = self.then.definition.arguments is None and self.otherwise.definition.arguments is None
        handed = as_handed(value)
        chosen = yield Apply(self.predicate, context, handed.written if texts else handed.shown)
        branch = self.then if chosen else self.otherwise
        given = _handed((self.then, self.otherwise), value)[0 if chosen else 1]
        own = Trace()
        try:
            return (yield from walk.path(branch.definition, branch.read, given, context, own, 1))
        finally:
            if trace is not None:
                trace.undos, trace.undone, trace.threw = own.undos, own.undone, own.threw

    def mapped(self, change: Change) -> Choice:
        """Give the same with other parts."""
        return replace(self, then=self.then.changed(change), otherwise=self.otherwise.changed(change))

    def dried(self) -> Choice:
        """Give the same for a dry run."""
        return self.mapped(dried)

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


class _Spread:
    """Parts with their inputs, walked side by side."""

    def __init__(self, parts: Sequence[tuple[Branch, Handed]], *, fail_fast: bool) -> None:
        self._parts = parts
        self._fail_fast = fail_fast
        self._traces = [Trace() for _ in parts]

    def walk(
        self,
        limit: int,
        context: ToolContext,
        walk: Walk,
        trace: Trace,
        together: Callable[[list[ToolResult]], CallPath],
    ) -> CallPath:
        """Walk the parts; give the one result that a path makes of theirs, or the failure that stands for all.

        What was completed inside is undone when the whole fails, and handed up to be undone later when it does not.
        """
        starts = [
            partial(walk.path, branch.definition, branch.read, handed, context, own, number)
            for number, ((branch, handed), own) in enumerate(zip(self._parts, self._traces, strict=True), 1)
        ]
        try:
            results = yield SideBySide(starts, limit, fail_fast=self._fail_fast)
            result = self._failure(results, trace) or (yield from together(results))
        except BaseException as error:
            if must_undo(error):
                trace.undone = yield from self._undone(walk)
            raise
        if result.is_success:
            trace.undos = tuple(self._undos())
            return result
        return with_undone(result, (yield from self._undone(walk)))

    def _undone(self, walk: Walk) -> Generator[Work, Any, tuple[StepRecord, ...]]:
        """Undo what was completed; tell of it, and of what parts that were cut off have undone themselves."""
        before = [record for own in self._traces for record in own.undone]
        return (*before, *(yield from undone(self._undos(), walk)))

    def _undos(self) -> list[Any]:
        return [undo for own in self._traces for undo in own.undos]

    def _failure(self, results: Sequence[ToolResult | None], trace: Trace) -> ToolResult | None:
        """Give the failure that stands for all, or None when enough succeeded."""
        failures = [result for result in results if result is not None and not result.is_success]
        if not failures or (len(failures) < len(results) and not self._fail_fast):
            return None
        if self._fail_fast or len(failures) == 1:
            trace.threw = next(
                own.threw for own, each in zip(self._traces, results, strict=True) if each is failures[0]
            )
            return failures[0]
        messages = list(dict.fromkeys(str(result.error_message) for result in failures))
        more = f"; and {len(messages) - _SHOWN} more" if len(messages) > _SHOWN else ""
        message = f"All {len(failures)} failed: {'; '.join(messages[:_SHOWN])}{more}"
        return ToolResult.failure(message, structured_output=self._named(failures))

    def _named(self, results: Sequence[ToolResult]) -> Any:
        names = [branch.definition.name for branch, _ in self._parts]
        return list(results) if len(set(names)) < len(names) else dict(zip(names, results, strict=True))


def _together(payload: Any, results: Sequence[ToolResult]) -> ToolResult:
    """Give one result of several: their payloads or texts as JSON, and all their contents."""
    contents = tuple(content for result in results for content in result.contents)
    return ToolResult(shaped(unwrapped(payload)).output, None, payload, contents)


def _dry(name: str, payload: Any, results: Sequence[ToolResult]) -> ToolResult:
    """Give what stands for the result of parts that were not run; it tells of those that would not have been."""
    dry = dry_result(name)
    if all(result.is_success for result in results):
        return dry
    return replace(_together(payload, results), attributes=dry.attributes)
