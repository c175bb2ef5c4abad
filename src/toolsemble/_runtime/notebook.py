"""HTML for notebooks: escaped, bounded, and without colors, so that it is readable in light and dark themes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from toolsemble._runtime.text import escape_line, escape_prose

MAX_TEXT = 2_000
"""Maximum characters shown of a text."""
MAX_CELL = 200
"""Maximum characters shown of a cell."""
MAX_ROWS = 50
"""Maximum rows shown of a table."""

_CELL = 'style="text-align:left;vertical-align:top;overflow-wrap:anywhere;min-width:5em"'


def format_text(text: str) -> str:
    """Return a text with line breaks as a paragraph.

    >>> format_text("a < b")
    '<div style="white-space:pre-wrap;overflow-wrap:anywhere">a &lt; b</div>'
    """
    shown = escape(escape_prose(text[:MAX_TEXT]))
    more = f"<em>… and {len(text) - MAX_TEXT:,} more characters</em>" if len(text) > MAX_TEXT else ""
    return f'<div style="white-space:pre-wrap;overflow-wrap:anywhere">{shown}{more}</div>'


def format_note(text: str) -> str:
    """Return a line in a lighter style.

    >>> format_note("1 tool call")
    '<div style="opacity:0.7">1 tool call</div>'
    """
    return f'<div style="opacity:0.7">{escape(escape_line(text, MAX_CELL))}</div>'


def format_table(rows: Sequence[Sequence[str]], titles: Sequence[str] = ()) -> str:
    """Return a table; nothing if there are no rows.

    >>> format_table([])
    ''
    """
    if not rows:
        return ""
    head = f"<thead><tr>{_format_cells('th', titles)}</tr></thead>" if titles else ""
    note = format_note(f"… and {len(rows) - MAX_ROWS:,} more") if len(rows) > MAX_ROWS else ""
    return f"<table>{head}<tbody>{''.join(map(_format_row, rows[:MAX_ROWS]))}</tbody></table>{note}"


def _format_row(row: Iterable[str]) -> str:
    return f"<tr>{_format_cells('td', row)}</tr>"


def _format_cells(tag: str, cells: Iterable[str]) -> str:
    return "".join(f"<{tag} {_CELL}>{escape(escape_line(cell, MAX_CELL))}</{tag}>" for cell in cells)
