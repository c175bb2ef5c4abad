"""The steps of a journaled call: answer it from the journal, or record its start and end as JSON.

Most calls have no journal, and do not load this.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Generator, Mapping
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

from toolsemble._engine.context import InvocationParameters, ToolContext
from toolsemble._engine.definition import ToolDefinition
from toolsemble._engine.execution.call import ArgumentsReport, Call, CallPath
from toolsemble._engine.execution.edits import EditedArguments
from toolsemble._engine.record import count_and_log
from toolsemble._engine.work.body import Work
from toolsemble._engine.work.wait import RunInThread
from toolsemble._runtime.text import preview
from toolsemble._runtime.watchers import tell, watchers
from toolsemble._schema.masking import mask_value
from toolsemble._schema.result_shape import to_json_value
from toolsemble._vocabulary.place import Place, RecordedCall
from toolsemble._vocabulary.result import ToolResult
from toolsemble._vocabulary.serialization import read_content, read_error_kind, write_content
from toolsemble.events import CallFinished


class StepRecord(NamedTuple):
    """The record of one pipeline step.

    >>> StepRecord("search", "rome", ToolResult.success("3 hits"), 0.25).result.output
    '3 hits'
    """

    name: str
    """The name of the step's tool."""
    input: Any
    """The body's input, or the handoff if that was invalid; None if unknown."""
    result: ToolResult
    """Its result."""
    duration: float
    """The seconds that the work took, without time in review."""


_TAG = "$toolsemble"


def write_recorded(result: ToolResult) -> dict[str, Any]:
    """Return a result as JSON values, for :func:`read_recorded`; a program's objects become their display form.

    >>> write_recorded(ToolResult.success("21 C"))
    {'output': '21 C'}
    """
    written: dict[str, Any] = {"output": result.output}
    if result.error_message is not None:
        written["error"] = result.error_message
        written["error_kind"] = result.error_kind
    if result.structured_output is not None:
        written["payload"] = _write(result.structured_output)
    if result.contents:
        written["contents"] = [write_content(content) for content in result.contents]
    if result.attributes:
        written["attributes"] = {name: _write(value) for name, value in result.attributes.items()}
    return written


def read_recorded(data: Mapping[str, Any]) -> ToolResult:
    """Return the result that :func:`write_recorded` wrote.

    >>> read_recorded({"output": "", "error": "no such city"})
    ToolResult.failure('no such city')
    """
    contents = tuple(map(read_content, data.get("contents", ())))
    attributes = MappingProxyType({name: _read(value) for name, value in data.get("attributes", {}).items()})
    kind = read_error_kind(data.get("error_kind"))
    return ToolResult(data["output"], data.get("error"), _read(data.get("payload")), contents, attributes, kind)


def _write(value: Any) -> Any:
    kind = type(value)
    if kind is dict and _TAG not in value and all(type(key) is str for key in value):
        return {key: _write(each) for key, each in value.items()}
    if kind is list:
        return [_write(each) for each in value]
    if kind is tuple:
        return {_TAG: "tuple", "items": [_write(each) for each in value]}
    if isinstance(value, ToolResult):
        return {_TAG: "result", **write_recorded(value)}
    if kind is EditedArguments:
        return {_TAG: "edited", "tool": value.tool_name, "values": dict(value)}
    if kind is StepRecord:
        return {_TAG: "step", "items": [_write(each) for each in value]}
    return to_json_value(value)


def _read(value: Any) -> Any:
    if isinstance(value, list):
        return [_read(each) for each in value]
    if not isinstance(value, dict):
        return value
    read = _READERS.get(value.get(_TAG, ""))
    return {key: _read(each) for key, each in value.items()} if read is None else read(value)


_READERS: dict[str, Callable[[Mapping[str, Any]], Any]] = {
    "tuple": lambda value: tuple(map(_read, value["items"])),
    "result": read_recorded,
    "edited": lambda value: EditedArguments(value["tool"], value["values"]),
    "step": lambda value: StepRecord(*map(_read, value["items"])),
}


_SHOWN = 2000
_UNKNOWN = (
    "Unknown outcome: the process ended while '{tool}' ran, so it may or may not have taken effect. It is not made "
    "again. Find out whether the effect is there before anything else is done; an operator settles it with "
    "RunJournal.resolve('{run}', '{place}', happened=...)"
)


def run_once(call: Call, path: CallPath) -> CallPath:
    """Return the call's recorded result; without one, run the call and record it.

    :param path: the path of the call, which has not started
    """
    place = _place_of(call.context)
    known: RecordedCall | None = place.run.find(place.path)
    if known is not None and known.tool != call.definition.name and _is_part(call):
        path.close()
        place.run.refuse_tool(place.path, known.tool, call.definition.name)
    if known is not None and known.is_done:
        path.close()
        return _replay(call, known.data)
    if known is None or known.repeatable or _has_ledger(call.definition):
        result = yield from path
    else:
        path.close()
        place.run.handle_unknown(place.path, known.tool)
        result = _report_unknown(call, known.tool)
    # A part that can be undone is replayed, so that its undos are known.
    if call.report is None or not call.report.undos:
        yield from _record_end(call, place, result)
    return result


