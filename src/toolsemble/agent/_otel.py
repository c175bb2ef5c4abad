"""Attributes of runs and model requests for tracing, by OpenTelemetry's semantic conventions."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from toolsemble._engine.context import ToolContext
from toolsemble._tools.toolbox.toolbox import Toolbox
from toolsemble.agent._budget import Usage
from toolsemble.agent._redaction import hide_secrets
from toolsemble.agent._settings import AgentConfig
from toolsemble.models._chat import ChatReply, ChatRequest, StopReason
from toolsemble.models._message import AssistantMessage, Message

INPUT_MESSAGES, OUTPUT_MESSAGES = "gen_ai.input.messages", "gen_ai.output.messages"
"""The attributes whose values are functions that return messages: they are private and long, so only some sinks ask."""
TOOL_DEFINITIONS = "gen_ai.tool.definitions"
"""The attribute whose value is a function that returns specifications."""
# The stop reasons with another name in the conventions.
_FINISH_REASONS: dict[StopReason, str] = {"calls": "tool_calls", "refusal": "content_filter"}


def run_attributes(config: AgentConfig, context: ToolContext) -> dict[str, Any]:
    """Return the attributes of a run that are known at its start."""
    attributes = {"gen_ai.agent.name": config.role} if config.role else {}
    return attributes | _shared_attributes(config, context)


def conversation_attributes(config: AgentConfig, messages: Sequence[Message], answer: str) -> dict[str, Any]:
    """Return the attributes of the conversation that a run started with, and of its answer."""
    box = config.tools if isinstance(config.tools, Toolbox) else None
    return {
        INPUT_MESSAGES: partial(hide_secrets, messages, box),
        OUTPUT_MESSAGES: lambda: [AssistantMessage(answer)],
    }


def request_attributes(config: AgentConfig, context: ToolContext, request: ChatRequest, box: Toolbox) -> dict[str, Any]:
    """Return the attributes of a model request."""
    contents = {
        INPUT_MESSAGES: partial(hide_secrets, request.messages, box),
        TOOL_DEFINITIONS: lambda: request.specifications,
    }
    return _shared_attributes(config, context) | contents


def model_attributes(config: AgentConfig) -> dict[str, Any]:
    """Return the attributes of a model: its name and its provider."""
    from toolsemble._vocabulary.providers import PROVIDERS

    attributes, module = {"gen_ai.request.model": config.model_name}, type(config.model).__module__
    names = [each.otel_name for each in PROVIDERS.values() if each.otel_name and each.model_module == module]
    return attributes | {"gen_ai.provider.name": names[0]} if names else attributes


def _shared_attributes(config: AgentConfig, context: ToolContext) -> dict[str, Any]:
    """Return the ids of a run, and the attributes of its model."""
    attributes = {"toolsemble.run.id": context.run_id, **model_attributes(config)}
    if context.memory_id != ToolContext.memory_id:
        attributes["gen_ai.conversation.id"] = context.memory_id
    return attributes


def reply_attributes(reply: ChatReply, box: Toolbox | None = None) -> dict[str, Any]:
    """Return the attributes of a reply.

    >>> reply_attributes(ChatReply("Rome"))["gen_ai.response.finish_reasons"]
    ('stop',)
    """
    used = reply.usage
    details = {"reasoning_tokens": used.reasoning, "cache_write_tokens": used.cache_write}
    usage = Usage(used.input, used.output, used.cached, **details)
    messages = partial(hide_secrets, [AssistantMessage(reply.text, reply.calls)], box)
    reason = _FINISH_REASONS.get(reply.stop_reason, reply.stop_reason)
    attributes = {"gen_ai.response.finish_reasons": (reason,), OUTPUT_MESSAGES: messages}
    return attributes | usage_attributes(usage)


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
