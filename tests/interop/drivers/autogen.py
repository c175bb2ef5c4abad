"""AutoGen: a workbench, called as the `AssistantAgent` calls it: all calls of a message at once, with one token."""

from __future__ import annotations

import asyncio
from base64 import b64decode

from autogen_core import CancellationToken
from autogen_core.tools import FunctionTool, StaticWorkbench

from interop.kit import Seen

MODULE = "autogen"
DISTRIBUTIONS = ("autogen-core",)
PAYLOAD = False  # a result is a list of texts and images
REENCODES = True  # an image is read and written again


async def run(exported, calls):
    token = CancellationToken()
    known = {each["name"] for each in await exported.list_tools()}
    assert {each.name for each in calls} <= known
    made = [exported.call_tool(each.name, each.arguments, token, each.id) for each in calls]
    try:
        return [read(each) for each in await asyncio.gather(*made)]
    except asyncio.CancelledError:
        token.cancel()
        raise


def read(result):
    text, *images = result.result
    media = [("image/png", b64decode(each.content.to_base64())) for each in images]
    return Seen(text.content, result.is_error, media)


def offer(function):
    return StaticWorkbench([FunctionTool(function, "Add two numbers.")])


def native(log):
    def add(a: int, b: int) -> int:
        log.append((a, b))
        return a + b

    def fail(city: str) -> str:
        log.append(city)
        raise ValueError("no such city")

    return [FunctionTool(add, "Add two numbers."), FunctionTool(fail, "Look for a city.")]
