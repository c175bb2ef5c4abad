"""A model for tests that calls a function for each reply."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

from toolsemble._runtime.concurrency import is_awaitable
from toolsemble.models._chat import NO_TOKENS, ChatReply, ChatRequest, Chunk, TokenUsage, chunks_of
from toolsemble.models._scripted import as_reply


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
        :param native_output: whether it accepts the schema of an answer, instead of a tool for the answer
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
