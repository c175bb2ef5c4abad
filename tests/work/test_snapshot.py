"""The body runs with the input that was approved, even if other code changes the values."""

import asyncio
import threading
from dataclasses import dataclass, field
from functools import partial

import pytest
from pydantic import BaseModel, SecretStr

from toolsemble import (
    Cache,
    Continue,
    Edit,
    EffectLedger,
    Idempotency,
    RateLimit,
    Retries,
    Toolbox,
    ToolCall,
    ToolContext,
    ToolPipeline,
    choose,
    fan_out,
    map_over,
    tool,
)
from toolsemble._runtime.locks import TABLE
from toolsemble.testing import CallbackReview, FakeReviewer

LONG = 60.0


@dataclass
class Order:
    to: str
    amount: int


class Bank:
    """Tools that share an order which other code changes."""

    def __init__(self, **settings):
        self.order = Order("ada", 5)
        self.paid = []
        self.reviewer = FakeReviewer(Continue())

        @tool
        def make(number: int) -> Order:
            return self.order

        def pay(order: Order) -> str:
            self.paid.append((order.to, order.amount))
            return f"paid {order.amount} to {order.to}"

        self.make, self.pay = make, tool(**{"requires_approval": True, **settings})(pay)

    def steal(self, *_):
        self.order.to, self.order.amount = "eve", 5000

    def run(self, pipeline, review=None):
        box = Toolbox([pipeline], review=review or self.reviewer)
        return box.execute(ToolCall(pipeline.name, {"number": 1})).text

    @property
    def shown(self):
        return [request.arguments for request in self.reviewer.requests]


ADA = {"order": {"to": "ada", "amount": 5}}


def run_sync_and_async(box, call):
    return [box.execute(call).text, asyncio.run(box.aexecute(call)).text]


def test_change_during_the_review_does_not_change_the_input():
    bank = Bank()
    review = CallbackReview(lambda request: bank.steal() or Continue())
    assert bank.run(bank.make | bank.pay, review) == "paid 5 to ada"


@pytest.mark.parametrize("settings", [{}, {"timeout": LONG}, {"rate_limit": RateLimit(5)}, {"max_concurrency": 1}])
def test_other_branch_does_not_change_the_approved_input(settings):
    bank, asked, stolen = Bank(**settings), asyncio.Event(), asyncio.Event()

    @tool
    async def tidy(order: Order) -> str:
        await asked.wait()
        bank.steal()
        stolen.set()
        return order.to

    async def review(request):
        asked.set()
        await stolen.wait()
        return Continue()

    line = ToolPipeline("line", "", [bank.make, fan_out(tidy, bank.pay, name="both")])
    assert bank.run(line, CallbackReview(review)) == '{"tidy":"eve","pay":"paid 5 to ada"}'


class ChangeBeforeAcquire:
    """A lock that delays calls until the test has changed their approved input."""

    def __init__(self, meddle):
        self.meddle = meddle
        self.passed = []

    def __call__(self, ask, claim):
        self.passed.append(claim)
        self.meddle()
        return ask(claim)


@pytest.mark.parametrize(
    "settings",
    [
        {"rate_limit": RateLimit(5)},
        {"max_concurrency": 1},
        {"resources": lambda arguments: f"account:{arguments.order.to}"},
    ],
    ids=["rate", "place", "resource"],
)
def test_earlier_step_does_not_change_a_call_waiting_for_a_limit(settings, monkeypatch):
    bank = Bank(**settings)
    door = ChangeBeforeAcquire(bank.steal)
    monkeypatch.setattr(TABLE, "acquire", partial(door, TABLE.acquire))
    assert bank.run(bank.make | bank.pay) == "paid 5 to ada"
    assert door.passed
    assert (bank.shown, bank.order.to) == ([ADA], "eve")


@pytest.mark.parametrize("isolation", ["thread", "executor"])
def test_change_while_queued_in_an_executor_does_not_change_the_input(isolation):
    from concurrent.futures import ThreadPoolExecutor

    bank = Bank()

    class Queued(ThreadPoolExecutor):
        def submit(self, job, *given):
            if bank.shown:
                bank.steal()  # between the approval and the body
            return super().submit(job, *given)

    with Queued(1) as pool:
        box = Toolbox([bank.make | bank.pay], review=bank.reviewer, executor=None if isolation == "thread" else pool)
        name = next(iter(box.names))
        reply = asyncio.run(box.aexecute(ToolCall(name, {"number": 1})))
    assert (reply.text, bank.shown) == ("paid 5 to ada", [ADA])


