"""The messages of a conversation, independent of any provider's format: single ones, transcripts, and their JSON."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from types import MappingProxyType
from typing import Any, ClassVar, Literal, TypeAlias, overload

from toolsemble._runtime.checks import warn_deprecated
from toolsemble._runtime.text import escape_surrogates, with_article
from toolsemble._runtime.threads import fork_safe_lock
from toolsemble._schema.result_shape import to_finite_json
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


class Transcript(Sequence[Message]):
    """An immutable sequence of messages in which every call has its reply.

    :meth:`plus` returns a longer one that shares the messages instead of copying them: a thousand turns need the
    memory of a thousand messages. A transcript equals a list or tuple of the same messages.

    >>> first = Transcript([UserMessage("hello")])
    >>> both = first.plus(AssistantMessage("hi"))
    >>> len(first), len(both), both[-1].text
    (1, 2, 'hi')
    >>> from toolsemble import ToolReply, ToolResult
    >>> Transcript([ToolMessage(ToolReply(ToolCall("now"), ToolResult.success("noon")))])
    Traceback (most recent call last):
    ...
    toolsemble.ToolConfigurationError: Message 0 answers a call of 'now' that was not made just before it
    """

    __slots__ = ("_head", "_length", "_shared")

    def __init__(self, messages: Iterable[Message] = ()) -> None:
        items = list(messages)
        _check(items)
        # The system message is separate, so that agents with different roles can share the rest.
        self._head: tuple[Message, ...] = (items.pop(0),) if items and isinstance(items[0], SystemMessage) else ()
        self._shared = _SharedMessages(items)
        self._length = len(items)

    def plus(self, *messages: Message) -> Transcript:
        """Return the conversation with these messages appended; raise an error for calls without replies."""
        if not self._length:
            return Transcript([*self._head, *messages])
        _check(messages)
        return self._create(self._head, self._shared.extend(self._length, messages), self._length + len(messages))

    def under(self, system: SystemMessage | None) -> Transcript:
        """Return the same conversation with its system message replaced, or removed for None.

        >>> Transcript([SystemMessage("You are brief."), UserMessage("hello")]).under(None)
        [UserMessage(text='hello', contents=())]
        """
        head = () if system is None else (system,)
        return self if head == self._head else self._create(head, self._shared, self._length)

    def is_same(self, other: Transcript) -> bool:
        """Return whether the other is the same conversation, not just an equal one; system messages are ignored."""
        return self._length == other._length and (self._shared is other._shared or not self._length)

    @staticmethod
    def _create(head: tuple[Message, ...], shared: _SharedMessages, length: int) -> Transcript:
        transcript = object.__new__(Transcript)
        transcript._head, transcript._shared, transcript._length = head, shared, length
        return transcript

    def __len__(self) -> int:
        return len(self._head) + self._length

    def __iter__(self) -> Iterator[Message]:
        return chain(self._head, islice(self._shared.items, self._length))

    def __reversed__(self) -> Iterator[Message]:
        items = self._shared.items
        return chain((items[index] for index in range(self._length - 1, -1, -1)), self._head)

    @overload
    def __getitem__(self, index: int) -> Message: ...
    @overload
    def __getitem__(self, index: slice) -> list[Message]: ...
    def __getitem__(self, index: int | slice) -> Message | list[Message]:
        length, before, items = len(self), len(self._head), self._shared.items
        if isinstance(index, slice):
            places = range(*index.indices(length))
            return [items[place - before] if place >= before else self._head[place] for place in places]
        if not -length <= index < length:
            raise IndexError(f"Index {index} is out of range: there are {length} messages")
        place = index % length
        return items[place - before] if place >= before else self._head[place]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, (Transcript, list, tuple)):
            return NotImplemented
        return len(self) == len(other) and all(own == theirs for own, theirs in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]  # unhashable like a list, which it can equal

    def __add__(self, other: Iterable[Message]) -> list[Message]:
        return [*self, *other]

    def __repr__(self) -> str:
        return repr(list(self))

    def __reduce__(self) -> tuple[Any, ...]:
        return Transcript, (list(self),)


def messages_to_json(messages: Iterable[Message]) -> str:
    """Return a conversation as one line of ASCII JSON: an array of messages, as by :func:`message_to_json`.

    >>> messages_to_json([UserMessage("hello")])
    '[{"role":"user","text":"hello"}]'
    """
    return f"[{','.join(map(message_to_json, list_messages('messages_to_json', messages)))}]"


def list_messages(user: str, messages: Iterable[Message]) -> list[Message]:
    """Return messages as a list; raise ``TypeError`` for anything else.

    :param user: the function that was called

    >>> list_messages("messages_to_json", [5])
    Traceback (most recent call last):
    ...
    TypeError: messages_to_json takes messages of toolsemble.models; message 0 is of the type int
    """
    if isinstance(messages, (str, bytes, Mapping)) or not isinstance(messages, Iterable):
        raise TypeError(f"{user} takes a list of messages of toolsemble.models, not {messages!r:.80}")
    listed = list(messages)
    for index, message in enumerate(listed):
        if not isinstance(message, (SystemMessage, UserMessage, AssistantMessage, ToolMessage)):
            raise TypeError(
                f"{user} takes messages of toolsemble.models; message {index} is of the type "
                f"{type(message).__name__}{_conversion_hint(message)}"
            )
    return listed


def messages_from_json(text: str | bytes) -> Transcript:
    """Return the conversation written by :func:`messages_to_json`; raise ``ValueError`` for any other text.

    >>> messages_from_json('[{"role":"user","text":"hello"}]')[0].text
    'hello'
    >>> messages_from_json('[{"role":"user"}]')
    Traceback (most recent call last):
    ...
    ValueError: Message 0: This is not a message: '{"role": "user"}' (KeyError: 'text')
    """
    if not isinstance(text, (str, bytes, bytearray)):
        raise TypeError(f"messages_from_json takes the text of messages_to_json, not {text!r:.80}")
    try:
        values = json.loads(text)
    except (ValueError, RecursionError) as problem:
        raise ValueError(f"A conversation must be a JSON array of messages: {problem}") from None
    if not isinstance(values, list):
        raise ValueError(f"A conversation must be a JSON array of messages, not {values!r:.80}")
    try:
        return Transcript(_read_message(index, value) for index, value in enumerate(values))
    except ToolConfigurationError as problem:
        raise ValueError(str(problem)) from None


def _read_message(index: int, value: Any) -> Message:
    try:
        message = message_from_json(json.dumps(value))
    except (ValueError, AttributeError) as problem:
        raise ValueError(f"Message {index}: {problem}") from None
    if not isinstance(message.text, str):
        raise ValueError(f"Message {index}: its text must be a str, not {message.text!r:.80}")
    return message


class _SharedMessages:
    """An append-only list of messages, shared by conversations with a common prefix."""

    __slots__ = ("__weakref__", "_lock", "items")

    def __init__(self, items: list[Message]) -> None:
        self.items = items
        self._lock = fork_safe_lock(self)

    def extend(self, length: int, messages: Sequence[Message]) -> _SharedMessages:
        """Return a list extended with these messages: this list for the first caller, else a copy."""
        with self._lock:
            if len(self.items) == length:
                self.items.extend(messages)
                return self
        return _SharedMessages([*self.items[:length], *messages])


def _check(messages: Sequence[Message]) -> None:
    """Raise an error unless every call is followed by its reply."""
    waiting: deque[ToolCall] = deque()  # a reply mostly answers the first pending call
    for index, message in enumerate(messages):
        if isinstance(message, ToolMessage):
            if message.call not in waiting:
                raise ToolConfigurationError(
                    f"Message {index} answers a call of '{message.call.name:.64}' that was not made just before it"
                )
            waiting.remove(message.call)
        elif waiting:
            raise _unanswered_error(waiting[0].name, index)
        elif isinstance(message, AssistantMessage):
            waiting = deque(message.calls)
        elif not isinstance(message, (UserMessage, SystemMessage)):
            raise _not_a_message_error(message, index)
    if waiting:
        raise _unanswered_error(waiting[0].name, len(messages))


def _not_a_message_error(value: object, index: int) -> ToolConfigurationError:
    kind = with_article(type(value).__name__)
    return ToolConfigurationError(f"Message {index} is not a message but {kind}{_conversion_hint(value)}")


def _unanswered_error(name: str, index: int) -> ToolConfigurationError:
    return ToolConfigurationError(
        f"The call of '{name:.64}' has no reply before message {index}; put a ToolMessage for each call after it"
    )


def _conversion_hint(message: object) -> str:
    """Return the conversion hint for a message in a provider's format; empty for anything else."""
    if not (isinstance(message, dict) or hasattr(message, "role")):
        return ""
    return "; convert the list with messages_from_openai or messages_from_anthropic of toolsemble.models"
