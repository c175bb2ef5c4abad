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
SIGNS = {"yes": "✓", "no": "✗", "": "-"}


def read() -> dict[str, Any]:
    """Return what was found, by framework."""
    return json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}


def render(found: dict[str, Any]) -> str:
    """Return the table: a row for each case, a column for each framework."""
    cases = [case for case in next(iter(found.values()))["cases"] if case != "page"]
    heads = [" ".join((name, *list(each["versions"].values())[:1])) for name, each in found.items()]
    rows = [[case, *(SIGNS[each["cases"].get(case, "")] for each in found.values())] for case in cases]
    lines = [["", *heads], ["---", *(":-:" for _ in heads)], *rows]
    return "\n" + "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n\n"


def write(found: dict[str, Any]) -> None:
    """Keep what was found, and show it."""
    ordered = dict(sorted(found.items()))
    RESULTS.write_text(json.dumps(ordered, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(BETWEEN.sub(lambda _: render(ordered), page), encoding="utf-8")
