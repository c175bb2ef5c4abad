"""What a library puts on the disk."""

import re
import sysconfig
from importlib.metadata import Distribution, PackageNotFoundError, distribution, distributions
from importlib.util import find_spec
from pathlib import Path

INSTALLERS = {"pip", "setuptools", "wheel"}
"""What an environment holds by itself."""


def of_environment() -> dict[str, int]:
    """Weigh everything that is installed here, which is the library with what it needs."""
    return _weight(installed(Path(sysconfig.get_path("purelib"))))


def installed(place: Path) -> list[Distribution]:
    """Return what is installed at a place, without what brought it there."""
    return [each for each in distributions(path=[str(place)]) if each.name not in INSTALLERS]


def of_distribution(name: str) -> dict[str, int]:
    """Weigh a library with what it needs, among others that are installed here."""
    found: dict[str, Distribution] = {}
    _collect(name, found)
    return _weight([*found.values()])


def _collect(name: str, found: dict[str, Distribution]) -> None:
    """Add a distribution and, in turn, what it requires; what is not here was not required on this machine."""
    key = re.sub(r"[-_.]+", "-", name).lower()
    if key in found:
        return
    try:
        found[key] = distribution(name)
    except PackageNotFoundError:
        return
    for requirement in found[key].requires or []:
        if "extra ==" not in requirement:
            _collect(re.match(r"[\w.-]+", requirement)[0], found)


def _weight(found: list[Distribution]) -> dict[str, int]:
    return {"bytes": sum(_bytes(each) for each in found), "distributions": len(found)}


def _bytes(found: Distribution) -> int:
    """Return the bytes of its files; compiled bytecode comes and goes, and does not count."""
    files = {Path(found.locate_file(file)) for file in found.files or []} | _linked(found)
    return sum(file.stat().st_size for file in files if file.suffix != ".pyc" and file.is_file())


def _linked(found: Distribution) -> set[Path]:
    """Return the files of a package that is installed as a link to its source."""
    editable = any(file.suffix == ".pth" for file in found.files or [])
    package = find_spec(found.name) if editable else None
    return (
        {file for place in package.submodule_search_locations for file in Path(place).rglob("*")} if package else set()
    )
