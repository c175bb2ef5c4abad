"""A run that ends with calls that wait for approval, is stored, and is resumed with decisions."""

import asyncio
import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from pydantic import AfterValidator

from helpers.pause_process import build_agent
from helpers.pause_shop import Shop, note, pay
from toolsemble import (
    Agent,
    AgentExecutionError,
    BudgetExceededError,
    Continue,
    ConversationMemory,
    Edit,
    EffectLedger,
    ExitEarly,
    ExitEarlyError,
    Idempotency,
    InMemoryMetrics,
    LoopGuard,
    Prices,
    ReturnBehavior,
    Secret,
    Tool,
    Toolbox,
    ToolCall,
    ToolConfigurationError,
    ToolContext,
    ToolPipeline,
    tool,
)
from toolsemble._vocabulary.errors import CallPausedError
from toolsemble.agent import PausedRun, event_from_json, event_to_json
from toolsemble.agent.streams import read_ag_ui, sse, to_ag_ui, to_vercel
from toolsemble.models import ChatReply, TokenUsage
from toolsemble.review import AutoApprove, PauseReview, RememberReview, Rule, RulesReview
from toolsemble.telemetry import OpenTelemetry
from toolsemble.testing import ScriptedModel

HELPER = Path(__file__).parents[1] / "helpers" / "pause_process.py"


def make_agent(replies, shop=None, **settings):
    return Agent(ScriptedModel(replies), [shop or Shop()], **{"review": PauseReview(), **settings})


def decide(result, *decisions):
    return {each.id: decision for each, decision in zip(result.pending, decisions, strict=False)}


def store(paused):
    """Return a paused run as another process would read it."""
    return PausedRun.from_json(paused.to_json())


def texts(result):
    return [record.reply.text for record in result.tool_calls]


async def collect(events):
    return [event async for event in events]


class TestPause:
    def test_ends_the_run_with_the_call_open(self):
        shop = Shop()
        result = make_agent([pay(5)], shop).run_sync("go", run_id="r1")
        assert (result.stop_reason, result.text, result.output, shop.done) == ("paused", "", None, [])
        (pending,) = result.pending
        assert pending.call == pay(5)
        assert pending.id == pending.request.id
        request = pending.request
        assert (request.tool_name, request.arguments, request.call_id, request.run_id) == (
            "pay", {"amount": 5}, "p1", "r1"
        )  # fmt: skip
        assert request.description == "Pay an amount."

    def test_shows_the_arguments_as_a_reviewer_sees_them(self):
        @tool(requires_approval=True)
        def log_in(user: str, password: Secret[str]) -> str:
            return "in"

        call = ToolCall("log_in", {"user": "ada", "password": "hunter2"})
        result = Agent(ScriptedModel([call]), [log_in], review=PauseReview()).run_sync("go")
        assert result.pending[0].request.arguments == {"user": "ada", "password": "**********"}

    def test_has_no_deadline(self):
        assert make_agent([pay(5)]).run_sync("go").pending[0].request.deadline is None

    def test_works_as_the_reviewer_of_the_toolbox(self):
        shop = Shop()
        agent = Agent(ScriptedModel([pay(5), "done"]), Toolbox([shop], review=PauseReview()))
        first = agent.run_sync("go")
        assert agent.run_sync(store(first.paused), decisions=decide(first, Continue())).text == "done"
        assert shop.done == [("pay", 5)]

    def test_works_as_the_reviewer_of_one_run(self):
        agent = make_agent([pay(5)], review=AutoApprove())
        assert agent.run_sync("go", review=PauseReview()).stop_reason == "paused"

    def test_runs_the_calls_of_the_turn_that_need_no_approval(self):
        shop = Shop()
        result = make_agent([[note("a", "n1"), pay(5), note("b", "n2")]], shop).run_sync("go")
        assert sorted(shop.done) == [("note", "a"), ("note", "b")]
        assert texts(result) == ["noted a", "noted b"]
        assert [each.call for each in result.pending] == [pay(5)]
        assert [record.reply.text for record in result.paused.done] == ["noted a", "noted b"]

    def test_keeps_the_conversation_valid(self):
        result = make_agent([note("a"), [pay(5), note("b")]]).run_sync("go")
        assert [message.role for message in result.messages] == ["user", "assistant", "tool"]
        assert result.paused.message.calls == (pay(5), note("b"))

    def test_is_printed_with_the_open_calls(self):
        result = make_agent([[note("a"), pay(5)]]).run_sync("go")
        assert str(result).splitlines() == [
            'note(text="a") -> noted a',
            f"pay(amount=5) waits for approval, request {result.pending[0].id}",
            "stopped: paused; 1 model call, 1 tool call, 0 tokens",
        ]

    def test_a_string_tool_is_printed_with_its_text(self):
        class Shout(Tool):
            name = "shout"
            description = "Shouts"
            requires_approval = True

            def run(self, input: str) -> str:
                return input.upper()

        agent = Agent(ScriptedModel([ToolCall("shout", {"input": "hey"}), "done"]), [Shout()], review=PauseReview())
        first = agent.run_sync("go")
        assert str(first).startswith("shout(hey) waits for approval")
        final = agent.run_sync(store(first.paused), decisions=decide(first, Edit("ho")))
        assert final.tool_calls[0].reply.result.text == "HO"

    def test_counts_an_open_call_when_it_runs(self):
        agent = make_agent([[note("a"), pay(5)], "done"])
        first = agent.run_sync("go")
        assert first.usage.tool_calls == 1
        assert agent.run_sync(first.paused, decisions=decide(first, Continue())).usage.tool_calls == 2

    def test_reviewers_around_it_decide_first(self):
        shop = Shop()
        review = RulesReview([Rule("allow", "pay", arguments={"amount": {"max": 10}})], ask=PauseReview())
        result = make_agent([[pay(5, "c1"), pay(50, "c2")]], shop, review=RememberReview(review)).run_sync("go")
        assert shop.done == [("pay", 5)]
        assert [each.call.id for each in result.pending] == ["c2"]

    def test_a_failure_of_a_sibling_is_part_of_the_turn(self):
        agent = make_agent([[ToolCall("note", "{", id="n1"), pay(5)], "done"])
        first = agent.run_sync("go")
        final = agent.run_sync(store(first.paused), decisions=decide(first, Continue()))
        assert texts(first)[0].startswith("Error: Invalid JSON")
        assert [record.reply.is_error for record in final.tool_calls] == [True, False]

    def test_an_exception_that_ends_the_run_comes_first(self):
        @tool
        def leave() -> str:
            raise ExitEarlyError("enough")

        @tool(requires_approval=True)
        def send() -> str:
            return "sent"

        agent = Agent(ScriptedModel([[ToolCall("send"), ToolCall("leave")]]), [send, leave], review=PauseReview())
        with pytest.raises(ExitEarlyError) as raised:
            agent.run_sync("go")
        assert raised.value.partial.pending == ()
        assert len(raised.value.partial.tool_calls) == 2


