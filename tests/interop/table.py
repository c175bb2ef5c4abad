"""The table of the frameworks: kept in results.json, shown in docs/interop.md."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
RESULTS = HERE / "results.json"
PAGE = HERE.parents[1] / "docs" / "interop.md"
BETWEEN = re.compile(r"(?<=<!-- table -->\n).*?(?=<!-- end -->)", re.DOTALL)
LIMIT = 1.2
"""The most that an exported tool may take, in times of a native one that validates its arguments."""
SIGNS = {"yes": "✓", "no": "✗", "": "-"}


def read() -> dict[str, Any]:
    """Return what was found, by framework."""
    return json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}


def render(found: dict[str, Any]) -> str:
    """Return the table: a row for each case, a column for each framework."""
    cases = [case for case in next(iter(found.values()))["cases"] if case != "page"]
    heads = [" ".join((name, *list(each["versions"].values())[:1])) for name, each in found.items()]
    rows = [[case, *(SIGNS[each["cases"].get(case, "")] for each in found.values())] for case in cases]
    rows.append(["times native", *(_show_ratio(each["overhead"]) for each in found.values())])
    lines = [["", *heads], ["---", *(":-:" for _ in heads)], *rows]
    return "\n" + "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n\n"


def _show_ratio(overhead: dict[str, Any]) -> str:
    """Return how many times as long as a native tool an exported one takes; in brackets if native does not validate."""
    return f"{overhead['ratio']:.2f}" if overhead["validates"] else f"({overhead['ratio']:.2f})"


def holds(found: dict[str, Any]) -> bool:
    """Return whether all that was found about a framework is as it must be."""
    overhead = found["overhead"]
    fast = overhead["ratio"] <= LIMIT or not overhead["validates"]
    return fast and "no" not in found["cases"].values()


def write(found: dict[str, Any]) -> None:
    """Keep what was found, and show it."""
    ordered = dict(sorted(found.items()))
    RESULTS.write_text(json.dumps(ordered, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(BETWEEN.sub(lambda _: render(ordered), page), encoding="utf-8")
