"""A run with a journal continues where it was: models are not asked twice, and finished calls are not repeated."""

import asyncio
import threading
from dataclasses import dataclass

import pytest

from helpers.journal_runs import LOOK, REFUND, Killed, Shop, clerk, kill, script
from toolsemble import (
    Agent,
    BudgetExceededError,
    ConversationMemory,
    ExitEarlyError,
    ReturnBehavior,
    RunCancelledError,
    RunJournal,
    Toolbox,
    ToolCall,
    ToolConfigurationError,
    ToolContext,
    ToolDefinitionError,
    ToolPipeline,
    ToolResult,
    fan_out,
    tool,
)
from toolsemble._tools.pipeline.step import Step
from toolsemble.agent import TurnEnded
from toolsemble.models import AssistantMessage, FunctionModel, ScriptedModel, messages_to_json
from toolsemble.testing import RecordingSink

pytestmark = pytest.mark.slow


def test_a_finished_run_is_returned_without_asking_the_model(runs):
    shop, asked = Shop(), []
    agent = clerk(runs, [shop], LOOK, "Done.", asked=asked)
    first = agent.run_sync("Refund order 7", run_id="r1")
    again = agent.run_sync("Refund order 7", run_id="r1")
    assert asked == [0, 1]
    assert shop.done == ["look 7"]
    assert (again.text, again.output, again.usage, again.stop_reason) == ("Done.", "Done.", first.usage, "answer")
    assert messages_to_json(again.messages) == messages_to_json(first.messages)
    assert [record.arguments for record in again.tool_calls] == [{"order": 7}]
    assert runs.find("r1").state == "done"
    assert runs.find("r1").text == "Done."


def test_a_run_that_is_killed_between_turns_continues_there(runs):
    shop, asked = Shop(), []
    kill(clerk(runs, [shop], LOOK, Killed, asked=asked))
    result = clerk(runs, [shop], LOOK, REFUND, "Done.", asked=asked).run_sync("Refund order 7", run_id="r1")
    assert asked == [0, 1, 1, 2]
    assert shop.done == ["look 7", "refund 7"]
    assert [record.reply.text for record in result.tool_calls] == ['{"order":7,"price":5}', "refunded 7"]


def test_a_killed_run_has_the_result_of_an_uninterrupted_run(runs, tmp_path):
    replies = [LOOK, [REFUND, ToolCall("look", {"order": 8})], "Done."]
    for turn in range(3):
        stopped = [Killed if index == turn else reply for index, reply in enumerate(replies)]
        kill(clerk(runs, [Shop()], *stopped), run_id=f"r{turn}")
        result = clerk(runs, [Shop()], *replies).run_sync("Refund order 7", run_id=f"r{turn}")
        with RunJournal(tmp_path / f"{turn}.db") as other:
            expected = clerk(other, [Shop()], *replies).run_sync("Refund order 7", run_id="r1")
        assert result.messages == expected.messages
        assert result.usage.total_tokens == expected.usage.total_tokens
        assert result.usage.tool_calls == expected.usage.tool_calls
        assert [step.kind for step in result.trace] == [step.kind for step in expected.trace]


def test_a_read_in_flight_is_repeated_with_the_same_key(runs):
    shop = Shop(kill=["look 7"])
    kill(clerk(runs, [shop], LOOK, "Done."))
    result = clerk(runs, [shop], LOOK, "Done.").run_sync("Refund order 7", run_id="r1")
    assert shop.done == ["look 7", "look 7"]
    assert shop.keys == ["r1/1.1", "r1/1.1"]
    assert result.tool_calls[0].reply.result.is_success


def test_an_idempotent_write_in_flight_is_repeated(runs):
    shop = Shop(kill=["note a"])
    call = ToolCall("note", {"text": "a"})
    kill(clerk(runs, [shop], call, "Done."))
    clerk(runs, [shop], call, "Done.").run_sync("Refund order 7", run_id="r1")
    assert shop.done == ["note a", "note a"]
    assert len(set(shop.keys)) == 1


def test_an_irreversible_call_in_flight_is_not_repeated_and_the_model_is_told(runs):
    shop = Shop(kill=["refund 7"])
    kill(clerk(runs, [shop], REFUND, "Done."))
    result = clerk(runs, [shop], REFUND, "Done.").run_sync("Refund order 7", run_id="r1")
    assert shop.done == ["refund 7"]
    assert result.tool_calls[0].reply.text.startswith("Error: Unknown outcome: the process ended while 'refund' ran")
    assert result.tool_calls[0].reply.result.attributes["outcome"] == "unknown"


