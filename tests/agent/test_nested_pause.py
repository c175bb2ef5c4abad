"""A run that is paused by a call of an agent that is one of its tools."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest

from helpers.pause_process import build_clerk
from helpers.pause_shop import Shop, note, pay
from toolsemble import (
    Agent,
    AgentExecutionError,
    Continue,
    ConversationMemory,
    Edit,
    ExitEarly,
    Prices,
    Retries,
    Retry,
    Toolbox,
    ToolCall,
    ToolConfigurationError,
    ToolPipeline,
    tool,
)
from toolsemble._vocabulary.errors import ModelError
from toolsemble.agent import PausedRun, event_from_json, event_to_json
from toolsemble.models import ChatReply, TokenUsage
from toolsemble.review import AutoApprove, PauseReview
from toolsemble.testing import ScriptedModel

HELPER = Path(__file__).parents[1] / "helpers" / "pause_process.py"


def ask(name="clerk", id="c1"):
    return ToolCall(name, {"input": "Pay the bill."}, id=id)


def make_clerk(replies, shop, name="clerk", **settings):
    return Agent(ScriptedModel(replies), [shop]).as_tool(name, "Pays", **settings)


def make_agent(replies, *tools, **settings):
    return Agent(ScriptedModel(replies), [*tools], **{"review": PauseReview(), **settings})


def decide(result, *decisions):
    return {each.id: decision for each, decision in zip(result.pending, decisions, strict=False)}


def store(paused):
    """Return a paused run as another process would read it."""
    return PausedRun.from_json(paused.to_json())


def resume(agent, result, *decisions):
    return agent.run_sync(store(result.paused), decisions=decide(result, *decisions))


def texts(result):
    return [record.reply.text for record in result.tool_calls]


class TestPause:
    def test_the_outer_run_ends_and_names_the_call_inside(self):
        shop = Shop()
        agent = make_agent([ask()], make_clerk([pay(5)], shop))
        result = agent.run_sync("go", run_id="r1")
        assert (result.stop_reason, shop.done) == ("paused", [])
        (pending,) = result.pending
        assert (pending.path, pending.call, pending.request.arguments) == (("clerk",), pay(5), {"amount": 5})
        assert (pending.request.run_id, pending.request.call_id) == ("r1", "p1")
        assert str(result).splitlines()[0] == f"clerk/pay(amount=5) waits for approval, request {pending.id}"

    def test_the_calls_beside_it_run_at_both_levels(self):
        shop, outer = Shop(), Shop()
        agent = make_agent([[note("outside", "n2"), ask()]], outer, make_clerk([[note("inside"), pay(5)]], shop))
        result = agent.run_sync("go")
        assert (outer.done, shop.done, texts(result)) == (
            [("note", "outside")],
            [("note", "inside")],
            ["noted outside"],
        )

    def test_calls_at_both_levels_are_listed_in_request_order(self):
        shop = Shop()
        clerk = make_clerk([[pay(2, "same"), pay(3, "same")]], shop)
        result = make_agent([[pay(1, "a"), ask(id="b"), pay(4, "c")]], shop, clerk).run_sync("go")
        assert [(each.path, each.call.arguments["amount"]) for each in result.pending] == [
            ((), 1), (("clerk",), 2), (("clerk",), 3), ((), 4)
        ]  # fmt: skip
        assert len({each.id for each in result.pending}) == 4

    def test_the_json_restores_the_run_inside(self):
        clerk = make_clerk([note("a"), pay(5)], Shop())
        paused = make_agent([ask()], clerk).run_sync("go").paused
        assert store(paused) == paused
        assert [message.role for message in paused.inner[0].run.messages] == ["user", "assistant", "tool"]

    def test_the_last_event_of_a_stream_has_it(self):
        async def collect():
            return [event async for event in make_agent([ask()], make_clerk([pay(5)], Shop())).stream("go")]

        events = asyncio.run(collect())
        final = event_from_json(event_to_json(events[-1]))
        assert final.result.paused == events[-1].result.paused
        assert [event.request for event in events if event.kind == "review_requested"] == [
            final.result.pending[0].request
        ]

    def test_a_reviewer_of_the_agent_inside_is_enough(self):
        clerk = Agent(ScriptedModel([pay(5), "paid"]), [Shop()], review=PauseReview()).as_tool("clerk", "Pays")
        agent = make_agent([ask(), "done"], clerk, review=AutoApprove())
        first = agent.run_sync("go")
        assert resume(agent, first, Continue()).text == "done"


class TestResume:
    def test_nothing_happens_twice(self):
        shop, outer = Shop(), Shop()
        inner = ScriptedModel([note("a"), [note("b", "n2"), pay(5)], "all paid"])
        clerk = Agent(inner, [shop]).as_tool("clerk", "Pays")
        agent = make_agent([[note("c", "n3"), ask()], "done"], outer, clerk)
        first = agent.run_sync("go")
        before = [*shop.done]
        final = resume(agent, first, Continue())
        assert (before, shop.done[2:]) == ([("note", "a"), ("note", "b")], [("pay", 5)])
        assert (outer.done, len(inner.requests)) == ([("note", "c")], 3)
        assert (final.text, texts(final)) == ("done", ["noted c", "all paid"])

    def test_equals_an_uninterrupted_run(self):
        def make(review):
            usage = TokenUsage(10, 1)
            model = ScriptedModel([ChatReply("", (note("b", "n2"), pay(5)), usage), ChatReply("all paid", (), usage)])
            clerk = Agent(model, [Shop()]).as_tool("clerk", "Pays")
            return make_agent([[ask(), note("c", "n3")], "done"], Shop(), clerk, review=review, prices=Prices(1, 1))

        whole = make(AutoApprove()).run_sync("go")
        agent = make(PauseReview())
        final = resume(agent, agent.run_sync("go"), Continue())
        assert [message.text for message in final.messages] == [message.text for message in whole.messages]
        assert [record.arguments for record in final.tool_calls] == [record.arguments for record in whole.tool_calls]
        names = ("total_tokens", "model_calls", "tool_calls", "cost")
        assert [getattr(final.usage, name) for name in names] == [getattr(whole.usage, name) for name in names]

    @pytest.mark.parametrize(
        ("decision", "seen", "done"),
        [
            (ExitEarly("too much"), "Error: Rejected by reviewer: too much", []),
            (Edit('{"amount": 3}'), "paid 3\n\nNote: a reviewer changed", [("pay", 3)]),
        ],
    )
    def test_a_decision_is_for_the_agent_inside(self, decision, seen, done):
        shop, inner = Shop(), ScriptedModel([pay(5), "I see"])
        agent = make_agent([ask(), "done"], Agent(inner, [shop]).as_tool("clerk", "Pays"))
        final = resume(agent, agent.run_sync("go"), decision)
        assert inner.requests[-1][-1].text.startswith(seen)
        assert (texts(final), shop.done) == (["I see"], done)

    def test_calls_without_a_decision_go_on_waiting(self):
        shop = Shop()
        clerk = make_clerk([[pay(2, "x"), pay(3, "y")], "inside done"], shop)
        other = make_clerk([pay(4), "other done"], shop, "other")
        agent = make_agent([[pay(1, "a"), ask(id="b"), ask("other", "d")], "done"], shop, clerk, other)
        first = agent.run_sync("go")
        amounts = {each.id: each.call.arguments["amount"] for each in first.pending}
        ids = {amount: key for key, amount in amounts.items()}
        second = agent.run_sync(store(first.paused), decisions={ids[3]: Continue()})
        assert (shop.done, [amounts[each.id] for each in second.pending]) == ([("pay", 3)], [1, 2, 4])
        third = agent.run_sync(store(second.paused), decisions={ids[2]: Continue(), ids[1]: Continue()})
        assert (texts(third), [amounts[each.id] for each in third.pending]) == (["paid 1", "inside done"], [4])
        final = agent.run_sync(store(third.paused), decisions={ids[4]: Continue()})
        assert (final.text, texts(final)) == ("done", ["paid 1", "inside done", "other done"])
        assert sorted(shop.done) == [("pay", 1), ("pay", 2), ("pay", 3), ("pay", 4)]

    def test_two_calls_of_the_same_agent_are_resumed_each_with_its_own_run(self):
        shop = Shop()

        def reply(messages):
            number = int(messages[0].text)
            return pay(number, "same") if len(messages) == 1 else f"{number} is paid"

        clerk = Agent(ScriptedModel([reply] * 4), [shop]).as_tool("clerk", "Pays")
        calls = [ToolCall("clerk", {"input": "7"}), ToolCall("clerk", {"input": "8"})]
        agent = make_agent([calls, "done"], clerk)
        first = agent.run_sync("go")
        second = agent.run_sync(store(first.paused), decisions={first.pending[1].id: Continue()})
        assert [each.id for each in second.pending] == [first.pending[0].id]
        final = resume(agent, second, Continue())
        assert (texts(final), shop.done) == (["7 is paid", "8 is paid"], [("pay", 8), ("pay", 7)])
        assert [record.call.id for record in final.tool_calls] == [None, None]

    def test_works_at_every_depth(self):
        shop = Shop()
        teller = make_clerk([pay(5), pay(6, "p2"), "teller done"], shop, "teller")
        clerk = Agent(ScriptedModel([ask("teller", "t1"), "clerk done"]), [teller]).as_tool("clerk", "Pays")
        agent = make_agent([ask(), "done"], clerk)
        result = agent.run_sync("go")
        for amount in (5, 6):
            assert [(each.path, each.call.arguments) for each in result.pending] == [
                (("clerk", "teller"), {"amount": amount})
            ]
            result = resume(agent, result, Continue())
        assert (result.text, texts(result), shop.done) == ("done", ["clerk done"], [("pay", 5), ("pay", 6)])

    def test_a_call_of_an_agent_that_was_approved_is_not_asked_about_again(self):
        shop, events = Shop(), []
        clerk = make_clerk([pay(5), pay(6, "p2"), "all paid"], shop, requires_approval=True)
        agent = make_agent([[ask(), ask(id="c2")], "done"], clerk, sinks=[events.append])
        first = agent.run_sync("go")
        assert [(each.path, each.call.name) for each in first.pending] == [((), "clerk")] * 2
        second = agent.run_sync(
            store(first.paused), decisions=decide(first, Edit("Pay half."), ExitEarly("once is enough"))
        )
        assert [(each.path, each.call.name) for each in second.pending] == [(("clerk",), "pay")]
        final = resume(agent, resume(agent, second, Continue()), Continue())
        assert texts(final)[0].startswith("all paid\n\nNote: a reviewer changed the arguments of 'clerk'")
        assert '{"input":"Pay half."}' in texts(final)[0]
        assert texts(final)[1] == "Error: Rejected by reviewer: once is enough"
        asked = [event.request.tool_name for event in events if event.kind == "review_requested"]
        assert sorted(asked) == ["clerk", "clerk", "pay", "pay"]
        assert [event.tool_name for event in events if event.kind == "call_finished"].count("clerk") == 2

    def test_the_gate_of_the_toolbox_around_the_agent_asks_once(self):
        shop = Shop()
        clerk = Agent(ScriptedModel([note("a"), "noted"]), [shop]).as_tool("clerk", "Notes")
        agent = Agent(ScriptedModel([ask(), "done"]), Toolbox([clerk], approve=["note*"]), review=PauseReview())
        first = agent.run_sync("go")
        assert [each.call.name for each in first.pending] == ["note"]
        assert (resume(agent, first, Continue()).text, shop.done) == ("done", [("note", "a")])

    def test_the_conversation_inside_is_stored_once(self):
        memory = ConversationMemory()
        clerk = Agent(ScriptedModel([note("a"), pay(5), "all paid"]), [Shop()], memory=memory).as_tool("clerk", "Pays")
        agent = make_agent([ask(), "done"], clerk)
        first = agent.run_sync("go", memory_id="ada")
        resume(agent, first, Continue())
        stored = [message.text for message in memory.load("ada/clerk")]
        assert stored == ["Pay the bill.", "", "noted a", "", "paid 5", "all paid"]
        assert list(memory.load("ada")) == []

    def test_a_failure_after_the_pause_is_the_result_of_the_call(self):
        shop = Shop()
        clerk = Agent(ScriptedModel([pay(5), ModelError("down")]), [shop], retry=Retry(attempts=1))
        agent = make_agent([ask(), "done"], clerk.as_tool("clerk", "Pays"))
        final = resume(agent, agent.run_sync("go"), Continue())
        assert (texts(final), shop.done) == (["Error: down"], [("pay", 5)])

    def test_a_retry_of_the_call_begins_anew(self):
        shop = Shop()
        model = ScriptedModel([pay(5), ModelError("down"), "nothing to pay"])
        clerk = Agent(model, [shop], retry=Retry(attempts=1)).as_tool(
            "clerk", "Pays", effects="read", retries=Retries(2, on=(AgentExecutionError,), wait=0, jitter=0)
        )
        agent = make_agent([ask(), "done"], clerk)
        final = resume(agent, agent.run_sync("go"), Continue())
        assert (texts(final), shop.done) == (["nothing to pay"], [("pay", 5)])

    @pytest.mark.slow
    def test_resumes_in_another_process(self, tmp_path):
        path = tmp_path / "run.json"
        calls = [ToolCall("look_up", {"order": 7}, id="c1"), ToolCall("pay", {"order": 7}, id="c2")]
        agent = build_clerk(ScriptedModel([ask()]), ScriptedModel([calls]))
        path.write_text(agent.run_sync("Pay order 7.").paused.to_json())
        command = [sys.executable, str(HELPER), str(path), "continue", "--nested"]
        made = subprocess.run(command, capture_output=True, text=True, check=True)
        assert made.stdout.splitlines() == ["paid 7", "clerk: order 7 / paid 7"]


class TestWhereItCannotPause:
    @pytest.mark.parametrize("settings", [{"cache": True, "effects": "read"}, {"idempotency": True}])
    def test_an_agent_whose_outcomes_are_kept_is_refused_before_its_model_is_asked(self, settings):
        model = ScriptedModel([])
        clerk = Agent(model, [Shop()]).as_tool("clerk", "Pays", **settings)
        with pytest.raises(ToolConfigurationError, match="Tool 'pay' requires approval inside another call"):
            make_agent([ask()], clerk).run_sync("go")
        assert model.requests == []

    def test_an_agent_that_is_a_step_of_a_pipeline_is_refused_before_its_model_is_asked(self):
        model = ScriptedModel([])
        pipeline = ToolPipeline("order", "Orders", [Agent(model, [Shop()]).as_tool("clerk", "Pays")])
        with pytest.raises(ToolConfigurationError, match="Tool 'pay' requires approval inside another call"):
            make_agent([ToolCall("order", {"input": "go"})], pipeline).run_sync("go")
        assert model.requests == []

    def test_an_agent_that_a_function_runs_is_refused_before_its_model_is_asked(self):
        model = ScriptedModel([])

        @tool
        async def delegate(input: str) -> str:
            return (await Agent(model, [Shop()]).run(input)).text

        with pytest.raises(ToolConfigurationError, match="Tool 'pay' requires approval inside another call"):
            make_agent([ToolCall("delegate", {"input": "go"})], delegate).run_sync("go")
        assert model.requests == []

    def test_an_agent_that_a_function_runs_inside_an_agent_is_refused(self):
        @tool
        async def delegate(input: str) -> str:
            clerk = Agent(ScriptedModel([pay(5)]), [Shop()]).as_tool("teller", "Pays")
            return (await Agent(ScriptedModel([ask("teller")]), [clerk]).run(input)).text

        clerk = Agent(ScriptedModel([ToolCall("delegate", {"input": "go"})]), [delegate]).as_tool("clerk", "Pays")
        with pytest.raises(ToolConfigurationError, match="Tool 'pay' requires approval inside another call"):
            make_agent([ask()], clerk).run_sync("go")

    def test_an_agent_called_by_hand_is_refused(self):
        clerk = Agent(ScriptedModel([]), [Shop()], review=PauseReview()).as_tool("clerk", "Pays")
        with pytest.raises(ToolConfigurationError, match="Tool 'pay' requires approval inside another call"):
            clerk.execute("go")

    def test_a_tool_that_is_not_the_agent_any_more_is_refused(self):
        done = []

        @tool(name="clerk", requires_approval=True)
        def clerk(input: str) -> str:
            done.append(input)
            return "done"

        first = make_agent([ask()], make_clerk([pay(5)], Shop())).run_sync("go")
        for tools in ([clerk], []):
            agent = make_agent(["done"], *tools)
            with pytest.raises(
                ToolConfigurationError, match="waits inside 'clerk', which is no longer a tool of an agent"
            ):
                resume(agent, first, Continue())
        assert done == []

    @pytest.mark.parametrize(
        ("change", "problem"),
        [
            (lambda values: values["inner"][0].update(index=0), "expected the calls of the message that are not done"),
            (lambda values: values["inner"][0].update(name="x"), "expected the calls of the message that are not done"),
            (lambda values: values["inner"][0].update(call_id="x"), "expected the calls of the message"),
            (lambda values: values["inner"].append(values["inner"][0]), "inner: expected the indexes of calls"),
            (lambda values: values.update(inner=[]), "pending: expected the calls of the message that are not done"),
            (lambda values: values["pending"][0].update(path=["other"]), "pending: expected the calls of the message"),
            (lambda values: values["inner"][0]["run"].update(run_id="other"), "inner: expected the run_id of the run"),
            (lambda values: values["inner"][0]["run"].update(places=[0], done=[]), "places: expected the index"),
            (lambda values: values["inner"][0].pop("run"), r"inner\[0\].run: missing"),
        ],
    )
    def test_a_json_that_does_not_fit_is_refused(self, change, problem):
        agent = make_agent([[note("a"), ask()]], Shop(), make_clerk([pay(5)], Shop()))
        values = json.loads(agent.run_sync("go").paused.to_json())
        change(values)
        with pytest.raises(ValueError, match=f"^This is not a paused run: .*{problem}"):
            PausedRun.from_json(json.dumps(values))
