"""The steps of a call of a journaled run: answer it from the journal, or record that it begins and how it ends.

Most calls have no journal, and do not load this.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Generator, Mapping
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any

from toolsemble._engine.context import InvocationParameters, ToolContext
from toolsemble._engine.definition import ToolDefinition
from toolsemble._engine.execution.call import ArgumentsReport, Call, CallPath
from toolsemble._engine.execution.journal_values import read_recorded, write_recorded
from toolsemble._engine.record import count_and_log
from toolsemble._engine.work.body import Work
from toolsemble._engine.work.wait import RunInThread
from toolsemble._runtime.text import preview
from toolsemble._runtime.watchers import tell, watchers
from toolsemble._schema.masking import mask_value
from toolsemble._vocabulary.place import Place, RecordedCall
from toolsemble._vocabulary.result import ToolResult
from toolsemble.events import CallFinished

_SHOWN = 2000
_UNKNOWN = (
    "Unknown outcome: the process ended while '{tool}' ran, so it may or may not have taken effect. It is not made "
    "again. Find out whether the effect is there before anything else is done; an operator settles it with "
    "RunJournal.resolve('{run}', '{place}', happened=...)"
)


def run_once(call: Call, path: CallPath) -> CallPath:
    """Run a call whose result the journal does not know, and record it; else return the recorded result.

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
    # A part that can be undone is walked again, so that its undos are known.
    if call.report is None or not call.report.undos:
        yield from _record_end(call, place, result)
    return result


def record_start(call: Call, work: Work, value: Any) -> Work:
    """Return the work of a body that the journal knows before it runs; parts and agents inside are known by theirs."""
    definition, place = call.definition, _place_of(call.context)
    if definition.delegates:
        return work
    repeatable = definition.policy is not None and definition.policy.repeatable
    shown = mask_value(_present(definition, value))
    arguments = preview(json.dumps(shown, ensure_ascii=False, default=str), _SHOWN)
    begin = partial(place.run.begin, place.path, definition.name, arguments, repeatable=repeatable)
    return _RecordedWork(work, RunInThread(begin, in_place=repeatable and place.run.in_place))


class _RecordedWork:
    """The work of a body, after its beginning was recorded."""

    __slots__ = ("_begin", "_work")

    def __init__(self, work: Any, begin: RunInThread) -> None:
        self._work = work
        self._begin = begin

    def track_start(self, start: Any) -> None:
        """Report to a start when the body begins."""
        self._work.track_start(start)

    def do(self) -> Any:
        """Record, and run the body here."""
        self._begin.do()
        return self._work.do()

    async def ado(self) -> Any:
        """Record, and run the body without blocking the event loop."""
        await self._begin.ado()
        return await self._work.ado()


def _place_of(context: ToolContext) -> Place:
    assert context.place is not None  # noqa: S101 - only calls with a place come here
    return context.place


def _is_part(call: Call) -> bool:
    """Return whether a call is one of a pipeline, and not one that a model made by its name."""
    return call.report is not None and not isinstance(call.report, ArgumentsReport)


def _has_ledger(definition: ToolDefinition) -> bool:
    """Return whether a ledger in a file knows what became of a call: it answers a repeated one."""
    layers = () if definition.policy is None else definition.policy.layers
    return any(layer.survives for layer in layers)


def _report_unknown(call: Call, tool: str) -> ToolResult:
    """Return what the model is told; the tool is the recorded one, which the agent of today may not have."""
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
        # What the body of a part got, with its secrets, to undo the part with.
        data["given"] = _present(call.definition, call.given, reveal=True)
    if (changed := place.run.find_changes(call.context.parameters)) is not None:
        data["parameters"] = changed
    end = partial(place.run.end, place.path, call.definition.name, data)
    yield RunInThread(end, in_place=place.run.in_place)


def _without_result(result: ToolResult) -> ToolResult:
    """Return the result of an agent without its conversation, which its own places have."""
    attributes = {name: value for name, value in result.attributes.items() if name != "result"}
    return replace(result, attributes=MappingProxyType(attributes))


def _present(definition: ToolDefinition, value: Any, *, reveal: bool = False) -> Any:
    """Return the input of a body as JSON values; None for an object of somebody's own that cannot be shown."""
    try:
        return definition.present(value, reveal=reveal, best_effort=True)
    except Exception:  # any code of such an object may raise
        return None


def _replay(call: Call, data: Any) -> ToolResult:
    """Return the recorded result of a call, and report to its parent what it reported then."""
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
    except Exception:  # the tool has changed since; whoever undoes the part gets the JSON values
        return shown
