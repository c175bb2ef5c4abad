"""The Model Context Protocol: any toolbox as a server."""

from __future__ import annotations

from toolsemble.runtime.lazy import export_lazily

# Not from typing: importing that would take longer than all the rest of this module.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from toolsemble.mcp.server.caller import Caller as Caller
    from toolsemble.mcp.server.elicitation import elicit as elicit
    from toolsemble.mcp.server.exchange import ask_client as ask_client, log_to_client as log_to_client
    from toolsemble.mcp.server.serve import asgi as asgi, serve as serve
    from toolsemble.mcp.server.subscriptions import announce_resource as announce_resource

# Loaded on first use: the SDK takes a second to import.
__getattr__, __dir__, __all__ = export_lazily(
    globals(),
    {
        "server.caller": ("Caller",),
        "server.elicitation": ("elicit",),
        "server.exchange": ("ask_client", "log_to_client"),
        "server.serve": ("asgi", "serve"),
        "server.subscriptions": ("announce_resource",),
    },
)
