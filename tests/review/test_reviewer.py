"""Reviewers that inherit from the base classes, and what they need not define."""

import asyncio
import threading

import pytest

from helpers.journal_runs import clerk
from toolsemble import Agent, Continue, ExitEarly, ReviewRequest, RunJournal, RunParkedError, Toolbox, ToolCall, tool
from toolsemble.review import AutoApprove, BatchReviewer, MemoryStore, OuterReviewer, PauseReview, QueueReview, Reviewer
from toolsemble.testing import RecordingSink, ScriptedModel

REQUEST = ReviewRequest("Pays", "pay", {"amount": 50})
CALLS = [ToolCall("pay", {"amount": amount}) for amount in (5, 50, 7)]
TEXTS = ["paid 5", "Error: Rejected by reviewer: too much", "paid 7"]


@tool(requires_approval=True)
def pay(amount: int) -> str:
    """Pay an amount."""
    return f"paid {amount}"


def decide(request):
    return Continue() if request.arguments["amount"] < 10 else ExitEarly("too much")


class Clerk(Reviewer):
    def review(self, request):
        return decide(request)


class AsyncClerk(Reviewer):
    async def review(self, request):
        await asyncio.sleep(0)
        return decide(request)


class Desk(BatchReviewer):
    def __init__(self):
        self.rounds = []

    def review_all(self, requests):
        self.rounds.append(len(requests))
        return {request.id: decide(request) for request in requests}


class AsyncDesk(Desk):
    async def review_all(self, requests):
        return super().review_all(requests)


class LaterDesk(Desk):
    """A desk whose decisions are awaitables."""

    async def review_all(self, requests):
        return {request.id: self.answer(request) for request in requests}

    async def answer(self, request):
        return decide(request)


@pytest.mark.parametrize("reviewer", [Clerk, AsyncClerk, Desk, AsyncDesk, LaterDesk])
async def test_reviewer_decides_about_single_calls_and_turns(reviewer):
    box = Toolbox([pay], review=reviewer())
    assert [box.execute(each).text for each in CALLS] == TEXTS
    assert [(await box.aexecute(each)).text for each in CALLS] == TEXTS
    assert [reply.text for reply in await box.aexecute_all(CALLS)] == TEXTS


@pytest.mark.parametrize("desk", [Desk, AsyncDesk])
async def test_batch_reviewer_gets_the_requests_of_a_turn_together(desk):
    for wrap in (lambda inside: inside, Passing):
        reviewer = desk()
        await Toolbox([pay], review=wrap(reviewer)).aexecute_all(CALLS)
        assert reviewer.rounds == [3]


async def test_sync_batch_reviewer_runs_in_a_thread_for_a_single_call():
    threads = []

    class Slow(Desk):
        def review_all(self, requests):
            threads.append(threading.current_thread())
            return super().review_all(requests)

    await Toolbox([pay], review=Slow()).aexecute(CALLS[0])
    assert threads != [threading.current_thread()]


def test_request_without_a_decision_in_the_answers_is_rejected():
    class Forgetful(BatchReviewer):
        def review_all(self, requests):
            return {}

    reply = Toolbox([pay], review=Forgetful()).execute(CALLS[0])
    assert reply.text == "Error: Rejected by reviewer: the answer was not a decision"


def test_reviewer_without_a_store_has_no_questions_to_find_or_close():
    clerk = Clerk()
    assert (clerk.find_open({"r1"}), clerk.watch(print), clerk.withdraw(["r1"])) == (set(), None, False)
    assert (clerk.has_store, clerk.pauses, clerk.sends_event, clerk.decides) == (False, False, False, False)


@pytest.mark.parametrize("base", [Reviewer, BatchReviewer, OuterReviewer])
def test_base_class_without_its_method_cannot_be_created(base):
    with pytest.raises(TypeError, match="review"):
        base(*([AutoApprove()] if base is OuterReviewer else []))


class Passing(OuterReviewer):
    async def review(self, request):
        return await self.pass_on(request)


class Foreign:
    """A reviewer without a base class that wraps a store's."""

    def __init__(self, inside):
        self.inside = inside
        self.find_open = inside.find_open
        self.watch = inside.watch
        self.withdraw = inside.withdraw
        self.sends_event = True

    async def review(self, request):
        return await self.inside.review(request)


def test_reviewer_that_passes_requests_on_pauses_like_the_one_inside():
    agent = Agent(ScriptedModel([CALLS[0], "Done."]), [pay], review=Passing(PauseReview()))
    assert agent.run_sync("Pay 5.").stop_reason == "paused"


@pytest.mark.parametrize("inside", [Clerk, Desk])
def test_event_is_sent_once_when_a_request_is_passed_on(inside):
    sink = RecordingSink()
    Toolbox([pay], review=Passing(inside()), sinks=[sink]).execute(CALLS[0])
    assert sink.kinds.count("review_requested") == 1


@pytest.mark.parametrize("wrap", [lambda inside: inside, Passing, Foreign])
async def test_run_with_a_store_behind_its_reviewer_is_parked_continued_and_cancelled(tmp_path, wrap):
    with MemoryStore() as store, RunJournal(tmp_path / "runs.db", park_after=0) as runs:

        def make():
            return clerk(runs, [pay], CALLS[0], "Done.", review=wrap(QueueReview(store, poll=0.01)))

        for run in ("r1", "r2"):
            with pytest.raises(RunParkedError):
                await make().run("Pay 5.", run_id=run)
        first, second = store.pending()
        assert make().find_open_requests([first.id, second.id, "other"]) == {first.id, second.id}
        store.answer(first, Continue(), person="ada")
        await runs.work({"clerk": make()}, until_idle=True, poll=0.01)
        assert runs.find("r1").text == "Done."
        runs.cancel("r2")
        assert store.pending() == []