class TestResume:
    def test_continues_with_the_model(self):
        shop = Shop()
        model = ScriptedModel([pay(5), "done"])
        agent = Agent(model, [shop], review=PauseReview())
        first = agent.run_sync("go")
        final = agent.run_sync(first.paused, decisions=decide(first, Continue()))
        assert (final.text, final.stop_reason, shop.done, final.pending) == ("done", "answer", [("pay", 5)], ())
        assert [message.text for message in model.requests[-1]] == ["go", "", "paid 5"]
        assert final.tool_calls[0].call == pay(5)

    def test_equals_an_uninterrupted_run(self):
        replies = [note("a"), [note("b", "n2"), pay(5), pay(6, "c2"), note("c", "n3")], note("d", "n4"), "done"]
        whole = make_agent(replies, review=AutoApprove()).run_sync("go")
        agent = make_agent(replies)
        first = agent.run_sync("go")
        final = agent.run_sync(store(first.paused), decisions=decide(first, Continue(), Continue()))
        assert final.messages == whole.messages
        assert texts(final) == texts(whole)
        assert [record.arguments for record in final.tool_calls] == [record.arguments for record in whole.tool_calls]
        assert (final.usage.model_calls, final.usage.tool_calls) == (whole.usage.model_calls, whole.usage.tool_calls)

    def test_never_runs_the_siblings_again(self):
        shop = Shop()
        agent = make_agent([[note("a"), pay(5)], "done"], shop)
        first = agent.run_sync("go")
        agent.run_sync(store(first.paused), decisions=decide(first, Continue()))
        assert shop.done == [("note", "a"), ("pay", 5)]

    @pytest.mark.parametrize(
        ("decision", "text", "done"),
        [
            (Continue(), "paid 5", [("pay", 5)]),
            (ExitEarly("too much"), "Error: Rejected by reviewer: too much", []),
            (Edit('{"amount": 3}'), "paid 3\n\nNote: a reviewer changed", [("pay", 3)]),
        ],
    )
    def test_a_decision_has_the_effect_of_a_reviewer(self, decision, text, done):
        shop = Shop()
        agent = make_agent([pay(5), "done"], shop)
        first = agent.run_sync("go")
        final = agent.run_sync(store(first.paused), decisions=decide(first, decision))
        assert texts(final)[0].startswith(text)
        assert (final.text, shop.done) == ("done", done)

    def test_an_edit_is_in_the_record(self):
        agent = make_agent([pay(5), "done"])
        first = agent.run_sync("go")
        final = agent.run_sync(first.paused, decisions=decide(first, Edit('{"amount": 3}')))
        assert final.tool_calls[0].arguments == {"amount": 3}

    def test_a_call_without_a_decision_goes_on_waiting(self):
        shop = Shop()
        model = ScriptedModel([[pay(5), pay(6, "c2")], "done"])
        agent = Agent(model, [shop], review=PauseReview())
        first = agent.run_sync("go")
        second = agent.run_sync(store(first.paused), decisions=decide(first, Continue()))
        assert (second.stop_reason, shop.done, len(model.requests)) == ("paused", [("pay", 5)], 1)
        assert [(each.call.id, each.id) for each in second.pending] == [("c2", first.pending[1].id)]
        assert texts(second) == ["paid 5"]
        final = agent.run_sync(store(second.paused), decisions=decide(second, Continue()))
        assert (final.text, texts(final), shop.done) == ("done", ["paid 5", "paid 6"], [("pay", 5), ("pay", 6)])

    @pytest.mark.parametrize("decisions", [None, {}])
    def test_without_decisions_nothing_happens(self, decisions):
        shop = Shop()
        agent = make_agent([pay(5), "done"], shop)
        first = agent.run_sync("go")
        again = agent.run_sync(first.paused, decisions=decisions)
        assert (again.stop_reason, again.pending, shop.done) == ("paused", first.pending, [])

    def test_a_run_can_pause_several_times(self):
        shop = Shop()
        agent = make_agent([pay(1, "c1"), pay(2, "c2"), pay(3, "c3"), "done"], shop)
        result = agent.run_sync("go")
        for count in (1, 2, 3):
            assert (result.stop_reason, len(result.tool_calls)) == ("paused", count - 1)
            result = agent.run_sync(store(result.paused), decisions=decide(result, Continue()))
        assert (result.text, texts(result)) == ("done", ["paid 1", "paid 2", "paid 3"])
        assert result.usage.model_calls == 4

    def test_keeps_the_run_id_and_the_trace(self):
        agent = make_agent([pay(5), "done"])
        first = agent.run_sync("go")
        final = agent.run_sync(store(first.paused), decisions=decide(first, Continue()))
        assert final.run_id == first.run_id
        assert [(step.kind, step.detail) for step in final.trace] == [
            ("model", "calls"), ("tool", "paused"), ("tool", "success"), ("model", "stop")
        ]  # fmt: skip

    def test_a_call_without_an_id_keeps_the_id_of_its_question(self):
        seen = []

        @tool(requires_approval=True)
        def send(context: ToolContext) -> str:
            seen.append(context.call_id)
            return "sent"

        agent = Agent(ScriptedModel([ToolCall("send"), "done"]), [send], review=PauseReview())
        first = agent.run_sync("go")
        final = agent.run_sync(store(first.paused), decisions=decide(first, Continue()))
        assert seen == [first.pending[0].request.call_id]
        assert final.tool_calls[0].call.id is None

    def test_passes_deps_and_parameters_of_the_resumed_run(self):
        @tool(requires_approval=True)
        def send(context: ToolContext) -> str:
            return f"{context.deps} {context.parameters['user']}"

        agent = Agent(ScriptedModel([ToolCall("send"), "done"]), [send], review=PauseReview())
        first = agent.run_sync("go", deps="db", parameters={"user": "zoe"})
        assert "zoe" not in first.paused.to_json()
        final = agent.run_sync(
            store(first.paused), decisions=decide(first, Continue()), deps="db", parameters={"user": "zoe"}
        )
        assert texts(final) == ["db zoe"]

    def test_works_in_every_way_to_run(self):
        async def stream(agent, *given, **settings):
            return (await collect(agent.stream(*given, **settings)))[-1].result

        async def iterate(agent, *given, **settings):
            return (await collect(agent.iterate(*given, **settings)))[-1].result

        async def run(agent, *given, **settings):
            return await agent.run(*given, **settings)

        for way in (stream, iterate, run):
            agent = make_agent([pay(5), "done"])
            first = asyncio.run(way(agent, "go"))
            final = asyncio.run(way(agent, first.paused, decisions=decide(first, Continue())))
            assert (first.stop_reason, final.text) == ("paused", "done")

    def test_a_tool_that_ends_the_run_does_so(self):
        @tool(requires_approval=True, return_behavior=ReturnBehavior.IMMEDIATE)
        def answer() -> str:
            return "42"

        agent = Agent(ScriptedModel([ToolCall("answer")]), [answer], review=PauseReview())
        first = agent.run_sync("go")
        final = agent.run_sync(store(first.paused), decisions=decide(first, Continue()))
        assert (final.text, final.stop_reason) == ("42", "immediate")

    def test_a_tool_that_is_gone_is_reported_to_the_model(self):
        first = make_agent([pay(5)]).run_sync("go")
        final = Agent(ScriptedModel(["done"]), []).run_sync(first.paused, decisions=decide(first, Continue()))
        assert texts(final)[0].startswith("Error: Unknown tool 'pay'")


