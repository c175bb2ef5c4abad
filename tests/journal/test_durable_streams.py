"""Streams of journaled runs that end without an answer: parked, interrupted, cancelled, or driven elsewhere."""

import asyncio
import json
import logging
from contextlib import aclosing

import pytest
from ag_ui.core import Event as AgUiEvent
from pydantic import TypeAdapter

from helpers.journal_runs import PAY, Killed, clerk, park
from helpers.wait import auntil
from toolsemble import Agent, RunBusyError, RunJournal, ToolCall, tool
from toolsemble.agent import RunCancelled, RunInterrupted, RunParked
from toolsemble.agent.streams import UiRequest, sse, to_ag_ui, to_vercel
from toolsemble.models import UserMessage
from toolsemble.review import QueueReview
from toolsemble.testing import ScriptedModel

AG_UI = TypeAdapter(AgUiEvent)
REQUEST = UiRequest("t1", UserMessage("Pay order 7"), run_id="u1", messages=())
WAYS = {"sse": sse, "vercel": to_vercel, "ag_ui": lambda events, **more: to_ag_ui(events, REQUEST, **more)}
PROMPT = "Pay order 7"


async def collect(events):
    return [event async for event in events]


async def read(chunks):
    """Return the payloads of a stream for a browser."""
    lines = [chunk.removeprefix("data: ").strip() async for chunk in chunks if chunk.startswith("data: ")]
    return [json.loads(line) for line in lines if line != "[DONE]"]


def drain_in_call(runs):
    """Return a tool during whose call the process is asked to stop."""

    @tool(effects="irreversible")
    def pay(order: int) -> str:
        """Pay an order."""
        runs.drain()
        return "paid"

    return pay


def cancel_in_call(runs):
    """Return a tool during whose call the run is cancelled."""

    @tool(effects="irreversible")
    def pay(order: int) -> str:
        """Pay an order."""
        runs.cancel("r1")
        return "paid"

    return pay


@pytest.fixture
def runs(tmp_path):
    with park(tmp_path) as journal:
        yield journal


@pytest.fixture
def asked(store, pay):
    """Return an agent whose runs are parked."""
    return lambda runs: clerk(runs, [pay], PAY, "Done.", review=QueueReview(store, poll=0.01))


@pytest.mark.parametrize("way", ["stream", "iterate"])
async def test_a_parked_run_ends_its_events_with_what_waits(runs, store, asked, way):
    events = await collect(getattr(asked(runs), way)(PROMPT, run_id="r1"))
    (waiting,) = store.pending()
    assert events[-1] == RunParked("r1", (events[-1].pending[0],))
    assert (events[-1].kind, [each.id for each in events[-1].pending]) == ("parked", [waiting.id])
    assert runs.find("r1").state == "waiting"


@pytest.mark.parametrize("way", ["stream", "iterate"])
async def test_a_run_that_the_end_of_the_process_interrupts_says_so(runs, way):
    agent = clerk(runs, [drain_in_call(runs)], PAY, "Done.")
    events = await collect(getattr(agent, way)(PROMPT, run_id="r1"))
    assert (events[-1], runs.find("r1").state) == (RunInterrupted("r1"), "queued")


@pytest.mark.parametrize("way", ["stream", "iterate"])
async def test_a_cancelled_run_says_so_also_when_it_is_streamed_again(runs, way):
    agent = clerk(runs, [cancel_in_call(runs)], PAY, "Done.")
    events = await collect(getattr(agent, way)(PROMPT, run_id="r1"))
    again = await collect(getattr(agent, way)(PROMPT, run_id="r1"))
    assert (events[-1], again, runs.find("r1").state) == (RunCancelled("r1"), [RunCancelled("r1")], "cancelled")


async def test_a_run_that_is_cancelled_while_it_waits_for_a_person_says_so(tmp_path, store, asked):
    with RunJournal(tmp_path / "runs.db") as runs:
        streaming = asyncio.create_task(collect(asked(runs).stream(PROMPT, run_id="r1")))
        await auntil(store.pending)
        runs.cancel("r1")
        assert (await streaming)[-1] == RunCancelled("r1")


async def test_a_run_that_waits_for_an_operator_has_no_requests(tmp_path):
    @tool(effects="irreversible")
    def pay(order: int) -> str:
        """Pay an order."""
        raise Killed

    with RunJournal(tmp_path / "runs.db", on_unknown="ask") as runs:
        agent = clerk(runs, [pay], PAY, "Done.")
        with pytest.raises(Killed):
            await agent.run(PROMPT, run_id="r1")
        parts = await read(to_ag_ui(agent.stream(PROMPT, run_id="r1"), REQUEST))
        assert parts[-2:] == [
            {"type": "CUSTOM", "name": "parked", "value": {"run_id": "r1", "pending": []}},
            {
                "type": "RUN_FINISHED",
                "threadId": "t1",
                "runId": "u1",
                "outcome": {"type": "interrupt", "interrupts": [{"id": "r1", "reason": "unknown_outcome"}]},
                "result": {"stop_reason": "parked"},
            },
        ]


