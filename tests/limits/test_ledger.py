"""Effects: a call that changes something is taken down before and after, made once, and never made again unawares."""

import asyncio
import copy
import gc
import logging
import os
import pickle
import re
import signal
import sqlite3
import stat
import subprocess
import sys
import textwrap
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from typing import Annotated

import pytest
from pydantic import SecretStr

from helpers.full_disk import run_in_process, run_on_full_disk
from toolsemble import (
    Effect,
    EffectLedger,
    ExitEarlyError,
    Idempotency,
    InMemoryMetrics,
    MemoryId,
    RateLimit,
    Retries,
    SchemaTool,
    Toolbox,
    ToolCall,
    ToolConfigurationError,
    ToolContext,
    ToolDefinitionError,
    ToolExecutionError,
    ToolResult,
    tool,
)
from toolsemble._runtime.event_loops import finish
from toolsemble._runtime.locks import TABLE
from toolsemble._runtime.storage.database import ProcessIdentity
from toolsemble._vocabulary.errors import LostError, ToolArgumentsError
from toolsemble.review import AutoReject

pytestmark = pytest.mark.slow

BOUND = 20.0
RUN = {"run_id": "run 1"}
UNKNOWN = "Error: Unknown outcome: an earlier call of 'pay' with the same key ended without a record of its outcome"


class Clock:
    now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture(params=["memory", "file", "postgres"])
def ledger(request, tmp_path, clock):
    places = {"memory": lambda: None, "file": lambda: tmp_path / "effects.db"}
    place = places.get(request.param, lambda: request.getfixturevalue("postgres_url"))()
    with EffectLedger(place, clock=clock) as made:
        yield made


@pytest.fixture
def file(tmp_path, clock):
    with EffectLedger(tmp_path / "effects.db", clock=clock) as made:
        yield made


def make_pay_tool(body, idempotency=True, **settings):
    @tool("pay", "Pays", **{"effects": "write", "idempotency": idempotency, **settings})
    def pay(order: int, note: str = "") -> object:
        return body(order)

    return pay


class Payments:
    """Orders that were paid, in order; the outcomes are returned or raised, one after the other."""

    def __init__(self, *outcomes):
        self.orders = []
        self.outcomes = list(outcomes)

    def __call__(self, order):
        self.orders.append(order)
        outcome = self.outcomes.pop(0) if self.outcomes else f"paid {order} as {len(self.orders)}"
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome


def call(order=17, **more):
    return ToolCall("pay", {"order": order, **more}, id="c1")


def test_repeated_call_of_a_run_gets_the_stored_result(ledger, clock):
    metrics, paid = InMemoryMetrics(), Payments(ToolResult.success("ok", {"id": [1]}, attributes={"bank": "x"}))
    box = Toolbox([make_pay_tool(paid)], ledger=ledger, metrics=metrics)
    first, second, other, elsewhere = (
        box.execute(call(), **RUN),
        box.execute(ToolCall("pay", '{"note": "", "order": 17}', id="c2"), **RUN),
        box.execute(call(18), **RUN),
        box.execute(call(), run_id="run 2"),
    )
    assert first.result == ToolResult.success("ok", {"id": [1]}, attributes={"bank": "x"})
    assert second.result == ToolResult.success("ok", {"id": [1]}, attributes={"bank": "x", "repeated": True})
    assert (other.text, elsewhere.text, paid.orders) == ("paid 18 as 2", "paid 17 as 3", [17, 18, 17])
    assert (metrics.counter("repeats", "pay"), metrics.count("pay", "success")) == (1, 4)
    entry = ledger.entries()[0]
    assert entry == Effect(
        entry.key, "pay", "run 1", "c1", '{"note":"","order":17}', "done", 1000.0, 1000.0, first.result
    )
    assert (len(ledger.entries()), ledger.entries("running"), ledger.unknown()) == (3, [], [])


def test_tool_has_its_own_ledger_by_default():
    paid = Payments()
    box = Toolbox([make_pay_tool(paid)])
    assert [box.execute(call(), **RUN).text for _ in range(2)] == ["paid 17 as 1"] * 2
    assert Toolbox([make_pay_tool(Payments(), False)]).execute(call(), **RUN).result.attributes == {}


def test_pipeline_steps_use_the_toolbox_ledger(ledger):
    paid = Payments()
    pay = make_pay_tool(paid)

    @tool
    def thank(text: str) -> str:
        return f"thanks: {text}"

    box = Toolbox([pay | thank, thank], ledger=ledger)
    call_both = ToolCall("pay_then_thank", {"order": 17})
    assert [box.execute(call_both, **RUN).text for _ in range(2)] == ["thanks: paid 17 as 1"] * 2
    assert [entry.tool_name for entry in ledger.entries()] == ["pay"]


def test_calls_without_a_run_are_not_repeats():
    paid = Payments()
    box = Toolbox([make_pay_tool(paid)])
    assert [box.execute(call()).text for _ in range(2)] == ["paid 17 as 1", "paid 17 as 2"]


