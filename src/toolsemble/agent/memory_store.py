"""Where conversations are kept: what a place must do, and the one in memory."""

from __future__ import annotations

from typing import Protocol

from toolsemble.models.message import Message, SystemMessage
from toolsemble.models.transcript import Transcript
from toolsemble.runtime.fork_locks import fork_safe_lock


def continued(kept: Transcript, before: Transcript | None, after: Transcript, count: int) -> Transcript:
    """Give a conversation that is kept with what is new in another form of it.

    >>> from toolsemble.models import UserMessage
    >>> kept = Transcript([UserMessage("a")])
    >>> continued(kept, None, Transcript([UserMessage("b"), UserMessage("c")]), 1)
    [UserMessage(text='a', images=()), UserMessage(text='c', images=())]
    """
    new = new_messages(after, count)
    # Most often nobody else has written, and the longer form of what is here already stands ready.
    if before is not None and kept.is_same(before) and len(new) == count:
        return after.under(None)
    return kept.plus(*new)


def new_messages(after: Transcript, count: int) -> list[Message]:
    """Give the last messages, without a system message: that is the agent's, not the conversation's."""
    return [message for message in after[len(after) - count :] if not isinstance(message, SystemMessage)]


class Shelf(Protocol):
    """Where conversations are kept."""

    def load(self, memory_id: str) -> Transcript:
        """Give a conversation; an empty one when there is none yet."""
        ...

    def extend(self, memory_id: str, before: Transcript | None, after: Transcript, count: int) -> None:
        """Keep the last messages of a conversation; they stand together, whoever else writes."""
        ...

    def clear(self, memory_id: str) -> None:
        """Forget a conversation."""
        ...

    def ids(self) -> list[str]:
        """Give the ids of the conversations, in the order of their beginning."""
        ...

    def close(self) -> None:
        """Leave what is open."""
        ...


class InMemory:
    """Conversations in a dict.

    >>> InMemory().ids()
    []
    """

    def __init__(self) -> None:
        self._kept: dict[str, Transcript] = {}
        self._lock = fork_safe_lock(self)

    def load(self, memory_id: str) -> Transcript:
        """Give a conversation."""
        return self._kept.get(memory_id) or Transcript()

    def extend(self, memory_id: str, before: Transcript | None, after: Transcript, count: int) -> None:
        """Add to a conversation."""
        with self._lock:
            self._kept[memory_id] = continued(self.load(memory_id), before, after, count)

    def clear(self, memory_id: str) -> None:
        """Forget a conversation."""
        with self._lock:
            self._kept.pop(memory_id, None)

    def ids(self) -> list[str]:
        """Give the ids of the conversations."""
        return list(self._kept)

    def close(self) -> None:
        """Nothing is open."""
