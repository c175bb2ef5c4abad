"""The page about the speed of MCP, written from the results."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from cells import seconds, setting_of, table

JOBS = {
    "calls": "a call, one after the other",
    "burst": "a call, 200 at once",
    "connect": "connect, and list one tool",
    "list": "the list of 1,000 tools",
}
AIMS = {"server": 1.05, "client": 1.15}
"""The largest ratio of CPU time to the SDK that is aimed at."""
INTRODUCTION = """\
# The speed of MCP

<!-- Written by `make bench-mcp`: change benchmarks/protocol/page.py. -->

Servers and clients of toolsemble beside the official SDK's (`mcp`) and of FastMCP.

- A server is called by the SDK's bare client, and a client calls the SDK's low-level server, which checks nothing; so
  only one side differs. toolsemble's side validates arguments, and its calls go through a toolbox.
- The libraries take turns, round by round. Times are medians, and the number in bold is the median of the ratios to
  the SDK in the same round; below 1, it needs less than the SDK.
- CPU time is of the measured side alone. Wall-clock time is of both sides.
- For a client, connecting includes building its tools: toolsemble checks each schema, the others keep them as they
  came. A server over standard streams is started for each connection.
- A call of a toolsemble client crosses to the thread that owns the connection and back, so that any thread and any
  event loop can make it; the clients of the others work in one event loop.

```console
$ make bench-mcp     # about ten minutes
```
"""


def write_page(found: dict[str, Any]) -> str:
    """Return the page."""
    versions = f"mcp {found['versions']['sdk']}, FastMCP {found['versions']['fastmcp']}, "
    parts = [INTRODUCTION, versions + setting_of(found)]
    for side, title in (("server", "Servers"), ("client", "Clients")):
        rows = [row for row in found["rows"] if row["side"] == side]
        parts += [f"## {title}", f"### CPU time; aim: at most {AIMS[side]:.2f} times the SDK, and less than FastMCP"]
        parts += [_table(rows, "cpu", AIMS[side]), "### Wall-clock time", _table(rows, "wall", None)]
    return "\n\n".join(part.strip() for part in parts) + "\n"


def _table(rows: Iterable[dict[str, Any]], key: str, aim: float | None) -> str:
    headings = ["", "transport", "version", "SDK", "toolsemble", "FastMCP"]
    cells = []
    for row in rows:
        figures = {library: each.get(key) for library, each in row["figures"].items()}
        if figures["sdk"] is None:
            continue
        place = [JOBS[row["job"]], row["transport"], row["revision"], seconds(figures["sdk"]["seconds"])]
        cells.append([*place, _cell(figures["toolsemble"]) + _verdict(figures, aim), _cell(figures["fastmcp"])])
    return table(headings, "lllrrr", cells)


def _cell(figure: dict[str, float]) -> str:
    return f"{seconds(figure['seconds'])}, **{figure['ratio']:.2f}**"


def _verdict(figures: dict[str, dict[str, float]], aim: float | None) -> str:
    """Return whether an aim is met; missed ones are marked."""
    if aim is None:
        return ""
    ours = figures["toolsemble"]["ratio"]
    missed = [f"> {aim}"] if round(ours, 2) > aim else []
    missed += ["> FastMCP"] if ours > figures["fastmcp"]["ratio"] else []
    return f" (missed: {', '.join(missed)})" if missed else ""