def test_tool_ledger_overrides_the_toolbox_ledger():
    with EffectLedger() as own, EffectLedger() as boxes:
        box = Toolbox([make_pay_tool(Payments(), Idempotency(ledger=own))], ledger=boxes)
        box.execute(call(), **RUN)
        assert (len(own.entries()), len(boxes.entries())) == (1, 0)


@pytest.mark.parametrize("key", [lambda a: a.order, lambda a, c: [a.order, c.tool_name]])
def test_key_decides_which_calls_are_equal(ledger, key):
    box = Toolbox([make_pay_tool(Payments(), key)], ledger=ledger)
    texts = [box.execute(call(order, note=note), **RUN).text for order, note in ((17, "a"), (17, "b"), (18, "a"))]
    assert texts == ["paid 17 as 1", "paid 17 as 1", "paid 18 as 2"]


def test_ledger_scope_applies_across_runs(ledger):
    box = Toolbox([make_pay_tool(Payments(), Idempotency(scope="ledger"))], ledger=ledger)
    replies = [box.execute(call(), run_id=run) for run in ("run 1", "run 2", None)]
    assert [reply.result.attributes.get("repeated", False) for reply in replies] == [False, True, True]


def test_users_are_distinguished_if_the_tool_sees_the_user(ledger):
    @tool(effects="write", idempotency=Idempotency(scope="ledger"))
    def pay(user: Annotated[str, MemoryId]) -> str:
        return f"{user} paid"

    box = Toolbox([pay], ledger=ledger)
    assert [box.execute(ToolCall("pay"), memory_id=each).text for each in ("ada", "bob")] == ["ada paid", "bob paid"]


def test_objects_are_distinguished():
    class Account:
        def __init__(self, owner):
            self.owner = owner

        @tool(effects="write", idempotency=True)
        def pay(self, order: int) -> str:
            return f"{self.owner} paid"

    accounts = [Account("ada"), Account("bob")]
    texts = [Toolbox([each]).execute(call(), **RUN).text for each in accounts * 2]
    assert texts == ["ada paid", "bob paid"] * 2


@pytest.mark.parametrize(
    ("outcome", "message"),
    [
        (ToolExecutionError("no money"), "no money"),
        (ToolArgumentsError("no such order"), "no such order"),
        (ToolResult.failure("closed"), "closed"),
    ],
)
def test_failed_call_can_be_repeated(ledger, outcome, message):
    box = Toolbox([make_pay_tool(Payments(outcome))], ledger=ledger)
    assert [box.execute(call(), **RUN).text for _ in range(2)] == [f"Error: {message}", "paid 17 as 2"]
    assert ledger.unknown() == []


@pytest.mark.parametrize("outcome", [ValueError("a line is full"), OSError("no space"), LostError("the worker died")])
def test_exception_leaves_an_unknown_outcome(ledger, outcome, caplog):
    metrics, paid = InMemoryMetrics(), Payments(outcome)
    box = Toolbox([make_pay_tool(paid)], ledger=ledger, metrics=metrics)
    first, second = (box.execute(call(), **RUN) for _ in range(2))
    assert first.text == f"Error: {outcome}"
    (entry,) = ledger.unknown()
    assert second.text == (
        f"{UNKNOWN}, so it may or may not have taken effect. It is not made again. Find out whether the effect is "
        f"there before anything else is done; an operator settles it with "
        f"EffectLedger.resolve('{entry.key}', happened=...)"
    )
    assert second.result.attributes == {"outcome": "unknown", "effect": entry.key}
    assert (paid.orders, metrics.counter("unknown_outcomes", "pay")) == ([17], 1)
    assert (metrics.count("pay", "error"), metrics.count("pay", "failure")) == (1, 1)


@pytest.mark.parametrize("outcome", [ExitEarlyError("enough"), ToolConfigurationError("no bank"), KeyboardInterrupt()])
def test_raised_exception_leaves_an_unknown_outcome(ledger, outcome):
    box = Toolbox([make_pay_tool(Payments(outcome))], ledger=ledger)
    with pytest.raises(type(outcome)):
        box.execute(call(), **RUN)
    assert box.execute(call(), **RUN).text.startswith(UNKNOWN)


def test_call_of_unknown_outcome_is_made_again_once_its_tool_is_declared_idempotent(file):
    paid = Payments(ValueError("the line broke"))
    Toolbox([make_pay_tool(paid)], ledger=file).execute(call(), **RUN)
    assert len(file.unknown()) == 1
    box = Toolbox([make_pay_tool(paid, idempotent=True)], ledger=file)
    assert [box.execute(call(), **RUN).text for _ in range(2)] == ["paid 17 as 2"] * 2
    assert [entry.state for entry in file.entries()] == ["done"]


@pytest.mark.parametrize("outcome", [ValueError("no"), KeyboardInterrupt()])
def test_idempotent_tool_runs_again(ledger, outcome):
    box = Toolbox([make_pay_tool(Payments(outcome), idempotent=True)], ledger=ledger)
    with suppress(KeyboardInterrupt):
        box.execute(call(), **RUN)
    assert [box.execute(call(), **RUN).text for _ in range(2)] == ["paid 17 as 2"] * 2


