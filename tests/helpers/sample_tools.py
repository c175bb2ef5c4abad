"""Tools that the tests share."""

from __future__ import annotations

import asyncio
import threading

from toolsemble import Tool, ToolCall, ToolResult
from toolsemble.review._asking.ask import batch_requests
from toolsemble.testing import FakeReviewer

Reviewer = FakeReviewer  # gives one answer after the other, and keeps what it was asked


class Echo(Tool):
    name = "echo"
    description = "Repeats its input"

    def run(self, input):
        return input


class AsyncEcho(Tool):
    name = "async_echo"
    description = "Repeats its input, later"

    async def run(self, input):
        await asyncio.sleep(0)
        return input


class Plain:
    """Extends nothing: the smallest contract."""

    name = "plain"
    description = "Repeats its input, plainly"

    def execute(self, input):
        return ToolResult.success(input)


class Function(Tool):
    """A tool around any function, to keep tables short."""

    description = "Does what the test says"

    def __init__(self, function, name="function", **attributes):
        self.name = name
        self.function = function
        for attribute, value in attributes.items():
            setattr(self, attribute, value)

    def run(self, input):
        return self.function(input)


class AsyncFunction(Function):
    async def run(self, input):
        return await self.function(input)


class Raising(Tool):
    name = "raising"
    description = "Raises what it was made with"

    def __init__(self, error, name="raising"):
        self.name = name
        self.error = error

    def run(self, input):
        raise self.error


class AsyncRaising(Raising):
    async def run(self, input):
        raise self.error


class Meeting:
    """A place where a number of calls must be at the same time, or the test fails."""

    def __init__(self, parties):
        self.barrier = threading.Barrier(parties, timeout=30)

    def __call__(self, _):
        self.barrier.wait()
        return threading.current_thread().name


async def review_turn(handler, requests):
    """Return a handler's answers by the requests' ids, asked as the calls of one turn ask."""
    with batch_requests():
        answers = await asyncio.gather(*(handler.review(request) for request in requests))
    return {request.id: answer for request, answer in zip(requests, answers, strict=True)}


def call(name="echo", text="hi", id=None):
    return ToolCall(name, {"input": text}, id=id)
