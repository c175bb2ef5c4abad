"""Pin all that the peers' environments hold, so that sizes and times do not drift: `freeze.py`.

For a new version of a peer, leave nothing but its line in its file, then run `make bench-peers`, then this.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib.metadata import Distribution
from pathlib import Path

from comparison.weight import installed
from findings import HERE, REQUIREMENTS, known

COMMENT = "# First what is compared, then all that it was installed with; written by benchmarks/freeze.py."


def frozen(text: str, found: Iterable[Distribution]) -> str:
    """Return a file of requirements with the versions that were found; what stood first in it stays first."""
    first = next(line for line in text.splitlines() if not line.startswith("#")).partition("==")[0]
    lines = sorted({f"{each.name}=={each.version}" for each in found}, key=str.lower)
    lines.sort(key=lambda line: line.partition("==")[0] != first)
    return "\n".join([COMMENT, *lines, ""])


def site(environment: Path) -> Path | None:
    """Return where an environment keeps its packages; None where it was not installed."""
    return (
        next(environment.glob("lib/python3.*/site-packages"), None) if (environment / ".installed").exists() else None
    )


def main() -> None:
    """Write the file of every environment that there is."""
    for peer in known():
        file, packages = REQUIREMENTS / f"{peer}.txt", site(HERE / ".envs" / peer)
        if packages:
            file.write_text(frozen(file.read_text(encoding="utf-8"), installed(packages)), encoding="utf-8")


if __name__ == "__main__":
    main()
