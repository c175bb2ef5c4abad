"""Storage of conversations in memory."""

from __future__ import annotations

from toolsemble._runtime.fork_locks import fork_safe_lock
from toolsemble.agent._instructions import merge_texts, read_kept_text
from toolsemble.models._message import Message, SystemMessage
from toolsemble.models._transcript import Transcript


def append_messages(kept: Transcript, before: Transcript | None, after: Transcript, count: int) -> Transcript:
    """Return a stored conversation with the new messages of another copy of it.

    >>> from toolsemble.models import UserMessage
    >>> kept = Transcript([UserMessage("a")])
    >>> append_messages(kept, None, Transcript([UserMessage("b"), UserMessage("c")]), 1)
    [UserMessage(text='a', contents=()), UserMessage(text='c', contents=())]
    """
    new, system = new_messages(after, count), merge_system(kept, after, count)
    # Usually nobody else has written, and the other copy already is the result.
    if before is not None and kept.is_same(before) and len(new) == count:
        return after.under(system)
    return kept.plus(*new).under(system)


def merge_system(kept: Transcript, after: Transcript, count: int) -> SystemMessage | None:
    """Return the system message to store: what people wrote, without the instructions of the agent.

    >>> merge_system(Transcript(), Transcript([SystemMessage("You are a poet.", "You are a poet.")]), 0) is None
    True
    """
    text = merge_texts(read_kept_text(kept), read_kept_text(after))
    for message in after[max(len(after) - count, 1) :]:
        text = merge_texts(text, message.text) if isinstance(message, SystemMessage) else text
    return SystemMessage(text) if text else None


def new_messages(after: Transcript, count: int) -> list[Message]:
    """Return the last messages, without system messages, which are stored apart."""
    return [message for message in after[len(after) - count :] if not isinstance(message, SystemMessage)]


class InMemoryStore:
    """Conversations in a dict.

    >>> InMemoryStore().ids()
    []
    """

    in_place = True
    """Whether it is so quick that it need not leave the event loop."""

    def __init__(self) -> None:
        self._kept: dict[str, Transcript] = {}
        self._lock = fork_safe_lock(self)

    def load(self, memory_id: str) -> Transcript:
        """Return a conversation; an empty one if the id is unknown."""
        return self._kept.get(memory_id) or Transcript()

    def extend(self, memory_id: str, before: Transcript | None, after: Transcript, count: int) -> None:
        """Add messages to a conversation."""
        with self._lock:
            self._kept[memory_id] = append_messages(self.load(memory_id), before, after, count)

    def clear(self, memory_id: str) -> None:
        """Delete a conversation."""
        with self._lock:
            self._kept.pop(memory_id, None)

    def ids(self) -> list[str]:
        """Return the ids of the conversations, in the order of their creation."""
        return list(self._kept)

    def close(self) -> None:
        """Do nothing: there are no open resources."""
