"""A branch of a tool that runs several tools on the same input."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from toolsemble._engine.definition.definition import ToolDefinition
from toolsemble._schema.decode import Read
from toolsemble._schema.pointer import resolve_schema
from toolsemble._tools.pipeline.handoff import Handoff, as_handoff, make_reader


class Branch(NamedTuple):
    """A tool inside a combined tool, with the function that reads its input."""

    definition: ToolDefinition
    read: Read

    @classmethod
    def of(cls, definition: ToolDefinition) -> Branch:
        """Return the branch for a definition."""
        return cls(definition, make_reader(definition))

    def map_definition(self, change: Callable[[ToolDefinition], ToolDefinition]) -> Branch:
        """Return a copy whose definition is replaced by ``change(definition)``."""
        return self._replace(definition=change(self.definition))

    def parameter_names(self) -> frozenset[str]:
        """Return the names of the tool's parameters; ``input`` for a text tool."""
        arguments = self.definition.arguments
        schema = (
            {"properties": {"input": {}}} if arguments is None else resolve_schema(arguments.schema, arguments.schema)
        )
        return frozenset(schema.get("properties", ()))

    def select(self, values: Mapping[str, Any], others: frozenset[str], *, exact: bool) -> Handoff:
        """Return the values for this branch: all but those that only other branches take."""
        if self.definition.arguments is None:
            return Handoff.from_value(values.get("input", values))
        own = self.parameter_names()
        return Handoff(None, {key: each for key, each in values.items() if key in own or key not in others}, exact)


def split_input(branches: Sequence[Branch], value: Any) -> list[Handoff]:
    """Return the input of each branch; values that a caller or an adapter made for all of them are split by name."""
    handoff = as_handoff(value)
    values = handoff.payload
    shared = handoff.exact or not isinstance(value, Handoff)
    if not shared or not isinstance(values, Mapping) or all(each.definition.arguments is None for each in branches):
        return [handoff] * len(branches)
    known = frozenset[str]().union(*(each.parameter_names() for each in branches))
    return [each.select(values, known, exact=handoff.exact) for each in branches]
