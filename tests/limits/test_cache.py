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

from helpers.full_disk import run_in_process, run_on_full_disk
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
from toolsemble._engine.limits.single_flight import ObjectIds, SharedCall, SingleFlight
from toolsemble._engine.work.wait import RunInThread
from toolsemble._runtime.locks import TABLE
from toolsemble.review import AutoReject

BOUND = 20.0


class Clock:
    now = 1000.0

    def __call__(self):
        return self.now


class CountedFunction:
    """A function that counts its calls, each of which gives another text."""

    def __init__(self):
        self.calls = 0

    def __call__(self, *_):
        self.calls += 1
        return f"result {self.calls}"


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture(params=["memory", "file", "postgres"])
def store(request, tmp_path):
    places = {"memory": lambda: None, "file": lambda: tmp_path / "cache.db"}
    return places.get(request.param, lambda: request.getfixturevalue("postgres_url"))()


@pytest.fixture
def counted():
    return CountedFunction()


def make_look_tool(function, cache, **settings):
    @tool("look", "Looks", effects="read", cache=cache, **settings)
    def look(what: str, times: int = 1) -> object:
        return function(what)

    return look


def outputs(look, *inputs, **settings):
    return [look.execute(each, **settings).output for each in inputs]


def test_repeated_call_is_cached(store, counted):
    metrics = InMemoryMetrics()
    cache = Cache(store=store)
    seen = []
    box = Toolbox([make_look_tool(counted, cache)], metrics=metrics, sinks=[seen.append])
    first, second = (box.execute(ToolCall("look", text)) for text in ('{"what":"a"}', '{"times": 1, "what": "a"}'))
    assert first.result == ToolResult.success("result 1")
    assert second.result == ToolResult.success("result 1", attributes={"cached": True})
    box.flush(60)
    assert [event.kind for event in seen[2:]] == ["call_started", "cache_hit", "call_finished"]
    assert box.execute(ToolCall("look", {"what": "a", "times": 2})).text == "result 2"
    assert (metrics.counter("cache_hits", "look"), metrics.count("look", "success")) == (1, 3)
    assert len(metrics.durations("look")) == 3
    cache.close()


@pytest.mark.parametrize("cache", [True, 60, 0.5, Cache(60)])
def test_cache_accepts_true_seconds_or_an_object(counted, cache):
    assert outputs(make_look_tool(counted, cache), '{"what":"a"}', '{"what":"a"}') == ["result 1", "result 1"]


@pytest.mark.parametrize("cache", [None, False])
def test_no_cache_by_default(counted, cache):
    assert outputs(make_look_tool(counted, cache), '{"what":"a"}', '{"what":"a"}') == ["result 1", "result 2"]


def test_results_expire(store, counted, clock):
    cache = Cache(60, store=store, clock=clock)
    look = make_look_tool(counted, cache)
    assert outputs(look, '{"what":"a"}') == ["result 1"]
    for now, expected in ((1059.9, "result 1"), (1060.0, "result 2"), (1100.0, "result 2"), (1050.0, "result 3")):
        clock.now = now
        assert outputs(look, '{"what":"a"}') == [expected], now
    cache.close()


def test_reader_with_a_shorter_ttl_ignores_older_results(tmp_path, counted, clock):
    caches = [Cache(ttl, store=tmp_path / "cache.db", clock=clock) for ttl in (None, 10)]
    patient, impatient = (make_look_tool(counted, cache) for cache in caches)
    assert outputs(patient, '{"what":"a"}') == outputs(impatient, '{"what":"a"}') == ["result 1"]
    clock.now += 10
    assert (outputs(patient, '{"what":"a"}'), outputs(impatient, '{"what":"a"}')) == (["result 1"], ["result 2"])
    for cache in caches:
        cache.close()


def test_least_recently_used_result_is_evicted(counted):
    look = make_look_tool(counted, Cache(size=2))
    a, b, c = ('{"what":"a"}', '{"what":"b"}', '{"what":"c"}')
    assert outputs(look, a, b, a, c, a, b) == ["result 1", "result 2", "result 1", "result 3", "result 1", "result 4"]


