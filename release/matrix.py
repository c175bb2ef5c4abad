"""Run ``make test`` on every interpreter of this machine that the package supports.

``python release/matrix.py FOLDER [VERSION…]``: each interpreter has an environment of its own in FOLDER. Versions are
written as ``3.13``, or ``3.13t`` for the free-threaded build; without any, all that are found are used.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
VERSIONS = ["3.11", "3.12", "3.13", "3.13t", "3.14", "3.14t"]
QUESTION = """
import sys, sysconfig
print("%d.%d" % sys.version_info[:2] + "t" * bool(sysconfig.get_config_var("Py_GIL_DISABLED")))
"""


def find_candidates(version: str) -> Iterator[str]:
    """Yield where an interpreter of a version may be: on the path, or where pyenv and uv keep theirs."""
    name = f"python{version}"
    yield from filter(None, [shutil.which(name)])
    homes = [Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions")]
    homes.append(Path.home() / ".local/share/uv/python")
    for home in homes:
        yield from map(str, sorted(home.glob(f"*/bin/{name}"), reverse=True))


def find_interpreter(version: str) -> str | None:
    """Return an interpreter that runs and is of a version, or None."""
    for candidate in find_candidates(version):
        asked = subprocess.run([candidate, "-c", QUESTION], check=False, capture_output=True, text=True)  # noqa: S603 - an interpreter of this machine
        if asked.stdout.strip() == version:
            return candidate
    return None


def run_suite(version: str, folder: Path) -> str:
    """Run ``make test`` on one version, and return a sentence for the table."""
    interpreter = find_interpreter(version)
    if interpreter is None:
        return "not found on this machine"
    environment = folder / version
    log = folder / f"{version}.log"
    folder.mkdir(exist_ok=True)
    with log.open("w") as output:
        command = ["make", "test", f"VENV={environment}", f"PYTHON={interpreter}"]
        done = subprocess.run(command, cwd=ROOT, check=False, stdout=output, stderr=subprocess.STDOUT)  # noqa: S603 - our own target
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return lines[-1] if not done.returncode else f"failed: {find_result(lines)}; see {log}"


def find_result(lines: list[str]) -> str:
    """Return the last line before make's, which says only that it failed."""
    return next((each for each in reversed(lines) if not each.startswith("make")), "nothing was run")


def main(folder: Path, versions: list[str]) -> int:
    """Run the suite on the versions, print a table, and return the exit code."""
    failed = False
    for version in versions or VERSIONS:
        start = time.monotonic()
        result = run_suite(version, folder)
        failed = failed or result.startswith("failed")
        print(f"matrix: {version:5} {result} ({time.monotonic() - start:.0f} s)", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve(), sys.argv[2:]))
