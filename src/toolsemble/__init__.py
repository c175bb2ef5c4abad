"""The tool system for LLM agents: write a tool once; every model, agent framework and protocol can call it.

Names are loaded when they are first used, so that importing the package costs little.

>>> import toolsemble
>>> toolsemble.ToolResult.success("ready").text
'ready'
"""

from __future__ import annotations

from toolsemble.runtime.lazy import loader

# Not from typing: importing that would take longer than all the rest of this module.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from toolsemble.agent import Agent, AgentResult, ConversationMemory, LoopGuard, Prices, Retry
    from toolsemble.call import ToolCall, ToolReply
    from toolsemble.context import InvocationParameters, ToolContext
    from toolsemble.definition.definition import ReturnBehavior
    from toolsemble.errors import (
        AgentExecutionError,
        ExitEarlyError,
        MaxIterationsExceededError,
        ModelError,
        ReviewRefusedError,
        ReviewTimeoutError,
        ToolArgumentsError,
        ToolConfigurationError,
        ToolDefinitionError,
        ToolExecutionError,
        ToolsembleError,
    )
    from toolsemble.limits.cache import Cache
    from toolsemble.limits.effect_ledger import Effect, EffectLedger
    from toolsemble.limits.idempotency import Idempotency
    from toolsemble.limits.rate import RateLimit
    from toolsemble.limits.retries import Retries
    from toolsemble.metrics import InMemoryMetrics, SilentMetrics, ToolMetrics
    from toolsemble.models import ChatModel
    from toolsemble.note import Note
    from toolsemble.param import MemoryId, Param
    from toolsemble.pipeline.combinators import choose, fan_out, map_over
    from toolsemble.pipeline.pipeline import ToolPipeline
    from toolsemble.pipeline.step import Step
    from toolsemble.pipeline.strategy import ErrorStrategy
    from toolsemble.pipeline.undo import StepRecord
    from toolsemble.result import (
        AudioContent,
        Content,
        FileContent,
        ImageContent,
        TextContent,
        ToolResult,
    )
    from toolsemble.review import (
        Continue,
        Edit,
        ExitEarly,
        OnTimeout,
        ReviewDecision,
        ReviewHandler,
        ReviewRequest,
        ReviewTiming,
    )
    from toolsemble.secret import Secret, SecretStr
    from toolsemble.specification import ToolParameters, ToolSpecification
    from toolsemble.toolbox.pages import Pages
    from toolsemble.toolbox.toolbox import Toolbox
    from toolsemble.tools.base import Tool
    from toolsemble.tools.collection import tool_specifications_from
    from toolsemble.tools.function import FunctionTool, tool
    from toolsemble.tools.protocols import AgentTool, ToolSpec
    from toolsemble.tools.schema import SchemaTool
    from toolsemble.tools.typed import TypedTool

__version__ = "0.1.0"

_HOMES = {
    "agent": ("Agent", "AgentResult", "ConversationMemory", "LoopGuard", "Prices", "Retry"),
    "limits.cache": ("Cache",),
    "call": ("ToolCall", "ToolReply"),
    "tools.collection": ("tool_specifications_from",),
    "context": ("InvocationParameters", "ToolContext"),
    "definition.definition": ("ReturnBehavior",),
    "limits.effect_ledger": ("Effect", "EffectLedger"),
    "errors": (
        "AgentExecutionError",
        "ExitEarlyError",
        "MaxIterationsExceededError",
        "ModelError",
        "ReviewRefusedError",
        "ReviewTimeoutError",
        "ToolArgumentsError",
        "ToolConfigurationError",
        "ToolDefinitionError",
        "ToolExecutionError",
        "ToolsembleError",
    ),
    "tools.function": ("FunctionTool", "tool"),
    "metrics": ("InMemoryMetrics", "SilentMetrics", "ToolMetrics"),
    "models": ("ChatModel",),
    "note": ("Note",),
    "toolbox.pages": ("Pages",),
    "param": ("MemoryId", "Param"),
    "pipeline.combinators": ("choose", "fan_out", "map_over"),
    "pipeline.pipeline": ("ToolPipeline",),
    "pipeline.step": ("Step",),
    "pipeline.strategy": ("ErrorStrategy",),
    "pipeline.undo": ("StepRecord",),
    "limits.rate": ("RateLimit",),
    "limits.idempotency": ("Idempotency",),
    "result": ("AudioContent", "Content", "FileContent", "ImageContent", "TextContent", "ToolResult"),
    "limits.retries": ("Retries",),
    "review": (
        "Continue",
        "Edit",
        "ExitEarly",
        "OnTimeout",
        "ReviewDecision",
        "ReviewHandler",
        "ReviewRequest",
        "ReviewTiming",
    ),
    "tools.protocols": ("AgentTool", "ToolSpec"),
    "tools.schema": ("SchemaTool",),
    "secret": ("Secret", "SecretStr"),
    "specification": ("ToolParameters", "ToolSpecification"),
    "toolbox.toolbox": ("Toolbox",),
    "tools.base": ("Tool",),
    "tools.typed": ("TypedTool",),
}

__all__ = [
    "Agent",
    "AgentExecutionError",
    "AgentResult",
    "AgentTool",
    "AudioContent",
    "Cache",
    "ChatModel",
    "Content",
    "Continue",
    "ConversationMemory",
    "Edit",
    "Effect",
    "EffectLedger",
    "ErrorStrategy",
    "ExitEarly",
    "ExitEarlyError",
    "FileContent",
    "FunctionTool",
    "Idempotency",
    "ImageContent",
    "InMemoryMetrics",
    "InvocationParameters",
    "LoopGuard",
    "MaxIterationsExceededError",
    "MemoryId",
    "ModelError",
    "Note",
    "OnTimeout",
    "Pages",
    "Param",
    "Prices",
    "RateLimit",
    "Retries",
    "Retry",
    "ReturnBehavior",
    "ReviewDecision",
    "ReviewHandler",
    "ReviewRefusedError",
    "ReviewRequest",
    "ReviewTimeoutError",
    "ReviewTiming",
    "SchemaTool",
    "Secret",
    "SecretStr",
    "SilentMetrics",
    "Step",
    "StepRecord",
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
    "ToolPipeline",
    "ToolReply",
    "ToolResult",
    "ToolSpec",
    "ToolSpecification",
    "Toolbox",
    "ToolsembleError",
    "TypedTool",
    "choose",
    "fan_out",
    "map_over",
    "tool",
    "tool_specifications_from",
]


__getattr__ = loader(globals(), _HOMES)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
