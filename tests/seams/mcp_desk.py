"""An MCP server with the tool that refunds: ``python -m seams.mcp_desk FOLDER``."""

import sys
from pathlib import Path

from seams.world import World
from toolsemble import Toolbox, tool
from toolsemble.mcp import serve

world = World(Path(sys.argv[1]))


@tool(effects="irreversible")
def refund(order: int, amount: int) -> str:
    """Refund an order."""
    world.log("effects", key="", order=order, amount=amount)
    world.mark("in_body")
    if world.case.moment == "body":
        world.wait("go")
    return f"refunded {amount} EUR for order {order}"


if __name__ == "__main__":
    serve(Toolbox([refund]))
