"""``SchemaTool``: a tool from a hand-written or generated JSON Schema."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Unpack

from toolsemble._engine.definition import ToolDefinition, typed_definition
from toolsemble._runtime.event_loops import is_async
from toolsemble._schema.json_schema import SchemaArguments
from toolsemble._schema.members import find_return_type
from toolsemble._tools.base import Tool
from toolsemble._tools.protocols import ToolSpec
from toolsemble._tools.settings import ToolSettings, read_settings
from toolsemble._vocabulary.errors import ToolDefinitionError
from toolsemble._vocabulary.specification import METHOD, is_method


class SchemaTool(Tool):
    """A tool from a JSON Schema and a callable that takes the arguments as a dict.

    >>> add = SchemaTool(
    ...     "add",
    ...     "Adds two numbers",
    ...     lambda arguments: arguments["a"] + arguments["b"],
    ...     {"properties": {"a": {"type": "number"}, "b": {"type": "number"}}, "required": ["a", "b"]},
    ... )
    >>> add.execute('{"a": 1, "b": 2}').output
    '3'
    >>> add.execute('{"a": 1}').text
    "Error: Missing required parameter(s) for 'add': b"
    """

    def __init__(
        self,
        name: str,
        description: str,
        execute: Callable[[dict[str, Any]], Any],
        parameters: dict[str, Any] | str | None = None,
        **settings: Unpack[ToolSettings],
    ) -> None:
        self.name = name
        self.description = description
        self._apply(settings)
        self._execute = execute
        self._arguments = self._build_arguments(parameters)

    def _build_arguments(self, parameters: dict[str, Any] | str | None) -> SchemaArguments:
        return SchemaArguments(self.name, parameters)

    def run(self, input: Any) -> Any:
        """Call ``execute`` with the validated arguments."""
        return self._execute(input)

    def reduce_by_value(self) -> Any:
        """Return how to pickle the tool for another machine; NotImplemented for a subclass, which may define it."""
        if type(self) is not SchemaTool:
            return NotImplemented
        return SchemaTool, (self.name, self.description, self._execute, dict(self._arguments.schema))

    def _define(self) -> ToolDefinition:
        return typed_definition(
            self.name,
            self.description,
            self.run,
            self._arguments,
            awaits=is_async(self._execute),
            returns=lambda: find_return_type(self._execute, {}),
            **self._declared(),
        )


def from_spec(source: ToolSpec) -> SchemaTool:
    """Return the tool for an object that implements :class:`ToolSpec`."""
    for name in ("name", "description", "parameters_schema"):
        if is_method(getattr(source, name)):
            raise ToolDefinitionError(METHOD.format(name=name))
    tool = SchemaTool(source.name, source.description, source.execute, source.parameters_schema)
    tool._apply(read_settings(source))  # noqa: SLF001 - a class of this module
    return tool
