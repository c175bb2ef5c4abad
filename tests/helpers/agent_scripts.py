"""Tools and scripts that the tests of agents share."""

from __future__ import annotations

import asyncio

from toolsemble import ReturnBehavior, ToolCall, tool
from toolsemble.models import AssistantMessage, ToolMessage, Transcript


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool
async def later(text: str) -> str:
    """Repeat a text, later."""
    await asyncio.sleep(0)
    return text


@tool
def broken(why: str = "broken") -> str:
    """Fail."""
    raise ValueError(why)


@tool(return_behavior=ReturnBehavior.IMMEDIATE)
def show(text: str) -> str:
    """Show a text to the person."""
    return f"shown: {text}"


@tool(return_behavior=ReturnBehavior.IMMEDIATE_IF_LAST)
def finish_with(text: str) -> dict[str, str]:
    """Finish with a text."""
    return {"text": text}


@tool(return_behavior=ReturnBehavior.IMMEDIATE)
def show_broken() -> str:
    """Fail to show."""
    raise ValueError("no screen")


@tool(requires_approval=lambda *_: True)  # a condition: runs without a reviewer may have the tool
def delete(path: str) -> str:
    """Delete a file."""
    return f"deleted {path}"


TOOLS = [add, later, broken, show, finish_with, show_broken, delete]


def sum_of(a, b, id=None):
    return ToolCall("add", {"a": a, "b": b}, id=id)


def told(messages):
    """Return the texts of the tool messages."""
    return [message.text for message in messages if isinstance(message, ToolMessage)]


def assert_valid(messages):
    """Check that every call has exactly one reply, in request order."""
    Transcript(list(messages))
    calls = [call for message in messages if isinstance(message, AssistantMessage) for call in message.calls]
    assert [message.call for message in messages if isinstance(message, ToolMessage)] == calls
