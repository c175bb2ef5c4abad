"""An immutable conversation in which every call has its reply."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any, overload

from toolsemble._runtime.text import with_article
from toolsemble._runtime.threads import fork_safe_lock
from toolsemble._vocabulary.call import ToolCall
from toolsemble._vocabulary.errors import ToolConfigurationError
from toolsemble.models._message import (
    AssistantMessage,
    Message,
    SystemMessage,
    ToolMessage,
    UserMessage,
    message_from_json,
    message_to_json,
)


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
