"""The tool system for LLM agents: write a tool once; every model, agent framework and protocol can call it.

Names are loaded when they are first used, so that importing the package costs little.

>>> import toolsemble
>>> toolsemble.ToolResult.success("ready").text
'ready'
"""

from __future__ import annotations

from toolsemble._runtime.lazy import export_lazily

# Not from typing: importing it would take longer than the rest of this module.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from toolsemble._engine.context import InvocationParameters as InvocationParameters, ToolContext as ToolContext
    from toolsemble._engine.definition import ReturnBehavior as ReturnBehavior
    from toolsemble._engine.execution.journaled_call import StepRecord as StepRecord
    from toolsemble._engine.limits.cache import Cache as Cache
    from toolsemble._engine.limits.effect_ledger import Effect as Effect, EffectLedger as EffectLedger
    from toolsemble._engine.limits.idempotency import Idempotency as Idempotency
    from toolsemble._engine.limits.rate import RateLimit as RateLimit
    from toolsemble._engine.limits.retries import Retries as Retries
    from toolsemble._runtime.metrics import (
        InMemoryMetrics as InMemoryMetrics,
        SilentMetrics as SilentMetrics,
        ToolMetrics as ToolMetrics,
    )
    from toolsemble._tools.base import Tool as Tool
    from toolsemble._tools.collection import tool_specifications_from as tool_specifications_from
    from toolsemble._tools.function import FunctionTool as FunctionTool, tool as tool
    from toolsemble._tools.pipeline.combinators import choose as choose, fan_out as fan_out, map_over as map_over
    from toolsemble._tools.pipeline.pipeline import ToolPipeline as ToolPipeline
    from toolsemble._tools.pipeline.step import ErrorStrategy as ErrorStrategy, Step as Step
    from toolsemble._tools.protocols import AgentTool as AgentTool, ToolSpec as ToolSpec
    from toolsemble._tools.schema import SchemaTool as SchemaTool
    from toolsemble._tools.toolbox.pages import Pages as Pages
    from toolsemble._tools.toolbox.toolbox import Toolbox as Toolbox
    from toolsemble._tools.typed import (
        TypedTool as TypedTool,
        read_arguments as read_arguments,
        schema_for as schema_for,
    )
    from toolsemble._vocabulary.call import ToolCall as ToolCall, ToolReply as ToolReply
    from toolsemble._vocabulary.errors import (
        AgentExecutionError as AgentExecutionError,
        BudgetExceededError as BudgetExceededError,
        ExitEarlyError as ExitEarlyError,
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
    from toolsemble._vocabulary.param import (
        MemoryId as MemoryId,
        Param as Param,
    )
    from toolsemble._vocabulary.result import (
        AudioContent as AudioContent,
        Content as Content,
        FileContent as FileContent,
        ImageContent as ImageContent,
        TextContent as TextContent,
        ToolResult as ToolResult,
    )
    from toolsemble._vocabulary.secret import Secret as Secret, SecretStr as SecretStr
    from toolsemble._vocabulary.specification import (
        Note as Note,
        ToolParameters as ToolParameters,
        ToolSpecification as ToolSpecification,
    )
    from toolsemble.agent import (
        Agent as Agent,
        AgentResult as AgentResult,
        ConversationMemory as ConversationMemory,
        LoopGuard as LoopGuard,
        Prices as Prices,
        Retry as Retry,
    )
    from toolsemble.agent._journal.journal import RunJournal as RunJournal
    from toolsemble.catalog._catalog import Catalog as Catalog
    from toolsemble.catalog._pinning.tool_lock import ToolLock as ToolLock
    from toolsemble.models import ChatModel as ChatModel
    from toolsemble.review import (
        Continue as Continue,
        Edit as Edit,
        ExitEarly as ExitEarly,
        OnTimeout as OnTimeout,
        Reject as Reject,
        ReviewDecision as ReviewDecision,
        ReviewHandler as ReviewHandler,
        ReviewRequest as ReviewRequest,
        ReviewStore as ReviewStore,
        ReviewTiming as ReviewTiming,
    )

    MaxIterationsExceededError = BudgetExceededError

__version__ = "0.2.0"

__getattr__, __dir__, __all__ = export_lazily(
    globals(),
    {
        "agent": (
            "Agent",
            "AgentResult",
            "ConversationMemory",
            "LoopGuard",
            "Prices",
            "Retry",
        ),
        "_engine.limits.cache": ("Cache",),
        "_vocabulary.call": (
            "ToolCall",
            "ToolReply",
        ),
        "catalog._catalog": ("Catalog",),
        "_tools.collection": ("tool_specifications_from",),
        "_engine.context": (
            "InvocationParameters",
            "ToolContext",
        ),
        "_engine.definition": ("ReturnBehavior",),
        "_engine.limits.effect_ledger": (
            "Effect",
            "EffectLedger",
        ),
        "_vocabulary.errors": (
            "AgentExecutionError",
            "ExitEarlyError",
            "BudgetExceededError",
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
        "_tools.function": (
            "FunctionTool",
            "tool",
        ),
        "agent._journal.journal": ("RunJournal",),
        "catalog._pinning.tool_lock": ("ToolLock",),
        "_runtime.metrics": (
            "InMemoryMetrics",
            "SilentMetrics",
            "ToolMetrics",
        ),
        "models": ("ChatModel",),
        "_vocabulary.specification": (
            "Note",
            "ToolParameters",
            "ToolSpecification",
        ),
        "_tools.toolbox.pages": ("Pages",),
        "_vocabulary.param": (
            "MemoryId",
            "Param",
        ),
        "_vocabulary.secret": (
            "Secret",
            "SecretStr",
        ),
        "_tools.pipeline.combinators": (
            "choose",
            "fan_out",
            "map_over",
        ),
        "_tools.pipeline.pipeline": ("ToolPipeline",),
        "_tools.pipeline.step": (
            "ErrorStrategy",
            "Step",
        ),
        "_engine.execution.journaled_call": ("StepRecord",),
        "_engine.limits.rate": ("RateLimit",),
        "_engine.limits.idempotency": ("Idempotency",),
        "_vocabulary.result": (
            "AudioContent",
            "Content",
            "FileContent",
            "ImageContent",
            "TextContent",
            "ToolResult",
        ),
        "_engine.limits.retries": ("Retries",),
        "review": (
            "Continue",
            "Edit",
            "ExitEarly",
            "OnTimeout",
            "Reject",
            "ReviewDecision",
            "ReviewHandler",
            "ReviewRequest",
            "ReviewStore",
            "ReviewTiming",
        ),
        "_tools.protocols": (
            "AgentTool",
            "ToolSpec",
        ),
        "_tools.schema": ("SchemaTool",),
        "_tools.toolbox.toolbox": ("Toolbox",),
        "_tools.base": ("Tool",),
        "_tools.typed": (
            "TypedTool",
            "read_arguments",
            "schema_for",
        ),
    },
    renamed={"MaxIterationsExceededError": ("BudgetExceededError", "0.5")},
    everyday=(
        *("Agent", "AgentResult", "ConversationMemory", "Tool", "ToolContext", "Toolbox", "TypedTool", "tool"),
        *("ToolCall", "ToolReply", "ToolResult", "ImageContent", "MemoryId", "Param", "Secret"),
        *("ToolPipeline", "fan_out", "map_over"),
        *("Continue", "Edit", "Reject", "ReviewStore"),
        *("Cache", "EffectLedger", "RateLimit", "Retries"),
        *("ToolExecutionError", "ToolsembleError"),
    ),
)
