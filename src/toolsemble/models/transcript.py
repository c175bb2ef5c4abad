"""A conversation that never changes and never ends with a call that has no reply."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Any, overload

from toolsemble.call import ToolCall
from toolsemble.errors import ToolConfigurationError
from toolsemble.models.message import AssistantMessage, Message, SystemMessage, ToolMessage, UserMessage
from toolsemble.runtime.fork_locks import fork_safe_lock


class Transcript(Sequence[Message]):
    """The messages of a conversation, as a sequence that never changes; every call in it has its reply.

    A longer one is made by :meth:`plus`, which shares the messages instead of copying them: a thousand turns cost
    a thousand messages. It equals a list or tuple of the same messages.

    >>> first = Transcript([UserMessage("hello")])
    >>> both = first.plus(AssistantMessage("hi"))
    >>> len(first), len(both), both[-1].text
    (1, 2, 'hi')
    >>> from toolsemble import ToolReply, ToolResult
    >>> Transcript([ToolMessage(ToolReply(ToolCall("now"), ToolResult.success("noon")))])
    Traceback (most recent call last):
    ...
    toolsemble.errors.ToolConfigurationError: Message 0 answers a call of 'now' that nobody made just before it
    """

    __slots__ = ("_head", "_length", "_roll")

    def __init__(self, messages: Iterable[Message] = ()) -> None:
        items = list(messages)
        _check(items)
        # The system message stands apart: agents of several roles can share the rest.
        self._head: tuple[Message, ...] = (items.pop(0),) if items and isinstance(items[0], SystemMessage) else ()
        self._roll = _Roll(items)
        self._length = len(items)

    def plus(self, *messages: Message) -> Transcript:
        """Give the conversation with these messages at its end; refuse calls without replies."""
        if not self._length:
            return Transcript([*self._head, *messages])
        _check(messages)
        return self._made(self._head, self._roll.extended(self._length, messages), self._length + len(messages))

    def under(self, system: SystemMessage | None) -> Transcript:
        """Give the same conversation with this system message at its beginning, in place of any other.

        >>> Transcript([SystemMessage("You are brief."), UserMessage("hello")]).under(None)
        [UserMessage(text='hello', images=())]
        """
        head = () if system is None else (system,)
        return self if head == self._head else self._made(head, self._roll, self._length)

    def is_same(self, other: Transcript) -> bool:
        """Whether the other is the very same conversation, and not just an equal one; whatever the system message."""
        return self._length == other._length and (self._roll is other._roll or not self._length)

    @staticmethod
    def _made(head: tuple[Message, ...], roll: _Roll, length: int) -> Transcript:
        made = object.__new__(Transcript)
        made._head, made._roll, made._length = head, roll, length
        return made

    def __len__(self) -> int:
        return len(self._head) + self._length

    def __iter__(self) -> Iterator[Message]:
        return chain(self._head, islice(self._roll.items, self._length))

    def __reversed__(self) -> Iterator[Message]:
        items = self._roll.items
        return chain((items[index] for index in range(self._length - 1, -1, -1)), self._head)

    @overload
    def __getitem__(self, index: int) -> Message: ...
    @overload
    def __getitem__(self, index: slice) -> list[Message]: ...
    def __getitem__(self, index: int | slice) -> Message | list[Message]:
        length, before, items = len(self), len(self._head), self._roll.items
        if isinstance(index, slice):
            places = range(*index.indices(length))
            return [items[place - before] if place >= before else self._head[place] for place in places]
        if not -length <= index < length:
            raise IndexError(f"There are {length} messages, none at {index}")
        place = index % length
        return items[place - before] if place >= before else self._head[place]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, (Transcript, list, tuple)):
            return NotImplemented
        return len(self) == len(other) and all(own == its for own, its in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]  # as a list, which it equals

    def __add__(self, other: Iterable[Message]) -> list[Message]:
        return [*self, *other]

    def __repr__(self) -> str:
        return repr(list(self))

    def __reduce__(self) -> tuple[Any, ...]:
        return Transcript, (list(self),)


class _Roll:
    """The messages that conversations with a common beginning share; it only ever grows."""

    __slots__ = ("__weakref__", "_lock", "items")

    def __init__(self, items: list[Message]) -> None:
        self.items = items
        self._lock = fork_safe_lock(self)

    def extended(self, length: int, messages: Sequence[Message]) -> _Roll:
        """Give a roll that has these messages after the first ones; only the first who comes can go on writing here."""
        with self._lock:
            if len(self.items) == length:
                self.items.extend(messages)
                return self
        return _Roll([*self.items[:length], *messages])


def _check(messages: Sequence[Message]) -> None:
    """Refuse messages of which a call and its reply do not stand together."""
    waiting: deque[ToolCall] = deque()  # a reply mostly answers the first that waits, however many there are
    for index, message in enumerate(messages):
        if isinstance(message, ToolMessage):
            if message.call not in waiting:
                raise ToolConfigurationError(
                    f"Message {index} answers a call of '{message.call.name:.64}' that nobody made just before it"
                )
            waiting.remove(message.call)
        elif waiting:
            raise _unanswered(waiting[0].name, index)
        elif isinstance(message, AssistantMessage):
            waiting = deque(message.calls)
        elif not isinstance(message, (UserMessage, SystemMessage)):
            raise ToolConfigurationError(f"Message {index} is no message but a {type(message).__name__}")
    if waiting:
        raise _unanswered(waiting[0].name, len(messages))


def _unanswered(name: str, index: int) -> ToolConfigurationError:
    return ToolConfigurationError(
        f"The call of '{name:.64}' has no reply before message {index}; put a ToolMessage for each call after it"
    )
