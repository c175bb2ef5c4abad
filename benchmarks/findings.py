"""What the benchmarks found, as it is kept in `results/`: `own.json` by `run.py`, `peers.json` by `compare.py`."""

from __future__ import annotations

import datetime
import json
import os
import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal, NotRequired, TypedDict

HERE = Path(__file__).parent
OWN = HERE / "results" / "own.json"
PEERS = HERE / "results" / "peers.json"
REQUIREMENTS = HERE / "peers" / "requirements"


class Ratio(TypedDict):
    """What pairs of measurements say."""

    ratio: float
    """The median of the ratios within the pairs."""
    low: float
    """The ratio that 10 % of the pairs stay below."""
    high: float
    """The ratio that 10 % of the pairs exceed."""


class Row(Ratio):
    """Two ways to do the same, compared; a ratio above 1 says that toolsemble takes more."""

    group: str
    """Which table it belongs to."""
    what: str
    """What toolsemble did."""
    against: str
    """What it is compared with."""
    figure: str
    """The key of the peers' figure that a picture shows this one in place of, where no peer was measured; or empty."""
    itself: bool
    """Whether the other is toolsemble, too: nothing that a user could take instead."""
    unit: Literal["s", "B"]
    """What is counted: seconds or bytes."""
    ours: float
    """The median of toolsemble."""
    other: float
    """The median of the other."""
    pairs: int
    """How many pairs were measured."""
    aim: str
    """What to stay below: a ratio, a time, or a time on top of the other; empty for no aim."""


class Growth(TypedDict):
    """What one more of something costs when there are many."""

    what: str
    """What there are many of."""
    points: list[list[float]]
    """How many there are, and the seconds of each."""


class Size(TypedDict):
    """What an installation takes."""

    bytes: int
    """The bytes of all files."""
    distributions: int
    """How many distributions are installed, itself included."""


class Setting(TypedDict):
    """Under which circumstances something was measured."""

    toolsemble: str
    """The version of toolsemble."""
    python: str
    """The version of Python."""
    machine: str
    """The kind of machine."""
    date: str
    """The day, in UTC."""


class Own(Setting):
    """What `own.json` holds."""

    rows: list[Row]
    """Every comparison, in the order of the tables."""
    growth: list[Growth]
    """Every line of growth."""
    size: Size
    """What `pip install toolsemble` takes."""


class Figure(Ratio):
    """How a library did at one thing; a ratio above 1 says that it takes more than toolsemble."""

    seconds: float
    """The median."""
    pairs: NotRequired[int]
    """How many pairs were measured; of toolsemble, in how many it was measured. Older files do not say."""
    bytes: NotRequired[int]
    """The memory that it took, where that was measured."""


class Library(TypedDict):
    """A library, and how it did."""

    name: str
    """What it is called."""
    version: str
    """Which version was measured."""
    validates: str
    """What it checks of the arguments: "yes", "types only" or "no"."""
    bytes: int
    """The bytes of its installation."""
    distributions: int
    """How many distributions its installation has."""
    figures: dict[str, Figure]
    """How it did, by the key of the figure; what it cannot do is missing."""
    problem: str
    """Why something is missing; empty when nothing went wrong."""


class Peers(Setting):
    """What `peers.json` holds."""

    libraries: list[Library]
    """Every library that was measured, toolsemble and the floor among them."""


def known() -> list[str]:
    """Return the names of the libraries that can be compared with."""
    return sorted(path.stem for path in REQUIREMENTS.glob("*.txt"))


def read(path: Path) -> Any:
    """Return what a file of results holds; None when there is none."""
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def write(path: Path, found: Own | Peers) -> None:
    """Keep results, one figure a line, so that two runs can be compared."""
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def setting() -> Setting:
    """Return the circumstances of what is measured now."""
    return Setting(
        toolsemble=version("toolsemble"),
        python=platform.python_version(),
        machine=f"{platform.machine()}, {os.cpu_count()} cores, {_processor()}",
        date=str(datetime.datetime.now(datetime.UTC).date()),
    )


def _processor() -> str:
    described = Path("/proc/cpuinfo")
    lines = described.read_text(encoding="utf-8").splitlines() if described.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor() or "unknown processor"
