"""Token counts in the formats of OpenAI's two APIs, which others have too."""

from __future__ import annotations

from toolsemble.models._adapter.wire import field
from toolsemble.models._chat import TokenUsage


def read_usage(usage: object) -> TokenUsage:
    """Return the token usage; what is not a count is 0.

    >>> read_usage({"prompt_tokens": 9, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 4}})
    TokenUsage(input=9, output=2, cached=4, reasoning=0, cache_write=0)
    """
    details = field(usage, "input_tokens_details", "prompt_tokens_details")
    produced = field(usage, "output_tokens_details", "completion_tokens_details")
    return TokenUsage(
        _count(field(usage, "input_tokens", "prompt_tokens")),
        _count(field(usage, "output_tokens", "completion_tokens")),
        _count(field(details, "cached_tokens")),
        _count(field(produced, "reasoning_tokens")),
        _count(field(details, "cache_write_tokens")),
    )


def _count(value: object) -> int:
    return value if type(value) is int and value > 0 else 0
