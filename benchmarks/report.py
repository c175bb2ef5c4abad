"""Write `README.md` of this folder from the results, and a few figures into the README of the project."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

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

The cost of a tool call with toolsemble, compared with the minimum work and with other libraries.

- **Compared with the minimum**: the same work in plain Python and pydantic-core. `make bench` takes about a minute.
- **Compared with other libraries**: the same task in each library, each in its own environment. `make bench-peers`
  installs pinned versions on its first run and then takes about 15 minutes.
- **MCP**, servers and clients beside the official SDK and FastMCP: [the speed of MCP](mcp.md). `make bench-mcp` takes
  about ten minutes.

```console
$ make bench         # measures toolsemble and the minimum, and rewrites this page
$ make bench-peers   # also measures the other libraries, and rewrites this page
```

The task is a search with five parameters: a string, an integer, a number between 0 and 1, a list of strings and an
enum of two values. A call starts with the JSON text that a model writes and ends with the text that the model reads.
Libraries that take parsed arguments get them from `json.loads`. Models are scripted, so only the library is measured.

To cancel noise, the two sides of a comparison alternate: A B A B. The tables show the median of the ratios of all
pairs, with the 10th and 90th percentile in parentheses. Ratios from one or two pairs are marked; they can be far off.
Growth is measured the same way, except that 10,000 tools are built only once. Times are medians on the machine named
below. Work in one thread is timed by CPU time, which depends little on what else the machine does; if an event loop
would wait, the time of the wait is added. Imports, threads and processes are timed by wall-clock time. Missed aims are
marked.

The raw results are in `results/`, and the code of each comparison is in `own/` and `peers/`.
"""
REASONS = """\
### Why

The profiler shows these causes:

- **A call** runs about fifty small steps in Python around `validate_json`: the lookup of the tool, a context with ids
  and a deadline, the generator that is the path, metrics, log levels, the reply. Libraries with faster calls check
  only types, or keep no record.
- **A refused or repaired call** is parsed a second time, with the text of its numbers. Each applicable repair is tried,
  what it has changed is validated again, and every problem is reported with its path. Other libraries forward the first
  message of the validator.
- **A turn of an agent** runs about 180 functions of Python, none of which takes more than a twentieth. A third is the
  call itself with its record, less than a tenth is loop detection. The rest is spread over checks of the model's reply,
  budgets, the conversation and the trace.
- **The import** of an agent loads about 70 modules of toolsemble and 120 of the standard library; `import asyncio`
  alone takes about as long as `import pydantic`. `import toolsemble` by itself loads none of them.
- **OpenTelemetry**: most of the added time is the span of its SDK, with any exporter.
- **A run history** writes three events for a turn with a call, in a thread of its own: JSON, the row of the event, and
  the counts of the run.
- **Many concurrent calls**: each call is a task with its own context. Of the time beyond bare tasks, a third
  goes to the garbage collector, which visits eight more objects for each waiting call.
- **The memory of many tools** holds their specifications and definitions. Both are built with the toolbox, so that
  mistakes are found before the first call.
"""
DURABLE = HERE / "results" / "durable.json"
DURABLE_INTRODUCTION = """\
The processor's time that recording in SQLite adds to a turn of an agent, one of 100: a reply of the model, and a call.
`make bench-durable` measures it, the libraries one after the other, round by round. DBOS records what each of two steps
returned. LangGraph keeps the whole conversation at each of two nodes. toolsemble records the reply, that the call
begins, and its result.
"""
GROUPS = {
    "import": "Cold import, in fresh processes",
    "define": "Defining a tool",
    "call": "A call, from JSON text to reply text",
    "pipeline": "Pipelines",
    "agent": "Agents, with a scripted model",
    "journal": "Durable runs, on SQLite",
    "parallel": "Concurrent calls",
    "telemetry": "Telemetry",
    "web": "Built-in tools",
    "scale": "Many tools",
}
LINEAR = 1.5
"""The largest ratio that counts as linear growth; CPU caches account for the difference to 1."""