def test_retries_share_one_reservation(ledger):
    paid = Payments(ConnectionError("gone"), ConnectionError("gone"))
    box = Toolbox([make_pay_tool(paid, idempotent=True, retries=Retries(3, wait=0, jitter=0))], ledger=ledger)
    first, second = (box.execute(call(), **RUN).result for _ in range(2))
    assert (first.attributes, second.attributes) == ({"retries": 2}, {"repeated": True})
    assert (paid.orders, len(ledger.entries())) == ([17] * 3, 1)


def test_unserializable_result_is_recorded_as_done(ledger):
    paid = Payments(iter("abc"))
    box = Toolbox([make_pay_tool(paid)], ledger=ledger)
    first, second = (box.execute(call(), **RUN) for _ in range(2))
    assert first.text == second.text == "Error: The tool returned a str_ascii_iterator; return a list instead"
    assert (second.result.attributes, paid.orders) == ({"repeated": True}, [17])


@dataclass
class Receipt:
    order: int
    token: SecretStr


class Opaque:
    def __str__(self):
        raise RuntimeError("no text")


@pytest.mark.parametrize(
    ("payload", "stored"),
    [
        ({"a": 1}, {"a": 1}),
        (Receipt(17, SecretStr("hunter2")), {"order": 17, "token": "**********"}),
        ((1, 2), [1, 2]),
        (Opaque(), None),
    ],
)
def test_payload_is_stored_as_json_if_possible(ledger, payload, stored):
    box = Toolbox([make_pay_tool(Payments(ToolResult.success("ok", payload)))], ledger=ledger)
    first, second = (box.execute(call(), **RUN).result for _ in range(2))
    assert (first.structured_output is payload, second.structured_output, second.output) == (True, stored, "ok")


def test_entry_is_written_before_the_body_runs(ledger):
    seen = []

    def body(_):
        seen.extend((entry.state, entry.ended, entry.result) for entry in ledger.entries())
        return "ok"

    Toolbox([make_pay_tool(body)], ledger=ledger).execute(call(), **RUN)
    assert seen == [("running", None, None)]


@pytest.mark.parametrize("refused", ["approval", "dry run", "rate", "place"])
async def test_body_that_did_not_start_leaves_no_entry(ledger, refused):
    rate = RateLimit(1, per=100)
    settings = {"rate": {"rate_limit": rate}, "place": {"max_concurrency": 1}}.get(refused, {})
    entered, go = threading.Event(), threading.Event()

    def body(order):
        if order == 1:
            entered.set()
            assert go.wait(BOUND)
        return "ok"

    gated = {"review": AutoReject(), "approve": ["pay"]} if refused == "approval" else {}
    made = make_pay_tool(body, **settings)
    box = Toolbox([made], ledger=ledger, timeout=0.05, **gated)
    patient = Toolbox([made], ledger=ledger)
    first = asyncio.create_task(patient.aexecute(call(1), **RUN))
    if refused == "place":
        assert await asyncio.to_thread(entered.wait, BOUND)
    else:
        go.set()
        await first
    reply = await box.aexecute(call(2), dry_run=refused == "dry run", **RUN)
    assert reply.is_error is (refused != "dry run")
    go.set()
    await first
    assert [entry.state for entry in ledger.entries()] == ["done"]


async def test_cancellation_leaves_an_unknown_outcome(ledger):
    entered = asyncio.Event()

    @tool(effects="write", idempotency=True)
    async def pay(order: int) -> str:
        entered.set()
        await asyncio.Event().wait()

    box = Toolbox([pay], ledger=ledger)
    task = asyncio.create_task(box.aexecute(call(), **RUN))
    await asyncio.wait_for(entered.wait(), BOUND)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (await box.aexecute(call(), **RUN)).text.startswith(UNKNOWN)


async def test_timeout_leaves_an_unknown_outcome(ledger, stopped_clock):
    go = threading.Event()
    pay = make_pay_tool(lambda _: stopped_clock.advance(0.05) or go.wait(BOUND), timeout=0.05)
    box = Toolbox([pay], ledger=ledger)
    for reply in (box.execute(call(1), **RUN), await box.aexecute(call(2), **RUN)):
        assert reply.text == "Error: Tool 'pay' timed out after 0.05 s"
    go.set()
    for order in (1, 2):
        assert (await box.aexecute(call(order), **RUN)).text.startswith(UNKNOWN)


def test_dropped_call_leaves_an_unknown_outcome(ledger):
    async def dropped():
        entered = asyncio.Event()

        @tool(effects="write", idempotency=True)
        async def pay(order: int) -> str:
            entered.set()
            await asyncio.Event().wait()

        path = pay._path({"order": 17}, ToolContext(**RUN))
        work = path.send(None)  # the reservation
        work = path.send(work.do())
        path.close()
        return Toolbox([pay])

    box = finish(dropped())
    gc.collect()
    reply = box.execute(call(), **RUN)
    assert reply.text.startswith(UNKNOWN)


