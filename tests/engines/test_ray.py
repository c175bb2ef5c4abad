"""Bodies on Ray: what the executor asks of Ray, which is too heavy for these tests; `make engines` runs it for real."""

import asyncio
import sys
from concurrent.futures import Future
from types import ModuleType

import cloudpickle
import pytest

from toolsemble import Toolbox, ToolCall, ToolContext, ToolDefinitionError, tool
from toolsemble.engines.ray import executor


class FakeRay(ModuleType):
    """The functions of Ray that the executor calls; tasks run at once, or wait for the test."""

    def __init__(self):
        super().__init__("ray")
        self.cloudpickle = ModuleType("ray.cloudpickle")
        self.cloudpickle.CloudPickler = cloudpickle.Pickler
        self.cloudpickle.dumps = cloudpickle.dumps
        self.tasks = []
        self.cancelled = []
        self.waits = False
        self.fails = None

    def remote(self, function):
        return Remote(self, function)

    def cancel(self, reference, *, force):
        self.cancelled.append((reference, force))
        reference.done.set_exception(RuntimeError("cancelled"))


class Remote:
    def __init__(self, ray, function, **options):
        self._ray, self._function, self._options = ray, function, options

    def options(self, **options):
        return Remote(self._ray, self._function, **options)

    def remote(self, payload):
        reference = Reference()
        self._ray.tasks.append(self._options)
        if self._ray.fails is not None:
            reference.done.set_exception(self._ray.fails)
        elif not self._ray.waits:
            reference.done.set_result(self._function(payload))
        return reference


class Reference:
    def __init__(self):
        self.done = Future()

    def future(self):
        return self.done


@pytest.fixture
def ray(monkeypatch):
    made = FakeRay()
    monkeypatch.setitem(sys.modules, "ray", made)
    monkeypatch.setitem(sys.modules, "ray.cloudpickle", made.cloudpickle)
    return made


def work(order: int, context: ToolContext) -> str:
    """Work on an order."""
    return f"{context.run_id} {order}"


def execute(settings, **options):
    box = Toolbox([tool(**settings)(work)], executor=executor(**options))
    return box.execute(ToolCall("work", {"order": 7}), run_id="r1")


@pytest.mark.parametrize(
    ("settings", "retries"),
    [
        ({}, 0),
        ({"effects": "write"}, 0),
        ({"effects": "irreversible"}, 0),
        ({"effects": "read"}, 3),
        ({"effects": "write", "idempotent": True}, 3),
    ],
)
def test_only_calls_that_may_be_repeated_are_retried_by_ray(ray, settings, retries):
    assert execute(settings).text == "r1 7"
    assert ray.tasks == [{"max_retries": retries, "name": "work"}]


def test_resources_and_options_reach_ray(ray):
    execute({"effects": "read", "cpus": 2, "gpus": 0.5, "memory": 2**30}, retries=1, resources={"disk": 1})
    expected = {"num_cpus": 2, "num_gpus": 0.5, "memory": 2**30, "resources": {"disk": 1}}
    assert ray.tasks == [{**expected, "max_retries": 1, "name": "work"}]


def test_a_worker_that_dies_makes_the_outcome_unknown(ray):
    ray.fails = RuntimeError("the worker died")
    assert execute({}).text == (
        "Error: 'work' was lost on Ray, and it is unknown whether it took effect: the worker died"
    )


async def test_a_cancelled_call_ends_the_process_of_its_task(ray):
    ray.waits = True
    calling = asyncio.create_task(Toolbox([tool(work)], executor=executor()).aexecute(ToolCall("work", {"order": 7})))
    async with asyncio.timeout(60):
        while not ray.tasks:
            await asyncio.sleep(0)
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling
    assert [force for _, force in ray.cancelled] == [True]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"retries": -1}, "executor retries must be an int >= 0, not -1"),
        ({"max_retries": 3}, "executor has no option 'max_retries': pass retries="),
        ({"num_gpus": 1}, "executor has no option 'num_gpus': declare gpus="),
    ],
)
def test_wrong_options_are_refused(ray, options, problem):
    with pytest.raises(ToolDefinitionError, match=problem):
        executor(**options)


def test_the_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ToolDefinitionError, match=r"engines\.ray needs the package 'ray': pip install .*ray"):
        executor()
