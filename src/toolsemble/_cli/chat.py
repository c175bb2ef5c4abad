"""The conversation of the command ``chat``, at a terminal or over a pipe."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from difflib import get_close_matches
from importlib import import_module
from typing import Any

from toolsemble._cli.exit_codes import Exit, exit_code_for, format_error
from toolsemble._cli.follow import MEMORY_ID, run_agent, save_interrupted
from toolsemble._cli.screen import Screen
from toolsemble._cli.text_output import Listener
from toolsemble._runtime.text import escape_line
from toolsemble._tools.toolbox.toolbox import Toolbox
from toolsemble.agent._agent import Agent
from toolsemble.agent._memory import ConversationMemory

_PROMPT = "> "
_COMMANDS = {
    "/help": "list the commands",
    "/tools": "list the tools of the model",
    "/new": "forget this conversation and start another",
    "/quit": "leave; so does the end of the input (Ctrl-D)",
}


class Chat:
    """A conversation: reads lines and answers each, with the previous ones as context."""

    def __init__(
        self,
        agent: Agent,
        box: Toolbox,
        memory: ConversationMemory,
        screen: Screen,
        listener: Callable[[], Listener],
        deps: Any = None,
    ) -> None:
        self._settings = {"memory_id": MEMORY_ID, "deps": deps}
        self._agent = agent
        self._box = box
        self._memory = memory
        self._screen = screen
        self._listener = listener
        self._code = Exit.DONE
        self._at_terminal = sys.stdin.isatty() and screen.out.is_terminal

    def run(self) -> Exit:
        """Run until the person leaves or the input ends, and return the exit code.

        At a terminal the exit code is 0; otherwise it is that of the last failed answer.
        """
        if self._at_terminal:
            with suppress(ImportError):  # not available on every system
                import_module("readline")
            self._screen.report(self._screen.err.paint("dim", "/help lists the commands; Ctrl-C stops an answer."))
        while (line := self._read_line()) is not None:
            if line.startswith("/") and not line.startswith("//"):
                if not self._run_command(line):
                    break
            elif line:
                self._answer(line.removeprefix("/") if line.startswith("//") else line)
                if self._code is Exit.INTERRUPTED and not self._at_terminal:
                    break
        return Exit.DONE if self._at_terminal else self._code

    def _read_line(self) -> str | None:
        """Return the next line; None at the end of the input."""
        if not self._at_terminal:
            return line.strip() if (line := sys.stdin.readline()) else None
        try:
            return input(_PROMPT).strip()
        except EOFError:
            self._screen.write("")
            return None
        except KeyboardInterrupt:
            self._screen.write("")
            return ""

    def _run_command(self, line: str) -> bool:
        """Run a command, and return False if it is ``/quit``."""
        command, _, _ = line.partition(" ")
        if command == "/help":
            for name, help_text in _COMMANDS.items():
                self._screen.report(f"{name:8}{help_text}")
            self._screen.report("//text  send a text that begins with a slash")
        elif command == "/tools":
            self._screen.report("\n".join(map(escape_line, self._box.names)) or "none; name some with --tools")
        elif command == "/new":
            self._memory.clear(MEMORY_ID)
            self._screen.report("New conversation.")
        elif command != "/quit":
            near = get_close_matches(command, _COMMANDS, n=1) or ["/help"]
            self._screen.report(f"There is no command {escape_line(command, 40)}; did you mean {near[0]}?")
        return command != "/quit"

    def _answer(self, text: str) -> None:
        try:
            outcome = run_agent(self._agent, text, self._listener(), self._settings)
        except BrokenPipeError:
            raise  # the output is closed
        except Exception as error:  # an error in one answer must not end the chat
            self._code = exit_code_for(error)
            self._screen.report(self._screen.err.paint("bad", escape_line(format_error(error))))
            return
        save_interrupted(self._memory, outcome)
        if outcome.code is not Exit.DONE:
            self._code = outcome.code