@pytest.mark.parametrize("kind", ["parked", "interrupted", "cancelled"])
async def test_a_browser_gets_a_normal_end(runs, store, asked, kind, caplog, capsys):
    agents = {
        "parked": lambda: asked(runs),
        "interrupted": lambda: clerk(runs, [drain_in_call(runs)], PAY, "Done."),
        "cancelled": lambda: clerk(runs, [cancel_in_call(runs)], PAY, "Done."),
    }
    parts = await read(sse(agents[kind]().stream(PROMPT, run_id="r1")))
    pending = [
        {
            "id": request.id,
            "tool_name": "pay",
            "call_id": parts[-1]["pending"][0]["call_id"],
            "description": "Pay an order.",
            "deadline": None,
            "arguments": {"order": 7},
        }
        for request in store.pending()
    ]
    assert parts[-1] == {"kind": kind, "run_id": "r1", **({"pending": pending} if pending else {})}
    called = [part["call"]["id"] for part in parts if part["kind"] == "call_requested"]
    assert [each["call_id"] for each in pending] == called[: len(pending)]
    assert [record.getMessage() for record in caplog.records if record.levelno > logging.INFO] == []
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("kind", ["parked", "interrupted", "cancelled"])
async def test_the_vercel_sdk_gets_a_part_and_the_end_of_the_message(runs, asked, kind):
    agents = {
        "parked": lambda: asked(runs),
        "interrupted": lambda: clerk(runs, [drain_in_call(runs)], PAY, "Done."),
        "cancelled": lambda: clerk(runs, [cancel_in_call(runs)], PAY, "Done."),
    }
    parts = await read(to_vercel(agents[kind]().stream(PROMPT, run_id="r1")))
    assert [part["type"] for part in parts[-3:]] == ["finish-step", f"data-{kind}", "finish"]
    assert parts[-2]["data"]["run_id"] == "r1"


@pytest.mark.parametrize("kind", ["parked", "interrupted", "cancelled"])
async def test_ag_ui_gets_the_outcome_of_the_protocol(runs, store, asked, kind):
    agents = {
        "parked": lambda: asked(runs),
        "interrupted": lambda: clerk(runs, [drain_in_call(runs)], PAY, "Done."),
        "cancelled": lambda: clerk(runs, [cancel_in_call(runs)], PAY, "Done."),
    }
    events = await read(to_ag_ui(agents[kind]().stream(PROMPT, run_id="r1"), REQUEST))
    for event in events:
        assert AG_UI.validate_python(event).model_dump(mode="json", by_alias=True, exclude_none=True) == event
    call_ids = [event["toolCallId"] for event in events if event["type"] == "TOOL_CALL_START"]
    waiting = [
        {"id": request.id, "reason": "tool_call", "message": "Pay an order.", "toolCallId": call_ids[0]}
        for request in store.pending()
    ]
    outcome = {"type": "interrupt", "interrupts": waiting} if waiting else {"type": "cancelled"}
    end = {"type": "RUN_FINISHED", "threadId": "t1", "runId": "u1", "outcome": outcome, "result": {"stop_reason": kind}}
    assert (events[-2]["name"], events[-1]) == (kind, end)


@pytest.mark.parametrize("way", WAYS)
async def test_a_run_that_is_driven_elsewhere_ends_its_stream_with_a_clear_message(runs, way, caplog, capsys):
    started, free = asyncio.Event(), asyncio.Event()

    async def wait(messages):
        started.set()
        await free.wait()
        return "Done."

    agent = Agent(ScriptedModel([wait]), journal=runs, name="clerk")
    first = asyncio.create_task(agent.run(PROMPT, run_id="r1"))
    await started.wait()
    with caplog.at_level("INFO"):
        text = json.dumps(await read(WAYS[way](agent.stream(PROMPT, run_id="r1"))))
    assert "Another process does this run" in text
    assert [(each.levelname, each.exc_info) for each in caplog.records if "streamed" in each.getMessage()] == [
        ("INFO", None)
    ]
    with pytest.raises(RunBusyError):
        await collect(agent.stream(PROMPT, run_id="r1"))
    free.set()
    await first
    assert capsys.readouterr().err == ""


async def test_a_client_that_leaves_gives_the_run_back(runs):
    started = asyncio.Event()

    async def wait(messages):
        started.set()
        await asyncio.Event().wait()

    agent = Agent(ScriptedModel([wait]), journal=runs, name="clerk")
    async with aclosing(sse(agent.stream(PROMPT, run_id="r1"), ping=0.01)) as chunks:
        async for _ in chunks:
            if started.is_set():
                break
    await auntil(lambda: runs.find("r1").state == "queued")


async def test_an_inner_agent_that_waits_parks_the_stream_of_the_outer_one(runs, store, pay):
    inside = Agent(ScriptedModel([PAY]), [pay], review=QueueReview(store, poll=0.01)).as_tool("ask", "Asks")
    agent = clerk(runs, [inside], ToolCall("ask", {"input": PROMPT}), "Done.")
    events = await collect(agent.stream(PROMPT, run_id="r1"))
    assert [each.tool_name for each in events[-1].pending] == ["pay"]
