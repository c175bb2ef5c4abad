"""What a run of the conformance suite has found: compared with the baseline, and written as a table."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

HERE = Path(__file__).parent
RESULTS = HERE / "results.json"
BASELINE = HERE / "baseline.toml"
SIDES = ("server", "client")
REVISIONS = ("2025-11-25", "2026-07-28")
_KINDS = ("required", "further")

Scenarios: TypeAlias = Mapping[str, bool]
"""Whether each scenario passed."""
Results: TypeAlias = Mapping[str, Mapping[str, Mapping[str, Scenarios]]]
"""By side, by revision, and by kind: those that the revision requires, and further ones."""
Baseline: TypeAlias = Mapping[str, Mapping[str, str]]
"""By side: the scenarios that fail, and why."""


def read_results() -> dict[str, Any]:
    """Return what the last run has written: the name of the suite, and its results."""
    found: dict[str, Any] = json.loads(RESULTS.read_text(encoding="utf-8"))
    return found


def write_results(suite: str, results: Results) -> None:
    """Write the results of a run, in an order that does not change between runs."""
    text = json.dumps({"suite": suite, "results": results}, indent=2, sort_keys=True)
    RESULTS.write_text(text + "\n", encoding="utf-8")


def read_baseline() -> Baseline:
    """Return the scenarios that are known to fail."""
    return tomllib.loads(BASELINE.read_text(encoding="utf-8"))


def find_problems(results: Results, baseline: Baseline) -> list[str]:
    """Return a line for each result that is not as the baseline says, and for each entry that is not needed."""
    return [line for side in SIDES for line in _compare(side, results[side], baseline.get(side, {}))]


def _compare(side: str, revisions: Mapping[str, Mapping[str, Scenarios]], known: Mapping[str, str]) -> Iterator[str]:
    ran = set()
    for revision, kinds in revisions.items():
        for kind in _KINDS:
            for scenario, passed in kinds[kind].items():
                ran.add(scenario)
                if not passed and scenario not in known:
                    yield f"{side} {revision}: {scenario} fails"
                if passed and scenario in known:
                    yield f"{side} {revision}: {scenario} passes, but is in the baseline; remove it there"
                if kind == "required" and scenario in known:
                    yield f"{side} {revision}: {scenario} is required, and may not be in the baseline"
    for scenario in sorted(set(known) - ran):
        yield f"{side}: {scenario} is in the baseline, but does not exist"
    for scenario in sorted(scenario for scenario, reason in known.items() if not reason.strip()):
        yield f"{side}: {scenario} is in the baseline without a reason"


def write_table(results: Results) -> str:
    """Return the table of the documentation."""
    lines = ["| | required | further |", "| --- | --- | --- |"]
    for side in SIDES:
        for revision, kinds in sorted(results[side].items()):
            cells = [f"{sum(kinds[kind].values())} of {len(kinds[kind])}" for kind in _KINDS]
            lines.append(f"| {side}, {revision} | {cells[0]} | {cells[1]} |")
    return "\n".join(lines)