async def test_concurrent_repeat_waits_for_the_first_call(ledger):
    go, paid = asyncio.Event(), Payments()

    @tool(effects="write", idempotency=True)
    async def pay(order: int) -> str:
        await go.wait()
        return paid(order)

    box = Toolbox([pay], ledger=ledger)
    tasks = [asyncio.create_task(box.aexecute(call(), **RUN)) for _ in range(4)]
    async with asyncio.timeout(BOUND):
        while TABLE.waiting < 3:
            await asyncio.sleep(0)
    late = await Toolbox([pay], ledger=ledger, timeout=0.02).aexecute(call(), **RUN)
    assert late.text == "Error: Tool 'pay' timed out after 0.02 s"
    go.set()
    replies = await asyncio.wait_for(asyncio.gather(*tasks), BOUND)
    assert ({reply.text for reply in replies}, paid.orders) == ({"paid 17 as 1"}, [17])
    assert [reply.result.attributes.get("repeated", False) for reply in replies] == [False, True, True, True]


def test_concurrent_threads_run_the_body_once(ledger):
    paid, barrier = Payments(), threading.Barrier(8)
    box = Toolbox([make_pay_tool(paid)], ledger=ledger)

    def together(_):
        barrier.wait(BOUND)
        return box.execute(call(), **RUN)

    with ThreadPoolExecutor(8) as threads:
        replies = list(threads.map(together, range(8)))
    assert ({reply.text for reply in replies}, paid.orders) == ({"paid 17 as 1"}, [17])
    assert ledger.flights._open == {}


async def test_waiter_runs_the_body_if_the_first_call_fails(ledger):
    entered, go, paid = asyncio.Event(), asyncio.Event(), Payments(ToolExecutionError("no money"))

    @tool(effects="write", idempotency=True)
    async def pay(order: int) -> str:
        entered.set()
        await go.wait()
        return paid(order)

    box = Toolbox([pay], ledger=ledger)
    tasks = [asyncio.create_task(box.aexecute(call(), **RUN)) for _ in range(3)]
    await asyncio.wait_for(entered.wait(), BOUND)
    go.set()
    texts = [reply.text for reply in await asyncio.wait_for(asyncio.gather(*tasks), BOUND)]
    assert texts == ["Error: no money", "paid 17 as 2", "paid 17 as 2"]


async def test_call_that_cannot_wait_fails(ledger):
    made = []

    @tool(effects="write", idempotency=True)
    async def pay(order: int) -> str:
        made.append(order)
        inside = await box.aexecute(call(), **RUN)
        blocking = box.execute(call(), **RUN)
        return f"{inside.text} / {blocking.text}"

    box = Toolbox([pay], ledger=ledger)
    inside = "Error: The call is nested in the same call, which has not ended"
    assert (await box.aexecute(call(), **RUN)).text == f"{inside} / {inside}"
    assert made == [17]
    entered, go = asyncio.Event(), asyncio.Event()

    @tool("pay", effects="write", idempotency=True)
    async def slow(order: int) -> str:
        entered.set()
        await go.wait()
        return "ok"

    box = Toolbox([slow], ledger=ledger)
    first = asyncio.create_task(box.aexecute(call(18), **RUN))
    await asyncio.wait_for(entered.wait(), BOUND)
    reply = box.execute(call(18), **RUN)  # the event loop is blocked, so the first could never end
    assert reply.text == "Error: The same call is running, and waiting for it here would never end"
    go.set()
    assert (await asyncio.wait_for(first, BOUND)).text == "ok"


def unknown_entry(ledger):
    Toolbox([make_pay_tool(Payments(ValueError("?")))], ledger=ledger).execute(call(), **RUN)
    return ledger.unknown()[0].key


@pytest.mark.parametrize(
    ("resolution", "expected"),
    [
        ({"happened": True}, ToolResult.success("", attributes={"repeated": True})),
        ({"happened": True, "result": "paid"}, ToolResult.success("paid", attributes={"repeated": True})),
        (
            {"happened": True, "result": ToolResult.failure("refunded")},
            ToolResult.failure("refunded", attributes={"repeated": True}),
        ),
        ({"happened": False}, ToolResult.success("paid 17 as 2")),
    ],
)
def test_operator_resolves_unknown_outcomes(file, resolution, expected):
    pay = make_pay_tool(Payments(ValueError("?")))
    box = Toolbox([pay], ledger=file)
    box.execute(call(), **RUN)
    (entry,) = file.unknown()
    file.resolve(entry.key, **resolution)
    assert file.unknown() == []
    assert box.execute(call(), **RUN).result == expected


def test_only_unknown_outcomes_can_be_resolved(ledger):
    box = Toolbox([make_pay_tool(Payments())], ledger=ledger)
    box.execute(call(), **RUN)
    (entry,) = ledger.entries()
    with pytest.raises(ValueError, match=rf"knows that 'pay' is done for '{entry.key}'; take one from unknown\(\)"):
        ledger.resolve(entry.key, happened=False)
    with pytest.raises(ValueError, match=r"has no entry 'nothing'; take one from unknown\(\)"):
        ledger.resolve("nothing", happened=True)


