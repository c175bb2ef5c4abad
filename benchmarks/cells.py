"""The format of figures: times, memory, ratios, aims and tables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from findings import Figure, Row, Setting

MISSING = "none"
"""The text of a missing figure."""
UNITS = {"ns": 1e-9, "µs": 1e-6, "ms": 1e-3, "s": 1.0}
"""The units of time, the smallest first."""
FEW = {1: "one pair", 2: "two pairs"}
"""Numbers of pairs that are too small to go unmentioned."""
ALIGNED = {"l": "---", "r": "---:"}


def seconds(taken: float) -> str:
    """Return a time with three digits and a unit."""
    unit = next(reversed([name for name, size in UNITS.items() if taken >= size * 0.9995]), "ns")
    return f"{_digits(taken / UNITS[unit])} {unit}"


def memory(taken: float) -> str:
    """Return an amount of memory in megabytes."""
    return f"{_digits(taken / 1e6)} MB"


def amounts_of(row: Row) -> str:
    """Return the times, or the memory, of both sides of a comparison."""
    write = seconds if row["unit"] == "s" else memory
    return f"{write(row['ours'])} / {write(row['other'])}"


def times(ratio: float) -> str:
    """Return a ratio in words, such as "2.5 times"."""
    return f"{ratio:,.0f} times" if ratio >= 9.95 else f"{ratio:.1f} times" if ratio >= 2 else f"{ratio:.2f} times"  # noqa: PLR2004 - more digits would be noise


def spread_of(found: Row | Figure) -> str:
    """Return, in parentheses, the 10th and 90th percentile if they differ, and a remark if there are few pairs."""
    low, high = f"{found['low']:.2f}", f"{found['high']:.2f}"
    said = [f"{low} to {high}" if low != high else "", FEW.get(found.get("pairs", 0), "")]
    return f"({', '.join(filter(None, said))})" if any(said) else ""


def aim_of(row: Row) -> str:
    """Return the aim of a comparison and whether it was met, or an empty string."""
    return f"{row['aim']}, {'met' if is_met(row) else '**missed**'}" if row["aim"] else ""


def is_met(row: Row) -> bool:
    """Return whether the ratio, the time, or the added time is below the aim; True without an aim."""
    if not row["aim"]:
        return True
    parts = re.fullmatch(r"< (?P<most>[\d.]+)(?: (?P<unit>\S+)(?P<more> more)?)?", row["aim"])
    if parts is None:
        raise ValueError(f"An aim is written '< 4', '< 30 µs' or '< 8 µs more', not {row['aim']!r}: {row['what']}")
    most = float(parts["most"])
    if not parts["unit"]:
        return row["ratio"] < most
    return row["ours"] - (row["other"] if parts["more"] else 0) < most * UNITS[parts["unit"]]


def setting_of(found: Setting) -> str:
    """Return the versions, machine and date of a measurement."""
    return f"toolsemble {found['toolsemble']}, Python {found['python']}, {found['machine']}, {found['date']}."


def table(headings: Sequence[str], aligned: str, rows: Iterable[Sequence[str]]) -> str:
    """Return a table; `aligned` has a letter for each column, "l" or "r"."""
    lines = [headings, [ALIGNED[letter] for letter in aligned], *rows]
    return "".join(f"| {' | '.join(cell.strip() for cell in line)} |\n" for line in lines)


def picture(title: str, path: str) -> str:
    """Return a picture with its title."""
    return f"![{title}]({path})\n"


def _digits(number: float) -> str:
    return f"{number:.0f}" if number >= 99.95 else f"{number:.1f}" if number >= 9.995 else f"{number:.2f}"  # noqa: PLR2004 - three digits
