"""The tool system for LLM agents: write a tool once; every model, agent framework and protocol can call it.

Names are loaded when they are first used, so that importing the package costs little.

>>> import toolsemble
>>> toolsemble.ToolResult.success("ready").text
'ready'
"""

from __future__ import annotations

# Not from typing: importing that would take longer than all the rest of this module.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from toolsemble.call import ToolCall, ToolReply
    from toolsemble.collection import tool_specifications_from
    from toolsemble.context import InvocationParameters, ToolContext
    from toolsemble.definition import ReturnBehavior
    from toolsemble.errors import (
        AgentExecutionError,
        ExitEarlyError,
        MaxIterationsExceededError,
        ReviewTimeoutError,
        ToolArgumentsError,
        ToolConfigurationError,
        ToolDefinitionError,
        ToolExecutionError,
        ToolsembleError,
    )
    from toolsemble.function import FunctionTool, tool
    from toolsemble.metrics import InMemoryMetrics, SilentMetrics, ToolMetrics
    from toolsemble.note import Note
    from toolsemble.param import MemoryId, Param
    from toolsemble.result import (
        AudioContent,
        Content,
        FileContent,
        ImageContent,
        TextContent,
        ToolResult,
    )
    from toolsemble.review import Continue, Edit, ExitEarly, ReviewDecision, ReviewHandler, ReviewRequest
    from toolsemble.schema_tool import SchemaTool, ToolSpec
    from toolsemble.specification import ToolParameters, ToolSpecification
    from toolsemble.toolbox import Toolbox
    from toolsemble.tools import AgentTool, Tool, TypedTool

__version__ = "0.1.0"

_HOMES = {
    "call": ("ToolCall", "ToolReply"),
    "collection": ("tool_specifications_from",),
    "context": ("InvocationParameters", "ToolContext"),
    "definition": ("ReturnBehavior",),
    "errors": (
        "AgentExecutionError",
        "ExitEarlyError",
        "MaxIterationsExceededError",
        "ReviewTimeoutError",
        "ToolArgumentsError",
        "ToolConfigurationError",
        "ToolDefinitionError",
        "ToolExecutionError",
        "ToolsembleError",
    ),
    "function": ("FunctionTool", "tool"),
    "metrics": ("InMemoryMetrics", "SilentMetrics", "ToolMetrics"),
    "note": ("Note",),
    "param": ("MemoryId", "Param"),
    "result": ("AudioContent", "Content", "FileContent", "ImageContent", "TextContent", "ToolResult"),
    "review": ("Continue", "Edit", "ExitEarly", "ReviewDecision", "ReviewHandler", "ReviewRequest"),
    "schema_tool": ("SchemaTool", "ToolSpec"),
    "specification": ("ToolParameters", "ToolSpecification"),
    "tools": ("AgentTool", "Tool", "TypedTool"),
    "toolbox": ("Toolbox",),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "AgentExecutionError",
    "AgentTool",
    "AudioContent",
    "Content",
    "Continue",
    "Edit",
    "ExitEarly",
    "ExitEarlyError",
    "FileContent",
    "FunctionTool",
    "ImageContent",
    "InMemoryMetrics",
    "InvocationParameters",
    "MaxIterationsExceededError",
    "MemoryId",
    "Note",
    "Param",
    "ReturnBehavior",
    "ReviewDecision",
    "ReviewHandler",
    "ReviewRequest",
    "ReviewTimeoutError",
    "SchemaTool",
    "SilentMetrics",
    "TextContent",
    "Tool",
    "ToolArgumentsError",
    "ToolCall",
    "ToolConfigurationError",
    "ToolContext",
    "ToolDefinitionError",
    "ToolExecutionError",
    "ToolMetrics",
    "ToolParameters",
    "ToolReply",
    "ToolResult",
    "ToolSpec",
    "ToolSpecification",
    "Toolbox",
    "ToolsembleError",
    "TypedTool",
    "tool",
    "tool_specifications_from",
]


def __getattr__(name: str) -> Any:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'toolsemble' has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415 - nothing is imported before a name is used

    value = getattr(import_module(f"toolsemble.{home}"), name)
    globals()[name] = value  # the next use finds it without coming here
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
