"""Chat models: the protocol, messages, the models of each provider, and models for tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolsemble.runtime.lazy import loader

if TYPE_CHECKING:
    from toolsemble.local.model import LocalModel
    from toolsemble.models.adapter.offer import Offer
    from toolsemble.models.anthropic.model import AnthropicModel
    from toolsemble.models.bedrock.model import BedrockModel
    from toolsemble.models.chat import (
        ArgumentsDelta,
        Assembly,
        CallDelta,
        ChatModel,
        ChatReply,
        ChatRequest,
        Chunk,
        StopReason,
        StreamEnd,
        TextDelta,
        TokenUsage,
        ToolChoice,
        chunks_of,
    )
    from toolsemble.models.environment import offers
    from toolsemble.models.function import FunctionModel
    from toolsemble.models.google.model import GoogleModel
    from toolsemble.models.message import (
        AssistantMessage,
        Message,
        SystemMessage,
        ToolMessage,
        UserMessage,
        message_from_json,
        message_to_json,
    )
    from toolsemble.models.mistral.model import MistralModel
    from toolsemble.models.openai.model import OpenAIModel
    from toolsemble.models.recorded import RecordedModel
    from toolsemble.models.registry import found, model_of
    from toolsemble.models.scripted import ScriptedModel
    from toolsemble.models.transcript import Transcript

__all__ = [
    "AnthropicModel",
    "ArgumentsDelta",
    "Assembly",
    "AssistantMessage",
    "BedrockModel",
    "CallDelta",
    "ChatModel",
    "ChatReply",
    "ChatRequest",
    "Chunk",
    "FunctionModel",
    "GoogleModel",
    "LocalModel",
    "Message",
    "MistralModel",
    "Offer",
    "OpenAIModel",
    "RecordedModel",
    "ScriptedModel",
    "StopReason",
    "StreamEnd",
    "SystemMessage",
    "TextDelta",
    "TokenUsage",
    "ToolChoice",
    "ToolMessage",
    "Transcript",
    "UserMessage",
    "chunks_of",
    "found",
    "message_from_json",
    "message_to_json",
    "model_of",
    "offers",
]

# Using one provider does not load the others.
__getattr__ = loader(
    globals(),
    {
        "adapter.offer": ("Offer",),
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
            "TextDelta",
            "TokenUsage",
            "ToolChoice",
            "chunks_of",
        ),
        "environment": ("offers",),
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
        "openai.model": ("OpenAIModel",),
        "recorded": ("RecordedModel",),
        "registry": ("found", "model_of"),
        "scripted": ("ScriptedModel",),
        "transcript": ("Transcript",),
    },
)
