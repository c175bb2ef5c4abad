"""The client of MCP servers: connections, remote tools, and what a server may ask."""
