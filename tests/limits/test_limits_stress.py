"""Thousands of calls of every kind at once, over one toolbox with every limit: what must hold, holds at the end."""

import asyncio
import json
import threading
import time
from collections import Counter, defaultdict
from contextlib import contextmanager

import pytest

from toolsemble import (
    EffectLedger,
    InMemoryMetrics,
    RateLimit,
    Retries,
    Toolbox,
    ToolCall,
    ToolContext,
    ToolResult,
    tool,
)
from toolsemble._runtime.locks import TABLE
from toolsemble.review import CallbackReview, Continue, Edit, ExitEarly

pytestmark = pytest.mark.slow

TASKS, TURNS, CALLS = 50, 10, 10
COUNT = TASKS * TURNS * CALLS
BOUND = 60.0
PLACES, FEW, FILES, PAGES, ORDERS = 30, 3, 5, 7, 60


class Watch:
    """Counts the concurrent holders of each resource."""

    def __init__(self):
        self._lock = threading.Lock()
        self._inside = Counter()
        self.most = Counter()

    @contextmanager
    def inside(self, *names):
        self._change(names, 1)
        try:
            yield
        finally:
            self._change(names, -1)

    def _change(self, names, amount):
        with self._lock:
            for name in names:
                self._inside[name] += amount
                self.most[name] = max(self.most[name], self._inside[name])


class Stage:
    """Tools of every kind, and what their bodies did."""

    def __init__(self):
        self.watch = Watch()
        self.bodies = defaultdict(Counter)
        self.over = {f"c{number}": threading.Event() for number in numbers_of("stuck")}

    def tools(self):
        return [*self._plain(), *self._placed(), *self._late(), *self._kept(), *self._failing()]

    def _plain(self):
        @tool
        def plain(number: int) -> str:
            with self.watch.inside("box"):
                return f"plain {number}"

        @tool(requires_approval=True)
        async def gated(number: int) -> str:
            with self.watch.inside("box"):
                self.bodies["gated"][number] += 1
                return f"gated {number}"

        return plain, gated

    def _placed(self):
        def file(arguments):
            return f"stress:{arguments.number % FILES}"

        @tool(inline=False, max_concurrency=FEW)
        def few(number: int) -> str:
            with self.watch.inside("box", "few"):
                time.sleep(0.0005)  # the others get a chance to be inside, too
                return f"few {number}"

        @tool(resources=file)
        async def write(number: int) -> str:
            with self.watch.inside("box", number % FILES):
                await asyncio.sleep(0)
                return f"write {number}"

        @tool(inline=False, resources=file)
        def append(number: int) -> str:
            with self.watch.inside("box", number % FILES):
                time.sleep(0.0005)  # as above
                return f"append {number}"

        @tool(rate_limit=RateLimit(50, per=0.05))
        async def rated(number: int) -> str:
            with self.watch.inside("box"):
                return f"rated {number}"

        return few, write, append, rated

    def _late(self):
        @tool(timeout=0.02)
        async def late(number: int) -> str:
            with self.watch.inside("box"):
                await asyncio.Event().wait()
                return "never"

        @tool(inline=False, timeout=0.02)
        def stuck(number: int, context: ToolContext) -> str:
            with self.watch.inside("box"):
                assert self.over[context.call_id].wait(BOUND)  # its thread goes on when its call is over
                return "late"

        return late, stuck

    def _kept(self):
        @tool(effects="read", cache=True)
        async def cached(page: int) -> str:
            with self.watch.inside("box"):
                self.bodies["cached"][page] += 1
                await asyncio.sleep(0)
                return f"page {page}"

        @tool(effects="write", idempotency=True, inline=False)
        def pay(order: int) -> str:
            with self.watch.inside("box"):
                self.bodies["pay"][order] += 1
                return f"paid {order}"

        return cached, pay

    def _failing(self):
        @tool(effects="read", retries=Retries(3, wait=0, jitter=0))
        async def flaky(number: int) -> str:
            with self.watch.inside("box"):
                self.bodies["flaky"][number] += 1
                if number % 2 or self.bodies["flaky"][number] < 3:
                    raise ConnectionError("down")
                return f"flaky {number}"

        @tool
        def broken(number: int) -> str:
            with self.watch.inside("box"):
                raise ValueError(f"broken {number}")

        @tool
        async def refusing(number: int) -> ToolResult:
            with self.watch.inside("box"):
                return ToolResult.failure(f"refused {number}")

        return flaky, broken, refusing


