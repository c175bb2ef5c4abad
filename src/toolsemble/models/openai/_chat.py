"""OpenAI's chat completions: the parameters of a request, and the reader of whole and streamed replies."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from toolsemble._runtime.text import escape_surrogates
from toolsemble._vocabulary.call import ToolCall
from toolsemble._vocabulary.errors import ModelError
from toolsemble.models._adapter.dialect import require_level
from toolsemble.models._adapter.errors import StopReasons
from toolsemble.models._adapter.replies import StreamedCalls, read_usage
from toolsemble.models._adapter.wire import as_list, field
from toolsemble.models._chat import NO_TOKENS, ChatRequest, Chunk, StopReason, StreamEnd, TextDelta, ThoughtDelta
from toolsemble.models._message import AssistantMessage, Message, ToolMessage, UserMessage
from toolsemble.models.openai import _parts as parts
from toolsemble.models.openai._site import error_from_body
from toolsemble.models.openai._wire import write_prompt, write_reply

_MAX_ID = 40
_REASONS: dict[str, StopReason] = {
    "stop": "stop",
    "tool_calls": "calls",
    "function_call": "calls",
    "length": "length",
    "content_filter": "refusal",
}
# Reasoning that must be sent back to servers other than OpenAI.
_REASONING = ("reasoning_content", "reasoning_details")
# The field names of reasoning text; a server uses one of them, or the same text in both.
_THOUGHTS = ("reasoning_content", "reasoning")


def write_parameters(request: ChatRequest, origin: str, *, streamed: bool) -> dict[str, Any]:
    """Return the parameters of a request, without the model and the user's settings.

    >>> write_parameters(ChatRequest([UserMessage("hello")]), "", streamed=False)
    {'messages': [{'role': 'user', 'content': 'hello'}]}
    """
    pairs = parts.pair_with_calls(request.messages, _MAX_ID)
    messages = [_write_message(message, calls, origin) for message, calls in pairs if not _is_empty(message)]
    sent: dict[str, Any] = {"messages": messages, **parts.write_tool_parameters(request, "chat")}
    if request.output_schema is not None:
        sent["response_format"] = {
            "type": "json_schema",
            "json_schema": parts.write_answer_format(request.output_schema),
        }
    if request.reasoning is not None:
        sent["reasoning_effort"] = require_level(request.reasoning, "This API")
    if streamed:
        sent["stream_options"] = {"include_usage": True}
    return sent


def _is_empty(message: Message) -> bool:
    """Return whether a model message is empty, which many servers reject."""
    return isinstance(message, AssistantMessage) and not message.text and not message.calls


def _write_message(message: Message, calls: list[ToolCall], origin: str) -> dict[str, Any]:
    if isinstance(message, ToolMessage):
        written = write_reply(replace(message.reply, call=calls[0]))
        return {**written, "content": escape_surrogates(written["content"])}
    if isinstance(message, AssistantMessage):
        return _write_assistant(message, calls, origin)
    if isinstance(message, UserMessage):
        return {"role": "user", "content": write_prompt(escape_surrogates(message.text), message.contents)}
    return {"role": message.role, "content": escape_surrogates(message.text)}


def _write_assistant(message: AssistantMessage, calls: list[ToolCall], origin: str) -> dict[str, Any]:
    own = (message.details or {}).get(origin)
    reasoning = {name: own[name] for name in _REASONING if name in own} if isinstance(own, Mapping) else {}
    text = escape_surrogates(message.text)
    written = [
        {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.json}} for call in calls
    ]
    # The text may be missing only next to calls.
    content = (text or None) if calls else text
    return {"role": "assistant", "content": content, **({"tool_calls": written} if calls else {}), **reasoning}


class ReplyReader:
    """A reader of completions, streamed or whole.

    Compatible servers omit different fields, all of which are optional here.
    """

    def __init__(self, label: str, origin: str, *, streamed: bool) -> None:
        self._label = label
        self._origin = origin
        self._streamed = streamed
        self._calls = StreamedCalls()
        self._reasoning: list[str] = []
        self._signed: list[Any] = []
        self._usage = NO_TOKENS
        self._reason = "" if streamed else "stop"  # many servers omit it in a whole completion
        self._has_text = self._refused = self._answered = False

    def read(self, piece: object) -> Iterator[Chunk]:
        """Yield the chunks of a piece, or of a whole completion."""
        if field(piece, "error"):
            raise error_from_body(field(piece, "error"), self._label)
        usage = field(piece, "usage")
        self._usage = self._usage if usage is None else read_usage(usage)
        for choice in as_list(field(piece, "choices")):
            if field(choice, "index"):
                continue  # an alternative answer, which was not requested
            self._answered = True
            reason = field(choice, "finish_reason")
            self._reason = str(reason) if reason else self._reason
            yield from self._read_delta(field(choice, "delta", "message"))

    def finish(self) -> Iterator[Chunk]:
        """Yield the remaining chunks; raise a ``ModelError`` if the reply is incomplete or empty."""
        if not self._answered:
            raise ModelError(f"{self._label} answered without any choices", retryable=self._streamed)
        yield from self._calls.finish()
        reasons = StopReasons(self._label, _REASONS, may_be_empty=True)
        stop = reasons.read(self._reason, has_calls=len(self._calls) > 0, has_text=self._has_text)
        yield StreamEnd(self._usage, "refusal" if self._refused else stop, self._details())

    def _read_delta(self, delta: object) -> Iterator[Chunk]:
        for name, text in (("content", parts.join_text(field(delta, "content"))), ("refusal", field(delta, "refusal"))):
            if isinstance(text, str) and text:
                self._has_text = True
                self._refused = self._refused or name == "refusal"
                yield TextDelta(text)
        for call in as_list(field(delta, "tool_calls")):
            yield from self._read_call(call)
        yield from self._read_reasoning(delta)

    def _read_call(self, piece: object) -> Iterator[Chunk]:
        function, own = field(piece, "function", "custom"), field(piece, "id")
        name, arguments = str(field(function, "name") or ""), field(function, "arguments", "input")
        text = (
            arguments
            if isinstance(arguments, str)
            else json.dumps(parts.to_json_values(arguments))
            if arguments
            else ""
        )
        own = None if own is None else str(own)
        if self._streamed:
            yield from self._calls.add_piece(field(piece, "index"), own, name, text)
        else:
            yield from self._calls.add(own, name, text)

    def _read_reasoning(self, delta: object) -> Iterator[Chunk]:
        """Yield the reasoning, and store it for sending back."""
        text = field(delta, "reasoning_content")
        if isinstance(text, str) and text:
            self._reasoning.append(text)
        thought = field(delta, *_THOUGHTS)
        if isinstance(thought, str) and thought:
            yield ThoughtDelta(thought)
        self._signed += map(parts.to_json_values, as_list(field(delta, "reasoning_details")))

    def _details(self) -> dict[str, Any] | None:
        reasoning = {"reasoning_content": "".join(self._reasoning), "reasoning_details": self._signed}
        present = {name: value for name, value in reasoning.items() if value}
        return {self._origin: present} if present else None
