"""The rows of the last comparison, together with the rows that are comparable."""

from pathlib import Path

import findings


def write(rows: list[findings.Library], file: Path | None = None) -> findings.Peers:
    """Write the rows, keep others of the file that were measured under the same circumstances, and give it all."""
    file = file or findings.PEERS
    names, setting, before = {row["name"] for row in rows}, findings.setting(), findings.read(file) or {}
    same = before.items() >= setting.items()
    kept = [row for row in before["libraries"] if row["name"] not in names] if same else []
    found = findings.Peers(**setting, libraries=sorted(rows + kept, key=_rank))
    findings.write(file, found)
    return found


def _rank(row: findings.Library) -> tuple[bool, float]:
    """Return what rows are sorted by: toolsemble first, then the fastest call."""
    call = row["figures"].get("call")
    return row["name"] != "toolsemble", call["ratio"] if call else float("inf")
