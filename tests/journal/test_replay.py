"""What comes out of a resumed run is what comes out of an undisturbed one: budgets, times, metrics, events."""

import asyncio
from typing import Any

import pytest

from helpers.isolated_tools import where
from helpers.journal_runs import LOOK, REFUND, Killed, Shop, clerk, kill
from toolsemble import (
    Agent,
    BudgetExceededError,
    Catalog,
    ConversationMemory,
    Edit,
    InMemoryMetrics,
    RateLimit,
    Retries,
    Toolbox,
    ToolCall,
    ToolConfigurationError,
    ToolContext,
    ToolDefinitionError,
    ToolPipeline,
    ToolResult,
    tool,
)
from toolsemble._engine.context import enter, leave
from toolsemble._tools.pipeline.step import Step
from toolsemble._vocabulary.call import NumberedCall
from toolsemble._vocabulary.place import Place
from toolsemble._vocabulary.result import ImageContent
from toolsemble.models import AssistantMessage, ChatReply, ScriptedModel, UserMessage
from toolsemble.models._message import Transcript
from toolsemble.review import CallbackReview
from toolsemble.testing import RecordingSink


def test_a_resumed_run_says_so_to_sinks(runs):
    kill(clerk(runs, [Shop()], LOOK, Killed))
    sink = RecordingSink()
    clerk(runs, [Shop()], LOOK, "Done.", sinks=[sink]).run_sync("Refund order 7", run_id="r1")
    clerk(runs, [Shop()], "Done.", sinks=[sink]).run_sync("Refund order 7", run_id="r2")
    assert [event.resumed for event in sink.events if event.kind == "run_started"] == [True, False]


def test_metrics_count_a_call_once(runs):
    metrics = InMemoryMetrics()
    kill(clerk(runs, Toolbox([Shop()], metrics=metrics), LOOK, Killed))
    clerk(runs, Toolbox([Shop()], metrics=metrics), LOOK, REFUND, "Done.").run_sync("Refund order 7", run_id="r1")
    assert [metrics.count(name, "success") for name in ("look", "refund")] == [1, 1]


def test_the_times_of_recorded_calls_are_kept(runs):
    @tool(effects="read")
    async def wait() -> str:
        """Wait."""
        await asyncio.sleep(0.05)
        return "waited"

    kill(clerk(runs, [wait], ToolCall("wait"), Killed))
    result = clerk(runs, [wait], ToolCall("wait"), "Done.").run_sync("Refund order 7", run_id="r1")
    assert result.tool_calls[0].duration >= 0.05
    assert result.usage.tool_seconds >= 0.05


def test_a_catalog_offers_after_a_kill_what_was_found_before(runs):
    done = []

    def make(number):
        @tool(name=f"tool_{number}", description=f"Does the thing number {number}", effects="irreversible")
        def act(order: int) -> str:
            done.append(number)
            return f"did {number}"

        return act

    def agent(*replies):
        return clerk(runs, Catalog([make(number) for number in range(60)], budget=600), *replies)

    find, act = ToolCall("find_tools", {"query": "thing number 42", "limit": 1}), ToolCall("tool_42", {"order": 7})
    kill(agent(find, Killed))
    kill(agent(find, act, Killed))
    result = agent(find, act, act, "Done.").run_sync("Refund order 7", run_id="r1")
    assert done == [42, 42]
    assert [record.reply.text for record in result.tool_calls[1:]] == ["did 42", "did 42"]


def test_a_run_that_repeats_itself_is_stopped_at_the_same_turn(runs):
    def stop(run_id):
        with pytest.raises(BudgetExceededError) as stopped:
            clerk(runs, [Shop()], *[LOOK] * 30).run_sync("Refund order 7", run_id=run_id)
        return stopped.value.partial

    undisturbed = stop("r0")
    kill(clerk(runs, [Shop()], *[LOOK] * 3, Killed))
    result = stop("r1")
    assert result.stop_reason == undisturbed.stop_reason == "loop"
    assert [each.reply.text for each in result.tool_calls] == [each.reply.text for each in undisturbed.tool_calls]


