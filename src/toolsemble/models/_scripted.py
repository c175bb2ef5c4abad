"""Models without a provider, for tests: scripted replies, or a function."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import Any, TypeAlias

from toolsemble._runtime.event_loops import is_awaitable
from toolsemble._vocabulary.call import ToolCall
from toolsemble._vocabulary.errors import ModelError
from toolsemble.models._chat import NO_TOKENS, ChatReply, ChatRequest, Chunk, TokenUsage, chunks_of
from toolsemble.models._message import Message


class FunctionModel:
    """A model that calls a function, sync or async, which returns text, calls, a whole reply, or an exception.

    >>> from toolsemble import Agent
    >>> Agent(FunctionModel(lambda request: request.messages[-1].text.upper())).run_sync("hello").text
    'HELLO'
    """

    def __init__(
        self,
        function: Callable[[ChatRequest], Any],
        *,
        usage: TokenUsage = NO_TOKENS,
        native_output: bool = False,
    ) -> None:
        """Set the function.

        :param function: takes the request and returns the reply
        :param usage: the token usage of each reply
        :param native_output: whether it supports structured output, instead of a tool for the answer
        """
        if not callable(function):
            raise TypeError(f"FunctionModel needs a function, not {type(function).__name__}")
        self._function = function
        self._usage = usage
        self.native_output = native_output

    async def reply(self, request: ChatRequest) -> ChatReply:
        """Return the reply of the function."""
        returned = self._function(request)
        return as_reply(await returned if is_awaitable(returned) else returned, self._usage)

    async def stream(self, request: ChatRequest) -> AsyncIterator[Chunk]:
        """Yield the reply of the function in chunks."""
        for chunk in chunks_of(await self.reply(request)):
            yield chunk


Said: TypeAlias = str | ToolCall | Sequence[ToolCall] | ChatReply | BaseException | type[BaseException]
"""A reply in a test: text, a call, several calls, a whole reply, or an exception to raise."""

Scripted: TypeAlias = Said | Callable[[Sequence[Message]], Any]
"""One line of a script: a reply, or a function of the messages, sync or async, that returns one."""


class ScriptedModel:
    """A model that returns a script's replies in order, across runs, and raises when the script is exhausted.

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
        """Set the script.

        :param replies: the replies in order; any iterable, even an infinite one
        :param usage: the token usage of each reply
        :param native_output: whether it supports structured output, instead of a tool for the answer
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
        """The requests so far, in order."""

    @property
    def requests(self) -> list[Sequence[Message]]:
        """The messages of each request so far; :attr:`asked` has the full requests."""
        return [request.messages for request in self.asked]

    async def reply(self, request: ChatRequest) -> ChatReply:
        """Return the next reply of the script."""
        self.asked.append(request)
        try:
            line = next(self._script)
        except StopIteration:
            raise ModelError(f"The script is used up: this is request {len(self.asked)}") from None
        reply = line(request.messages) if _is_function(line) else line  # type: ignore[operator]  # checked by _is_function
        return as_reply(await reply if is_awaitable(reply) else reply, self._usage)

    async def stream(self, request: ChatRequest) -> AsyncIterator[Chunk]:
        """Yield the next reply of the script in chunks."""
        for chunk in chunks_of(await self.reply(request)):
            yield chunk


def as_reply(reply: Any, usage: TokenUsage) -> ChatReply:
    """Return a scripted reply as a model's reply; raise it if it is an exception.

    >>> as_reply([ToolCall("now")], TokenUsage()).stop_reason
    'calls'
    """
    if isinstance(reply, BaseException) or _is_exception(reply):
        raise reply
    if isinstance(reply, ChatReply):
        return reply
    if isinstance(reply, str):
        return ChatReply(reply, usage=usage)
    _check(reply, "The reply")
    return ChatReply("", (reply,) if isinstance(reply, ToolCall) else tuple(reply), usage, "calls")


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
