"""Caches: the same call of a tool that only reads is answered from what was kept, and never fails because of it."""

import asyncio
import copy
import logging
import os
import pickle
import sqlite3
import stat
import threading
import weakref
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from typing import Annotated

import pytest
from pydantic import SecretStr

from helpers.full_disk import in_a_process, on_a_full_disk
from toolsemble import (
    AudioContent,
    Cache,
    FileContent,
    ImageContent,
    InMemoryMetrics,
    InvocationParameters,
    MemoryId,
    Retries,
    SchemaTool,
    TextContent,
    Tool,
    Toolbox,
    ToolCall,
    ToolContext,
    ToolDefinitionError,
    ToolExecutionError,
    ToolPipeline,
    ToolResult,
    TypedTool,
    tool,
)
from toolsemble.limits.call_key import ObjectIds
from toolsemble.limits.single_flight import SharedCall, SingleFlight
from toolsemble.locks.holds import TABLE
from toolsemble.review import AutoReject
from toolsemble.work.thread import RunInThread

BOUND = 20.0


class Clock:
    now = 1000.0

    def __call__(self):
        return self.now


class Counted:
    """A function that counts its calls, each of which gives another text."""

    def __init__(self):
        self.calls = 0

    def __call__(self, *_):
        self.calls += 1
        return f"result {self.calls}"


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture(params=["memory", "file"])
def store(request, tmp_path):
    return None if request.param == "memory" else tmp_path / "cache.db"


@pytest.fixture
def counted():
    return Counted()


def reading(function, cache, **settings):
    @tool("look", "Looks", effects="read", cache=cache, **settings)
    def look(what: str, times: int = 1) -> object:
        return function(what)

    return look


def texts(look, *inputs, **settings):
    return [look.execute(each, **settings).output for each in inputs]


def test_the_same_call_is_answered_from_the_cache(store, counted):
    metrics = InMemoryMetrics()
    cache = Cache(store=store)
    seen = []
    box = Toolbox([reading(counted, cache)], metrics=metrics, sinks=[seen.append])
    first, second = (box.execute(ToolCall("look", text)) for text in ('{"what":"a"}', '{"times": 1, "what": "a"}'))
    assert first.result == ToolResult.success("result 1")
    assert second.result == ToolResult.success("result 1", attributes={"cached": True})
    box.flush(60)
    assert [event.kind for event in seen[2:]] == ["call_started", "cache_hit", "call_finished"]
    assert box.execute(ToolCall("look", {"what": "a", "times": 2})).text == "result 2"
    assert (metrics.counter("cache_hits", "look"), metrics.count("look", "success")) == (1, 3)
    assert len(metrics.durations("look")) == 3
    cache.close()


@pytest.mark.parametrize("said", [True, 60, 0.5, Cache(60)])
def test_a_cache_is_declared_with_little(counted, said):
    assert texts(reading(counted, said), '{"what":"a"}', '{"what":"a"}') == ["result 1", "result 1"]


@pytest.mark.parametrize("said", [None, False])
def test_without_one_nothing_is_kept(counted, said):
    assert texts(reading(counted, said), '{"what":"a"}', '{"what":"a"}') == ["result 1", "result 2"]


def test_results_count_for_their_time(store, counted, clock):
    cache = Cache(60, store=store, clock=clock)
    look = reading(counted, cache)
    assert texts(look, '{"what":"a"}') == ["result 1"]
    for now, expected in ((1059.9, "result 1"), (1060.0, "result 2"), (1100.0, "result 2"), (1050.0, "result 3")):
        clock.now = now
        assert texts(look, '{"what":"a"}') == [expected], now
    cache.close()


def test_a_shorter_time_than_that_of_who_kept_it_holds(tmp_path, counted, clock):
    caches = [Cache(ttl, store=tmp_path / "cache.db", clock=clock) for ttl in (None, 10)]
    patient, impatient = (reading(counted, cache) for cache in caches)
    assert texts(patient, '{"what":"a"}') == texts(impatient, '{"what":"a"}') == ["result 1"]
    clock.now += 10
    assert (texts(patient, '{"what":"a"}'), texts(impatient, '{"what":"a"}')) == (["result 1"], ["result 2"])
    for cache in caches:
        cache.close()


def test_in_memory_that_goes_which_was_not_asked_for_longest(counted):
    look = reading(counted, Cache(size=2))
    a, b, c = ('{"what":"a"}', '{"what":"b"}', '{"what":"c"}')
    assert texts(look, a, b, a, c, a, b) == ["result 1", "result 2", "result 1", "result 3", "result 1", "result 4"]


