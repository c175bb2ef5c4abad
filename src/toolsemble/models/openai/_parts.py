"""Code shared by OpenAI's two APIs: tools, calls, schemas, texts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

from toolsemble._vocabulary.call import ToolCall
from toolsemble.models._adapter.conversation import CallIds, Inputs, sanitize_call
from toolsemble.models._adapter.wire import as_list, field
from toolsemble.models._chat import ChatRequest
from toolsemble.models._message import AssistantMessage, Message, ToolMessage
from toolsemble.models.openai._wire import AUDIO_FORMATS, FILES, IMAGES, adapt, write_tools

_SCHEMA_NAME = "answer"
_PDF = "application/pdf"
_CHAT = frozenset({*IMAGES, *AUDIO_FORMATS, _PDF})
_AUDIO_ADVICE = "for audio, use a model that hears with api='chat'"
_SERVER_ADVICE = "if the server takes it, say so: OpenAIModel(..., inputs=('image', 'image_url', 'audio', 'file'))"
INPUT_KINDS = {
    "image": (frozenset(IMAGES), frozenset[str]()),
    "image_url": (frozenset[str](), frozenset({"image/*"})),
    "audio": (frozenset(AUDIO_FORMATS), frozenset[str]()),
    "file": (frozenset({_PDF}), frozenset[str]()),
    "file_url": (frozenset[str](), frozenset({_PDF})),
}
"""The content kinds of other servers: the media types as bytes, and by URL."""


def openai_inputs(api: Literal["chat", "responses"]) -> Inputs:
    """Return the contents that OpenAI takes.

    >>> sorted(openai_inputs("chat").urls), sorted(openai_inputs("responses").urls)[:2]
    (['image/*'], ['application/json', 'application/pdf'])
    """
    if api == "chat":
        return Inputs("OpenAI (chat completions)", _CHAT, frozenset({"image/*"}))
    files = frozenset(FILES)
    return Inputs("OpenAI (responses)", files | IMAGES, files | {"image/*"}, advice=_AUDIO_ADVICE)


def server_inputs(label: str, kinds: Iterable[str]) -> Inputs:
    """Return the contents of these kinds.

    >>> sorted(server_inputs("vllm", ["image_url"]).urls)
    ['image/*']
    """
    found = [INPUT_KINDS[kind] for kind in kinds]
    data, urls = ([each[place] for each in found] for place in (0, 1))
    return Inputs(label, frozenset[str]().union(*data), frozenset[str]().union(*urls), advice=_SERVER_ADVICE)


def write_tool_parameters(request: ChatRequest, api: Literal["chat", "responses"]) -> dict[str, Any]:
    """Return the parameters for the tools of a request; defaults are omitted.

    >>> write_tool_parameters(ChatRequest([]), "chat")
    {}
    """
    if not request.specifications:
        return {}
    choice = {} if request.tool_choice == "auto" else {"tool_choice": request.tool_choice}
    return {"tools": write_tools(request.specifications, api), **choice}


def pair_with_calls(messages: Sequence[Message], max_id: int) -> Iterator[tuple[Message, list[ToolCall]]]:
    """Yield each message with its calls as sent: the calls that it makes, or the one that it answers.

    >>> messages = [AssistantMessage("", (ToolCall("web search", "{}"),))]
    >>> list(pair_with_calls(messages, 40))[0][1]
    [ToolCall('web_search', '{}', id='toolsemble_0')]
    """
    ids = CallIds(messages, re.compile(f"(?s).{{1,{max_id}}}"), "toolsemble_{}".format)
    for message in messages:
        if isinstance(message, AssistantMessage):
            yield message, [sanitize_call(call, ids.assign(call)) for call in message.calls]
        elif isinstance(message, ToolMessage):
            yield message, [sanitize_call(message.call, ids.take(message.call))]
        else:
            yield message, []


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


def join_text(content: object) -> str:
    """Return the text of a message's content, which is a str or a list of parts.

    >>> join_text("Rome"), join_text(None), join_text([{"type": "text", "text": "Ro"}, {"type": "text", "text": "me"}])
    ('Rome', '', 'Rome')
    """
    if isinstance(content, str):
        return content
    texts = (field(part, "text") for part in as_list(content))
    return "".join(text for text in texts if isinstance(text, str))
