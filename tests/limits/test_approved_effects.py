"""Effects that need approval: what has happened is not put to a reviewer again."""

import pytest

from toolsemble import Edit, EffectLedger, Idempotency, InMemoryMetrics, Secret, Toolbox, ToolCall, tool
from toolsemble.review import CallbackReview, Continue, ExitEarly
from toolsemble.testing import FakeReviewer

RUN = {"run_id": "run 1"}
CALL = ToolCall("pay", {"order": 17})


@pytest.fixture(params=["memory", "file"])
def ledger(request, tmp_path):
    with EffectLedger(None if request.param == "memory" else tmp_path / "effects.db") as made:
        yield made


def make_box(ledger, reviewer, body=lambda order: None, **settings):
    paid = []

    @tool(**{"effects": "irreversible", "idempotency": True, "requires_approval": True, **settings})
    def pay(order: int, pin: Secret[str] | None = None) -> str:
        body(order)
        paid.append(order)
        return f"paid {order}"

    return Toolbox([pay], review=reviewer, ledger=ledger), paid


async def execute(box, how, call=CALL, **run):
    return await box.aexecute(call, **(run or RUN)) if how == "async" else box.execute(call, **(run or RUN))


@pytest.mark.parametrize("how", ["sync", "async"])
async def test_reviewer_is_not_asked_about_an_effect_that_has_happened(ledger, how):
    reviewer = FakeReviewer(Continue(), ExitEarly("no"))
    box, paid = make_box(ledger, reviewer)
    replies = [await execute(box, how) for _ in range(3)]
    assert [reply.text for reply in replies] == ["paid 17"] * 3
    assert [reply.result.attributes.get("repeated", False) for reply in replies] == [False, True, True]
    assert (paid, len(reviewer.requests)) == ([17], 1)


def test_reviewer_is_not_asked_after_a_crash(tmp_path):
    for answer in (Continue(), ExitEarly("no")):
        reviewer = FakeReviewer(answer)
        with EffectLedger(tmp_path / "effects.db") as ledger:
            assert make_box(ledger, reviewer)[0].execute(CALL, **RUN).text == "paid 17"
    assert reviewer.requests == []


def test_reviewer_is_asked_about_other_arguments_and_other_runs(ledger):
    reviewer = FakeReviewer(Continue(), ExitEarly("no"), ExitEarly("no"))
    box, paid = make_box(ledger, reviewer)
    box.execute(CALL, **RUN)
    assert box.execute(ToolCall("pay", {"order": 18}), **RUN).text == "Error: Rejected by reviewer: no"
    assert box.execute(CALL, run_id="run 2").text == "Error: Rejected by reviewer: no"
    assert paid == [17]


def test_unknown_outcome_is_reported_and_not_reviewed(ledger):
    def fail(order):
        raise ConnectionError("cut off")

    reviewer = FakeReviewer(Continue(), ExitEarly("no"))
    box, _ = make_box(ledger, reviewer, fail)
    assert box.execute(CALL, **RUN).text == "Error: cut off"
    again = box.execute(CALL, **RUN)
    assert again.text.startswith("Error: Unknown outcome: an earlier call of 'pay' with the same key ended without")
    assert again.result.attributes["outcome"] == "unknown"
    assert len(reviewer.requests) == 1


def test_idempotent_tool_of_unknown_outcome_is_put_to_the_reviewer(ledger):
    outcomes = [ConnectionError("cut off")]

    def body(order):
        if outcomes:
            raise outcomes.pop()

    reviewer = FakeReviewer(Continue())
    box, paid = make_box(ledger, reviewer, body, idempotent=True)
    assert [box.execute(CALL, **RUN).text for _ in range(2)] == ["Error: cut off", "paid 17"]
    assert (paid, len(reviewer.requests)) == ([17], 2)


