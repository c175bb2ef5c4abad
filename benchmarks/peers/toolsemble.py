"""The library itself."""

from peers.task import ARGUMENTS, Call, new_search
from toolsemble import Toolbox, ToolCall, tool

NAME = "toolsemble"
DISTRIBUTION = "toolsemble"
IMPORT = "from toolsemble import Toolbox, ToolCall, tool"
VALIDATES = True


def define() -> object:
    """Define the tool, and give its specification."""
    return Toolbox([tool(new_search())]).specifications[0].parameters


def make_call(arguments: str = ARGUMENTS) -> Call:
    """Call through a toolbox."""
    box = Toolbox([tool(new_search())])
    return lambda: box.execute(ToolCall("search", arguments, "call_1")).text


def many(count: int) -> tuple[object, list[object]]:
    """Put the tools into one toolbox."""
    box = Toolbox([tool(new_search(f"search_{number}")) for number in range(count)])
    return box, [specification.parameters for specification in box.specifications]
