"""The flows of tools whose parts do not stand in one line: all at once, one for each item, one of two."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple, TypeAlias

from toolsemble.context import ToolContext
from toolsemble.definition import ToolDefinition, dried, dry_result
from toolsemble.errors import ToolExecutionError
from toolsemble.pipeline.handoff import Handed, Read, as_handed, reader, unwrapped
from toolsemble.pipeline.spread import SideBySide
from toolsemble.pipeline.undo import must_undo, undone, with_undone
from toolsemble.result import ToolResult
from toolsemble.runner import Trace, Walk
from toolsemble.shape import shaped
from toolsemble.work import Apply, Work

Walked: TypeAlias = Generator[Work, Any, ToolResult]
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

    def handed(self, value: Any) -> Handed:
        """Give the input as the part takes it: it came from the step before, or from a caller."""
        if isinstance(value, Handed):
            return value
        # Among tools with other parameters, a text tool has its own place.
        own = self.definition.arguments is None and isinstance(value, Mapping) and "input" in value
        return Handed.value(value["input"] if own else value)


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

    def __call__(self, value: Any, context: ToolContext, walk: Walk, trace: Trace | None) -> Walked:
        """Walk the parts; give their results by name, or what a function makes of them."""
        spread = _Spread([(each, each.handed(value)) for each in self.branches], fail_fast=self.fail_fast)
        results = yield from spread.walk(len(self.branches), context, walk, trace)
        if spread.failed is not None or self.dry:
            return spread.failed or dry_result(context.tool_name)
        named = {each.definition.name: result for each, result in zip(self.branches, results, strict=True)}
        if self.merge is not None:
            return shaped((yield Apply(self.merge, named, context)))
        return _together(named, results)

    def mapped(self, change: Change) -> Fan:
        """Give the same with other parts."""
        return replace(self, branches=tuple(each.changed(change) for each in self.branches))

    def dried(self) -> Fan:
        """Give the same for a dry run."""
        return replace(self.mapped(dried), dry=True)

    def parts(self) -> tuple[ToolDefinition, ...]:
        """Give the parts."""
        return tuple(each.definition for each in self.branches)

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

    def __call__(self, value: Any, context: ToolContext, walk: Walk, trace: Trace | None) -> Walked:
        """Walk the part for each item; give the results in the order of the items."""
        handed = [(self.branch, Handed.value(item)) for item in _items(self.branch.handed(value))]
        spread = _Spread(handed, fail_fast=self.fail_fast)
        results = yield from spread.walk(self.limit, context, walk, trace)
        if spread.failed is not None or self.dry:
            return spread.failed or dry_result(context.tool_name)
        return _together(results, results)

    def mapped(self, change: Change) -> Each:
        """Give the same with another part."""
        return replace(self, branch=self.branch.changed(change))

    def dried(self) -> Each:
        """Give the same for a dry run."""
        return replace(self.mapped(dried), dry=True)

    def parts(self) -> tuple[ToolDefinition, ...]:
        """Give the part."""
        return (self.branch.definition,)

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

    def __call__(self, value: Any, context: ToolContext, walk: Walk, trace: Trace | None) -> Walked:
        """Walk the part that the predicate says; give its result."""
        texts = self.then.definition.arguments is None and self.otherwise.definition.arguments is None
        handed = as_handed(value)
        chosen = yield Apply(self.predicate, handed.written if texts else handed.shown, context)
        branch = self.then if chosen else self.otherwise
        own = Trace()
        result = yield from walk.path(branch.definition, branch.read, branch.handed(value), context, own, 1)
        if trace is not None:
            trace.undos = own.undos
        return result

    def mapped(self, change: Change) -> Choice:
        """Give the same with other parts."""
        return replace(self, then=self.then.changed(change), otherwise=self.otherwise.changed(change))

    def dried(self) -> Choice:
        """Give the same for a dry run."""
        return self.mapped(dried)

    def parts(self) -> tuple[ToolDefinition, ...]:
        """Give both parts."""
        return self.then.definition, self.otherwise.definition

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
        self.failed: ToolResult | None = None
        """The result of the whole, when it is a failure."""

    def walk(
        self, limit: int, context: ToolContext, walk: Walk, trace: Trace | None
    ) -> Generator[Work, Any, list[ToolResult]]:
        """Walk the parts; give their results in order.

        What was completed inside is undone when the whole fails, and handed up to be undone later when it does not.
        """
        starts = [
            partial(walk.path, branch.definition, branch.read, handed, context, own, number)
            for number, ((branch, handed), own) in enumerate(zip(self._parts, self._traces, strict=True), 1)
        ]
        try:
            results = yield SideBySide(starts, limit, fail_fast=self._fail_fast)
        except BaseException as error:
            if must_undo(error):
                yield from undone(self._undos(), walk)
            raise
        self.failed = self._failure(results)
        if self.failed is not None:
            self.failed = with_undone(self.failed, (yield from undone(self._undos(), walk)))
        elif trace is not None:
            trace.undos = tuple(self._undos())
        return results  # type: ignore[no-any-return]  # the driver sends what the work gives

    def _undos(self) -> list[Any]:
        return [undo for own in self._traces for undo in own.undos]

    def _failure(self, results: Sequence[ToolResult | None]) -> ToolResult | None:
        """Give the failure that stands for all, or None when enough succeeded."""
        failed = [result for result in results if result is not None and not result.is_success]
        if not failed or (len(failed) < len(results) and not self._fail_fast):
            return None
        if self._fail_fast or len(failed) == 1:
            return failed[0]
        messages = list(dict.fromkeys(str(result.error_message) for result in failed))
        more = f"; and {len(messages) - _SHOWN} more" if len(messages) > _SHOWN else ""
        message = f"All {len(failed)} failed: {'; '.join(messages[:_SHOWN])}{more}"
        return ToolResult.failure(message, structured_output=self._named(failed))

    def _named(self, results: Sequence[ToolResult]) -> Any:
        names = [branch.definition.name for branch, _ in self._parts]
        return list(results) if len(set(names)) < len(names) else dict(zip(names, results, strict=True))


def _together(payload: Any, results: Sequence[ToolResult]) -> ToolResult:
    """Give one result of several: their payloads or texts as JSON, and all their contents."""
    contents = tuple(content for result in results for content in result.contents)
    return ToolResult(shaped(unwrapped(payload)).output, None, payload, contents)


def _items(handed: Handed) -> Sequence[Any]:
    """Give the list that an input is, has as its ``items``, or is as JSON text."""
    found = handed.payload
    if found is None:
        try:
            found = json.loads(handed.written)
        except (ValueError, RecursionError):
            found = handed.written
    if isinstance(found, dict) and isinstance(found.get("items"), (list, tuple)):
        found = found["items"]
    if isinstance(found, (list, tuple, set, frozenset)):
        return list(found)
    raise ToolExecutionError(f"map_over takes a list of items, not {type(found).__name__}")
