"""Run the cases with one framework, in its environment, and print what came out as JSON: `check.py langchain`."""

from __future__ import annotations

import asyncio
import json
import sys
import traceback
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from interop.cases import CASES, ways
from interop.kit import load
from interop.overhead import measure
from interop.page import run_examples

LONGEST_CASE = 60.0


async def check(framework: str, case: str) -> bool | None:
    """Return whether a case holds; None for a framework that has nothing like it."""
    driver, module = load(framework)
    runs = ways(driver, case)
    for run in runs:
        await asyncio.wait_for(CASES[case](driver, module, run), LONGEST_CASE)
    return bool(runs) or None


def outcome(name: str, checked: Callable[[], bool | None]) -> str:
    """Return the outcome of a case as the table has it: yes, no, or nothing."""
    try:
        return "yes" if checked() else ""
    except (Exception, asyncio.CancelledError):  # whatever a framework raises is a finding
        print(f"--- {name}", file=sys.stderr)
        traceback.print_exc()
        return "no"


def main(framework: str) -> None:
    """Print the versions of a framework, what each case came to, and the time of a call."""
    driver, module = load(framework)
    versions = {name: version(name) for name in (*driver.DISTRIBUTIONS, "pydantic")}
    found = {case: outcome(case, lambda case=case: asyncio.run(check(framework, case))) for case in CASES}
    found["page"] = outcome("page", lambda: run_examples(driver.MODULE) or True)
    print(json.dumps({"versions": versions, "cases": found, "overhead": measure(driver, module)}))


if __name__ == "__main__":
    main(sys.argv[1])