def record_start(call: Call, work: Work, value: Any) -> Work:
    """Return work that records the start before the body runs; parts and nested agents record their own."""
    definition, place = call.definition, _place_of(call.context)
    if definition.delegates:
        return work
    repeatable = definition.policy is not None and definition.policy.repeatable
    shown = mask_value(_present(definition, value))
    arguments = preview(json.dumps(shown, ensure_ascii=False, default=str), _SHOWN)
    begin = partial(place.run.begin, place.path, definition.name, arguments, repeatable=repeatable)
    return _RecordedWork(work, RunInThread(begin, in_place=repeatable and place.run.in_place))


class _RecordedWork:
    """A body's work that first records its start."""

    __slots__ = ("_begin", "_work")

    def __init__(self, work: Any, begin: RunInThread) -> None:
        self._work = work
        self._begin = begin

    def track_start(self, start: Any) -> None:
        """Report to a start when the body begins."""
        self._work.track_start(start)

    def do(self) -> Any:
        """Record the start, and run the body here."""
        self._begin.do()
        return self._work.do()

    async def ado(self) -> Any:
        """Record the start, and run the body without blocking the event loop."""
        await self._begin.ado()
        return await self._work.ado()


def _place_of(context: ToolContext) -> Place:
    assert context.place is not None  # noqa: S101 - only calls with a place come here
    return context.place


def _is_part(call: Call) -> bool:
    """Return whether a call is a pipeline step, and not a model's call by name."""
    return call.report is not None and not isinstance(call.report, ArgumentsReport)


def _has_ledger(definition: ToolDefinition) -> bool:
    """Return whether a persistent ledger has the outcomes of calls: it answers repeated ones."""
    layers = () if definition.policy is None else definition.policy.layers
    return any(layer.survives for layer in layers)


def _report_unknown(call: Call, tool: str) -> ToolResult:
    """Return the failed result for the model; the tool is the recorded one, which the agent may no longer have."""
    context = call.context
    message = _UNKNOWN.format(tool=tool, run=context.run_id, place=_place_of(context).path)
    count_and_log(context, "unknown_outcomes", message)
    result = ToolResult.failure(message, attributes={"outcome": "unknown"}, error_kind="unknown_outcome")
    if watchers():
        tell(CallFinished.of(context, outcome="failure", result=result))
    return result


def _record_end(call: Call, place: Place, result: ToolResult) -> Generator[Work, Any, None]:
    report = call.report
    data = write_recorded(_without_result(result) if call.definition.delegates else result)
    if call.started:
        data["seconds"] = round(time.perf_counter() - call.started, 6)
    if isinstance(report, ArgumentsReport):
        data["arguments"] = report.arguments
    elif report is not None:
        # The input of a part's body, with its secrets, for its undo.
        data["given"] = _present(call.definition, call.given, reveal=True)
    if (changed := place.run.find_changes(call.context.parameters)) is not None:
        data["parameters"] = changed
    end = partial(place.run.end, place.path, call.definition.name, data)
    yield RunInThread(end, in_place=place.run.in_place)


def _without_result(result: ToolResult) -> ToolResult:
    """Return an agent's result without its conversation, which the journal has in its own places."""
    attributes = {name: value for name, value in result.attributes.items() if name != "result"}
    return replace(result, attributes=MappingProxyType(attributes))


def _present(definition: ToolDefinition, value: Any, *, reveal: bool = False) -> Any:
    """Return the input of a body as JSON values; None for a foreign object that cannot be shown."""
    try:
        return definition.present(value, reveal=reveal, best_effort=True)
    except Exception:  # any code of such an object may raise
        return None


def _replay(call: Call, data: Any) -> ToolResult:
    """Return a call's recorded result, and repeat its report to the parent."""
    report = call.report
    if isinstance(report, ArgumentsReport):
        report.arguments = data.get("arguments")
    elif report is not None:
        report.given = _read_given(call, data.get("given"))
    if "parameters" in data:
        _restore_parameters(call.context.parameters, data["parameters"])
    _place_of(call.context).run.note_replay(data)
    return read_recorded(data)


def _restore_parameters(parameters: InvocationParameters, values: Mapping[str, Any]) -> None:
    for name in [name for name in parameters if name not in values]:
        del parameters[name]
    parameters.update(values)


def _read_given(call: Call, shown: Any) -> Any:
    read: Callable[..., Any] = call.definition.accept
    try:
        return read(shown, frozenset())[0]
    except Exception:  # the tool has changed since; the undo receives the JSON values
        return shown
