"""The protocols of tools that do not depend on this library: ``AgentTool`` and ``ToolSpec``."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from toolsemble._vocabulary.result import ToolResult


@runtime_checkable
class AgentTool(Protocol):
    """The minimal protocol: any object with these three members is a tool.

    >>> from toolsemble import ToolResult
    >>> class Shout:
    ...     name = "shout"
    ...     description = "Says it louder"
    ...     def execute(self, input):
    ...         return ToolResult.success(input.upper())
    >>> isinstance(Shout(), AgentTool)
    True
    """

    @property
    def name(self) -> str:
        """The name by which a model calls the tool."""
        ...

    @property
    def description(self) -> str:
        """What the tool does; models choose tools by it."""
        ...

    def execute(self, input: str) -> ToolResult:
        """Execute the tool and return a result."""
        ...


@runtime_checkable
class ToolSpec(Protocol):
    """A protocol for JSON Schema tools without a dependency on this library: any object with these four members.

    >>> class Now:
    ...     name = "now"
    ...     description = "The time"
    ...     parameters_schema = None
    ...     def execute(self, arguments):
    ...         return "noon"
    >>> isinstance(Now(), ToolSpec)
    True
    """

    @property
    def name(self) -> str:
        """The name by which a model calls the tool."""
        ...

    @property
    def description(self) -> str:
        """What the tool does; models choose tools by it."""
        ...

    @property
    def parameters_schema(self) -> dict[str, Any] | str | None:
        """The JSON Schema of the arguments, as a dict or as JSON text; None: no parameters."""
        ...

    def execute(self, arguments: dict[str, Any]) -> str:
        """Execute the tool with arguments that fit the schema."""
        ...