def test_file_limits_the_number_of_results_and_deletes_expired_ones(tmp_path, counted, clock):
    cache = Cache(60, size=2, store=tmp_path / "cache.db", clock=clock)
    look = make_look_tool(counted, cache)

    def rows():
        with closing(sqlite3.connect(tmp_path / "cache.db")) as connection:
            return connection.execute("SELECT count(*) FROM results").fetchone()[0]

    outputs(look, *(f'{{"what":"{each}"}}' for each in "abcd"))
    assert (rows(), outputs(look, '{"what":"d"}', '{"what":"a"}')) == (2, ["result 4", "result 5"])
    clock.now += 100
    outputs(look, '{"what":"e"}')
    assert rows() == 1
    cache.clear()
    assert rows() == 0
    cache.close()


def test_clear_removes_all_results(counted):
    cache = Cache()
    look = make_look_tool(counted, cache)
    outputs(look, '{"what":"a"}')
    cache.clear()
    cache.close()
    assert outputs(look, '{"what":"a"}') == ["result 2"]


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
def test_cached_result_is_unchanged(store, result):
    cache = Cache(store=store)
    look = make_look_tool(lambda _: result, cache)
    first, second = (look.execute('{"what":"a"}') for _ in range(2))
    assert second == ToolResult(
        first.output, None, first.structured_output, first.contents, {**first.attributes, "cached": True}
    )
    cache.close()


def test_changing_a_payload_does_not_change_the_cache(store):
    cache = Cache(store=store)
    look = make_look_tool(lambda _: {"items": [1]}, cache)
    for _ in range(3):
        payload = look.execute('{"what":"a"}').structured_output
        assert payload == {"items": [1]}
        payload["items"].append(2)
    cache.close()


@dataclass
class Point:
    x: int


class Uncopyable(dict):
    def __deepcopy__(self, memo):
        raise RuntimeError("there is only one")


def make_deep_list():
    value: list = []
    for _ in range(100_000):
        value = [value]
    return value


@pytest.mark.parametrize("payload", [Point(1), (1, 2), {1: "a"}, OrderedDict(a=1), {"a": {3}}, [b"x"]])
def test_unserializable_payload_is_not_cached_and_logged_once(tmp_path, caplog, payload):
    calls = CountedFunction()
    cache = Cache(store=tmp_path / "cache.db")

    def look_up(_):
        calls()
        return ToolResult.success("text", payload)

    look = make_look_tool(look_up, cache)
    with caplog.at_level(logging.WARNING, "toolsemble"):
        results = [look.execute('{"what":"a"}') for _ in range(3)]
    assert (calls.calls, [result.structured_output == payload for result in results]) == (3, [True] * 3)
    assert [record.getMessage() for record in caplog.records] == [
        "Results of 'look' are not cached: its structured output cannot be restored from JSON unchanged"
    ]
    cache.close()


def test_unserializable_attributes_are_not_cached(tmp_path):
    calls = CountedFunction()
    cache = Cache(store=tmp_path / "cache.db")
    look = make_look_tool(lambda _: ToolResult.success(calls(), attributes={"at": object}), cache)
    assert outputs(look, '{"what":"a"}', '{"what":"a"}') == ["result 1", "result 2"]
    cache.close()


@pytest.mark.parametrize("payload", [Uncopyable(), threading.Lock()])
def test_uncopyable_payload_is_not_cached_in_memory(payload):
    calls = CountedFunction()
    look = make_look_tool(lambda _: ToolResult.success(calls(), payload), True)
    assert outputs(look, '{"what":"a"}', '{"what":"a"}') == ["result 1", "result 2"]


def test_only_successes_are_cached(store):
    outcomes = iter([ValueError("no"), ToolExecutionError("nor"), ToolResult.failure("never"), "yes", "again"])

    def look_up(_):
        outcome = next(outcomes)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    cache = Cache(store=store)
    look = make_look_tool(look_up, cache)
    texts = [look.execute('{"what":"a"}').text for _ in range(5)]
    assert texts == ["Error: no", "Error: nor", "Error: never", "yes", "yes"]
    cache.close()


def test_number_of_retries_is_not_cached():
    tries = iter([ConnectionError(), "found"])

    def look_up(_):
        outcome = next(tries)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    look = make_look_tool(look_up, True, retries=Retries(2, wait=0, jitter=0))
    first, second = (look.execute('{"what":"a"}').attributes for _ in range(2))
    assert (dict(first), dict(second)) == ({"retries": 1}, {"cached": True})


