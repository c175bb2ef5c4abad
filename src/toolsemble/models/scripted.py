"""A model for tests that says what it was told to say."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import Any, TypeAlias

from toolsemble.call import ToolCall
from toolsemble.errors import ModelError
from toolsemble.models.chat import NO_TOKENS, ChatReply, ChatRequest, Chunk, TokenUsage, chunks_of
from toolsemble.models.message import Message
from toolsemble.runtime.concurrency import is_awaitable

Said: TypeAlias = str | ToolCall | Sequence[ToolCall] | ChatReply | BaseException | type[BaseException]
"""What a model for tests can say: text, a call, several calls, a whole reply, or an exception to raise."""

Scripted: TypeAlias = Said | Callable[[Sequence[Message]], Any]
"""One line of a script: what is said, or a function of the messages, sync or async, that gives it."""


class ScriptedModel:
    """Gives one reply after the other from a script, also over several runs, and raises when it is used up.

    >>> model = ScriptedModel([ToolCall("add", {"a": 1, "b": 2}), lambda messages: f"It is {messages[-1].text}."])
    >>> from toolsemble import Agent, tool
    >>> @tool
    ... def add(a: int, b: int) -> int:
    ...     return a + b
    >>> Agent(model, [add]).run_sync("What is 1 + 2?").text
    'It is 3.'
    >>> [len(messages) for messages in model.requests]
    [1, 3]
    """

    def __init__(
        self, replies: Iterable[Scripted], *, usage: TokenUsage = NO_TOKENS, native_output: bool = False
    ) -> None:
        """Take the script.

        :param replies: what is said, line by line; any iterable, also one without end
        :param usage: the tokens that each reply is said to take
        :param native_output: whether it takes the schema of an answer, instead of a tool for it
        """
        if isinstance(replies, (str, ToolCall)) or not isinstance(replies, Iterable):
            raise TypeError(f"A script is a list of replies, not {type(replies).__name__}: write ScriptedModel([...])")
        if isinstance(replies, Sequence):
            for index, line in enumerate(replies):
                _check(line, f"Line {index} of the script")
        self._script = iter(replies)
        self._usage = usage
        self.native_output = native_output
        self.asked: list[ChatRequest] = []
        """The requests that it was given, in order."""

    @property
    def requests(self) -> list[Sequence[Message]]:
        """The messages that it was given, one list for each time it was asked; :attr:`asked` has the whole requests."""
        return [request.messages for request in self.asked]

    async def reply(self, request: ChatRequest) -> ChatReply:
        """Give the next reply of the script."""
        self.asked.append(request)
        try:
            line = next(self._script)
        except StopIteration:
            raise ModelError(f"The script is used up: this is request {len(self.asked)}") from None
        given = line(request.messages) if _is_function(line) else line  # type: ignore[operator]  # just asked
        return as_reply(await given if is_awaitable(given) else given, self._usage)

    async def stream(self, request: ChatRequest) -> AsyncIterator[Chunk]:
        """Give the next reply of the script in pieces."""
        for chunk in chunks_of(await self.reply(request)):
            yield chunk


def as_reply(said: Any, usage: TokenUsage) -> ChatReply:
    """Give what was said as a model's reply, or raise it.

    >>> as_reply([ToolCall("now")], TokenUsage()).stop_reason
    'calls'
    """
    if isinstance(said, BaseException) or _is_exception(said):
        raise said
    if isinstance(said, ChatReply):
        return said
    if isinstance(said, str):
        return ChatReply(said, usage=usage)
    _check(said, "The reply")
    return ChatReply("", (said,) if isinstance(said, ToolCall) else tuple(said), usage, "calls")


def _is_exception(line: object) -> bool:
    return isinstance(line, type) and issubclass(line, BaseException)


def _is_function(line: object) -> bool:
    return callable(line) and not _is_exception(line)


def _check(line: object, place: str) -> None:
    if isinstance(line, (str, ToolCall, ChatReply, BaseException)) or callable(line):
        return
    if isinstance(line, Sequence) and all(isinstance(each, ToolCall) for each in line):
        return
    raise TypeError(
        f"{place} must be a str, a ToolCall, a list of ToolCalls, a ChatReply, an exception or a function of the "
        f"messages, not {line!r:.80}"
    )