def test_a_file_keeps_a_number_of_results_and_none_that_expired(tmp_path, counted, clock):
    cache = Cache(60, size=2, store=tmp_path / "cache.db", clock=clock)
    look = reading(counted, cache)

    def rows():
        with closing(sqlite3.connect(tmp_path / "cache.db")) as connection:
            return connection.execute("SELECT count(*) FROM results").fetchone()[0]

    texts(look, *(f'{{"what":"{each}"}}' for each in "abcd"))
    assert (rows(), texts(look, '{"what":"d"}', '{"what":"a"}')) == (2, ["result 4", "result 5"])
    clock.now += 100
    texts(look, '{"what":"e"}')
    assert rows() == 1
    cache.clear()
    assert rows() == 0
    cache.close()


def test_everything_can_be_let_go(counted):
    cache = Cache()
    look = reading(counted, cache)
    texts(look, '{"what":"a"}')
    cache.clear()
    cache.close()
    assert texts(look, '{"what":"a"}') == ["result 2"]


@pytest.mark.parametrize(
    "result",
    [
        ToolResult.success("text", {"a": [1, 2.5, None, True, "x"]}, attributes={"source": "page 4"}),
        ToolResult.success(
            "",
            contents=[
                TextContent("note"),
                ImageContent(b"\x00\xff", "image/png"),
                AudioContent(b"", "audio/wav"),
                FileContent(b"x", "text/plain", "a.txt"),
            ],
        ),
        ToolResult.success("half \ud800 pair"),
    ],
)
def test_a_result_comes_back_as_it_was(store, result):
    cache = Cache(store=store)
    look = reading(lambda _: result, cache)
    first, second = (look.execute('{"what":"a"}') for _ in range(2))
    assert second == ToolResult(
        first.output, None, first.structured_output, first.contents, {**first.attributes, "cached": True}
    )
    cache.close()


def test_who_changes_a_payload_changes_nobody_elses(store):
    cache = Cache(store=store)
    look = reading(lambda _: {"items": [1]}, cache)
    for _ in range(3):
        payload = look.execute('{"what":"a"}').structured_output
        assert payload == {"items": [1]}
        payload["items"].append(2)
    cache.close()


@dataclass
class Point:
    x: int


class Unsaid(dict):
    def __deepcopy__(self, memo):
        raise RuntimeError("there is only one")


def deep():
    value: list = []
    for _ in range(100_000):
        value = [value]
    return value


@pytest.mark.parametrize("payload", [Point(1), (1, 2), {1: "a"}, OrderedDict(a=1), {"a": {3}}, [b"x"]])
def test_what_a_file_cannot_hold_is_not_kept_and_that_is_said_once(tmp_path, caplog, payload):
    calls = Counted()
    cache = Cache(store=tmp_path / "cache.db")

    def look_up(_):
        calls()
        return ToolResult.success("text", payload)

    look = reading(look_up, cache)
    with caplog.at_level(logging.WARNING, "toolsemble"):
        results = [look.execute('{"what":"a"}') for _ in range(3)]
    assert (calls.calls, [result.structured_output == payload for result in results]) == (3, [True] * 3)
    assert [record.getMessage() for record in caplog.records] == [
        "Results of 'look' are not cached: its structured output cannot be restored from JSON unchanged"
    ]
    cache.close()


def test_attributes_are_results_too(tmp_path):
    calls = Counted()
    cache = Cache(store=tmp_path / "cache.db")
    look = reading(lambda _: ToolResult.success(calls(), attributes={"at": object}), cache)
    assert texts(look, '{"what":"a"}', '{"what":"a"}') == ["result 1", "result 2"]
    cache.close()


@pytest.mark.parametrize("payload", [Unsaid(), threading.Lock()])
def test_what_cannot_be_copied_is_not_kept_in_memory(payload):
    calls = Counted()
    look = reading(lambda _: ToolResult.success(calls(), payload), True)
    assert texts(look, '{"what":"a"}', '{"what":"a"}') == ["result 1", "result 2"]


def test_only_successes_are_kept(store):
    outcomes = iter([ValueError("no"), ToolExecutionError("nor"), ToolResult.failure("never"), "yes", "again"])

    def look_up(_):
        outcome = next(outcomes)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    cache = Cache(store=store)
    look = reading(look_up, cache)
    given = [look.execute('{"what":"a"}').text for _ in range(5)]
    assert given == ["Error: no", "Error: nor", "Error: never", "yes", "yes"]
    cache.close()


def test_how_often_a_call_was_tried_again_is_not_kept():
    tries = iter([ConnectionError(), "found"])

    def look_up(_):
        outcome = next(tries)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    look = reading(look_up, True, retries=Retries(1, wait=0, jitter=0))
    first, second = (look.execute('{"what":"a"}').attributes for _ in range(2))
    assert (dict(first), dict(second)) == ({"retries": 1}, {"cached": True})


