"""Run the whole suite on every interpreter of this machine that the package supports.

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


def install(interpreter: str, environment: Path) -> str:
    """Create an environment with everything that the tests need; return what went wrong, or an empty text."""
    python = environment / "bin" / "python"
    for command in (
        [interpreter, "-m", "venv", "--clear", str(environment)],
        [str(python), "-m", "pip", "install", "-qq", "--disable-pip-version-check", "--editable", f"{ROOT}[dev]"],
    ):
        done = subprocess.run(command, check=False, capture_output=True, text=True)  # noqa: S603 - as above
        if done.returncode:
            return (done.stderr.strip() or done.stdout.strip()).splitlines()[-1]
    return ""


def run_suite(version: str, folder: Path) -> str:
    """Run the suite on one version, and return a word or a sentence for the table."""
    interpreter = find_interpreter(version)
    if interpreter is None:
        return "not found on this machine"
    environment = folder / version
    problem = install(interpreter, environment)
    if problem:
        return f"failed: {problem}"
    log = environment / "tests.log"
    python = str(environment / "bin/python")
    command = [python, "-m", "pytest", "--numprocesses", "auto", "--dist", "loadfile", "--no-loadscope-reorder"]
    with log.open("w") as output:
        done = subprocess.run(command, cwd=ROOT, check=False, stdout=output, stderr=subprocess.STDOUT)  # noqa: S603 - as above
    last = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-1]
    return last if not done.returncode else f"failed: {last}; see {log}"


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
