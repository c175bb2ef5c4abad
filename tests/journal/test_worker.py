"""Workers: they do what is queued, take over what was left behind, and stop without losing anything."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from helpers.journal_runs import PAY, Killed, answer, clerk, park, script
from helpers.wait import auntil
from toolsemble import Agent, RunJournal, ToolCall, ToolDefinitionError, tool
from toolsemble.models import FunctionModel, ScriptedModel, UserMessage
from toolsemble.review import PauseReview, QueueReview

TESTS = Path(__file__).parents[1]


async def test_a_worker_does_what_is_queued(runs, pay, paid):
    for number in range(5):
        runs.begin(f"r{number}", "clerk", f"Pay order {number}")
    runs.begin("other", "poet", "A poem")
    agent = clerk(None, [], "Done.")
    await runs.work({"clerk": agent}, at_once=2, until_idle=True, poll=0.01)
    assert [run.state for run in runs.list()] == ["done"] * 5 + ["queued"]


async def test_a_run_gets_what_it_was_begun_with(runs):
    seen = []

    def reply(messages):
        seen.append([message.text for message in messages])
        return "Done."

    runs.begin("r1", "clerk", "And now?", history=[UserMessage("Hello")], memory_id="ada", parameters={"a": 1})
    agent = Agent(ScriptedModel([reply]))
    await runs.work({"clerk": agent}, until_idle=True, poll=0.01)
    assert seen == [["Hello", "And now?"]]


async def test_a_failed_run_does_not_stop_the_worker(runs):
    runs.begin("r1", "clerk", "Fail")
    runs.begin("r2", "poet", "A poem")
    failing = clerk(None, [], RuntimeError("no credit"))
    await runs.work({"clerk": failing, "poet": clerk(None, [], "Roses")}, until_idle=True, poll=0.01)
    assert [(run.state, run.error) for run in runs.list()] == [("failed", "no credit"), ("done", "")]


async def test_a_worker_takes_over_what_was_left_behind(runs):
    with pytest.raises(Killed):
        await clerk(runs, [], Killed).run("Pay order 7", run_id="r1")
    assert runs.find("r1").state == "running"
    await runs.work({"clerk": clerk(None, [], "Done.")}, until_idle=True, poll=0.01)
    assert runs.find("r1").text == "Done."


async def test_a_worker_continues_a_run_when_it_was_answered(tmp_path, store, pay, paid):
    with park(tmp_path) as runs:
        agent = clerk(None, [pay], PAY, "Done.", review=QueueReview(store, poll=0.01))
        runs.begin("r1", "clerk", "Pay order 7")
        await runs.work({"clerk": agent}, until_idle=True, poll=0.01)
        assert (runs.find("r1").state, paid) == ("waiting", [])
        await runs.work({"clerk": agent}, until_idle=True, poll=0.01)
        assert [event.kind for event in store.audit()] == ["asked"]
        answer(store)
        await runs.work({"clerk": agent}, until_idle=True, poll=0.01)
        assert (runs.find("r1").state, paid) == ("done", [7])


async def test_a_worker_waits_also_for_reviewers_that_are_not_known_in_advance(tmp_path, store, pay, paid):
    with park(tmp_path) as runs:
        inside = Agent(script(PAY, "Paid."), [pay], review=QueueReview(store, poll=0.01))
        ask = ToolCall("ask", {"input": "Pay order 7"})
        agent = clerk(None, [inside.as_tool("ask", "Asks")], ask, "Done.")
        runs.begin("r1", "clerk", "Pay order 7")
        await asyncio.wait_for(runs.work({"clerk": agent}, until_idle=True, poll=0.01), 60)
        assert (runs.find("r1").state, [event.kind for event in store.audit()]) == ("waiting", ["asked"])
        runs.begin("r2", "clerk", "Pay order 7")
        working = asyncio.create_task(runs.work({"clerk": agent}, poll=0.01))
        await auntil(lambda: len(store.pending()) == 2)
        await auntil(lambda: runs.find("r2").state == "waiting")
        answer(store)
        await auntil(lambda: {run.state for run in runs.list()} == {"done"})
        working.cancel()
        await asyncio.wait([working])
        assert paid == [7, 7]


async def test_a_worker_leaves_a_run_alone_whose_reviewer_cannot_tell_what_is_open(tmp_path, pay):
    class Later:
        def review(self, request):
            return PauseReview().review(request)

    with park(tmp_path) as runs:
        asked = []
        agent = clerk(None, [pay], PAY, "Done.", review=Later(), asked=asked)
        runs.begin("r1", "clerk", "Pay order 7")
        await asyncio.wait_for(runs.work({"clerk": agent}, until_idle=True, poll=0.01), 60)
        assert (runs.find("r1").state, asked) == ("waiting", [0])


async def test_a_worker_goes_on_after_a_run_that_it_has_parked_was_cancelled(tmp_path, store, pay, paid):
    with park(tmp_path) as runs:
        agent = clerk(runs, [pay], PAY, "Done.", review=QueueReview(store, poll=0.01))
        working = asyncio.create_task(runs.work({"other": agent, "clerk": agent}, poll=0.01))
        runs.begin("r1", "clerk", "Pay order 7")
        await auntil(lambda: runs.find("r1").state == "waiting")
        runs.cancel("r1")
        runs.begin("r2", "other", "Pay order 7")
        await auntil(lambda: runs.find("r2").state == "waiting")
        working.cancel()
        await asyncio.wait([working])
        assert (runs.find("r1").state, paid) == ("cancelled", [])


async def test_a_worker_leaves_a_run_that_is_cancelled_while_it_waits_here(tmp_path, store, pay, paid):
    with park(tmp_path, park_after=None) as runs:
        agent = clerk(None, [pay], PAY, "Done.", review=QueueReview(store, poll=0.01))
        runs.begin("r1", "clerk", "Pay order 7")
        working = asyncio.create_task(runs.work({"clerk": agent}, until_idle=True, poll=0.01))
        await auntil(store.pending)
        runs.cancel("r1")
        await asyncio.wait_for(working, 60)
        assert (runs.find("r1").state, store.pending(), paid) == ("cancelled", [], [])


async def test_a_worker_runs_until_it_is_cancelled(runs):
    working = asyncio.create_task(runs.work({"clerk": clerk(None, [], "Done.")}, poll=0.01))
    await asyncio.sleep(0.05)
    runs.begin("r1", "clerk", "Pay order 7")
    while runs.find("r1").state != "done":
        await asyncio.sleep(0.01)
    working.cancel()
    with pytest.raises(asyncio.CancelledError):
        await working


async def test_at_sigterm_calls_end_and_runs_go_back_to_the_queue(runs):
    entered, free, done = asyncio.Event(), asyncio.Event(), []

    @tool(effects="irreversible")
    async def pay(order: int) -> str:
        """Pay an order."""
        entered.set()
        await free.wait()
        done.append(order)
        return "paid"

    runs.begin("r1", "clerk", "Pay order 7")
    agent = clerk(None, [pay], PAY, "Done.")
    working = asyncio.create_task(runs.work({"clerk": agent}, poll=0.01))
    await entered.wait()
    os.kill(os.getpid(), signal.SIGTERM)
    await asyncio.sleep(0.05)
    free.set()
    await working
    assert done == [7]
    assert (runs.find("r1").state, runs.unknown()) == ("queued", [])


async def test_at_sigterm_a_worker_without_runs_ends(runs):
    working = asyncio.create_task(runs.work({"clerk": clerk(None, [], "Done.")}, poll=60))
    await auntil(lambda: signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGTERM)
    await asyncio.wait_for(working, 60)


async def test_calls_that_take_longer_than_the_grace_are_cancelled_and_unknown(runs, caplog):
    entered = asyncio.Event()

    @tool(effects="irreversible")
    async def pay(order: int) -> str:
        """Pay an order."""
        entered.set()
        await asyncio.Event().wait()
        return "paid"

    runs.begin("r1", "clerk", "Pay order 7")
    working = asyncio.create_task(runs.work({"clerk": clerk(None, [pay], PAY, "Done.")}, poll=0.01, grace=0))
    await entered.wait()
    os.kill(os.getpid(), signal.SIGTERM)
    await asyncio.wait_for(working, 60)
    assert ([call.place for call in runs.unknown()], runs.find("r1").state) == (["/1.1"], "queued")
    assert "Run 'r1' is interrupted: a call did not end within 0 s" in caplog.text


async def test_after_sigterm_no_call_begins(runs, monkeypatch):
    asked, free, drained, made = asyncio.Event(), asyncio.Event(), asyncio.Event(), []

    @tool(effects="irreversible")
    async def pay(order: int) -> str:
        """Pay an order."""
        made.append(order)
        return "paid"

    async def reply(messages):
        asked.set()
        await free.wait()
        return PAY

    runs.begin("r1", "clerk", "Pay order 7")
    agent = Agent(FunctionModel(reply), [pay], name="clerk")
    working = asyncio.create_task(runs.work({"clerk": agent}, poll=0.01))
    await asked.wait()
    drain = runs.drain
    monkeypatch.setattr(runs, "drain", lambda: (drain(), drained.set()))
    for _ in range(2):  # the second one changes nothing
        os.kill(os.getpid(), signal.SIGTERM)
        await drained.wait()
    free.set()
    await asyncio.wait_for(working, 60)
    assert (made, runs.find("r1").state) == ([], "queued")


async def test_a_worker_says_once_that_there_are_runs_of_other_agents(runs, caplog):
    for number, agent in enumerate(("Clrek", "Clrek", "poet")):
        runs.begin(f"r{number}", agent, "Pay order 7")
    with caplog.at_level("INFO"):
        working = asyncio.create_task(runs.work({"clerk": clerk(None, [], "Done.")}, poll=0.01))
        runs.begin("r3", "clerk", "Pay order 7")
        await auntil(lambda: runs.find("r3").state == "done")
        working.cancel()
        await asyncio.wait([working])
    told = [record.getMessage() for record in caplog.records if "no agent" in record.getMessage()]
    assert told == [
        "Run 'r0' stays queued: this worker has no agent 'Clrek', only clerk; did you mean 'clerk'?",
        "Run 'r2' stays queued: this worker has no agent 'poet', only clerk",
    ]


def test_a_worker_may_run_in_any_thread(runs):
    runs.begin("r1", "clerk", "Pay order 7")
    agents = {"clerk": clerk(None, [], "Done.")}
    thread = threading.Thread(target=lambda: asyncio.run(runs.work(agents, until_idle=True, poll=0.01)))
    thread.start()
    thread.join(60)
    assert runs.find("r1").text == "Done."


async def test_at_sigterm_questions_stay_open(tmp_path, store, pay, paid):
    with park(tmp_path, park_after=None) as runs:
        runs.begin("r1", "clerk", "Pay order 7")
        agent = clerk(None, [pay], PAY, "Done.", review=QueueReview(store, poll=0.01))
        working = asyncio.create_task(runs.work({"clerk": agent}, poll=0.01))
        await auntil(lambda: any("wait_for_drain" in repr(task) for task in asyncio.all_tasks()))
        os.kill(os.getpid(), signal.SIGTERM)
        await working
        assert (runs.find("r1").state, len(store.pending())) == ("waiting", 1)


async def test_only_agents_can_work(runs):
    with pytest.raises(ToolDefinitionError, match=r"RunJournal\.work takes agents by name; 'clerk' is 'gpt-5'"):
        await runs.work({"clerk": "gpt-5"})
    with pytest.raises(ToolDefinitionError, match=r"takes agents by name, such as {'clerk': agent}, not Agent\("):
        await runs.work(clerk(None, [], "Done."))


@pytest.fixture
def sigterm():
    """Restore the handler of SIGTERM after a test."""
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


async def start_worker(runs, **settings):
    """Start a worker; return its task when it handles SIGTERM."""
    before = signal.getsignal(signal.SIGTERM)
    working = asyncio.create_task(runs.work({"clerk": clerk(None, [], "Done.")}, poll=60, **settings))
    await auntil(lambda: signal.getsignal(signal.SIGTERM) is not before)
    return working


async def test_a_worker_calls_the_signal_handler_that_was_installed_before(runs, sigterm):
    got = []
    signal.signal(signal.SIGTERM, mine := lambda number, _: got.append(number))
    working = await start_worker(runs)
    os.kill(os.getpid(), signal.SIGTERM)
    await asyncio.wait_for(working, 60)
    assert (got, signal.getsignal(signal.SIGTERM)) == ([signal.SIGTERM], mine)


async def test_a_worker_leaves_the_signal_handlers_of_the_event_loop_alone(runs):
    loop, told = asyncio.get_running_loop(), asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, told.set)
    try:
        working = await start_worker(runs)
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.wait_for(working, 60)
        await asyncio.wait_for(told.wait(), 60)
        told.clear()
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.wait_for(told.wait(), 60)
    finally:
        loop.remove_signal_handler(signal.SIGTERM)


async def test_a_handler_that_was_installed_later_stays_and_may_call_the_one_before_it(runs, sigterm):
    got = []
    signal.signal(signal.SIGTERM, lambda number, _: got.append("first"))
    working = await start_worker(runs)
    workers = signal.getsignal(signal.SIGTERM)

    def later(number, frame):
        got.append("later")
        workers(number, frame)

    signal.signal(signal.SIGTERM, later)
    os.kill(os.getpid(), signal.SIGTERM)
    await asyncio.wait_for(working, 60)
    os.kill(os.getpid(), signal.SIGTERM)
    assert (got, signal.getsignal(signal.SIGTERM)) == (["later", "first"] * 2, later)


async def test_with_signals_off_a_worker_leaves_sigterm_to_the_program(runs, sigterm):
    signal.signal(signal.SIGTERM, mine := lambda *_: None)
    working = asyncio.create_task(runs.work({"clerk": clerk(None, [], "Done.")}, poll=0.01, signals=False))
    runs.begin("r1", "clerk", "Pay order 7")
    await auntil(lambda: runs.find("r1").state == "done")
    assert signal.getsignal(signal.SIGTERM) is mine
    runs.drain()
    await asyncio.wait_for(working, 60)


@pytest.mark.parametrize("first", [0, 1])
async def test_workers_of_one_process_end_at_sigterm_and_leave_no_handler(tmp_path, sigterm, first):
    before = signal.getsignal(signal.SIGTERM)
    with RunJournal(tmp_path / "a.db") as one, RunJournal(tmp_path / "b.db") as other:
        workers = [await start_worker(one), await start_worker(other), await start_worker(other)]
        (one, other)[first].drain()
        await asyncio.wait_for(asyncio.gather(*([workers[:1], workers[1:]][first])), 60)
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.wait_for(asyncio.gather(*workers), 60)
    assert signal.getsignal(signal.SIGTERM) is before


async def test_a_drained_journal_gives_no_more_work(runs):
    runs.begin("r1", "clerk", "Pay order 7")
    runs.drain()
    await asyncio.wait_for(runs.work({"clerk": clerk(None, [], "Done.")}, poll=60), 60)
    assert runs.find("r1").state == "queued"


SERVER = """
import asyncio, sys
from contextlib import asynccontextmanager
import uvicorn
from fastapi import FastAPI
from toolsemble import Agent, RunJournal, tool
from helpers.journal_runs import PAY, clerk

