"""The part of each event that a browser may see: no payloads, no system prompt, no thoughts, no text of errors."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from toolsemble.agent.event import Event, Final, TurnEnded
from toolsemble.agent.result import AgentResult, ToolCallRecord
from toolsemble.call import ToolCall, new_id
from toolsemble.models.chat import ThoughtDelta
from toolsemble.review.decision import Continue, Edit
from toolsemble.review.request import ReviewRequest
from toolsemble.shape import to_json_value

CALL_FAILED = "The call failed"
"""The text of a failed call for a browser, unless it may see the real one."""


class BrowserView:
    """The public form of the events of one stream; calls have unique ids in it.

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
        self._requested: list[tuple[ToolCall, str]] = []
        self._views: dict[str, Callable[[Any], dict[str, Any]]] = {
            "text_delta": lambda event: {"text": event.text},
            "prompt_progress": lambda event: {"fraction": _keep_finite(event.fraction)},
            "call_delta": lambda event: {"index": event.index, "name": event.name},
            "arguments_delta": lambda event: {"index": event.index, "text": event.text},
            "call_requested": lambda event: self.view_call(event.call, self.assign_id(event.call)),
            "call_replied": lambda event: self._view_reply(event.record),
            "model_retried": lambda event: {"seconds": event.seconds, "discarded": event.discarded},
            "call_progress": _view_progress,
            "review_requested": _view_request,
            "review_decided": _view_decision,
            "turn_ended": lambda event: {"text": event.message.text},
            "final": lambda event: {"text": event.result.text, **view_result(event.result)},
        }
        if show_thoughts:
            self._views["thought_delta"] = lambda event: {"text": event.text}

    def write(self, event: Event) -> dict[str, Any] | None:
        """Return what a browser may see of an event; None: nothing, as of events that are not listed here."""
        view = self._views.get(event.kind)
        return None if view is None else {"kind": event.kind, **view(event)}

    def assign_id(self, call: ToolCall) -> str:
        """Return the id of a call that was requested: the provider's, or a new one if that is not unique."""
        call_id = call.id if call.id and call.id not in self._used else new_id()
        self._used.add(call_id)
        self._requested.append((call, call_id))
        return call_id

    def take_id(self, call: ToolCall) -> str | None:
        """Return the id of the first equal call that has no reply yet; None if it was not requested in this stream."""
        for index, (requested, call_id) in enumerate(self._requested):
            if requested == call:
                del self._requested[index]
                return call_id
        return None

    def view_call(self, call: ToolCall, id: str) -> dict[str, Any]:
        """Return a call."""
        return {"call": {"id": id, "name": call.name, "arguments": read_arguments(call)}}

    def view_text(self, record: ToolCallRecord) -> str:
        """Return the text of a reply."""
        return CALL_FAILED if record.reply.is_error and not self._show_failures else record.reply.text

    def view_thought(self, event: ThoughtDelta) -> str:
        """Return a piece of the model's reasoning; an empty text if it is not shown."""
        return event.text if self._show_thoughts else ""

    def _take_or_request(self, call: ToolCall) -> str:
        call_id = self.take_id(call)
        if call_id is None:  # answered without being run
            call_id = self.assign_id(call)
            self.take_id(call)
        return call_id

    def _view_reply(self, record: ToolCallRecord) -> dict[str, Any]:
        call_id = self._take_or_request(record.call)
        return {
            **self.view_call(record.call, call_id),
            "text": self.view_text(record),
            "is_error": record.reply.is_error,
        }


class TurnText:
    """The text that was streamed in the latest turn, to tell whether the answer was part of it."""

    def __init__(self) -> None:
        self._text = ""
        self._has_calls = False

    def end_turn(self, event: TurnEnded) -> None:
        """Take note of a turn."""
        self._text, self._has_calls = event.message.text, bool(event.tool_calls)

    def find_missing(self, event: Final) -> str:
        """Return the answer if it was not streamed, because a tool returned it; else an empty text."""
        text = event.result.text
        is_streamed = text == self._text or (bool(self._text.strip()) and not self._has_calls)
        return "" if is_streamed else text


def read_arguments(call: ToolCall) -> Any:
    """Return the arguments of a call as JSON values, or as text if they are not JSON.

    >>> read_arguments(ToolCall("add", '{"a": 1}')), read_arguments(ToolCall("add", "{"))
    ({'a': 1}, '{')
    """
    try:
        return to_json_value(json.loads(call.json))
    except (ValueError, RecursionError):
        return call.json


def view_result(result: AgentResult) -> dict[str, Any]:
    """Return the typed answer of a run, why it ended, and the calls that wait for approval.

    >>> view_result(AgentResult("Rome", "Rome"))
    {'stop_reason': 'answer'}
    """
    typed = {} if isinstance(result.output, (str, type(None))) else {"output": to_json_value(result.output)}
    waiting = {"pending": [_describe_request(each.request) for each in result.pending]} if result.pending else {}
    return {"stop_reason": result.stop_reason, **typed, **waiting}


def _view_progress(event: Any) -> dict[str, Any]:
    return {
        "tool_name": event.tool_name,
        "call_id": event.call_id,
        "fraction": _keep_finite(event.fraction),
        "message": str(event.message or ""),
    }


def _keep_finite(fraction: Any) -> float | None:
    """Return a number that JSON has; None for others."""
    value = to_json_value(fraction)
    return value if isinstance(value, (int, float)) else None


def _view_request(event: Any) -> dict[str, Any]:
    return {"request": _describe_request(event.request)}


def _describe_request(request: ReviewRequest) -> dict[str, Any]:
    names = ("id", "tool_name", "call_id", "description", "deadline")
    return {**{name: getattr(request, name) for name in names}, "arguments": to_json_value(request.arguments)}


def _view_decision(event: Any) -> dict[str, Any]:
    decision = event.decision
    word = "continue" if isinstance(decision, Continue) else "edit" if isinstance(decision, Edit) else "reject"
    return {"request_id": event.request.id, "call_id": event.request.call_id, "decision": word}