class TestDecisionsAreBound:
    def test_unknown_ids_raise_before_anything_runs(self):
        shop = Shop()
        agent = make_agent([pay(5), "done"], shop)
        first = agent.run_sync("go")
        with pytest.raises(ToolConfigurationError, match=f"No open request 'q9'; open requests: {first.pending[0].id}"):
            agent.run_sync(first.paused, decisions={**decide(first, Continue()), "q9": Continue()})
        assert shop.done == []

    @pytest.mark.parametrize("decision", [True, "continue", None, Continue, type("Own", (Continue,), {})()])
    def test_anything_but_a_decision_raises(self, decision):
        agent = make_agent([pay(5), "done"])
        first = agent.run_sync("go")
        with pytest.raises(TypeError, match=r"must be Continue\(\), Edit\(...\) or Reject\(...\), not "):
            agent.run_sync(first.paused, decisions=decide(first, decision))

    def test_an_edit_must_be_text(self):
        agent = make_agent([pay(5), "done"])
        first = agent.run_sync("go")
        with pytest.raises(TypeError, match="must be a str, such as JSON text, not "):
            agent.run_sync(first.paused, decisions=decide(first, Edit({"amount": 3})))

    def test_decisions_must_be_a_mapping(self):
        agent = make_agent([pay(5), "done"])
        first = agent.run_sync("go")
        with pytest.raises(TypeError, match="must be a mapping of request ids to decisions"):
            agent.run_sync(first.paused, decisions=[Continue()])

    def test_a_prompt_takes_no_decisions(self):
        with pytest.raises(TypeError, match=r"Only a paused run takes decisions; pass result\.paused"):
            make_agent(["done"]).run_sync("go", decisions={})

    @pytest.mark.parametrize("name", ["history", "run_id", "memory_id"])
    def test_a_paused_run_has_its_own_ids(self, name):
        agent = make_agent([pay(5), "done"])
        first = agent.run_sync("go")
        with pytest.raises(TypeError, match=f"A paused run has its own {name}"):
            agent.run_sync(first.paused, **{name: [] if name == "history" else "x"})

    @pytest.mark.parametrize("decision", [Continue(), Edit('{"amount": 1}'), ExitEarly("no")])
    def test_a_decision_for_other_arguments_is_refused(self, decision):
        shop = Shop()
        agent = make_agent([pay(5), "done"], shop)
        first = agent.run_sync("go")
        values = json.loads(first.paused.to_json())
        for call in (values["message"]["calls"][0], values["pending"][0]["call"]):
            call["arguments"] = {"amount": 5000}
        changed = PausedRun.from_json(json.dumps(values))
        again = agent.run_sync(changed, decisions=decide(first, decision))
        assert (again.stop_reason, shop.done) == ("paused", [])
        (pending,) = again.pending
        assert pending.request.arguments == {"amount": 5000}
        assert pending.id != first.pending[0].id
        assert "changed after the decision" in pending.request.prompt

    def test_a_decision_for_another_schema_is_refused(self):
        first = make_agent([pay(5)]).run_sync("go")

        @tool(name="pay", requires_approval=True)
        def pay_in_currency(amount: int, currency: str = "EUR") -> str:
            return "paid"

        agent = Agent(ScriptedModel([]), [pay_in_currency], review=PauseReview())
        again = agent.run_sync(first.paused, decisions=decide(first, Continue()))
        assert again.pending[0].request.arguments == {"amount": 5, "currency": "EUR"}

    def test_a_hook_that_changes_the_arguments_is_noticed(self):
        shop, amounts = Shop(), iter([5, 6, 6])
        box = Toolbox([shop], before_call=lambda call, _: pay(next(amounts)))
        agent = Agent(ScriptedModel([pay(1), "done"]), box, review=PauseReview())
        first = agent.run_sync("go")
        second = agent.run_sync(first.paused, decisions=decide(first, Continue()))
        assert [each.pending[0].request.arguments["amount"] for each in (first, second)] == [5, 6]
        assert agent.run_sync(second.paused, decisions=decide(second, Continue())).text == "done"
        assert shop.done == [("pay", 6)]

    @pytest.mark.parametrize(
        ("edit", "prompt"),
        [
            ('{"amount": "many"}', "The edit does not fit: "),
            ('{"amount": 30}', 'The edit was read as {"amount":10}; write the values exactly'),
        ],
    )
    def test_an_edit_that_does_not_fit_leaves_the_call_open(self, edit, prompt):
        done = []

        @tool(requires_approval=True)
        def give(amount: Annotated[int, AfterValidator(lambda amount: min(amount, 10))]) -> str:
            done.append(amount)
            return "given"

        agent = Agent(ScriptedModel([ToolCall("give", {"amount": 5}), "done"]), [give], review=PauseReview())
        first = agent.run_sync("go")
        second = agent.run_sync(store(first.paused), decisions=decide(first, Edit(edit)))
        assert (second.stop_reason, done) == ("paused", [])
        request = second.pending[0].request
        assert (request.arguments, request.id != first.pending[0].id) == ({"amount": 5}, True)
        assert request.prompt.startswith(prompt)
        final = agent.run_sync(store(second.paused), decisions=decide(second, Edit('{"amount": 10}')))
        assert (final.text, done) == ("done", [10])

    @pytest.mark.parametrize("review", [AutoApprove(), PauseReview()])
    @pytest.mark.parametrize("approval", [False, lambda arguments, _: False])
    def test_a_rejection_holds_although_the_tool_needs_no_approval_any_more(self, review, approval):
        first = make_agent([pay(5)]).run_sync("go")
        done = []

        @tool(name="pay", requires_approval=approval)
        def pay_freely(amount: int) -> str:
            """Pay an amount."""
            done.append(amount)
            return "paid"

        agent = Agent(ScriptedModel(["done"]), Toolbox([pay_freely], review=review))
        final = agent.run_sync(first.paused, decisions=decide(first, ExitEarly("no")))
        assert (texts(final), done) == (["Error: Rejected by reviewer: no"], [])

    def test_equal_calls_get_their_own_decisions(self):
        shop = Shop()
        agent = make_agent([[pay(5, "same"), pay(5, "same")], "done"], shop)
        first = agent.run_sync("go")
        final = agent.run_sync(store(first.paused), decisions=decide(first, ExitEarly("no"), Continue()))
        assert sorted(texts(final)) == ["Error: Rejected by reviewer: no", "paid 5"]

    def test_secrets_are_part_of_the_binding(self):
        used = []

        @tool(requires_approval=True)
        def log_in(password: Secret[str]) -> str:
            used.append(password.get_secret_value())
            return "in"

        agent = Agent(ScriptedModel([ToolCall("log_in", {"password": "one"}), "done"]), [log_in], review=PauseReview())
        first = agent.run_sync("go")
        changed = PausedRun.from_json(first.paused.to_json().replace('"one"', '"two"'))
        assert agent.run_sync(changed, decisions=decide(first, Continue())).stop_reason == "paused"
        assert agent.run_sync(store(first.paused), decisions=decide(first, Continue())).text == "done"
        assert used == ["one"]


