"""Parallel parts of a combined tool, and how their results are joined into one."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from toolsemble._engine.context import ToolContext
from toolsemble._engine.definition.variants import dry_result
from toolsemble._engine.execution.call import CallPath, CallSettings, SubCallReport
from toolsemble._engine.execution.path import start_sub_call
from toolsemble._engine.execution.step_record import StepRecord
from toolsemble._engine.work.body import Work
from toolsemble._engine.work.snapshot import copy_input
from toolsemble._schema.shape import to_result
from toolsemble._tools.pipeline.branch import Branch
from toolsemble._tools.pipeline.handoff import Handoff, unwrap_results
from toolsemble._tools.pipeline.parallel import RunParallel
from toolsemble._tools.pipeline.undo import add_undone, fail_if_late, must_undo, run_undos
from toolsemble._vocabulary.result import ToolResult

_SHOWN = 3


class ParallelParts:
    """Parts with their inputs, run in parallel."""

    def __init__(self, parts: Sequence[tuple[Branch, Handoff]], *, fail_fast: bool) -> None:
        self._parts = parts
        self._fail_fast = fail_fast
        self._reports = [SubCallReport() for _ in parts]

    def run(
        self,
        limit: int,
        context: ToolContext,
        settings: CallSettings,
        report: SubCallReport,
        path: Callable[[list[ToolResult]], CallPath],
    ) -> CallPath:
        """Run the parts; return the result that ``path`` makes of theirs, or the failure that stands for all of them.

        Completed parts are undone if the whole fails; else their undos are passed to the caller, to be run later.
        """
        # Each part gets its own copy of an approved input, so that no part can change what was approved for another.
        parts = [
            (branch, copy_input(branch.definition, handoff) if settings.approved else handoff)
            for branch, handoff in self._parts
        ]
        starts = [
            partial(start_sub_call, settings, branch.definition, branch.read, handoff, context, own, number)
            for number, ((branch, handoff), own) in enumerate(zip(parts, self._reports, strict=True), 1)
        ]
        try:
            results = yield RunParallel(starts, limit, fail_fast=self._fail_fast)
            result = self._find_failure(results, report) or (yield from path(results))
        except BaseException as error:
            if must_undo(error):
                report.undone = yield from self._undo_all(settings)
            raise
        result = fail_if_late(result, context)
        if result.is_success:
            report.undos = tuple(self._undos())
            return result
        return add_undone(result, (yield from self._undo_all(settings)))

    def _undo_all(self, settings: CallSettings) -> Generator[Work, Any, tuple[StepRecord, ...]]:
        """Undo the completed parts; return the records, with those of cancelled parts that undid their own steps."""
        before = [record for own in self._reports for record in own.undone]
        return (*before, *(yield from run_undos(self._undos(), settings)))

    def _undos(self) -> list[Any]:
        return [undo for own in self._reports for undo in own.undos]

    def _find_failure(self, results: Sequence[ToolResult | None], report: SubCallReport) -> ToolResult | None:
        """Return the failure that stands for all parts, or None if enough of them succeeded."""
        failures = [result for result in results if result is not None and not result.is_success]
        if not failures or (len(failures) < len(results) and not self._fail_fast):
            return None
        if self._fail_fast or len(failures) == 1:
            report.raised_by = next(
                own.raised_by for own, each in zip(self._reports, results, strict=True) if each is failures[0]
            )
            return failures[0]
        messages = list(dict.fromkeys(str(result.error_message) for result in failures))
        more = f"; and {len(messages) - _SHOWN} more" if len(messages) > _SHOWN else ""
        message = f"All {len(failures)} failed: {'; '.join(messages[:_SHOWN])}{more}"
        kinds = {result.error_kind for result in failures}
        kind = failures[0].error_kind if len(kinds) == 1 else None
        return ToolResult.failure(
            message, structured_output=self._name_results(failures), error_kind=kind or "execution"
        )

    def _name_results(self, results: Sequence[ToolResult]) -> Any:
        names = [branch.definition.name for branch, _ in self._parts]
        return list(results) if len(set(names)) < len(names) else dict(zip(names, results, strict=True))


def join_results(payload: Any, results: Sequence[ToolResult]) -> ToolResult:
    """Return one result for several: their payloads or texts as JSON, and all their contents."""
    contents = tuple(content for result in results for content in result.contents)
    return ToolResult(to_result(unwrap_results(payload)).output, None, payload, contents)


def join_dry_results(name: str, payload: Any, results: Sequence[ToolResult]) -> ToolResult:
    """Return the placeholder result of a dry run; if parts would have failed, with their failures."""
    dry = dry_result(name)
    if all(result.is_success for result in results):
        return dry
    return replace(join_results(payload, results), attributes=dry.attributes)