def test_tools_do_not_answer_for_each_other(store):
    cache = Cache(store=store)
    first = SchemaTool("first", "", lambda _: "first", effects="read", cache=cache)
    second = SchemaTool("second", "", lambda _: "second", effects="read", cache=cache)
    assert [each.execute("{}").output for each in (first, second, first, second)] == ["first", "second"] * 2
    cache.close()


class Shelf:
    def __init__(self, owner):
        self.owner = owner
        self.calls = 0

    @tool(effects="read", cache=True)
    def book(self, title: str) -> str:
        """Find a book."""
        self.calls += 1
        return f"{title} of {self.owner}"

    @tool(effects="read", cache=True)
    @classmethod
    def kind(cls) -> str:
        """Tell what kind of shelf it is."""
        return cls.__name__


class Rack(Shelf):
    pass


def test_objects_do_not_answer_for_each_other():
    shelves = [Shelf("ada"), Shelf("bob"), Rack("eve")]
    for _ in range(2):
        assert [each.book.execute('{"title":"X"}').output for each in shelves] == ["X of ada", "X of bob", "X of eve"]
        assert [each.kind.execute("{}").output for each in shelves] == ["Shelf", "Shelf", "Rack"]
    assert [each.calls for each in shelves] == [1, 1, 1]
    del shelves
    for number in range(50):  # most of them at the place of one that is gone
        assert Shelf(number).book.execute('{"title":"X"}').output == f"X of {number}"


def test_objects_of_a_class_with_a_cache_of_its_own_do_not_answer_for_each_other():
    class Look(Tool):
        name = "look"
        description = "Looks"
        effects = "read"
        cache = Cache()

        def __init__(self, owner):
            self.owner = owner

        def run(self, input):
            return f"{input} of {self.owner}"

    looks = [Look("ada"), Look("bob")]
    looks.append(copy.copy(looks[0]))
    looks[2].owner = "eve"
    assert [each.execute("X").output for each in looks * 2] == ["X of ada", "X of bob", "X of eve"] * 2


def test_objects_that_cannot_be_told_from_each_other_are_refused(tmp_path):
    class Slotted:
        __slots__ = ()

        @tool(effects="read", cache=True)
        def look(self) -> str:
            return "seen"

    with pytest.raises(
        ToolDefinitionError, match=r"method, and Slotted objects cannot be distinguished; add '__weakref__'"
    ):
        Toolbox([Slotted()])

    class Method:
        @tool(effects="read", cache=Cache(store=tmp_path / "cache.db"))
        def look(self) -> str:
            return "seen"

        @tool(effects="read", cache=Cache(store=tmp_path / "cache.db", key=lambda _: "me"))
        def told(self) -> str:
            return "seen"

        @tool(effects="read", cache=Cache(store=tmp_path / "cache.db"))
        @staticmethod
        def alone() -> str:
            return "seen"

        @tool(effects="read", cache=Cache(store=tmp_path / "cache.db"))
        @classmethod
        def ours(cls) -> str:
            return "seen"

    with pytest.raises(
        ToolDefinitionError, match=r"'look': a cache in a file cannot distinguish the objects .*Cache\(key="
    ):
        Method().look.execute("{}")
    for each in (Method().told, Method().alone, Method().ours):
        assert [bool(each.execute("{}").attributes) for _ in range(2)] == [False, True]
    for each in (Method.told, Method.alone, Method.ours):
        each.cache.close()


def test_users_do_not_answer_for_each_other_where_the_tool_can_tell_them(counted):
    @tool(effects="read", cache=True)
    def mine(user: Annotated[str, MemoryId]) -> str:
        return f"{user}: {counted()}"

    @tool(effects="read", cache=True)
    def seen(context: ToolContext) -> str:
        return f"{context.memory_id}: {counted()}"

    @tool(effects="read", cache=True)
    def plain() -> str:
        return counted()

    class Own(Tool):
        name = "own"
        description = ""
        effects = "read"
        cache = True

        def run(self, input):
            return f"{self.context.memory_id}: {counted()}"

    @dataclass
    class Nothing:
        pass

    class Typed(TypedTool[Nothing]):
        name = "typed"
        description = ""
        effects = "read"
        cache = True

        def run(self, input):
            return f"{self.context.memory_id}: {counted()}"

    box = Toolbox([mine, seen, plain, Own(), Typed()])
    for name in ("mine", "seen", "own", "typed"):
        call = ToolCall(name, {"input": "x"} if name == "own" else {})
        ada, bob, again = (box.execute(call, memory_id=each).text for each in ("ada", "bob", "ada"))
        assert (ada[:4], bob[:4], again) == ("ada:", "bob:", ada)
    shared = [box.execute(ToolCall("plain"), memory_id=each).text for each in ("ada", "bob")]
    assert shared[0] == shared[1]


