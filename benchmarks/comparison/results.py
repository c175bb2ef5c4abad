"""The file of the last comparison, and its table."""

import datetime
import json
import os
import platform
from collections.abc import Iterator
from pathlib import Path

from comparison.figure import FIGURES

FILE = Path(__file__).parent.parent / "results" / "peers.json"


def write(rows: list[dict[str, object]], file: Path = FILE) -> dict[str, object]:
    """Write the rows, keep the others of the file, and give it all."""
    names = {row["name"] for row in rows}
    before = json.loads(file.read_text())["libraries"] if file.exists() else []
    libraries = rows + [row for row in before if row["name"] not in names]
    versions = {row["name"]: row["version"] for row in libraries}
    results = {
        "toolsemble": versions.get("toolsemble", ""),
        "python": platform.python_version(),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, {_processor()}",
        "date": str(datetime.datetime.now(datetime.UTC).date()),
        "libraries": sorted(libraries, key=_rank),
    }
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps(results, indent=2) + "\n")
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


def _processor() -> str:
    """Give the processor's name, as far as the system tells it."""
    facts = Path("/proc/cpuinfo")
    lines = facts.read_text().splitlines() if facts.exists() else []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or "unknown processor")
