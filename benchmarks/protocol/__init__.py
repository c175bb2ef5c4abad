"""The speed of MCP servers and clients, beside the official SDK and FastMCP."""