def test_parameters_of_the_run_must_be_part_of_the_key(counted):
    def look(what: str, shared: InvocationParameters) -> str:
        return f"{shared['tenant']}: {counted()}"

    with pytest.raises(
        ToolDefinitionError, match=r"'look': the cache key does not contain what the tool takes from its Invocation"
    ):
        tool(effects="read", cache=True)(look).execute("{}")
    told = tool(effects="read", cache=Cache(key=lambda a, c: [a.what, c.parameters["tenant"]]))(look)
    box = Toolbox([told])
    call = ToolCall("look", {"what": "a"})
    given = [box.execute(call, parameters={"tenant": each}).text for each in ("x", "y", "x")]
    assert given == ["x: result 1", "y: result 2", "x: result 1"]
    unset = box.execute(call)
    assert (
        unset.text == "Error: KeyError: 'tenant'"
    )  # the key cannot be computed, and the body cannot do without it either


def one(arguments):
    return arguments.what[0]


@pytest.mark.parametrize("key", [one, lambda a, c: [a.what[0], c.memory_id], lambda a, **_: {"first": a.what[0]}])
def test_a_key_says_which_calls_are_the_same(counted, key):
    look = reading(counted, Cache(key=key))
    assert texts(look, '{"what":"ab"}', '{"what":"ac"}', '{"what":"b"}') == ["result 1", "result 1", "result 2"]


def test_a_tool_of_a_class_is_known_by_its_name_in_a_file(tmp_path, counted):
    class Look(Tool):
        name = "look"
        description = ""
        effects = "read"
        cache = Cache(store=tmp_path / "cache.db")

        def run(self, input):
            return counted()

    assert [Look().execute("a").output for _ in range(2)] == ["result 1", "result 1"]
    Look.cache.close()


def test_the_key_of_an_object_or_a_text_gets_just_that(counted):
    class Look(Tool):
        name = "look"
        description = ""
        effects = "read"
        cache = Cache(key=str.casefold)

        def run(self, input):
            return counted()

    look = Look()
    assert texts(look, "A", "a", "b") == ["result 1", "result 1", "result 2"]


async def later(arguments):
    return arguments


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"cache": True}, 'cache needs a tool that changes nothing; declare effects="read"'),
        ({"cache": 60, "effects": "write"}, 'cache needs a tool that changes nothing; declare effects="read"'),
        ({"cache": 0, "effects": "read"}, "cache must be True, a number of seconds > 0, or a Cache, not 0"),
        ({"cache": "x", "effects": "read"}, "cache must be True, a number of seconds > 0, or a Cache, not 'x'"),
        ({"cache": Cache(key=5), "effects": "read"}, "key must be a function of the arguments, not 5"),
        ({"cache": Cache(key=later), "effects": "read"}, "key must be a sync function; it is called before each call"),
        (
            {"cache": Cache(key=lambda: 1), "effects": "read"},
            "key must take the arguments, or the arguments and the context",
        ),
    ],
)
def test_a_cache_that_cannot_be_is_refused(settings, problem):
    made = SchemaTool("look", "", lambda _: "", **settings)
    with pytest.raises(ToolDefinitionError) as refusal:
        Toolbox([made])
    assert str(refusal.value) == f"Tool at index 0 (SchemaTool): Tool 'look': {problem}"


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"ttl": 0}, "Cache ttl must be a number of seconds > 0, not 0"),
        ({"ttl": True}, "Cache ttl must be a number of seconds > 0, not True"),
        ({"size": 0}, "Cache size must be an int >= 1, not 0"),
        ({"store": ""}, "Cache store must be a file path, or None for memory, not ''"),
        ({"store": ":memory:"}, "Cache store must be a file path, or None for memory, not ':memory:'"),
        ({"store": 5}, "Cache store must be a file path, or None for memory, not 5"),
    ],
)
def test_settings_that_cannot_be_meant_are_refused(settings, problem):
    with pytest.raises(ToolDefinitionError) as refusal:
        Cache(**settings)
    assert str(refusal.value) == problem


def test_a_pipeline_is_cached_step_by_step(counted):
    pipeline = reading(counted, True) | reading(counted, None)
    pipeline.effects, pipeline.cache = "read", True
    with pytest.raises(ToolDefinitionError, match=r"cache is for a tool with a body; declare it on the tools inside"):
        Toolbox([pipeline])