def decide(request):
    number = request.arguments["number"]
    return (Continue(), ExitEarly("no"), Edit(json.dumps({"number": -number})))[number % 3]


UNFIT = "Error: Invalid arguments for 'plain': number: expected an integer"
NAMES = "plain, gated, few, write, append, rated, late, stuck, cached, pay, flaky, broken, refusing"
MISSING = f"Error: Unknown tool 'missing'. Available tools: {NAMES}"
GATED = [
    lambda n: ("success", f"gated {n}"),
    lambda n: ("failure", "Error: Rejected by reviewer: no"),
    lambda n: ("success", f"gated {-n}"),
]
FLAKY = [lambda n: ("success", f"flaky {n}"), lambda n: ("error", "Error: down")]

# the call for a number: tool, arguments, outcome, text
KINDS = [
    lambda n: ("plain", {"number": n}, "success", f"plain {n}"),
    lambda n: ("plain", {"number": "x"}, "failure", UNFIT),
    lambda n: ("few", {"number": n}, "success", f"few {n}"),
    lambda n: ("write", {"number": n}, "success", f"write {n}"),
    lambda n: ("append", {"number": n}, "success", f"append {n}"),
    lambda n: ("rated", {"number": n}, "success", f"rated {n}"),
    lambda n: ("late", {"number": n}, "failure", "Error: Tool 'late' timed out after 0.02 s"),
    lambda n: ("stuck", {"number": n}, "failure", "Error: Tool 'stuck' timed out after 0.02 s"),
    lambda n: ("cached", {"page": n % PAGES}, "success", f"page {n % PAGES}"),
    lambda n: ("pay", {"order": n % ORDERS}, "success", f"paid {n % ORDERS}"),
    lambda n: ("flaky", {"number": n}, *FLAKY[n % 2](n)),
    lambda n: ("broken", {"number": n}, "error", f"Error: broken {n}"),
    lambda n: ("refusing", {"number": n}, "failure", f"Error: refused {n}"),
    lambda n: ("missing", {"number": n}, "failure", MISSING),
    lambda n: ("gated", {"number": n}, *GATED[n % 3](n)),
]


