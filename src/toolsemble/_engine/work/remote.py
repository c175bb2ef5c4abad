"""Run a body outside of this process: in a worker process, or on a cluster."""

from __future__ import annotations

import pickle
from abc import abstractmethod
from collections.abc import Callable
from concurrent.futures import Executor, Future
from dataclasses import replace
from functools import cache, partial
from io import BytesIO
from typing import Any, ParamSpec, TypeVar

from toolsemble._engine.context import ToolContext
from toolsemble._engine.definition import Policy, ToolDefinition
from toolsemble._engine.record import count_and_log
from toolsemble._engine.work.body import Job, Start, TimedOutError, check_time_left, unwrap_remote_outcome
from toolsemble._engine.work.timeout import DAEMON_THREADS, wait_for_job
from toolsemble._runtime.event_loops import Outcome, finish
from toolsemble._runtime.locks import keep_until_done
from toolsemble._runtime.processes.memory_limit import run_within_memory
from toolsemble._runtime.text import describe_error
from toolsemble._runtime.threads import GRACE, JobFuture, wait_for, wait_until
from toolsemble._runtime.watchers import tell
from toolsemble._vocabulary.errors import LostError, ToolDefinitionError, ToolExecutionError
from toolsemble.events import CallAbandoned


class RemoteBody:
    """The body of a tool with its input, to be run outside of this process."""

    __slots__ = ("_context", "_definition", "_sent", "_value")

    def __init__(self, definition: ToolDefinition, value: Any, context: ToolContext) -> None:
        self._definition = definition
        self._value = value
        self._context = context
        self._sent: Callable[[], None] | None = None

    def track_start(self, start: Start) -> None:
        """Report to a start when the body is sent: this process cannot see when it begins."""
        self._sent = start.begin


class RunInProcess(RemoteBody):
    """Run the body of a tool with its input in a worker process, until the deadline."""

    __slots__ = ()

    def do(self) -> Any:
        """Wait for it in this thread."""
        job = self._prepare()
        check_time_left(self._context)
        future: JobFuture[Any] = JobFuture()
        try:
            DAEMON_THREADS.start(future, job)
            wait_until(future, self._context.deadline)
        finally:
            late = not future.done()
            if late:
                job.cancel()
        if late:
            wait_for(future, GRACE)  # the killed process is gone when the call ends
            raise TimedOutError
        return unwrap_remote_outcome(future.result())

    async def ado(self) -> Any:
        """Wait for it, and let other tasks run."""
        job = self._prepare()
        check_time_left(self._context)
        return unwrap_remote_outcome(await wait_for_job(DAEMON_THREADS.submit(job), self._context, job.cancel))

    def _prepare(self) -> Any:
        from toolsemble._runtime.processes.pool import ProcessJob

        try:
            job = Job(self._definition, self._value, self._context, DAEMON_THREADS)
            max_memory = self._definition.policy.max_memory  # type: ignore[union-attr]  # isolation="process" is a policy
            payload = pickle.dumps(job if max_memory is None else partial(run_within_memory, job, max_memory))
        except Exception as error:
            raise ToolExecutionError(f"The call cannot be sent to a worker process: {describe_error(error)}") from error
        return ProcessJob(payload, self._sent)


P = ParamSpec("P")
T = TypeVar("T")

_ELSEWHERE = "put it into a toolbox without this executor"
_STAY_HERE = {
    "parameters": "InvocationParameters, and changes made there would be lost",
    "deps": "ToolContext[...], and the dependencies of a run are not sent there",
}