def test_a_box_caches_what_only_reads_and_says_nothing(counted):
    @tool(effects="read")
    def read() -> str:
        return counted()

    @tool(effects="read", cache=False)
    def never() -> str:
        return counted()

    @tool(effects="write")
    def write() -> str:
        return counted()

    @tool(effects="read")
    def shared(parameters: InvocationParameters) -> str:
        return counted()

    box = Toolbox([read, never, write, shared], cache=60)
    repeated = {name: len({box.execute(ToolCall(name)).text for _ in range(2)}) for name in box.names}
    assert repeated == {"read": 1, "never": 2, "write": 2, "shared": 2}
    with pytest.raises(ToolDefinitionError, match=r"^Toolbox: cache must be True, a number of seconds > 0"):
        Toolbox([read], cache=-1)


def test_a_box_caches_steps_and_tells_those_of_one_name_apart(counted):
    def named(body):
        return tool(name="read", effects="read")(body)

    read = named(lambda: f"read {counted()}")
    other, third = named(lambda: "other"), named(lambda: "third")
    lines = [ToolPipeline(name, "", [part]) for name, part in (("one", read), ("two", other), ("three", third))]
    box = Toolbox([*lines, read], cache=60)
    told = [box.execute(ToolCall(name)).text for name in ("read", "one", "one", "two", "three")]
    assert told == ["read result 1", "read result 1", "read result 1", "other", "third"]
    alone = Toolbox(lines[1:], cache=60)
    assert [alone.execute(ToolCall(name)).text for name in ("two", "two", "three")] == ["other", "other", "third"]


def test_approval_comes_before_the_cache(counted):
    look = reading(counted, True)
    assert Toolbox([look]).execute(ToolCall("look", {"what": "a"})).text == "result 1"
    box = Toolbox([look], review=AutoReject(), approve=["look"])
    assert box.execute(ToolCall("look", {"what": "a"})).is_error


def test_a_dry_run_reads_no_cache(counted):
    box = Toolbox([reading(counted, True)])
    call = ToolCall("look", {"what": "a"})
    assert [box.execute(call, dry_run=dry).text for dry in (True, False, True)][1] == "result 1"
    assert counted.calls == 1


def test_secrets_are_nowhere_in_the_clear(tmp_path):
    cache = Cache(store=tmp_path / "cache.db")

    @tool(effects="read", cache=cache)
    def look(token: SecretStr) -> str:
        return f"{len(token.get_secret_value())} letters"

    results = [look.execute({"token": text}) for text in ("hunter2", "hunter3", "hunter2")]
    assert [bool(result.attributes) for result in results] == [False, False, True]
    cache.close()
    for file in tmp_path.iterdir():
        assert b"hunter" not in file.read_bytes()
        assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_the_same_arguments_have_another_key_in_another_file(tmp_path):
    keys = []
    for name in ("a.db", "b.db"):
        cache = Cache(store=tmp_path / name)
        reading(lambda _: "x", cache).execute('{"what":"a"}')
        cache.close()
        with closing(sqlite3.connect(tmp_path / name)) as connection:
            keys += [key for (key,) in connection.execute("SELECT key FROM results")]
    assert len(set(keys)) == 2


def test_copies_and_other_processes_begin_with_nothing(counted):
    look = reading(counted, Cache(5, size=3))
    texts(look, '{"what":"a"}')
    for made in (pickle.loads(pickle.dumps(look.cache)), copy.deepcopy(look.cache)):
        assert (made.ttl, made.kept("anything")) == (5, None)


@pytest.mark.parametrize(
    "key", [lambda _: object(), lambda _: [1, {"a": object()}], lambda _: Point(object()), lambda _: {object()}]
)
def test_a_value_without_a_text_of_its_own_is_not_kept(counted, caplog, key):
    metrics = InMemoryMetrics()
    look = reading(counted, Cache(key=key))
    box = Toolbox([look], metrics=metrics)
    assert [box.execute(ToolCall("look", {"what": "a"})).text for _ in range(2)] == ["result 1", "result 2"]
    assert metrics.counter("cache_errors", "look") == 2
    assert (
        "The cache of 'look' is not used: Its key cannot be computed: the text of an argument is its memory address"
        in caplog.text
    )


def test_a_text_that_looks_like_an_object_is_a_text(counted):
    @tool(effects="read", cache=True)
    def look(points: dict[str, list[Point]], what: str) -> str:
        return counted()

    given = {"what": "<Point object at 0x7f00>", "points": {"a": [{"x": 1}]}}
    assert [look.execute(given).output for _ in range(2)] == ["result 1", "result 1"]


def test_calls_at_the_same_time_run_once(store):
    cache, started, go, calls = Cache(store=store), threading.Event(), threading.Event(), Counted()

    def slow(_):
        started.set()
        assert go.wait(BOUND)
        return calls()

    look = reading(slow, cache)
    with ThreadPoolExecutor(8) as threads:
        first = threads.submit(look.execute, '{"what":"a"}')
        assert started.wait(BOUND)
        others = [threads.submit(look.execute, '{"what":"a"}') for _ in range(7)]
        go.set()
        results = [future.result(BOUND) for future in (first, *others)]
    assert {result.output for result in results} == {"result 1"}
    assert sorted(result.attributes.get("cached", False) for result in results) == [False, *[True] * 7]
    assert (calls.calls, TABLE.waiting, cache.flights._open) == (1, 0, {})
    cache.close()


