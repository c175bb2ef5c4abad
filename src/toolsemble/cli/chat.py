"""A conversation at the terminal, or of the lines that a program writes."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from difflib import get_close_matches
from importlib import import_module

from toolsemble.agent.agent import Agent
from toolsemble.agent.memory import ConversationMemory
from toolsemble.cli.exit_codes import Exit, exit_of, line_of
from toolsemble.cli.follow import TOPIC, followed, remember
from toolsemble.cli.screen import Screen
from toolsemble.cli.text_output import Listener
from toolsemble.cli.visible import one_line
from toolsemble.toolbox.toolbox import Toolbox

_PROMPT = "> "
_COMMANDS = {
    "/help": "what you can write here",
    "/tools": "what the model can use",
    "/new": "forget this conversation and begin another",
    "/quit": "leave; so does the end of the input (Ctrl-D)",
}


class Chat:
    """Takes line after line and has each answered; whatever was said before is known."""

    def __init__(
        self,
        agent: Agent,
        box: Toolbox,
        memory: ConversationMemory,
        screen: Screen,
        listener: Callable[[], Listener],
    ) -> None:
        self._agent = agent
        self._box = box
        self._memory = memory
        self._screen = screen
        self._listener = listener
        self._code = Exit.DONE
        self._at_terminal = sys.stdin.isatty() and screen.out.is_terminal

    def held(self) -> Exit:
        """Go on until the person leaves or the input ends.

        Where a person talks, leaving is no failure. Else the exit code is that of the last answer that was none.
        """
        if self._at_terminal:
            with suppress(ImportError):  # where there is none, the terminal's own editing has to do
                import_module("readline")
            self._screen.tell(
                self._screen.err.painted("dim", "/help tells what you can write; Ctrl-C stops an answer.")
            )
        while (line := self._line()) is not None:
            if line.startswith("/") and not line.startswith("//"):
                if not self._obeyed(line):
                    break
            elif line:
                self._answer(line.removeprefix("/") if line.startswith("//") else line)
                if self._code is Exit.INTERRUPTED and not self._at_terminal:
                    break
        return Exit.DONE if self._at_terminal else self._code

    def _line(self) -> str | None:
        """Give what is written next; None when that is all."""
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

    def _obeyed(self, line: str) -> bool:
        """Do what a command says; False when it is to leave."""
        command, _, _ = line.partition(" ")
        if command == "/help":
            for name, does in _COMMANDS.items():
                self._screen.tell(f"{name:8}{does}")
            self._screen.tell("//text  says a text that begins with a slash")
        elif command == "/tools":
            self._screen.tell("\n".join(map(one_line, self._box.names)) or "none; name some with --tools")
        elif command == "/new":
            self._memory.clear(TOPIC)
            self._screen.tell("A new conversation.")
        elif command != "/quit":
            near = get_close_matches(command, _COMMANDS, n=1) or ["/help"]
            self._screen.tell(f"There is no command {one_line(command, 40)}; did you mean {near[0]}?")
        return command != "/quit"

    def _answer(self, text: str) -> None:
        try:
            outcome = followed(self._agent, text, self._listener())
        except BrokenPipeError:
            raise  # nobody reads the answers any more
        except Exception as error:  # noqa: BLE001 - whatever fails one answer, the person can go on
            self._code = exit_of(error)
            self._screen.tell(self._screen.err.painted("bad", one_line(line_of(error))))
            return
        remember(self._memory, outcome)
        if outcome.code is not Exit.DONE:
            self._code = outcome.code
