"""What is said to a person who asks a provider for something that it does not have."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from toolsemble.errors import ToolConfigurationError


def name_after(provider: str, rest: str, example: str) -> str:
    """Give the name of a model that stands after its provider's, or refuse when there is none.

    >>> name_after("mistral", "", "mistral-large-latest")
    Traceback (most recent call last):
    ...
    toolsemble.errors.ToolConfigurationError: 'mistral' needs the name of a model behind it, such as \
'mistral:mistral-large-latest'
    """
    if not rest.strip():
        raise ToolConfigurationError(
            f"{provider!r} needs the name of a model behind it, such as '{provider}:{example}'"
        )
    return rest


def held_to(
    schema: Mapping[str, Any], adapt: Callable[..., tuple[dict[str, Any], Any]], provider: str, model: str
) -> dict[str, Any]:
    """Give a schema to which a provider holds answers, or refuse one that says more than it can.

    :param adapt: gives the strict form of a schema, or raises a ``ValueError``
    :param model: the class in which it can be switched off
    """
    try:
        return adapt(dict(schema), strict=True)[0]
    except ValueError as problem:
        raise ToolConfigurationError(
            f"{provider} cannot hold an answer to this schema: {problem}; or have the answer given by a tool: "
            f"{model}(..., native_output=False)"
        ) from None
