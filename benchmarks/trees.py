"""Compare this tree with another checkout of toolsemble: `trees.py ../other [--seconds 2] [--only TEXT]`.

Both trees run the benchmarks of this one, each in a process of its own, in turns: what slows the machine down for a
while slows both of them. The ratio of a row is this tree's time to the other's, the median of the pairs; a row that the
other tree cannot run is left out.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import IO, cast

from cells import seconds
from ratio import Pair, compared
from timing import WALL

HERE = Path(__file__).resolve().parent
LEAST = 9
"""How many pairs a row has at the least."""


class Tree:
    """A process that runs the benchmarks with the package of one checkout, a go at a time."""

    def __init__(self, root: Path) -> None:
        path = root / "src" / "toolsemble"
        if not path.is_dir():
            raise SystemExit(f"{root} has no src/toolsemble; name a checkout of toolsemble")
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(path.parent), str(HERE)])}
        self._process = subprocess.Popen(  # noqa: S603 - this file
            [sys.executable, __file__, "--serve"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            cwd=HERE,
            text=True,
        )
        self._questions = cast("IO[str]", self._process.stdin)
        self._answers = cast("IO[str]", self._process.stdout)

    def ask(self, line: str) -> str:
        """Return the answer to a line."""
        self._questions.write(f"{line}\n")
        self._questions.flush()
        return self._answers.readline().rstrip("\n")

    def advance(self) -> str:
        """Go to the next row, and return its name; "" behind the last one."""
        return self.ask("next")

    def time(self) -> float:
        """Return the seconds of one go of the row; 0 if the tree cannot run it."""
        return float(self.ask("go") or "0")

    def close(self) -> None:
        """End the process."""
        self._process.communicate()


def serve(lines: IO[str], answers: IO[str]) -> None:
    """Answer each line: `next` with the name of the next row, `go` with the seconds of one go of the row."""
    from run import PARTS

    # What a row needs, such as a server, runs only until the next row is asked for.
    rows = (each for part in PARTS for each in part.comparisons() if each.subject.unit == "s")
    row = None
    for line in lines:
        if line.strip() == "next":
            row = next(rows, None)
            print("" if row is None else row.subject.what, file=answers, flush=True)
            continue
        try:
            took = 0.0 if row is None else row.ours()
        except Exception as problem:  # an older tree lacks what the row is about
            print(f"{row and row.subject.what}: {problem}", file=sys.stderr)
            took = 0.0
        print(took, file=answers, flush=True)


def pairs(this: Tree, other: Tree, duration: float) -> Iterator[Pair]:
    """Measure a row in both trees by turns, after a go each that warms up; nothing if one of them cannot run it."""
    if not (this.time() and other.time()):
        return
    end, made = WALL() + duration, 0
    while made < LEAST or WALL() < end:
        yield this.time(), other.time()
        made += 1


def main() -> None:
    """Compare, and print a line for each row."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("other", nargs="?", type=Path, help="the other checkout")
    parser.add_argument("--seconds", type=float, default=2.0, help="how long each row is measured")
    parser.add_argument("--only", default="", help="only rows with this text in their names")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        # A benchmark's output must not mix with the answers.
        answers, sys.stdout = sys.stdout, sys.stderr
        serve(sys.stdin, answers)
        return
    if given.other is None:
        parser.error("name the other checkout")
    with ExitStack() as trees:
        this, other = Tree(HERE.parent), Tree(given.other.resolve())
        trees.callback(this.close)
        trees.callback(other.close)
        while name := this.advance():
            other.advance()
            found = list(pairs(this, other, given.seconds)) if given.only in name else []
            if found:
                row = compared(found)
                print(
                    f"{row['ratio']:6.3f}  ({row['low']:.2f} to {row['high']:.2f})  {seconds(found[0][0]):>9}  {name}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