def page(own: Own, peers: Peers | None) -> str:
    """Return the whole page."""
    parts = [INTRODUCTION, *_floor(own), *_durable(), *versus.part(peers), *_plots(peers), *_missed(own, peers)]
    return "\n".join(parts)


def _floor(own: Own) -> Iterable[str]:
    yield "## Compared with the minimum\n"
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


def _durable() -> Iterable[str]:
    """Yield what recording a step costs with other libraries, if that was measured."""
    if not DURABLE.exists():
        return
    rows = json.loads(DURABLE.read_text(encoding="utf-8"))
    yield "## Recording a turn\n"
    yield DURABLE_INTRODUCTION
    titles = ("library", "records of a turn", "added to a turn", "compared with toolsemble", "for each record")
    yield table(titles, "llrrr", map(_recorded, rows))


def _recorded(row: dict[str, Any]) -> Sequence[str]:
    records = f"{row['records']} {row['what']}"
    each = seconds(row["seconds"] / row["records"])
    return f"{row['name']} {row['version']}", records, seconds(row["seconds"]), times(row["ratio"]), each


def _cells(row: Row) -> Sequence[str]:
    return row["what"], row["against"], f"**{row['ratio']:.2f}** {spread_of(row)}", amounts_of(row), aim_of(row)


def _growth(growth: Sequence[Growth]) -> Iterable[str]:
    yield "### Growth\n"
    yield "The time of one item among n. With linear growth it stays constant.\n"
    sizes = [f"{int(size):,}" for size, _ in growth[0]["points"]]
    yield table(("one of", *sizes, "linear"), "l" + "r" * (len(sizes) + 1), map(_grown, growth))


def _grown(growth: Growth) -> Sequence[str]:
    times = [seconds(each) for _, each in growth["points"]]
    return growth["what"], *times, "yes" if is_linear(growth) else "**no**"


def is_linear(growth: Growth) -> bool:
    """Return whether an item of the largest size costs about as much as one of the second; the first pays for setup."""
    each = [taken for _, taken in growth["points"]]
    return each[-1] < LINEAR * each[1]


def _plots(peers: Peers | None) -> Iterable[str]:
    yield "## Plots\n"
    beside = "by library" if peers else "compared with the minimum"
    for plot in PLOTS.values():
        yield picture(f"{plot.title}{f', {beside}' if plot.figure else ''}", f"plots/{plot.name}.svg")


def _missed(own: Own, peers: Peers | None) -> Iterable[str]:
    """Yield the section that lists every figure in which toolsemble is not ahead."""
    rows = [
        f"{row['what']} / {row['against']}: {times(row['ratio'])}, {amounts_of(row)}; {_wanted(row)}"
        for row in own["rows"]
        if not is_met(row) or _is_behind(row)
    ]
    lines = [f"{growth['what']}: not linear" for growth in own["growth"] if not is_linear(growth)]
    found = [*rows, *lines, *versus.behind(peers)]
    yield "## Where toolsemble is not ahead\n"
    yield ("".join(f"- {each}\n" for each in found) or "Every aim is met, and no measured library is faster.\n")
    if found:
        yield REASONS


def _is_behind(row: Row) -> bool:
    """Return whether toolsemble takes more than the alternative, and no aim says how much more is acceptable."""
    return not row["aim"] and not row["itself"] and row["ratio"] > 1


def _wanted(row: Row) -> str:
    return f"the aim is {row['aim']}" if row["aim"] else "no aim"


def main(target: Path = PAGE, first: Path = FIRST) -> None:
    """Write the page, and the figures in the README of the project."""
    own, peers = read(OWN), read(PEERS)
    if own is None:
        raise SystemExit(f"No results in {OWN}; run: make bench")
    target.write_text(page(own, peers), encoding="utf-8")
    first.write_text(summary.placed(first.read_text(encoding="utf-8"), peers), encoding="utf-8")


if __name__ == "__main__":
    main()
