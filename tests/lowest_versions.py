"""Print the lowest versions that pyproject.toml allows, as constraints for pip: ``lowest_versions.py http json``."""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

_PROJECT = Path(__file__).parent.parent / "pyproject.toml"
_REQUIREMENT = re.compile(r"([A-Za-z0-9._-]+)(?:\[[^\]]*\])?>=([0-9][0-9.]*)")


def lowest(extras: list[str]) -> Iterator[str]:
    """Yield ``name==version`` for each dependency of the package and of some extras."""
    project = tomllib.loads(_PROJECT.read_text())["project"]
    wanted = [*project["dependencies"], *(each for extra in extras for each in project["optional-dependencies"][extra])]
    for requirement in wanted:
        found = _REQUIREMENT.match(requirement)
        if found and found[1] != project["name"]:
            yield f"{found[1]}=={found[2]}"


if __name__ == "__main__":
    sys.stdout.write("".join(f"{each}\n" for each in dict.fromkeys(lowest(sys.argv[1:]))))
