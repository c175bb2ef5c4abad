"""The MCP client: connections, remote tools, and server requests."""
