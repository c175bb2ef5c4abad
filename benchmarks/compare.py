"""Compare toolsemble with other tool libraries: `compare.py [--rounds 40] [peer …]`.

Each participant works in a process and an environment of its own. Each figure of a peer is measured in pairs with one
of toolsemble, right after each other, peer by peer and round by round; what counts is the ratio within the pairs.
The outcome is printed, and written to `results/peers.json`; rows of peers that were not asked for stay as they are.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
from pathlib import Path

from comparison import results
from comparison.figure import FIGURES
from comparison.participant import Participant

HERE = Path(__file__).parent


def participants(only: list[str]) -> list[Participant]:
    """Give toolsemble, the floor, and the peers whose environments exist."""
    ours = [Participant(module, sys.executable) for module in ("toolsemble", "floor")]
    peers = sorted(path.stem for path in (HERE / "peers" / "requirements").glob("*.txt"))
    installed = [peer for peer in peers if (HERE / ".envs" / peer / ".installed").exists() and peer in (only or peers)]
    pythons = {peer: str(HERE / ".envs" / peer / "bin" / "python") for peer in installed}
    return ours + [Participant(peer.replace("-", "_"), python) for peer, python in pythons.items()]


def measure(everyone: list[Participant], what: str, rounds: int) -> None:
    """Go round by round through the participants that have the figure and no problem with it."""
    reference = everyone[0]
    if not reference.ready(what):
        sys.exit(f"toolsemble cannot be measured: {reference.problems or what}")
    able = [each for each in everyone if each is reference or each.ready(what)]
    for _ in range(rounds):
        for each in able:
            if not each.done(what):
                each.measure(what, reference)


def main() -> None:
    """Introduce, measure, write, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("peers", nargs="*", help="names of requirements files; all whose environments exist if none")
    parser.add_argument("--rounds", type=int, default=40, help="pairs for each peer's definitions and calls")
    options = parser.parse_args()
    everyone = participants(options.peers)
    with contextlib.ExitStack() as processes:
        for each in everyone:
            each.introduce()
            processes.callback(each.close)
        for what, share in FIGURES.items():
            print(f"measuring {what}", file=sys.stderr, flush=True)
            measure(everyone, what, max(1, round(options.rounds * share)))
    found = results.write([each.row() for each in everyone if each.facts])
    print(*results.table(found), sep="\n")
    for each in everyone:
        if not each.facts:
            print(f"\n**{each.module} is missing**: {each.problems['introduction']}")


if __name__ == "__main__":
    main()
