"""Agents for the tests of engines that drive runs, and what all of those engines have to do."""

import asyncio

import pytest

from helpers.journal_runs import clerk
from helpers.wait import LONG
from toolsemble import Agent, AgentExecutionError, ToolCall, ToolConfigurationError, tool
from toolsemble._vocabulary.errors import RunCancelledError
from toolsemble.models import FunctionModel, UserMessage
from toolsemble.review import Continue, QueueReview, Reject

PAY = ToolCall("pay", {"order": 7})


class EngineRuns:
    """The agents of a worker: one that pays with approval, one that hangs, one that fails at first, one that echoes."""

    def __init__(self, journal, store):
        self.journal = journal
        self.store = store
        self.paid = []
        self.begun = 0
        self.cancelled = 0
        self.failures = 1

        @tool(effects="irreversible", requires_approval=True, approval_timeout=None)
        def pay(order: int) -> str:
            """Pay an order."""
            self.paid.append(order)
            return f"paid {order}"

        @tool(effects="read")
        async def hang() -> str:
            """Wait until it is cancelled."""
            self.begun += 1
            try:
                await asyncio.Event().wait()
            finally:
                self.cancelled += 1

        self.agents = {
            "clerk": clerk(None, [pay], PAY, "Done.", review=QueueReview(store)),
            "hanging": clerk(None, [hang], ToolCall("hang"), "Never."),
            "failing": Agent(FunctionModel(self._fail)),
            "echo": Agent(FunctionModel(self._echo), memory_id=None),
        }

    def _fail(self, request):
        self.failures -= 1
        if self.failures >= 0:
            raise RuntimeError("no credit")
        return "It works again."

    def _echo(self, request):
        return " ".join(message.text for message in request.messages if isinstance(message, UserMessage))


async def wait_for(condition):
    """Wait until a condition holds, a function or a coroutine function; return what it returned."""
    async with asyncio.timeout(LONG):
        while True:
            found = condition()
            found = await found if asyncio.iscoroutine(found) else found
            if found:
                return found
            await asyncio.sleep(0.01)


async def check_runs_to_the_end(engine, runs):
    await engine.begin("echo-1", "echo", "two", history=[UserMessage("one")], memory_id="ada", parameters={"a": 1})
    outcome = await engine.result("echo-1")
    assert (outcome.run_id, outcome.text, outcome.stop_reason) == ("echo-1", "one two", "answer")
    assert runs.journal.find("echo-1").state == "done"


async def check_is_begun_once(engine):
    for _ in range(2):
        await engine.begin("echo-2", "echo", "hello")
    assert (await engine.result("echo-2")).text == "hello"
    await engine.begin("echo-2", "echo", "hello")
    with pytest.raises(ToolConfigurationError, match="Run 'echo-2' was begun with another prompt"):
        await engine.begin("echo-2", "echo", "goodbye")
    with pytest.raises(ToolConfigurationError, match="A run needs run_id, a str, not ''"):
        await engine.begin("", "echo", "hello")
    with pytest.raises(ToolConfigurationError, match="The parameters of run 'r' are not JSON values"):
        await engine.begin("r", "echo", "hello", parameters={"x": object()})


async def check_answers(engine, runs):
    """Three runs are parked; one is approved by a message, one rejected by a message, one approved in the store."""
    ids = ["pay-1", "pay-2", "pay-3"]
    for run_id in ids:
        await engine.begin(run_id, "clerk", "Pay order 7")
    asked = {run_id: (await wait_for(lambda run_id=run_id: engine.waiting(run_id)))[0] for run_id in ids}
    assert [request.run_id for request in asked.values()] == ids
    assert runs.journal.find("pay-1").state == "waiting"
    await engine.answer("pay-1", asked["pay-1"], Continue(), person="ada")
    await engine.answer("pay-2", asked["pay-2"], Reject("too much"), person="ada", role="boss")
    runs.store.answer(asked["pay-3"], Continue(), person="bob")
    assert [(await engine.result(run_id)).text for run_id in ids] == ["Done."] * 3
    assert runs.paid == [7, 7]
    assert await engine.waiting("pay-1") == []


async def check_cancels(engine, runs):
    """A run is cancelled while a call is in flight, and one while it is parked."""
    await engine.begin("hang-1", "hanging", "wait")
    await wait_for(lambda: runs.begun)
    await engine.cancel("hang-1")
    await engine.begin("pay-9", "clerk", "Pay order 7")
    await wait_for(lambda: engine.waiting("pay-9"))
    await engine.cancel("pay-9")
    for run_id in ("hang-1", "pay-9"):
        with pytest.raises(RunCancelledError, match=f"Run '{run_id}' was cancelled"):
            await engine.result(run_id)
        await wait_for(lambda run_id=run_id: runs.journal.find(run_id).state == "cancelled")
    await wait_for(lambda: runs.cancelled)


async def check_failures(engine):
    await engine.begin("fail-1", "failing", "go")
    with pytest.raises(AgentExecutionError, match=r"Run 'fail-1' failed: .*no credit"):
        await engine.result("fail-1")
    await engine.begin("fail-1", "failing", "go")
    assert (await engine.result("fail-1")).text == "It works again."
    await engine.begin("none-1", "unknown", "go")
    with pytest.raises(AgentExecutionError, match="This worker has no agent 'unknown'; it has clerk, hanging"):
        await engine.result("none-1")
