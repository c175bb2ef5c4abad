"""Compare servers and clients of MCP with the official SDK and FastMCP: `bench_mcp.py [--rounds 8]`.

The outcome is written to `results/mcp.json` and, as tables, to `mcp.md`.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from importlib.metadata import version
from typing import Any

import findings
from protocol.measure import LIBRARIES, SETTINGS, measure
from protocol.page import write_page

RESULTS = findings.HERE / "results" / "mcp.json"
PAGE = findings.HERE / "mcp.md"


def measure_all(rounds: int) -> dict[str, Any]:
    """Return the rows of all settings, and the versions of the libraries."""
    rows = []
    for setting in SETTINGS:
        print("measuring", *setting, file=sys.stderr, flush=True)
        rows += measure(setting, rounds)
    return {**findings.setting(), "versions": {"sdk": version("mcp"), "fastmcp": find_fastmcp()}, "rows": rows}


def find_fastmcp() -> str:
    """Return the version of FastMCP, which has its own environment."""
    asked = "from importlib.metadata import version; print(version('fastmcp'))"
    ran = subprocess.run([LIBRARIES["fastmcp"], "-c", asked], capture_output=True, text=True, check=True)  # noqa: S603 - our own code
    return ran.stdout.strip()


def main() -> None:
    """Measure, and write what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=8, help="how often each library takes its turn")
    found = measure_all(parser.parse_args().rounds)
    findings.write(RESULTS, found)
    PAGE.write_text(write_page(found), encoding="utf-8")
    print(PAGE.read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