def test_running_call_cannot_be_resolved(ledger):
    def body(_):
        (entry,) = ledger.entries()
        with pytest.raises(ValueError, match="knows that 'pay' is running"):
            ledger.resolve(entry.key, happened=False)
        return "ok"

    assert Toolbox([make_pay_tool(body)], ledger=ledger).execute(call(), **RUN).text == "ok"


def test_old_entries_are_deleted_except_unknown_outcomes(ledger, clock):
    unknown_entry(ledger)
    box = Toolbox([make_pay_tool(Payments())], ledger=ledger)
    for order in (1, 2):
        clock.now += 100
        box.execute(call(order), **RUN)
    assert (ledger.forget(100), [entry.state for entry in ledger.entries()]) == (1, ["unknown", "done"])
    assert (ledger.forget(0), [entry.state for entry in ledger.entries()]) == (1, ["unknown"])
    with pytest.raises(ToolDefinitionError, match="older_than must be a number of seconds >= 0, not -1"):
        ledger.forget(-1)


def test_memory_ledger_limits_its_entries(monkeypatch):
    monkeypatch.setattr("toolsemble._engine.limits.effect_ledger._IN_MEMORY", 2)
    with EffectLedger() as ledger:
        unknown_entry(ledger)
        box = Toolbox([make_pay_tool(Payments())], ledger=ledger)
        for order in range(5):
            box.execute(call(order), **RUN)
        assert [entry.state for entry in ledger.entries()] == ["unknown", "done", "done"]


def test_secrets_are_not_stored_in_plain_text(tmp_path):
    with EffectLedger(tmp_path / "effects.db") as ledger:

        @tool(effects="write", idempotency=True)
        def pay(token: SecretStr, text: str) -> str:
            return "ok"

        box = Toolbox([pay], ledger=ledger)
        for token in ("hunter2", "hunter3"):
            box.execute(ToolCall("pay", {"token": token, "text": "x" * 5000}), **RUN)
        first, second = ledger.entries()
        assert first.key != second.key
        assert first.arguments.startswith('{"text":"xxx')
        assert len(first.arguments) < 2100
    for each in tmp_path.iterdir():
        assert b"hunter" not in each.read_bytes()
        assert stat.S_IMODE(each.stat().st_mode) == 0o600


def test_call_without_a_computable_key_fails(ledger):
    paid = Payments()
    for key in (lambda _: object(), lambda a: a.nothing):
        reply = Toolbox([make_pay_tool(paid, key)], ledger=ledger).execute(call(), **RUN)
        assert reply.text.startswith("Error: Its key cannot be computed: ")
    assert (paid.orders, ledger.entries()) == ([], [])


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        (
            {"effects": "read"},
            "idempotency needs a tool that changes something; for one that only reads, use cache=",
        ),
        (
            {"idempotency": 5},
            "idempotency must be True, a function of the arguments, or an Idempotency, not 5",
        ),
        ({"idempotency": Idempotency(scope="x")}, "scope of idempotency must be 'run' or 'ledger', not 'x'"),
        ({"idempotency": Idempotency(ledger="x")}, "ledger of idempotency must be an EffectLedger, not 'x'"),
        ({"idempotency": Idempotency(key="x")}, "key must be a function of the arguments, not 'x'"),
    ],
)
def test_rejects_invalid_idempotency(settings, problem):
    made = SchemaTool("pay", "", lambda _: "", **{"idempotency": True, **settings})
    with pytest.raises(ToolDefinitionError) as refusal:
        Toolbox([made])
    assert str(refusal.value) == f"Tool at index 0 (SchemaTool): Tool 'pay': {problem}"


def test_rejects_invalid_ledger(tmp_path):
    with pytest.raises(ToolDefinitionError, match=r"^Toolbox ledger must be an EffectLedger, not 'effects.db'$"):
        Toolbox([], ledger="effects.db")
    for path in ("", ":memory:"):
        with pytest.raises(ToolDefinitionError, match="needs a file path, or None for one in memory"):
            EffectLedger(path)
    with pytest.raises(ToolConfigurationError, match=r"The effect ledger '.*' cannot be used: unable to open"):
        EffectLedger(tmp_path)
    pipeline = make_pay_tool(Payments(), False) | make_pay_tool(Payments(), False)
    pipeline.idempotency = True
    with pytest.raises(ToolDefinitionError, match="idempotency is for a tool with a body; declare it on"):
        Toolbox([pipeline])


def test_indistinguishable_objects_need_a_file(file):
    class Slotted:
        __slots__ = ()

        @tool(effects="write", idempotency=True)
        def pay(self, order: int) -> str:
            return "ok"

        @tool("pay", effects="write", idempotency=Idempotency(ledger=file))
        def on_file(self, order: int) -> str:
            return "ok"

    with pytest.raises(ToolDefinitionError, match="method, and Slotted objects cannot be distinguished"):
        Slotted().pay.execute('{"order": 1}')
    results = [Slotted().on_file.execute('{"order": 1}', ToolContext(**RUN)) for _ in range(2)]
    assert [bool(result.attributes) for result in results] == [False, True]


