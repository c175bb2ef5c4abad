"""What bodies outside of this process have in common: what is sent, and when it counts as begun."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from toolsemble._engine.context import ToolContext
from toolsemble._engine.definition.definition import ToolDefinition
from toolsemble._engine.work.start import Start


class RemoteBody:
    """The body of a tool with its input, to be run outside of this process."""

    __slots__ = ("_context", "_definition", "_sent", "_value")

    def __init__(self, definition: ToolDefinition, value: Any, context: ToolContext) -> None:
        self._definition = definition
        self._value = value
        self._context = context
        self._sent: Callable[[], None] | None = None

    def track_start(self, start: Start) -> None:
        """Report to a start when the body is sent: this process cannot see when it begins."""
        self._sent = start.begin
