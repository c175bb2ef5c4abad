"""The flows of combined tools: all parts in parallel, one part per item, or one of two parts."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, TypedDict, Union

from toolsemble._engine.context import ToolContext
from toolsemble._engine.definition import ToolDefinition, always_gated_in, dry_result, to_dry_run
from toolsemble._engine.execution.approval import check_reviewer
from toolsemble._engine.execution.call import CallPath, CallSettings, SubCallReport
from toolsemble._engine.execution.call_path import adrive, drive, start_sub_call
from toolsemble._engine.execution.edits import carry_edits
from toolsemble._engine.execution.failure import find_fatal_error, to_logged_failure
from toolsemble._engine.execution.journaled_call import StepRecord
from toolsemble._engine.work.body import Apply, Work
from toolsemble._engine.work.snapshot import copy_input
from toolsemble._runtime.event_loops import finish
from toolsemble._schema.argument_problems import resolve_schema
from toolsemble._schema.decode import Read
from toolsemble._schema.result_shape import is_opaque, to_result
from toolsemble._tools.pipeline.handoff import Handoff, as_handoff, make_reader, read_items, unwrap_results
from toolsemble._tools.pipeline.undo import add_undone, fail_if_late, must_undo, run_undos
from toolsemble._vocabulary.errors import CallPausedError
from toolsemble._vocabulary.result import ToolResult
from toolsemble.review._asking.ask import batch_requests

if TYPE_CHECKING:
    import asyncio


class Branch(NamedTuple):
    """A tool inside a combined tool, with the function that reads its input."""

    definition: ToolDefinition
    read: Read

    @classmethod
    def of(cls, definition: ToolDefinition) -> Branch:
        """Return the branch for a definition."""
        return cls(definition, make_reader(definition))

    def map_definition(self, change: Callable[[ToolDefinition], ToolDefinition]) -> Branch:
        """Return a copy whose definition is replaced by ``change(definition)``."""
        return self._replace(definition=change(self.definition))

    def parameter_names(self) -> frozenset[str]:
        """Return the names of the tool's parameters; ``input`` for a text tool."""
        arguments = self.definition.arguments
        schema = (
            {"properties": {"input": {}}} if arguments is None else resolve_schema(arguments.schema, arguments.schema)
        )
        return frozenset(schema.get("properties", ()))

    def select(self, values: Mapping[str, Any], others: frozenset[str], *, exact: bool) -> Handoff:
        """Return the values for this branch, without values that only other branches take."""
        if self.definition.arguments is None:
            return Handoff.from_value(values.get("input", values))
        own = self.parameter_names()
        return Handoff(None, {key: each for key, each in values.items() if key in own or key not in others}, exact)


def split_input(branches: Sequence[Branch], value: Any) -> list[Handoff]:
    """Return each branch's input; values that a caller or adapter made for all branches are split by name."""
    handoff = as_handoff(value)
    values = handoff.payload
    shared = handoff.exact or not isinstance(value, Handoff)
    if not shared or not isinstance(values, Mapping) or all(each.definition.arguments is None for each in branches):
        return [handoff] * len(branches)
    known = frozenset[str]().union(*(each.parameter_names() for each in branches))
    return [each.select(values, known, exact=handoff.exact) for each in branches]


class RunParallel:
    """Work that runs call paths in parallel, at most ``limit`` concurrently, and returns their results in order.

    The result of a path that did not finish, because another one failed under ``fail_fast``, is None.
    """

    __slots__ = ("_fail_fast", "_limit", "_starts")

    def __init__(self, starts: Sequence[Callable[[], CallPath]], limit: int, *, fail_fast: bool) -> None:
        self._starts = starts
        self._limit = limit
        self._fail_fast = fail_fast

    def do(self) -> list[ToolResult | None]:
        """Run the paths in a new event loop, with blocking bodies in worker threads; run a single path directly."""
        if len(self._starts) == 1:
            return [drive(self._starts[0]())]
        return finish(self.ado()) if self._starts else []

    async def ado(self) -> list[ToolResult | None]:
        """Run the paths in this event loop; no task is left running."""
        import asyncio

        workers = _Workers(self._starts, fail_fast=self._fail_fast)
        with batch_requests():
            async with asyncio.TaskGroup() as group:
                for _ in range(min(self._limit, len(self._starts))):
                    workers.tasks.append(group.create_task(workers.run()))
        if workers.raised is not None:
            try:
                raise workers.raised
            finally:
                workers.raised = None  # its traceback refers to this frame
        return workers.results


class _Workers:
    """Tasks that each run one path after another until none is left."""

    def __init__(self, starts: Sequence[Callable[[], CallPath]], *, fail_fast: bool) -> None:
        self.results: list[ToolResult | None] = [None] * len(starts)
        self.raised: BaseException | None = None
        self.tasks: list[asyncio.Task[None]] = []
        self._waiting: Iterator[tuple[int, Callable[[], CallPath]]] = enumerate(starts)
        self._fail_fast = fail_fast
        self._stopped = False

    async def run(self) -> None:
        """Run paths until none is left, or one stops all of them."""
        for index, start in self._waiting:
            if not self._stopped:  # also reached by a task whose tool suppressed its cancellation
                await self._run_path(index, start)

    async def _run_path(self, index: int, start: Callable[[], CallPath]) -> None:
        import asyncio

        task = asyncio.current_task()
        try:
            result = await adrive(start())
            self.results[index] = result
        except BaseException as error:
            # Stored, not raised: some exceptions stop an event loop immediately, which would lose the other tasks.
            if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
                raise
            self.raised = self.raised or error
            if not isinstance(error, CallPausedError):  # the run continues later: started paths may finish
                self._stop(task)
        else:
            if self._fail_fast and not result.is_success:
                self._stop(task)

    def _stop(self, own: asyncio.Task[None] | None) -> None:
        self._stopped = True
        for task in self.tasks:
            if task is not own:
                task.cancel()


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
        """Run the parts; return the result that ``path`` makes of theirs, or the overall failure.

        Completed parts are undone if the whole fails; otherwise their undos are passed to the caller.
        """
        # Each part gets its own copy of an approved input, so that no part can change another part's approved input.
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
        """Undo the completed parts; return all records, also of cancelled parts that undid their own steps."""
        before = [record for own in self._reports for record in own.undone]
        return (*before, *(yield from run_undos(self._undos(), settings)))

    def _undos(self) -> list[Any]:
        return [undo for own in self._reports for undo in own.undos]

    def _find_failure(self, results: Sequence[ToolResult | None], report: SubCallReport) -> ToolResult | None:
        """Return the overall failure, or None if enough parts succeeded."""
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


def return_type(part: ToolDefinition) -> Any:
    """Return the type that a part passes on.

    >>> from toolsemble._engine.definition import string_definition
    >>> return_type(string_definition("count", "", len, returns=lambda: int))
    <class 'int'>
    """
    kind = part.returns()
    if kind is Any or kind is object or is_opaque(kind):
        return Any
    if kind is None or kind is type(None):
        return str  # the empty text
    return kind


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
    """A flow that runs one part for each list item."""

    how: ClassVar[str] = "this, for each item of the list"
    """How the parts are run, for the description of a plan."""
    kind: ClassVar[Literal["each"]] = "each"
    """How the parts are run, for programs."""
    branch: Branch
    limit: int
    """The maximum number of items processed concurrently."""
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
    """A flow that runs one of two parts, selected by a predicate of the input."""

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
        """Run the part selected by the predicate; return its result."""
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
