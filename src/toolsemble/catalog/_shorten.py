"""Shorter forms of a tool's definition, for the model only: calls are still validated against the whole schema."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from toolsemble._engine.definition.definition import ToolDefinition
from toolsemble.catalog._summary import first_sentence

STEPS = (
    "descriptions of parameters cut to a sentence",
    "description cut to a sentence",
    "examples and defaults dropped",
)
"""What is cut, in this order; each form has the cuts before it, too."""
SHORTEST = len(STEPS)
"""The number of cuts of the shortest form."""

_DROPPED = frozenset(("default", "example", "examples"))
_MAPS = frozenset(("properties", "patternProperties", "$defs", "definitions", "dependentSchemas"))
_LISTS = frozenset(("anyOf", "oneOf", "allOf", "prefixItems"))
_SINGLE = frozenset(("items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames"))


def shorten(definition: ToolDefinition, cuts: int) -> ToolDefinition:
    """Return the definition with the first cuts of :data:`STEPS`, at least one; a reviewer sees the whole description.

    >>> from toolsemble._engine.definition.build import string_definition
    >>> shorten(string_definition("shout", "Says it louder. Much louder.", str.upper), 2).description
    'Says it louder.'
    """
    described = definition.description
    return replace(
        definition,
        description=first_sentence(described) if cuts > 1 else described,
        schema=_ShortSchema(definition.schema, drops=cuts >= SHORTEST),
        reviewed_as=definition.reviewed_as or described,
    )


class _ShortSchema:
    """Returns the shortened schema of a tool; like that of the tool, it is made when it is needed."""

    __slots__ = ("_drops", "_whole")

    def __init__(self, whole: Callable[[], Mapping[str, Any]], *, drops: bool) -> None:
        self._whole = whole
        self._drops = drops

    def __call__(self) -> Mapping[str, Any]:
        """Return the schema."""
        shortened: Mapping[str, Any] = _shorten_schema(self._whole(), self._drops)
        return shortened


def _shorten_schema(schema: Any, drops: bool) -> Any:  # noqa: FBT001 - passed on at every depth
    """Return a schema with short descriptions; names of parameters are not mistaken for keywords.

    The schema of a tool is checked when it is defined, so it is not too deep.
    """
    if not isinstance(schema, Mapping):
        return schema  # true or false
    short: dict[str, Any] = {}
    for key, value in schema.items():
        if drops and key in _DROPPED:
            continue
        if key == "description" and isinstance(value, str):
            short[key] = first_sentence(value)
        elif key in _MAPS and isinstance(value, Mapping):
            short[key] = {name: _shorten_schema(part, drops) for name, part in value.items()}
        elif key in _LISTS and isinstance(value, list):
            short[key] = [_shorten_schema(part, drops) for part in value]
        else:
            short[key] = _shorten_schema(value, drops) if key in _SINGLE else value
    return short
