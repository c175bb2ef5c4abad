"""Asking a model: as a whole or in pieces, again when it is worth it."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, TypeVar

from toolsemble.agent.channel import Channel
from toolsemble.agent.event import ModelRetried
from toolsemble.agent.retry import Retry
from toolsemble.call import ToolCall, new_id
from toolsemble.models.chat import Assembly, ChatModel, ChatReply, ChatRequest, StreamEnd, TokenUsage, closing
from toolsemble.models.reply_limit import MAX_REPLY
from toolsemble.shape import describe_error, escape_surrogates

LOGGER = logging.getLogger("toolsemble.agent")
LOGGER.addHandler(logging.NullHandler())  # a program that has not set up logging gets nothing printed

T = TypeVar("T")


class OutOfTimeError(Exception):
    """The time of the run was up before the model had answered.

    >>> raise OutOfTimeError
    Traceback (most recent call last):
    ...
    toolsemble.agent.ask.OutOfTimeError
    """


async def in_time(work: Awaitable[T], deadline: float | None) -> T:
    """Return what a work gives, or raise an :class:`OutOfTimeError` when it is not there in time.

    :param deadline: when nobody waits for it any more, on the clock of ``time.monotonic``; None for never

    >>> async def answer():
    ...     return 42
    >>> asyncio.run(in_time(answer(), None))
    42
    """
    if deadline is None:
        return await work
    try:
        async with asyncio.timeout(deadline - time.monotonic()) as limit:
            return await work
    except Exception as error:
        # A model may make an exception of its own of being stopped; one that it had before is its own.
        if limit.expired():
            raise OutOfTimeError from error
        raise


async def asked(
    model: ChatModel,
    request: ChatRequest,
    retry: Retry,
    channel: Channel | None,
    retried: Callable[[ModelRetried], None],
    deadline: float | None,
) -> ChatReply:
    """Return the model's reply, in pieces to a channel if there is one; ask again when that is worth it.

    :param retried: is told before each further time that the model is asked
    :param deadline: after which the model is not asked again
    """
    tried = 0
    while True:
        try:
            return _checked(await (model.reply(request) if channel is None else _streamed(model, request, channel)))
        except Exception as error:
            pause = retry.pause(error, tried)
            if pause is None or (deadline is not None and time.monotonic() + pause > deadline):
                raise
            tried += 1
            event = ModelRetried(describe_error(error), pause)
        LOGGER.warning("The model failed and is asked again in %.1f s: %s", event.seconds, event.reason)
        retried(event)
        await asyncio.sleep(event.seconds)


async def _streamed(model: ChatModel, request: ChatRequest, channel: Channel) -> ChatReply:
    assembly = Assembly(getattr(model, "max_reply", MAX_REPLY))
    async with closing(model.stream(request)) as chunks:
        async for chunk in chunks:
            assembly.add(chunk)
            if not isinstance(chunk, StreamEnd):
                channel.tell(chunk)
                await channel.told()
    return assembly.reply()


def _checked(reply: Any) -> ChatReply:
    """Give a reply that can be sent back to any model, with calls that can be told apart."""
    if not (isinstance(reply, ChatReply) and _is_whole(reply.text, reply.calls)):
        raise TypeError(f"The model gave {reply!r:.80} in place of a ChatReply with a text and a tuple of ToolCalls")
    if not _is_usage(reply.usage):
        raise TypeError(
            f"The model gave {reply.usage!r:.80} as the usage of its reply, in place of a TokenUsage of whole numbers "
            "from 0 on; leave it out when nobody counts"
        )
    text, calls = escape_surrogates(reply.text), tuple([_sendable_call(call) for call in reply.calls])
    if len(calls) > 1 and len({call.id for call in calls}) < len(calls):
        calls = _distinct(calls)
    if text is reply.text and calls == reply.calls:
        return reply
    return replace(reply, text=text, calls=calls)


def _is_whole(text: Any, calls: Any) -> bool:
    """Whether the parts of a reply are what they must be: anybody can write a model."""
    if not isinstance(text, str) or not isinstance(calls, (tuple, list)):
        return False
    return all(isinstance(call, ToolCall) for call in calls)


def _is_usage(usage: Any) -> bool:
    if not isinstance(usage, TokenUsage):
        return False
    counts = (usage.input, usage.output, usage.cached)
    return set(map(type, counts)) == {int} and min(counts) >= 0


def _sendable_call(call: ToolCall) -> ToolCall:
    name, arguments = call.name, call.json
    if name.isascii() and arguments.isascii():
        return call
    sent = escape_surrogates(name), escape_surrogates(arguments)
    return call if sent == (name, arguments) else ToolCall(*sent, call.id)


def _distinct(calls: tuple[ToolCall, ...]) -> tuple[ToolCall, ...]:
    """Give the calls with new ids where one id was given twice: a provider would refuse the conversation for ever."""
    seen: set[str] = set()
    told: list[ToolCall] = []
    for call in calls:
        twice = call.id is not None and call.id in seen
        told.append(ToolCall(call.name, call.json, new_id()) if twice else call)
        seen.update([call.id] if call.id is not None else [])
    return tuple(told)
