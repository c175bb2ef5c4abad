"""Ray runs the bodies of tools: an executor for ``Toolbox(executor=...)``."""

from __future__ import annotations

from concurrent.futures import Future
from importlib import import_module
from typing import Any

from toolsemble._engine.definition import Policy
from toolsemble._engine.work.remote import ClusterExecutor
from toolsemble._runtime.checks import check_count
from toolsemble._runtime.extras import import_extra
from toolsemble._runtime.processes.worker import run_payload
from toolsemble._vocabulary.errors import ToolDefinitionError

_OURS = {
    "max_retries": "pass retries=... instead; only calls that may be retried are",
    "num_cpus": "declare cpus=... on the tool",
    "num_gpus": "declare gpus=... on the tool",
    "memory": "declare memory=... on the tool",
}


def executor(*, retries: int = 3, **options: Any) -> RayExecutor:
    """Return an executor that runs the blocking bodies of a toolbox as tasks of a Ray cluster.

    The program connects to the cluster with ``ray.init(...)``; without it, Ray starts one on this machine. Workers need
    this library, and the modules of the tools unless they are defined in the main program.

    - A call whose worker dies is retried only if its tool is read-only or idempotent. Any other call is made at most
      once, and fails with a message that its outcome is unknown.
    - Ray reserves a tool's ``cpus``, ``gpus`` and ``memory`` for each call.
    - At a call's time limit, or if it is cancelled, Ray kills the process that runs the body.

    :param retries: how often Ray retries such a call when its worker dies
    :param options: further options of Ray tasks, such as ``runtime_env``, ``resources`` or ``scheduling_strategy``

    .. code-block:: python

        import ray
        from toolsemble import Toolbox, tool
        from toolsemble.engines.ray import executor

        @tool(effects="read", gpus=1)
        def embed(texts: list[str]) -> list[list[float]]:
            return model.encode(texts)

        ray.init("ray://head:10001")
        box = Toolbox([embed], executor=executor())
    """
    return RayExecutor(retries, options)


class RayExecutor(ClusterExecutor):
    """The executor of a Ray cluster; use :func:`executor` to create it."""

    cluster = "Ray"

    def __init__(self, retries: int, options: dict[str, Any]) -> None:
        check_count("executor retries", retries, least=0)
        for name in options.keys() & _OURS.keys():
            raise ToolDefinitionError(f"executor has no option {name!r}: {_OURS[name]}")
        self._ray = import_extra("ray", extra="ray", user="toolsemble.engines.ray")
        self._retries = retries
        self._options = options
        self.pickler = import_extra("ray.cloudpickle", extra="ray", user="toolsemble.engines.ray").CloudPickler

    def send(self, payload: bytes, name: str, policy: Policy) -> Future[bytes]:
        """Start a task, and return its future; cancelling it kills the task's process."""
        wanted = {"num_cpus": policy.cpus, "num_gpus": policy.gpus, "memory": policy.memory}
        chosen = {option: value for option, value in wanted.items() if value is not None}
        # Without retries, Ray neither reruns a task whose worker died nor recomputes a lost result.
        retries = self._retries if policy.repeatable else 0
        task = self._ray.remote(run_task).options(**self._options, **chosen, max_retries=retries, name=name)
        return _TaskFuture(self._ray, task.remote(payload))


class _TaskFuture(Future[bytes]):
    """The future of a task; it is done when the task is, even if it is cancelled."""

    def __init__(self, ray: Any, reference: Any) -> None:
        super().__init__()
        self._ray = ray
        self._reference = reference
        reference.future().add_done_callback(self._settle)

    def cancel(self) -> bool:
        """Kill the process that runs the task; the future is done when Ray reports its end."""
        self._ray.cancel(self._reference, force=True)
        return False

    def _settle(self, done: Future[bytes]) -> None:
        error = done.exception()
        if error is None:
            self.set_result(done.result())
        else:
            self.set_exception(error)


def run_task(payload: bytes) -> bytes:
    """Run a job on a worker, and return its pickled outcome."""
    return run_payload(payload, import_module("ray.cloudpickle").dumps)