class TestJson:
    def test_restores_the_run(self):
        result = make_agent([note("a"), [pay(5), note("b", "n2")]], instructions="Be brief.").run_sync("go")
        paused, read = result.paused, store(result.paused)
        assert read == paused
        assert read.messages[0].generated == "Be brief."
        json.loads(paused.to_json())
        assert paused.to_json().isascii()

    def test_reads_bytes(self):
        paused = make_agent([pay(5)]).run_sync("go").paused
        assert PausedRun.from_json(paused.to_json().encode()) == paused

    def test_keeps_what_a_model_wrote_that_is_not_json(self):
        call = ToolCall("note", {"text": float("nan")}, id="n1")
        result = make_agent([[call, pay(5)], "done"]).run_sync("go")
        assert store(result.paused).message.calls[0].json == call.json

    def test_objects_in_results_become_json_values(self):
        @dataclass
        class Order:
            number: int

        @tool
        def find() -> Order:
            return Order(7)

        agent = Agent(ScriptedModel([[ToolCall("find"), pay(5)]]), [find, Shop()], review=PauseReview())
        paused = store(agent.run_sync("go").paused)
        assert paused.done[0].reply.result.structured_output == {"number": 7}

    @pytest.mark.parametrize(
        ("change", "problem"),
        [
            (lambda values: values.clear(), "kind: expected one of paused_run, got None"),
            (lambda values: values.update(version=2), "version: expected 1, got 2"),
            (lambda values: values.pop("message"), "message: missing"),
            (lambda values: values.update(turns="many"), "turns: expected an int"),
            (lambda values: values.update(pending=[]), "pending: no call waits"),
            (lambda values: values.update(places=[]), "places: expected the index"),
            (lambda values: values.update(places=[7]), "places: expected the index"),
            (lambda values: values.update(places=[1]), "pending: expected the calls of the message that are not done"),
            (lambda values: values["pending"][0]["call"].update(id="x"), "pending: expected the calls of the message"),
            (
                lambda values: values["done"][0]["call"].update(id="x"),
                "done: expected the calls of the message at the places",
            ),
            (
                lambda values: values["done"][0]["reply"].update(arguments=[]),
                "the arguments of a reply must be an object",
            ),
            (
                lambda values: values["pending"][0]["request"].update(tool_name="note"),
                "is not about its call of 'pay'",
            ),
            (lambda values: values["pending"][0]["request"].update(run_id="other"), "is not about its call of 'pay'"),
            (
                lambda values: values["pending"][1]["request"].update(id=values["pending"][0]["request"]["id"]),
                "two requests have the same id",
            ),
            (lambda values: values.update(stop="never"), "stop: expected one of"),
            (lambda values: values["message"].pop("text"), "message: "),
        ],
    )
    def test_refuses_what_does_not_fit(self, change, problem):
        paused = make_agent([[note("a"), pay(5), pay(6, "c2")]]).run_sync("go").paused
        values = json.loads(paused.to_json())
        change(values)
        with pytest.raises(ValueError, match=f"^This is not a paused run: .*{problem}"):
            PausedRun.from_json(json.dumps(values))

    @pytest.mark.parametrize("text", ["", "{", "[]", "null", "[" * 100_000])
    def test_refuses_other_texts(self, text):
        with pytest.raises(ValueError, match="This is not a paused run: "):
            PausedRun.from_json(text)

    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("decision", "printed"),
        [
            ("continue", ["paid 7", "order 7 / paid 7"]),
            ("reject", ["order 7 / Error: Rejected by reviewer: no"]),
        ],
    )
    def test_resumes_in_another_process(self, tmp_path, decision, printed):
        path = tmp_path / "run.json"
        calls = [ToolCall("look_up", {"order": 7}, id="c1"), ToolCall("pay", {"order": 7}, id="c2")]
        result = build_agent(ScriptedModel([calls])).run_sync("Pay order 7.")
        path.write_text(result.paused.to_json())
        command = [sys.executable, str(HELPER), str(path), decision]
        made = subprocess.run(command, capture_output=True, text=True, check=True)
        assert made.stdout.splitlines() == printed

    @pytest.mark.slow
    def test_two_processes_that_resume_the_same_run_have_one_effect(self, tmp_path):
        path, ledger = tmp_path / "run.json", tmp_path / "effects.db"
        result = build_agent(ScriptedModel([ToolCall("pay", {"order": 7}, id="c1")]), ledger).run_sync("Pay.")
        path.write_text(result.paused.to_json())
        command = [sys.executable, str(HELPER), str(path), "continue", str(ledger)]
        made = [subprocess.run(command, capture_output=True, text=True, check=True).stdout for _ in range(2)]
        assert made == ["paid 7\npaid 7\n", "paid 7\n"]


