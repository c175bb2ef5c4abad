"""Dask runs the bodies of tools: an executor for ``Toolbox(executor=...)``."""

from __future__ import annotations

from concurrent.futures import Future
from importlib import import_module
from typing import Any

from toolsemble._engine.definition import Policy, ToolDefinition
from toolsemble._engine.work.remote import ClusterExecutor
from toolsemble._runtime.extras import import_extra
from toolsemble._runtime.processes.worker import run_payload
from toolsemble._runtime.threads import ThreadPerJob
from toolsemble._vocabulary.call import new_id
from toolsemble._vocabulary.errors import ToolDefinitionError

_THREADS = ThreadPerJob(daemon=True)

RESOURCES = {"cpus": "CPU", "gpus": "GPU", "memory": "MEMORY"}
"""The names of Dask's resources for the settings of tools; workers offer them with ``--resources "GPU=2"``."""


def executor(client: Any, **options: Any) -> DaskExecutor:
    """Return an executor that runs the blocking bodies of a toolbox as tasks of a Dask cluster.

    Workers need this library, and the modules of the tools unless they are defined in the main program.

    - Dask reruns a task whose worker is lost, and recomputes a result that was lost with its worker; the latter cannot
      be turned off. So only tools that may be retried are accepted, with ``effects="read"`` or ``idempotent=True``.
      Others are refused when the toolbox is built.
    - ``cpus``, ``gpus`` and ``memory`` of a tool are resources named ``CPU``, ``GPU`` and ``MEMORY``, which workers
      must offer: ``dask worker --resources "GPU=2 MEMORY=64e9"``. Until one does, a call waits.
    - At a call's time limit, or if it is cancelled, a task that has not started does not run. Dask cannot stop a
      running task; the event ``call_abandoned`` reports it.

    :param client: a ``distributed.Client``
    :param options: further arguments of ``client.submit``, such as ``workers`` or ``priority``

    .. code-block:: python

        from distributed import Client
        from toolsemble import Toolbox, tool
        from toolsemble.engines.dask import executor

        @tool(effects="read", memory=8 * 2**30)
        def summarize(table: str) -> dict[str, float]:
            return load(table).describe()

        box = Toolbox([summarize], executor=executor(Client("tcp://scheduler:8786")))
    """
    return DaskExecutor(client, options)


class DaskExecutor(ClusterExecutor):
    """The executor of a Dask cluster; use :func:`executor` to create it."""

    cluster = "Dask"
    stops_bodies = False

    def __init__(self, client: Any, options: dict[str, Any]) -> None:
        distributed = import_extra("distributed", extra="dask", user="toolsemble.engines.dask")
        if not isinstance(client, distributed.Client) or client.asynchronous:
            raise ToolDefinitionError(
                f"executor needs a distributed.Client that is not asynchronous, not {client!r:.80}"
            )
        self._client = client
        self._options = options
        self.pickler = import_extra("cloudpickle", extra="dask", user="toolsemble.engines.dask").Pickler

    def check(self, definition: ToolDefinition) -> None:
        """Raise ToolDefinitionError if a tool's body cannot run on the cluster, or must not be retried."""
        if definition.policy is None or not definition.policy.repeatable:
            raise ToolDefinitionError(
                f"Tool '{definition.name}' cannot run on Dask, which reruns the tasks of lost workers; "
                "declare effects='read' or idempotent=True if a call may be repeated, or put the tool into a toolbox "
                "without this executor"
            )
        super().check(definition)

    def send(self, payload: bytes, name: str, policy: Policy) -> Future[bytes]:
        """Submit a task, and return its future."""
        wanted = {RESOURCES[setting]: getattr(policy, setting) for setting in RESOURCES}
        resources = {resource: amount for resource, amount in wanted.items() if amount}
        settings = {**self._options, "key": f"{name}-{new_id()}", "pure": False, "resources": resources or None}
        return _TaskFuture(self._client.submit(run_task, payload, **settings))


class _TaskFuture(Future[bytes]):
    """The future of a task; cancelling it removes the task if it has not started."""

    def __init__(self, task: Any) -> None:
        super().__init__()
        self._task = task
        task.add_done_callback(self._settle)

    def cancel(self) -> bool:
        """Cancel the task on the scheduler; Dask then settles the future."""
        _THREADS.submit(self._task.cancel)  # it blocks on the scheduler, and the caller may be an event loop
        return False

    def _settle(self, task: Any) -> None:
        try:
            result = task.result()
        except BaseException as error:  # raised by the future
            self.set_exception(error)
        else:
            self.set_result(result)


def run_task(payload: bytes) -> bytes:
    """Run a job on a worker, and return its pickled outcome."""
    return run_payload(payload, import_module("cloudpickle").dumps)
