"""Write tables: aligned in a terminal, tab-separated in a pipe."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from toolsemble._cli.screen import Screen
from toolsemble._runtime.extras import import_extra
from toolsemble._runtime.terminal import count_cells
from toolsemble._runtime.text import escape_line

_MIN_WIDTH = 40  # in narrower terminals lines wrap, because the table would drop text
_GAP = 2
_READABLE = 24  # minimum width of a truncated column; below it, other columns are omitted first
_NARROWEST = 4
_SHORT_ID = 8


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a one-line-per-row table, and its behavior in a narrow terminal."""

    title: str
    """The title."""
    is_cut: bool = False
    """Whether its texts are truncated."""
    is_optional: bool = False
    """Whether it may be omitted; also if it has no texts."""


def show_table(screen: Screen, titles: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    r"""Write rows to standard output: as a table in a terminal, else as tab-separated lines without titles.

    Long texts are wrapped in a terminal; :func:`show_list` truncates them.

    >>> show_table(Screen(), ["tool", "does"], [["now", "The\ttime."]])
    now	The\ttime.
    """
    safe = [[escape_line(cell) for cell in row] for row in rows]
    if screen.out.is_terminal:
        screen.write(
            _render(screen, [{"header": title, "no_wrap": not number} for number, title in enumerate(titles)], safe)
        )
    else:
        _write_lines(screen, safe)


def show_list(screen: Screen, columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> None:
    """Write rows like :func:`show_table`, one line each: truncated in a terminal, in full in a pipe.

    >>> show_list(Screen(), [Column("id"), Column("about", is_cut=True)], [["7", "tea " * 3]])
    7	tea tea tea
    """
    safe = [[escape_line(cell) for cell in row] for row in rows]
    if screen.out.is_terminal:
        widths = _fit(columns, safe, _width(screen))
        kept = [{"header": columns[place].title, "no_wrap": True, "width": cells} for place, cells in widths.items()]
        screen.write(_render(screen, kept, [[row[place] for place in widths] for row in safe]))
    else:
        _write_lines(screen, safe)


def shorten_ids(screen: Screen, ids: Iterable[str]) -> dict[str, str]:
    """Return how a list writes each id: in a terminal as its shortest unique prefix, in a pipe in full."""
    return find_short_ids(ids) if screen.out.is_terminal else {each: each for each in ids}


def find_short_ids(ids: Iterable[str]) -> dict[str, str]:
    """Return each id's shortest unique prefix, at least 8 characters long.

    >>> find_short_ids(["4f1c09aa01", "4f1c09aa02", "5a", "5a11223344"])
    {'4f1c09aa01': '4f1c09aa01', '4f1c09aa02': '4f1c09aa02', '5a': '5a', '5a11223344': '5a112233'}
    """
    in_order = sorted(set(ids))
    shared = [0, *(_count_equal(*pair) for pair in pairwise(in_order)), 0]
    return {
        each: each[: max(_SHORT_ID, before + 1, after + 1)]
        for each, before, after in zip(in_order, shared[:-1], shared[1:], strict=True)
    }


def _count_equal(first: str, second: str) -> int:
    pairs = zip(first, second, strict=False)
    return next((place for place, (one, other) in enumerate(pairs) if one != other), min(len(first), len(second)))


def _write_lines(screen: Screen, rows: Sequence[Sequence[str]]) -> None:
    for row in rows:
        screen.write("\t".join(row))


def _fit(columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int) -> dict[int, int]:
    """Return the width of each visible column by its index, within the terminal's width.

    >>> columns = [Column("id"), Column("about", is_cut=True), Column("run", is_optional=True)]
    >>> _fit(columns, [["4f1c", "x" * 30, "order-17"]], 40), _fit(columns, [["4f1c", "x" * 30, "order-17"]], 30)
    ({0: 4, 1: 24, 2: 8}, {0: 4, 1: 24})
    """
    widths = {
        place: max(map(count_cells, (column.title, *(row[place] for row in rows))))
        for place, column in enumerate(columns)
    }
    optional = [place for place, column in enumerate(columns) if column.is_optional]
    for place in [place for place in optional if not any(row[place] for row in rows)]:
        del widths[place]
    for place in reversed(optional):
        if _needed(columns, widths) > width:
            widths.pop(place, None)
    cut = [place for place in widths if columns[place].is_cut]
    _shrink(widths, cut, width)
    _shrink(widths, list(widths)[1:], width)
    return widths


def _needed(columns: Sequence[Column], widths: dict[int, int]) -> int:
    """Return the minimum width of a table with readable truncated columns."""
    cells = [min(width, _READABLE) if columns[place].is_cut else width for place, width in widths.items()]
    return sum(cells) + _GAP * (len(cells) - 1)


def _shrink(widths: dict[int, int], places: Sequence[int], width: int) -> None:
    """Make the widest of these columns narrower until the table fits."""
    while sum(widths.values()) + _GAP * (len(widths) - 1) > width:
        widest = max(places, key=lambda place: widths[place], default=None)
        if widest is None or widths[widest] <= _NARROWEST:
            return
        widths[widest] -= 1


def _width(screen: Screen) -> int:
    return max(screen.out.width, _MIN_WIDTH)


def _render(screen: Screen, columns: Sequence[dict[str, Any]], rows: Sequence[Sequence[str]]) -> str:
    """Return the table as terminal text; cells are not parsed as markup."""
    rich_console, rich_table, rich_text = (
        import_extra(f"rich.{name}", extra="cli", user="A table") for name in ("console", "table", "text")
    )
    stream = screen.out
    table = rich_table.Table(box=None, pad_edge=False, header_style="bold", padding=(0, _GAP, 0, 0))
    for number, column in enumerate(columns):
        table.add_column(**column, style="cyan" if number == 0 else None)
    for row in rows:
        table.add_row(*map(rich_text.Text, row))
    console = rich_console.Console(
        file=io.StringIO(),
        width=_width(screen),
        force_terminal=stream.colors,
        no_color=not stream.colors,
        color_system="standard" if stream.colors else None,
        _environ={},
    )
    with console.capture() as capture:
        console.print(table)
    return "\n".join(line.rstrip() for line in capture.get().rstrip("\n").split("\n"))
