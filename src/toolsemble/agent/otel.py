"""Attributes of runs and model requests for tracing, by OpenTelemetry's semantic conventions."""

from __future__ import annotations

from typing import Any

from toolsemble.agent.budget import Usage
from toolsemble.agent.settings import AgentConfig
from toolsemble.context import ToolContext
from toolsemble.models.chat import ChatReply, StopReason

# The reasons with another name in the conventions.
_FINISH_REASONS: dict[StopReason, str] = {"calls": "tool_calls", "refusal": "content_filter"}


def run_attributes(config: AgentConfig, context: ToolContext) -> dict[str, Any]:
    """Return the attributes of a run that are known at its start."""
    attributes = {"gen_ai.agent.name": config.role} if config.role else {}
    if context.memory_id != ToolContext.memory_id:
        attributes["gen_ai.conversation.id"] = context.memory_id
    return attributes | model_attributes(config)


def model_attributes(config: AgentConfig) -> dict[str, Any]:
    """Return the attributes of a model: its name, or its class if it has none, and its provider."""
    from toolsemble.providers import PROVIDERS  # noqa: PLC0415 - only traces need it

    kind, name = type(config.model), getattr(config.model, "name", None)
    attributes = {"gen_ai.request.model": name if isinstance(name, str) else kind.__name__}
    names = [each.otel_name for each in PROVIDERS.values() if each.otel_name and each.model_module == kind.__module__]
    return attributes | {"gen_ai.provider.name": names[0]} if names else attributes


def reply_attributes(reply: ChatReply) -> dict[str, Any]:
    """Return the attributes of a reply.

    >>> reply_attributes(ChatReply("Rome"))["gen_ai.response.finish_reasons"]
    ('stop',)
    """
    sent, spent = (
        reply.usage,
        {"reasoning_tokens": reply.usage.reasoning, "cache_write_tokens": reply.usage.cache_write},
    )
    usage = Usage(sent.input, sent.output, sent.cached, **spent)
    reason = _FINISH_REASONS.get(reply.stop_reason, reply.stop_reason)
    return {"gen_ai.response.finish_reasons": (reason,), **usage_attributes(usage)}


def usage_attributes(usage: Usage) -> dict[str, Any]:
    """Return the attributes of the used tokens.

    >>> usage_attributes(Usage(input_tokens=100))["gen_ai.usage.input_tokens"]
    100
    """
    return {
        "gen_ai.usage.input_tokens": usage.input_tokens,
        "gen_ai.usage.output_tokens": usage.output_tokens,
        "gen_ai.usage.cache_read.input_tokens": usage.cached_tokens,
        "gen_ai.usage.cache_creation.input_tokens": usage.cache_write_tokens,
        "gen_ai.usage.reasoning.output_tokens": usage.reasoning_tokens,
    }