def plan_call(number):
    """Return a kind of call for a number, so that each kind meets each other and every rest of its number."""
    return KINDS[(number * 7 + number // len(KINDS)) % len(KINDS)](number)


async def work(box, task):
    """Make the calls of one task, in each of the ways in which calls can be made."""
    replies = []
    for turn in range(TURNS):
        first = (task * TURNS + turn) * CALLS
        calls = [ToolCall(*plan_call(number)[:2], id=f"c{number}") for number in range(first, first + CALLS)]
        if turn % 5 == 4:
            made = await asyncio.to_thread(box.execute_all, calls, run_id="run")
        elif turn % 2:
            made = await asyncio.gather(*(box.aexecute(call, run_id="run") for call in calls))
        else:
            made = await box.aexecute_all(calls, run_id="run")
        replies += made
    return replies


@pytest.fixture(scope="module")
def stage():
    return Stage()


@pytest.fixture(scope="module")
def run(stage):
    """Return what is left to look at when all calls have been made."""
    inline, served, metrics = Inline(stage.over), [], InMemoryMetrics()
    with EffectLedger() as ledger:
        box = Toolbox(
            stage.tools(),
            review=CallbackReview(decide),
            metrics=metrics,
            max_concurrency=PLACES,
            ledger=ledger,
            sinks=[inline, served.append],
        )

        async def everything():
            async with asyncio.timeout(BOUND):
                return await asyncio.gather(*(work(box, task) for task in range(TASKS)))

        replies = [reply for made in asyncio.run(everything()) for reply in made]
        assert box.flush(BOUND)
        effects = ledger.entries()
    return {
        "replies": replies,
        "metrics": metrics,
        "inline": inline.events,
        "served": served,
        "lost": box.lost_events,
        "effects": effects,
    }


class Inline:
    """An inline sink that passes on the end of a call."""

    inline = True

    def __init__(self, over):
        self.events = []
        self._over = over

    def emit(self, event):
        self.events.append(event)
        if event.kind == "call_finished" and event.call_id in self._over:
            self._over[event.call_id].set()


def count_outcomes():
    counts = Counter()
    for number in range(COUNT):
        name, _, outcome, _ = plan_call(number)
        counts["(unknown)" if name == "missing" else name, outcome] += 1
    return counts


def numbers_of(name):
    return [number for number in range(COUNT) if plan_call(number)[0] == name]


def test_replies_match_their_calls_in_order(run):
    replies = run["replies"]
    assert [reply.call.id for reply in replies] == [f"c{number}" for number in range(COUNT)]
    wanted = [(outcome != "success", text) for _, _, outcome, text in map(plan_call, range(COUNT))]
    assert [(reply.is_error, reply.text) for reply in replies] == wanted


def test_metrics_match_the_replies(run):
    metrics, wanted = run["metrics"], count_outcomes()
    names = {name for name, _ in wanted}
    kinds = ("success", "failure", "error")
    counted = {(name, kind): metrics.count(name, kind) for name in names for kind in kinds}
    assert {key: count for key, count in counted.items() if count} == wanted
    assert sum(len(metrics.durations(name)) for name in names) == COUNT


def test_counters_match_the_calls(run):
    metrics = run["metrics"]
    assert metrics.counter("timeouts", "late") == len(numbers_of("late"))
    assert metrics.counter("timeouts", "stuck") == len(numbers_of("stuck"))
    assert metrics.counter("retries", "flaky") == 2 * len(numbers_of("flaky"))
    assert metrics.counter("cache_hits", "cached") == len(numbers_of("cached")) - PAGES
    assert metrics.counter("denials", "gated") == len([n for n in numbers_of("gated") if n % 3 == 1])


@pytest.mark.parametrize("sink", ["inline", "served"])
def test_sinks_receive_start_and_end_of_each_call(run, sink):
    stories = defaultdict(list)
    for event in run[sink]:
        stories[event.call_id].append(event.kind)
    assert run["lost"] == 0
    assert set(stories) == {f"c{number}" for number in range(COUNT)}
    assert {(story[0], story[-1]) for story in stories.values()} == {("call_started", "call_finished")}
    ends = Counter(kind for story in stories.values() for kind in story if kind in {"call_started", "call_finished"})
    assert ends == {"call_started": COUNT, "call_finished": COUNT}


@pytest.mark.parametrize("sink", ["inline", "served"])
def test_events_match_the_metrics(run, sink):
    kinds = Counter((event.kind, event.tool_name) for event in run[sink])
    finished = Counter((event.tool_name, event.outcome) for event in run[sink] if event.kind == "call_finished")
    assert finished == count_outcomes()
    for kind, counter, name in (
        ("call_timed_out", "timeouts", "late"),
        ("call_timed_out", "timeouts", "stuck"),
        ("call_abandoned", "abandoned_threads", "stuck"),
        ("call_retried", "retries", "flaky"),
        ("cache_hit", "cache_hits", "cached"),
    ):
        assert kinds[kind, name] == run["metrics"].counter(counter, name)


def test_concurrency_limits_are_kept(run, stage):
    most = stage.watch.most
    assert {file: most[file] for file in range(FILES)} == dict.fromkeys(range(FILES), 1)
    assert most["few"] <= FEW
    assert most["box"] <= PLACES


def test_bodies_run_the_expected_number_of_times(run, stage):
    assert stage.bodies["cached"] == Counter(range(PAGES))
    assert stage.bodies["pay"] == Counter({number % ORDERS for number in numbers_of("pay")})
    assert stage.bodies["flaky"] == Counter(dict.fromkeys(numbers_of("flaky"), 3))
    assert stage.bodies["gated"] == Counter(n if n % 3 == 0 else -n for n in numbers_of("gated") if n % 3 != 1)
    assert [effect.state for effect in run["effects"]] == ["done"] * len(stage.bodies["pay"])


def test_nothing_is_held_at_the_end(run):
    ends = time.monotonic() + BOUND
    while TABLE._held and time.monotonic() < ends:  # threads that were left behind are about to end
        time.sleep(0.005)
    assert (TABLE._held, TABLE.waiting) == ({}, 0)