def test_the_other_calls_of_an_interrupted_turn_are_not_repeated(runs):
    shop = Shop(kill=["refund 9"])
    turn = [LOOK, REFUND, ToolCall("refund", {"order": 9})]
    kill(clerk(runs, [shop], turn, "Done."))
    result = clerk(runs, [shop], turn, "Done.").run_sync("Refund order 7", run_id="r1")
    assert sorted(shop.done) == ["look 7", "refund 7", "refund 9"]
    assert [record.reply.is_error for record in result.tool_calls] == [False, False, True]


def test_a_run_without_an_id_is_recorded_too(runs):
    result = clerk(runs, [Shop()], LOOK, "Done.").run_sync("Refund order 7")
    assert [record.run_id for record in runs.list()] == [result.run_id]


def test_a_failed_run_continues_when_it_is_run_again(runs):
    asked = []
    with pytest.raises(Exception, match="no credit"):
        clerk(runs, [Shop()], LOOK, RuntimeError("no credit"), asked=asked).run_sync("Refund order 7", run_id="r1")
    assert (runs.find("r1").state, runs.find("r1").error) == ("failed", "no credit")
    result = clerk(runs, [Shop()], LOOK, "Done.", asked=asked).run_sync("Refund order 7", run_id="r1")
    assert (result.text, asked) == ("Done.", [0, 1, 1])
    assert (runs.find("r1").state, runs.find("r1").error) == ("done", "")


def test_the_same_id_with_another_prompt_is_refused(runs):
    clerk(runs, [], "Done.").run_sync("Refund order 7", run_id="r1")
    with pytest.raises(ToolConfigurationError, match="Run 'r1' was begun with another prompt; choose another run_id"):
        clerk(runs, [], "Done.").run_sync("Refund order 8", run_id="r1")


def test_the_same_id_for_another_agent_is_refused(runs):
    clerk(runs, [], "Done.").run_sync("Refund order 7", run_id="r1")
    other = Agent(ScriptedModel(["No."]), journal=runs, role="a poet")
    with pytest.raises(ToolConfigurationError, match="Run 'r1' belongs to agent 'clerk', not 'a poet'"):
        other.run_sync("Refund order 7", run_id="r1")


def test_the_name_of_an_agent_is_its_role_by_default(runs):
    Agent(ScriptedModel(["Yes."]), journal=runs, role="a poet").run_sync("A poem", run_id="r1")
    Agent(ScriptedModel(["Yes."]), journal=runs).run_sync("A poem", run_id="r2")
    assert [record.agent for record in runs.list()] == ["a poet", "agent"]


@pytest.mark.parametrize("given", ["runs.db", RunJournal, 3])
def test_an_agent_takes_only_a_journal(given):
    with pytest.raises(ToolDefinitionError, match="Agent journal must be a RunJournal, such as RunJournal"):
        Agent(ScriptedModel([]), journal=given)


def test_an_unknown_tool_stays_unknown_when_it_is_there_later(runs):
    shop = Shop()
    kill(clerk(runs, [], REFUND, Killed))
    result = clerk(runs, [shop], REFUND, "Done.").run_sync("Refund order 7", run_id="r1")
    assert shop.done == []
    assert result.tool_calls[0].reply.text.startswith("Error: Unknown tool 'refund'")


def test_a_tool_that_is_gone_does_not_change_its_recorded_result(runs):
    kill(clerk(runs, [Shop()], LOOK, Killed))
    result = clerk(runs, [], LOOK, "Done.").run_sync("Refund order 7", run_id="r1")
    assert result.tool_calls[0].reply.text == '{"order":7,"price":5}'


def test_hooks_do_not_run_again_for_recorded_calls(runs):
    seen = []

    def after(call, result, context):
        seen.append(call.name)
        return ToolResult.success(f"{result.text}!")

    def box():
        return Toolbox([Shop()], after_call=after)

    kill(clerk(runs, box(), REFUND, Killed))
    result = clerk(runs, box(), REFUND, "Done.").run_sync("Refund order 7", run_id="r1")
    assert seen == ["refund"]
    assert result.tool_calls[0].reply.text == "refunded 7!"


def test_sinks_are_not_told_again_of_recorded_calls(runs):
    kill(clerk(runs, [Shop()], LOOK, Killed))
    sink = RecordingSink()
    clerk(runs, [Shop()], LOOK, REFUND, "Done.", sinks=[sink]).run_sync("Refund order 7", run_id="r1")
    kinds = [(event.kind, event.tool_name) for event in sink.events]
    assert ("call_finished", "refund") in kinds
    assert ("call_finished", "look") not in kinds
    assert [kind for kind, _ in kinds].count("model_replied") == 2