def test_a_budget_of_tokens_counts_what_was_spent_before(runs):
    def run(*replies, run_id="r1"):
        agent = clerk(runs, [Shop()], *replies, max_tokens=40)
        return agent.run_sync("Refund order 7", run_id=run_id)

    undisturbed = run(LOOK, LOOK, LOOK, "Done.", run_id="r0")
    kill(clerk(runs, [Shop()], LOOK, LOOK, Killed, max_tokens=40))
    result = run(LOOK, LOOK, LOOK, "Done.")
    assert (result.stop_reason, result.usage.total_tokens) == ("max_tokens", undisturbed.usage.total_tokens)
    assert result.messages == undisturbed.messages


def test_time_that_was_worked_before_counts_and_time_between_does_not(runs, clock):
    @tool(effects="read")
    def work() -> str:
        """Work."""
        clock.advance(60)
        return "worked"

    kill(clerk(runs, [work], ToolCall("work"), Killed, max_seconds=100))
    clock.advance(3600)
    result = clerk(runs, [work], ToolCall("work"), ToolCall("work"), "Done.", max_seconds=100).run_sync(
        "Refund order 7", run_id="r1"
    )
    assert (result.stop_reason, len(result.tool_calls)) == ("max_seconds", 2)


def test_a_tool_in_a_process_of_its_own_is_recorded(runs):
    call = ToolCall("where", {"text": "here"})
    kill(clerk(runs, [where], call, Killed))
    result = clerk(runs, [], call, "Done.").run_sync("Refund order 7", run_id="r1")
    assert '"text":"here"' in result.tool_calls[0].reply.text


async def test_a_run_is_resumed_with_what_it_was_begun_with(runs):
    @tool
    def sign(context: ToolContext) -> str:
        """Sign."""
        return f"{context.deps} {context.memory_id}"

    runs.begin("r1", "clerk", "Refund order 7", memory_id="ada")
    result = await runs.resume("r1", clerk(None, [sign], ToolCall("sign"), "Done."), deps="a database")
    assert result.tool_calls[0].reply.text == "a database ada"
    runs.begin("r2", "clerk", "Refund order 7", memory_id="bob")
    await runs.work({"clerk": clerk(None, [sign], ToolCall("sign"), "Done.")}, until_idle=True, deps="another")
    assert runs.steps("r2")[1].data["output"] == "another bob"
    with pytest.raises(ToolDefinitionError, match=r"RunJournal\.resume takes an agent, not 'gpt-5'"):
        await runs.resume("r1", "gpt-5")


async def test_another_agent_does_not_continue_a_run(runs):
    runs.begin("r1", "clerk", "Refund order 7")
    poet = Agent(ScriptedModel(["Roses are red."]), name="poet")
    with pytest.raises(ToolConfigurationError, match="Run 'r1' is one of the agent 'clerk', not of 'poet'"):
        await runs.resume("r1", poet)
    assert (runs.find("r1").state, runs.steps("r1")) == ("queued", [])


def test_a_call_with_limits_is_recorded_once(runs):
    made = []

    @tool(effects="read", timeout=30, retries=Retries(3, wait=0), rate_limit=RateLimit(100, per=1))
    def flaky() -> str:
        """Fail at first."""
        made.append(1)
        if len(made) == 1:
            raise ConnectionError("refused")
        return "worked"

    kill(clerk(runs, [flaky], ToolCall("flaky"), Killed))
    result = clerk(runs, [flaky], ToolCall("flaky"), "Done.").run_sync("Refund order 7", run_id="r1")
    assert (len(made), result.tool_calls[0].reply.text) == (2, "worked")
    assert [step.place for step in runs.steps("r1")] == ["/1", "/1.1", "/2"]


def test_contents_and_details_come_back(runs):
    @tool(effects="read")
    def draw() -> ToolResult:
        """Draw."""
        return ToolResult.success("drawn", contents=[ImageContent(b"...", "image/png")])

    def agent(*later):
        first = ChatReply("", (ToolCall("draw"),), details={"thought": "signed"})
        return clerk(runs, [draw], first, *later)

    kill(agent(Killed))
    result = agent("Done.").run_sync("Refund order 7", run_id="r1")
    assert result.tool_calls[0].reply.result.contents == (ImageContent(b"...", "image/png"),)
    assert result.messages[1].details == {"thought": "signed"}


