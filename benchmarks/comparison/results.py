"""The file of the last comparison, and its table."""

from collections.abc import Iterator
from pathlib import Path

import findings

from comparison.figure import FIGURES

FILE = Path(__file__).parent.parent / "results" / "peers.json"


def write(rows: list[dict[str, object]], file: Path = FILE) -> dict[str, object]:
    """Write the rows, keep others of the file that were measured under the same circumstances, and give it all."""
    names, setting, before = {row["name"] for row in rows}, findings.setting(), findings.read(file) or {}
    same = before.items() >= setting.items()
    kept = [row for row in before["libraries"] if row["name"] not in names] if same else []
    results = {**setting, "libraries": sorted(rows + kept, key=_rank)}
    findings.write(file, results)
    return results


def table(results: dict[str, object]) -> Iterator[str]:
    """Give the lines of the table: what each library takes, in times of what toolsemble takes."""
    yield f"toolsemble {results['toolsemble']}, Python {results['python']}, {results['machine']}, {results['date']}."
    yield "Times toolsemble's own duration, median of the pairs."
    yield ""
    yield f"| library | version | validates? | MB | packages | {' | '.join(FIGURES)} |"
    yield f"| --- | --- | --- | ---: | ---: |{' ---: |' * len(FIGURES)}"
    for row in results["libraries"]:
        facts = (row["name"], row["version"], row["validates"], f"{row['bytes'] / 1e6:.1f}", str(row["distributions"]))
        yield f"| {' | '.join((*facts, *(_cell(row, what) for what in FIGURES)))} |"
    for row in results["libraries"]:
        if row["problem"]:
            yield f"\n**{row['name']} is incomplete**: {row['problem']}"


def _cell(row: dict[str, object], what: str) -> str:
    found = row["figures"].get(what)
    return f"{found['ratio']:.2f}" if found else "—"


def _rank(row: dict[str, object]) -> tuple[bool, float]:
    """Give what rows are sorted by: toolsemble first, then the fastest call."""
    call = row["figures"].get("call")
    return row["name"] != "toolsemble", call["ratio"] if call else float("inf")
