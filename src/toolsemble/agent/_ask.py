"""Model requests: complete or streamed, with retries."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, TypeVar

from toolsemble._runtime.text import describe_error, escape_surrogates
from toolsemble._tools.toolbox.toolbox import Toolbox
from toolsemble._vocabulary.call import ToolCall, new_id, received_call
from toolsemble.agent._channel import Channel
from toolsemble.agent._event import ModelRetried
from toolsemble.agent._redaction import ArgumentsMarker
from toolsemble.agent._retry import Retry
from toolsemble.models._chat import (
    Assembly,
    ChatModel,
    ChatReply,
    ChatRequest,
    StreamEnd,
    StreamRestart,
    TextDelta,
    TokenUsage,
    closing,
)
from toolsemble.models._reply_limit import MAX_REPLY

LOGGER = logging.getLogger("toolsemble.agent")
LOGGER.addHandler(logging.NullHandler())  # a program without logging prints nothing

T = TypeVar("T")


class OutOfTimeError(Exception):
    """The run's time was up before the model had answered.

    >>> raise OutOfTimeError
    Traceback (most recent call last):
    ...
    toolsemble.agent._ask.OutOfTimeError
    """


async def wait_until(work: Awaitable[T], deadline: float | None) -> T:
    """Return the result of an awaitable, or raise :class:`OutOfTimeError` at the deadline.

    :param deadline: a time on the clock of ``time.monotonic``; None: no deadline

    >>> async def answer():
    ...     return 42
    >>> asyncio.run(wait_until(answer(), None))
    42
    """
    if deadline is None:
        return await work
    try:
        async with asyncio.timeout(deadline - time.monotonic()) as limit:
            return await work
    except Exception as error:
        # A model may turn the cancellation into its own exception; an exception before the deadline is its own failure.
        if limit.expired():
            raise OutOfTimeError from error
        raise


async def ask_model(
    model: ChatModel,
    request: ChatRequest,
    retry: Retry,
    channel: Channel | None,
    on_retry: Callable[[ModelRetried], None],
    deadline: float | None,
    streamed: list[str],
    box: Toolbox,
) -> ChatReply:
    """Return the model's reply, streamed to a channel if there is one; retry retryable failures.

    :param on_retry: called before each retry, and when the model itself begins anew
    :param deadline: no retry starts after it
    :param streamed: contains the text that the latest attempt has streamed
    :param box: the tools of the turn
    """
    tried = 0
    while True:
        streamed.clear()
        try:
            if channel is None:
                asking = model.reply(request)
            else:
                asking = _stream(model, request, channel, on_retry, streamed, box)
            return _check_reply(await asking)
        except Exception as error:
            pause = retry.pause(error, tried)
            if pause is None or (deadline is not None and time.monotonic() + pause > deadline):
                raise
            tried += 1
            event = ModelRetried(describe_error(error), pause, "".join(streamed))
        LOGGER.warning("The model failed (%s); retry %d in %.1f s", event.reason, tried, event.seconds)
        on_retry(event)
        await asyncio.sleep(event.seconds)


async def _stream(
    model: ChatModel,
    request: ChatRequest,
    channel: Channel,
    on_retry: Callable[[ModelRetried], None],
    streamed: list[str],
    box: Toolbox,
) -> ChatReply:
    assembly, marker = Assembly(getattr(model, "max_reply", MAX_REPLY)), ArgumentsMarker(box)
    async with closing(model.stream(replace(request, can_restart=True))) as chunks:
        async for chunk in chunks:
            assembly.add(chunk)
            if isinstance(chunk, TextDelta):
                streamed.append(chunk.text)
            if isinstance(chunk, StreamRestart):
                on_retry(ModelRetried(chunk.reason, 0.0, "".join(streamed)))
                streamed.clear()
                marker = ArgumentsMarker(box)
            elif not isinstance(chunk, StreamEnd):
                channel.send(marker.mark(chunk))
                await channel.wait_ready()
    return assembly.reply()


def _check_reply(reply: Any) -> ChatReply:
    """Return the reply with texts that any model accepts and with unique call ids; raise if it is not valid."""
    if not (isinstance(reply, ChatReply) and _has_valid_parts(reply.text, reply.calls)):
        raise TypeError(f"The model returned {reply!r:.80} instead of a ChatReply with a text and a tuple of ToolCalls")
    if not _is_usage(reply.usage):
        raise TypeError(
            f"The model returned {reply.usage!r:.80} as the usage of its reply; it must be a TokenUsage of ints >= 0, "
            "or left out"
        )
    text, calls = escape_surrogates(reply.text), tuple([_sendable_call(call) for call in reply.calls])
    if len(calls) > 1 and len({call.id for call in calls}) < len(calls):
        calls = _make_ids_unique(calls)
    if text is reply.text and calls == reply.calls:
        return reply
    return replace(reply, text=text, calls=calls)


def _has_valid_parts(text: Any, calls: Any) -> bool:
    """Whether the parts of a reply have the right types: a custom model may return anything."""
    if not isinstance(text, str) or not isinstance(calls, (tuple, list)):
        return False
    return all(isinstance(call, ToolCall) for call in calls)


def _is_usage(usage: Any) -> bool:
    if not isinstance(usage, TokenUsage):
        return False
    counts = (usage.input, usage.output, usage.cached, usage.reasoning, usage.cache_write)
    return set(map(type, counts)) == {int} and min(counts) >= 0


def _sendable_call(call: ToolCall) -> ToolCall:
    name, arguments = call.name, call.json
    if name.isascii() and arguments.isascii():
        return call
    sent = escape_surrogates(name), escape_surrogates(arguments)
    return call if sent == (name, arguments) else received_call(*sent, call.id)


def _make_ids_unique(calls: tuple[ToolCall, ...]) -> tuple[ToolCall, ...]:
    """Return the calls with new ids for duplicates, because providers refuse a conversation with duplicate ids."""
    seen: set[str] = set()
    unique: list[ToolCall] = []
    for call in calls:
        twice = call.id is not None and call.id in seen
        unique.append(received_call(call.name, call.json, new_id()) if twice else call)
        seen.update([call.id] if call.id is not None else [])
    return tuple(unique)
