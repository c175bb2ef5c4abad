"""Checks of a model's settings that raise a ToolConfigurationError."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from toolsemble._vocabulary.errors import ToolConfigurationError
from toolsemble.models._adapter.dialect import adapt_strict


def require_model_name(provider: str, rest: str, example: str) -> str:
    """Return the model name after a provider's prefix; raise ``ToolConfigurationError`` if it is empty.

    >>> require_model_name("mistral", "", "mistral-large-latest")
    Traceback (most recent call last):
    ...
    toolsemble.ToolConfigurationError: 'mistral' needs a model name, such as \
'mistral:mistral-large-latest'
    """
    if not rest.strip():
        raise ToolConfigurationError(f"{provider!r} needs a model name, such as '{provider}:{example}'")
    return rest


def require_strict_schema(schema: Mapping[str, Any], provider: str, model: str) -> dict[str, Any]:
    """Return the strict form of a schema; raise ``ToolConfigurationError`` if the provider cannot enforce it.

    :param model: the class whose ``native_output`` can be turned off
    """
    try:
        return adapt_strict(dict(schema))[0]
    except ValueError as problem:
        raise ToolConfigurationError(
            f"{provider} cannot enforce this schema: {problem}; or receive the answer through a tool: "
            f"{model}(..., native_output=False)"
        ) from None
