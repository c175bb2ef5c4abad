"""Every reviewer, every decision, sync and async: alone, in a parallel turn, and inside another tool."""

import threading
from contextlib import ExitStack, contextmanager, suppress

import pytest

from helpers.console_person import Person
from helpers.sample_tools import Function, call
from toolsemble import Continue, Edit, ExitEarly, ReviewRefusedError, Toolbox
from toolsemble.review import (
    AutoApprove,
    AutoReject,
    CallbackReview,
    MemoryStore,
    QueueReview,
    RememberReview,
    ReviewStore,
    Rule,
    RulesReview,
    WebhookReview,
)
from toolsemble.review._webhook import listen

pytestmark = pytest.mark.slow

GATED = Function(lambda text: text, requires_approval=True)
OPEN = Function(lambda text: text, name="open")
SECRET = "a secret of sixteen or more bytes"  # noqa: S105 - a test's own
DECISIONS = {
    "continue": (Continue(), "{}"),
    "edit": (Edit("edited"), "edited"),
    "exit": (ExitEarly("no"), "Error: Rejected by reviewer: no"),
    "nothing": (None, "Error: Rejected by reviewer: the answer was not a decision"),
}


def reviewer_factory(function):
    @contextmanager
    def made(decision, _):
        yield function(decision)

    return made


async def decide_async(decision):
    return decision


@contextmanager
def answer_in_thread(store, decision):
    """Answer whatever comes into a store, in another thread."""
    done = threading.Event()

    def answer():
        while not done.wait(0.005):
            for request in store.pending():
                with suppress(ReviewRefusedError):  # it was withdrawn meanwhile
                    store.answer(request, decision, person="ada")

    thread = threading.Thread(target=answer)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


@contextmanager
def memory(decision, _):
    with MemoryStore() as store, answer_in_thread(store, decision):
        yield QueueReview(store, poll=0.005)


@contextmanager
def file(decision, folder):
    path = folder / "reviews.db"
    with ReviewStore(path) as store, ReviewStore(path) as other, answer_in_thread(other, decision):
        yield QueueReview(store, poll=0.005)


@contextmanager
def webhook(decision, _):
    inbox = listen(lambda body, headers: (200, "taken"), "127.0.0.1", 0)
    with MemoryStore() as store, answer_in_thread(store, decision), inbox as url:
        yield WebhookReview(url, SECRET, store=store, poll=0.005)


@contextmanager
def console(decision, _):
    person = Person()
    done = threading.Event()
    key = {Continue: "c", Edit: "e", ExitEarly: "x"}[type(decision)]
    more = {"e": ("change): ", "edited\n"), "x": ("empty): ", "no\n")}

    def sit():
        while not done.is_set():
            with suppress(AssertionError, OSError):
                person.prompt(done.is_set)
                person.type(f"{key}\n")
                if key in more:
                    person.until(more[key][0], done.is_set)
                    person.type(more[key][1])

    thread = threading.Thread(target=sit)
    thread.start()
    try:
        yield person.console
    finally:
        done.set()
        thread.join()
        person.leave()


REVIEWERS = {
    "sync callback": reviewer_factory(lambda decision: CallbackReview(lambda _: decision)),
    "async callback": reviewer_factory(lambda decision: CallbackReview(lambda _: decide_async(decision))),
    "remember": reviewer_factory(lambda decision: RememberReview(CallbackReview(lambda _: decision))),
    "rules": reviewer_factory(lambda decision: RulesReview([Rule("deny", "open")], CallbackReview(lambda _: decision))),
    "one in another": reviewer_factory(
        lambda decision: RulesReview([], RememberReview(RulesReview([], CallbackReview(lambda _: decision))))
    ),
    "queue in memory": memory,
    "queue in a file": file,
    "webhook": webhook,
    "console": console,
    "approve": reviewer_factory(lambda _: AutoApprove()),
    "approve later": reviewer_factory(lambda _: AutoApprove(0.001)),
    "reject": reviewer_factory(lambda decision: AutoReject(decision.reason)),
    "allow": reviewer_factory(lambda _: RulesReview([Rule("allow")])),
    "deny": reviewer_factory(lambda decision: RulesReview([Rule("deny", reason=decision.reason)])),
}
ONLY = {"approve": "continue", "approve later": "continue", "allow": "continue", "reject": "exit", "deny": "exit"}
PEOPLE = {"queue in memory", "queue in a file", "webhook", "console"}
TABLE = [
    (reviewer, decision)
    for reviewer in REVIEWERS
    for decision in DECISIONS
    if ONLY.get(reviewer, decision) == decision and not (decision == "nothing" and reviewer in PEOPLE)
]


@pytest.fixture(autouse=True)
def plain_terminal(monkeypatch):
    for name in ("VISUAL", "EDITOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")


@pytest.fixture(params=TABLE, ids=" ".join)
def case(request, tmp_path):
    reviewer, decision = request.param
    answer, text = DECISIONS[decision]
    with ExitStack() as stack:
        yield stack.enter_context(REVIEWERS[reviewer](answer, tmp_path)), text


async def test_reviews_a_single_call(case):
    reviewer, text = case
    box = Toolbox([GATED], review=reviewer)
    replies = [box.execute(call("function", "a")), await box.aexecute(call("function", "b"))]
    replies += [*box.execute_all([call("function", "c")]), *await box.aexecute_all([call("function", "d")])]
    assert [reply.text for reply in replies] == [text.format(*each) for each in ("a", "b", "c", "d")]


async def test_reviews_parallel_calls_of_a_turn(case):
    reviewer, text = case
    box = Toolbox([GATED, OPEN], review=reviewer)
    turn = [call("function", "a"), call("open", "x"), call("function", "b"), call("function", "c")]
    expected = [text.format("a"), "x", text.format("b"), text.format("c")]
    assert [reply.text for reply in box.execute_all(turn)] == expected
    assert [reply.text for reply in await box.aexecute_all(turn)] == expected


async def test_reviews_calls_inside_another_tool(case):
    reviewer, text = case
    inner = Toolbox([GATED])
    through = Function(lambda input: inner.execute(call("function", input)).result, name="through")
    direct = Function(GATED.execute, name="direct")
    box = Toolbox([through, direct], review=reviewer)
    turn = [call("through", "a"), call("direct", "b")]
    expected = [text.format("a"), text.format("b")]
    assert [box.execute(each).text for each in turn] == expected
    assert [reply.text for reply in await box.aexecute_all(turn)] == expected