def test_tools_do_not_share_results(store):
    cache = Cache(store=store)
    first = SchemaTool("first", "", lambda _: "first", effects="read", cache=cache)
    second = SchemaTool("second", "", lambda _: "second", effects="read", cache=cache)
    assert [each.execute("{}").output for each in (first, second, first, second)] == ["first", "second"] * 2
    cache.close()


class Library:
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
        """Tell what kind of library it is."""
        return cls.__name__


class OtherLibrary(Library):
    pass


def test_objects_do_not_share_results():
    libraries = [Library("ada"), Library("bob"), OtherLibrary("eve")]
    for _ in range(2):
        assert [each.book.execute('{"title":"X"}').output for each in libraries] == ["X of ada", "X of bob", "X of eve"]
        assert [each.kind.execute("{}").output for each in libraries] == ["Library", "Library", "OtherLibrary"]
    assert [each.calls for each in libraries] == [1, 1, 1]
    del libraries
    for number in range(50):  # most of them at the place of one that is gone
        assert Library(number).book.execute('{"title":"X"}').output == f"X of {number}"


def test_objects_of_a_class_with_its_own_cache_do_not_share_results():
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


def test_rejects_indistinguishable_objects(tmp_path):
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
        def with_key(self) -> str:
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
    for each in (Method().with_key, Method().alone, Method().ours):
        assert [bool(each.execute("{}").attributes) for _ in range(2)] == [False, True]
    for each in (Method.with_key, Method.alone, Method.ours):
        each.cache.close()


def test_users_do_not_share_results_of_tools_that_see_the_user(counted):
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


def test_invocation_parameters_must_be_in_the_key(counted):
    def look(what: str, shared: InvocationParameters) -> str:
        return f"{shared['tenant']}: {counted()}"

    with pytest.raises(
        ToolDefinitionError, match=r"'look': the cache key does not contain what the tool takes from its Invocation"
    ):
        tool(effects="read", cache=True)(look).execute("{}")
    keyed = tool(effects="read", cache=Cache(key=lambda a, c: [a.what, c.parameters["tenant"]]))(look)
    box = Toolbox([keyed])
    call = ToolCall("look", {"what": "a"})
    texts = [box.execute(call, parameters={"tenant": each}).text for each in ("x", "y", "x")]
    assert texts == ["x: result 1", "y: result 2", "x: result 1"]
    unset = box.execute(call)
    assert (
        unset.text == "Error: KeyError: 'tenant'"
    )  # the key cannot be computed, and the body cannot do without it either


def first_letter(arguments):
    return arguments.what[0]


@pytest.mark.parametrize(
    "key", [first_letter, lambda a, c: [a.what[0], c.memory_id], lambda a, **_: {"first": a.what[0]}]
)
def test_key_decides_which_calls_are_equal(counted, key):
    look = make_look_tool(counted, Cache(key=key))
    assert outputs(look, '{"what":"ab"}', '{"what":"ac"}', '{"what":"b"}') == ["result 1", "result 1", "result 2"]


def test_class_tool_is_identified_by_name_in_a_file(tmp_path, counted):
    class Look(Tool):
        name = "look"
        description = ""
        effects = "read"
        cache = Cache(store=tmp_path / "cache.db")

        def run(self, input):
            return counted()

    assert [Look().execute("a").output for _ in range(2)] == ["result 1", "result 1"]
    Look.cache.close()


def test_key_function_gets_the_plain_input(counted):
    class Look(Tool):
        name = "look"
        description = ""
        effects = "read"
        cache = Cache(key=str.casefold)

        def run(self, input):
            return counted()

    look = Look()
    assert outputs(look, "A", "a", "b") == ["result 1", "result 1", "result 2"]


async def async_key(arguments):
    return arguments


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"cache": True}, 'cache needs a tool that changes nothing; declare effects="read"'),
        ({"cache": 60, "effects": "write"}, 'cache needs a tool that changes nothing; declare effects="read"'),
        ({"cache": 0, "effects": "read"}, "cache must be True, a number of seconds > 0, or a Cache, not 0"),
        ({"cache": "x", "effects": "read"}, "cache must be True, a number of seconds > 0, or a Cache, not 'x'"),
        ({"cache": Cache(key=5), "effects": "read"}, "key must be a function of the arguments, not 5"),
        (
            {"cache": Cache(key=async_key), "effects": "read"},
            "key must be a sync function; it is called before each call",
        ),
        (
            {"cache": Cache(key=lambda: 1), "effects": "read"},
            "key must take the arguments, or the arguments and the context",
        ),
    ],
)
def test_rejects_invalid_cache(settings, problem):
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
def test_rejects_invalid_settings(settings, problem):
    with pytest.raises(ToolDefinitionError) as refusal:
        Cache(**settings)
    assert str(refusal.value) == problem


