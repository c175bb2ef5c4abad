"""Write `README.md` of this folder from the findings, and a few figures into that of the project."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import summary
import versus
from cells import aim_of, amounts_of, is_met, memory, picture, seconds, setting_of, spread_of, table, times
from findings import HERE, OWN, PEERS, Growth, Own, Peers, Row, read
from plots import PLOTS

PAGE = HERE / "README.md"
FIRST = HERE.parent / "README.md"
INTRODUCTION = """\
# Benchmarks

<!-- Written by benchmarks/report.py: change it there. -->

What a tool call costs with toolsemble, beside the work that has to be done anyway, and beside other libraries.

- **Against the floor**: the same work with bare Python and pydantic-core. `make bench` measures it in under a minute.
- **Against other libraries**: the same job in each of them, every one in an environment of its own. `make bench-peers`
  installs their pinned versions the first time, and measures for about a quarter of an hour.

```console
$ make bench         # measures toolsemble and the floor, and rewrites this page
$ make bench-peers   # measures the other libraries, too, and rewrites this page
```

The job is a search with five parameters: a text, a whole number, a number from 0 to 1, a list of texts and a choice of
two. A call goes from the JSON text that a model writes to the text that it is told. What takes arguments that were
read already gets them from `json.loads`. Models follow a script, so that only the library is measured.

Machines are noisy, so the two halves of a comparison alternate: A B A B and so on. What counts is the ratio within each
pair. The tables give its median, and in brackets what lies between the 10th and the 90th percentile; where there were
just one or two pairs, they say so, and such a ratio can be far off. Sizes of growth take turns, too. Making 10,000
tools takes long, so they are made once, after the others. Times are medians; they belong to the machine named below.
Against the floor, what only computes is timed by the processor's clock, and what waits, or imports, by the clock on the
wall. An aim that was missed says so.

The findings are in `results/`, the code of each comparison is in `own/` and `peers/`.
"""
REASONS = """\
### Why

What a profiler shows, roughly:

- **A call** is some fifty small steps in Python around `validate_json`, each of which takes a few hundredths of the
  time: the tool is looked up, the call gets a context with its ids and its deadline, the path of the call is a
  generator, metrics and log levels are asked for, the reply is made. Libraries whose calls are as quick check types
  only, or keep no record of them.
- **A refused or repaired call** is read once more, leniently; every repair that could help is tried, and what comes of
  it is checked again; all problems are found and named with their places. To pass on what a validator says of its
  first look is less work.
- **A turn of an agent**: a fifth is the call itself, less than a tenth the guard against running in circles. The rest
  is spread over checks of what the model said, budgets, a conversation that is valid at every moment, and the trace.
- **The import** of what an agent needs reads some 270 modules, half of them of the standard library: `import asyncio`
  alone takes about as long as `import pydantic`. `import toolsemble` by itself loads nothing of that.
- **OpenTelemetry**: a span of its SDK costs most of what is added, with any exporter or none.
- **Many calls at once**: each is a task with a context of its own, beside which waiting costs little.
- **The memory of many tools** is their specifications and definitions, made when a toolbox is, so that a mistake in
  one is found before the first call.
"""
GROUPS = {
    "import": "Cold import, in fresh processes",
    "define": "Defining a tool",
    "call": "A call, from JSON text to reply text",
    "pipeline": "Pipelines",
    "agent": "Agents, with a scripted model",
    "parallel": "Calls side by side",
    "telemetry": "Telemetry",
    "scale": "Many tools",
}
LINEAR = 1.5
"""How much more one of the most may cost than one of a hundred, with a processor's caches in mind."""


def page(own: Own, peers: Peers | None) -> str:
    """Return the whole page."""
    parts = [INTRODUCTION, *_floor(own), *versus.part(peers), *_plots(peers), *_missed(own, peers)]
    return "\n".join(parts)


def _floor(own: Own) -> Iterable[str]:
    yield "## Against the floor\n"
    yield f"{setting_of(own)} A ratio below 1 means that toolsemble is faster.\n"
    for group, title in GROUPS.items():
        rows = [row for row in own["rows"] if row["group"] == group]
        if rows:
            yield f"### {title}\n"
            yield table(("toolsemble", "compared with", "ratio", "times or memory", "aim"), "llrrr", map(_cells, rows))
    yield from _growth(own["growth"])
    size = own["size"]
    yield "### Installation\n"
    yield f"`pip install toolsemble` takes {memory(size['bytes'])} in {size['distributions']} distributions.\n"


def _cells(row: Row) -> Sequence[str]:
    return row["what"], row["against"], f"**{row['ratio']:.2f}** {spread_of(row)}", amounts_of(row), aim_of(row)


def _growth(growth: Sequence[Growth]) -> Iterable[str]:
    yield "### Growth\n"
    yield "What each one takes when there are many. Where the work grows linearly, it stays the same.\n"
    sizes = [f"{int(size):,}" for size, _ in growth[0]["points"]]
    yield table(("one of", *sizes, "linear"), "l" + "r" * (len(sizes) + 1), map(_grown, growth))


def _grown(growth: Growth) -> Sequence[str]:
    times = [seconds(each) for _, each in growth["points"]]
    return growth["what"], *times, "yes" if is_linear(growth) else "**no**"


def is_linear(growth: Growth) -> bool:
    """Whether one of the most costs about as much as one of the second few: the first few pay for the beginning."""
    each = [taken for _, taken in growth["points"]]
    return each[-1] < LINEAR * each[1]


def _plots(peers: Peers | None) -> Iterable[str]:
    yield "## Plots\n"
    beside = "by library" if peers else "beside the floor"
    for plot in PLOTS.values():
        yield picture(f"{plot.title}{f', {beside}' if plot.figure else ''}", f"plots/{plot.name}.svg")


def _missed(own: Own, peers: Peers | None) -> Iterable[str]:
    """Return what toolsemble is not ahead in, in one place."""
    rows = [
        f"{row['what']} / {row['against']}: {times(row['ratio'])}, {amounts_of(row)}; {_wanted(row)}"
        for row in own["rows"]
        if not is_met(row) or _is_behind(row)
    ]
    lines = [
        f"{growth['what']}: each costs more when there are many" for growth in own["growth"] if not is_linear(growth)
    ]
    found = [*rows, *lines, *versus.behind(peers)]
    yield "## Where toolsemble is not ahead\n"
    yield (
        "".join(f"- {each}\n" for each in found) or "Every aim is met, and no library that was measured takes less.\n"
    )
    if found:
        yield REASONS


def _is_behind(row: Row) -> bool:
    """Whether toolsemble takes more than what a user could take instead, and nothing says how much more is fine."""
    return not row["aim"] and not row["itself"] and row["ratio"] > 1


def _wanted(row: Row) -> str:
    return f"the aim is {row['aim']}" if row["aim"] else "no aim"


def main(target: Path = PAGE, first: Path = FIRST) -> None:
    """Write the page, and the figures of the project's first one."""
    own, peers = read(OWN), read(PEERS)
    if own is None:
        raise SystemExit(f"There are no findings in {OWN}; run: make bench")
    target.write_text(page(own, peers), encoding="utf-8")
    first.write_text(summary.placed(first.read_text(encoding="utf-8"), peers), encoding="utf-8")


if __name__ == "__main__":
    main()