def test_predicate_and_body_get_the_same_input():
    bank = Bank(requires_approval=lambda arguments, _: arguments["order"]["amount"] > 100, rate_limit=RateLimit(5))

    def meddle(arguments, context):
        if context.tool_name == "pay":
            bank.steal()
        return False

    late = Toolbox([bank.make | bank.pay], review=bank.reviewer, approve=meddle)
    (name,) = late.names
    assert late.execute(ToolCall(name, {"number": 1})).text == "paid 5 to ada"
    assert bank.shown == []


def test_toolbox_approval_applies_to_the_shown_input():
    bank = Bank(requires_approval=False, rate_limit=RateLimit(5))
    review = CallbackReview(lambda request: bank.steal() or Continue())
    box = Toolbox([bank.make | bank.pay], review=review, approve=["pay"])
    (name,) = box.names
    assert run_sync_and_async(box, ToolCall(name, {"number": 1}))[0] == "paid 5 to ada"


def test_hook_and_body_get_the_same_input():
    bank, seen = Bank(requires_approval=False), []

    def before(call, context):
        if call.name == "pay":
            seen.append(call.arguments)
            bank.steal()

    box = Toolbox([bank.make | bank.pay], before_call=before)
    (name,) = box.names
    assert box.execute(ToolCall(name, {"number": 1})).text == "paid 5 to ada"
    assert seen == [ADA]


class FailingBody:
    """A body that changes its input and fails, a number of times."""

    def __init__(self, times=1):
        self.times = times
        self.got = []

    def __call__(self, tags):
        self.got.append(list(tags))
        tags.append("spoiled")
        if len(self.got) <= self.times:
            raise ConnectionError("try again")
        return ",".join(tags[:-1])


@pytest.mark.parametrize("approval", [True, False])
@pytest.mark.parametrize("settings", [{}, {"timeout": LONG}, {"cache": True}, {"rate_limit": RateLimit(9)}], ids=str)
def test_retry_gets_the_original_input(approval, settings):
    body, reviewer = FailingBody(), FakeReviewer(Continue())

    @tool(effects="read", requires_approval=approval, retries=Retries(3, wait=0, jitter=0), **settings)
    def tagged(tags: list[str]) -> str:
        return body(tags)

    box = Toolbox([tagged], review=reviewer)
    assert box.execute(ToolCall("tagged", {"tags": ["a"]})).text == "a"
    assert body.got == [["a"], ["a"]]
    assert len(reviewer.requests) == approval


def test_retry_in_an_approved_plan_gets_the_shown_input():
    body, reviewer = FailingBody(), FakeReviewer(Continue())

    @tool(effects="read", requires_approval=True, retries=Retries(3, wait=0, jitter=0))
    def tagged(tags: list[str]) -> str:
        return body(tags)

    line = ToolPipeline("line", "", [tagged], approve_plan=True)
    assert Toolbox([line], review=reviewer).execute(ToolCall("line", {"tags": ["a"]})).text == "a"
    assert (body.got, reviewer.requests[0].arguments) == ([["a"], ["a"]], {"tags": ["a"]})


def test_branches_of_an_approved_plan_share_no_input():
    @tool
    async def tidy(order: Order) -> str:
        order.to = "eve"
        return "tidied"

    @tool(requires_approval=True)
    async def pay(order: Order) -> str:
        return f"paid {order.to}"

    both = fan_out(tidy, pay, name="both")
    line, reviewer = ToolPipeline("line", "", [both], approve_plan=True), FakeReviewer(Continue())
    reply = Toolbox([line], review=reviewer).execute(ToolCall("line", ADA))
    assert reply.text == '{"tidy":"tidied","pay":"paid ada"}'
    assert reviewer.requests[0].arguments == ADA


def test_items_of_an_approved_plan_share_no_input():
    order = Order("ada", 5)

    @tool
    def orders(number: int) -> list[Order]:
        return [order, order]

    @tool(requires_approval=True)
    async def pay(order: Order) -> str:
        order.amount += 1
        return f"paid {order.amount}"

    each = map_over(pay, name="each", requires_approval=True)
    reviewer = FakeReviewer(Continue())
    result = (orders | each).execute({"number": 1}, ToolContext(review=reviewer))
    assert (result.output, order.amount) == ('["paid 6","paid 6"]', 5)


def test_items_with_their_own_approval_share_no_input():
    order, reviewer = Order("ada", 5), FakeReviewer(Continue())

    @tool
    def orders(number: int) -> list[Order]:
        return [order, order]

    @tool(requires_approval=True)
    def pay(order: Order) -> str:
        order.amount += 1
        return f"paid {order.amount}"

    assert (orders | map_over(pay)).execute({"number": 1}, ToolContext(review=reviewer)).output == '["paid 6","paid 6"]'
    assert [request.arguments for request in reviewer.requests] == [ADA, ADA]


