"""Check one engine in its own environment, and print what was found as a line of JSON: `check.py ENGINE [postgres]`.

With ``postgres``, the journal and the review store are in a Postgres database.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from chaos import Chaos
from cluster_chaos import ClusterChaos
from workload import Places

from helpers.postgres_server import postgres_server

KILLS, SEED = 20, 7


def find_port() -> int:
    """Return a free port of this machine."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@contextmanager
def temporal_server(folder: Path) -> Iterator[str]:
    """Start the development server of Temporal, which keeps its state in a file."""
    program, port = Path(sys.executable).with_name("temporal"), find_port()
    where = ["--ip", "127.0.0.1", "--port", str(port), "--db-filename", str(folder / "temporal.db")]
    command = [str(program), "server", "start-dev", "--headless", "--log-level", "never", *where]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait()


async def connect(address: str) -> Any:
    """Return a client, when the server is there."""
    from temporalio.client import Client

    async with asyncio.timeout(60):
        while True:
            try:
                return await Client.connect(address)
            except RuntimeError:
                await asyncio.sleep(0.1)


async def check_temporal(places: Places) -> dict[str, Any]:
    from toolsemble.engines.temporal import TemporalEngine

    with temporal_server(places.folder) as address:
        engine = TemporalEngine(await connect(address), heartbeat=1, poll=0.5)
        return await Chaos("temporal", places, engine, kills=KILLS, seed=SEED, args=(address,)).run()


async def check_dbos(places: Places) -> dict[str, Any]:
    from dbos import DBOSClient

    from toolsemble.engines.dbos import DBOSEngine

    url = f"sqlite:///{places.folder}/dbos.sqlite"
    engine = DBOSEngine(client=DBOSClient(system_database_url=url))
    return await Chaos("dbos", places, engine, kills=KILLS, seed=SEED, args=(url,)).run()


async def check_ray(places: Places) -> dict[str, Any]:
    import ray

    from toolsemble.engines.ray import executor

    os.environ["RAY_AUTH_MODE"] = "disabled"  # a cluster of one machine, on its loopback device
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    try:
        return await ClusterChaos(places, executor(), ["look", "label", "charge"], kills=10, seed=SEED).run()
    finally:
        ray.shutdown()


async def check_dask(places: Places) -> dict[str, Any]:
    import dask
    from distributed import Client, LocalCluster

    from toolsemble.engines.dask import executor

    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    # A local cluster gives a worker up that is not there 15 s after it was lost; one that is killed often may not be.
    dask.config.set({"distributed.deploy.lost-worker-timeout": "1 hour"})
    where = {
        "dashboard_address": "127.0.0.1:0",
        "local_directory": str(places.folder),
        "silence_logs": logging.CRITICAL,
    }
    with LocalCluster(n_workers=2, threads_per_worker=1, **where) as cluster, Client(cluster) as client:
        return await ClusterChaos(places, executor(client), ["look", "label"], kills=10, seed=SEED).run()


CHECKS = {"temporal": check_temporal, "dbos": check_dbos, "ray": check_ray, "dask": check_dask}
PACKAGES = {"temporal": "temporalio", "dbos": "dbos", "ray": "ray", "dask": "distributed"}


@contextmanager
def places(where: str) -> Iterator[Places]:
    """Return an empty place for a check, in files or on a Postgres server."""
    with tempfile.TemporaryDirectory() as folder:
        if where != "postgres":
            yield Places(folder)
            return
        with postgres_server() as server:
            yield Places(folder, server.new_url())


if __name__ == "__main__":
    _, engine, *where = sys.argv
    with places(*where or ["files"]) as found_places:
        found = asyncio.run(CHECKS[engine](found_places))
    print(json.dumps({"version": version(PACKAGES[engine]), **found}))
