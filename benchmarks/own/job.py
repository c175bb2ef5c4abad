"""The work that is measured: the peers' five-parameter search, and tools that do as little as there is to do."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, cast

from peers.task import ARGUMENTS, new_search
from pydantic import TypeAdapter

from toolsemble import Tool, tool

FENCED = f"```json\n{ARGUMENTS.replace(chr(34), chr(39))}\n```"
"""What a careless model writes: a code block with single quotes."""
TEXT = '{"input": "what is the weather in Rome?"}'
"""A call of a tool whose input is one text."""
NAP = 0.01
"""Seconds that a waiting tool waits."""


class Echo(Tool):
    """The least that a string tool can do."""

    name = "echo"
    description = "Repeats its input"

    def run(self, input: str) -> str:
        """Return the input back."""
        return input


class Nap(Tool):
    """Waits as a tool that asks a service does."""

    name = "nap"
    description = "Sleeps for ten milliseconds"

    async def run(self, input: str) -> str:
        """Sleep, then give the input back."""
        await asyncio.sleep(NAP)
        return input


class Doze(Tool):
    """Waits as a tool that blocks its thread does."""

    name = "doze"
    description = "Blocks for ten milliseconds"

    def run(self, input: str) -> str:
        """Block, then give the input back."""
        time.sleep(NAP)
        return input


@tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def bare_search() -> Callable[[str], str]:
    """Return the floor of a call: pydantic-core reads and checks the JSON text in one go and calls the function."""
    return adapter(new_search()).validator.validate_json


def adapter(search: Callable[..., object]) -> TypeAdapter[Any]:
    """Return pydantic's own way to call a function with checked arguments."""
    return TypeAdapter(cast("Any", search))  # it also takes functions, which is undocumented
