"""Compare toolsemble with other tool libraries: `compare.py [--rounds 40] [peer …]`.

Each participant works in a process and an environment of its own. Each figure of a peer is measured in pairs with one
of toolsemble, right after each other, peer by peer and round by round; what counts is the ratio within the pairs.
With fourteen peers it takes about a quarter of an hour, most of it for many tools and imports.

The outcome is written to `results/peers.json` after each figure, so that what was measured stays when the rest is
interrupted. Rows of peers that were not asked for stay in the file only where toolsemble's version, Python, the
machine and the day are the same; otherwise they are dropped, as they could not be compared.
"""

from __future__ import annotations

import argparse
import contextlib
import sys

import versus
from comparison import results
from comparison.figure import FIGURES, number
from comparison.participant import Participant
from findings import HERE, Peers, known


def participants(only: list[str]) -> list[Participant]:
    """Return toolsemble, the floor, and the peers whose environments exist."""
    ours = [Participant(module, sys.executable) for module in ("toolsemble", "floor")]
    asked = [peer for peer in known() if peer in (only or known())]
    homes = {peer: HERE / ".envs" / peer for peer in asked}
    installed = {peer: home for peer, home in homes.items() if (home / ".installed").exists()}
    return ours + [Participant(peer.replace("-", "_"), str(home / "bin/python")) for peer, home in installed.items()]


def measure(everyone: list[Participant], what: str, pairs: int) -> None:
    """Go round by round through the participants that have the figure and no problem with it.

    The reference is half of every pair; by itself it is measured only if no other library has the figure.
    """
    reference = everyone[0]
    if not reference.ready(what):
        sys.exit(f"toolsemble cannot be measured: {reference.problems or what}")
    able = [each for each in everyone[1:] if each.ready(what)] or [reference]
    for _ in range(pairs):
        for each in able:
            if not each.done(what):
                each.measure(what, reference)


def measured(everyone: list[Participant], rounds: int) -> Peers:
    """Measure figure after figure, write what there is after each, and give all of it."""
    for what in FIGURES:
        print(f"measuring {what}", file=sys.stderr, flush=True)
        measure(everyone, what, number(what, rounds))
        found = results.write([each.row() for each in everyone if each.facts])
    return found


def main() -> None:
    """Introduce, measure, write, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("peers", nargs="*", help="names of requirements files; all whose environments exist if none")
    parser.add_argument("--rounds", type=int, default=40, help="pairs for each peer's definitions and calls")
    options = parser.parse_args()
    everyone = participants(options.peers)
    with contextlib.ExitStack() as processes:
        for each in everyone:
            each.introduce()
            processes.callback(each.close)
        found = measured(everyone, options.rounds)
    print(*versus.part(found), sep="\n")
    for each in everyone:
        if not each.facts:
            print(f"{each.module} is missing: {each.problems['introduction']}")


if __name__ == "__main__":
    main()
