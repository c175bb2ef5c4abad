"""What a chat model must do: answer a request, as a whole or piece by piece."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Protocol, TypeAlias, runtime_checkable

from toolsemble.call import ToolCall
from toolsemble.errors import ModelError
from toolsemble.models.message import Message
from toolsemble.models.reply_limit import MAX_REPLY, ReplyTooLongError
from toolsemble.specification import ToolSpecification

_BEGINNING = 100

ToolChoice: TypeAlias = Literal["auto", "required", "none"]
"""Whether the model may call tools, must, or must not."""

StopReason: TypeAlias = Literal["stop", "calls", "length", "refusal", "other"]
"""Why a model stopped: it had said everything, it waits for its calls, its room was used up, it refused."""


@dataclass(frozen=True, slots=True)
class TokenUsage:
    """How many tokens one reply took.

    >>> TokenUsage(100, 20).total
    120
    """

    input: int = 0
    """Tokens of the request, the cached ones among them."""
    output: int = 0
    """Tokens of the reply, thoughts among them."""
    cached: int = 0
    """Tokens of the request that the provider had kept from before."""

    @property
    def total(self) -> int:
        """Tokens of both."""
        return self.input + self.output


NO_TOKENS = TokenUsage()
"""Of a reply that nobody counted."""


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """What a model is asked.

    >>> from toolsemble.models import UserMessage
    >>> ChatRequest([UserMessage("hello")]).tool_choice
    'auto'
    """

    messages: Sequence[Message]
    """The conversation so far, a system message first if there is one; it never changes."""
    specifications: Sequence[ToolSpecification] = ()
    """The tools that are offered."""
    tool_choice: ToolChoice = "auto"
    """Whether the model may call them; with "none" they are named all the same, as some providers insist."""
    output_schema: Mapping[str, Any] | None = None
    """The JSON Schema, of an object, that the text of an answer must fit; only for models with ``native_output``."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """What else the user wants to tell this model, such as a temperature; names are the provider's."""


@dataclass(frozen=True, slots=True)
class ChatReply:
    """What a model answers.

    >>> ChatReply("Rome", usage=TokenUsage(100, 1)).text
    'Rome'
    """

    text: str = ""
    """The text; empty when there are only calls."""
    calls: tuple[ToolCall, ...] = ()
    """The calls that it asks for."""
    usage: TokenUsage = NO_TOKENS
    """The tokens it took."""
    stop_reason: StopReason = "stop"
    """Why it ended there."""
    details: Mapping[str, Any] | None = None
    """What the provider wants back with the message: JSON values."""


@dataclass(frozen=True, slots=True)
class TextDelta:
    """A further piece of the text.

    >>> TextDelta("Ro").text
    'Ro'
    """

    text: str
    """The piece."""
    kind: ClassVar[str] = "text_delta"


@dataclass(frozen=True, slots=True)
class CallDelta:
    """The beginning of a call; its arguments follow.

    >>> CallDelta(0, "search", "call_1").name
    'search'
    """

    index: int
    """Tells the calls of one reply apart; calls are in the order in which they begin."""
    name: str
    """The tool that is called."""
    id: str | None = None
    """The provider's id of the call."""
    kind: ClassVar[str] = "call_delta"


@dataclass(frozen=True, slots=True)
class ArgumentsDelta:
    """A further piece of the JSON text of a call's arguments.

    >>> ArgumentsDelta(0, '{"city": ').index
    0
    """

    index: int
    """Which call it belongs to."""
    text: str
    """The piece."""
    kind: ClassVar[str] = "arguments_delta"


@dataclass(frozen=True, slots=True)
class StreamEnd:
    """The end of a stream; a stream that stops without it was cut off.

    >>> StreamEnd(TokenUsage(100, 20)).stop_reason
    'stop'
    """

    usage: TokenUsage = NO_TOKENS
    """The tokens that the reply took."""
    stop_reason: StopReason = "stop"
    """Why it ended there."""
    details: Mapping[str, Any] | None = None
    """What the provider wants back with the message: JSON values."""


Chunk: TypeAlias = TextDelta | CallDelta | ArgumentsDelta | StreamEnd
"""A piece of a reply that is still being made."""


