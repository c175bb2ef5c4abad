"""Chat models: the protocol, messages, the models of each provider, and models for tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolsemble._runtime.lazy import export_lazily

if TYPE_CHECKING:
    from toolsemble.models._adapter.offer import Offer as Offer
    from toolsemble.models._chat import (
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
    from toolsemble.models._environment import offers as offers
    from toolsemble.models._fallback import FallbackModel as FallbackModel
    from toolsemble.models._local.model import LocalModel as LocalModel
    from toolsemble.models._message import (
        AssistantMessage as AssistantMessage,
        Message as Message,
        SystemMessage as SystemMessage,
        ToolMessage as ToolMessage,
        Transcript as Transcript,
        UserMessage as UserMessage,
        message_from_json as message_from_json,
        message_to_json as message_to_json,
        messages_from_json as messages_from_json,
        messages_to_json as messages_to_json,
    )
    from toolsemble.models._recorded import RecordedModel as RecordedModel
    from toolsemble.models._registry import found as found, model_of as model_of
    from toolsemble.models._scripted import FunctionModel as FunctionModel, ScriptedModel as ScriptedModel
    from toolsemble.models.anthropic._model import (
        AnthropicModel as AnthropicModel,
        messages_from_anthropic as messages_from_anthropic,
        messages_to_anthropic as messages_to_anthropic,
    )
    from toolsemble.models.bedrock._model import BedrockModel as BedrockModel
    from toolsemble.models.google._model import GoogleModel as GoogleModel
    from toolsemble.models.mistral._model import MistralModel as MistralModel
    from toolsemble.models.openai._messages import (
        messages_from_openai as messages_from_openai,
        messages_to_openai as messages_to_openai,
    )
    from toolsemble.models.openai._model import OpenAIModel as OpenAIModel

# Using one provider does not load the others.
__getattr__, __dir__, __all__ = export_lazily(
    globals(),
    {
        "_adapter.offer": ("Offer",),
        "anthropic._model": (
            "AnthropicModel",
            "messages_from_anthropic",
            "messages_to_anthropic",
        ),
        "bedrock._model": ("BedrockModel",),
        "_chat": (
            "ArgumentsDelta",
            "Assembly",
            "CallDelta",
            "ChatModel",
            "ChatReply",
            "ChatRequest",
            "Chunk",
            "PromptProgress",
            "StopReason",
            "StreamEnd",
            "StreamRestart",
            "TextDelta",
            "ThoughtDelta",
            "TokenUsage",
            "ToolChoice",
            "chunks_of",
        ),
        "_environment": ("offers",),
        "_fallback": ("FallbackModel",),
        "_scripted": (
            "FunctionModel",
            "ScriptedModel",
        ),
        "google._model": ("GoogleModel",),
        "_local.model": ("LocalModel",),
        "_message": (
            "AssistantMessage",
            "Message",
            "SystemMessage",
            "ToolMessage",
            "Transcript",
            "UserMessage",
            "message_from_json",
            "message_to_json",
            "messages_from_json",
            "messages_to_json",
        ),
        "mistral._model": ("MistralModel",),
        "openai._messages": (
            "messages_from_openai",
            "messages_to_openai",
        ),
        "openai._model": ("OpenAIModel",),
        "_recorded": ("RecordedModel",),
        "_registry": (
            "found",
            "model_of",
        ),
    },
)
