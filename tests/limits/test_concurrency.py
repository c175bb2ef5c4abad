"""How many calls of a tool run at the same time, and which ones never do."""

import asyncio
import threading
from dataclasses import dataclass

import pytest

from helpers.sample_tools import AsyncFunction, Function
from toolsemble import SchemaTool, Tool, Toolbox, ToolCall, ToolDefinitionError, ToolPipeline, TypedTool, fan_out, tool
from toolsemble._runtime.locks import TABLE


class Meter:
    """How many bodies are in work at the same time, at most."""

    def __init__(self):
        self.lock = threading.Lock()
        self.now = self.most = 0

    def __enter__(self):
        with self.lock:
            self.now += 1
            self.most = max(self.most, self.now)

    def __exit__(self, *_):
        with self.lock:
            self.now -= 1


def make_metered_tool(meter, **limits):
    @tool(**limits)
    async def work(path: str = "a", mode: str = "r") -> str:
        """Does something."""
        with meter:
            await asyncio.sleep(0.001)
        return path

    return work


async def run_all(box, *calls):
    return [reply.text for reply in await box.aexecute_all(list(calls))]


@pytest.mark.parametrize("limit", [1, 3])
async def test_max_concurrency_limits_a_tool(limit):
    meter = Meter()
    work = make_metered_tool(meter, max_concurrency=limit)
    boxes = [Toolbox([work]), Toolbox([work])]  # what a tool says, it says in every box
    texts = await asyncio.gather(*(run_all(box, *[ToolCall("work")] * 10) for box in boxes))
    assert (texts, meter.most) == ([["a"] * 10] * 2, limit)


def test_slots_are_shared_by_threads_and_event_loops():
    meter = Meter()

    @tool(max_concurrency=2)
    def work() -> str:
        with meter:
            return "done"

    box, texts = Toolbox([work]), []
    threads = [threading.Thread(target=lambda: texts.append(box.execute(ToolCall("work")).text)) for _ in range(10)]
    threads.append(
        threading.Thread(target=lambda: texts.extend(r.text for r in box.execute_all([ToolCall("work")] * 9)))
    )
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert texts == ["done"] * 19
    assert meter.most <= 2


async def test_methods_of_all_instances_share_slots():
    meter = Meter()

    class Shop:
        @tool(max_concurrency=1)
        async def sell(self) -> str:
            with meter:
                await asyncio.sleep(0.001)
            return "sold"

    first, second = Toolbox([Shop()]), Toolbox([Shop()])
    await asyncio.gather(*(run_all(box, *[ToolCall("sell")] * 5) for box in (first, second)))
    assert meter.most == 1


async def test_calls_of_one_resource_never_overlap():
    meters = {path: Meter() for path in "ab"}
    together = asyncio.Barrier(2)

    @tool(resources=lambda a: {f"file:{a.path}"})
    async def save(path: str) -> str:
        with meters[path]:
            await together.wait()  # which only ends when both files are written at the same time
        return path

    calls = [ToolCall("save", {"path": path}) for path in "aabb"]
    async with asyncio.timeout(60):
        assert await run_all(Toolbox([save]), *calls) == ["a", "a", "b", "b"]
    assert [meter.most for meter in meters.values()] == [1, 1]


async def test_resource_names_are_shared_by_all_tools():
    meter = Meter()

    async def work(_):
        with meter:
            await asyncio.sleep(0.001)

    tools = [AsyncFunction(work, name, resources=lambda _: "disk") for name in ("one", "two")]
    boxes = [Toolbox([each]) for each in tools]
    calls = [run_all(box, *[ToolCall(each.name, {"input": "x"})] * 5) for box, each in zip(boxes, tools, strict=True)]
    await asyncio.gather(*calls)
    assert meter.most == 1


@dataclass
class Target:
    path: str


class Typed(TypedTool[Target]):
    name = "typed"
    description = "Takes a dataclass"

    def resources(self, arguments):
        self.seen = arguments
        return [arguments.path]

    def run(self, input):
        return input.path


class Text(Tool):
    name = "text"
    description = "Takes a text"

    @staticmethod
    def resources(arguments):
        return arguments.split()

    def run(self, input):
        return input


def test_resources_function_gets_the_bodys_arguments():
    seen = []
    by_schema = SchemaTool(
        "by_schema",
        "",
        lambda a: a["path"],
        {"properties": {"path": {}}},
        resources=lambda a: seen.append(a.path) or (),
    )
    typed = Typed()
    assert typed.execute('{"path": "a"}').output == "a"
    assert typed.seen == Target("a")
    assert Text().execute("a b").output == "a b"
    assert by_schema.execute('{"path": "c"}').output == "c"
    assert seen == ["c"]


@pytest.mark.parametrize(
    ("resources", "message"),
    [
        (lambda a: {a.nothing}, "'types.SimpleNamespace' object has no attribute 'nothing'"),
        (lambda _: 3, "'int' object is not iterable"),
        (lambda _: {3}, "Its resources must be strings, not int"),
    ],
)
def test_failing_resources_function_fails_its_call_alone(resources, message):
    @tool(resources=resources)
    def save(path: str) -> str:
        return path

    box = Toolbox([save])
    reply = box.execute(ToolCall("save", {"path": "a"}))
    assert reply.is_error
    assert message in reply.text
    assert TABLE.waiting == 0


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"max_concurrency": 0}, "max_concurrency must be an int >= 1, not 0"),
        ({"max_concurrency": True}, "max_concurrency must be an int >= 1, not True"),
        ({"resources": "file"}, "resources must be a function of the arguments, not 'file'"),
        ({"resources": lambda: {"file"}}, "Tool 'function': resources must take the arguments; in a class"),
        ({"resources": lambda a, b: {a, b}}, "missing a required argument: 'b'"),
    ],
)
def test_rejects_invalid_settings(limits, message):
    with pytest.raises(ToolDefinitionError, match=message):
        Toolbox([Function(str, **limits)])