async def test_a_stream_shows_recorded_turns_as_replayed_and_without_deltas(runs):
    kill_ = clerk(runs, [Shop()], LOOK, Killed)
    with pytest.raises(Killed):
        async for _ in kill_.stream("Refund order 7", run_id="r1"):
            pass
    agent = clerk(runs, [Shop()], LOOK, REFUND, "Done.")
    events = [event async for event in agent.stream("Refund order 7", run_id="r1")]
    assert [event.replayed for event in events if isinstance(event, TurnEnded)] == [True, False, False]
    kinds = [event.kind for event in events]
    assert kinds[0] == "turn_ended"
    assert kinds.count("call_replied") == 1
    assert kinds[-1] == "final"


def test_a_typed_answer_comes_back_as_its_type(runs):
    @dataclass
    class Invoice:
        amount: int

    @dataclass
    class Letter:
        address: str

    answer = ToolCall("final_answer", {"amount": 5})
    agent = clerk(runs, [], answer, output_type=Invoice)
    assert agent.run_sync("Refund order 7", run_id="r1").output == Invoice(5)
    assert agent.run_sync("Refund order 7", run_id="r1").output == Invoice(5)
    with pytest.raises(
        ToolConfigurationError, match="The recorded answer of run 'r1' does not fit the current output type"
    ):
        clerk(runs, [], answer, output_type=Letter).run_sync("Refund order 7", run_id="r1")


def test_a_result_for_the_caller_comes_back_as_json(runs):
    @tool(return_behavior=ReturnBehavior.IMMEDIATE)
    def show() -> dict:
        """Show it."""
        return {"shown": True}

    agent = clerk(runs, [show], ToolCall("show"))
    assert agent.run_sync("Refund order 7", run_id="r1").output == {"shown": True}
    again = agent.run_sync("Refund order 7", run_id="r1")
    assert (again.output, again.stop_reason) == ({"shown": True}, "immediate")


def test_a_conversation_is_stored_once(runs, tmp_path):
    memory = ConversationMemory(tmp_path / "talks.db")
    settings = {"memory": memory, "memory_id": "ada"}
    clerk(runs, [Shop()], "Hello.", **settings).run_sync("I am Ada.", run_id="r0")
    kill(clerk(runs, [Shop()], "Hello.", LOOK, Killed, **settings))
    assert len(memory.load("ada")) == 5  # the turn before the kill is stored
    result = clerk(runs, [Shop()], "Hello.", LOOK, "Done.", **settings).run_sync("Refund order 7", run_id="r1")
    assert [message.role for message in memory.load("ada")] == [
        "user",
        "assistant",
        "user",
        "assistant",
        "tool",
        "assistant",
    ]
    assert [*result.messages] == [*memory.load("ada")]


def test_the_model_of_an_agent_inside_can_read_pages_of_a_toolbox_of_its_own(runs):
    @tool(effects="read", max_output=200)
    def read() -> str:
        """Read a long text."""
        return "\n".join(f"line {number}" for number in range(100))

    library = Toolbox([read], pages=True)

    def reply(request):
        return library.execute(ToolCall("read")).text

    helper = Agent(FunctionModel(reply), name="helper").as_tool("ask", "Asks")
    result = clerk(runs, [helper], ToolCall("ask", {"input": "Read"}), "Done.").run_sync("Read", run_id="r1")
    assert "read_more" in result.tool_calls[0].reply.text


def test_pages_of_a_long_result_are_there_after_a_kill(runs):
    @tool(effects="read", max_output=200)
    def read() -> str:
        """Read a long text."""
        return "\n".join(f"line {number}" for number in range(100))

    def box():
        return Toolbox([read], pages=True)

    seen = []

    def next_page(request):
        seen.append(request.messages[-1].reply.text)
        id_ = seen[-1].rpartition('result="')[2].partition('"')[0]
        return ToolCall("read_more", {"result": id_, "page": 2})

    kill(clerk(runs, box(), ToolCall("read"), Killed))

    def reply(request):
        turns = sum(isinstance(message, AssistantMessage) for message in request.messages)
        return next_page(request) if turns == 1 else "Done."

    agent = Agent(FunctionModel(reply), box(), journal=runs, name="clerk")
    result = agent.run_sync("Refund order 7", run_id="r1")
    assert "[page 2 of" in result.tool_calls[1].reply.text