def test_a_run_that_is_resumed_twice_has_one_effect_with_a_ledger():
    done = []

    @tool(requires_approval=True, idempotency=Idempotency(ledger=EffectLedger()))
    def send(amount: int) -> str:
        done.append(amount)
        return "sent"

    agent = Agent(ScriptedModel([ToolCall("send", {"amount": 5}), "one", "two"]), [send], review=PauseReview())
    first = agent.run_sync("go")
    results = [agent.run_sync(store(first.paused), decisions=decide(first, Continue())) for _ in range(2)]
    assert [each.text for each in results] == ["one", "two"]
    assert done == [5]
    assert results[1].tool_calls[0].reply.result.attributes["repeated"] is True


class TestBudgets:
    def test_usage_goes_on(self):
        usage = TokenUsage(100, 10)
        model = ScriptedModel([ChatReply("", (pay(5),), usage), ChatReply("done", (), usage)])
        agent = Agent(model, [Shop()], review=PauseReview(), prices=Prices(1, 1))
        first = agent.run_sync("go")
        final = agent.run_sync(store(first.paused), decisions=decide(first, Continue()))
        assert (first.usage.total_tokens, final.usage.total_tokens, final.usage.model_calls) == (110, 220, 2)
        assert final.usage.cost == pytest.approx(2 * first.usage.cost)

    def test_tokens_before_the_pause_count(self):
        usage, shop = TokenUsage(100, 10), Shop()
        model = ScriptedModel([ChatReply("", (pay(5),), usage), ChatReply("", (pay(6, "c2"),), usage), "done"])
        agent = Agent(model, [shop], review=PauseReview(), max_tokens=150)
        first = agent.run_sync("go")
        final = agent.run_sync(store(first.paused), decisions=decide(first, Continue()))
        assert (final.stop_reason, shop.done) == ("max_tokens", [("pay", 5)])

    def test_calls_before_the_pause_count(self):
        shop = Shop()
        agent = make_agent([[note("a"), pay(5)], pay(6, "c2"), "done"], shop, max_tool_calls=2)
        first = agent.run_sync("go")
        final = agent.run_sync(store(first.paused), decisions=decide(first, Continue()))
        assert (final.stop_reason, shop.done) == ("max_iterations", [("note", "a"), ("pay", 5)])

    def test_a_limit_of_calls_that_is_lower_than_before_holds(self):
        shop = Shop()
        agent = make_agent([[note("a"), pay(5)], "done"], shop)
        first = agent.run_sync("go")
        final = agent.run_sync(first.paused, decisions=decide(first, Continue()), max_tool_calls=1)
        assert (final.stop_reason, shop.done) == ("max_iterations", [("note", "a")])
        assert texts(final)[1].startswith("STOP: Maximum tool iterations (1)")

    def test_a_budget_that_was_used_up_in_the_turn_stays_used_up(self):
        shop = Shop()
        agent = make_agent([[pay(5), pay(6, "c2"), pay(7, "c3")], "done"], shop, max_tool_calls=2)
        first = agent.run_sync("go")
        assert [each.call.id for each in first.pending] == ["p1", "c2"]
        assert first.paused.stop == "max_iterations"
        final = agent.run_sync(store(first.paused), decisions=decide(first, Continue(), Continue()))
        assert (final.stop_reason, sorted(shop.done)) == ("max_iterations", [("pay", 5), ("pay", 6)])
        assert texts(final)[2].startswith("STOP")

    def test_the_time_before_the_pause_counts_and_the_pause_does_not(self):
        agent = make_agent([pay(5), "done"], max_seconds=600)
        first = agent.run_sync("go")
        values = json.loads(first.paused.to_json())
        assert values["seconds"] < 300
        spent = PausedRun.from_json(json.dumps({**values, "seconds": 601.0}))
        late = agent.run_sync(spent, decisions=decide(first, Continue()))
        assert (late.stop_reason, texts(late)[0][:5]) == ("max_seconds", "STOP:")

    def test_a_run_that_is_resumed_inside_another_has_its_deadline(self):
        inner = make_agent([pay(5), "done"], max_seconds=600)
        first = inner.run_sync("go")
        deadlines = []

        @tool
        async def resume(context: ToolContext) -> str:
            @tool(name="pay")
            def look(amount: int, context: ToolContext) -> str:
                """Pay an amount."""
                deadlines.append(context.deadline)
                return "paid"

            deadlines.append(context.deadline)
            result = await inner.run(first.paused, decisions=decide(first, Continue()), tools=[look])
            return result.text

        outer = Agent(ScriptedModel([ToolCall("resume"), "over"]), [resume], max_seconds=300)
        assert texts(outer.run_sync("go")) == ["done"]
        assert 0 <= deadlines[1] - deadlines[0] < 100  # the question about the call took no time of the run

    def test_invalid_answers_before_the_pause_count(self):
        replies = [ToolCall("final_answer", {"answer": "x"}), pay(5), ToolCall("final_answer", {})]
        agent = make_agent(replies, output_type=int, output_retries=1)
        first = agent.run_sync("go")
        assert first.paused.invalid_answers == 1
        with pytest.raises(AgentExecutionError, match="did not fit 2 times"):
            agent.run_sync(store(first.paused), decisions=decide(first, Continue()))

    def test_repetition_is_not_counted_without_a_guard(self):
        agent = make_agent([pay(5, "c1"), pay(5, "c2"), pay(5, "c3"), "done"], loop_guard=None)
        result = agent.run_sync("go")
        while result.pending:
            result = agent.run_sync(store(result.paused), decisions=decide(result, Continue()))
        assert texts(result) == ["paid 5"] * 3

    def test_repetition_before_the_pause_counts(self):
        replies = ["no number", note("a"), pay(5, "c1"), pay(5, "c2"), "7"]
        agent = make_agent(replies, loop_guard=LoopGuard(repeats=2))
        agent.run_sync("hi")
        result = agent.run_sync("go", history=[*make_agent([note("a"), "hello"]).run_sync("hi").messages])
        while result.pending:
            result = agent.run_sync(store(result.paused), decisions=decide(result, Continue()))
        assert texts(result)[:2] == ["noted a", "paid 5"]
        assert "the same result 2 turns in a row" in texts(result)[2]


