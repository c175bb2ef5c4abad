"""Markdown for a terminal, block by block while it is generated."""

from __future__ import annotations

from collections.abc import Iterator
from io import StringIO

from toolsemble._cli.screen import Screen
from toolsemble._runtime.text import escape_prose

_FENCES = ("```", "~~~")


class MarkdownBlocks:
    r"""A text that is split into blocks as it arrives: at blank lines, but not inside of a fenced block.

    >>> blocks = MarkdownBlocks()
    >>> list(blocks.add("# Rome\n\nAll ro")), list(blocks.add("ads\n\n")), blocks.finish()
    (['# Rome'], ['All roads'], '')
    """

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._rest = ""
        self._fence = ""

    def add(self, text: str) -> Iterator[str]:
        """Add a piece of the text; yield the blocks that are complete."""
        *lines, self._rest = (self._rest + text).split("\n")
        for line in lines:
            self._follow_fence(line.strip()[:3])
            if line.strip() or self._fence:
                self._lines.append(line)
            elif self._lines:
                yield self._take()

    def finish(self) -> str:
        """Return the last block; empty if there is none."""
        self._lines.append(self._rest)
        self._rest = self._fence = ""
        return self._take().strip("\n")

    def _follow_fence(self, start: str) -> None:
        if start in _FENCES and self._fence in {"", start}:
            self._fence = "" if self._fence else start

    def _take(self) -> str:
        block, self._lines = "\n".join(self._lines), []
        return block


class MarkdownWriter:
    """A writer of Markdown to a screen."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._blocks = MarkdownBlocks()

    def add(self, text: str) -> None:
        """Add a piece of the text; write the blocks that are complete."""
        for block in self._blocks.add(text):
            self._write(block)

    def finish(self) -> None:
        """Write the last block."""
        block = self._blocks.finish()
        if block.strip():
            self._write(block)

    def _write(self, block: str) -> None:
        self._screen.write(render(block, self._screen).strip("\n") + "\n")


def render(text: str, screen: Screen) -> str:
    """Return Markdown as text for a screen; control characters of the model are escaped before."""
    from rich.console import Console
    from rich.markdown import Markdown

    console = Console(
        file=StringIO(),
        width=screen.out.width,
        force_terminal=True,
        color_system="standard" if screen.out.colors else None,
        legacy_windows=False,
    )
    with console.capture() as captured:
        # A link is written with its address, so that a person sees where it leads.
        console.print(Markdown(escape_prose(text), hyperlinks=False))
    lines = captured.get().split("\n")
    return "\n".join(line.rstrip() for line in lines)
