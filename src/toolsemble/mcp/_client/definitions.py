"""Tools as their server defines them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from toolsemble.mcp._client.plain_schema import is_plain

TOOL = "tool"
"""The kind of a tool."""
PROMPT = "prompt"
"""The kind of a prompt."""
READ_RESOURCE = "read_resource"
"""The kind of the tool that reads a resource, and its name."""
LIST_RESOURCES = "list_resources"
"""The kind of the tool that lists resources, and its name."""


@dataclass(frozen=True, slots=True)
class RemoteDefinition:
    """A tool as its server defines it."""

    name: str
    """The server's own name."""
    title: str | None
    description: str | None
    input_schema: dict[str, Any]
    """The whole schema, as it was sent."""
    output_schema: Any
    """As it was sent; None if there is none."""
    hints: dict[str, Any]
    """The annotations, as they were sent."""
    kind: str = TOOL
    """What is called: a tool, a prompt, or resources."""
    target: str = ""
    """The name that is sent."""
    is_plain: bool = field(init=False, compare=False, repr=False)
    """Whether the schema of its arguments need not be read before a call."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "is_plain", is_plain(self.input_schema))

    def to_listed(self) -> dict[str, Any]:
        """Return the definition as the server lists it, for a lock.

        >>> RemoteDefinition("now", None, "The time", {}, None, {}).to_listed()["description"]
        'The time'
        """
        return {
            "name": self.name,
            "title": self.title,
            "description": self.description,
            "inputSchema": self.input_schema,
            "outputSchema": self.output_schema,
            "annotations": self.hints,
        }


@dataclass(frozen=True, slots=True)
class Listing:
    """The tools of a server, in its order."""

    tools: tuple[RemoteDefinition, ...]
    """Those that are wanted."""
    shown: tuple[RemoteDefinition, ...] = ()
    """All that the server shows."""
