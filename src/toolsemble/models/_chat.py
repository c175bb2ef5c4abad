"""The protocol of chat models: requests, replies, and the chunks of a stream."""

from __future__ import annotations

import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Protocol, TypeAlias, TypeVar, runtime_checkable

from toolsemble._vocabulary.call import ToolCall, received_call
from toolsemble._vocabulary.errors import ModelError
from toolsemble._vocabulary.specification import ToolSpecification
from toolsemble.models._message import Message

T = TypeVar("T")

MAX_REPLY = 64 * 2**20
"""The default of a model's ``max_reply``: bytes of one response, including the JSON around the text."""


class ReplyTooLongError(ModelError):
    """Signals a reply longer than ``max_reply``; not retryable, because the next one would probably be as long.

    >>> ReplyTooLongError(1000)
    ReplyTooLongError("The reply is longer than 1,000 bytes; raise the model's max_reply if this is expected")
    """

    def __init__(self, most: int) -> None:
        super().__init__(f"The reply is longer than {most:,} bytes; raise the model's max_reply if this is expected")


def limit_responses(client: T, most: int) -> T:
    """Make an ``httpx2.AsyncClient`` abort responses that are longer than this many bytes; return the client.

    Decompressed bytes are counted while they are read, so no more than that is held in memory.

    >>> import httpx2
    >>> len(limit_responses(httpx2.AsyncClient(), 1000).event_hooks["response"])
    1
    """

    async def limit(response: Any) -> None:
        response.aiter_bytes = _limit_reading(response, most)

    client.event_hooks["response"].append(limit)  # type: ignore[attr-defined]  # the package is optional
    return client


def _limit_reading(response: Any, most: int) -> Callable[..., AsyncGenerator[bytes, None]]:
    # A reference cycle would leave the response, and its connection, to the garbage collector.
    reference, read = weakref.ref(response), type(response).aiter_bytes

    async def aiter_bytes(chunk_size: int | None = None) -> AsyncGenerator[bytes, None]:
        received = 0
        async with aclosing(read(reference(), chunk_size)) as pieces:
            async for piece in pieces:
                received += len(piece)
                if received > most:
                    raise ReplyTooLongError(most)
                yield piece

    return aiter_bytes


def limit_pieces(pieces: Iterator[bytes], most: int) -> Iterator[bytes]:
    """Yield the pieces of a body; raise a :class:`ReplyTooLongError` if it is too long.

    >>> list(limit_pieces(iter([b"to ", b"Rome"]), 7))
    [b'to ', b'Rome']
    """
    received = 0
    for piece in pieces:
        received += len(piece)
        if received > most:
            raise ReplyTooLongError(most)
        yield piece


def find_too_long(error: BaseException | None) -> ReplyTooLongError | None:
    """Return the :class:`ReplyTooLongError` that an SDK wrapped in another error, or None.

    >>> find_too_long(ValueError()) is None
    True
    """
    while error is not None and not isinstance(error, ReplyTooLongError):
        error = error.__cause__ or error.__context__
    return error


_CALL_SIZE = 100

ToolChoice: TypeAlias = Literal["auto", "required", "none"]
"""Whether the model may, must, or must not call tools."""

Reasoning: TypeAlias = Literal["low", "medium", "high"] | int
"""How much a model reasons before it answers: a level, or a number of tokens."""

StopReason: TypeAlias = Literal["stop", "calls", "length", "refusal", "other"]
"""Why a model stopped: complete answer, calls, token limit, or refusal."""


@dataclass(frozen=True, slots=True)
class TokenUsage:
    """The number of tokens of a reply.

    >>> TokenUsage(100, 20).total
    120
    """

    input: int = 0
    """Tokens of the request, including cached ones."""
    output: int = 0
    """Tokens of the reply, including reasoning."""
    cached: int = 0
    """Tokens of the request that the provider read from its cache."""
    reasoning: int = 0
    """Tokens of the reply that were reasoning."""
    cache_write: int = 0
    """Tokens of the request that the provider wrote to its cache."""

    @property
    def total(self) -> int:
        """The sum of input and output tokens."""
        return self.input + self.output


