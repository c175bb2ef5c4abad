"""Bodies on a cluster: what is sent with them, what is returned, and what is refused before a call."""

import asyncio
import logging
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from helpers.isolated_tools import where as isolated
from helpers.thread_cluster import ThreadCluster
from helpers.wait import LONG
from toolsemble import (
    Agent,
    InMemoryMetrics,
    InvocationParameters,
    RateLimit,
    RunJournal,
    SchemaTool,
    Secret,
    Tool,
    Toolbox,
    ToolCall,
    ToolContext,
    ToolDefinitionError,
    ToolExecutionError,
    ToolPipeline,
    tool,
)
from toolsemble.models import ScriptedModel
from toolsemble.telemetry import OpenTelemetry


@pytest.fixture
def cluster():
    return ThreadCluster()


@tool
def where(x: int, context: ToolContext) -> list:
    """Return where the body runs, and what it knows of its call."""
    left = None if context.deadline is None else context.deadline - time.monotonic()
    return [x, threading.current_thread() is threading.main_thread(), context.memory_id, context.idempotency_key, left]


def run(box, call, **settings):
    """Return the replies of a call, executed in each of the ways."""
    return [
        box.execute(call, **settings),
        asyncio.run(box.aexecute(call, **settings)),
        *box.execute_all([call, call], **settings),
        *asyncio.run(box.aexecute_all([call, call], **settings)),
    ]


def test_blocking_bodies_run_on_the_cluster_in_every_kind_of_call(cluster):
    box = Toolbox([where], executor=cluster, memory_id="ada")
    replies = run(box, ToolCall("where", {"x": 1}, "c1"), run_id="r1")
    assert [reply.result.structured_output for reply in replies] == [[1, False, "ada", "r1/c1", None]] * 6
    assert [name for name, _ in cluster.sent] == ["where"] * 6


def test_functions_that_a_worker_could_not_import_are_sent_by_value(cluster):
    offset = 40

    @tool
    def add(a: int, /, b: int = 1, *, context: ToolContext) -> int:
        """Add."""
        return a + b + offset + len(context.memory_id)

    @tool
    def double(a: int) -> int:
        """Double."""
        return add(a, b=a, context=ToolContext(memory_id=""))

    box = Toolbox([add, double], executor=cluster, memory_id="ada")
    assert box.execute(ToolCall("add", {"a": 1})).text == "45"
    assert box.execute(ToolCall("double", {"a": 2})).text == "44"


def test_methods_classes_and_schema_tools_are_sent_as_well(cluster):
    class Shout(Tool):
        name = "shout"
        description = "Says it louder"

        def run(self, input):
            return input.upper()

    class Shop:
        def __init__(self):
            self.name = "shop"

        @tool
        def greet(self) -> str:
            """Greet."""
            return f"Welcome to the {self.name}"

        @tool
        @staticmethod
        def leave(context: ToolContext) -> str:
            """Leave."""
            return f"Goodbye, {context.memory_id}"

        @tool
        @classmethod
        def open(cls) -> str:
            """Open."""
            return cls.__name__

    twice = SchemaTool("twice", "", lambda arguments: arguments["x"] * 2, {"type": "object", "properties": {"x": {}}})
    box = Toolbox([Shout(), Shop(), twice], executor=cluster, memory_id="ada")
    calls = [
        ToolCall("shout", {"input": "hello"}),
        ToolCall("twice", {"x": 4}),
        *map(ToolCall, ("greet", "leave", "open")),
    ]
    told = [reply.text for reply in box.execute_all(calls)]
    assert told == ["HELLO", "8", "Welcome to the shop", "Goodbye, ada", "Shop"]
    assert len(cluster.sent) == 5


def test_subclasses_of_tools_are_pickled_as_they_say(cluster):
    class Own(SchemaTool):
        def __reduce__(self):
            return Own, ("own", "", str)

    assert Toolbox([Own("own", "", str)], executor=cluster).execute(ToolCall("own")).text == "{}"


def test_async_inline_and_isolated_bodies_stay_here(cluster):
    @tool
    async def wait() -> bool:
        """Wait."""
        return threading.current_thread() is threading.main_thread()

    @tool(inline=True)
    def quick() -> bool:
        """Be quick."""
        return threading.current_thread() is threading.main_thread()

    box = Toolbox([wait, quick, isolated], executor=cluster)
    assert [reply.text for reply in asyncio.run(box.aexecute_all([ToolCall("wait"), ToolCall("quick")]))] == [
        "true"
    ] * 2
    assert cluster.sent == []


def test_steps_of_a_pipeline_are_sent_one_by_one(cluster):
    @tool
    def first(x: int) -> int:
        """Add one."""
        return x + 1

    @tool
    def second(x: int) -> int:
        """Double."""
        return x * 2

    box = Toolbox([ToolPipeline.of(first, second)], executor=cluster)
    assert box.execute(ToolCall("first_then_second", {"x": 1})).text == "4"
    assert [name for name, _ in cluster.sent] == ["first", "second"]


