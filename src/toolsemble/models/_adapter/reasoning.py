"""The neutral reasoning setting of a request, in the terms of each provider."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from toolsemble._vocabulary.errors import ToolConfigurationError
from toolsemble.models._chat import Reasoning

_CLAUDE = re.compile(r"claude-[a-z]+-(\d+)(?:-(\d{1,2}))?(?!\d)")
# From this version on, Claude decides how much it thinks, at a level of effort.
_ADAPTIVE = (4, 6)
_CLAUDE_TOKENS = {"low": 2048, "medium": 6144, "high": 12_288}
_LEAST_CLAUDE_TOKENS = 1024


def require_level(reasoning: Reasoning, provider: str) -> str:
    """Return a level; raise ``ToolConfigurationError`` for a number of tokens.

    >>> require_level("high", "OpenAI")
    'high'
    """
    if isinstance(reasoning, int):
        raise ToolConfigurationError(
            f"{provider} takes reasoning as 'low', 'medium' or 'high', not as a number of tokens ({reasoning})"
        )
    return reasoning


def reasoning_refusal(name: str) -> ToolConfigurationError:
    """Return the error for a model whose reasoning cannot be set.

    >>> reasoning_refusal("The local model")
    ToolConfigurationError('The local model has no reasoning setting; leave out reasoning=')
    """
    return ToolConfigurationError(f"{name} has no reasoning setting; leave out reasoning=")


def claude_reasoning(reasoning: Reasoning, model: str, max_tokens: int) -> dict[str, Any]:
    """Return the settings ``thinking`` and ``output_config`` of a Claude model.

    >>> claude_reasoning("low", "claude-haiku-5-5", 16_384)
    {'thinking': {'type': 'adaptive', 'display': 'summarized'}, 'output_config': {'effort': 'low'}}
    >>> claude_reasoning("low", "claude-haiku-4-5-20251001", 16_384)
    {'thinking': {'type': 'enabled', 'budget_tokens': 2048}}
    """
    if isinstance(reasoning, str) and is_adaptive(model):
        return {"thinking": {"type": "adaptive", "display": "summarized"}, "output_config": {"effort": reasoning}}
    tokens = _CLAUDE_TOKENS[reasoning] if isinstance(reasoning, str) else reasoning
    if not _LEAST_CLAUDE_TOKENS <= tokens < max_tokens:
        raise ToolConfigurationError(
            f"Claude takes from {_LEAST_CLAUDE_TOKENS} tokens of reasoning to less than max_tokens ({max_tokens}), not "
            f"{tokens}; change reasoning= or the model's max_tokens"
        )
    return {"thinking": {"type": "enabled", "budget_tokens": tokens}}


def is_adaptive(model: str) -> bool:
    """Return whether a Claude model takes a level of effort; unknown names count as new.

    >>> [is_adaptive(name) for name in ("claude-opus-4-5", "claude-3-7-sonnet", "claude-sonnet-4-6", "claude-x")]
    [False, False, True, True]
    """
    if "claude-3" in model:
        return False
    found = _CLAUDE.search(model)
    return found is None or (int(found[1]), int(found[2] or 0)) >= _ADAPTIVE


def merge_settings(own: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return both; those of the user take precedence, also inside of a mapping.

    >>> merge_settings({"reasoning": {"effort": "low", "summary": "auto"}}, {"reasoning": {"effort": "high"}})
    {'reasoning': {'effort': 'high', 'summary': 'auto'}}
    """
    merged = {**own, **settings}
    for name, value in own.items():
        if isinstance(value, Mapping) and isinstance(settings.get(name), Mapping):
            merged[name] = {**value, **settings[name]}
    return merged