NO_TOKENS = TokenUsage()
"""The usage of a reply whose tokens were not counted."""


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """A request to a model.

    >>> from toolsemble.models import UserMessage
    >>> ChatRequest([UserMessage("hello")]).tool_choice
    'auto'
    """

    messages: Sequence[Message]
    """The conversation so far, starting with the system message if there is one; it is never modified."""
    specifications: Sequence[ToolSpecification] = ()
    """The offered tools."""
    tool_choice: ToolChoice = "auto"
    """Whether the model may call them; with "none" they are still listed, because some providers require it."""
    output_schema: Mapping[str, Any] | None = None
    """The JSON Schema, of an object, that the text of the answer must match; only for models with ``native_output``."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Additional model settings, such as a temperature, under the provider's names."""
    reasoning: Reasoning | None = None
    """How much the model reasons; None: the provider's default. Models that cannot map it raise an error."""
    can_restart: bool = False
    """Whether the stream's consumer accepts a :class:`StreamRestart`; agent runs do."""


@dataclass(frozen=True, slots=True)
class ChatReply:
    """The reply of a model.

    >>> ChatReply("Rome", usage=TokenUsage(100, 1)).text
    'Rome'
    """

    text: str = ""
    """The text; empty when there are only calls."""
    calls: tuple[ToolCall, ...] = ()
    """The requested calls."""
    usage: TokenUsage = NO_TOKENS
    """The tokens of the reply."""
    stop_reason: StopReason = "stop"
    """Why the model stopped."""
    details: Mapping[str, Any] | None = None
    """JSON values that the provider needs back with the message."""


@dataclass(frozen=True, slots=True)
class TextDelta:
    """A piece of the text.

    >>> TextDelta("Ro").text
    'Ro'
    """

    text: str
    """The piece."""
    kind: ClassVar[Literal["text_delta"]] = "text_delta"


@dataclass(frozen=True, slots=True)
class ThoughtDelta:
    """A piece of the model's reasoning, or of its summary; not part of the answer.

    >>> ThoughtDelta("The capital of Italy is").text
    'The capital of Italy is'
    """

    text: str
    """The piece."""
    kind: ClassVar[Literal["thought_delta"]] = "thought_delta"


@dataclass(frozen=True, slots=True)
class PromptProgress:
    """The part of a long prompt that the model has processed; only the local model reports it.

    >>> PromptProgress(0.4).fraction
    0.4
    """

    fraction: float
    """From 0 to 1."""
    kind: ClassVar[Literal["prompt_progress"]] = "prompt_progress"


@dataclass(frozen=True, slots=True)
class CallDelta:
    """The start of a call; its arguments follow.

    >>> CallDelta(0, "search", "call_1").name
    'search'
    """

    index: int
    """Identifies the call within the reply; calls are ordered by their start."""
    name: str
    """The name of the called tool."""
    id: str | None = None
    """The provider's id of the call."""
    kind: ClassVar[Literal["call_delta"]] = "call_delta"


@dataclass(frozen=True, slots=True)
class ArgumentsDelta:
    """A piece of the JSON text of a call's arguments.

    >>> ArgumentsDelta(0, '{"city": ').index
    0
    """

    index: int
    """The index of its call."""
    text: str
    """The piece."""
    secret: bool = field(default=False, repr=False)
    """Whether it may contain a secret and must not be displayed; set by agent runs."""
    kind: ClassVar[Literal["arguments_delta"]] = "arguments_delta"


@dataclass(frozen=True, slots=True)
class StreamEnd:
    """The end of a stream; a stream without it was cut off.

    >>> StreamEnd(TokenUsage(100, 20)).stop_reason
    'stop'
    """

    usage: TokenUsage = NO_TOKENS
    """The tokens of the reply."""
    stop_reason: StopReason = "stop"
    """Why the model stopped."""
    details: Mapping[str, Any] | None = None
    """JSON values that the provider needs back with the message."""


