"""Programs as targets of a client."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from toolsemble.mcp._client.screen import Screen
from toolsemble.mcp._client.stdio import Program, StdioTransport


class ProgramTarget:
    """A program that is started for each session."""

    what = "started"
    is_program = True

    def __init__(self, command: str, args: Sequence[str], env: Mapping[str, str], cwd: str | None) -> None:
        self._program = Program(command, args, env, cwd)

    def open(self, screen: Screen, server: str, on_end: Callable[[], object]) -> StdioTransport:
        """Return the transport of a new process."""
        return StdioTransport(self._program, screen, server, on_end)
