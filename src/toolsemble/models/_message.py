"""The messages of a conversation, independent of any provider's format, their JSON form, and the prompt of a run."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, ClassVar, Literal, TypeAlias

from toolsemble._runtime.checks import warn_deprecated
from toolsemble._runtime.text import escape_surrogates
from toolsemble._schema.shape import to_finite_json
from toolsemble._vocabulary.call import ToolCall, ToolReply, received_call
from toolsemble._vocabulary.errors import ToolConfigurationError
from toolsemble._vocabulary.result import NO_ATTRIBUTES, AudioContent, FileContent, ImageContent, Media, ToolResult
from toolsemble._vocabulary.serialization import read_content, read_error_kind, write_content


@dataclass(frozen=True, slots=True)
class SystemMessage:
    """The instructions for the model, at the start of a conversation.

    >>> SystemMessage("You are a librarian.").role
    'system'
    """

    text: str
    """The text."""
    generated: str = field(default="", compare=False, repr=False)
    """The first part of the text, if it comes from an agent's own instructions: another run replaces it."""
    role: ClassVar[Literal["system"]] = "system"


@dataclass(frozen=True, slots=True, init=False)
class UserMessage:
    """A user message: text, images, audio and files.

    :param images: deprecated, use ``contents``

    >>> UserMessage("What is this?", (ImageContent(b"...", "image/png"),)).contents
    (ImageContent(<3 bytes>, mime_type='image/png'),)
    """

    text: str = ""
    """The text."""
    contents: tuple[Media, ...] = ()
    """Images, audio and files beside the text."""
    role: ClassVar[Literal["user"]] = "user"

    def __init__(
        self, text: str = "", contents: tuple[Media, ...] = (), *, images: tuple[ImageContent, ...] = ()
    ) -> None:
        if images:
            warn_deprecated("UserMessage(images=…)", "UserMessage(contents=…)", removed_in="0.4")
        object.__setattr__(self, "text", text)
        object.__setattr__(self, "contents", (*contents, *images) if images else contents)

    @property
    def images(self) -> tuple[ImageContent, ...]:
        """The images among the contents."""
        return tuple(content for content in self.contents if isinstance(content, ImageContent))


@dataclass(frozen=True, slots=True)
class AssistantMessage:
    """A model message: text, calls, or both.

    >>> AssistantMessage("Let me see.", (ToolCall("search"),)).calls
    (ToolCall('search', '{}', id=None),)
    """

    text: str = ""
    """The text; empty when there are only calls."""
    calls: tuple[ToolCall, ...] = ()
    """The requested calls, each answered by a :class:`ToolMessage`."""
    details: Mapping[str, Any] | None = None
    """JSON values that its provider needs back, such as signed reasoning; other providers ignore them."""
    role: ClassVar[Literal["assistant"]] = "assistant"


@dataclass(frozen=True, slots=True)
class ToolMessage:
    """The reply to a call.

    >>> ToolMessage(ToolReply(ToolCall("now"), ToolResult.success("noon"))).text
    'noon'
    """

    reply: ToolReply
    """The reply, with its call."""
    role: ClassVar[Literal["tool"]] = "tool"

    @property
    def text(self) -> str:
        """The text for the model."""
        return self.reply.text

    @property
    def call(self) -> ToolCall:
        """The call that this answers."""
        return self.reply.call


Message: TypeAlias = SystemMessage | UserMessage | AssistantMessage | ToolMessage
"""A message of a conversation."""


def message_to_json(message: Message) -> str:
    """Return a message as one line of ASCII JSON.

    The structured output and the attributes of a tool's result are included as JSON values, for programs. Values that
    are not JSON-serializable are omitted, and so is a structured output or attribute of more than 65,536 JSON
    characters.

    >>> message_to_json(UserMessage("hello"))
    '{"role":"user","text":"hello"}'
    """
    return json.dumps(_write(message, with_payload=True), separators=(",", ":"))


def visible_to_json(message: Message) -> str:
    """Return the parts of a message that a model sees as one line of ASCII JSON.

    >>> result = ToolResult.success("noon", {"hour": 12})
    >>> "hour" in visible_to_json(ToolMessage(ToolReply(ToolCall("now"), result)))
    False
    """
    return json.dumps(_write(message, with_payload=False), separators=(",", ":"))


def message_from_json(text: str) -> Message:
    """Return the message that :func:`message_to_json` wrote; raise ``ValueError`` for any other text.

    >>> message_from_json('{"role":"user","text":"hello"}')
    UserMessage(text='hello', contents=())
    """
    try:
        fields = json.loads(text)
        if not isinstance(fields, dict):
            raise TypeError("it must be an object with a role")  # noqa: TRY301 - reported with the text
        message: Message = _READERS[fields["role"]](fields)
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as problem:
        raise ValueError(f"This is not a message: {text!r:.80} ({type(problem).__name__}: {problem})") from problem
    return message


def write_call(call: ToolCall) -> dict[str, Any]:
    """Return a call as JSON values, for :func:`read_call`."""
    return {"name": call.name, "arguments": call.original, "id": call.id}


def read_call(fields: Mapping[str, Any]) -> ToolCall:
    """Return the call that :func:`write_call` wrote."""
    return received_call(fields["name"], fields["arguments"], fields["id"])


