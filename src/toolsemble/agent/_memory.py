"""Conversation memory: conversations that outlive a run, and the window of messages that a model sees."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from toolsemble._runtime.checks import check_count
from toolsemble._vocabulary.errors import ToolDefinitionError
from toolsemble.agent._conversation import InMemoryStore, estimate_tokens, trim_messages
from toolsemble.models._message import Message, Transcript

if TYPE_CHECKING:
    from toolsemble.agent._memory_database import DatabaseMemoryStore


class ConversationMemory:
    """A store of conversations by id; in memory, in a SQLite file, or in a Postgres database shared by many machines.

    A run stores its messages turn by turn, each call together with its reply, so that a conversation can continue after
    any exception, even in another process. All messages are stored; the limits only apply to the window that a model
    sees.

    >>> from toolsemble import Agent
    >>> from toolsemble.models import ScriptedModel
    >>> memory = ConversationMemory(max_messages=20)
    >>> model = ScriptedModel(["Hello, Ada.", lambda messages: f"You said: {messages[0].text}"])
    >>> agent = Agent(model, memory=memory)
    >>> agent.run_sync("I am Ada.", memory_id="ada").text
    'Hello, Ada.'
    >>> agent.run_sync("What did I say?", memory_id="ada").text
    'You said: I am Ada.'
    >>> memory.ids(), len(memory.load("ada"))
    (['ada'], 4)
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        max_messages: int | None = None,
        max_tokens: int | None = None,
        count_tokens: Callable[[Message], int] = estimate_tokens,
    ) -> None:
        """Open the file or the database, if there is one.

        :param path: the file, created if it does not exist, or a ``postgresql://`` URL (extra ``postgres``); None:
            conversations are kept in memory
        :param max_messages: maximum messages that a model sees, not counting the system message
        :param max_tokens: maximum message tokens that a model sees
        :param count_tokens: returns the number of tokens of a message; an estimate by default
        """
        for name, value in (("max_messages", max_messages), ("max_tokens", max_tokens)):
            if value is not None:
                check_count(f"ConversationMemory {name}", value, least=1)
        if not callable(count_tokens):
            raise ToolDefinitionError(
                f"ConversationMemory count_tokens must be a function of a message, not {count_tokens!r:.80}"
            )
        self._max_messages = max_messages
        self._max_tokens = max_tokens
        self._count_tokens = count_tokens
        self._store = InMemoryStore() if path is None else _open_store(path)

    @property
    def in_place(self) -> bool:
        """Whether it is fast enough to run in the event loop: in memory, and in a file."""
        return self._store.in_place

    def load(self, memory_id: str) -> Transcript:
        """Return a whole conversation; an empty one if the id is unknown."""
        return self._store.load(memory_id)

    def extend(self, memory_id: str, before: Transcript | None, after: Transcript, count: int) -> None:
        """Add messages to a conversation.

        :param before: the conversation as last loaded or extended in this process; None for another one
        :param after: that conversation with the new messages
        :param count: the number of new messages
        """
        self._store.extend(memory_id, before, after, count)

    def window(self, messages: Transcript, question: int) -> Sequence[Message]:
        """Return the part of a conversation that a model sees; it contains the question at this index."""
        shown: Sequence[Message] = messages
        if self._max_messages is not None:
            shown = trim_messages(messages, self._max_messages, lambda _: 1, question)
        if self._max_tokens is not None:
            fewer = trim_messages(messages, self._max_tokens, self._count_tokens, question)
            shown = fewer if len(fewer) < len(shown) else shown
        return shown

    def clear(self, memory_id: str) -> None:
        """Delete a conversation."""
        self._store.clear(memory_id)

    def ids(self) -> list[str]:
        """Return the ids of the conversations, in the order of their creation."""
        return self._store.ids()

    def close(self) -> None:
        """Close the file or the connections; the next use opens them again."""
        self._store.close()


def _open_store(path: object) -> DatabaseMemoryStore:
    from toolsemble._runtime.storage.opening import read_location
    from toolsemble.agent._memory_database import DatabaseMemoryStore

    place = os.fspath(path) if isinstance(path, (str, os.PathLike)) else None
    if not isinstance(place, str) or place in {"", ":memory:"}:
        raise ToolDefinitionError(
            f"ConversationMemory path must be the path of a file, or None to use memory, not {path!r:.80}"
        )
    return DatabaseMemoryStore(read_location(place, "ConversationMemory"))
