"""Measure servers and clients of MCP in turn: each round asks all libraries, so that noise hits all of them."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from server_process import PATIENCE, serve_on_free_port

HERE = Path(__file__).parent
FASTMCP = HERE.parent / ".envs/fastmcp/bin/python"
LIBRARIES = {"sdk": sys.executable, "toolsemble": sys.executable, "fastmcp": str(FASTMCP)}
"""The interpreters of the libraries, the one that all are compared with first."""
CALLS = 100
BURST = 200
TOOLS = 1000
LONGEST_ORDER = 180


class Setting(NamedTuple):
    """What is measured together."""

    side: str
    """"client" or "server"; the other side is always the SDK's."""
    transport: str
    """"stdio" or "http"."""
    revision: str
    """The version of the protocol."""

    @property
    def is_legacy(self) -> bool:
        """Whether it is the version with a handshake."""
        return self.revision == "2025-11-25"


SETTINGS = [
    Setting(side, transport, revision)
    for side in ("server", "client")
    for transport in ("stdio", "http")
    for revision in ("2026-07-28", "2025-11-25")
]


class Driver:
    """A process with a client of one library."""

    def __init__(self, library: str) -> None:
        line = [LIBRARIES[library], str(HERE / "clients.py"), library]
        self._process = subprocess.Popen(  # noqa: S603 - our own code
            line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )

    def ask(self, *order: Any) -> dict[str, float]:
        """Return the seconds that an order took; end the program if it takes too long."""
        print(json.dumps(order), file=self._process.stdin, flush=True)
        watch = threading.Timer(LONGEST_ORDER, self._process.kill)
        watch.start()
        try:
            answer = self._process.stdout.readline()
        finally:
            watch.cancel()
        if not answer:
            raise SystemExit(f"bench-mcp: a client ended, or did not answer within {LONGEST_ORDER} s: {order[0]}")
        return json.loads(answer)

    def end(self) -> None:
        """End the process."""
        self._process.stdin.close()
        self._process.wait(PATIENCE)


@contextmanager
def serve(library: str, transport: str, tools: int = 1) -> Iterator[str | list[str]]:
    """Yield what a client connects to: the command line of a server, or the URL of one that runs meanwhile."""
    line = [LIBRARIES[library], str(HERE / "servers.py"), library, "--tools", str(tools)]
    if transport == "stdio":
        yield line
        return
    with serve_on_free_port([*line, "--http"]) as url:
        yield url


def measure(setting: Setting, rounds: int) -> Iterator[dict[str, Any]]:
    """Yield the rows of a setting: calls in a row, calls at once, connecting, and the list of many tools."""
    with ExitStack() as stack:
        drivers, targets = {}, {}
        for library in LIBRARIES:
            client, server = (library, "sdk") if setting.side == "client" else ("sdk", library)
            targets[library] = stack.enter_context(serve(server, setting.transport))
            drivers[library] = Driver(client)
            stack.callback(drivers[library].end)
            drivers[library].ask("connect", targets[library], setting.is_legacy)
        for job, count in (("calls", CALLS), ("burst", BURST)):
            yield _row(setting, job, count, _take_turns(drivers, rounds, (job, count)))
        connected = _connect_in_turn(drivers, targets, max(rounds // 2, 3), legacy=setting.is_legacy)
        yield _row(setting, "connect", 1, connected)
        for driver in drivers.values():
            driver.ask("close")
    yield _list_many(setting, max(rounds // 2, 3))


def _take_turns(drivers: dict[str, Driver], rounds: int, order: Sequence[Any]) -> dict[str, list[dict[str, float]]]:
    for driver in drivers.values():
        driver.ask(*order)  # what happens only once is not measured
    found: dict[str, list[dict[str, float]]] = {library: [] for library in drivers}
    for _ in range(rounds):
        for library, driver in drivers.items():
            found[library].append(driver.ask(*order))
    return found


def _connect_in_turn(
    drivers: dict[str, Driver], targets: dict[str, Any], rounds: int, *, legacy: bool
) -> dict[str, list[dict[str, float]]]:
    found: dict[str, list[dict[str, float]]] = {library: [] for library in drivers}
    for _ in range(rounds):
        for library, driver in drivers.items():
            driver.ask("close")
            found[library].append(driver.ask("connect", targets[library], legacy))
    return found


def _list_many(setting: Setting, rounds: int) -> dict[str, Any]:
    """Return the row for many tools: a client connects and lists them, a server lists them."""
    with ExitStack() as stack:
        drivers, targets = {}, {}
        for library in LIBRARIES:
            client, server = (library, "sdk") if setting.side == "client" else ("sdk", library)
            targets[library] = stack.enter_context(serve(server, setting.transport, TOOLS))
            drivers[library] = Driver(client)
            stack.callback(drivers[library].end)
            drivers[library].ask("connect", targets[library], setting.is_legacy)
        if setting.side == "client":
            found = _connect_in_turn(drivers, targets, rounds, legacy=setting.is_legacy)
        else:
            found = _take_turns(drivers, rounds, ("list",))
        for driver in drivers.values():
            driver.ask("close")
    return _row(setting, "list", 1, found)


def _row(setting: Setting, job: str, count: int, found: dict[str, list[dict[str, float]]]) -> dict[str, Any]:
    """Return the medians of a job, and the medians of the ratios to the SDK within each round."""
    cpu = "cpu" if setting.side == "client" else "server"
    figures = {}
    for library, rounds in found.items():
        used = {
            key: [each[key] / count for each in rounds] for key in (cpu, "wall") if all(key in each for each in rounds)
        }
        base = {key: [each[key] / count for each in found["sdk"]] for key in used}
        figures[library] = {
            ("wall" if key == "wall" else "cpu"): {
                "seconds": statistics.median(values),
                "ratio": statistics.median(ours / other for ours, other in zip(values, base[key], strict=True)),
            }
            for key, values in used.items()
        }
    return {**setting._asdict(), "job": job, "figures": figures}