def _write(message: Message, *, with_payload: bool) -> dict[str, Any]:
    fields: dict[str, Any] = {"role": message.role}
    if isinstance(message, ToolMessage):
        return {**fields, "call": write_call(message.call), **_write_result(message.reply, with_payload=with_payload)}
    fields["text"] = message.text
    if isinstance(message, SystemMessage) and message.generated:
        fields["generated"] = message.generated
    if isinstance(message, UserMessage) and message.contents:
        fields["contents"] = [write_content(content) for content in message.contents]
    if isinstance(message, AssistantMessage):
        fields["calls"] = [write_call(call) for call in message.calls]
        if message.details is not None:
            fields["details"] = dict(message.details)
    return fields


def _write_result(reply: ToolReply, *, with_payload: bool) -> dict[str, Any]:
    result = reply.result
    return {
        "output": result.output,
        "error": result.error_message,
        "contents": [write_content(content) for content in result.contents],
        "limit": reply.limit,
        **({"more": reply.more} if reply.more else {}),
        **({"note": reply.note} if reply.note else {}),
        **(_write_payload(result) if with_payload else {}),
    }


def _write_payload(result: ToolResult) -> dict[str, Any]:
    """Return a result's parts for programs, without values that are not JSON-serializable or too long."""
    written: dict[str, Any] = {} if result.error_kind is None else {"error_kind": result.error_kind}
    if (payload := _write_value(result.structured_output)) is not None:
        written["structured_output"] = payload
    values = {name: _write_value(value) for name, value in result.attributes.items()}
    if kept := {name: value for name, value in values.items() if value is not None}:
        written["attributes"] = kept
    return written


def _write_value(value: Any) -> Any:
    """Return a value as JSON; None if it is not JSON-serializable or too long."""
    if value is None:
        return None
    try:
        written = to_finite_json(value)
        return written if len(json.dumps(written)) <= _LONGEST_VALUE else None
    except Exception:  # a program's own objects may raise anything
        return None


def _read_user(fields: Mapping[str, Any]) -> UserMessage:
    contents = fields.get("contents", fields.get("images", ()))  # "images" in earlier versions
    return UserMessage(fields["text"], tuple(map(read_content, contents)))


def _read_assistant(fields: Mapping[str, Any]) -> AssistantMessage:
    return AssistantMessage(fields["text"], tuple(map(read_call, fields["calls"])), fields.get("details"))


def _read_tool(fields: Mapping[str, Any]) -> ToolMessage:
    contents = tuple(map(read_content, fields["contents"]))
    attributes = MappingProxyType(dict(fields["attributes"])) if fields.get("attributes") else NO_ATTRIBUTES
    kind = read_error_kind(fields.get("error_kind"))
    result = ToolResult(fields["output"], fields["error"], fields.get("structured_output"), contents, attributes, kind)
    notes = {name: fields.get(name, "") for name in ("more", "note")}
    return ToolMessage(ToolReply(read_call(fields["call"]), result, fields["limit"], **notes))


_LONGEST_VALUE = 65_536  # in JSON characters: a conversation must not grow by data that models never see
_READERS: dict[str, Any] = {
    "system": lambda fields: SystemMessage(fields["text"], fields.get("generated", "")),
    "user": _read_user,
    "assistant": _read_assistant,
    "tool": _read_tool,
}


Prompt: TypeAlias = str | Media | Message | Sequence[str | Media | Message]
"""The prompt of a run: a text, texts with images, audio and files, or messages."""

_MEDIA = (ImageContent, AudioContent, FileContent)
_MESSAGES = (SystemMessage, UserMessage, AssistantMessage, ToolMessage)


def to_messages(prompt: Prompt) -> list[Message]:
    """Return a prompt as messages; raise TypeError if it is not valid.

    >>> to_messages(["What is this?", ImageContent(b"...", "image/png")])
    [UserMessage(text='What is this?', contents=(ImageContent(<3 bytes>, mime_type='image/png'),))]
    """
    if isinstance(prompt, _MESSAGES):
        return [prompt]
    parts = [prompt] if isinstance(prompt, (str, *_MEDIA)) else prompt
    if isinstance(parts, Sequence):
        messages = [part for part in parts if isinstance(part, _MESSAGES)]
        if len(messages) == len(parts):
            return messages
        texts = [part for part in parts if isinstance(part, str)]
        contents = tuple(part for part in parts if isinstance(part, _MEDIA))
        if len(texts) + len(contents) == len(parts):
            return [UserMessage(escape_surrogates("\n".join(texts)), contents)]
    raise TypeError(f"A prompt must be a str, a list of str, images, audio and files, or messages, not {prompt!r:.80}")


def check_question(prompt: Sequence[Message], *, has_earlier: bool) -> None:
    """Raise :class:`ToolConfigurationError` if there is nothing to answer.

    :param has_earlier: whether there are messages before the prompt

    >>> check_question([], has_earlier=False)
    Traceback (most recent call last):
    ...
    toolsemble.ToolConfigurationError: There is nothing to answer; pass a prompt, or a history that ends with one
    """
    has_nothing = all(message.role == "system" for message in prompt) and not has_earlier
    if has_nothing or any(map(is_blank, prompt)):
        raise ToolConfigurationError("There is nothing to answer; pass a prompt, or a history that ends with one")


def is_blank(message: Message) -> bool:
    """Whether a user message is empty, which providers reject.

    >>> is_blank(UserMessage(" ")), is_blank(UserMessage("hello"))
    (True, False)
    """
    return isinstance(message, UserMessage) and not message.text.strip() and not message.contents