def test_predicate_of_an_approved_choice_does_not_change_the_input():
    @tool
    def pay(order: Order) -> str:
        return f"paid {order.to}"

    @tool
    def skip(order: Order) -> str:
        return "skipped"

    def meddle(values):
        values["order"]["to"] = "eve"
        return True

    chosen = choose(meddle, pay, skip, name="chosen", requires_approval=True)
    context = ToolContext(review=FakeReviewer(Continue()))
    assert chosen.execute(ADA, context).output == "paid ada"


def test_edited_input_runs():
    bank = Bank(rate_limit=RateLimit(5))
    edit = Edit('{"order": {"to": "bob", "amount": 7}}')
    review = CallbackReview(lambda request: bank.steal() or edit)
    assert bank.run(bank.make | bank.pay, review) == "paid 7 to bob"


def test_edit_of_one_field_works_in_a_pipeline():
    @tool
    def draft(number: int) -> dict:
        return {"text": "hello", "to": "ada"}

    @tool(requires_approval=True, editable="text")
    def send(text: str, to: str) -> str:
        return f"{text} to {to}"

    assert (draft | send).execute({"number": 1}, ToolContext(review=FakeReviewer(Edit("bye")))).output == "bye to ada"


def test_changed_default_of_another_call_is_not_used():
    @tool(requires_approval=True)
    def save(name: str, tags: list[str] = []) -> str:  # noqa: B006 - the mistake that is meant
        tags.append(name)
        return ",".join(tags)

    reviewer = FakeReviewer(Continue())
    box = Toolbox([save], review=reviewer)
    assert [box.execute(ToolCall("save", {"name": name})).text for name in "ab"] == ["a", "b"]
    assert [request.arguments["tags"] for request in reviewer.requests] == [[], []]


def test_changed_secrets_are_not_used():
    class Login(BaseModel):
        password: SecretStr

    login, used = Login.model_validate({"password": "right"}), []

    @tool
    def ask(number: int) -> Login:
        return login

    @tool(requires_approval=True)
    def enter(login: Login) -> str:
        used.append(login.password.get_secret_value())
        return "in"

    def meddle(request):
        login.password = SecretStr("other")
        return Continue()

    assert (ask | enter).execute({"number": 1}, ToolContext(review=CallbackReview(meddle))).output == "in"
    assert used == ["right"]


class TestKeys:
    """The key belongs to the input that ran."""

    def test_result_is_cached_under_the_executed_input(self, monkeypatch):
        order, got = Order("ada", 5), []

        @tool
        def make(to: str) -> Order:
            order.to = to
            return order

        @tool(effects="read", cache=Cache(), max_concurrency=1)
        def look(order: Order) -> str:
            got.append(order.to)
            return f"of {order.to}"

        box = Toolbox([make | look])
        (name,) = box.names
        with monkeypatch.context() as patched:
            patched.setattr(
                TABLE, "acquire", partial(ChangeBeforeAcquire(lambda: setattr(order, "to", "eve")), TABLE.acquire)
            )
            assert box.execute(ToolCall(name, {"to": "ada"})).text == "of ada"
        assert [box.execute(ToolCall(name, {"to": to})).text for to in ("ada", "eve")] == ["of ada", "of eve"]
        assert got == ["ada", "eve"]

    def test_ledger_records_the_executed_input(self, monkeypatch):
        order, ledger = Order("ada", 5), EffectLedger()

        @tool
        def make(number: int) -> Order:
            return order

        @tool(effects="irreversible", idempotency=Idempotency(ledger=ledger), rate_limit=RateLimit(5))
        def pay(order: Order) -> str:
            return f"paid {order.to}"

        door = ChangeBeforeAcquire(lambda: setattr(order, "to", "eve"))
        monkeypatch.setattr(TABLE, "acquire", partial(door, TABLE.acquire))
        assert (make | pay).execute({"number": 1}).output == "paid ada"
        assert door.passed
        assert [(entry.state, "ada" in entry.arguments) for entry in ledger.entries()] == [("done", True)]

    def test_key_function_cannot_change_the_input(self):
        def key(arguments):
            arguments.tags.clear()
            return "same"

        @tool(effects="read", cache=Cache(key=key))
        def join(tags: list[str]) -> str:
            return ",".join(tags)

        assert join.execute({"tags": ["a", "b"]}).output == "a,b"

    def test_resources_function_cannot_change_the_input(self):
        def names(arguments):
            (name,) = arguments.tags
            arguments.tags.append("other")
            return name

        @tool(resources=names)
        def join(tags: list[str]) -> str:
            return ",".join(tags)

        assert join.execute({"tags": ["a"]}).output == "a"

    def test_idempotency_key_function_cannot_change_an_approved_input(self):
        @tool(effects="irreversible", requires_approval=True, idempotency=lambda arguments: arguments.tags.clear())
        def join(tags: list[str]) -> str:
            return ",".join(tags)

        assert join.execute({"tags": ["a"]}, ToolContext(review=FakeReviewer(Continue()))).output == "a"


