"""What `pip install toolsemble` puts on a disk: itself and what it requires, without extras."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import Distribution, distribution
from pathlib import Path

from findings import Size
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import toolsemble


def size(name: str = "toolsemble") -> Size:
    """Give the bytes of all installed files, without compiled ones, and the number of distributions."""
    every = closure(name)
    return Size(bytes=sum(_bytes(each) for each in every.values()), distributions=len(every))


def closure(name: str) -> dict[str, Distribution]:
    """Give a distribution and everything that it requires, directly or not, by name."""
    found: dict[str, Distribution] = {}
    wanted: list[tuple[str, frozenset[str]]] = [(canonicalize_name(name), frozenset())]
    while wanted:
        each, extras = wanted.pop()
        if each not in found:
            found[each] = distribution(each)
            wanted += _required(found[each], extras)
    return found


def _required(installed: Distribution, extras: frozenset[str]) -> Iterator[tuple[str, frozenset[str]]]:
    for text in installed.requires or ():
        requirement = Requirement(text)
        if requirement.marker is None or any(requirement.marker.evaluate({"extra": extra}) for extra in extras | {""}):
            yield canonicalize_name(requirement.name), frozenset(requirement.extras)


def _bytes(installed: Distribution) -> int:
    files = {Path(str(installed.locate_file(path))) for path in installed.files or ()}
    if installed.name == "toolsemble":  # an editable installation lists a pointer in place of the package
        files |= set(Path(toolsemble.__file__).parent.rglob("*"))
    return sum(path.stat().st_size for path in files if path.is_file() and path.suffix != ".pyc")