runs = RunJournal(sys.argv[1])

@tool(effects="irreversible")
async def pay(order: int) -> str:
    '''Pay an order.'''
    print("paying", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    return "paid"

@asynccontextmanager
async def lifespan(app):
    working = asyncio.create_task(runs.work({"clerk": clerk(None, [pay], PAY, "Done.")}, poll=0.01))
    yield
    runs.drain()
    await working
    print("worker ended", flush=True)

app = FastAPI(lifespan=lifespan)

@app.get("/")
def state():
    return runs.find("r1").state

uvicorn.run(app, port=0, log_level="error")
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="a process is not sent SIGTERM there")
def test_sigterm_ends_a_web_server_with_a_worker_in_its_lifespan(tmp_path):
    with RunJournal(tmp_path / "runs.db") as runs:
        runs.begin("r1", "clerk", "Pay order 7")
        command = [sys.executable, "-c", SERVER, str(tmp_path / "runs.db")]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        with subprocess.Popen(command, env={**os.environ, "PYTHONPATH": str(TESTS)}, **pipes) as server:
            try:
                assert server.stdout.readline() == "paying\n"
                server.send_signal(signal.SIGTERM)
                assert server.communicate("go\n", timeout=60) == ("worker ended\n", None)
            finally:
                server.kill()
        assert (server.returncode, runs.find("r1").state, runs.unknown()) == (-signal.SIGTERM, "queued", [])
        assert runs.steps("r1")[-1].data["output"] == "paid"