def waited_for(count):
    """Wait until so many calls wait."""

    async def wait():
        async with asyncio.timeout(BOUND):
            while TABLE.waiting < count:
                await asyncio.sleep(0)

    return wait()


async def test_tasks_at_the_same_time_run_once(store):
    cache, go, calls = Cache(store=store), asyncio.Event(), Counted()

    @tool(effects="read", cache=cache)
    async def look(what: str) -> dict:
        await go.wait()
        return {"n": calls()}

    box = Toolbox([look])
    tasks = [asyncio.create_task(box.aexecute(ToolCall("look", {"what": "a"}))) for _ in range(5)]
    await waited_for(4)
    go.set()
    replies = await asyncio.wait_for(asyncio.gather(*tasks), BOUND)
    assert ({reply.text for reply in replies}, calls.calls) == ({'{"n":"result 1"}'}, 1)
    payloads = [reply.result.structured_output for reply in replies]
    assert len({id(payload) for payload in payloads}) == 5
    cache.close()


@pytest.mark.parametrize("how", ["cancelled", "failed", "uncopied"])
async def test_who_waited_for_nothing_runs_itself(how):
    entered, go, calls = asyncio.Event(), asyncio.Event(), Counted()

    @tool(effects="read", cache=True)
    async def look(what: str) -> ToolResult:
        number = calls()
        entered.set()
        await go.wait()
        if how == "failed" and number == "result 1":
            raise ValueError("no")
        return ToolResult.success(number, threading.Lock() if how == "uncopied" else None)

    box = Toolbox([look])
    tasks = [asyncio.create_task(box.aexecute(ToolCall("look", {"what": "a"}))) for _ in range(3)]
    await waited_for(2)
    if how == "cancelled":
        tasks[0].cancel()
    go.set()
    first, *others = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), BOUND)
    assert isinstance(first, asyncio.CancelledError) or first.text == {"failed": "Error: no"}.get(how, "result 1")
    assert sorted(reply.text for reply in others) == ["result 2", "result 3"]


async def test_a_body_that_was_left_behind_holds_up_nobody():
    go, calls = threading.Event(), Counted()

    def slow(_):
        number = calls()
        if number == "result 1":
            assert go.wait(BOUND)
        return number

    box = Toolbox([reading(slow, True)])
    first = asyncio.create_task(box.aexecute(ToolCall("look", {"what": "a"})))
    async with asyncio.timeout(BOUND):
        while not calls.calls:
            await asyncio.sleep(0)
    second = asyncio.create_task(box.aexecute(ToolCall("look", {"what": "a"})))
    await waited_for(1)
    first.cancel()
    assert (await asyncio.wait_for(second, BOUND)).text == "result 2"
    go.set()


async def test_a_wait_ends_with_the_deadline():
    entered, go = asyncio.Event(), asyncio.Event()

    @tool(effects="read", cache=True)
    async def look() -> str:
        entered.set()
        await go.wait()
        return "seen"

    first = asyncio.create_task(look.aexecute("{}"))
    await asyncio.wait_for(entered.wait(), BOUND)
    late = await Toolbox([look], timeout=0.02).aexecute(ToolCall("look"))
    assert late.text == "Error: Tool 'look' timed out after 0.02 s"
    go.set()
    assert (await first).output == "seen"


async def test_a_call_that_cannot_wait_runs_itself():
    depth = []

    @tool(effects="read", cache=True)
    async def look(what: str) -> str:
        depth.append(what)
        if len(depth) == 1:
            inside = await look.aexecute('{"what":"a"}')
            blocking = look.execute('{"what":"a"}')
            return f"{inside.output} {blocking.output}"
        return f"{len(depth)}"

    assert (await look.aexecute('{"what":"a"}')).output == "2 2"
    depth.clear()
    entered, go = asyncio.Event(), asyncio.Event()

    @tool(effects="read", cache=True)
    async def slow(what: str) -> str:
        depth.append(what)
        entered.set()
        if len(depth) == 1:
            await go.wait()
        return f"{len(depth)}"

    first = asyncio.create_task(slow.aexecute('{"what":"a"}'))
    await asyncio.wait_for(entered.wait(), BOUND)
    assert slow.execute('{"what":"a"}').output == "2"  # the event loop stands still, so the first could never end
    go.set()
    assert (await asyncio.wait_for(first, BOUND)).output == "2"


