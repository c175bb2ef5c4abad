"""What OpenAI's two APIs have in common: calls and texts as they are sent back, schemas, numbers of tokens."""

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

_UNFIT = re.compile(r"[^a-zA-Z0-9_-]")
_LONGEST_NAME = 64
_SCHEMA_NAME = "answer"


def offered(request: ChatRequest, api: Literal["chat", "responses"]) -> dict[str, Any]:
    """Give the tools of a request, and whether the model may call them; what is so by itself need not be said.

    >>> offered(ChatRequest([]), "chat")
    {}
    """
    if not request.specifications:
        return {}
    choice = {} if request.tool_choice == "auto" else {"tool_choice": request.tool_choice}
    return {"tools": write_tools(request.specifications, api), **choice}


def addressed(messages: Iterable[Message], longest_id: int) -> Iterator[tuple[Message, list[ToolCall]]]:
    """Give each message with its calls as they can be sent: those that it makes, or the one that it answers.

    A call without an id gets one, and so does its reply. Whatever a model wrote, the conversation stays one that a
    server takes: names and arguments that it would refuse are written so that it does not.

    >>> messages = [AssistantMessage("", (ToolCall("web search", "{"),))]
    >>> list(addressed(messages, 40))[0][1]
    [ToolCall('web_search', '{"arguments": "{"}', id='toolsemble_1')]
    """
    made = 0
    waiting: list[tuple[ToolCall, ToolCall]] = []
    for message in messages:
        calls: list[ToolCall] = []
        if isinstance(message, AssistantMessage):
            calls = [_sent(call, made + place, longest_id) for place, call in enumerate(message.calls, 1)]
            made += len(calls)
            waiting = list(zip(message.calls, calls, strict=True))
        elif isinstance(message, ToolMessage):
            calls = [_answered(message.call, waiting, longest_id)]
        yield message, calls


def _answered(call: ToolCall, waiting: list[tuple[ToolCall, ToolCall]], longest_id: int) -> ToolCall:
    """Give the call as it was sent, and take it off the list of those that wait."""
    for place, (own, sent) in enumerate(waiting):
        if own == call:
            del waiting[place]
            return sent
    return _sent(call, 0, longest_id)


def _sent(call: ToolCall, number: int, longest_id: int) -> ToolCall:
    name = _UNFIT.sub("_", call.name)[:_LONGEST_NAME] or "unknown"
    own = call.id if call.id and len(call.id) <= longest_id else None
    return ToolCall(name, _arguments(call.json), own or f"toolsemble_{number}")


def _arguments(text: str) -> str:
    """Give arguments as they came if they are a JSON object; else an object that holds what came.

    Many servers read them before they show them to the model, and would refuse the whole conversation from then on.
    """
    if not text.strip():
        return "{}"
    try:
        value = json.loads(text, parse_constant=_refused)
        if "\\u" in text:
            json.dumps(value, ensure_ascii=False).encode()  # half a surrogate pair, hidden behind an escape
    except (ValueError, RecursionError):
        value = None
    return text if isinstance(value, dict) else json.dumps({"arguments": text})


def _refused(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")


def addressed_reply(reply: ToolReply, call: ToolCall) -> ToolReply:
    """Give a reply for the call as it was sent.

    >>> from toolsemble import ToolResult
    >>> addressed_reply(ToolReply(ToolCall("now"), ToolResult.success("noon")), ToolCall("now", id="c1")).call_id
    'c1'
    """
    return replace(reply, call=call)


def answer_format(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Give the format of an answer: strict where the schema can be said so; else the agent's own check has to do.

    >>> answer_format({"type": "object", "additionalProperties": {"type": "integer"}})["strict"]
    False
    """
    try:
        adapted, _ = adapt(dict(schema), strict=True)
    except ValueError:
        return {"name": _SCHEMA_NAME, "schema": adapt(dict(schema))[0], "strict": False}
    return {"name": _SCHEMA_NAME, "schema": adapted, "strict": True}


def plain(value: object) -> Any:
    """Give an SDK's object as JSON values.

    >>> plain({"type": "reasoning"})
    {'type': 'reasoning'}
    """
    if not hasattr(value, "to_dict"):
        return value
    # What is null was not said, and some servers refuse to be told so. Of what a server got wrong, the SDK would warn.
    return value.to_dict(mode="json", exclude_none=True, warnings=False)


def listed(value: object) -> Sequence[Any]:
    """Give a list that a server sent; nothing when it sent something else in its place.

    >>> listed([1]), listed(None), listed("text")
    ([1], (), ())
    """
    return value if isinstance(value, list) else ()


def text_of(content: object) -> str:
    """Give the text of a message: a text, or parts of which some are.

    >>> text_of("Rome"), text_of(None), text_of([{"type": "text", "text": "Ro"}, {"type": "text", "text": "me"}])
    ('Rome', '', 'Rome')
    """
    if isinstance(content, str):
        return content
    texts = (field(part, "text") for part in listed(content))
    return "".join(text for text in texts if isinstance(text, str))


def usage_of(usage: object) -> TokenUsage:
    """Give the tokens that either API counted.

    >>> usage_of({"prompt_tokens": 9, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 4}})
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


def silence(label: str, reason: StopReason) -> str:
    """Say why there is no answer at all.

    >>> silence("OpenAI", "refusal")
    'OpenAI: the answer was withheld by a content filter'
    """
    if reason == "length":
        return f"{label}: the model's room for an answer was used up before it said anything; allow it more tokens"
    return f"{label}: the answer was withheld by a content filter"
