"""Chat models: the protocol, messages, the models of each provider, and models for tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolsemble.runtime.lazy import export_lazily

if TYPE_CHECKING:
    from toolsemble.local.model import LocalModel as LocalModel
    from toolsemble.models.adapter.offer import Offer as Offer
    from toolsemble.models.anthropic.history import (
        messages_from_anthropic as messages_from_anthropic,
        messages_to_anthropic as messages_to_anthropic,
    )
    from toolsemble.models.anthropic.model import AnthropicModel as AnthropicModel
    from toolsemble.models.bedrock.model import BedrockModel as BedrockModel
    from toolsemble.models.chat import (
        ArgumentsDelta as ArgumentsDelta,
        Assembly as Assembly,
        CallDelta as CallDelta,
        ChatModel as ChatModel,
        ChatReply as ChatReply,
        ChatRequest as ChatRequest,
        Chunk as Chunk,
        PromptProgress as PromptProgress,
        StopReason as StopReason,
        StreamEnd as StreamEnd,
        StreamRestart as StreamRestart,
        TextDelta as TextDelta,
        ThoughtDelta as ThoughtDelta,
        TokenUsage as TokenUsage,
        ToolChoice as ToolChoice,
        chunks_of as chunks_of,
    )
    from toolsemble.models.environment import offers as offers
    from toolsemble.models.fallback import FallbackModel as FallbackModel
    from toolsemble.models.function import FunctionModel as FunctionModel
    from toolsemble.models.google.model import GoogleModel as GoogleModel
    from toolsemble.models.message import (
        AssistantMessage as AssistantMessage,
        Message as Message,
        SystemMessage as SystemMessage,
        ToolMessage as ToolMessage,
        UserMessage as UserMessage,
        message_from_json as message_from_json,
        message_to_json as message_to_json,
    )
    from toolsemble.models.mistral.model import MistralModel as MistralModel
    from toolsemble.models.openai.history import (
        messages_from_openai as messages_from_openai,
        messages_to_openai as messages_to_openai,
    )
    from toolsemble.models.openai.model import OpenAIModel as OpenAIModel
    from toolsemble.models.recorded import RecordedModel as RecordedModel
    from toolsemble.models.registry import found as found, model_of as model_of
    from toolsemble.models.scripted import ScriptedModel as ScriptedModel
    from toolsemble.models.transcript import (
        Transcript as Transcript,
        messages_from_json as messages_from_json,
        messages_to_json as messages_to_json,
    )

# Using one provider does not load the others.
__getattr__, __dir__, __all__ = export_lazily(
    globals(),
    {
        "adapter.offer": ("Offer",),
        "anthropic.history": ("messages_from_anthropic", "messages_to_anthropic"),
        "anthropic.model": ("AnthropicModel",),
        "bedrock.model": ("BedrockModel",),
        "chat": (
            "ArgumentsDelta",
            "Assembly",
            "CallDelta",
            "ChatModel",
            "ChatReply",
            "ChatRequest",
            "Chunk",
            "StopReason",
            "StreamEnd",
            "StreamRestart",
            "PromptProgress",
            "TextDelta",
            "ThoughtDelta",
            "TokenUsage",
            "ToolChoice",
            "chunks_of",
        ),
        "environment": ("offers",),
        "fallback": ("FallbackModel",),
        "function": ("FunctionModel",),
        "google.model": ("GoogleModel",),
        ".local.model": ("LocalModel",),
        "message": (
            "AssistantMessage",
            "Message",
            "SystemMessage",
            "ToolMessage",
            "UserMessage",
            "message_from_json",
            "message_to_json",
        ),
        "mistral.model": ("MistralModel",),
        "openai.history": ("messages_from_openai", "messages_to_openai"),
        "openai.model": ("OpenAIModel",),
        "recorded": ("RecordedModel",),
        "registry": ("found", "model_of"),
        "scripted": ("ScriptedModel",),
        "transcript": ("Transcript", "messages_from_json", "messages_to_json"),
    },
)
