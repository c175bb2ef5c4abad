"""The tool system for LLM agents: write a tool once; every model, agent framework and protocol can call it.

Names are loaded when they are first used, so that importing the package costs little.

>>> import toolsemble
>>> toolsemble.ToolResult.success("ready").text
'ready'
"""

from __future__ import annotations

from toolsemble.runtime.lazy import export_lazily

# Not from typing: importing that would take longer than all the rest of this module.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from toolsemble.agent import (
        Agent as Agent,
        AgentResult as AgentResult,
        ConversationMemory as ConversationMemory,
        LoopGuard as LoopGuard,
        Prices as Prices,
        Retry as Retry,
    )
    from toolsemble.call import ToolCall as ToolCall, ToolReply as ToolReply
    from toolsemble.catalog.catalog import Catalog as Catalog
    from toolsemble.context import InvocationParameters as InvocationParameters, ToolContext as ToolContext
    from toolsemble.definition.definition import ReturnBehavior as ReturnBehavior
    from toolsemble.errors import (
        AgentExecutionError as AgentExecutionError,
        ExitEarlyError as ExitEarlyError,
        MaxIterationsExceededError as MaxIterationsExceededError,
        ModelError as ModelError,
        ReviewRefusedError as ReviewRefusedError,
        ReviewTimeoutError as ReviewTimeoutError,
        RunBusyError as RunBusyError,
        RunCancelledError as RunCancelledError,
        RunChangedError as RunChangedError,
        RunError as RunError,
        RunInterruptedError as RunInterruptedError,
        RunParkedError as RunParkedError,
        ToolArgumentsError as ToolArgumentsError,
        ToolConfigurationError as ToolConfigurationError,
        ToolDefinitionError as ToolDefinitionError,
        ToolExecutionError as ToolExecutionError,
        ToolsembleError as ToolsembleError,
    )
    from toolsemble.execution.step_record import StepRecord as StepRecord
    from toolsemble.journal.journal import RunJournal as RunJournal
    from toolsemble.limits.cache import Cache as Cache
    from toolsemble.limits.effect_ledger import Effect as Effect, EffectLedger as EffectLedger
    from toolsemble.limits.idempotency import Idempotency as Idempotency
    from toolsemble.limits.rate import RateLimit as RateLimit
    from toolsemble.limits.retries import Retries as Retries
    from toolsemble.lock.lock import ToolLock as ToolLock
    from toolsemble.metrics import (
        InMemoryMetrics as InMemoryMetrics,
        SilentMetrics as SilentMetrics,
        ToolMetrics as ToolMetrics,
    )
    from toolsemble.models import ChatModel as ChatModel
    from toolsemble.note import Note as Note
    from toolsemble.param import MemoryId as MemoryId, Param as Param
    from toolsemble.pipeline.combinators import choose as choose, fan_out as fan_out, map_over as map_over
    from toolsemble.pipeline.pipeline import ToolPipeline as ToolPipeline
    from toolsemble.pipeline.step import Step as Step
    from toolsemble.pipeline.strategy import ErrorStrategy as ErrorStrategy
    from toolsemble.result import (
        AudioContent as AudioContent,
        Content as Content,
        FileContent as FileContent,
        ImageContent as ImageContent,
        TextContent as TextContent,
        ToolResult as ToolResult,
    )
    from toolsemble.review import (
        Continue as Continue,
        Edit as Edit,
        ExitEarly as ExitEarly,
        OnTimeout as OnTimeout,
        Reject as Reject,
        ReviewDecision as ReviewDecision,
        ReviewHandler as ReviewHandler,
        ReviewRequest as ReviewRequest,
        ReviewTiming as ReviewTiming,
    )
    from toolsemble.secret import Secret as Secret, SecretStr as SecretStr
    from toolsemble.specification import ToolParameters as ToolParameters, ToolSpecification as ToolSpecification
    from toolsemble.toolbox.pages import Pages as Pages
    from toolsemble.toolbox.toolbox import Toolbox as Toolbox
    from toolsemble.tools.base import Tool as Tool
    from toolsemble.tools.collection import tool_specifications_from as tool_specifications_from
    from toolsemble.tools.function import FunctionTool as FunctionTool, tool as tool
    from toolsemble.tools.protocols import AgentTool as AgentTool, ToolSpec as ToolSpec
    from toolsemble.tools.schema import SchemaTool as SchemaTool
    from toolsemble.tools.typed import (
        TypedTool as TypedTool,
        read_arguments as read_arguments,
        schema_for as schema_for,
    )

__version__ = "0.2.0"

__getattr__, __dir__, __all__ = export_lazily(
    globals(),
    {
        "agent": ("Agent", "AgentResult", "ConversationMemory", "LoopGuard", "Prices", "Retry"),
        "limits.cache": ("Cache",),
        "call": ("ToolCall", "ToolReply"),
        "catalog.catalog": ("Catalog",),
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
            "RunBusyError",
            "RunCancelledError",
            "RunChangedError",
            "RunError",
            "RunInterruptedError",
            "RunParkedError",
            "ToolArgumentsError",
            "ToolConfigurationError",
            "ToolDefinitionError",
            "ToolExecutionError",
            "ToolsembleError",
        ),
        "tools.function": ("FunctionTool", "tool"),
        "journal.journal": ("RunJournal",),
        "lock.lock": ("ToolLock",),
        "metrics": ("InMemoryMetrics", "SilentMetrics", "ToolMetrics"),
        "models": ("ChatModel",),
        "note": ("Note",),
        "toolbox.pages": ("Pages",),
        "param": ("MemoryId", "Param"),
        "pipeline.combinators": ("choose", "fan_out", "map_over"),
        "pipeline.pipeline": ("ToolPipeline",),
        "pipeline.step": ("Step",),
        "pipeline.strategy": ("ErrorStrategy",),
        "execution.step_record": ("StepRecord",),
        "limits.rate": ("RateLimit",),
        "limits.idempotency": ("Idempotency",),
        "result": ("AudioContent", "Content", "FileContent", "ImageContent", "TextContent", "ToolResult"),
        "limits.retries": ("Retries",),
        "review": (
            "Continue",
            "Edit",
            "ExitEarly",
            "OnTimeout",
            "Reject",
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
        "tools.typed": ("TypedTool", "read_arguments", "schema_for"),
    },
    everyday=(
        *("Agent", "AgentResult", "ConversationMemory", "Tool", "ToolContext", "Toolbox", "TypedTool", "tool"),
        *("ToolCall", "ToolReply", "ToolResult", "ImageContent", "MemoryId", "Param", "Secret"),
        *("ToolPipeline", "fan_out", "map_over"),
        *("Continue", "Edit", "Reject"),
        *("Cache", "EffectLedger", "RateLimit", "Retries"),
        *("ToolExecutionError", "ToolsembleError"),
    ),
)
