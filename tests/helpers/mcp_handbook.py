"""A server with tools, resources, templates, prompts and completion, for gateways; run as a program."""

import sys
from typing import Literal

from toolsemble import tool
from toolsemble.mcp import elicit, serve


@tool(effects="read", metadata={"title": "Find an order"})
def find_order(number: int) -> dict[str, int]:
    """Find an order by its number."""
    return {"number": number}


@tool(effects="irreversible")
def delete_order(number: int) -> str:
    """Delete an order."""
    return f"order {number} is deleted"


def index() -> str:
    """The list of all pages."""
    return "intro, end"


def page(name: Literal["intro", "end"]) -> str:
    """A page of the handbook."""
    return f"# {name}"


def picture() -> bytes:
    """A picture."""
    return b"\x00\x01"


def reply(tone: Literal["kind", "keen", "cold"] = "kind") -> list:
    """Asks for a reply to a customer."""
    link = {"type": "resource_link", "uri": "handbook://index", "name": "index"}
    whole = {"type": "resource", "resource": {"uri": "handbook://index", "text": "intro, end"}}
    return [f"Write a {tone} reply.", {"role": "user", "content": link}, {"role": "user", "content": whole}]


async def ask() -> str:
    """Asks the user for a name."""
    form = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
    return f"Write to {(await elicit('Who?', form) or {}).get('name', 'no one')}."


def fail() -> str:
    """Fails."""
    raise RuntimeError("boom")


if __name__ == "__main__":
    plain = "plain" in sys.argv
    serve(
        [find_order, delete_order],
        resources={}
        if plain
        else {"handbook://index": index, "handbook://{name}/page": page, "pictures://one": picture},
        prompts=[] if plain else [reply, ask, fail],
    )