def test_nothing_is_reserved_while_a_reviewer_is_asked(ledger):
    states = []

    def decide(request):
        states.append([entry.state for entry in ledger.entries()])
        return ExitEarly("no")

    box, paid = make_box(ledger, CallbackReview(decide))
    box.execute(CALL, **RUN)
    assert (states, ledger.entries(), paid) == ([[]], [], [])


def test_effect_that_happens_while_the_reviewer_is_asked_is_not_repeated(ledger):
    def decide(request):
        if not paid:
            reviewer_box.execute(CALL, **RUN)
        return Continue()

    made = []

    def body(order):
        made.append(order)

    box, paid = make_box(ledger, CallbackReview(decide), body, idempotency=Idempotency(key=lambda given: given.order))
    reviewer_box = Toolbox(list(box), review=FakeReviewer(Continue()), ledger=ledger)
    reply = box.execute(CALL, **RUN)
    assert (reply.text, made, reply.result.attributes["repeated"]) == ("paid 17", [17], True)


def test_edit_is_looked_up_when_it_runs(ledger):
    reviewer = FakeReviewer(Continue(), Edit('{"order": 17}'))
    box, paid = make_box(ledger, reviewer)
    box.execute(CALL, **RUN)
    reply = box.execute(ToolCall("pay", {"order": 18}), **RUN)
    assert (reply.text, paid, reply.result.attributes["repeated"]) == ("paid 17", [17], True)


def test_repeated_call_counts_its_repairs_and_masks_its_secrets(ledger):
    metrics = InMemoryMetrics()
    box, _ = make_box(ledger, FakeReviewer(Continue()))
    counted = Toolbox(list(box), review=FakeReviewer(ExitEarly("no")), ledger=ledger, metrics=metrics)
    call = ToolCall("pay", {"order": 17, "pin": "1234"})
    box.execute(call, **RUN)
    reply = counted.execute(ToolCall("pay", '{"order": "17", "pin": "1234"}'), **RUN)
    assert reply.text == "paid 17"
    assert [repair["step"] for repair in reply.result.attributes["repairs"]] == ["coerce"]
    assert metrics.count("pay", "success") == 1


def test_key_that_cannot_be_computed_is_reported_when_the_call_is_made(ledger):
    def fail(_):
        raise KeyError("tenant")

    reviewer = FakeReviewer(Continue())
    box, paid = make_box(ledger, reviewer, idempotency=Idempotency(key=fail))
    assert box.execute(CALL, **RUN).text == "Error: Its key cannot be computed: KeyError: 'tenant'"
    assert (paid, len(reviewer.requests)) == ([], 1)


def test_key_function_cannot_change_what_the_reviewer_sees(ledger):
    @tool(
        effects="write",
        requires_approval=True,
        idempotency=Idempotency(key=lambda given: given.items.clear() or str(given.items)),
    )
    def ship(items: list[str]) -> str:
        return ", ".join(items)

    reviewer = FakeReviewer(Continue())
    box = Toolbox([ship], review=reviewer, ledger=ledger)
    assert box.execute(ToolCall("ship", {"items": ["tea"]}), **RUN).text == "tea"
    assert reviewer.requests[0].arguments == {"items": ["tea"]}


def test_gated_step_of_a_pipeline_is_answered_from_the_ledger(ledger):
    reviewer = FakeReviewer(Continue(), ExitEarly("no"))
    box, paid = make_box(ledger, reviewer)

    @tool
    def choose_order(text: str) -> dict[str, int]:
        return {"order": 17}

    built = Toolbox([choose_order | next(iter(box))], review=reviewer, ledger=ledger)
    texts = [built.execute(ToolCall("choose_order_then_pay", {"text": "x"}), **RUN).text for _ in range(2)]
    assert (texts, paid, len(reviewer.requests)) == (["paid 17"] * 2, [17], 1)


def test_find_returns_an_entry_or_none_and_reserves_nothing(ledger):
    box, _ = make_box(ledger, FakeReviewer(Continue()))
    assert ledger.find("nothing") is None
    box.execute(CALL, **RUN)
    (entry,) = ledger.entries()
    assert ledger.find(entry.key) == entry