class TestMemory:
    @pytest.mark.parametrize("kind", ["memory", "file"])
    def test_stores_the_conversation_once(self, tmp_path, kind):
        def build(name, review):
            memory = ConversationMemory(None if kind == "memory" else tmp_path / f"{name}.db")
            replies = ["hello", note("a"), [note("b", "n2"), pay(5)], pay(6, "c2"), "done"]
            return make_agent(replies, memory=memory, review=review, instructions="Be brief."), memory

        agent, whole = build("whole", AutoApprove())
        for prompt in ("hi", "go"):
            agent.run_sync(prompt, memory_id="ada")
        agent, memory = build("parts", PauseReview())
        agent.run_sync("hi", memory_id="ada")
        result = agent.run_sync("go", memory_id="ada")
        while result.pending:
            assert result.paused.memory_id == "ada"
            result = agent.run_sync(store(result.paused), decisions=decide(result, Continue()))
        assert memory.load("ada") == whole.load("ada")
        assert memory.ids() == ["ada"]
        memory.close()
        whole.close()

    def test_has_nothing_of_the_half_done_turn(self):
        memory = ConversationMemory()
        make_agent([[note("a"), pay(5)]], memory=memory).run_sync("go", memory_id="ada")
        assert len(memory.load("ada")) == 0

    def test_adds_to_a_conversation_that_went_on_meanwhile(self):
        memory = ConversationMemory()
        agent = make_agent([pay(5), "hello", "done"], memory=memory)
        first = agent.run_sync("go", memory_id="ada")
        agent.run_sync("hi", memory_id="ada")
        agent.run_sync(first.paused, decisions=decide(first, Continue()))
        assert [message.text for message in memory.load("ada")] == ["hi", "hello", "go", "", "paid 5", "done"]

    def test_keeps_the_id_of_the_agent(self):
        memory = ConversationMemory()
        agent = make_agent([pay(5), "done"], memory=memory, memory_id="ada")
        first = agent.run_sync("go")
        agent.run_sync(store(first.paused), decisions=decide(first, Continue()))
        assert memory.ids() == ["ada"]


