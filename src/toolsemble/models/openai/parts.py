"""Code shared by OpenAI's two APIs: tools, calls, schemas, texts, token counts."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, NoReturn

from toolsemble.call import ToolCall, ToolReply
from toolsemble.models.chat import NO_TOKENS, ChatRequest, StopReason, TokenUsage
from toolsemble.models.message import AssistantMessage, Message, ToolMessage
from toolsemble.providers.openai import adapt, write_tools
from toolsemble.providers.wire import field

_INVALID = re.compile(r"[^a-zA-Z0-9_-]")
_MAX_NAME = 64
_SCHEMA_NAME = "answer"


def write_tool_parameters(request: ChatRequest, api: Literal["chat", "responses"]) -> dict[str, Any]:
    """Return the parameters for the tools of a request; defaults are omitted.

    >>> write_tool_parameters(ChatRequest([]), "chat")
    {}
    """
    if not request.specifications:
        return {}
    choice = {} if request.tool_choice == "auto" else {"tool_choice": request.tool_choice}
    return {"tools": write_tools(request.specifications, api), **choice}


def pair_with_calls(messages: Iterable[Message], max_id: int) -> Iterator[tuple[Message, list[ToolCall]]]:
    """Yield each message with its calls as they are sent: those that it makes, or the one that it answers.

    A call without an id gets one, and its reply the same one. Names and arguments that a server would reject are
    rewritten.

    >>> messages = [AssistantMessage("", (ToolCall("web search", "{"),))]
    >>> list(pair_with_calls(messages, 40))[0][1]
    [ToolCall('web_search', '{"arguments": "{"}', id='toolsemble_1')]
    """
    made = 0
    waiting: list[tuple[ToolCall, ToolCall]] = []
    for message in messages:
        calls: list[ToolCall] = []
        if isinstance(message, AssistantMessage):
            calls = [_sanitize(call, made + place, max_id) for place, call in enumerate(message.calls, 1)]
            made += len(calls)
            waiting = list(zip(message.calls, calls, strict=True))
        elif isinstance(message, ToolMessage):
            calls = [_pop_sent(message.call, waiting, max_id)]
        yield message, calls


def _pop_sent(call: ToolCall, waiting: list[tuple[ToolCall, ToolCall]], max_id: int) -> ToolCall:
    """Return the call as it was sent, and remove it from the waiting ones."""
    for place, (own, sent) in enumerate(waiting):
        if own == call:
            del waiting[place]
            return sent
    return _sanitize(call, 0, max_id)


def _sanitize(call: ToolCall, number: int, max_id: int) -> ToolCall:
    name = _INVALID.sub("_", call.name)[:_MAX_NAME] or "unknown"
    own = call.id if call.id and len(call.id) <= max_id else None
    return ToolCall(name, _sanitize_arguments(call.json), own or f"toolsemble_{number}")


def _sanitize_arguments(text: str) -> str:
    """Return arguments unchanged if they are a JSON object, or else an object that contains the text.

    Many servers parse them before the model sees them, and reject the whole conversation if that fails.
    """
    if not text.strip():
        return "{}"
    try:
        value = json.loads(text, parse_constant=_reject_constant)
        if "\\u" in text:
            json.dumps(value, ensure_ascii=False).encode()  # raises for an escaped lone surrogate
    except (ValueError, RecursionError):
        value = None
    return text if isinstance(value, dict) else json.dumps({"arguments": text})


def _reject_constant(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def replace_call(reply: ToolReply, call: ToolCall) -> ToolReply:
    """Return a reply with its call replaced by the one that was sent.

    >>> from toolsemble import ToolResult
    >>> replace_call(ToolReply(ToolCall("now"), ToolResult.success("noon")), ToolCall("now", id="c1")).call_id
    'c1'
    """
    return replace(reply, call=call)


def write_answer_format(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the format of an answer: strict if the schema allows it; the agent validates the answer anyway.

    >>> write_answer_format({"type": "object", "additionalProperties": {"type": "integer"}})["strict"]
    False
    """
    try:
        adapted, _ = adapt(dict(schema), strict=True)
    except ValueError:
        return {"name": _SCHEMA_NAME, "schema": adapt(dict(schema))[0], "strict": False}
    return {"name": _SCHEMA_NAME, "schema": adapted, "strict": True}


def to_json_values(value: object) -> Any:
    """Return an SDK's object as JSON values.

    >>> to_json_values({"type": "reasoning"})
    {'type': 'reasoning'}
    """
    if not hasattr(value, "to_dict"):
        return value
    # Some servers reject null values. Without warnings=False the SDK warns about invalid values.
    return value.to_dict(mode="json", exclude_none=True, warnings=False)


def as_list(value: object) -> Sequence[Any]:
    """Return a value if it is a list, or else an empty sequence.

    >>> as_list([1]), as_list(None), as_list("text")
    ([1], (), ())
    """
    return value if isinstance(value, list) else ()


def join_text(content: object) -> str:
    """Return the text of a message's content, which is a str or a list of parts.

    >>> join_text("Rome"), join_text(None), join_text([{"type": "text", "text": "Ro"}, {"type": "text", "text": "me"}])
    ('Rome', '', 'Rome')
    """
    if isinstance(content, str):
        return content
    texts = (field(part, "text") for part in as_list(content))
    return "".join(text for text in texts if isinstance(text, str))


def read_usage(usage: object) -> TokenUsage:
    """Return the token usage in the format of either API.

    >>> read_usage({"prompt_tokens": 9, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 4}})
    TokenUsage(input=9, output=2, cached=4)
    """
    if usage is None:
        return NO_TOKENS
    details = field(usage, "input_tokens_details", "prompt_tokens_details")
    return TokenUsage(
        _count(field(usage, "input_tokens", "prompt_tokens")),
        _count(field(usage, "output_tokens", "completion_tokens")),
        _count(field(details, "cached_tokens")),
    )


def _count(value: object) -> int:
    return value if isinstance(value, int) and value > 0 else 0


def explain_empty(label: str, reason: StopReason) -> str:
    """Return why an answer is empty.

    >>> explain_empty("OpenAI", "refusal")
    'OpenAI: the answer was withheld by a content filter'
    """
    if reason == "length":
        return f"{label}: the model reached the token limit before it answered; raise the limit"
    return f"{label}: the answer was withheld by a content filter"