@dataclass
class Account:
    """An object with a lock, which cannot be copied."""

    name: str
    lock: object = field(init=False, repr=False, default_factory=threading.Lock)


@dataclass
class Doubled(Account):
    """An object that can be neither copied nor read twice."""

    def __post_init__(self):
        self.name *= 2


@dataclass
class Founded(Account):
    """An object that can be created only once."""

    def __post_init__(self):
        if self.name in FOUNDED:
            raise ValueError("there is one already")
        FOUNDED.append(self.name)


FOUNDED = []


@dataclass
class Single(Account):
    """An object that returns itself as its copy."""

    def __deepcopy__(self, memo):
        return self


CHANGED = "Error: Rejected by reviewer: the arguments were changed while the reviewer was asked"


class TestWhatCannotBeCopied:
    @pytest.mark.parametrize("settings", [{}, {"retries": 1}, {"timeout": 60}], ids=str)
    @pytest.mark.parametrize(("meddles", "message"), [(False, "closed ada"), (True, CHANGED)])
    def test_uncopyable_object_is_compared_instead(self, settings, meddles, message):
        account = Account("ada")

        @tool
        def find(number: int) -> Account:
            return account

        @tool(requires_approval=True, idempotent=True, **settings)
        def close(given: Account) -> str:
            assert given is account
            return f"closed {given.name}"

        def meddle(request):
            account.name = "eve" if meddles else "ada"
            return Continue()

        context = ToolContext(review=CallbackReview(meddle))
        assert (find | close).execute({"number": 1}, context).text == message

    @pytest.mark.parametrize(
        ("kind", "message"),
        [
            (Founded, "It cannot be shown: the content of a lock is unknown"),
        ],
    )
    def test_object_that_cannot_be_shown_is_not_reviewed(self, kind, message):
        account, reviewer = kind("ada"), FakeReviewer(Continue())

        @tool
        def find(number: int) -> kind:
            return account

        @tool(requires_approval=True)
        def close(account: kind) -> str:
            raise AssertionError

        failure = (find | close).execute({"number": 1}, ToolContext(review=reviewer)).error_message
        assert failure == message
        assert reviewer.requests == []

    @pytest.mark.parametrize("changed", [False, True])
    def test_cached_call_fails_if_its_uncopyable_input_changed(self, changed, monkeypatch):
        account = Doubled("ada")

        @tool
        def find(number: int) -> Doubled:
            return account

        @tool(effects="read", cache=True, max_concurrency=1)
        def look(account: Doubled) -> str:
            return account.name

        if changed:
            monkeypatch.setattr(
                TABLE, "acquire", partial(ChangeBeforeAcquire(lambda: setattr(account, "name", "eve")), TABLE.acquire)
            )
        result = (find | look).execute({"number": 1})
        assert result.text == (
            "Error: Step 'look' raised: The arguments of 'look' were changed before it could run; nothing was done"
            if changed
            else "adaada"
        )

    def test_hook_sees_calls_with_uncopyable_input(self):
        account, seen = Doubled("ada"), []

        @tool
        def find(number: int) -> Doubled:
            return account

        @tool
        def look(account: Doubled) -> str:
            return account.name

        box = Toolbox([find | look], before_call=lambda call, context: seen.append(call.name))
        (name,) = box.names
        assert box.execute(ToolCall(name, {"number": 1})).text == "adaada"
        assert seen[-1] == "look"

    def test_object_that_is_its_own_copy_is_compared(self, monkeypatch):
        account = Single("ada")

        @tool
        def find(number: int) -> Single:
            return account

        @tool(requires_approval=True, max_concurrency=1)
        def close(account: Single) -> str:
            return f"closed {account.name}"

        line, context = find | close, ToolContext(review=FakeReviewer(Continue()))
        assert line.execute({"number": 1}, context).output == "closed ada"
        monkeypatch.setattr(
            TABLE, "acquire", partial(ChangeBeforeAcquire(lambda: setattr(account, "name", "eve")), TABLE.acquire)
        )
        failure = "Step 'close' raised: The arguments of 'close' were changed before it could run; nothing was done"
        assert line.execute({"number": 1}, context).error_message == failure