def test_a_call_is_recorded_without_an_event_loop_as_well(runs):
    shop, driver = Shop(), runs.claim("r1", "clerk", [UserMessage("Refund order 7")])
    inside = enter(ToolContext(run_id="r1", place=Place(driver, "/1", is_scope=True)))
    try:
        for _ in range(2):
            Toolbox([shop]).execute(NumberedCall(REFUND, 1))
    finally:
        leave(inside)
        driver.close()
    assert shop.done == ["refund 7"]


def test_a_step_whose_tool_has_changed_is_undone_with_what_it_got(runs):
    undone = []

    def settle(kind, last):
        @tool(name="reserve")
        def reserve(order: kind) -> dict:
            """Reserve."""
            return {}

        @tool(name="close")
        def close() -> str:
            """Close."""
            raise last

        undo = Step(reserve, lambda _: {}, compensate=lambda given, _: undone.append(given))
        return ToolPipeline(
            "settle", "Settles an order", [Step(Shop().note, lambda _: {"order": "seven"}), undo, close]
        )

    def die(call, context):
        if call.name == "close":
            raise Killed

    call = ToolCall("settle", {"text": "a"})
    kill(clerk(runs, Toolbox([settle(str, ValueError("no"))], before_call=die), call, "Done."))
    clerk(runs, [settle(int, ValueError("no"))], call, "Done.").run_sync("Refund order 7", run_id="r1")
    assert undone == [{"order": "seven"}]


def test_a_step_may_get_an_object_that_cannot_be_shown(runs):
    class Odd:
        def __repr__(self):
            raise ValueError("no repr")

    @tool
    def use(thing: Any) -> str:
        """Use a thing."""
        return type(thing).__name__

    pipeline = ToolPipeline("settle", "Settles", [Step(Shop().note, lambda _: {"thing": Odd()}), use])
    call = ToolCall("settle", {"text": "a"})
    kill(clerk(runs, [pipeline], call, Killed))
    result = clerk(runs, [pipeline], call, "Done.").run_sync("Refund order 7", run_id="r1")
    assert result.tool_calls[0].reply.text == "Odd"