def test_pipeline_steps_are_cached(counted):
    pipeline = make_look_tool(counted, True) | make_look_tool(counted, None)
    pipeline.effects, pipeline.cache = "read", True
    with pytest.raises(ToolDefinitionError, match=r"cache is for a tool with a body; declare it on the tools inside"):
        Toolbox([pipeline])


def test_toolbox_caches_read_only_tools(counted):
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


def test_toolbox_caches_steps_and_distinguishes_equal_names(counted):
    def named(body):
        return tool(name="read", effects="read")(body)

    read = named(lambda: f"read {counted()}")
    other, third = named(lambda: "other"), named(lambda: "third")
    lines = [ToolPipeline(name, "", [part]) for name, part in (("one", read), ("two", other), ("three", third))]
    box = Toolbox([*lines, read], cache=60)
    texts = [box.execute(ToolCall(name)).text for name in ("read", "one", "one", "two", "three")]
    assert texts == ["read result 1", "read result 1", "read result 1", "other", "third"]
    alone = Toolbox(lines[1:], cache=60)
    assert [alone.execute(ToolCall(name)).text for name in ("two", "two", "three")] == ["other", "other", "third"]


def test_approval_is_asked_before_the_cache(counted):
    look = make_look_tool(counted, True)
    assert Toolbox([look]).execute(ToolCall("look", {"what": "a"})).text == "result 1"
    box = Toolbox([look], review=AutoReject(), approve=["look"])
    assert box.execute(ToolCall("look", {"what": "a"})).is_error


def test_dry_run_does_not_use_the_cache(counted):
    box = Toolbox([make_look_tool(counted, True)])
    call = ToolCall("look", {"what": "a"})
    assert [box.execute(call, dry_run=dry).text for dry in (True, False, True)][1] == "result 1"
    assert counted.calls == 1


def test_secrets_are_not_stored_in_plain_text(tmp_path):
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


def test_keys_differ_between_files(tmp_path):
    keys = []
    for name in ("a.db", "b.db"):
        cache = Cache(store=tmp_path / name)
        make_look_tool(lambda _: "x", cache).execute('{"what":"a"}')
        cache.close()
        with closing(sqlite3.connect(tmp_path / name)) as connection:
            keys += [key for (key,) in connection.execute("SELECT key FROM results")]
    assert len(set(keys)) == 2


def test_copies_and_pickles_start_empty(counted):
    look = make_look_tool(counted, Cache(5, size=3))
    outputs(look, '{"what":"a"}')
    for made in (pickle.loads(pickle.dumps(look.cache)), copy.deepcopy(look.cache)):
        assert (made.ttl, made.kept("anything")) == (5, None)


@pytest.mark.parametrize(
    "key", [lambda _: object(), lambda _: [1, {"a": object()}], lambda _: Point(object()), lambda _: {object()}]
)
def test_key_with_a_memory_address_is_not_cached(counted, caplog, key):
    metrics = InMemoryMetrics()
    look = make_look_tool(counted, Cache(key=key))
    box = Toolbox([look], metrics=metrics)
    assert [box.execute(ToolCall("look", {"what": "a"})).text for _ in range(2)] == ["result 1", "result 2"]
    assert metrics.counter("cache_errors", "look") == 2
    assert (
        "The cache of 'look' is not used: Its key cannot be computed: the text of an argument is its memory address"
        in caplog.text
    )


def test_string_that_looks_like_an_object_repr_is_cached(counted):
    @tool(effects="read", cache=True)
    def look(points: dict[str, list[Point]], what: str) -> str:
        return counted()

    arguments = {"what": "<Point object at 0x7f00>", "points": {"a": [{"x": 1}]}}
    assert [look.execute(arguments).output for _ in range(2)] == ["result 1", "result 1"]


def test_concurrent_threads_run_the_body_once(store):
    cache, started, go, calls = Cache(store=store), threading.Event(), threading.Event(), CountedFunction()

    def slow(_):
        started.set()
        assert go.wait(BOUND)
        return calls()

    look = make_look_tool(slow, cache)
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


