"""The decisions of reviewers without a store are in the journal: no one is asked twice about the same call."""

import asyncio

import pytest

from helpers.journal_runs import PAY, Killed, clerk
from helpers.wait import auntil
from toolsemble import RunJournal, ToolCall, tool
from toolsemble.review import CallbackReview, Continue, Edit, ExitEarly

PROMPT = "Pay order 7"


class Person:
    """A reviewer in this process, which notes what it is asked."""

    def __init__(self, *decisions):
        self.asked = []
        self._decisions = list(decisions)

    def review(self, request):
        self.asked.append(request.arguments)
        return self._decisions.pop(0) if len(self._decisions) > 1 else self._decisions[0]


def make_pay(made, kills, **settings):
    """Return a tool whose first call is killed in the body; it may be repeated."""

    @tool(effects="write", idempotent=True, requires_approval=True, **settings)
    def pay(order: int) -> str:
        """Pay an order."""
        made.append(order)
        if kills:
            kills.pop()
            raise Killed
        return f"paid {order}"

    return pay


@pytest.mark.parametrize(
    ("decision", "made"),
    [(Continue(), [7, 7]), (Edit('{"order": 8}'), [8, 8])],
)
def test_a_person_is_not_asked_again_after_a_kill(runs, decision, made):
    person, done, kills = Person(decision), [], [1]
    agent = clerk(runs, [make_pay(done, kills)], PAY, "Done.", review=person)
    with pytest.raises(Killed):
        agent.run_sync(PROMPT, run_id="r1")
    assert agent.run_sync(PROMPT, run_id="r1").text == "Done."
    assert (person.asked, done) == ([{"order": 7}], made)


def test_a_rejection_counts_as_well(runs):
    @tool(effects="read")
    async def look() -> str:
        """Look."""
        await auntil(lambda: person.asked)
        await auntil(lambda: any(step.data[3:] for step in runs.steps("r1") if step.kind == "question"))
        if kills:
            kills.pop()
            raise Killed
        return "seen"

    person, done, kills = Person(ExitEarly("too much")), [], [1]
    agent = clerk(runs, [make_pay(done, []), look], [PAY, ToolCall("look")], "Done.", review=person)
    with pytest.raises(Killed):
        agent.run_sync(PROMPT, run_id="r1")
    result = agent.run_sync(PROMPT, run_id="r1")
    assert (person.asked, done) == ([{"order": 7}], [])
    assert result.tool_calls[0].reply.text == "Error: Rejected by reviewer: too much"


async def test_a_person_is_not_asked_again_after_a_cancellation(runs):
    entered, free, asked = asyncio.Event(), asyncio.Event(), []

    @tool(effects="write", idempotent=True, requires_approval=True)
    async def pay(order: int) -> str:
        """Pay an order."""
        entered.set()
        await free.wait()
        return "paid"

    review = CallbackReview(lambda request: asked.append(request) or Continue())
    agent = clerk(runs, [pay], PAY, "Done.", review=review)
    task = asyncio.create_task(agent.run(PROMPT, run_id="r1"))
    await entered.wait()
    task.cancel()
    await asyncio.wait([task])
    free.set()
    assert ((await agent.run(PROMPT, run_id="r1")).text, len(asked)) == ("Done.", 1)


def test_an_answer_is_for_what_was_asked(tmp_path):
    person, done, kills = Person(Continue()), [], [1]
    with RunJournal(tmp_path / "runs.db") as runs:
        with pytest.raises(Killed):
            clerk(runs, [make_pay(done, kills)], PAY, "Done.", review=person).run_sync(PROMPT, run_id="r1")
        changed = make_pay(done, [], description="Pay an order, and everything else.")
        clerk(runs, [changed], PAY, "Done.", review=person).run_sync(PROMPT, run_id="r1")
    assert len(person.asked) == 2


@pytest.mark.parametrize("answer", [None, "yes", ExitEarly("too late", timed_out=True)])
def test_what_is_not_a_decision_of_a_person_is_not_recorded(runs, answer):
    agent = clerk(runs, [make_pay([], [])], PAY, "Done.", review=Person(answer))
    agent.run_sync(PROMPT, run_id="r1")
    assert [len(step.data) for step in runs.steps("r1") if step.kind == "question"] == [3]


def test_an_edit_that_does_not_fit_is_put_to_the_person_once_more(runs):
    person, done, kills = Person(Edit('{"order": "x"}'), Edit('{"order": 9}')), [], [1]
    agent = clerk(runs, [make_pay(done, kills)], PAY, "Done.", review=person)
    with pytest.raises(Killed):
        agent.run_sync(PROMPT, run_id="r1")
    assert agent.run_sync(PROMPT, run_id="r1").text == "Done."
    assert (len(person.asked), done) == (2, [9, 9])
