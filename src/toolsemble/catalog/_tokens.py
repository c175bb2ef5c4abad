"""Count the tokens of tool definitions, in the formats of the providers."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeAlias

from toolsemble._vocabulary.errors import ToolDefinitionError
from toolsemble._vocabulary.providers import PROVIDERS, load_wire_format
from toolsemble._vocabulary.serialization import compact_json
from toolsemble._vocabulary.specification import ToolSpecification

Count: TypeAlias = Callable[[str], int]
"""Returns the number of tokens of a text."""

_CHARACTERS = 3.6  # of JSON with English words in a token; a character of another script is a token of its own


def estimate_tokens(text: str) -> int:
    """Return about how many tokens a text has, without a tokenizer.

    >>> estimate_tokens('{"name":"weather"}'), estimate_tokens("天气")
    (5, 2)
    """
    ascii_only = len(text) if text.isascii() else sum(character.isascii() for character in text)
    return math.ceil(ascii_only / _CHARACTERS) + len(text) - ascii_only


class Meter:
    """Counts the tokens of tool definitions in the format of one provider.

    >>> Meter("openai", len).measure(ToolSpecification("now", "The time"))
    117
    """

    __slots__ = ("_count", "_write", "provider")

    def __init__(self, provider: object, count: Count) -> None:
        if not isinstance(provider, str) or provider not in PROVIDERS:
            raise ToolDefinitionError(f"Catalog provider must be one of {', '.join(PROVIDERS)}, not {provider!r:.80}")
        self.provider = provider
        self._write = load_wire_format(provider).write_tools
        self._count = count

    def to(self, provider: str) -> Meter:
        """Return a meter for another provider that counts in the same way."""
        return Meter(provider, self._count)

    def measure(self, specification: ToolSpecification) -> int:
        """Return the number of tokens of one tool."""
        tokens: Any = self._count(compact_json(self._write([specification])[0]))
        if isinstance(tokens, bool) or not isinstance(tokens, int) or tokens < 0:
            raise ToolDefinitionError(f"Catalog count must return an int >= 0, not {tokens!r:.80}")
        return tokens
