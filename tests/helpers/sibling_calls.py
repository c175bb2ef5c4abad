"""Turns in which each call has siblings of every kind, and the replies to the siblings."""

import asyncio

from helpers.isolated_tools import where
from toolsemble import ToolCall, tool


@tool
def echo(text: str) -> str:
    return text


@tool(inline=False, max_concurrency=1)
def shout(text: str) -> str:
    return text.upper()


@tool(resources=lambda arguments: "faults:file")
async def later(text: str) -> str:
    await asyncio.sleep(0)
    return f"later {text}"


@tool
def broken() -> str:
    raise ValueError("broken")


SIBLINGS = (echo, shout, later, broken, where)


def add_siblings(*calls, more=()):
    """Return the calls of a turn, each with siblings of every kind before and behind it, and more calls at the end."""
    turn = []
    for made in (*calls, None):
        turn += [
            ToolCall("echo", {"text": "a"}),
            ToolCall("broken"),
            ToolCall("shout", {"text": "b"}),
            ToolCall("where", {"text": "c"}),
            ToolCall("later", {"text": "d"}),
            ToolCall("missing"),
            *([] if made is None else [made]),
        ]
    return [ToolCall(made.name, made.arguments, id=f"c{index}") for index, made in enumerate([*turn, *more])]


def texts_of_calls(replies, calls):
    """Return the replies to the calls in question; the siblings' replies are unchanged."""
    assert [reply.call for reply in replies] == calls
    odd = []
    for reply in replies:
        match reply.call.name:
            case "echo":
                assert reply.text == "a"
            case "broken":
                assert reply.text == "Error: broken"
            case "shout":
                assert reply.text == "B"
            case "where":
                assert reply.result.structured_output["text"] == "c"
            case "later":
                assert reply.text == "later d"
            case "missing":
                assert reply.text.startswith("Error: Unknown tool 'missing'")
            case _:
                odd.append(reply.text)
    return odd


def run_sync(box, calls):
    return box.execute_all(calls)


def run_async(box, calls):
    return asyncio.run(box.aexecute_all(calls))
