"""Kill workers on machines that share a Postgres: ``python tests/storage/chaos.py --kills 100``."""

import argparse
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from helpers.chaos import Chaos
from helpers.machines import Machines
from helpers.postgres_server import postgres_server

RUNS = 6


def kill_workers(server, kills, seed):
    """Kill one of two workers again and again, while there are runs; return what happened."""
    total, runs, twice = 0, 0, []
    while total < kills:
        with (
            tempfile.TemporaryDirectory() as folder,
            Machines(folder, server.new_url(), seed + total, RUNS) as machines,
        ):
            machines.work_until_done(min(10, kills - total))
            twice += machines.find_repeated()
            ends = {result["text"] for result in machines.read_results()}
        assert (ends, twice) == ({"Settled."}, [])
        total, runs = total + machines.kills, runs + RUNS
    return f"{runs} runs, {total} workers killed"


def kill_drivers(server, kills, seed):
    """Kill the drivers of runs at random moments; return what happened."""
    with tempfile.TemporaryDirectory() as folder, Chaos(Path(folder), seed, server.new_url()) as chaos:
        expected = chaos.do_undisturbed("undisturbed")
        while chaos.tally.kills < kills:
            chaos.do(f"r{chaos.tally.runs}", expected)
        return f"{chaos.tally}"


def main():
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--kills", type=int, default=100)
    options.add_argument("--seed", type=int, default=1)
    given = options.parse_args()
    for chaos in (kill_workers, kill_drivers):
        began = time.monotonic()
        with postgres_server() as server:
            if server is None:
                sys.exit("There is no Postgres server; install postgresql, or the extra dev")
            found = chaos(server, given.kills, given.seed)
        sys.stdout.write(f"chaos on Postgres: {found}; nothing happened twice; {time.monotonic() - began:.0f} s\n")


if __name__ == "__main__":
    main()
