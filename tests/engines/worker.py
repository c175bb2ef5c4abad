"""A worker of an engine, as a separate process: `worker.py ENGINE FOLDER NAME [ADDRESS]`."""

from __future__ import annotations

import asyncio
import sys

from workload import Places, make_clerk


async def run_temporal(places: Places, name: str, address: str) -> None:
    from temporalio.client import Client

    from toolsemble.engines.temporal import TemporalEngine

    client = await Client.connect(address, identity=name)
    agents, store = {"clerk": make_clerk(places)}, places.store()
    engine = TemporalEngine(client, agents, journal=places.journal(park_after=0.2), store=store, heartbeat=1, poll=0.5)
    async with engine.worker(at_once=4):
        print("ready", flush=True)
        await asyncio.Event().wait()


async def run_dbos(places: Places, name: str, url: str) -> None:
    from dbos import DBOS

    from toolsemble.engines.dbos import DBOSEngine

    DBOS(
        config={
            "name": "chaos",
            "system_database_url": url,
            "application_version": "1",
            "executor_id": name,
            "log_level": "CRITICAL",
        }
    )
    agents, store = {"clerk": make_clerk(places)}, places.store()
    engine = DBOSEngine(agents, journal=places.journal(park_after=0.2), store=store, poll=0.2)
    DBOS.launch()
    await engine.listen(at_once=4)
    print("ready", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    _, engine, folder, name, *args = sys.argv
    asyncio.run({"temporal": run_temporal, "dbos": run_dbos}[engine](Places(folder), name, *args))
