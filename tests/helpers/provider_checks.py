"""What the tests of several providers have in common: requests, ways to make them, and checks of connections."""

from __future__ import annotations

import asyncio
import gc
import json
import threading
from contextlib import aclosing
from dataclasses import dataclass

import pytest

from toolsemble import ImageContent, ModelError, ToolReply, ToolResult, ToolSpecification, tool
from toolsemble._runtime.event_loops import finish
from toolsemble.models import Assembly, ChatRequest, TextDelta, ToolMessage, UserMessage

WAIT = 60
HELLO = ChatRequest([UserMessage("hello")])
IMAGE = ImageContent(b"\x00\xff", "image/png")
WEATHER = ToolSpecification(
    "weather",
    "The weather in a city",
    {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
)


@tool
def weather(city: str) -> str:
    """The weather in a city."""
    return f"21 degrees in {city}"


@dataclass
class Report:
    city: str
    degrees: int


def replied(call, result="21 degrees", **given):
    """Return the message with which a call is answered."""
    result = ToolResult.success(result, **given) if isinstance(result, str) else result
    return ToolMessage(ToolReply(call, result))


async def streamed(model, request=HELLO):
    """Return the pieces of a model's reply."""
    async with aclosing(model.stream(request)) as chunks:
        return [chunk async for chunk in chunks]


async def asked(model, *, streaming, request=HELLO):
    """Return the model's reply, in one of the two ways to ask for it."""
    if not streaming:
        return await model.reply(request)
    assembly = Assembly()
    for piece in await streamed(model, request):
        assembly.add(piece)
    return assembly.reply()


async def failed(model, *, streaming=False):
    """Return the error with which a model answers."""
    with pytest.raises(ModelError) as caught:
        await (streamed(model) if streaming else model.reply(HELLO))
    return caught.value


def result_of(agent, prompt, way):
    """Return the result of an agent's run, in one of three ways."""

    async def last():
        return [event async for event in agent.stream(prompt)][-1].result

    if way == "run_sync":
        return agent.run_sync(prompt)
    return asyncio.run(agent.run(prompt) if way == "run" else last())


class Waiting:
    """An answer that never ends, and records when its client has disconnected."""

    def __init__(self, start=None):
        """Take down how the answer begins: a function of the handler; nothing when it never does."""
        self._start = start
        self.began, self.gone = threading.Event(), threading.Event()

    def __call__(self, handler):
        if self._start is not None:
            self._start(handler)
        self.began.set()
        handler.connection.settimeout(WAIT)
        if handler.connection.recv(1) == b"":
            self.gone.set()


async def assert_hangs_up_when_cancelled(model, waiting, *, streaming):
    """Check that a request's connection is closed when the task that waits for it is cancelled."""
    task = asyncio.create_task(asked(model, streaming=streaming))
    assert await asyncio.to_thread(waiting.began.wait, WAIT)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, WAIT)
    assert await asyncio.to_thread(waiting.gone.wait, WAIT)


async def assert_hangs_up_when_closed(model, waiting, first):
    """Check that the connection of a stream is closed with it."""
    chunks = model.stream(HELLO)
    assert await anext(chunks) == TextDelta(first)
    await asyncio.wait_for(chunks.aclose(), WAIT)
    assert await asyncio.to_thread(waiting.gone.wait, WAIT)


def assert_hangs_up_with_its_loop(model, waiting, first):
    """Check that an unclosed stream is closed with the event loop."""

    async def look():
        stream = model.stream(HELLO)
        return await anext(stream), stream

    begun, stream = asyncio.run(look())
    assert begun == TextDelta(first)
    assert waiting.gone.wait(WAIT)
    del stream
    gc.collect()


def assert_serves_one_loop_after_the_other(model, server):
    """Check that each event loop has its own connection."""
    for _ in range(3):
        assert finish(model.reply(HELLO)).text == "hi"
    assert len(set(server.ports)) == 3


async def assert_serves_many_at_once(model, server, answer):
    """Check that requests do not wait for each other."""
    together = threading.Barrier(5)

    def meet(handler):
        together.wait(WAIT)
        handler.send(200, {"Content-Type": "application/json"}, json.dumps(answer))

    server.answers = [meet]
    replies = await asyncio.gather(*(model.reply(HELLO) for _ in range(5)))
    assert [reply.text for reply in replies] == ["hi"] * 5


def cut(handler):
    """Answer with the beginning of a body, and hang up."""
    handler.send_response(200)
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    handler.wfile.write(b'{"beginning"')
    handler.close_connection = True


async def assert_connections_are_worth_another_try(server, make, provider):
    """Check what is said of connections that are cut, too slow, or refused; ``make`` gives a model with settings."""
    server.answers = [cut]
    cut_error = await failed(make())
    server.answers = [Waiting()]
    slow_error = await failed(make(timeout=0.05))
    gone_error = await failed(make(base_url="http://127.0.0.1:9"))
    for error in (cut_error, slow_error, gone_error):
        assert str(error).startswith(f"The connection to {provider} failed: ")
        assert error.retryable
    assert "Timeout" in str(slow_error)


async def assert_an_agent_runs_in_each_of_its_ways(agent, server, turns, events):
    """Check two turns with the tool for the weather, asked for whole and in pieces."""
    results = []
    for way in ("run", "run_sync", "stream"):
        server.answers = [events(turn) if way == "stream" else turn for turn in turns]
        results.append(await asyncio.to_thread(result_of, agent, "Rome?", way))
    for result in results:
        assert (result.text, result.tool_calls[0].reply.text) == ("It is 21 degrees.", "21 degrees in Rome")
        assert (result.usage.input_tokens, result.usage.output_tokens) == (18, 6)
