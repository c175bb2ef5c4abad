"""The part of each event that a browser may see: no payloads, system prompt, thoughts or error texts."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

from toolsemble._engine.execution.edits import EditedArguments
from toolsemble._schema.result_shape import to_json_value
from toolsemble._vocabulary.call import ToolCall, new_id
from toolsemble._vocabulary.serialization import compact_json
from toolsemble.agent._event import Event, Final, TurnEnded
from toolsemble.agent._result import AgentResult, ToolCallRecord
from toolsemble.models._chat import ThoughtDelta
from toolsemble.review._request import Continue, Edit, ReviewRequest

CALL_FAILED = "The call failed"
"""The browser's text for a failed call, unless failures are shown."""


class ShownCall(NamedTuple):
    """A call as a browser may see it.

    >>> ShownCall("c1", "add", {"a": 1}).text
    '{"a":1}'
    """

    id: str
    """Its id, unique in the stream."""
    name: str
    """The name of the tool."""
    arguments: Any
    """The arguments as JSON values, or the model's text if it is not JSON; secrets masked."""

    @property
    def text(self) -> str:
        """The arguments as text."""
        return self.arguments if isinstance(self.arguments, str) else compact_json(self.arguments)


class BrowserView:
    """The public form of one stream's events, with unique call ids.

    >>> from toolsemble.agent import ModelRetried
    >>> BrowserView().write(ModelRetried("10.0.0.5 refused the connection", 0.5, "Ro"))
    {'kind': 'model_retried', 'seconds': 0.5, 'discarded': 'Ro'}
    """

    def __init__(self, *, show_failures: bool = False, show_thoughts: bool = False) -> None:
        """Start a stream.

        :param show_failures: whether the text of a failed call is shown
        :param show_thoughts: whether the model's reasoning is shown
        """
        self._show_failures = show_failures
        self._show_thoughts = show_thoughts
        self._used: set[str] = set()
        self._requested: list[tuple[ToolCall, ShownCall]] = []
        self._views: dict[str, Callable[[Any], dict[str, Any] | None]] = {
            "text_delta": lambda event: {"text": event.text},
            "prompt_progress": lambda event: {"fraction": _keep_finite(event.fraction)},
            "call_delta": lambda event: {"index": event.index, "name": event.name},
            "arguments_delta": lambda event: None if event.secret else {"index": event.index, "text": event.text},
            "call_requested": lambda event: _view_call(self.request(event.call, event.arguments)),
            "call_replied": lambda event: self._replied(event.record),
            "model_retried": lambda event: {"seconds": event.seconds, "discarded": event.discarded},
            "call_progress": lambda event: _view_progress(event, self._find_id(event.call_id)),
            "review_requested": lambda event: {"request": self._view_pending(event.request)},
            "review_decided": lambda event: _view_decision(event, self._find_id(event.request.call_id)),
            "turn_ended": lambda event: {"text": event.message.text},
            "final": lambda event: {"text": event.result.text, **view_result(event.result)},
            "parked": lambda event: {"run_id": event.run_id, "pending": list(map(self._view_pending, event.pending))},
            "interrupted": lambda event: {"run_id": event.run_id},
            "cancelled": lambda event: {"run_id": event.run_id},
        }
        if show_thoughts:
            self._views["thought_delta"] = lambda event: {"text": event.text}

    def write(self, event: Event) -> dict[str, Any] | None:
        """Return the part of an event that a browser may see; None for events that are not listed here."""
        view = self._views.get(event.kind)
        shown = None if view is None else view(event)
        return None if shown is None else {"kind": event.kind, **shown}

    def request(self, call: ToolCall, arguments: dict[str, Any] | None) -> ShownCall:
        """Return a requested call with the provider's id, or with a new id if that is not unique.

        :param arguments: the arguments with secrets masked; None: the call's own
        """
        call_id = call.id if call.id and call.id not in self._used else new_id()
        self._used.add(call_id)
        shown = ShownCall(call_id, call.name, _read_arguments(call) if arguments is None else to_json_value(arguments))
        self._requested.append((call, shown))
        return shown

    def answer(self, call: ToolCall) -> ShownCall | None:
        """Return the first equal call without a reply; None if it was not requested in this stream."""
        for index, (requested, shown) in enumerate(self._requested):
            if requested == call:
                del self._requested[index]
                return shown
        return None

    def view_text(self, record: ToolCallRecord) -> str:
        """Return the text of a reply."""
        return CALL_FAILED if record.reply.is_error and not self._show_failures else record.reply.text

    def view_thought(self, event: ThoughtDelta) -> str:
        """Return a reasoning delta; an empty text if reasoning is not shown."""
        return event.text if self._show_thoughts else ""

    def _replied(self, record: ToolCallRecord) -> dict[str, Any]:
        call, ran = self.answer(record.call), record.reply.arguments
        if call is None:  # answered without being run
            call = self.request(record.call, ran)
            self.answer(record.call)
        arguments = call.arguments if ran is None else to_json_value(ran)
        text, is_error = self.view_text(record), record.reply.is_error
        return {**_view_call(call), "arguments": arguments, "text": text, "is_error": is_error}

    def _view_pending(self, request: ReviewRequest) -> dict[str, Any]:
        return {**_describe_request(request), "call_id": self._find_id(request.call_id)}

    def _find_id(self, call_id: str) -> str:
        """Return an open call's id in the stream; the id of a nested call is unchanged."""
        return next((shown.id for call, shown in self._requested if call.id == call_id), call_id)


