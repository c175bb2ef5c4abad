"""Check engines, each in its own environment: `run.py ENVIRONMENTS [ENGINE ...]`.

Prints the table, and writes it into docs/scaling.md; the exit code is 1 if something happened twice, or came out
differently than without kills.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
RESULTS = HERE / "results.json"
PAGE = HERE.parents[1] / "docs" / "scaling.md"
BETWEEN = re.compile(r"(?<=<!-- engines -->\n).*?(?=<!-- end -->)", re.DOTALL)
DRIVERS = frozenset({"temporal", "dbos"})  # also checked with the journal on Postgres
COLUMNS = (
    "kills",
    "runs",
    "calls",
    "effects twice",
    "finished calls repeated",
    "unknown outcomes told",
    "results equal",
)


def check(environments: Path, engine: str, *where: str) -> dict[str, Any]:
    """Return what was found with an engine."""
    python = environments.absolute() / engine / "bin" / "python"
    command = [python, HERE / "check.py", engine, *where]
    ended = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, cwd=HERE)
    return json.loads(ended.stdout.splitlines()[-1])


def holds(found: dict[str, Any]) -> bool:
    """Return whether nothing was done twice, and every run came out as without kills."""
    twice = found["effects twice"] or found["finished calls repeated"]
    return not twice and found["results equal"] == found["runs"]


def render(found: dict[str, Any]) -> str:
    """Return the table: a row for each engine."""
    heads = ["engine", *COLUMNS, "seconds"]
    rows = [
        [_describe(name, each["version"]), *(str(each[column]) for column in COLUMNS), str(each["seconds"])]
        for name, each in found.items()
    ]
    lines = [heads, ["---", *("---:" for _ in heads[1:])], *rows]
    return "\n" + "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n\n"


def _describe(name: str, version: str) -> str:
    engine, _, where = name.partition(" ")
    return f"{engine} {version}, journal on Postgres" if where else f"{engine} {version}"


def write(found: dict[str, Any]) -> None:
    """Keep what was found, and show it."""
    known = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    ordered = dict(sorted((known | found).items()))
    RESULTS.write_text(json.dumps(ordered, indent=2) + "\n", encoding="utf-8")
    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(BETWEEN.sub(lambda _: render(ordered), page), encoding="utf-8")


def main(environments: Path, engines: list[str]) -> int:
    """Check engines, and return the exit code."""
    found = {name: check(environments, name) for name in engines}
    for name in DRIVERS.intersection(engines):
        found[f"{name} postgres"] = check(environments, name, "postgres")
    write(found)
    print(render(found))
    return 0 if all(map(holds, found.values())) else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
