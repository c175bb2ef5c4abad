"""Pin all that an environment holds: `freeze.py ENVIRONMENTS FRAMEWORK ...`.

For a new framework, write nothing but its line into requirements/NAME.txt, run `make interop`, then this.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
COMMENT = "# First what is tested, then all that it was installed with; written by tests/interop/freeze.py."


def freeze(environments: Path, framework: str) -> None:
    """Write the versions of an environment into its file of requirements; what stood there first stays first."""
    file = HERE / "requirements" / f"{framework}.txt"
    lines = [line for line in file.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    first = lines[0].partition("==")[0].lower()
    command = [environments / framework / "bin" / "python", "-m", "pip", "freeze", "--exclude-editable"]
    found = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    found.sort(key=lambda line: (line.partition("==")[0].lower() != first, line.lower()))
    file.write_text("\n".join([COMMENT, *found, ""]), encoding="utf-8")


if __name__ == "__main__":
    for each in sys.argv[2:]:
        freeze(Path(sys.argv[1]), each)