def wait_for_waiters(count):
    """Wait until so many calls wait."""

    async def wait():
        async with asyncio.timeout(BOUND):
            while TABLE.waiting < count:
                await asyncio.sleep(0)

    return wait()


async def test_concurrent_tasks_run_the_body_once(store):
    cache, go, calls = Cache(store=store), asyncio.Event(), CountedFunction()

    @tool(effects="read", cache=cache)
    async def look(what: str) -> dict:
        await go.wait()
        return {"n": calls()}

    box = Toolbox([look])
    tasks = [asyncio.create_task(box.aexecute(ToolCall("look", {"what": "a"}))) for _ in range(5)]
    await wait_for_waiters(4)
    go.set()
    replies = await asyncio.wait_for(asyncio.gather(*tasks), BOUND)
    assert ({reply.text for reply in replies}, calls.calls) == ({'{"n":"result 1"}'}, 1)
    payloads = [reply.result.structured_output for reply in replies]
    assert len({id(payload) for payload in payloads}) == 5
    cache.close()


@pytest.mark.parametrize("how", ["cancelled", "failed", "uncopied"])
async def test_waiter_runs_the_body_if_the_first_call_fails(how):
    entered, go, calls = asyncio.Event(), asyncio.Event(), CountedFunction()

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
    await wait_for_waiters(2)
    if how == "cancelled":
        tasks[0].cancel()
    go.set()
    first, *others = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), BOUND)
    assert isinstance(first, asyncio.CancelledError) or first.text == {"failed": "Error: no"}.get(how, "result 1")
    assert sorted(reply.text for reply in others) == ["result 2", "result 3"]


async def test_abandoned_body_does_not_block_waiters():
    go, calls = threading.Event(), CountedFunction()

    def slow(_):
        number = calls()
        if number == "result 1":
            assert go.wait(BOUND)
        return number

    box = Toolbox([make_look_tool(slow, True)])
    first = asyncio.create_task(box.aexecute(ToolCall("look", {"what": "a"})))
    async with asyncio.timeout(BOUND):
        while not calls.calls:
            await asyncio.sleep(0)
    second = asyncio.create_task(box.aexecute(ToolCall("look", {"what": "a"})))
    await wait_for_waiters(1)
    first.cancel()
    assert (await asyncio.wait_for(second, BOUND)).text == "result 2"
    go.set()


async def test_wait_ends_at_the_deadline():
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


async def test_call_that_cannot_wait_runs_the_body():
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
    assert slow.execute('{"what":"a"}').output == "2"  # the event loop is blocked, so the first could never end
    go.set()
    assert (await asyncio.wait_for(first, BOUND)).output == "2"


async def test_mutual_waits_do_not_deadlock():
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
    texts = [result.output for result in await asyncio.wait_for(asyncio.gather(*calls), BOUND)]
    assert all(text[0] == what and len(text) >= 2 for text, what in zip(texts, "ab", strict=True))


def test_result_stored_meanwhile_is_used(counted):
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
    look = make_look_tool(counted, cache)
    assert outputs(look, '{"what":"a"}', '{"what":"a"}') == ["result 1", "result 1"]


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
def test_unusable_file_fails_no_call(tmp_path, counted, caplog, make):
    make(tmp_path / "cache.db")
    metrics = InMemoryMetrics()
    box = Toolbox([make_look_tool(counted, Cache(store=tmp_path / "cache.db"))], metrics=metrics)
    with caplog.at_level(logging.WARNING, "toolsemble"):
        assert [box.execute(ToolCall("look", {"what": "a"})).text for _ in range(2)] == ["result 1", "result 2"]
    assert [record.getMessage().split(":")[0] for record in caplog.records] == [
        "The cache of 'look' cannot be used; the call runs without it"
    ] * 2
    assert metrics.counter("cache_errors", "look") == 2


def test_corrupted_file_fails_no_call(tmp_path, counted):
    cache = Cache(store=tmp_path / "cache.db")
    look = make_look_tool(counted, cache)
    outputs(look, '{"what":"a"}')
    cache.close()
    size = (tmp_path / "cache.db").stat().st_size
    with (tmp_path / "cache.db").open("r+b") as file:
        file.seek(100)
        file.write(b"\xff" * (size - 100))
    assert outputs(look, '{"what":"a"}', '{"what":"a"}') == ["result 2", "result 3"]
    for each in tmp_path.iterdir():
        each.unlink()
    assert outputs(look, '{"what":"a"}', '{"what":"a"}') == ["result 4", "result 4"]
    cache.close()