class TestMemory:
    """Conversations of runs that are killed, parked, or forked."""

    @pytest.fixture
    def talk(self, runs, tmp_path):
        memory = ConversationMemory(tmp_path / "talks.db")

        def talk(*replies):
            return clerk(runs, [Shop()], *replies, memory=memory, memory_id="ada")

        talk.roles = lambda: [message.role for message in memory.load("ada")]
        yield talk
        memory.close()

    def test_a_run_that_another_one_overtook_loses_nothing_of_its_own(self, talk):
        kill(talk(LOOK, Killed))
        before = ["user", "assistant", "tool"]
        assert talk.roles() == before
        talk(None, "Yes?").run_sync("Are you there?", run_id="r2")
        talk(LOOK, [LOOK, REFUND], "Done.").run_sync("Refund order 7", run_id="r1")
        assert talk.roles() == [*before, "user", "assistant", "assistant", "tool", "tool", "assistant"]

    def test_turns_with_other_runs_between_them_are_stored_once(self, talk):
        say = "Are you there?"
        kill(talk(LOOK, Killed))
        talk(None, "Yes?").run_sync(say, run_id="r2")
        kill(talk(LOOK, REFUND, Killed))
        talk(*[None] * 3, "Yes?").run_sync(say, run_id="r3")
        talk(LOOK, REFUND, "Done.").run_sync("Refund order 7", run_id="r1")
        turn, other = ["assistant", "tool"], ["user", "assistant"]
        assert talk.roles() == ["user", *turn, *other, *turn, *other, "assistant"]

    def test_a_run_that_another_process_came_before_stores_its_turns_once(self, runs, tmp_path):
        memory, elsewhere = (ConversationMemory(tmp_path / "talks.db") for _ in range(2))

        @tool(effects="read")
        def look(order: int) -> str:
            """Look up an order, while another process answers in the same conversation."""
            elsewhere.extend("ada", None, Transcript([UserMessage("Hello"), AssistantMessage("Yes?")]), 2)
            return "found"

        settings = {"memory": memory, "memory_id": "ada"}
        kill(clerk(runs, [look], LOOK, Killed, **settings))
        clerk(runs, [look], LOOK, "Done.", **settings).run_sync("Refund order 7", run_id="r1")
        stored = [message.role for message in memory.load("ada")]
        assert stored == ["user", "assistant", "user", "assistant", "tool", "assistant"]
        memory.close()
        elsewhere.close()

    def test_the_same_messages_of_another_run_are_not_taken_for_its_own(self, talk):
        kill(talk(Killed))  # nothing is stored
        talk(LOOK, "Done.").run_sync("Refund order 7", run_id="r2")
        talk(LOOK, "Done.").run_sync("Refund order 7", run_id="r1")
        assert talk.roles() == ["user", "assistant", "tool", "assistant"] * 2

    @pytest.mark.parametrize("overtaken", [False, True])
    async def test_a_call_beside_an_agent_does_not_let_it_store_its_turns_again(self, runs, overtaken):
        memory, asked, begun = ConversationMemory(), asyncio.Event(), asyncio.Event()

        @tool(effects="read")
        async def watch() -> str:
            """Watch."""
            begun.set()
            if not overtaken_now:
                await asked.wait()
                raise Killed
            return "seen"

        async def reply(messages):
            asked.set()
            raise Killed

        async def make_deps(run):
            await begun.wait()

        def build(last):
            settings = {"memory": memory, "make_deps": make_deps}
            inner = Agent(ScriptedModel([LOOK, last]) if last is reply else ScriptedModel([last]), [Shop()], **settings)
            calls = [ToolCall("watch"), ToolCall("ask", {"input": "Look"})]
            return clerk(runs, [watch, inner.as_tool("ask", "Asks")], calls, "Done.", memory_id="bob")

        overtaken_now = False
        with pytest.raises(Killed):
            await build(reply).run("Refund order 7", run_id="r1")
        stored = [message.role for message in memory.load("bob/ask")]
        if overtaken:
            await Agent(ScriptedModel(["Yes?"]), memory=memory, memory_id="bob/ask").run("Are you there?")
        overtaken_now = True
        begun.clear()
        await build("Looked.").run("Refund order 7", run_id="r1")
        between = ["user", "assistant"] * overtaken
        assert [message.role for message in memory.load("bob/ask")] == [*stored, *between, "assistant"]
        assert stored == ["user", "assistant", "tool"]

    def test_a_fork_does_not_change_the_conversation(self, runs, talk):
        talk(LOOK, REFUND, "Done.").run_sync("Refund order 7", run_id="r1")
        before = talk.roles()
        runs.fork("r1", "/1", "r2")
        result = talk(LOOK, LOOK, [LOOK, REFUND], "Done again.").run_sync("Refund order 7", run_id="r2")
        assert (result.text, talk.roles()) == ("Done again.", before)


def test_an_edited_step_of_a_pipeline_is_noted_once_after_a_resume(runs, pay):
    look = Shop().look
    settle = ToolPipeline("settle", "Settles an order", [Step(look, lambda _: {"order": 7}), pay])
    memory, review = ConversationMemory(), CallbackReview(lambda _: Edit('{"order": 8}'))
    settings = {"memory": memory, "memory_id": "ada", "review": review}
    call = ToolCall("settle", {"order": 7}, id="c1")
    kill(clerk(runs, [settle], call, Killed, **settings), "Pay order 7")
    assert len(memory.load("ada")) == 3
    result = clerk(runs, [settle], call, "Paid.", **settings).run_sync("Pay order 7", run_id="r1")
    note = "Note: a reviewer changed the arguments of 'pay' to {\"order\":8}"
    assert result.tool_calls[0].reply.text == f"paid 8\n\n{note}"
    assert [message.role for message in memory.load("ada")] == ["user", "assistant", "tool", "assistant"]
