"""The comparison with other libraries, and the figures in which one of them is ahead."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from cells import MISSING, memory, seconds, setting_of, spread_of, table, times
from findings import Library, Peers, known

OURS = "toolsemble"
FLOOR = "floor"
TABLES: dict[str, dict[str, str]] = {
    "One tool": {
        "import": "cold import",
        "define": "define, and the specification",
        "call": "valid call",
        "number_as_text": "a number as text",
        "broken_json": "broken JSON",
        "refused": "refused call",
    },
    "Many tools": {
        "thousand": "1,000 tools",
        "ten_thousand": "10,000 tools",
        "look_up": "a call of one of 1,000",
    },
    "Several calls": {
        "pipeline": "a pipeline of three",
        "agent": "a turn of an agent",
        "async_200": "200 async calls",
        "async_2000": "2,000 async calls",
        "blocking_200": "200 blocking calls",
    },
}
"""The titles of the tables, and of their columns by the key of the figure."""
LABELS = {key: title for columns in TABLES.values() for key, title in columns.items()}


def _held(figure: str) -> Callable[[Library], int]:
    return lambda library: library["figures"].get(figure, {}).get("bytes", 0)


WEIGHTS: tuple[tuple[str, Callable[[Library], int], Callable[[int], str]], ...] = (
    ("memory of 1,000 tools", _held("thousand"), memory),
    ("memory of 10,000 tools", _held("ten_thousand"), memory),
    ("installed", lambda library: library["bytes"], memory),
    ("distributions", lambda library: library["distributions"], str),
)
"""Other quantities, for which less is better: the label, the value of a library, and its format."""


@dataclass(frozen=True, slots=True)
class Aim:
    """An aim: how much faster than other libraries toolsemble should be."""

    figure: str
    """The key of the figure."""
    times: float
    """The smallest accepted ratio of their time to toolsemble's."""
    whom: str
    """The group of libraries, in words."""
    concerns: Callable[[Library], bool]
    """Return whether a library belongs to the group."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of an aim."""

    aim: Aim
    """The aim."""
    nearest: str
    """The fastest library of the group."""
    reached: float
    """The ratio of its time to toolsemble's."""

    @property
    def is_met(self) -> bool:
        """Whether the aim is met."""
        return self.reached >= self.aim.times


def _validates(library: Library) -> bool:
    return library["validates"] != "no"


def _runs_agents(library: Library) -> bool:
    return "agent" in library["figures"]


AIMS = (
    Aim("call", 5, "every library that checks arguments", _validates),
    Aim("agent", 10, "every agent framework", _runs_agents),
    Aim("import", 20, "every agent framework", _runs_agents),
)


def part(peers: Peers | None) -> Iterator[str]:
    """Yield the section."""
    yield "## Against other libraries\n"
    if peers is None:
        yield "Not measured yet; run `make bench-peers`.\n"
        return
    yield (
        f"{setting_of(peers)} Bold: a library's time divided by toolsemble's; below 1, the library is faster. "
        f"{MISSING.capitalize()}: the library has no such feature, or could not be measured.\n"
    )
    libraries = ordered(peers["libraries"])
    yield table(
        ("library", "version", "checks arguments", "installed", "distributions"), "lllrr", map(_about, libraries)
    )
    for title, columns in TABLES.items():
        yield from _table(title, columns, libraries)
    yield "### Aims\n"
    yield table(("figure", "ahead of", "aim", "nearest", "reached"), "llrlr", map(_judged, verdicts(peers)))
    for each in libraries:
        if each["problem"]:
            yield f"{each['name']} is missing or incomplete: {each['problem']}\n"
    names = {each["name"] for each in libraries}
    if unmeasured := [name for name in known() if name not in names]:
        yield f"Not measured this time: {', '.join(unmeasured)}.\n"


def ordered(libraries: Sequence[Library]) -> list[Library]:
    """Return the libraries sorted by the time of a call; libraries without one come last."""
    return sorted(
        libraries, key=lambda each: each["figures"]["call"]["seconds"] if "call" in each["figures"] else math.inf
    )


def behind(peers: Peers | None) -> Iterator[str]:
    """Yield the figures in which another library is ahead, and the missed aims."""
    for each in _others(peers):
        for key, title in LABELS.items():
            if key in each["figures"] and each["figures"][key]["ratio"] < 1:
                yield f"{title}: {each['name']} takes {times(each['figures'][key]['ratio'])} toolsemble's time"
    yield from _lighter(peers)
    for verdict in verdicts(peers):
        if not verdict.is_met:
            aim = verdict.aim
            yield (
                f"{LABELS[aim.figure]}: {verdict.nearest} takes {times(verdict.reached)} toolsemble's time, "
                f"the aim is {aim.times:g} times"
            )


def verdicts(peers: Peers | None) -> Iterator[Verdict]:
    """Return the result of each aim for which a library was measured."""
    for aim in AIMS:
        rivals = [each for each in _others(peers) if aim.figure in each["figures"] and aim.concerns(each)]
        reached = {each["name"]: each["figures"][aim.figure]["ratio"] for each in rivals}
        if reached:
            nearest = min(reached, key=reached.__getitem__)
            yield Verdict(aim, nearest, reached[nearest])


def _lighter(peers: Peers | None) -> Iterator[str]:
    """Yield the libraries that take less memory, disk space or distributions."""
    ours = next((each for each in peers["libraries"] if each["name"] == OURS), None) if peers else None
    for what, weigh, write in WEIGHTS:
        for each in _others(peers) if ours else ():
            theirs, own = weigh(each), weigh(ours)
            if theirs and own and theirs < own:
                yield f"{what}: {each['name']} takes {write(theirs)}, toolsemble {write(own)}"


def _table(title: str, columns: dict[str, str], libraries: Sequence[Library]) -> Iterator[str]:
    """Yield a table of the measured figures, if there are any."""
    found = [key for key in columns if any(key in each["figures"] for each in libraries)]
    if found:
        yield f"### {title}\n"
        rows = [(_name(each), *(_figure(each, key) for key in found)) for each in libraries]
        yield table(("library", *(columns[key] for key in found)), "l" + "r" * len(found), rows)


def _others(peers: Peers | None) -> list[Library]:
    """Return the libraries that are neither toolsemble nor the floor."""
    return [each for each in peers["libraries"] if not each["name"].startswith((OURS, FLOOR))] if peers else []


def _judged(verdict: Verdict) -> Sequence[str]:
    aim, said = verdict.aim, "met" if verdict.is_met else "**missed**"
    return LABELS[aim.figure], aim.whom, f"{aim.times:g} times", verdict.nearest, f"{times(verdict.reached)}, {said}"


def _about(library: Library) -> Sequence[str]:
    size = memory(library["bytes"]) if library["bytes"] else MISSING
    return _name(library), library["version"], library["validates"], size, str(library["distributions"] or MISSING)


def _figure(library: Library, key: str) -> str:
    if key not in library["figures"]:
        return MISSING
    figure = library["figures"][key]
    parts = [seconds(figure["seconds"]), f"**{figure['ratio']:.2f}** {spread_of(figure)}".strip()]
    if "bytes" in figure:
        parts.append(memory(figure["bytes"]))
    return ", ".join(parts)


def _name(library: Library) -> str:
    return f"**{library['name']}**" if library["name"] == OURS else library["name"]
