"""One of several parts that are given the same input, and its share of that."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from toolsemble.definition.definition import ToolDefinition
from toolsemble.pipeline.handoff import Handed, Read, as_handed, reader
from toolsemble.schema.pointer import resolve_schema


class Branch(NamedTuple):
    """A part, and how it takes what is handed to it."""

    definition: ToolDefinition
    """The part."""
    read: Read
    """How it takes what is handed to it."""

    @classmethod
    def of(cls, definition: ToolDefinition) -> Branch:
        """Give the branch of a part."""
        return cls(definition, reader(definition))

    def changed(self, change: Callable[[ToolDefinition], ToolDefinition]) -> Branch:
        """Give the same branch with another part."""
        return self._replace(definition=change(self.definition))

    def names(self) -> frozenset[str]:
        """Give the names of the values that the part takes; a text tool's is ``input``."""
        arguments = self.definition.arguments
        schema = (
            {"properties": {"input": {}}} if arguments is None else resolve_schema(arguments.schema, arguments.schema)
        )
        return frozenset(schema.get("properties", ()))

    def share(self, values: Mapping[str, Any], others: frozenset[str], *, exact: bool) -> Handed:
        """Give the part's own among values that were made for several: without those that only others take."""
        if self.definition.arguments is None:
            return Handed.value(values.get("input", values))
        own = self.names()
        return Handed(None, {key: each for key, each in values.items() if key in own or key not in others}, exact)


def handed_to(branches: Sequence[Branch], value: Any) -> list[Handed]:
    """Give the input as each part takes it: what a caller or an adapter made for all of them is shared out."""
    handed = as_handed(value)
    values = handed.payload
    made = handed.exact or not isinstance(value, Handed)
    if not made or not isinstance(values, Mapping) or all(each.definition.arguments is None for each in branches):
        return [handed] * len(branches)
    known = frozenset[str]().union(*(each.names() for each in branches))
    return [each.share(values, known, exact=handed.exact) for each in branches]
