"""What sinks that go along are told of runs and of models, in the words of OpenTelemetry."""

from __future__ import annotations

from typing import Any

from toolsemble.agent.budget import Usage
from toolsemble.agent.settings import Plan
from toolsemble.context import ToolContext
from toolsemble.models.chat import ChatReply

# The names that OpenTelemetry has for them.
_PROVIDERS = {
    "toolsemble.models.anthropic.model": "anthropic",
    "toolsemble.models.bedrock.model": "aws.bedrock",
    "toolsemble.models.google.model": "gcp.gemini",
    "toolsemble.models.mistral.model": "mistral_ai",
    "toolsemble.models.openai.model": "openai",
}


def run_facts(plan: Plan, context: ToolContext) -> dict[str, Any]:
    """Give what is known of a run when it begins."""
    facts = {"gen_ai.agent.name": plan.role} if plan.role else {}
    if context.memory_id != ToolContext.memory_id:
        facts["gen_ai.conversation.id"] = context.memory_id
    return facts | model_facts(plan)


def model_facts(plan: Plan) -> dict[str, Any]:
    """Give what is known of a model: its name, or its class where it has none, and its provider."""
    kind, name = type(plan.model), getattr(plan.model, "name", None)
    facts = {"gen_ai.request.model": name if isinstance(name, str) else kind.__name__}
    provider = _PROVIDERS.get(kind.__module__)
    return facts if provider is None else facts | {"gen_ai.provider.name": provider}


def reply_facts(reply: ChatReply) -> dict[str, Any]:
    """Give what is known of a reply.

    >>> reply_facts(ChatReply("Rome"))["gen_ai.response.finish_reasons"]
    ('stop',)
    """
    usage = Usage(reply.usage.input, reply.usage.output, reply.usage.cached)
    return {"gen_ai.response.finish_reasons": (reply.stop_reason,), **spent_facts(usage)}


def spent_facts(usage: Usage) -> dict[str, Any]:
    """Give the tokens that something took.

    >>> spent_facts(Usage(input_tokens=100))["gen_ai.usage.input_tokens"]
    100
    """
    return {
        "gen_ai.usage.input_tokens": usage.input_tokens,
        "gen_ai.usage.output_tokens": usage.output_tokens,
        "gen_ai.usage.cache_read.input_tokens": usage.cached_tokens,
    }
