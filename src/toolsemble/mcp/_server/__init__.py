"""A toolbox as an MCP server."""
