"""Build sdist and wheel of the last commit twice, compare them byte by byte, and check what is in them.

``python release/build.py DIST`` leaves both in the folder DIST.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from collections.abc import Iterator
from email.parser import HeaderParser
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "src/toolsemble/"


def git(*arguments: str) -> str:
    """Return what git prints."""
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout  # noqa: S603, S607 - git, with arguments of this file


def build(folder: Path) -> list[Path]:
    """Export the last commit to a folder, build it there, and return the files."""
    source, built = folder / "source", folder / "built"
    source.mkdir(parents=True)
    git("archive", "--output", str(folder / "source.tar"), "HEAD")
    with tarfile.open(folder / "source.tar") as archive:
        archive.extractall(source, filter="data")
    environment = os.environ | {"SOURCE_DATE_EPOCH": git("log", "-1", "--format=%ct").strip()}
    command = [sys.executable, "-m", "build", "--outdir", str(built), str(source)]
    subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)  # noqa: S603 - as above
    return sorted(built.iterdir())


def find_differences(first: list[Path], second: list[Path]) -> Iterator[str]:
    """Yield a sentence for each file that a second build makes differently."""
    if [path.name for path in first] != [path.name for path in second]:
        yield f"two builds made files of different names: {first}, {second}"
    for one, other in zip(first, second, strict=False):
        if one.read_bytes() != other.read_bytes():
            yield f"{one.name} is not reproducible: two builds of one commit differ"


def find_strays(names: set[str], tracked: set[str], allowed: set[str]) -> Iterator[str]:
    """Yield a sentence for each file that is not one of the repository, and for each that is missing."""
    yield from (f"stray file: {name}" for name in sorted(names - tracked - allowed))
    yield from (f"missing file: {name}" for name in sorted(tracked - names))


def check_wheel(path: Path, project: dict[str, object]) -> Iterator[str]:
    """Yield what is wrong with the files and the metadata of a wheel."""
    tracked = {name.removeprefix("src/") for name in git("ls-files", PACKAGE).split()}
    with zipfile.ZipFile(path) as wheel:
        names = set(wheel.namelist())
        info = next(name.partition("/")[0] for name in names if ".dist-info/" in name)
        licenses = {f"{info}/licenses/{name}" for name in project["license-files"]}  # type: ignore[attr-defined]  # a list of str
        metadata = HeaderParser().parsestr(wheel.read(f"{info}/METADATA").decode())
    allowed = {f"{info}/{name}" for name in ("METADATA", "RECORD", "WHEEL", "entry_points.txt")} | licenses
    yield from find_strays(names, tracked | licenses, allowed)
    for key, expected in {"Name": project["name"], "Version": project["version"], "License-Expression": "MIT"}.items():
        if metadata[key] != expected:
            yield f"{key} of the wheel is {metadata[key]!r}, not {expected!r}"
    extras = set(project["optional-dependencies"])  # type: ignore[call-overload]  # a table
    if set(metadata.get_all("Provides-Extra", [])) != extras:
        yield "the wheel does not have the extras of pyproject.toml"
    if "toolsemble/py.typed" not in names:
        yield "the wheel is not marked as typed: py.typed is missing"


def check_sdist(path: Path) -> Iterator[str]:
    """Yield what is wrong with the files of an sdist."""
    with tarfile.open(path) as archive:
        names = {member.name.partition("/")[2] for member in archive if member.isfile()}
    tracked = set(git("ls-files", PACKAGE).split())
    yield from find_strays(names, tracked, {"LICENSE", "PKG-INFO", "README.md", "pyproject.toml"})


def find_problems(first: list[Path], second: list[Path]) -> Iterator[str]:
    """Yield everything that is wrong with what was built."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    yield from find_differences(first, second)
    for path in first:
        yield from check_wheel(path, project) if path.suffix == ".whl" else check_sdist(path)
    command = [sys.executable, "-m", "twine", "check", "--strict", *map(str, first)]
    checked = subprocess.run(command, check=False, capture_output=True, text=True)  # noqa: S603 - as above
    if checked.returncode:
        yield checked.stdout + checked.stderr


def main(dist: Path) -> int:
    """Build, check, and copy the files to a folder; return the exit code."""
    if git("status", "--porcelain").strip():
        print("dist: what is not committed is not built")
    with tempfile.TemporaryDirectory() as folder:
        first, second = build(Path(folder, "first")), build(Path(folder, "second"))
        problems = list(find_problems(first, second))
        for problem in problems:
            print(f"dist: {problem}")
        shutil.rmtree(dist, ignore_errors=True)
        dist.mkdir(parents=True)
        for path in first:
            print(f"dist: {shutil.copy2(path, dist)} ({path.stat().st_size / 1000:.0f} kB)")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