def test_shared_parameters_are_as_the_recorded_calls_left_them(runs):
    @tool
    def remember(word: str, context: ToolContext) -> str:
        """Remember a word."""
        context.parameters["words"] = [*context.parameters.get("words", []), word]
        context.parameters.pop("first", None)
        return "ok"

    def call(word):
        return ToolCall("remember", {"word": word})

    given = {"first": True}
    kill(clerk(runs, [remember], call("a"), Killed), parameters=dict(given))
    clerk(runs, [remember], call("a"), call("b"), "Done.").run_sync("Refund order 7", run_id="r1", parameters=given)
    assert given == {"words": ["a", "b"]}


@pytest.mark.parametrize("value", [object(), (1, 2), float("nan")])
def test_parameters_that_json_cannot_hold_are_refused(runs, value):
    with pytest.raises(ToolConfigurationError, match="parameters of a journaled run must be JSON values"):
        clerk(runs, [], "Done.").run_sync("Refund order 7", run_id="r1", parameters={"database": value})


def test_a_finished_step_of_a_pipeline_is_not_repeated(runs):
    shop = Shop(kill=["refund 5"])
    pipeline = ToolPipeline("settle", "Settles an order", [Step(shop.look, lambda result: {"order": 5}), shop.refund])
    call = ToolCall("settle", {"order": 7})
    kill(clerk(runs, [pipeline], call, "Done."))
    result = clerk(runs, [pipeline], call, "Done.").run_sync("Refund order 7", run_id="r1")
    assert shop.done == ["look 7", "refund 5"]
    assert "Unknown outcome" in result.tool_calls[0].reply.text
    assert [step.name for step in result.tool_calls[0].reply.result.attributes["steps"]] == ["look", "refund"]
    assert [call.place for call in runs.unknown()] == ["/1.1.2"]


def test_a_step_is_undone_with_its_input_after_a_kill(runs):
    shop, undone = Shop(kill=["note b"]), []

    @tool
    def fail() -> str:
        """Fail."""
        raise ValueError("no")

    pipeline = ToolPipeline(
        "settle",
        "Settles an order",
        [
            Step(shop.note, lambda result: {"text": "b"}, compensate=lambda input, result: undone.append(input)),
            Step(shop.note.renamed("note_again"), lambda result: {}),
            fail,
        ],
    )
    call = ToolCall("settle", {"text": "a"})
    kill(clerk(runs, [pipeline], call, "Done."))
    clerk(runs, [pipeline], call, "Done.").run_sync("Refund order 7", run_id="r1")
    assert shop.done == ["note a", "note b", "note b"]
    assert [given["text"] if isinstance(given, dict) else given.text for given in undone] == ["a"]


def test_a_finished_undo_is_not_repeated(runs):
    shop, undone = Shop(), []

    @tool
    def fail() -> str:
        """Fail."""
        raise ValueError("no")

    def undo(input, result):
        undone.append(result.output)
        if undone == ["noted", "noted"]:
            raise Killed

    steps = [Step(shop.note, lambda result: {"text": "b"}, compensate=undo) for _ in range(2)]
    steps[1] = Step(shop.note.renamed("note_again"), lambda result: {}, compensate=undo)
    pipeline = ToolPipeline("settle", "Settles an order", [*steps, fail])
    call = ToolCall("settle", {"text": "a"})
    kill(clerk(runs, [pipeline], call, "Done."))
    result = clerk(runs, [pipeline], call, "Done.").run_sync("Refund order 7", run_id="r1")
    assert undone == ["noted", "noted"]
    records = result.tool_calls[0].reply.result.attributes["undone"]
    assert [record.result.is_success for record in records] == [True, False]
    assert "Unknown outcome" in records[1].result.text


def make_failing_pipeline(first_undo, second_undo):
    shop = Shop()

    @tool
    def fail() -> str:
        """Fail."""
        raise ValueError("no")

    steps = [
        Step(shop.note, lambda result: {"text": "b"}, compensate=first_undo),
        Step(shop.note.renamed("note_again"), lambda result: {}, compensate=second_undo),
    ]
    return ToolPipeline("settle", "Settles an order", [*steps, fail])


def test_an_undo_that_failed_is_not_repeated(runs):
    undone = []

    def fail(input, result):
        undone.append("second")
        raise ValueError("stuck")

    def die(input, result):
        undone.append("first")
        raise Killed

    agent = clerk(runs, [make_failing_pipeline(die, fail)], ToolCall("settle", {"text": "a"}), "Done.")
    kill(agent)
    result = agent.run_sync("Refund order 7", run_id="r1")
    assert undone == ["second", "first"]
    failed, unknown = result.tool_calls[0].reply.result.attributes["undone"]
    assert failed.result.text == "Error: stuck"
    assert "Unknown outcome" in unknown.result.text


