"""How a completed step is undone when a later one fails for good."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, NamedTuple

from toolsemble.context import ToolContext
from toolsemble.definition.definition import ToolDefinition
from toolsemble.errors import ToolDefinitionError
from toolsemble.execution.failure import failed
from toolsemble.execution.path import Trace, Walk
from toolsemble.masking.secrets import masked, masked_error
from toolsemble.pipeline.handoff import Handed, Read, as_it_is, reader, unwrapped
from toolsemble.result import ToolResult
from toolsemble.runtime.concurrency import THREADS, is_async
from toolsemble.schema.display import presented
from toolsemble.shape import to_result
from toolsemble.tools.collection import collect_tools
from toolsemble.work.body import RunBody, Work, run_in_context
from toolsemble.work.deadline import is_past

_GIVEN = {"input", "result"}


class StepRecord(NamedTuple):
    """What became of one step of a pipeline.

    >>> StepRecord("search", "rome", ToolResult.success("3 hits"), 0.25).result.output
    '3 hits'
    """

    name: str
    """The step's tool."""
    input: Any
    """What its body got, or what was handed over when that did not fit; None when nobody could know it."""
    result: ToolResult
    """What came of it."""
    duration: float
    """How many seconds the work took, without the time of a reviewer."""


@dataclass(frozen=True, slots=True)
class Compensation:
    """A function or a tool that undoes a step, ready to be run."""

    definition: ToolDefinition
    """What runs: the tool, or the function in a definition that nobody sees."""
    read: Read | None
    """How the tool takes the step's input and result; None for a function."""

    @property
    def tool(self) -> ToolDefinition | None:
        """The tool; None for a function."""
        return None if self.read is None else self.definition

    def changed(self, change: Callable[[ToolDefinition], ToolDefinition]) -> Compensation:
        """Give the same with what a function makes of the tool: what it needs of a reviewer, it needs here, too."""
        return self if self.read is None else replace(self, definition=change(self.definition))


def compensation(owner: str, source: Any) -> Compensation | None:
    """Give how a step is undone, None when it is not; refuse what is neither a function nor a tool that can do it."""
    if source is None:
        return None
    found = [] if isinstance(source, type) else collect_tools(source)
    if not found:
        return Compensation(_function(owner, source), None)
    if len(found) > 1:
        raise ToolDefinitionError(f"{owner}: compensate has {len(found)} tools; pass one of them")
    definition = found[0][1]
    if definition.arguments is not None:
        schema = definition.arguments.schema
        names, required = set(schema.get("properties", ())), set(schema.get("required", ()))
        if required - _GIVEN or (names and not names & _GIVEN):
            raise ToolDefinitionError(
                f"{owner}: compensate is given 'input' and 'result', but '{definition.name}' takes "
                f"{', '.join(sorted(names))}; pass a function (input, result) that calls it"
            )
    return Compensation(definition, reader(definition))


def _function(owner: str, function: Any) -> ToolDefinition:
    if not callable(function):
        raise ToolDefinitionError(f"{owner}: compensate must be a function or a tool, not {function!r:.80}")
    try:
        inspect.signature(function).bind(None, None)
    except TypeError as problem:
        raise ToolDefinitionError(f"{owner}: compensate takes (input, result): {problem}") from None
    except ValueError:
        pass  # a builtin does not tell its signature

    def body(given: tuple[Any, ToolResult]) -> Any:
        return function(*given)

    return ToolDefinition(owner, "", body=body, decode=as_it_is, accept=as_it_is, awaits=is_async(function))


class Undo(NamedTuple):
    """One completed step and how it is undone."""

    step: str
    """The step's tool."""
    compensation: Compensation
    """What undoes it."""
    input: Any
    """What its body got."""
    result: ToolResult
    """What it gave."""
    context: ToolContext
    """The context of the pipeline that it is a step of."""

    def path(self, walk: Walk) -> Generator[Work, Any, StepRecord]:
        """Undo the step; a failure is part of the record, and in the log."""
        started, context, raised = time.perf_counter(), self.context, None
        try:
            result = yield from self._work(walk)
        except Exception as error:  # noqa: BLE001 - whatever it is, the other steps are to be undone
            result, raised = failed(error, context), masked_error(error)
        if result.error_message is not None:
            said = masked(result.error_message)
            context.logger.warning("The undo of step '%s' failed: %s", self.step, said, exc_info=raised)
        return StepRecord(self.step, self.input, result, time.perf_counter() - started)

    def _work(self, walk: Walk) -> Generator[Work, Any, ToolResult]:
        definition, read = self.compensation.definition, self.compensation.read
        # What was begun is undone also when time is up; an undo that must be quick has a timeout of its own.
        context = self.context.derive({"deadline": None})
        if read is None:
            # Not the toolbox's executor: a function that stands beside the step cannot always go to a process.
            work = RunBody(definition, (self.input, self.result), context, THREADS)
            return to_result((yield from run_in_context(work, context)))
        payload = unwrapped(self.result.structured_output)
        given = {
            "input": presented(self.input, reveal=True),
            "result": self.result.output if payload is None else presented(payload, reveal=True),
        }
        return (yield from walk.path(definition, read, Handed(None, given), context, Trace(), 0))


def undone(undos: list[Undo], walk: Walk) -> Generator[Work, Any, tuple[StepRecord, ...]]:
    """Undo the steps, newest first, once each; give what became of it."""
    records = []
    while undos:
        records.append((yield from undos.pop().path(walk)))
    return tuple(records)


def with_undone(result: ToolResult, records: tuple[StepRecord, ...]) -> ToolResult:
    """Give a result whose attributes tell what was undone; the same one when nothing was.

    >>> with_undone(ToolResult.failure("no"), ())
    ToolResult.failure('no')
    """
    if not records:
        return result
    before = result.attributes.get("undone", ())
    return replace(result, attributes=MappingProxyType({**result.attributes, "undone": (*before, *records)}))


def in_time(result: ToolResult, context: ToolContext) -> ToolResult:
    """Return the result of what is made of tools; a failure when its time is up, so that its steps are undone.

    >>> in_time(ToolResult.success("done"), ToolContext(deadline=0.0))
    ToolResult.failure('The time was up')
    """
    if result.error_message is not None or not is_past(context.deadline):
        return result
    return ToolResult.failure(
        "The time was up", structured_output=result.structured_output, attributes=result.attributes
    )


def must_undo(error: BaseException) -> bool:
    """Whether steps are undone when an exception passes: not where the program ends, or nobody drives any more.

    >>> must_undo(ValueError()), must_undo(KeyboardInterrupt())
    (True, False)
    """
    return not isinstance(error, (GeneratorExit, KeyboardInterrupt, SystemExit))