@pytest.mark.parametrize("change", ["result = 'no JSON'", "result = '{}'", "stored = 'x'"])
def test_changed_row_is_ignored(tmp_path, counted, change):
    cache = Cache(store=tmp_path / "cache.db")
    look = make_look_tool(counted, cache)
    outputs(look, '{"what":"a"}')
    with closing(sqlite3.connect(tmp_path / "cache.db", isolation_level=None)) as connection:
        connection.execute(f"UPDATE results SET {change}")  # noqa: S608 - one of the table above
    assert outputs(look, '{"what":"a"}', '{"what":"a"}') == ["result 2", "result 2"]
    cache.close()


def test_locked_file_fails_no_call(tmp_path, counted, monkeypatch, caplog):
    monkeypatch.setattr("toolsemble._engine.limits.cache._BUSY", 0.02)
    cache = Cache(store=tmp_path / "cache.db")
    look = make_look_tool(counted, cache)
    outputs(look, '{"what":"a"}')
    with closing(sqlite3.connect(tmp_path / "cache.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        assert outputs(look, '{"what":"a"}', '{"what":"b"}', '{"what":"b"}') == ["result 1", "result 2", "result 3"]
    assert "database is locked" in caplog.text
    assert outputs(look, '{"what":"b"}', '{"what":"b"}') == ["result 4", "result 4"]
    cache.close()


@pytest.mark.parametrize("kind", ["limit", "disk"])
def test_full_disk_fails_no_call(tmp_path, kind):
    printed = run_on_full_disk(
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


@pytest.mark.slow
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
        printed = run_in_process(code, tmp_path / "cache.db", env={**os.environ, "PYTHONHASHSEED": seed})
        assert printed == ["result 1", "result 1", "made here"]
    assert look.execute({"what": ["x"]}).output == "made here"
    cache.close()


async def test_file_does_not_block_the_event_loop(tmp_path, counted):
    cache = Cache(store=tmp_path / "cache.db")
    box = Toolbox([make_look_tool(counted, cache)])
    loop_runs = [(await box.aexecute(ToolCall("look", {"what": "a"}))).text for _ in range(2)]
    assert loop_runs == ["result 1", "result 1"]
    broken = Toolbox([make_look_tool(counted, Cache(store=tmp_path))])
    assert (await broken.aexecute(ToolCall("look", {"what": "a"}))).text == "result 2"
    cache.close()


async def test_cancellation_waits_for_the_file_access(tmp_path):
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


def test_fork_does_not_wait_for_running_calls_of_its_parent(monkeypatch):
    flights, first, second, third = SingleFlight(), SharedCall(), SharedCall(), SharedCall()
    assert flights.join("a", first) is first
    monkeypatch.setattr(first, "process", -1)
    assert flights.join("a", second) is second
    flights.finish("a", first)
    assert flights.join("a", third) is second
    for each in (second, third):
        flights.finish("a", each)
    assert not flights._open


def test_object_ids_are_not_reused():
    ids = ObjectIds()
    first = Library("ada")
    numbers = {ids.get(first), ids.get(first)}
    assert len(numbers) == 1
    place = ids._ids
    (entry,) = place.items()
    place[entry[0]] = (weakref.ref(Library("bob")), "another")  # at the same place in memory, and gone
    assert ids.get(first) not in {"another", *numbers}
    first = None
    assert place == {}
    ghost = Library("eve")
    ids.get(ghost)
    place.clear()
    del ghost
    assert place == {}


class WithoutSignature:
    """A function that does not tell its parameters, as some in C do not."""

    @property
    def __signature__(self):
        raise ValueError("no signature found")

    def __call__(self, arguments):
        return arguments.what


def test_key_function_without_a_signature_gets_the_arguments(counted):
    look = make_look_tool(counted, Cache(key=WithoutSignature()))
    assert outputs(look, '{"what":"a"}', '{"what":"a", "times": 2}') == ["result 1", "result 1"]


def test_too_deep_payload_is_not_cached(tmp_path, counted):
    cache = Cache(store=tmp_path / "cache.db")
    look = make_look_tool(lambda _: ToolResult.success(counted(), make_deep_list()), cache)
    assert outputs(look, '{"what":"a"}', '{"what":"a"}') == ["result 1", "result 2"]
    cache.close()
