"""The SDK's server for a toolbox: its handlers, and what lives as long as it does."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from mcp.server.lowlevel import Server
from mcp_types import SetLevelRequestParams

from toolsemble.context import Exposure
from toolsemble.mcp.server.calls import ToolCalls
from toolsemble.mcp.server.exchange import set_log_level
from toolsemble.mcp.server.parking import Parking
from toolsemble.mcp.server.source import Source, ToolSource


@dataclass(frozen=True, slots=True)
class Offer:
    """The tools to serve, and how the server introduces itself."""

    source: ToolSource
    """A toolbox, an agent, tools, or a function of the caller."""
    name: str | None = None
    """The name of the server, and of the tool that an agent becomes; None: a default for each."""
    instructions: str = ""
    """How to use the server, for the client's model."""


def build_server(offer: Offer, expose_errors: Exposure) -> Server[Any]:
    """Return the SDK's server for an offer; raise ToolDefinitionError if it cannot be served."""
    source = Source(offer.source, offer.name, offer.instructions)
    parking = Parking()
    tools = ToolCalls(source, parking, expose_errors)

    @asynccontextmanager
    async def lifespan(_: Server[Any]) -> AsyncIterator[dict[str, Any]]:
        try:
            yield {}
        finally:
            await parking.close()

    server: Server[Any] = Server(
        offer.name or "toolsemble",
        version=version("toolsemble"),
        instructions=offer.instructions or None,
        lifespan=lifespan,
        on_list_tools=tools.list_tools,
        on_call_tool=tools.call_tool,
        # Without it, the SDK lists all tools before each call.
        get_tool_input_schema=tools.find_schema if source.fixed is not None else None,
    )
    # Not as an argument: the SDK warns that it is deprecated in the newest version of the protocol.
    server.add_request_handler("logging/setLevel", SetLevelRequestParams, set_log_level)
    return server
