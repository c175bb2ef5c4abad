"""A server of three tools for clients that others have written: one with a result type, progress, and approval."""

from toolsemble import Toolbox, ToolContext, tool
from toolsemble.mcp import serve


@tool
def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    return a + b


@tool
def count(to: int, context: ToolContext) -> str:
    """Count up to a number."""
    for number in range(to):
        context.progress((number + 1) / to)
    return "done"


@tool(requires_approval=True)
def delete(number: int) -> str:
    """Delete a record."""
    return f"deleted {number}"


BOX = Toolbox([add, count, delete])

if __name__ == "__main__":
    serve(BOX)
