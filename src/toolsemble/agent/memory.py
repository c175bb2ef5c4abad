"""Conversations that outlast a run, in memory or in a file, and how much of one a model is shown."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from toolsemble.agent.memory_store import InMemory, Shelf
from toolsemble.agent.window import estimated_tokens, windowed
from toolsemble.errors import ToolDefinitionError
from toolsemble.models.message import Message
from toolsemble.models.transcript import Transcript
from toolsemble.runtime.checks import check_count


class ConversationMemory:
    """Keeps conversations by the id that a run is given; in memory, or in a SQLite file that programs can share.

    A run adds what was said turn by turn, each call together with its reply, so that a conversation can go on after
    any exception, also after the end of the process. Everything is kept; the window only says how much of it a model
    is shown.

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
        count_tokens: Callable[[Message], int] = estimated_tokens,
    ) -> None:
        """Open the file, if there is to be one.

        :param path: the file, which is made when it is missing; None for memory
        :param max_messages: how many messages a model is shown, beside the system message
        :param max_tokens: how many tokens of messages a model is shown
        :param count_tokens: how many tokens a message takes; by default, a guess
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
        self._shelf: Shelf = InMemory() if path is None else _in_file(_checked(path))

    def load(self, memory_id: str) -> Transcript:
        """Give a whole conversation; an empty one when there is none yet."""
        return self._shelf.load(memory_id)

    def extend(self, memory_id: str, before: Transcript | None, after: Transcript, count: int) -> None:
        """Add to a conversation.

        :param before: the conversation as it was when it was loaded or last extended here; None for another one
        :param after: that conversation with what is new
        :param count: how many messages are new
        """
        self._shelf.extend(memory_id, before, after, count)

    def window(self, messages: Transcript, question: int) -> Sequence[Message]:
        """Give the part of a conversation that a model is shown; the question at this index is in it."""
        shown: Sequence[Message] = messages
        if self._max_messages is not None:
            shown = windowed(messages, self._max_messages, lambda _: 1, question)
        if self._max_tokens is not None:
            fewer = windowed(messages, self._max_tokens, self._count_tokens, question)
            shown = fewer if len(fewer) < len(shown) else shown
        return shown

    def clear(self, memory_id: str) -> None:
        """Forget a conversation."""
        self._shelf.clear(memory_id)

    def ids(self) -> list[str]:
        """Give the ids of the conversations, in the order of their beginning."""
        return self._shelf.ids()

    def close(self) -> None:
        """Close the file; whoever uses the memory afterwards opens it again."""
        self._shelf.close()


def _checked(path: object) -> Path:
    place = os.fspath(path) if isinstance(path, (str, os.PathLike)) else None
    if not isinstance(place, str) or place in {"", ":memory:"}:
        raise ToolDefinitionError(
            f"ConversationMemory path must be the path of a file, or None for memory, not {path!r:.80}"
        )
    # A program may change its folder before the file is opened again.
    return Path(place).absolute()


def _in_file(path: Path) -> Shelf:
    from toolsemble.agent.memory_sqlite import Archive  # noqa: PLC0415 - who keeps nothing in files needs no database

    return Archive(path)