def test_a_toolbox_inside_another_keeps_its_cluster(cluster):
    box = Toolbox([Toolbox([where], executor=cluster)], executor=ThreadCluster())
    assert box.execute(ToolCall("where", {"x": 1})).result.structured_output[0] == 1
    assert len(cluster.sent) == 1


def test_body_that_returns_an_awaitable_is_awaited_there(cluster):
    @tool
    def start() -> str:
        """Start."""

        async def finish():
            return "finished"

        return finish()

    assert Toolbox([start], executor=cluster).execute(ToolCall("start")).text == "finished"


def test_errors_come_back_as_they_were_raised(cluster):
    @tool
    def fail(kind: str) -> str:
        """Fail."""
        if kind == "exit":
            sys.exit(3)
        raise {"key": KeyError("rome"), "told": ToolExecutionError("The service is down")}[kind]

    box = Toolbox([fail], executor=cluster)
    assert [box.execute(ToolCall("fail", {"kind": kind})).text for kind in ("key", "told", "exit")] == [
        "Error: KeyError: 'rome'",
        "Error: The service is down",
        "Error: The tool raised SystemExit(3) in its worker process",
    ]


def test_objects_that_cannot_be_sent_are_errors(cluster):
    @tool
    def lock() -> object:
        """Return what no other process can have."""
        return threading.Lock()

    class Holder(Tool):
        name = "holder"
        description = "Holds a lock"

        def __init__(self):
            self.lock = None

        def run(self, input):
            return input

    holder = Holder()
    box = Toolbox([lock, holder], executor=cluster)
    assert "The result cannot be sent back from the worker process" in box.execute(ToolCall("lock")).text
    holder.lock = threading.Lock()
    told = box.execute(ToolCall("holder", {"input": "x"})).text
    assert told.startswith("Error: The call cannot be sent to the test cluster: ")
    with pytest.raises(ToolDefinitionError, match=r"Tool 'holder' cannot be sent to the test cluster: .* put it"):
        Toolbox([holder], executor=cluster)


@pytest.mark.parametrize(
    ("kind", "problem"),
    [(InvocationParameters, "changes made there would be lost"), (ToolContext[int], "dependencies")],
)
def test_tools_that_need_what_stays_here_are_refused(cluster, kind, problem):
    def take(given):
        return 1

    take.__annotations__["given"] = kind
    with pytest.raises(ToolDefinitionError, match=f"Tool 'take' cannot run on the test cluster: .*{problem}"):
        Toolbox([tool(take)], executor=cluster)


def lose_with(error):
    return lambda future: future.set_exception(error)


def lose_cancelled(future):
    super(type(future), future).cancel()
    future.set_running_or_notify_cancel()


@pytest.mark.parametrize(
    ("lose", "reason"),
    [(lose_with(RuntimeError("the worker died")), "the worker died"), (lose_cancelled, "it was cancelled there")],
)
def test_a_call_that_does_not_come_back_has_an_unknown_outcome(lose, reason):
    box = Toolbox([where], executor=ThreadCluster(lose=lose))
    text = f"Error: 'where' was lost on the test cluster, and it is unknown whether it took effect: {reason}"
    assert [reply.text for reply in run(box, ToolCall("where", {"x": 1}))] == [text] * 6


def test_the_deadline_is_sent_as_remaining_seconds(cluster):
    timed = tool(timeout=LONG)(where.__wrapped__)
    left = Toolbox([timed], executor=cluster).execute(ToolCall("where", {"x": 1})).result.structured_output[-1]
    assert 0 < left <= LONG


@pytest.mark.parametrize("stops", [True, False])
def test_a_call_ends_at_its_timeout_and_its_body_is_cancelled(clock, stops, caplog):
    cluster = ThreadCluster(stops_bodies=stops, lose=lambda _: clock.advance(5))
    slow = tool(timeout=5)(where.__wrapped__)
    events, metrics = [], InMemoryMetrics()
    box = Toolbox([slow], executor=cluster, sinks=[events.append], metrics=metrics)
    with caplog.at_level(logging.WARNING):
        replies = [box.execute(ToolCall("where", {"x": 1})), asyncio.run(box.aexecute(ToolCall("where", {"x": 1})))]
    assert [reply.text for reply in replies] == ["Error: Tool 'where' timed out after 5 s"] * 2
    assert cluster.cancelled == 2
    abandoned = [event.kind for event in events if event.kind == "call_abandoned"]
    assert len(abandoned) == (0 if stops else 2)
    assert ("may still be running on the test cluster, which cannot stop it" in caplog.text) is not stops