class ClusterExecutor(Executor):
    """An executor whose jobs run on the workers of a cluster; the base class of those for Ray and Dask.

    In a toolbox it runs the blocking bodies, of sync calls as well. Async and inline bodies, and those with
    ``isolation="process"``, run on this machine.
    """

    cluster: str = "the cluster"
    """The name of the cluster in messages."""
    stops_bodies: bool = True
    """Whether cancelling a job stops a body that has begun."""
    pickler: Any = pickle.Pickler
    """The class of picklers that the cluster has: that of ``cloudpickle``."""

    @abstractmethod
    def send(self, payload: bytes, name: str, policy: Policy) -> Future[bytes]:
        """Start ``run_payload`` with a payload on a worker, and return the future of what that returns.

        Cancelling the future stops the job, as far as the cluster can.

        :param name: the name of the tool
        :param policy: what the tool declares: its resources, and whether a call may be repeated
        """

    def dumps(self, value: object) -> bytes:
        """Return a value pickled for a worker; functions that it could not import are pickled by value."""
        with BytesIO() as written:
            _make_pickler(self.pickler)(written).dump(value)
            return written.getvalue()

    def check(self, definition: ToolDefinition) -> None:
        """Raise ToolDefinitionError if the body of a tool cannot run on the cluster."""
        for field, problem in _STAY_HERE.items():
            if field in definition.sees:
                raise ToolDefinitionError(
                    f"Tool '{definition.name}' cannot run on {self.cluster}: it takes {problem}; {_ELSEWHERE}"
                )
        try:
            self.dumps(definition.body)
        except Exception as problem:
            raise ToolDefinitionError(
                f"Tool '{definition.name}' cannot be sent to {self.cluster}: {describe_error(problem)}; {_ELSEWHERE}"
            ) from problem

    def place(self, definition: ToolDefinition) -> ToolDefinition:
        """Return the definition of a tool with a body that runs on the cluster, if it blocks; raise if it cannot."""
        policy = definition.policy or Policy()
        elsewhere = policy.cluster is not None or policy.isolation == "process"
        if elsewhere or definition.awaits or definition.inline or definition.flow is not None:
            return definition
        self.check(definition)
        return replace(definition, policy=replace(policy, cluster=self))

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Call a function on a worker; tools reach this by ``context.executor``.

        It is not retried, except by a cluster that repeats whatever its workers lose, as Dask does.
        """
        payload = self.dumps(partial(_capture, partial(fn, *args, **kwargs)))
        called: JobFuture[T] = JobFuture()
        called.set_running_or_notify_cancel()
        name = getattr(fn, "__name__", "a function")
        self.send(payload, name, Policy()).add_done_callback(partial(_settle_call, called, name, self.cluster))
        return called


class RunOnCluster(RemoteBody):
    """Run the body of a tool with its input on a cluster, until the deadline."""

    __slots__ = ()

    def do(self) -> Any:
        """Wait for it in this thread."""
        ended, give_up = self._start()
        try:
            wait_until(ended, self._context.deadline)
        finally:
            late = not ended.done()
            if late:
                give_up()
        if late:
            raise TimedOutError
        return unwrap_remote_outcome(ended.result())

    async def ado(self) -> Any:
        """Wait for it, and let other tasks run."""
        ended, give_up = self._start()
        return unwrap_remote_outcome(await wait_for_job(ended, self._context, give_up))

    def _start(self) -> tuple[Future[Outcome], Callable[[], None]]:
        """Send the body; return the future of its outcome, and a function that gives it up."""
        seconds, definition = check_time_left(self._context), self._definition
        policy: Any = definition.policy
        cluster: ClusterExecutor = policy.cluster
        job = Job(definition, self._value, self._context, cluster, finish)
        try:
            payload = cluster.dumps(partial(job.run_for, seconds))
        except Exception as error:
            raise ToolExecutionError(
                f"The call cannot be sent to {cluster.cluster}: {describe_error(error)}"
            ) from error
        if self._sent is not None:
            self._sent()
        ended: JobFuture[Outcome] = JobFuture()
        ended.set_running_or_notify_cancel()  # whoever stops waiting cannot cancel it: it ends when the body does
        sent = cluster.send(payload, definition.name, policy)
        sent.add_done_callback(partial(_settle, ended, definition.name, cluster.cluster))
        keep_until_done(ended)
        return ended, partial(self._give_up, sent, cluster)

    def _give_up(self, sent: Future[bytes], cluster: ClusterExecutor) -> None:
        sent.cancel()
        if not cluster.stops_bodies:
            name = self._definition.name
            line = f"The body of '{name}' may still be running on {cluster.cluster}, which cannot stop it"
            count_and_log(self._context, "abandoned_jobs", line)
            tell(CallAbandoned.of(self._context))


@cache
def _make_pickler(base: Any) -> Any:
    """Return a class of picklers that pickle a tool by value if a worker could not import it."""

    class ToolPickler(base):
        def reducer_override(self, value: Any) -> Any:
            reduce = getattr(type(value), "reduce_by_value", None)
            reduced = NotImplemented if reduce is None else reduce(value)
            return super().reducer_override(value) if reduced is NotImplemented else reduced

    return ToolPickler


def _capture(function: Callable[[], Any]) -> Outcome:
    """Return the outcome of a function."""
    try:
        return [function(), None]
    except Exception as error:  # raised by the future
        return [None, error]


def _settle(ended: Future[Outcome], name: str, cluster: str, sent: Future[bytes]) -> None:
    """Set the outcome of a body; if there is none, nobody knows how far the body got."""
    try:
        ended.set_result(_read(sent, name, cluster))
    except LostError as error:
        ended.set_exception(error)


def _settle_call(called: Future[Any], name: str, cluster: str, sent: Future[bytes]) -> None:
    """Set the result of a function that was called on a worker."""
    try:
        called.set_result(unwrap_remote_outcome(_read(sent, name, cluster)))
    except Exception as error:  # raised by the future
        called.set_exception(error)


def _read(sent: Future[bytes], name: str, cluster: str) -> Outcome:
    """Return the outcome that a worker sent back; raise LostError if there is none."""
    try:
        outcome: Outcome = pickle.loads(sent.result())  # noqa: S301 - written by a worker of the program's own cluster
    except BaseException as error:
        reason = "it was cancelled there" if sent.cancelled() else describe_error(error)
        raise LostError(
            f"'{name}' did not come back from {cluster}, and it is unknown whether it took effect: {reason}"
        ) from error
    return outcome
