"""Tools as their server defines them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

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


@dataclass(frozen=True, slots=True)
class Listing:
    """All tools of a server, in its order."""

    tools: tuple[RemoteDefinition, ...]