def find_edited(record: ToolCallRecord) -> dict[str, Any] | None:
    """Return the arguments that ran if a reviewer changed the requested ones; None if not.

    >>> from toolsemble import ToolReply, ToolResult
    >>> find_edited(ToolCallRecord(ToolCall("now"), ToolReply(ToolCall("now"), ToolResult.success("noon")))) is None
    True
    """
    edited = isinstance(record.reply.result.attributes.get("edited"), EditedArguments)
    return to_json_value(record.reply.arguments) if edited and record.reply.arguments is not None else None


class TurnText:
    """The text streamed in the latest turn, to check whether it included the answer."""

    def __init__(self) -> None:
        self._text = ""
        self._has_calls = False

    def end_turn(self, event: TurnEnded) -> None:
        """Record a turn."""
        self._text, self._has_calls = event.message.text, bool(event.tool_calls)

    def find_missing(self, event: Final) -> str:
        """Return the answer if it was not streamed, because a tool returned it; else an empty text."""
        text = event.result.text
        is_streamed = text == self._text or (bool(self._text.strip()) and not self._has_calls)
        return "" if is_streamed else text


def _read_arguments(call: ToolCall) -> Any:
    """Return the arguments of a call as JSON values, or as text if they are not JSON."""
    try:
        return to_json_value(json.loads(call.json))
    except (ValueError, RecursionError):
        return call.json


def view_result(result: AgentResult) -> dict[str, Any]:
    """Return a run's typed answer, its stop reason, and the calls that wait for approval.

    >>> view_result(AgentResult("Rome", "Rome"))
    {'stop_reason': 'answer'}
    """
    typed = {} if isinstance(result.output, (str, type(None))) else {"output": to_json_value(result.output)}
    waiting = {"pending": [_describe_request(each.request) for each in result.pending]} if result.pending else {}
    return {"stop_reason": result.stop_reason, **typed, **waiting}


def _view_call(call: ShownCall) -> dict[str, Any]:
    return {"call": call._asdict()}


def _view_progress(event: Any, call_id: str) -> dict[str, Any]:
    return {
        "tool_name": event.tool_name,
        "call_id": call_id,
        "fraction": _keep_finite(event.fraction),
        "message": str(event.message or ""),
    }


def _keep_finite(fraction: Any) -> float | None:
    """Return a finite number; None for others, which JSON lacks."""
    value = to_json_value(fraction)
    return value if isinstance(value, (int, float)) else None


def _describe_request(request: ReviewRequest) -> dict[str, Any]:
    names = ("id", "tool_name", "call_id", "description", "deadline")
    return {**{name: getattr(request, name) for name in names}, "arguments": to_json_value(request.arguments)}


def _view_decision(event: Any, call_id: str) -> dict[str, Any]:
    decision = event.decision
    word = "continue" if isinstance(decision, Continue) else "edit" if isinstance(decision, Edit) else "reject"
    return {"request_id": event.request.id, "call_id": call_id, "decision": word}