class TestOutputType:
    def test_the_answer_has_its_type(self):
        agent = make_agent([pay(5), ToolCall("final_answer", {"answer": 7})], output_type=int)
        first = agent.run_sync("go")
        final = agent.run_sync(store(first.paused), decisions=decide(first, Continue()))
        assert (first.output, final.output) == (None, 7)

    def test_an_answer_beside_an_open_call_waits_for_it(self):
        shop = Shop()
        agent = make_agent([[pay(5), ToolCall("final_answer", {"answer": 7}, id="f1")]], shop, output_type=int)
        first = agent.run_sync("go")
        assert (first.stop_reason, texts(first)) == ("paused", [])
        final = agent.run_sync(store(first.paused), decisions=decide(first, Continue()))
        assert (final.output, final.stop_reason, texts(final)) == (7, "answer", ["paid 5"])


class TestWhereItCannotPause:
    def test_a_toolbox_raises_a_clear_error(self):
        shop = Shop()
        box = Toolbox([shop], review=PauseReview())
        problem = "Tool 'pay' waits for approval, and PauseReview can leave only the calls of an Agent open"
        with pytest.raises(ToolConfigurationError, match=problem):
            box.execute(pay(5))
        with pytest.raises(ToolConfigurationError, match=problem) as raised:
            box.execute_all([note("a"), pay(5), pay(6)])
        assert [reply.text for reply in raised.value.replies] == ["noted a"]
        with pytest.raises(ToolConfigurationError, match=problem):
            asyncio.run(box.aexecute_all([pay(5), pay(6)]))
        assert shop.done == [("note", "a")]

    @pytest.mark.parametrize("approval", [True, lambda arguments, _: True])
    @pytest.mark.parametrize("review", [PauseReview(), RememberReview(PauseReview()), RulesReview([], PauseReview())])
    def test_a_step_of_a_pipeline_is_refused_before_the_model_is_asked(self, approval, review):
        @tool(requires_approval=approval)
        def send(text: str) -> str:
            return "sent"

        inner = ToolPipeline("inner", "", [Shop().note, send])
        pipeline = ToolPipeline("order", "", [Shop().note, inner])
        model = ScriptedModel([])
        with pytest.raises(
            ToolConfigurationError,
            match=r"'send' requires approval inside 'order', which cannot .* set requires_approval on 'order' ",
        ):
            Agent(model, [pipeline], review=review).run_sync("go")
        assert model.requests == []

    def test_a_pipeline_as_a_whole_can_wait(self):
        shop = Shop()
        pipeline = ToolPipeline("order", "", [shop.note])
        agent = Agent(
            ScriptedModel([ToolCall("order", {"text": "a"}), "done"]),
            Toolbox([pipeline], approve=["order"]),
            review=PauseReview(),
        )
        first = agent.run_sync("go")
        assert (first.pending[0].request.arguments, shop.done) == ({"text": "a"}, [])
        agent.run_sync(store(first.paused), decisions=decide(first, Continue()))
        assert shop.done == [("note", "a")]

    def test_an_agent_inside_a_call_can_have_another_reviewer(self):
        inner = Agent(ScriptedModel([pay(5), "paid"]), [Shop()], review=AutoApprove()).as_tool("clerk", "Pays")
        agent = Agent(ScriptedModel([ToolCall("clerk", {"input": "go"}), "done"]), [inner], review=PauseReview())
        assert agent.run_sync("go").text == "done"

    def test_an_agent_as_a_tool_can_wait_as_a_whole(self):
        inner = Agent(ScriptedModel(["paid"])).as_tool("clerk", "Pays", requires_approval=True)
        agent = Agent(ScriptedModel([ToolCall("clerk", {"input": "go"}), "done"]), [inner], review=PauseReview())
        first = agent.run_sync("go")
        assert agent.run_sync(store(first.paused), decisions=decide(first, Continue())).text == "done"

    def test_a_reviewer_that_hides_it_raises_inside_calls(self):
        class Hidden:
            async def review(self, request):
                return await PauseReview().review(request)

        @tool
        async def delegate() -> str:
            return (await Agent(ScriptedModel([[pay(5), note("a")]]), [Shop()]).run("go")).text

        agent = Agent(ScriptedModel([ToolCall("delegate")]), [delegate], review=Hidden())
        with pytest.raises(CallPausedError, match="only the calls of an Agent open") as raised:
            agent.run_sync("go")
        assert raised.value.partial.stop_reason == "configuration_error"
        pipeline = ToolPipeline("order", "", [Shop().pay])
        agent = Agent(ScriptedModel([ToolCall("order", {"amount": 5})]), [pipeline], review=Hidden())
        with pytest.raises(CallPausedError, match="only the calls of an Agent open"):
            agent.run_sync("go")

    def test_a_toolbox_in_a_thread_of_a_tool_raises(self):
        box = Toolbox([Shop()], review=PauseReview())

        @tool
        def pay_elsewhere() -> str:
            with ThreadPoolExecutor() as threads:
                return threads.submit(box.execute, pay(5)).result().text

        agent = Agent(ScriptedModel([ToolCall("pay_elsewhere")]), [pay_elsewhere], review=PauseReview())
        with pytest.raises(CallPausedError, match="only the calls of an Agent open"):
            agent.run_sync("go")

    def test_a_question_during_a_call_raises(self):
        @tool
        async def ask(context: ToolContext) -> str:
            return str(await context.arequest_approval("Really?"))

        agent = Agent(ScriptedModel([ToolCall("ask")]), [ask], review=PauseReview())
        with pytest.raises(ToolConfigurationError, match="Tool 'ask' asks for approval while it runs"):
            agent.run_sync("go")