async def test_cancelling_a_call_cancels_its_body():
    sent = asyncio.Event()
    loop = asyncio.get_running_loop()
    cluster = ThreadCluster(lose=lambda _: loop.call_soon_threadsafe(sent.set))
    calling = asyncio.create_task(Toolbox([where], executor=cluster).aexecute(ToolCall("where", {"x": 1})))
    await sent.wait()
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling
    assert cluster.cancelled == 1


def test_secrets_are_masked_on_the_worker(cluster, caplog):
    @tool
    def sign_in(password: Secret[str], context: ToolContext) -> str:
        """Sign in."""
        context.logger.warning("signing in with %s", password)
        return password

    with caplog.at_level(logging.WARNING):
        reply = Toolbox([sign_in], executor=cluster).execute(ToolCall("sign_in", {"password": "hunter2-hunter2"}))
    assert "signing in with" in caplog.text
    assert "hunter2" not in caplog.text + reply.text


def test_the_trace_continues_on_the_worker(cluster):
    @tool
    def span() -> str:
        """Return the trace that the body sees."""
        return format(trace.get_current_span().get_span_context().trace_id, "032x")

    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    box = Toolbox([span], executor=cluster, sinks=[OpenTelemetry(tracer_provider=provider)])
    assert box.execute(ToolCall("span")).text == format(exporter.get_finished_spans()[0].context.trace_id, "032x")


def test_rates_and_journals_hold_for_bodies_on_a_cluster(cluster, tmp_path):
    limited = tool(effects="read", rate_limit=RateLimit(5, per=1))(where.__wrapped__)
    with RunJournal(tmp_path / "runs.db") as runs:
        model = ScriptedModel([ToolCall("where", {"x": 1}), "done"])
        agent = Agent(model, Toolbox([limited], executor=cluster), journal=runs, name="clerk")
        result = agent.run_sync("go", run_id="r1")
    assert result.tool_calls[0].reply.result.structured_output[3] == "r1/1.1"


def test_tools_can_submit_functions_to_the_cluster(cluster):
    @tool(inline=True)
    def power(context: ToolContext) -> int:
        """Compute on the cluster."""
        return context.executor.submit(pow, 2, 10).result(LONG)

    assert Toolbox([power], executor=cluster).execute(ToolCall("power")).text == "1024"
    with pytest.raises(ValueError, match="invalid literal"):
        cluster.submit(int, "x").result(LONG)
    lost = ThreadCluster(lose=lose_with(RuntimeError("gone"))).submit(pow, 2, 10)
    with pytest.raises(ToolExecutionError, match="'pow' was lost"):
        lost.result(LONG)


def test_other_executors_are_used_as_before():
    with ThreadPoolExecutor(1) as pool:
        assert Toolbox([where], executor=pool).execute(ToolCall("where", {"x": 1})).result.structured_output[1] is True


def test_resources_of_a_tool_reach_the_executor(cluster):
    heavy = tool(cpus=2, gpus=0.5, memory=2**30)(where.__wrapped__)
    Toolbox([heavy], executor=cluster).execute(ToolCall("where", {"x": 1}))
    ((_, policy),) = cluster.sent
    assert (policy.cpus, policy.gpus, policy.memory, policy.repeatable) == (2, 0.5, 2**30, False)


@pytest.mark.parametrize(
    ("setting", "value", "problem"),
    [
        ("cpus", -1, "cpus must be a number >= 0, not -1"),
        ("gpus", True, "gpus must be a number >= 0, not True"),
        ("memory", 0.5, "memory must be an int >= 1, not 0.5"),
    ],
)
def test_invalid_resources_are_refused(setting, value, problem):
    with pytest.raises(ToolDefinitionError, match=problem):
        Toolbox([tool(**{setting: value})(where.__wrapped__)])


@pytest.mark.parametrize(("effects", "unknown"), [("irreversible", ["/1.1"]), ("read", [])])
def test_a_body_that_is_lost_with_its_worker_is_one_of_unknown_outcome_in_the_journal(tmp_path, effects, unknown):
    @tool(effects=effects)
    def pay(order: int) -> str:
        """Pay an order."""
        return "paid"

    box = Toolbox([pay], executor=ThreadCluster(lose=lambda future: future.set_exception(OSError("the node is gone"))))
    model = ScriptedModel([ToolCall("pay", {"order": 7}), "Done."])
    with RunJournal(tmp_path / "runs.db") as runs:
        result = Agent(model, box, journal=runs).run_sync("Pay order 7", run_id="r1")
        assert "it is unknown whether it took effect: the node is gone" in result.tool_calls[0].reply.text
        assert [call.place for call in runs.unknown()] == unknown
        for place in unknown:
            runs.resolve("r1", place, happened=True)
        assert runs.unknown() == []
