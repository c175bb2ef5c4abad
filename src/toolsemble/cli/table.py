"""Rows of text: a table for people, fields with tabs between them for programs."""

from __future__ import annotations

import io
from collections.abc import Sequence

from toolsemble.cli.screen import Screen
from toolsemble.cli.visible import one_line
from toolsemble.runtime.extras import import_extra

_NARROWEST = 40  # a terminal breaks lines that are too long for it, but what a table leaves out is lost


def show_table(screen: Screen, titles: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    r"""Write rows to standard output: as a table where a person looks at it, else line by line, without titles.

    >>> show_table(Screen(), ["tool", "does"], [["now", "The\ttime."]])
    now	The\ttime.
    """
    safe = [[one_line(cell) for cell in row] for row in rows]
    if screen.out.is_terminal:
        screen.write(_drawn(screen, titles, safe))
    else:
        for row in safe:
            screen.write("\t".join(row))


def _drawn(screen: Screen, titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Give the table as it is drawn on a terminal; what stands in a cell is never read as markup."""
    rich_console, rich_table, rich_text = (
        import_extra(f"rich.{name}", extra="cli", user="A table") for name in ("console", "table", "text")
    )
    pane = screen.out
    table = rich_table.Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for number, title in enumerate(titles):
        table.add_column(title, style="cyan" if number == 0 else None, no_wrap=number == 0)
    for row in rows:
        table.add_row(*map(rich_text.Text, row))
    console = rich_console.Console(
        file=io.StringIO(),
        width=max(pane.width, _NARROWEST),
        force_terminal=pane.colors,
        no_color=not pane.colors,
        color_system="standard" if pane.colors else None,
        _environ={},
    )
    with console.capture() as capture:
        console.print(table)
    return "\n".join(line.rstrip() for line in capture.get().rstrip("\n").split("\n"))