def test_rejects_file_with_another_key(tmp_path):
    path = tmp_path / "effects.db"
    EffectLedger(path).close()
    EffectLedger(path).close()
    path.with_name("effects.db.key").unlink()
    with pytest.raises(ToolConfigurationError, match=r"created with another key; restore the file <path>\.key"):
        EffectLedger(path)


def test_file_ledger_copies_share_entries_and_memory_copies_start_empty(file):
    box = Toolbox([make_pay_tool(Payments())], ledger=file)
    box.execute(call(), **RUN)
    for made in (pickle.loads(pickle.dumps(EffectLedger(file._settings["path"]))), copy.deepcopy(EffectLedger())):
        with made:
            assert len(made.entries()) == (0 if made.in_memory else 1)


def lock_database(path):
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    return closing(connection)


NOT_MADE = (
    "Error: The call was not made: it must be recorded first, and its effect ledger cannot be written. "
    "Nothing was done; tell the operator"
)


async def test_locked_ledger_fails_the_call(file, tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(file._database, "busy", 0.02)
    paid, metrics = Payments(), InMemoryMetrics()
    box = Toolbox([make_pay_tool(paid)], ledger=file, metrics=metrics)
    with lock_database(tmp_path / "effects.db"):
        assert [box.execute(call(), **RUN).text, (await box.aexecute(call(), **RUN)).text] == [NOT_MADE] * 2
    assert (paid.orders, metrics.counter("ledger_errors", "pay")) == ([], 2)
    assert "pay was not called; its effect ledger cannot be used: database is locked" in caplog.text
    assert box.execute(call(), **RUN).text == "paid 17 as 1"


def test_wait_for_the_ledger_ends_at_the_deadline(file, tmp_path, stopped_clock, monkeypatch):
    monkeypatch.setattr(time, "sleep", stopped_clock.advance)
    box = Toolbox([make_pay_tool(Payments())], ledger=file, timeout=0.05)
    with lock_database(tmp_path / "effects.db"):  # for longer than the call has
        assert box.execute(call(), **RUN).text == NOT_MADE


def test_closed_ledger_fails_the_call():
    paid, ledger = Payments(), EffectLedger()
    ledger.close()
    assert Toolbox([make_pay_tool(paid)], ledger=ledger).execute(call(), **RUN).text == NOT_MADE
    assert paid.orders == []


@pytest.mark.parametrize("outcome", ["ok", ValueError("no")])
def test_unwritable_outcome_is_unknown(file, tmp_path, monkeypatch, caplog, outcome):
    held = []

    def body(_):
        monkeypatch.setattr(file._database, "busy", 0.02)
        held.append(lock_database(tmp_path / "effects.db"))
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    box = Toolbox([make_pay_tool(body)], ledger=file)
    assert box.execute(call(), **RUN).text == (outcome if outcome == "ok" else "Error: no")
    assert "An outcome of 'pay' could not be written to its effect ledger: database is locked" in caplog.text
    with held[0]:
        pass
    assert box.execute(call(), **RUN).text.startswith(UNKNOWN)
    assert [entry.state for entry in file.entries()] == ["unknown"]


@pytest.mark.parametrize("kind", ["limit", "disk"])
def test_full_disk_fails_the_call(tmp_path, kind):
    printed = run_on_full_disk(
        kind,
        """
        import sys
        from toolsemble import EffectLedger, Toolbox, ToolCall, tool
        made = []
        @tool(effects="write", idempotency=True)
        def pay(order: int, note: str = "x" * 1500) -> str:
            made.append(order)
            return "paid"
        with EffectLedger(sys.argv[1] + "/effects.db") as ledger:
            box = Toolbox([pay], ledger=ledger)
            before = box.execute(ToolCall("pay", {"order": -1}), run_id="1").text
            fill(sys.argv[1])
            texts = [box.execute(ToolCall("pay", {"order": order}), run_id="1").text for order in range(200)]
            print(before, made[0] == -1, texts.count("paid") >= len(made) - 1, len(made) < 201, texts[-1][:30])
            print(box.execute(ToolCall("pay", {"order": -1}), run_id="1").result.attributes)
        """,
        tmp_path,
    )
    assert printed == ["paid True True True Error: The call was not made: ", "{'repeated': True}"]


PAY = """
    import sys
    from toolsemble import EffectLedger, Toolbox, ToolCall, tool
    @tool(effects="irreversible", idempotency=True{settings})
    def pay(order: int) -> str:
        print("begun", flush=True)
        {body}
        return "paid"
    with EffectLedger(sys.argv[1]) as ledger:
        box = Toolbox([pay], ledger=ledger)
        print(box.execute(ToolCall("pay", {{"order": 17}}), run_id="run 1").text, flush=True)
    """


def start_process(path, body, settings=""):
    code = textwrap.dedent(PAY.format(body=body, settings=settings))
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    process = subprocess.Popen([sys.executable, "-c", code, str(path)], **pipes)
    assert process.stdout.readline() == "begun\n"
    return process


@pytest.mark.parametrize("settings", ["", ", idempotent=True"])
def test_call_is_not_repeated_after_a_crash(tmp_path, settings):
    path = tmp_path / "effects.db"
    with start_process(path, "sys.stdin.read()", settings) as process:
        process.send_signal(signal.SIGKILL)
        process.wait(BOUND)
    printed = run_in_process(PAY.format(body="pass", settings=settings), path)
    if settings:
        assert printed == ["begun", "paid"]
        return
    assert (len(printed), printed[0][: len(UNKNOWN)]) == (1, UNKNOWN)
    with EffectLedger(path) as ledger:
        (entry,) = ledger.unknown()
        assert (entry.tool_name, entry.run_id, entry.arguments) == ("pay", "run 1", '{"order":17}')
        ledger.resolve(entry.key, happened=False)
    assert run_in_process(PAY.format(body="pass", settings=""), path) == ["begun", "paid"]
    assert run_in_process(PAY.format(body="pass", settings=""), path) == ["paid"]


async def test_waits_for_the_same_call_in_another_process(tmp_path):
    path = tmp_path / "effects.db"
    paid = Payments()

    @tool(effects="irreversible", idempotency=True)
    def pay(order: int) -> str:
        return paid(order)

    with start_process(path, "sys.stdin.readline()") as process, EffectLedger(path) as ledger:
        assert [entry.state for entry in ledger.entries()] == ["running"]
        hasty = Toolbox([pay], ledger=ledger, timeout=0.1).execute(call(), **RUN)
        assert hasty.text == "Error: Tool 'pay' timed out after 0.1 s"
        box = Toolbox([pay], ledger=ledger)
        waiting = asyncio.create_task(box.aexecute(call(), **RUN))
        while not ledger.flights._open:
            await asyncio.sleep(0)
        process.stdin.write("go on\n")
        process.stdin.flush()
        assert (await asyncio.wait_for(waiting, BOUND)).result.attributes == {"repeated": True}
        assert (process.wait(BOUND), paid.orders) == (0, [])


def test_wait_for_another_process_ends(tmp_path, monkeypatch):
    monkeypatch.setattr("toolsemble._engine.limits.idempotency._PATIENCE", 0.0)
    pay = SchemaTool("pay", "", Payments(), {"properties": {"order": {"type": "integer"}}}, idempotency=True)
    with start_process(tmp_path / "effects.db", "sys.stdin.readline()") as process:
        with EffectLedger(tmp_path / "effects.db") as ledger:
            reply = Toolbox([pay], ledger=ledger).execute(call(), **RUN)
            key = ledger.entries()[0].key
        process.stdin.close()
        process.wait(BOUND)
    assert reply.result.attributes == {"outcome": "unknown", "effect": key}
    assert "is still being made by another process" in reply.text


def test_two_ledgers_of_one_file_run_the_body_once(tmp_path):
    paid, entered, go = Payments(), threading.Event(), threading.Event()

    def slow(order):
        entered.set()
        assert go.wait(BOUND)
        return paid(order)

    with EffectLedger(tmp_path / "effects.db") as one, EffectLedger(tmp_path / "effects.db") as other:
        boxes = [Toolbox([make_pay_tool(slow)], ledger=each) for each in (one, other)]
        with ThreadPoolExecutor(2) as threads:
            first = threads.submit(boxes[0].execute, call(), **RUN)
            assert entered.wait(BOUND)
            second = threads.submit(boxes[1].execute, call(), **RUN)
            go.set()
            replies = [first.result(BOUND), second.result(BOUND)]
    assert ([reply.text for reply in replies], paid.orders) == (["paid 17 as 1"] * 2, [17])


def test_concurrent_processes_run_the_body_once(tmp_path):
    path = tmp_path / "effects.db"
    EffectLedger(path).close()
    code = textwrap.dedent(PAY.format(body="open(sys.argv[1] + '.paid', 'a').write('x')", settings=""))
    command = [sys.executable, "-c", code, str(path)]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    printed = [process.communicate(timeout=BOUND * 2)[0].splitlines()[-1] for process in processes]
    assert (printed, (tmp_path / "effects.db.paid").read_text()) == (["paid"] * 4, "x")


def test_killed_worker_process_leaves_an_unknown_outcome(ledger):
    box = Toolbox([die], ledger=ledger)
    first, second = (box.execute(ToolCall("die"), **RUN) for _ in range(2))
    assert first.text.startswith("Error: The worker process was ")
    assert second.text.startswith("Error: Unknown outcome: an earlier call of 'die'")


@tool(effects="write", idempotency=True, isolation="process")
def die() -> str:
    """Die in the middle of the work."""
    os.kill(os.getpid(), signal.SIGKILL)


def test_process_identity_is_more_than_the_pid():
    here = ProcessIdentity.current()
    assert here.is_running()
    assert not here._replace(place="elsewhere").is_running()
    assert not here._replace(started="1").is_running()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        other = here._replace(pid=process.pid, started="")
        assert other.is_running()
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert not here._replace(pid=process.pid).is_running()  # dead, but not yet detected
    assert not other.is_running()


def test_process_identity_without_proc_uses_the_pid(tmp_path, monkeypatch):
    monkeypatch.setattr("toolsemble._runtime.storage.database._PROC", tmp_path)
    here = ProcessIdentity.current()
    assert (here.started, here.is_running(), here._replace(pid=2**30).is_running()) == ("", True, False)

    def forbidden(pid, number):
        raise PermissionError

    monkeypatch.setattr(os, "kill", forbidden)
    assert here.is_running()
    monkeypatch.setattr(os, "name", "nt")
    assert not here.is_running()


def test_interpreter_shutdown_skips_the_write(monkeypatch):
    def refuse(_):
        raise RuntimeError("can't start new thread at interpreter shutdown")

    monkeypatch.setattr("toolsemble._runtime.threads.THREADS.submit", refuse)
    with EffectLedger() as ledger:
        pay = make_pay_tool(Payments(), Idempotency(ledger=ledger))
        path = pay._path({"order": 17}, ToolContext(**RUN))
        path.send(path.send(None).do())
        path.close()
        # Its token is not released, so the entry looks as if it ran; but no waiter is left either.
        assert len(ledger.entries()) == 1


def test_repeats_are_logged(ledger, caplog):
    box = Toolbox([make_pay_tool(Payments())], ledger=ledger)
    with caplog.at_level(logging.INFO, "toolsemble"):
        for _ in range(2):
            box.execute(call(), **RUN)
    assert "pay was called before and is not repeated" in caplog.text


def damage(path, first_page):
    """Overwrite all pages of a database from one on."""
    with path.open("r+b") as file:
        file.seek(4096 * first_page)
        file.write(b"\xff" * (path.stat().st_size - 4096 * first_page))


@pytest.mark.parametrize("first_page", [1, 2, 5, 8])
def test_corrupted_file_error_names_the_path(first_page, tmp_path):
    path = tmp_path / "effects.db"
    with EffectLedger(path) as ledger:
        box = Toolbox([make_pay_tool(Payments())], ledger=ledger)
        keys = [box.execute(call(order), **RUN) and ledger.entries()[-1].key for order in range(100)]
    damage(path, first_page)
    message = rf"^The effect ledger '{path}' cannot be used: .*; restore a copy of it$"
    try:
        damaged = EffectLedger(path)
    except ToolConfigurationError as error:
        assert re.match(message, str(error))  # noqa: PT017 - some damage is found at once, other when it is come upon
        return
    entry = Effect("new", "pay", "run 1", "call 1", "{}", "running", 1.0)
    problems = []
    with damaged:
        for operation in (
            damaged.entries,
            damaged.unknown,
            lambda: damaged.forget(0),
            lambda: [damaged.resolve(key, happened=True) for key in keys],
            lambda: [damaged.reserve(replace(entry, key=key), "t", again=False, patience=None) for key in keys],
            lambda: [damaged.finish(key, "t", "{}") for key in keys],
            lambda: [damaged.release(key, "t") for key in keys],
            lambda: [damaged.lose(key, "t") for key in keys],
        ):
            try:
                operation()
            except ToolConfigurationError as error:
                problems.append(str(error))
            except ValueError:  # an entry that is not unknown
                continue
        assert problems
        assert all(re.match(message, problem) for problem in problems)
        paid = Payments()
        assert Toolbox([make_pay_tool(paid)], ledger=damaged).execute(call(50), **RUN).is_error
        assert paid.orders == []


@pytest.mark.parametrize("change", ["result = 'no JSON'", "result = '{}'", "owner = '[]', state = 'running'"])
def test_corrupted_row_error_names_the_path(change, tmp_path):
    path = tmp_path / "effects.db"
    with EffectLedger(path) as ledger:
        Toolbox([make_pay_tool(Payments())], ledger=ledger).execute(call(), **RUN)
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute(f"UPDATE effects SET {change}")  # noqa: S608 - a literal above
        with pytest.raises(ToolConfigurationError, match=rf"^The effect ledger '{path}' cannot be used: "):
            ledger.unknown()


def test_eviction_uses_the_primary_key():
    with EffectLedger() as ledger, ledger._database.reading() as rows:
        statements = []
        rows.set_trace_callback(statements.append)
        Toolbox([make_pay_tool(Payments())], ledger=ledger).execute(call(), **RUN)
        rows.set_trace_callback(None)
        (old,) = [each for each in statements if each.startswith("DELETE")]
        plan = [row[3] for row in rows.execute(f"EXPLAIN QUERY PLAN {old}")]
        assert plan[0] == "SEARCH effects USING INTEGER PRIMARY KEY (rowid<?)"  # not all that are done


def test_entries_are_listed_in_pages():
    @tool(effects="write", idempotency=True)
    def pay(order: int) -> str:
        return f"paid {order}"

    with EffectLedger() as ledger:
        box = Toolbox([pay], ledger=ledger)
        for order in range(4):
            box.execute(ToolCall("pay", {"order": order}), run_id="r1")
        page = ledger.entries(limit=3)
        assert [entry.arguments for entry in page] == ['{"order":3}', '{"order":2}', '{"order":1}']
        assert [entry.arguments for entry in ledger.entries(before=page[-1].number, limit=9)] == ['{"order":0}']
        assert [entry.number for entry in ledger.entries("done")] == [1, 2, 3, 4]
        assert ledger.entries("unknown", limit=5) == []
