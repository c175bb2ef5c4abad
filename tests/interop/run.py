"""Run the cases with frameworks, each in its own environment: `run.py ENVIRONMENTS [FRAMEWORK ...]`.

Prints the table, and writes it into docs/interop.md; the exit code is 1 if a case does not hold.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import table

HERE = Path(__file__).parent


def check(environments: Path, framework: str) -> dict[str, Any]:
    """Return what the cases came to with a framework."""
    python = environments / framework / "bin" / "python"
    ended = subprocess.run(
        [python, HERE / "check.py", framework], stdout=subprocess.PIPE, text=True, check=True, cwd=HERE.parents[1]
    )
    return json.loads(ended.stdout.splitlines()[-1])


def main(environments: Path, frameworks: list[str]) -> int:
    """Check frameworks, and return the exit code."""
    installed = [name for name in frameworks if (environments / name / ".installed").exists()]
    found = {name: check(environments, name) for name in installed}
    table.write(table.read() | found)
    print(table.render(found))
    missing = sorted(set(frameworks) - set(installed))
    if missing:
        print(f"interop: {', '.join(missing)} could not be installed")
    return 1 if missing or not all(map(table.holds, found.values())) else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