@dataclass(frozen=True, slots=True)
class StreamRestart:
    """The reply starts over, from another model: discard the previous chunks.

    >>> StreamRestart("The connection broke").reason
    'The connection broke'
    """

    reason: str
    """Why the previous chunks are discarded."""


Chunk: TypeAlias = TextDelta | ThoughtDelta | PromptProgress | CallDelta | ArgumentsDelta | StreamRestart | StreamEnd
"""A piece of a streamed reply."""


@runtime_checkable
class ChatModel(Protocol):
    """The protocol of a model: any object with these two methods.

    A model that can restrict its answers to a schema has an attribute ``native_output = True``; others return the
    answer through a tool. Failures of the provider are raised as :class:`~toolsemble.ModelError`, which says whether
    a retry is useful. A model serves many concurrent runs, in any event loop, so it must not keep a loop's resources,
    such as open connections, after the loop ends.

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
        """Return the whole reply."""
        ...

    def stream(self, request: ChatRequest) -> AsyncIterator[Chunk]:
        """Yield the chunks of the reply; the last one is a :class:`StreamEnd`.

        A :class:`StreamRestart` is only yielded if the request has ``can_restart``.
        """
        ...


class Assembly:
    """A reply assembled from a stream's chunks.

    >>> Assembly().assemble(chunks_of(ChatReply("All roads lead to Rome"))).text
    'All roads lead to Rome'
    """

    def __init__(self, max_reply: int = MAX_REPLY) -> None:
        """Set the maximum number of characters of all chunks together."""
        self._most = self._left = max_reply
        self._text: list[str] = []
        self._calls: dict[int, tuple[CallDelta, list[str]]] = {}
        self._end: StreamEnd | None = None

    def add(self, chunk: Chunk) -> None:
        """Add the next chunk; raise a :class:`~toolsemble.ModelError` if the reply becomes too long."""
        self._left -= _size(chunk)
        if self._left < 0:
            raise ReplyTooLongError(self._most)
        if isinstance(chunk, TextDelta):
            self._text.append(chunk.text)
        elif isinstance(chunk, CallDelta):
            self._calls[chunk.index] = chunk, []
        elif isinstance(chunk, ArgumentsDelta):
            if chunk.index not in self._calls:
                raise ModelError(f"The model sent arguments of call {chunk.index} before its start")
            self._calls[chunk.index][1].append(chunk.text)
        elif isinstance(chunk, StreamRestart):
            self._left = self._most
            self._text.clear()
            self._calls.clear()
        elif isinstance(chunk, StreamEnd):
            self._end = chunk
        elif not isinstance(chunk, (ThoughtDelta, PromptProgress)):
            raise TypeError(f"The model yielded {chunk!r:.80}, not a Chunk")

    def assemble(self, chunks: Iterable[Chunk]) -> ChatReply:
        """Add all chunks, and return the whole reply."""
        for chunk in chunks:
            self.add(chunk)
        return self.reply()

    def reply(self) -> ChatReply:
        """Return the whole reply; raise a :class:`~toolsemble.ModelError` if the stream was cut off."""
        if self._end is None:
            raise ModelError("The model's answer was cut off before its end", retryable=True)
        calls = tuple(received_call(start.name, "".join(pieces), start.id) for start, pieces in self._calls.values())
        return ChatReply("".join(self._text), calls, self._end.usage, self._end.stop_reason, self._end.details)


def _size(chunk: Chunk) -> int:
    """Return the number of characters in a chunk; the start of a call also counts, because it takes memory."""
    if isinstance(chunk, CallDelta):
        return len(chunk.name) + _CALL_SIZE
    return len(chunk.text) if isinstance(chunk, (TextDelta, ThoughtDelta, ArgumentsDelta)) else 0


@asynccontextmanager
async def closing(chunks: AsyncIterator[Chunk]) -> AsyncIterator[AsyncIterator[Chunk]]:
    """Return a context that closes a stream, if it is closable, so that no connection stays open.

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
    """Yield a whole reply as chunks: the text word by word, the arguments of each call in two pieces.

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
