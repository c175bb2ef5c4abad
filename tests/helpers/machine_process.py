"""A worker on a separate machine: other processes cannot check whether it is running.

``python machine_process.py NAME FOLDER URL RUN…`` works on the runs, each with an agent of its own, until it is ended.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from helpers.chaos_shop import Shop, open_journal, open_store
from toolsemble._runtime.storage import database
from toolsemble.review import QueueReview

LEASE = 1.5


def agents(folder, store, run_ids):
    """Return the agents of runs by name."""
    review = QueueReview(store, poll=0.05)
    shops = {f"clerk-{each}": Shop(folder / "effects.log", each) for each in run_ids}
    return {name: shop.agent(None, review, name) for name, shop in shops.items()}


async def main(name, folder, url, *run_ids):
    database._place = lambda: name
    with open_journal(folder, url, lease=LEASE, park_after=0) as runs, open_store(folder, url) as store:
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        await runs.work(agents(Path(folder), store, run_ids), at_once=2, poll=0.2)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
