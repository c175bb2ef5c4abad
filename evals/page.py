"""Write what was measured into the page about catalogs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

PAGE = Path(__file__).parent.parent / "docs" / "catalog.md"


def replace_part(name: str, lines: Sequence[str]) -> None:
    """Replace the lines between the marks of a part of the page."""
    before, begin, rest = PAGE.read_text().partition(f"<!-- {name} -->\n")
    _, end, after = rest.partition("<!-- end -->")
    if not begin or not end:
        raise SystemExit(f"{PAGE} has no part <!-- {name} --> … <!-- end -->")
    PAGE.write_text("".join([before, begin, *(f"{line}\n" for line in lines), end, after]))
