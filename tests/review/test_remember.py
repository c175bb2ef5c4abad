"""A memory: what was approved passes for the rest of its run, and nothing else does."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from helpers.sample_tools import Function, call, review_turn
from toolsemble import Continue, Edit, ExitEarly, ReviewRequest, ReviewTiming, Toolbox, ToolDefinitionError
from toolsemble._runtime.event_loops import finish
from toolsemble.review import CallbackReview, RememberReview

REQUEST = ReviewRequest("Deletes a file", "delete", {"path": "a"}, run_id="r1", schema_digest="d1", required_role="ops")


class Person:
    """Takes down the requests, one by one or together, and answers them by a function."""

    def __init__(self, answer=lambda _: Continue()):
        self.answer = answer
        self.requests = []

    async def review(self, request):
        self.requests.append(request)
        return self.answer(request)

    async def review_all(self, requests):
        self.requests.append(list(requests))
        return {request.id: self.answer(request) for request in requests}


def is_asked_again(first, second, scope="arguments", answer=None):
    person = Person(lambda _: Continue() if answer is None else answer)
    review = RememberReview(person, scope)
    finish(review.review(first))
    given = finish(review.review(second))
    assert given == (person.answer(second) if len(person.requests) == 2 else Continue())
    return len(person.requests) == 2


def other_request(**fields):
    return replace(REQUEST, **{"id": "another", **fields})


@pytest.mark.parametrize("scope", ["arguments", "tool"])
@pytest.mark.parametrize(
    ("fields", "again"),
    [
        ({}, False),
        ({"call_id": "c2"}, False),
        ({"asked_at": 5.0}, False),
        ({"timeout": 1.0}, False),
        ({"run_id": "r2"}, True),
        ({"run_id": ""}, True),
        ({"tool_name": "destroy"}, True),
        ({"schema_digest": "d2"}, True),
        ({"schema_digest": ""}, True),
        ({"required_role": "admin"}, True),
        ({"required_role": None}, True),
        ({"agent_role": "intern"}, True),
        ({"timing": ReviewTiming.DURING_EXECUTION}, True),
        ({"description": "Deletes everything"}, True),
        ({"prompt": "The edit did not fit"}, True),
    ],
)
def test_approval_applies_only_to_the_same_request(scope, fields, again):
    assert is_asked_again(REQUEST, other_request(**fields), scope) is again


@pytest.mark.parametrize(
    ("scope", "answer", "again"),
    [
        ("arguments", Continue(), True),
        ("tool", Continue(), False),
        ("arguments", Continue(always="tool"), False),
        ("tool", Continue(always="arguments"), True),
        ("tool", Continue(always="forever"), True),
    ],
)
def test_scope_decides_if_other_arguments_are_asked(scope, answer, again):
    assert is_asked_again(REQUEST, other_request(arguments={"path": "b"}), scope, answer) is again


@pytest.mark.parametrize(
    ("scope", "answer", "again"),
    [
        ("tool", Continue(always="arguments"), False),
        ("arguments", Continue(always="arguments"), False),
        ("arguments", Continue(always="tool"), False),
        ("arguments", Continue(always="forever"), True),
        ("arguments", Edit("{}"), True),
        ("arguments", ExitEarly("no"), True),
        ("arguments", ExitEarly("no", timed_out=True), True),
        ("arguments", True, True),
        ("arguments", Continue, True),
        ("tool", Edit("{}"), True),
        ("tool", ExitEarly("no"), True),
    ],
)
def test_only_approvals_are_remembered(scope, answer, again):
    assert is_asked_again(REQUEST, other_request(), scope, answer) is again


@pytest.mark.parametrize(
    ("first", "second", "again"),
    [
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, False),
        ({"a": 1}, {"a": 1.0}, True),
        ({"a": 1}, {"a": True}, True),
        ({"a": "x"}, {"a": "x "}, True),
        ("rm old", "rm old", False),
        ("rm old", "rm  old", True),
        ({}, {}, False),
    ],
)
def test_arguments_are_compared_by_value(first, second, again):
    assert is_asked_again(replace(REQUEST, arguments=first), other_request(arguments=second)) is again


def test_request_without_a_run_is_not_remembered():
    person = Person(lambda _: Continue(always="tool"))
    review = RememberReview(person)
    for request in (replace(REQUEST, run_id=""), other_request(run_id="")):
        assert finish(review.review(request)) == Continue(always="tool")
    assert [request.scopes for request in person.requests] == [(), ()]


def test_request_lists_the_scopes_and_keeps_its_id():
    person = Person()
    finish(RememberReview(person).review(REQUEST))
    assert person.requests == [replace(REQUEST, scopes=("tool", "arguments"))]
    assert person.requests[0].id == REQUEST.id


def test_approval_of_changed_arguments_is_not_remembered():
    arguments = {"path": "a"}

    def change(request):
        arguments["path"] = "b"
        return Continue()

    review = RememberReview(person := Person(change))
    finish(review.review(replace(REQUEST, arguments=arguments)))
    finish(review.review(other_request(arguments={"path": "b"})))
    assert len(person.requests) == 2
    finish(review.review(other_request(arguments={"path": "a"})))
    assert len(person.requests) == 3


@pytest.mark.parametrize("answer", [Continue(), Continue(always="arguments"), Continue(always="tool")])
def test_a_question_during_a_call_is_asked_each_time(answer):
    asked = other_request(timing=ReviewTiming.DURING_EXECUTION, arguments={})
    review = RememberReview(person := Person(lambda _: answer), "tool")
    for each in (asked, replace(asked, id="other"), REQUEST, replace(asked, id="third")):
        finish(review.review(each))
    assert [len(request.scopes) for request in person.requests] == [0, 0, 2, 0]


def test_different_secrets_are_different_requests():
    review = RememberReview(person := Person())
    for secret in ("one", "two", "one"):
        finish(review.review(other_request(hidden_digest=secret)))
    assert len(person.requests) == 2


def test_approval_after_an_invalid_edit_is_remembered():
    person = Person()
    review = RememberReview(person)
    for request in (other_request(prompt="It did not fit"), REQUEST, other_request(prompt="It did not fit")):
        finish(review.review(request))
    assert [request.prompt for request in person.requests] == ["It did not fit", "It did not fit"]


def test_forget_removes_a_run():
    person = Person()
    review = RememberReview(person)
    for request in (REQUEST, replace(REQUEST, run_id="r2")):
        finish(review.review(request))
    review.forget("r1")
    review.forget("never seen")
    finish(review.review(replace(REQUEST, run_id="r2")))
    assert len(person.requests) == 2
    finish(review.review(REQUEST))
    assert len(person.requests) == 3


async def test_least_recently_used_runs_are_evicted():
    person = Person()
    review = RememberReview(person)
    for number in range(1024):
        await review.review(replace(REQUEST, run_id=f"r{number}"))
    await review.review(replace(REQUEST, run_id="r0"))
    await review.review(replace(REQUEST, run_id="one more"))
    person.requests.clear()
    for run_id in ("r0", "r2", "one more", "r1"):
        await review.review(replace(REQUEST, run_id=run_id))
    assert [request.run_id for request in person.requests] == ["r1"]


async def test_least_recently_used_approvals_of_a_run_are_evicted():
    person = Person()
    review = RememberReview(person)
    for number in (*range(1024), 0, 1024):
        await review.review(replace(REQUEST, arguments={"n": number}))
    person.requests.clear()
    for number in (0, 2, 1024, 1):
        await review.review(replace(REQUEST, arguments={"n": number}))
    assert [request.arguments for request in person.requests] == [{"n": 1}]


async def test_unknown_requests_are_asked_together():
    person = Person(lambda request: ExitEarly("no") if request.arguments == "c" else Continue())
    review = RememberReview(person)
    await review.review(replace(REQUEST, arguments="a"))
    person.requests.clear()
    requests = [other_request(arguments=each, id=each) for each in "abcd"]
    answers = {"a": Continue(), "b": Continue(), "c": ExitEarly("no"), "d": Continue()}
    assert await review_turn(review, requests) == answers
    assert await review_turn(review, requests) == answers
    offered = [replace(request, scopes=("tool", "arguments")) for request in requests]
    assert person.requests == [offered[1:], [offered[2]]]


async def test_equal_requests_of_one_turn_are_asked_separately():
    person = Person()
    requests = [replace(REQUEST, id=each) for each in ("x", "y")]
    assert await review_turn(RememberReview(person), requests) == {"x": Continue(), "y": Continue()}
    assert [[request.id for request in asked] for asked in person.requests] == [["x", "y"]]


@pytest.mark.parametrize("given", [None, "ada", object()])
def test_rejects_invalid_handler(given):
    with pytest.raises(TypeError, match=r"^RememberReview needs an object with a method 'review'; \w+ has none$"):
        RememberReview(given)


def test_rejects_unknown_scope():
    with pytest.raises(ToolDefinitionError, match=r"^RememberReview: unknown scope 'run'; expected tool, arguments$"):
        RememberReview(Person(), "run")


@pytest.mark.parametrize("handler", [Person, CallbackReview], ids=["async", "sync"])
async def test_toolbox_asks_once_per_run(handler):
    asked = []

    def answer(request):
        asked.append((request.run_id, request.arguments))
        return Continue()

    box = Toolbox([Function(str.upper, requires_approval=True)], review=RememberReview(handler(answer)))
    texts = [box.execute(call("function", text), run_id="r1").text for text in ("a", "b", "a")]
    replies = await box.aexecute_all([call("function", text) for text in "abc"], run_id="r1")
    other = await box.aexecute(call("function", "a"), run_id="r2")
    assert (texts, [reply.text for reply in replies], other.text) == (["A", "B", "A"], ["A", "B", "C"], "A")
    assert asked == [("r1", "a"), ("r1", "b"), ("r1", "c"), ("r2", "a")]


def test_edit_is_asked_again():
    person = Person(lambda _: Edit("edited"))
    box = Toolbox([Function(str.upper, requires_approval=True)], review=RememberReview(person))
    assert [box.execute(call("function", "a"), run_id="r1").text for _ in range(2)] == ["EDITED", "EDITED"]
    assert len(person.requests) == 2


def test_event_loops_in_threads_share_approvals():
    start = threading.Barrier(8, timeout=30)
    person = Person()
    review = RememberReview(person, "tool")

    async def rounds(number):
        return [await review.review(replace(REQUEST, run_id=f"r{n % 50}", id=f"{number}-{n}")) for n in range(500)]

    def loop(number):
        start.wait()
        return asyncio.run(rounds(number))

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(loop, range(8))) == [[Continue()] * 500] * 8
    person.requests.clear()
    assert asyncio.run(rounds(8)) == [Continue()] * 500
    assert person.requests == []
