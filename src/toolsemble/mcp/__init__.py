"""The Model Context Protocol: use MCP servers' tools in a toolbox, and serve any toolbox. Needs the extra ``mcp``."""

from __future__ import annotations

from toolsemble._runtime.lazy import export_lazily

# Not from typing: importing it would take longer than the rest of this module.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from toolsemble.mcp._changes import announce_changes as announce_changes
    from toolsemble.mcp._client.client import MCPClient as MCPClient
    from toolsemble.mcp._client.token_file import TokenFile as TokenFile
    from toolsemble.mcp._server.elicitation import elicit as elicit
    from toolsemble.mcp._server.exchange import (
        Caller as Caller,
        ask_client as ask_client,
        log_to_client as log_to_client,
    )
    from toolsemble.mcp._server.listeners import announce_resource as announce_resource
    from toolsemble.mcp._server.serve import asgi as asgi, serve as serve

# Loaded on first use: the SDK takes a second to import, and a client does not need the server.
__getattr__, __dir__, __all__ = export_lazily(
    globals(),
    {
        "_changes": ("announce_changes",),
        "_client.client": ("MCPClient",),
        "_client.token_file": ("TokenFile",),
        "_server.exchange": (
            "Caller",
            "ask_client",
            "log_to_client",
        ),
        "_server.elicitation": ("elicit",),
        "_server.serve": (
            "asgi",
            "serve",
        ),
        "_server.listeners": ("announce_resource",),
    },
)
