"""A cluster of threads: bodies are pickled and run as on workers, and a test decides when they end."""

import threading
from concurrent.futures import Future

import cloudpickle

from toolsemble._engine.work.remote import ClusterExecutor
from toolsemble._runtime.processes.worker import run_payload


class ThreadCluster(ClusterExecutor):
    """Runs each job in a thread, with what it has received; keeps what it was sent."""

    cluster = "the test cluster"
    pickler = cloudpickle.Pickler

    def __init__(self, *, stops_bodies=True, lose=None):
        self.stops_bodies = stops_bodies
        self.sent = []
        self.cancelled = 0
        self._lose = lose

    def send(self, payload, name, policy):
        future = _Sent(self)
        self.sent.append((name, policy))
        if self._lose is not None:
            self._lose(future)
        else:
            run = lambda: future.set_result(run_payload(payload, cloudpickle.dumps))  # noqa: E731 - a target
            threading.Thread(target=run, daemon=True).start()
        return future


class _Sent(Future):
    def __init__(self, cluster):
        super().__init__()
        self._cluster = cluster

    def cancel(self):
        self._cluster.cancelled += 1
        return False
