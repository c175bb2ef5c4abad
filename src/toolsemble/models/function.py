"""A model for tests that is a function."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

from toolsemble.models.chat import NO_TOKENS, ChatReply, ChatRequest, Chunk, TokenUsage, chunks_of
from toolsemble.models.scripted import as_reply
from toolsemble.runtime.concurrency import is_awaitable


class FunctionModel:
    """Asks a function, sync or async, for each reply: text, a call, several calls, a whole reply, or an exception.

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
        """Take the function.

        :param function: is given the request, and gives what is said
        :param usage: the tokens that each reply is said to take
        :param native_output: whether it takes the schema of an answer, instead of a tool for it
        """
        if not callable(function):
            raise TypeError(f"FunctionModel needs a function, not {type(function).__name__}")
        self._function = function
        self._usage = usage
        self.native_output = native_output

    async def reply(self, request: ChatRequest) -> ChatReply:
        """Give what the function says."""
        said = self._function(request)
        return as_reply(await said if is_awaitable(said) else said, self._usage)

    async def stream(self, request: ChatRequest) -> AsyncIterator[Chunk]:
        """Give what the function says in pieces."""
        for chunk in chunks_of(await self.reply(request)):
            yield chunk