@runtime_checkable
class ChatModel(Protocol):
    """Any object with these two methods is a model.

    A model that can hold its answers to a schema by itself has an attribute ``native_output = True``; others are
    offered a tool for the answer. What goes wrong on the provider's side is a :class:`~toolsemble.ModelError`, which
    says whether trying again is worth it. One model serves many runs at once, each in any event loop: what belongs
    to a loop, such as open connections, is not kept beyond it.

    >>> class Parrot:
    ...     async def reply(self, request):
    ...         return ChatReply(request.messages[-1].text)
    ...     async def stream(self, request):
    ...         for chunk in chunks_of(await self.reply(request)):
    ...             yield chunk
    >>> isinstance(Parrot(), ChatModel)
    True
    """

    async def reply(self, request: ChatRequest) -> ChatReply:
        """Give the whole reply."""
        ...

    def stream(self, request: ChatRequest) -> AsyncIterator[Chunk]:
        """Give the reply piece by piece, with a :class:`StreamEnd` at its end."""
        ...


class Assembly:
    """Puts the pieces of a stream together.

    >>> assembly = Assembly()
    >>> for chunk in chunks_of(ChatReply("All roads lead to Rome")):
    ...     assembly.add(chunk)
    >>> assembly.reply() == ChatReply("All roads lead to Rome")
    True
    """

    def __init__(self, max_reply: int = MAX_REPLY) -> None:
        """Take how many characters the pieces may have together."""
        self._most = self._left = max_reply
        self._text: list[str] = []
        self._calls: dict[int, tuple[CallDelta, list[str]]] = {}
        self._end: StreamEnd | None = None

    def add(self, chunk: Chunk) -> None:
        """Take the next piece; raise a :class:`~toolsemble.ModelError` when there are too many."""
        self._left -= _weight(chunk)
        if self._left < 0:
            raise ReplyTooLongError(self._most)
        if isinstance(chunk, TextDelta):
            self._text.append(chunk.text)
        elif isinstance(chunk, CallDelta):
            self._calls[chunk.index] = chunk, []
        elif isinstance(chunk, ArgumentsDelta):
            if chunk.index not in self._calls:
                raise ModelError(f"The model sent arguments of a call ({chunk.index}) that it had not begun")
            self._calls[chunk.index][1].append(chunk.text)
        elif isinstance(chunk, StreamEnd):
            self._end = chunk
        else:
            raise TypeError(f"The model gave {chunk!r:.80} in place of a Chunk")

    def reply(self) -> ChatReply:
        """Give the whole reply, or raise a :class:`~toolsemble.ModelError` when the stream was cut off."""
        if self._end is None:
            raise ModelError("The model's answer was cut off before its end", retryable=True)
        calls = tuple(ToolCall(begin.name, "".join(pieces), begin.id) for begin, pieces in self._calls.values())
        return ChatReply("".join(self._text), calls, self._end.usage, self._end.stop_reason, self._end.details)


def _weight(chunk: Chunk) -> int:
    """Return how many characters a piece holds; the beginning of a call takes memory, too."""
    if isinstance(chunk, CallDelta):
        return len(chunk.name) + _BEGINNING
    return len(chunk.text) if isinstance(chunk, (TextDelta, ArgumentsDelta)) else 0


@asynccontextmanager
async def closing(chunks: AsyncIterator[Chunk]) -> AsyncIterator[AsyncIterator[Chunk]]:
    """Give a stream, and close it at once when it is left, so that no connection stays open; not all can be closed.

    >>> from contextlib import AbstractAsyncContextManager
    >>> isinstance(closing(iter([])), AbstractAsyncContextManager)
    True
    """
    try:
        yield chunks
    finally:
        close = getattr(chunks, "aclose", None)
        if close is not None:
            await close()


def chunks_of(reply: ChatReply) -> Iterator[Chunk]:
    """Give a whole reply as a stream would: text word by word, each call with its arguments in two pieces.

    >>> list(chunks_of(ChatReply("to Rome")))[:2]
    [TextDelta(text='to '), TextDelta(text='Rome')]
    """
    words = reply.text.split(" ")
    if reply.text:
        yield from (TextDelta(f"{word} ") for word in words[:-1])
        yield TextDelta(words[-1])
    for index, call in enumerate(reply.calls):
        half = len(call.json) // 2
        yield CallDelta(index, call.name, call.id)
        yield ArgumentsDelta(index, call.json[:half])
        yield ArgumentsDelta(index, call.json[half:])
    yield StreamEnd(reply.usage, reply.stop_reason, reply.details)
