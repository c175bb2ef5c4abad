"""The Model Context Protocol: tools of MCP servers in a toolbox. Needs the extra ``mcp``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolsemble.runtime.lazy import export_lazily

if TYPE_CHECKING:
    from toolsemble.mcp.client.client import MCPClient as MCPClient
    from toolsemble.mcp.client.token_file import TokenFile as TokenFile

# Lazy, so that a client does not load a server, and neither loads the SDK before it is used.
__getattr__, __dir__, __all__ = export_lazily(
    globals(), {"client.client": ("MCPClient",), "client.token_file": ("TokenFile",)}
)