class TestObservers:
    def test_an_open_call_is_not_reported_as_finished(self):
        events = []
        agent = make_agent([[note("a"), pay(5)], "done"], sinks=[events.append])
        first = agent.run_sync("go")
        kinds = [(event.kind, event.tool_name) for event in events]
        assert ("call_started", "pay") in kinds
        assert ("review_requested", "pay") in kinds
        assert not {("call_finished", "pay"), ("review_decided", "pay")} & set(kinds)
        assert (events[-1].kind, events[-1].stop_reason, events[-1].error) == ("run_finished", "paused", "")
        events.clear()
        agent.run_sync(store(first.paused), decisions=decide(first, Continue()))
        by_kind = {event.kind: event for event in events}
        assert by_kind["review_decided"].request == first.pending[0].request
        assert by_kind["call_finished"].call_id == "p1"
        assert by_kind["run_finished"].run_id == first.run_id
        assert "review_requested" not in by_kind

    def test_a_call_that_waits_again_asks_again(self):
        events = []
        agent = make_agent([pay(5)], sinks=[events.append])
        first = agent.run_sync("go")
        events.clear()
        second = agent.run_sync(first.paused, decisions=decide(first, Edit("{}")))
        asked = [event.request for event in events if event.kind == "review_requested"]
        assert [request.id for request in asked] == [second.pending[0].id]

    def test_metrics_count_the_call_once(self):
        metrics = InMemoryMetrics()
        agent = Agent(ScriptedModel([pay(5), "done"]), Toolbox([Shop()], metrics=metrics), review=PauseReview())
        first = agent.run_sync("go")
        assert metrics.durations("pay") == []
        agent.run_sync(first.paused, decisions=decide(first, Continue()))
        assert (metrics.count("pay", "success"), metrics.count("pay", "error")) == (1, 0)

    def test_the_log_has_the_question_and_no_failure(self, caplog):
        caplog.set_level("INFO", "toolsemble")
        make_agent([pay(5)]).run_sync("go")
        assert [record.levelname for record in caplog.records] == ["INFO"]
        assert caplog.messages[0].startswith("asked: pay(")

    def test_hooks_see_the_result_once(self):
        seen = []
        box = Toolbox(
            [Shop()],
            before_call=lambda call, _: seen.append(f"before {call.name}"),
            after_call=lambda call, result, _: seen.append(result.text),
        )
        agent = Agent(ScriptedModel([pay(5), "done"]), box, review=PauseReview())
        first = agent.run_sync("go")
        agent.run_sync(first.paused, decisions=decide(first, Continue()))
        assert seen == ["before pay", "before pay", "paid 5"]


def test_a_resumed_run_that_fails_has_the_work_so_far():
    agent = make_agent([[pay(5), pay(6, "c2")], "done"])
    first = agent.run_sync("go")

    @tool(name="pay", requires_approval=True)
    def leave(amount: int) -> str:
        """Pay an amount."""
        raise ExitEarlyError("enough")

    with pytest.raises(ExitEarlyError) as raised:
        agent.run_sync(first.paused, decisions=decide(first, Continue()), tools=[leave])
    partial = raised.value.partial
    assert texts(partial) == ["Error: The run ended before this call did: enough"] * 2
    assert partial.pending == ()


def test_a_run_without_an_answer_has_no_open_calls():
    agent = make_agent([pay(5), note("a"), note("b")], max_tool_calls=1)
    first = agent.run_sync("go")
    with pytest.raises(BudgetExceededError) as raised:
        agent.run_sync(first.paused, decisions=decide(first, Continue()))
    assert raised.value.partial.pending == ()


class TestStreams:
    def test_the_last_event_has_the_paused_run(self):
        agent = make_agent([ChatReply("Let me see.", (note("a"), pay(5)))])
        events = asyncio.run(collect(agent.stream("go")))
        kinds = [event.kind for event in events]
        assert kinds[-1] == "final"
        assert "turn_ended" not in kinds
        assert [event.record.call for event in events if event.kind == "call_replied"] == [note("a")]
        assert [event.request for event in events if event.kind == "review_requested"] == [
            events[-1].result.pending[0].request
        ]
        read = event_from_json(event_to_json(events[-1]))
        assert read.result.paused == events[-1].result.paused

    def test_a_resumed_run_sends_the_rest(self):
        agent = make_agent([[note("a"), pay(5)], "done"])
        first = agent.run_sync("go")
        events = asyncio.run(collect(agent.stream(first.paused, decisions=decide(first, Continue()))))
        kinds = [event.kind for event in events if event.kind != "text_delta"]
        assert kinds == ["call_requested", "review_decided", "call_replied", "turn_ended", "turn_ended", "final"]
        (turn, _) = [event for event in events if event.kind == "turn_ended"]
        assert [record.call for record in turn.tool_calls] == [note("a"), pay(5)]

    def test_browsers_see_what_waits(self):
        request = read_ag_ui({"threadId": "t", "runId": "r", "messages": [{"id": "m", "role": "user", "content": "?"}]})
        for write in (sse, to_vercel, lambda events: to_ag_ui(events, request)):
            agent = make_agent([ChatReply("Let me see.", (pay(5),))])
            chunks = asyncio.run(collect(write(agent.stream("go"))))
            payloads = [json.loads(chunk[6:]) for chunk in chunks if chunk.startswith("data: {")]
            shown = find_result(payloads)
            assert shown["stop_reason"] == "paused"
            (waiting,) = shown["pending"]
            assert (waiting["tool_name"], waiting["call_id"], waiting["arguments"]) == ("pay", "p1", {"amount": 5})
            assert (waiting["deadline"], waiting["description"]) == (None, "Pay an amount.")
            assert not any("OUTPUT" in str(payload.get("type")).upper() for payload in payloads)


def find_result(payloads):
    """Return what a stream says about the end of the run."""
    for payload in payloads:
        if payload.get("kind") == "final":
            return payload
        if payload.get("type") == "RUN_FINISHED":
            return payload["result"]
        if payload.get("type") == "data-result":
            return payload["data"]
    raise AssertionError(payloads)


def test_a_span_of_an_open_call_is_not_an_error():
    spans = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    make_agent([pay(5)], sinks=[OpenTelemetry(provider)]).run_sync("go")
    (span,) = [each for each in spans.get_finished_spans() if each.name == "execute_tool pay"]
    assert span.status.is_unset
    assert span.attributes["toolsemble.paused"] is True