async def test_calls_that_would_wait_for_each_other_do_not():
    entered = {"a": asyncio.Event(), "b": asyncio.Event()}

    @tool(effects="read", cache=True)
    async def look(what: str) -> str:
        other = "b" if what == "a" else "a"
        if not entered[what].is_set():
            entered[what].set()
            await entered[other].wait()
            return what + (await look.aexecute({"what": other})).output
        return what

    calls = [look.aexecute({"what": what}) for what in "ab"]
    given = [result.output for result in await asyncio.wait_for(asyncio.gather(*calls), BOUND)]
    assert all(text[0] == what and len(text) >= 2 for text, what in zip(given, "ab", strict=True))


def test_a_result_that_was_kept_in_the_meantime_is_taken(counted):
    class Late:
        """A store in which the first look comes too early."""

        def __init__(self, results):
            self.results = results
            self.looks = 0

        def __getattr__(self, name):
            return getattr(self.results, name)

        def find(self, key):
            self.looks += 1
            return None if self.looks == 3 else self.results.find(key)

    cache = Cache()
    cache.results = Late(cache.results)
    look = reading(counted, cache)
    assert texts(look, '{"what":"a"}', '{"what":"a"}') == ["result 1", "result 1"]


def make_folder(path):
    path.mkdir()


def make_text(path):
    path.write_text("a diary, not a database, and long enough to be looked at" * 20)


def make_foreign(path):
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE results (x)")


def make_open_key(path):
    key = path.with_name("cache.db.key")
    key.write_text("00" * 32)
    key.chmod(0o644)


@pytest.mark.parametrize("make", [make_folder, make_text, make_foreign, make_open_key])
def test_a_file_that_cannot_be_used_fails_no_call(tmp_path, counted, caplog, make):
    make(tmp_path / "cache.db")
    metrics = InMemoryMetrics()
    box = Toolbox([reading(counted, Cache(store=tmp_path / "cache.db"))], metrics=metrics)
    with caplog.at_level(logging.WARNING, "toolsemble"):
        assert [box.execute(ToolCall("look", {"what": "a"})).text for _ in range(2)] == ["result 1", "result 2"]
    assert [record.getMessage().split(":")[0] for record in caplog.records] == [
        "The cache of 'look' cannot be used; the call runs without it"
    ] * 2
    assert metrics.counter("cache_errors", "look") == 2


def test_a_file_that_is_damaged_later_fails_no_call(tmp_path, counted):
    cache = Cache(store=tmp_path / "cache.db")
    look = reading(counted, cache)
    texts(look, '{"what":"a"}')
    cache.close()
    size = (tmp_path / "cache.db").stat().st_size
    with (tmp_path / "cache.db").open("r+b") as file:
        file.seek(100)
        file.write(b"\xff" * (size - 100))
    assert texts(look, '{"what":"a"}', '{"what":"a"}') == ["result 2", "result 3"]
    for each in tmp_path.iterdir():
        each.unlink()
    assert texts(look, '{"what":"a"}', '{"what":"a"}') == ["result 4", "result 4"]
    cache.close()


@pytest.mark.parametrize("change", ["result = 'no JSON'", "result = '{}'", "stored = 'x'"])
def test_a_row_that_somebody_changed_is_none(tmp_path, counted, change):
    cache = Cache(store=tmp_path / "cache.db")
    look = reading(counted, cache)
    texts(look, '{"what":"a"}')
    with closing(sqlite3.connect(tmp_path / "cache.db", isolation_level=None)) as connection:
        connection.execute(f"UPDATE results SET {change}")  # noqa: S608 - one of the table above
    assert texts(look, '{"what":"a"}', '{"what":"a"}') == ["result 2", "result 2"]
    cache.close()