def test_resources_function_without_a_signature_works():
    assert Function(str, resources=iter).execute("x").output == "x"  # written in C


def test_rejects_async_resources_function():
    async def resources(_):
        return set()

    with pytest.raises(ToolDefinitionError, match="resources must be a sync function"):
        Toolbox([Function(str, resources=resources)])


@pytest.mark.parametrize("limits", [{"max_concurrency": 1}, {"resources": lambda _: {"file"}}])
async def test_recursive_tool_does_not_deadlock(limits):
    def run(text):
        return text if text == "end" else same.execute("end").output

    async def arun(text):
        return text if text == "end" else (await again.aexecute("end")).output

    same, again = Function(run, **limits), AsyncFunction(arun, **limits)
    assert same.execute("x").output == "end"
    assert (await same.aexecute("x")).output == "end"
    assert (await again.aexecute("x")).output == "end"


async def test_nested_calls_on_a_held_resource_do_not_overlap():
    meter = Meter()

    async def work(_):
        with meter:
            await asyncio.sleep(0.001)

    parts = [AsyncFunction(work, name, resources=lambda _: "file") for name in ("one", "two")]
    both = fan_out(*parts, name="both", resources=lambda _: "file")
    assert (await both.aexecute("x")).is_success
    assert meter.most == 1


async def test_nested_calls_that_would_deadlock_fail():
    meet = asyncio.Barrier(2)

    def crossing(name, holds, wants):
        async def run(_):
            await meet.wait()
            return (await wants_tools[wants].aexecute("x")).text

        return AsyncFunction(run, name, resources=lambda _: holds)

    async def plain(_):
        return "done"

    wants_tools = {name: AsyncFunction(plain, f"use_{name}", resources=lambda _, name=name: name) for name in "ab"}
    box = Toolbox([crossing("first", "a", "b"), crossing("second", "b", "a")])
    async with asyncio.timeout(60):
        texts = await run_all(box, *(ToolCall(name, {"input": "x"}) for name in ("first", "second")))
    assert sorted(texts) == [
        "Error: Deadlock: it needs a resource that an enclosing call holds",
        "done",
    ]


def test_pipeline_holds_its_resources_for_all_steps():
    held = []

    def look(text):
        held.append("file" in TABLE._held)
        return text

    line = ToolPipeline("line", "", [Function(look, "one"), Function(look, "two")], resources=lambda _: "file")
    assert line.execute("x").is_success
    assert held == [True, True]
    assert not TABLE._held


async def test_call_waiting_for_a_resource_takes_no_slot():
    started, opened = asyncio.Event(), asyncio.Event()

    async def slow(_):
        started.set()
        await opened.wait()
        return "slow"

    async def quick(_):
        opened.set()
        return "quick"

    box = Toolbox(
        [AsyncFunction(slow, "slow", resources=lambda _: "file"), AsyncFunction(quick, "quick")], max_concurrency=2
    )
    names = ["slow", "slow", "slow", "quick"]
    async with asyncio.timeout(60):
        assert await run_all(box, *(ToolCall(name, {"input": "x"}) for name in names)) == names


async def test_sync_call_in_an_event_loop_that_would_wait_fails():
    begun, opened = asyncio.Event(), asyncio.Event()

    async def hold(_):
        begun.set()
        await opened.wait()

    holding = AsyncFunction(hold, "hold", resources=lambda _: "file")
    task = asyncio.create_task(holding.aexecute("x"))
    await begun.wait()
    wanting = Function(str, "want", resources=lambda _: "file")
    assert "use aexecute" in wanting.execute("x").text
    opened.set()
    assert (await task).is_success
    assert wanting.execute("x").output == "x"


async def test_sync_call_in_an_event_loop_does_not_wait_for_a_slot():
    begun, opened = asyncio.Event(), asyncio.Event()

    async def hold(_):
        begun.set()
        await opened.wait()

    box = Toolbox([AsyncFunction(hold, "hold"), Function(str)], max_concurrency=1)
    task = asyncio.create_task(box.aexecute(ToolCall("hold", {"input": "x"})))
    await begun.wait()
    assert box.execute(ToolCall("function", {"input": "x"})).text == "x"
    opened.set()
    await task


async def test_cancelled_waiter_leaves_the_queue():
    begun, opened = asyncio.Event(), asyncio.Event()

    async def hold(_):
        begun.set()
        await opened.wait()
        return "held"

    holding = AsyncFunction(hold, max_concurrency=1)
    task = asyncio.create_task(holding.aexecute("x"))
    await begun.wait()
    waiting = asyncio.create_task(holding.aexecute("x"))
    while not TABLE.waiting:
        await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert TABLE.waiting == 0
    opened.set()
    assert (await task).output == "held"
    assert (await holding.aexecute("x")).output == "held"


def test_interrupted_thread_leaves_the_queue(monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    def run(_):
        # Another thread waits for what this one holds, and is interrupted there.
        result = []

        def wait():
            monkeypatch.setattr("toolsemble._runtime.threads.Wakeup.wait", interrupt)
            try:
                other.execute("x")
            except KeyboardInterrupt:
                result.append("interrupted")

        thread = threading.Thread(target=wait)
        thread.start()
        thread.join(30)
        return result

    holding = Function(run, resources=lambda _: "file")
    other = Function(str, "other", resources=lambda _: "file")
    assert holding.execute("x").structured_output == ["interrupted"]
    assert TABLE.waiting == 0
