"""``Entry``: a tool of a catalog, in its whole and its shorter forms."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from toolsemble._engine.context import ToolContext
from toolsemble._engine.definition.definition import ToolDefinition
from toolsemble._tools.toolbox.registry import Registered
from toolsemble._vocabulary.specification import ToolSpecification
from toolsemble.catalog._index import Document, describe_tool
from toolsemble.catalog._shorten import shorten
from toolsemble.catalog._tokens import Meter

_CONTEXT = ToolContext()


class Entry:
    """A tool of a catalog; what is derived from its definition is made when it is first needed.

    >>> from toolsemble._engine.definition.build import string_definition
    >>> Entry(None, string_definition("shout", "Says it louder", str.upper)).name
    'shout'
    """

    __slots__ = ("_costs", "_forms", "_specifications", "definition", "group", "name", "tool")

    def __init__(self, tool: object, definition: ToolDefinition, group: str = "") -> None:
        self.tool = tool
        self.definition = definition
        self.name = definition.name
        self.group = group or _find_server(definition.metadata)
        """The name of its server or source; "" if it has none."""
        self._forms: dict[int, ToolDefinition] = {0: definition}
        self._specifications: dict[int, ToolSpecification] = {}
        self._costs: dict[tuple[int, str], int] = {}

    def form(self, cuts: int) -> ToolDefinition:
        """Return the definition with some cuts."""
        if cuts not in self._forms:
            self._forms[cuts] = shorten(self.definition, cuts)
        return self._forms[cuts]

    def specification(self, cuts: int = 0) -> ToolSpecification:
        """Return what a model is shown."""
        if cuts not in self._specifications:
            self._specifications[cuts] = self.form(cuts).specification()
        return self._specifications[cuts]

    def cost(self, cuts: int, meter: Meter) -> int:
        """Return the tokens of a form; meters of one provider count in the same way."""
        key = cuts, meter.provider
        if key not in self._costs:
            self._costs[key] = meter.measure(self.specification(cuts))
        return self._costs[key]

    def register(self, cuts: int) -> Registered:
        """Return a form of the tool for a toolbox, with the gate and the limits that it came with."""
        definition = self.form(cuts)
        limit = None if definition.policy is None else definition.policy.max_output
        return Registered(self.tool, definition, _CONTEXT, limit)

    def document(self) -> Document:
        """Return the texts that are searched."""
        definition = self.definition
        return describe_tool(self.name, _find_title(definition.metadata), definition.description, definition.schema())


def _find_server(metadata: Mapping[str, Any]) -> str:
    """Return the name of the MCP server of a tool; "" for other tools."""
    remote = metadata.get("mcp")
    name = remote.get("server") if isinstance(remote, Mapping) else None
    return name if isinstance(name, str) else ""


def _find_title(metadata: Mapping[str, Any]) -> str:
    remote = metadata.get("mcp")
    title = remote.get("title") if isinstance(remote, Mapping) else metadata.get("title")
    return title if isinstance(title, str) else ""