def test_a_file_that_somebody_holds_fails_no_call(tmp_path, counted, monkeypatch, caplog):
    monkeypatch.setattr("toolsemble.limits.cache_store._BUSY", 0.02)
    cache = Cache(store=tmp_path / "cache.db")
    look = reading(counted, cache)
    texts(look, '{"what":"a"}')
    with closing(sqlite3.connect(tmp_path / "cache.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        assert texts(look, '{"what":"a"}', '{"what":"b"}', '{"what":"b"}') == ["result 1", "result 2", "result 3"]
    assert "database is locked" in caplog.text
    assert texts(look, '{"what":"b"}', '{"what":"b"}') == ["result 4", "result 4"]
    cache.close()


@pytest.mark.parametrize("kind", ["limit", "disk"])
def test_a_full_disk_fails_no_call(tmp_path, kind):
    printed = on_a_full_disk(
        kind,
        """
        import sys
        from toolsemble import Cache, InMemoryMetrics, Toolbox, ToolCall, tool
        calls = []
        @tool(effects="read", cache=Cache(store=sys.argv[1] + "/cache.db"))
        def look(what: str) -> str:
            calls.append(what)
            return what * 40_000
        metrics = InMemoryMetrics()
        box = Toolbox([look], metrics=metrics)
        kept = [len(box.execute(ToolCall("look", {"what": "a"})).text) for _ in range(2)]
        fill(sys.argv[1])
        new = [len(box.execute(ToolCall("look", {"what": "b"})).text) for _ in range(2)]
        old = box.execute(ToolCall("look", {"what": "a"}))
        print(kept, new, old.result.attributes["cached"], calls, metrics.counter("cache_errors", "look"))
        """,
        tmp_path,
    )
    assert printed == ["[40000, 40000] [40000, 40000] True ['a', 'b', 'b'] 2"]


def test_processes_share_a_file(tmp_path, counted):
    cache = Cache(store=tmp_path / "cache.db")

    @tool(effects="read", cache=cache)
    def look(what: set[str]) -> str:
        return counted()

    assert look.execute({"what": ["a", "b", "c", "d"]}).output == "result 1"
    code = """
        import sys
        from toolsemble import Cache, tool
        @tool(effects="read", cache=Cache(store=sys.argv[1]))
        def look(what: set[str]) -> str:
            return "made here"
        for letters in ("abcd", "dcba", "x"):
            print(look.execute({"what": list(letters)}).output)
        """
    for seed in ("1", "2"):  # the order in which a set is walked
        printed = in_a_process(code, tmp_path / "cache.db", env={**os.environ, "PYTHONHASHSEED": seed})
        assert printed == ["result 1", "result 1", "made here"]
    assert look.execute({"what": ["x"]}).output == "made here"
    cache.close()


async def test_a_file_does_not_hold_up_the_event_loop(tmp_path, counted):
    cache = Cache(store=tmp_path / "cache.db")
    box = Toolbox([reading(counted, cache)])
    loop_runs = [(await box.aexecute(ToolCall("look", {"what": "a"}))).text for _ in range(2)]
    assert loop_runs == ["result 1", "result 1"]
    broken = Toolbox([reading(counted, Cache(store=tmp_path))])
    assert (await broken.aexecute(ToolCall("look", {"what": "a"}))).text == "result 2"
    cache.close()


async def test_who_is_cancelled_while_a_file_is_read_knows_what_it_says(tmp_path):
    reading_now, go = threading.Event(), threading.Event()

    def slow():
        reading_now.set()
        assert go.wait(BOUND)
        return "read"

    def broken():
        slow()
        raise sqlite3.OperationalError("disk I/O error")

    for function in (slow, broken):
        reading_now.clear()
        go.clear()
        task = asyncio.create_task(RunInThread(function).ado())
        assert await asyncio.to_thread(reading_now.wait, BOUND)
        task.cancel()
        await asyncio.sleep(0)
        assert not task.done()
        go.set()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(task, BOUND)
    assert await RunInThread(lambda: "here", in_place=True).ado() == "here"


def test_a_fork_does_not_wait_for_a_flight_of_its_parent(monkeypatch):
    flights, first, second, third = SingleFlight(), SharedCall(), SharedCall(), SharedCall()
    assert flights.join("a", first) is first
    monkeypatch.setattr(first, "process", -1)
    assert flights.join("a", second) is second
    flights.finish("a", first)
    assert flights.join("a", third) is second
    for each in (second, third):
        flights.finish("a", each)
    assert not flights._open


def test_an_id_belongs_to_one_object():
    ids = ObjectIds()
    first = Shelf("ada")
    numbers = {ids.get(first), ids.get(first)}
    assert len(numbers) == 1
    place = ids._ids
    (entry,) = place.items()
    place[entry[0]] = (weakref.ref(Shelf("bob")), "another")  # at the same place in memory, and gone
    assert ids.get(first) not in {"another", *numbers}
    first = None
    assert place == {}
    ghost = Shelf("eve")
    ids.get(ghost)
    place.clear()
    del ghost
    assert place == {}


class Silent:
    """A function that does not tell its parameters, as some in C do not."""

    @property
    def __signature__(self):
        raise ValueError("no signature found")

    def __call__(self, arguments):
        return arguments.what


def test_a_key_function_that_does_not_tell_its_parameters_gets_the_arguments(counted):
    look = reading(counted, Cache(key=Silent()))
    assert texts(look, '{"what":"a"}', '{"what":"a", "times": 2}') == ["result 1", "result 1"]


def test_a_payload_that_is_nested_too_deeply_is_not_kept(tmp_path, counted):
    cache = Cache(store=tmp_path / "cache.db")
    look = reading(lambda _: ToolResult.success(counted(), deep()), cache)
    assert texts(look, '{"what":"a"}', '{"what":"a"}') == ["result 1", "result 2"]
    cache.close()
