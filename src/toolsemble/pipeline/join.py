"""Parts that are walked side by side, and the one result of theirs."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from toolsemble.context import ToolContext
from toolsemble.definition.definition import dry_result
from toolsemble.execution.path import CallPath, Trace, Walk
from toolsemble.pipeline.branch import Branch
from toolsemble.pipeline.handoff import Handed, unwrapped
from toolsemble.pipeline.parallel import SideBySide
from toolsemble.pipeline.undo import StepRecord, in_time, must_undo, undone, with_undone
from toolsemble.result import ToolResult
from toolsemble.shape import to_result
from toolsemble.work.body import Work

_SHOWN = 3


class Spread:
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
        path: Callable[[list[ToolResult]], CallPath],
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
            result = self._failure(results, trace) or (yield from path(results))
        except BaseException as error:
            if must_undo(error):
                trace.undone = yield from self._undone(walk)
            raise
        result = in_time(result, context)
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


def together(payload: Any, results: Sequence[ToolResult]) -> ToolResult:
    """Give one result of several: their payloads or texts as JSON, and all their contents."""
    contents = tuple(content for result in results for content in result.contents)
    return ToolResult(to_result(unwrapped(payload)).output, None, payload, contents)


def dry_together(name: str, payload: Any, results: Sequence[ToolResult]) -> ToolResult:
    """Give what stands for the result of parts that were not run; it tells of those that would not have been."""
    dry = dry_result(name)
    if all(result.is_success for result in results):
        return dry
    return replace(together(payload, results), attributes=dry.attributes)
