"""Write tables: aligned at a terminal, tab-separated in a pipe."""

from __future__ import annotations

import io
from collections.abc import Sequence

from toolsemble.cli.screen import Screen
from toolsemble.runtime.extras import import_extra
from toolsemble.runtime.text import escape_line

_MIN_WIDTH = 40  # on narrower terminals lines wrap, as the table would drop text


def show_table(screen: Screen, titles: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    r"""Write rows to standard output: as a table at a terminal, else as tab-separated lines without titles.

    >>> show_table(Screen(), ["tool", "does"], [["now", "The\ttime."]])
    now	The\ttime.
    """
    safe = [[escape_line(cell) for cell in row] for row in rows]
    if screen.out.is_terminal:
        screen.write(_render(screen, titles, safe))
    else:
        for row in safe:
            screen.write("\t".join(row))


def _render(screen: Screen, titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return the table as text for a terminal; cells are not read as markup."""
    rich_console, rich_table, rich_text = (
        import_extra(f"rich.{name}", extra="cli", user="A table") for name in ("console", "table", "text")
    )
    stream = screen.out
    table = rich_table.Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for number, title in enumerate(titles):
        table.add_column(title, style="cyan" if number == 0 else None, no_wrap=number == 0)
    for row in rows:
        table.add_row(*map(rich_text.Text, row))
    console = rich_console.Console(
        file=io.StringIO(),
        width=max(stream.width, _MIN_WIDTH),
        force_terminal=stream.colors,
        no_color=not stream.colors,
        color_system="standard" if stream.colors else None,
        _environ={},
    )
    with console.capture() as capture:
        console.print(table)
    return "\n".join(line.rstrip() for line in capture.get().rstrip("\n").split("\n"))