def test_an_undo_that_would_stop_the_run_counts_as_failed_and_the_other_steps_are_undone(runs):
    undone = []

    def stop(input, result):
        raise ExitEarlyError("enough")

    pipeline = make_failing_pipeline(lambda input, result: undone.append("first"), stop)
    agent = clerk(runs, [pipeline], ToolCall("settle", {"text": "a"}), "Done.")
    result = agent.run_sync("Settle", run_id="r1")
    assert (result.text, undone) == ("Done.", ["first"])
    records = result.tool_calls[0].reply.result.attributes["undone"]
    assert [record.result.is_success for record in records] == [False, True]


def test_a_run_that_is_cancelled_while_steps_are_undone_stops_before_the_next_undo(runs):
    undone = []

    def cancel(input, result):
        undone.append("second")
        runs.cancel("r1")

    pipeline = make_failing_pipeline(lambda input, result: undone.append("first"), cancel)
    with pytest.raises(RunCancelledError):
        clerk(runs, [pipeline], ToolCall("settle", {"text": "a"}), "Done.").run_sync("Settle", run_id="r1")
    assert undone == ["second"]


def test_branches_that_have_ended_are_not_repeated(runs):
    shop = Shop(kill=["refund 7"])
    both = fan_out(shop.look, shop.refund, name="both")
    call = ToolCall("both", {"order": 7})
    kill(clerk(runs, [both], call, "Done."))
    clerk(runs, [both], call, "Done.").run_sync("Refund order 7", run_id="r1")
    assert shop.done.count("refund 7") == 1


def test_an_agent_inside_continues_and_its_tokens_count_once(runs):
    shop = Shop()

    def make(*inner, outer=("Done.",)):
        helper = Agent(script(*inner), [shop]).as_tool("helper", "Helps")
        return clerk(runs, [helper], ToolCall("helper", {"input": "Look"}), *outer)

    kill(make(LOOK, Killed))
    kill(make(LOOK, "It costs 5.", outer=(Killed,)))
    result = make(Killed, Killed).run_sync("Refund order 7", run_id="r1")
    assert shop.done == ["look 7"]
    assert shop.keys == ["r1/1.1/1.1"]
    assert result.usage.total_tokens == 4 * 15
    assert result.usage.model_calls == 4
    assert result.usage.tool_calls == 2


def test_a_budget_that_was_used_up_stays_used_up(runs):
    replies = [[LOOK, ToolCall("look", {"order": 8})], "Done."]
    shop = Shop()
    kill(clerk(runs, [shop], replies[0], Killed, max_tool_calls=1))
    result = clerk(runs, [shop], *replies, max_tool_calls=50).run_sync("Refund order 7", run_id="r1")
    assert shop.done == ["look 7"]
    assert "Maximum tool iterations (1)" in result.tool_calls[1].reply.text
    assert result.usage.tool_calls == 1


def test_a_run_that_ends_without_an_answer_can_continue_with_more(runs):
    asked = []
    with pytest.raises(BudgetExceededError):
        clerk(runs, [Shop()], LOOK, [REFUND], asked=asked, max_turns=1).run_sync("Refund order 7", run_id="r1")
    assert runs.find("r1").state == "failed"


def test_a_body_that_runs_an_agent_is_one_step(runs):
    shop, asked = Shop(), []

    @tool
    async def ask() -> str:
        """Ask another agent."""
        inner = Agent(script(LOOK, "five", asked=asked), [shop], journal=runs, name="inner")
        return (await inner.run("What does it cost?")).text

    clerk(runs, [ask], ToolCall("ask"), "Done.").run_sync("Refund order 7", run_id="r1")
    assert [step.place for step in runs.steps("r1")] == ["/1", "/1.1", "/2"]
    assert [record.run_id for record in runs.list()] == ["r1"]


@pytest.mark.parametrize("state", ["new", "done"])
async def test_a_run_is_free_again_if_its_task_is_cancelled_while_it_is_claimed(place, state):
    claimed, go_on = threading.Event(), threading.Event()

    class Slow(RunJournal):
        def claim(self, *args, **settings):
            made = super().claim(*args, **settings)
            claimed.set()
            go_on.wait(60)
            return made

    with Slow(place) as slow, RunJournal(place) as runs:
        if state == "done":
            await clerk(runs, [], "Done.").run("Refund order 7", run_id="r1")
        task = asyncio.create_task(clerk(slow, [], "Done.").run("Refund order 7", run_id="r1"))
        assert await asyncio.to_thread(claimed.wait, 60)
        task.cancel()
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await clerk(runs, [], "Done.").run("Refund order 7", run_id="r1")).text == "Done."
