"""Bodies on a Dask cluster, whose workers are threads of this process."""

import asyncio
import logging

import pytest
from distributed import Client, Event, LocalCluster, get_worker

from helpers.wait import LONG
from toolsemble import Toolbox, ToolCall, ToolContext, ToolDefinitionError, ToolPipeline, tool
from toolsemble._tools.pipeline.step import Step
from toolsemble.engines.dask import executor


@pytest.fixture(scope="module")
def client():
    offered = {"CPU": 4, "GPU": 2, "MEMORY": 2**30}
    where = {
        "processes": False,
        "dashboard_address": "127.0.0.1:0",
        "silence_logs": logging.CRITICAL,
        "protocol": "inproc",
    }
    with (
        LocalCluster(n_workers=1, threads_per_worker=2, resources=offered, **where) as cluster,
        Client(cluster) as made,
    ):
        yield made


@tool(effects="read")
def look(order: int, context: ToolContext) -> list:
    """Look an order up on a worker."""
    task = get_worker().state.tasks[get_worker().get_current_task()]
    return [order, context.idempotency_key, task.resource_restrictions]


def test_a_body_runs_as_a_task_with_its_context(client):
    box = Toolbox([look], executor=executor(client))
    calls = [ToolCall("look", {"order": number}, f"c{number}") for number in (1, 2)]
    replies = [box.execute(calls[0], run_id="r"), *asyncio.run(box.aexecute_all(calls, run_id="r"))]
    assert [reply.result.structured_output for reply in replies] == [
        [1, "r/c1", None],
        [1, "r/c1", None],
        [2, "r/c2", None],
    ]


def test_the_task_has_the_resources_of_its_tool(client):
    heavy = tool(effects="read", cpus=2, gpus=1, memory=2**20)(look.__wrapped__)
    found = Toolbox([heavy], executor=executor(client)).execute(ToolCall("look", {"order": 1}))
    assert found.result.structured_output[2] == {"CPU": 2, "GPU": 1, "MEMORY": 2**20}


def test_options_reach_the_scheduler(client):
    address = next(iter(client.scheduler_info()["workers"]))
    box = Toolbox([look], executor=executor(client, workers=[address]))
    assert box.execute(ToolCall("look", {"order": 3})).result.structured_output[0] == 3


@pytest.mark.parametrize("settings", [{}, {"effects": "write"}, {"effects": "irreversible"}])
def test_tools_that_must_not_be_repeated_are_refused(client, settings):
    @tool(**settings)
    def pay(order: int) -> int:
        """Pay an order."""
        return order

    message = "Tool 'pay' cannot run on Dask, which reruns the tasks of lost workers; declare effects='read'"
    for tools in ([pay], [ToolPipeline("both", "Look, then pay", [Step(pay), Step(look, adapter=str)])]):
        with pytest.raises(ToolDefinitionError, match=message):
            Toolbox(tools, executor=executor(client))
    twice = tool(effects="write", idempotent=True)(pay.__wrapped__)
    assert Toolbox([twice], executor=executor(client)).execute(ToolCall("pay", {"order": 1})).text == "1"


async def test_a_cancelled_call_cancels_a_task_that_waits(client):
    # A resource that no worker offers: the task waits at the scheduler.
    waiting = tool(effects="read", gpus=99)(look.__wrapped__)
    events = []
    box = Toolbox([waiting], executor=executor(client), sinks=[events.append])
    calling = asyncio.create_task(box.aexecute(ToolCall("look", {"order": 1})))
    scheduler = client.cluster.scheduler
    async with asyncio.timeout(LONG):
        while not any(task.state == "no-worker" for task in scheduler.tasks.values()):
            await asyncio.sleep(0.01)
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling
        while scheduler.tasks:
            await asyncio.sleep(0.01)
    box.flush(LONG)
    assert "call_abandoned" in [event.kind for event in events]


def test_a_call_ends_at_its_time_limit_while_the_body_goes_on(client):
    @tool(effects="read", timeout=0.2)
    def hang() -> str:
        """Wait for the test."""
        Event("go on").wait(LONG)
        return "late"

    reply = Toolbox([hang], executor=executor(client)).execute(ToolCall("hang"))
    Event("go on", client).set()
    assert reply.text == "Error: Tool 'hang' timed out after 0.2 s"


@pytest.mark.parametrize("wrong", [None, "tcp://scheduler:8786"])
def test_anything_but_a_client_is_refused(wrong):
    with pytest.raises(ToolDefinitionError, match=r"executor needs a distributed\.Client"):
        executor(wrong)
