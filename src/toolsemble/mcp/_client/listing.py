"""The list of a server's tools, bounded in pages and number; on request with its prompts and resources."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

from mcp.shared.exceptions import MCPError
from pydantic import ValidationError

from toolsemble._vocabulary.errors import ToolConfigurationError
from toolsemble.mcp._client.definitions import LIST_RESOURCES, PROMPT, READ_RESOURCE, Listing, RemoteDefinition
from toolsemble.mcp._client.options import Options
from toolsemble.mcp._client.process_group import LOGGER
from toolsemble.mcp._client.screen import Screen

_MAX_PAGES = 100

_READS = {"readOnlyHint": True}
_CURSOR = {"type": "string", "description": "Where to continue, as an earlier list says; leave it out to begin"}
_URI = {"type": "string", "description": "The URI of a resource"}


async def list_tools(client: Any, screen: Screen, options: Options) -> Listing:
    """Return the tools that are wanted; raise ToolConfigurationError if the server has too many tools or pages."""
    capabilities = client.server_capabilities
    found = {} if capabilities.tools is None else await _list_own_tools(client, screen, options)
    if options.prompt_tools and capabilities.prompts is not None:
        for each in await _list_prompts(client, options):
            found.setdefault(each.name, each)
    if options.resource_tools and capabilities.resources is not None:
        for each in _resource_tools():
            found.setdefault(each.name, each)
    return Listing(tuple(each for each in found.values() if options.takes(each.name)), tuple(found.values()))


async def _list_own_tools(client: Any, screen: Screen, options: Options) -> dict[str, RemoteDefinition]:
    found: dict[str, RemoteDefinition] = {}
    try:
        async for page in list_pages(client.list_tools, "tools", options):
            for tool in page:
                found.setdefault(tool.name, screen.listed[tool.name])
    finally:
        screen.listed.clear()  # a server may list other tools each time
        _forget_others(client.session, found)
    return found


def _forget_others(session: Any, found: dict[str, RemoteDefinition]) -> None:
    """Let the SDK forget the tools that are not listed any more; it does only after lists of one page."""
    for kept in ("_tool_output_schemas", "_x_mcp_header_maps"):
        known = getattr(session, kept, {})
        for name in known.keys() - found.keys():
            del known[name]


async def list_pages(fetch: Callable[..., Any], key: str, options: Options) -> AsyncIterator[list[Any]]:
    """Yield the items of each page of a list; raise if there are too many."""
    count, cursor = 0, None
    for _ in range(_MAX_PAGES):
        page = await fetch(cursor=cursor, cache_mode="bypass")
        items = getattr(page, key)
        count += len(items)
        if count > options.max_tools:
            raise ToolConfigurationError(
                f"it has more than {options.max_tools} {key} (max_tools); let it offer fewer, or allow more"
            )
        yield items
        cursor = page.next_cursor
        if cursor is None:
            return
    raise ToolConfigurationError(f"its list of {key} has more than {_MAX_PAGES} pages")


async def _list_prompts(client: Any, options: Options) -> list[RemoteDefinition]:
    """Return a tool for each prompt; none, with a warning, if the list is broken."""
    try:
        return [
            _define_prompt(each) async for page in list_pages(client.list_prompts, "prompts", options) for each in page
        ]
    except (MCPError, ValidationError) as problem:
        LOGGER.warning("The prompts of %s cannot be listed: %.200s", options.name, problem)
        return []


def _define_prompt(prompt: Any) -> RemoteDefinition:
    arguments = prompt.arguments or []
    schema = {
        "type": "object",
        "properties": {each.name: {"type": "string", "description": each.description or ""} for each in arguments},
        "required": [each.name for each in arguments if each.required],
        "additionalProperties": False,
    }
    described = prompt.description or f"Returns the prompt {prompt.name}"
    return RemoteDefinition(f"prompt_{prompt.name}", prompt.title, described, schema, None, _READS, PROMPT, prompt.name)


def _resource_tools() -> Iterator[RemoteDefinition]:
    listed = {"type": "object", "properties": {"cursor": _CURSOR}, "additionalProperties": False}
    what = "Lists the resources of the server, which read_resource reads"
    yield RemoteDefinition(LIST_RESOURCES, None, what, listed, None, _READS, LIST_RESOURCES)
    read = {"type": "object", "properties": {"uri": _URI}, "required": ["uri"], "additionalProperties": False}
    yield RemoteDefinition(READ_RESOURCE, None, "Reads a resource of the server", read, None, _READS, READ_RESOURCE)
