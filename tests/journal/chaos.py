"""Kill runs until enough were killed: ``python tests/journal/chaos.py --kills 500``."""

import argparse
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from helpers.chaos import Chaos


def main():
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--kills", type=int, default=500)
    options.add_argument("--seed", type=int, default=1)
    given = options.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder, Chaos(Path(folder), given.seed) as chaos:
        expected = chaos.do_undisturbed("undisturbed")
        while chaos.tally.kills < given.kills:
            chaos.do(f"r{chaos.tally.runs}", expected)
    sys.stdout.write(f"chaos: {chaos.tally}; nothing happened twice; {time.monotonic() - began:.0f} s\n")


if __name__ == "__main__":
    main()
