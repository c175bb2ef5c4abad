"""Up to a thousand calls over one file: each gets its own answer exactly once, even if answering processes die."""

import asyncio
import json
import random
import subprocess
import sys
import threading
from collections import Counter
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from helpers.answer_process import decide
from helpers.ask_process import ASKED
from toolsemble import Toolbox, ToolCall, tool
from toolsemble.review import QueueReview, ReviewStore

pytestmark = pytest.mark.slow

COUNT = 1000
FEW = 100


class Answerer:
    """An answering process, which can be killed at any moment and is then followed by another."""

    def __init__(self, path, stop, person):
        self.command = [sys.executable, Path(__file__).parents[1] / "helpers/answer_process.py", path, stop, person]
        self.start()

    def start(self):
        self.process = subprocess.Popen(self.command, stdout=subprocess.PIPE)
        assert self.process.stdout.readline() == b"ready\n"

    def kill(self):
        self.process.kill()
        self.end()

    def end(self):
        self.process.wait(60)
        self.process.stdout.close()


@contextmanager
def run_answerers(path, stop, *, killed):
    """Keep two processes answering while the block runs."""
    with ExitStack() as stack:
        answerers = [Answerer(path, stop, person) for person in ("ada", "eve")]
        for answerer in answerers:
            stack.callback(lambda each=answerer: each.end())
        stack.callback(stop.touch)
        done, kills = threading.Event(), []
        if killed:
            thread = threading.Thread(target=kill_and_restart, args=(answerers, done, kills))
            thread.start()
            stack.callback(thread.join, 60)
        stack.callback(done.set)
        yield kills


def kill_and_restart(answerers, done, kills):
    ended = False
    while not ended:  # at least once, however fast the calls are
        answerer = random.choice(answerers)  # noqa: S311 - either will do
        answerer.kill()
        kills.append(answerer)
        answerer.start()
        ended = done.wait(random.uniform(0, 0.3))  # noqa: S311 - any moment will do


def make_gated_tool(ran):
    @tool(requires_approval=True)
    async def act(number: int) -> str:
        ran[number] += 1
        return f"ran {number}"

    return act


async def run_turn(box, calls):
    return await box.aexecute_all(calls)


async def run_separately(box, calls):
    return await asyncio.gather(*(box.aexecute(call) for call in calls))


@pytest.mark.parametrize(
    ("execute", "killed", "count"),
    [(run_turn, False, FEW), (run_separately, False, FEW), (run_turn, True, COUNT), (run_separately, True, FEW)],
    ids=["all_at_once", "side_by_side", "all_at_once-killed", "side_by_side-killed"],
)
async def test_each_call_gets_its_answer_exactly_once(tmp_path, execute, killed, count):
    path, ran = tmp_path / "reviews.db", Counter()
    calls = [ToolCall("act", {"number": number}, id=f"c{number}") for number in range(1, count + 1)]
    with ReviewStore(path) as store, run_answerers(path, tmp_path / "stop", killed=killed) as kills:
        replies = await execute(Toolbox([make_gated_tool(ran)], review=QueueReview(store)), calls)
        events = store.audit()
    assert bool(kills) == killed
    assert [reply.text for reply in replies] == [decide(number)[1] for number in range(1, count + 1)]
    approved = [text for _, text in map(decide, range(1, count + 1)) if text.startswith("ran")]
    assert ran == Counter(int(text.removeprefix("ran ")) for text in approved)
    counts = Counter((event.kind, event.request_id) for event in events if event.kind != "refused")
    assert set(counts.values()) == {1}
    assert Counter(kind for kind, _ in counts) == {"asked": count, "answered": count, "used": count}


def test_killed_process_is_restarted_and_runs_only_approved_calls(tmp_path):
    path, log = tmp_path / "reviews.db", tmp_path / "log"
    log.touch()
    command = [sys.executable, Path(__file__).parents[1] / "helpers/ask_process.py", path, log]
    with ReviewStore(path) as store, run_answerers(path, tmp_path / "stop", killed=False):
        for patience in (0.05, 0.1, 0.2):  # from when it begins to ask, so that each gets a little further
            with subprocess.Popen(command, stdout=subprocess.PIPE) as asker:
                assert asker.stdout.readline() == b"ready\n"
                threading.Event().wait(random.uniform(0, patience))  # noqa: S311 - any moment will do
                asker.kill()
        last = subprocess.run(command, capture_output=True, check=True, timeout=60)
        used = Counter(
            store.find(event.request_id).arguments["number"] for event in store.audit() if event.kind == "used"
        )
    assert json.loads(last.stdout.splitlines()[1]) == [decide(number)[1] for number in range(1, ASKED + 1)]
    assert set(used) == set(range(1, ASKED + 1))
    ran = Counter(abs(int(line)) for line in log.read_text().split())
    assert {number for number in ran if ran[number] > used[number]} == set()
