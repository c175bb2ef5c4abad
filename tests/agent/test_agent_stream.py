import asyncio
import threading
from contextlib import aclosing

import pytest

from helpers.agent_scripts import TOOLS, add, assert_valid, later, sum_of, told
from toolsemble import (
    Agent,
    AgentExecutionError,
    AgentResult,
    ConversationMemory,
    ModelError,
    OnTimeout,
    Retry,
    ReviewTimeoutError,
    Tool,
    ToolCall,
    ToolConfigurationError,
    ToolContext,
    ToolReply,
    ToolResult,
    tool,
)
from toolsemble.agent import (
    CallProgress,
    CallReplied,
    CallRequested,
    Final,
    ModelRetried,
    ReviewDecided,
    ReviewRequested,
    TurnEnded,
)
from toolsemble.models import (
    ArgumentsDelta,
    AssistantMessage,
    CallDelta,
    ChatReply,
    StreamEnd,
    TextDelta,
    ToolMessage,
    UserMessage,
)
from toolsemble.review import AutoReject, ExitEarly
from toolsemble.testing import AutoApprove, ScriptedModel


async def collect_events(agent, prompt="go"):
    return [event async for event in agent.stream(prompt)]


async def test_stream_reports_events_in_order():
    call = sum_of(1, 2, "c1")
    agent = Agent(ScriptedModel([ChatReply("Let me", (call,)), "It is 3"]), [add])
    events = await collect_events(agent)
    record = events[6].record
    assert events == [
        TextDelta("Let "),
        TextDelta("me"),
        CallDelta(0, "add", "c1"),
        ArgumentsDelta(0, '{"a":1'),
        ArgumentsDelta(0, ',"b":2}'),
        CallRequested(call),
        CallReplied(record),
        TurnEnded(AssistantMessage("Let me", (call,)), (record,)),
        TextDelta("It "),
        TextDelta("is "),
        TextDelta("3"),
        TurnEnded(AssistantMessage("It is 3")),
        Final(events[-1].result),
    ]
    assert (record.call, record.reply) == (call, ToolReply(call, ToolResult.success("3", 3)))
    assert (events[-1].result.text, events[-1].result.tool_calls) == ("It is 3", [record])
    assert len({type(event).kind for event in events}) == 7


async def test_replies_are_streamed_in_completion_order():
    first_may_end = asyncio.Event()

    @tool
    async def slow() -> str:
        await asyncio.wait_for(first_may_end.wait(), 30)
        return "slow"

    @tool
    async def quick() -> str:
        first_may_end.set()
        return "quick"

    agent = Agent(ScriptedModel([[ToolCall("slow"), ToolCall("quick")], "x"]), [slow, quick])
    events = await collect_events(agent)
    assert [event.record.name for event in events if isinstance(event, CallReplied)] == ["quick", "slow"]
    (ended, _) = [event for event in events if isinstance(event, TurnEnded)]
    assert [record.name for record in ended.tool_calls] == ["slow", "quick"]


async def test_progress_is_streamed_from_any_thread():
    heard = threading.Event()

    class Scrape(Tool):
        name = "scrape"
        description = "Reads pages"

        def run(self, input):
            self.progress(0.4, "page 4 of 10")
            assert heard.wait(30)
            self.context.progress(None)
            return "all"

    seen = []
    async for event in Agent(ScriptedModel([ToolCall("scrape", {"input": "x"}, "c1"), "x"]), [Scrape()]).stream("go"):
        if isinstance(event, CallProgress):
            seen.append(event)
            heard.set()
    assert seen == [CallProgress("scrape", "c1", 0.4, "page 4 of 10"), CallProgress("scrape", "c1", None)]


async def test_progress_without_a_consumer_is_dropped():
    @tool
    def work() -> str:
        work.progress(0.5)
        return "done"

    assert told((await Agent(ScriptedModel([ToolCall("work"), "x"]), [work]).run("go")).messages) == ["done"]


async def test_progress_after_run_is_ignored(clock):
    may_go_on, ended = threading.Event(), threading.Event()

    @tool
    def slow() -> str:
        clock.advance(0.2)
        may_go_on.wait(30)
        slow.progress(1.0)
        ended.set()
        return "too late"

    def run():
        return asyncio.run(collect_events(Agent(ScriptedModel([ToolCall("slow"), "x"]), [slow], max_seconds=0.2)))

    events = await asyncio.to_thread(run)
    may_go_on.set()
    assert await asyncio.to_thread(ended.wait, 30)
    assert events[-1].result.stop_reason == "max_seconds"


@pytest.mark.parametrize("review", [AutoApprove(), AutoReject("no")])
async def test_review_events_are_streamed(review):
    agent = Agent(ScriptedModel([ToolCall("delete", {"path": "x"}), "x"]), TOOLS, review=review)
    events = await collect_events(agent)
    (asked,) = [event for event in events if isinstance(event, ReviewRequested)]
    (decided,) = [event for event in events if isinstance(event, ReviewDecided)]
    assert (asked.request.tool_name, decided.request) == ("delete", asked.request)
    assert isinstance(decided.decision, ExitEarly) is isinstance(review, AutoReject)


async def test_reviews_inside_blocking_tool_are_streamed():
    @tool
    def deploy() -> str:
        deploy.request_approval("Really?")
        return "deployed"

    events = await collect_events(Agent(ScriptedModel([ToolCall("deploy"), "x"]), [deploy], review=AutoApprove()))
    assert [event.request.description for event in events if isinstance(event, ReviewRequested)] == ["Really?"]


async def test_review_timeout_has_no_decision_event():
    @tool
    async def deploy() -> str:
        try:
            await deploy.arequest_approval("Really?", timeout=0.01, on_timeout=OnTimeout.FAIL)
        except ReviewTimeoutError:
            return "expired"
        return "answered"

    agent = Agent(ScriptedModel([ToolCall("deploy"), "x"]), [deploy], review=AutoApprove(delay=60))
    events = await collect_events(agent)
    kinds = [type(event) for event in events]
    assert (ReviewRequested in kinds, ReviewDecided in kinds) == (True, False)
    assert told(events[-1].result.messages) == ["expired"]


async def test_nested_agent_events_are_streamed():
    worker = Agent(ScriptedModel([ToolCall("delete", {"path": "x"}), "x"]), TOOLS).as_tool("inner", "")
    agent = Agent(ScriptedModel([ToolCall("inner", {"input": "x"}), "x"]), [worker], review=AutoApprove())
    assert [event.request.tool_name for event in await collect_events(agent) if isinstance(event, ReviewDecided)] == [
        "delete"
    ]


class BrokenModel:
    """A model whose stream fails a number of times."""

    def __init__(self, times, error=None):
        self.times = times
        self.error = error

    async def reply(self, request):
        raise NotImplementedError

    async def stream(self, request):
        yield TextDelta("Let ")
        self.times -= 1
        if self.times >= 0:
            if self.error is not None:
                raise self.error
            return
        yield TextDelta("me")
        yield StreamEnd()


@pytest.mark.parametrize("error", [None, ModelError("reset", retryable=True), ConnectionResetError("reset")])
async def test_broken_model_stream_is_retried(error):
    events = await collect_events(Agent(BrokenModel(1, error), retry=Retry(wait=0)))
    reason = "The model's answer was cut off before its end" if error is None else "reset"
    assert events[:-2] == [TextDelta("Let "), ModelRetried(reason, 0.0, "Let "), TextDelta("Let "), TextDelta("me")]
    assert events[-1].result.text == "Let me"


async def test_model_stream_without_aclose_is_supported():
    class Pieces:
        def __init__(self):
            self.left = [TextDelta("hi"), StreamEnd()]

        def __aiter__(self):
            return self

        async def __anext__(self):
            if not self.left:
                raise StopAsyncIteration
            return self.left.pop(0)

    class Plain:
        async def reply(self, request):
            raise NotImplementedError

        def stream(self, request):
            return Pieces()

    assert (await collect_events(Agent(Plain())))[-1].result.text == "hi"


async def test_run_waits_for_slow_consumer():
    model = ScriptedModel([sum_of(1, 2), sum_of(3, 4), "done"])
    turns = Agent(model, [add]).iterate("go")
    assert model.requests == []
    for asked in (1, 2, 3):
        event = await anext(turns)
        for _ in range(20):
            await asyncio.sleep(0)
        assert (type(event), len(model.requests)) == (TurnEnded, asked)
    assert (await anext(turns)).result.text == "done"
    with pytest.raises(StopAsyncIteration):
        await anext(turns)


async def test_failed_run_raises_at_end_of_stream():
    turns = Agent(ScriptedModel([sum_of(1, 2), ValueError("broken")]), [add]).iterate("go")
    assert told(ToolMessage(record.reply) for record in (await anext(turns)).tool_calls) == ["3"]
    with pytest.raises(AgentExecutionError, match="broken"):
        await anext(turns)


# --- leaving in the middle


async def test_closing_stream_stops_run_and_keeps_memory_valid():
    ended = asyncio.Event()

    @tool
    async def forever() -> str:
        forever.progress(0.1)
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return "never"

    memory = ConversationMemory()
    agent = Agent(
        ScriptedModel([[sum_of(1, 2), ToolCall("forever")], "on"]), [add, forever], memory=memory, memory_id="default"
    )
    async with aclosing(agent.stream("go")) as events:
        async for event in events:
            if isinstance(event, CallReplied):
                break
    assert ended.is_set()
    assert told(memory.load("default")) == ["3", "Error: The run ended before this call did: it was cancelled"]
    assert (await agent.run("go on")).text == "on"


async def cancel_after(work, turns):
    """Start work as a task, cancel it after a number of turns of the loop, and return its outcome."""
    task = asyncio.ensure_future(work)
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    try:
        return await task  # not by way of gather, which makes a new exception of a cancellation
    except asyncio.CancelledError as error:
        return error


@pytest.mark.parametrize("way", ["run", "stream", "iterate"])
@pytest.mark.parametrize("in_file", [False, True])
async def test_run_can_be_cancelled_at_every_point(way, in_file, tmp_path):
    async def drained(agent):
        if way == "run":
            return await agent.run("go")
        return [event async for event in getattr(agent, way)("go")][-1].result

    class Slow(ScriptedModel):
        async def reply(self, request):
            await asyncio.sleep(0)
            return await super().reply(request)

    ends = set()
    for turns in range(200):
        memory = ConversationMemory(tmp_path / f"{turns}.db" if in_file else None)
        calls = [ToolCall("later", {"text": "x"}), ToolCall("inner", {"input": "y"}), ToolCall("nothing")]
        inner = Agent(Slow([calls[:1], "inside"]), [later], memory=memory, memory_id="default").as_tool(
            "inner", "Repeats"
        )
        agent = Agent(Slow([calls, calls[:1], "done", "on"]), [later, inner], memory=memory, memory_id="default")
        outcome = await cancel_after(drained(agent), turns)
        kept = memory.load("default")
        assert_valid(kept)
        assert_valid(memory.load("default/inner"))
        if isinstance(outcome, asyncio.CancelledError):
            if turns:  # something had begun
                partial = outcome.partial
                assert partial.stop_reason == "cancelled"
                assert_valid(partial.messages)
                assert list(kept) in ([], list(partial.messages))
                again = await Agent(ScriptedModel(["on"])).run("go on", history=partial.messages)
                assert again.text == "on"
            ends.add(len(kept))
            agent = Agent(ScriptedModel(["on"]), [later], memory=memory, memory_id="default")
            assert (await agent.run("go on")).messages[: len(kept)] == list(kept)
        memory.close()
        if not isinstance(outcome, asyncio.CancelledError):
            assert outcome.text == "done"  # later than this there is nothing to cancel
            break
    assert (isinstance(outcome, AgentResult), {0, 5, 7} <= ends) == (True, True)


async def test_cancellation_carries_partial_result():
    begun = asyncio.Event()

    @tool
    async def forever() -> str:
        begun.set()
        await asyncio.Event().wait()
        return "never"

    async def drained(agent):
        return [event async for event in agent.stream("go")]

    for way in (lambda agent: agent.run("go"), drained):
        begun.clear()
        agent = Agent(ScriptedModel([sum_of(1, 2), [sum_of(3, 4), ToolCall("forever")]]), [add, forever])
        task = asyncio.ensure_future(way(agent))
        await asyncio.wait_for(begun.wait(), 30)
        task.cancel()
        with pytest.raises(asyncio.CancelledError) as caught:
            await task
        partial = caught.value.partial
        assert told(partial.messages)[0] == "3"
        assert told(partial.messages)[2] == "Error: The run ended before this call did: it was cancelled"
        assert (partial.usage.tool_calls, len(partial.tool_calls)) == (3, 3)


async def test_cancellation_during_model_request_keeps_question():
    class Silent:
        async def reply(self, request):
            await asyncio.Event().wait()

        async def stream(self, request):
            await asyncio.Event().wait()
            yield StreamEnd()

    memory = ConversationMemory()
    task = asyncio.ensure_future(Agent(Silent(), memory=memory, memory_id="default").run("go"))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError) as caught:
        await task
    assert (caught.value.partial.messages, memory.load("default")) == ([UserMessage("go")], [])


async def test_failing_memory_does_not_hide_first_exception():
    class Full(ConversationMemory):
        def extend(self, *_):
            raise OSError("disk full")

    with pytest.raises(AgentExecutionError, match="disk full") as caught:
        await Agent(ScriptedModel([sum_of(1, 2)]), [add], memory=Full(), memory_id="default").run("go")
    assert [message.role for message in caught.value.partial.messages] == ["user", "assistant", "tool"]

    @tool
    def interrupt() -> str:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as interrupted:
        await Agent(ScriptedModel([ToolCall("interrupt")]), [interrupt], memory=Full(), memory_id="default").run("go")
    assert isinstance(interrupted.value.__context__, OSError)
    assert isinstance(interrupted.value.partial.messages[-1], ToolMessage)


async def test_late_progress_never_follows_end_event(clock):
    told_late, go_on = threading.Event(), threading.Event()

    @tool
    def outlive(context: ToolContext) -> str:
        context.progress(0.1)
        clock.advance(0.2)
        go_on.wait(30)
        context.progress(0.9)
        told_late.set()
        return "late"

    events = []
    async for event in Agent(ScriptedModel([ToolCall("outlive"), "best"]), [outlive], max_seconds=0.2).stream("go"):
        events.append(event)
        if isinstance(event, TurnEnded) and not event.tool_calls:
            # The run is over now, and this is not its last event.
            await asyncio.sleep(0)
            go_on.set()
            assert await asyncio.to_thread(told_late.wait, 30)
            await asyncio.sleep(0)
    assert isinstance(events[-1], Final)
    assert 0.9 not in [event.fraction for event in events if isinstance(event, CallProgress)]


async def test_consumer_time_is_not_counted_as_tool_time(clock):
    async for event in Agent(ScriptedModel([sum_of(1, 2), "done"]), [add]).stream("go"):
        if isinstance(event, CallRequested):
            clock.advance(5)
    assert event.result.usage.tool_seconds == 0
    assert event.result.tool_calls[0].duration == 0


async def test_cancelled_calls_are_in_trace(clock):
    @tool
    async def forever() -> str:
        clock.advance(0.05)
        await asyncio.Event().wait()
        return "never"

    result = await Agent(ScriptedModel([ToolCall("forever"), "best"]), [forever], max_seconds=0.05).run("go")
    (step,) = (step for step in result.trace if step.kind == "tool")
    assert (step.name, step.detail, step.duration > 0) == ("forever", "out of time", True)
    assert result.tool_calls[0].duration == step.duration


async def test_invalid_prompt_is_rejected_before_stream_starts():
    agent = Agent(ScriptedModel([]))
    for way in (agent.stream, agent.iterate):
        with pytest.raises(TypeError, match="A prompt must be a str"):
            way(7)
        with pytest.raises(ToolConfigurationError, match="has no reply"):
            way("go", history=[AssistantMessage("", (sum_of(1, 2),))])
        with pytest.raises(TypeError, match="A run has no setting 'histori'"):
            way("go", histori=[])


def test_stream_can_be_created_outside_event_loop():
    events = Agent(ScriptedModel(["done"])).stream("go")

    async def kinds():
        return [event.kind async for event in events]

    assert asyncio.run(kinds()) == ["text_delta", "turn_ended", "final"]


async def test_model_stream_must_yield_chunks():
    class Wrong:
        async def reply(self, request):
            raise NotImplementedError

        async def stream(self, request):
            yield "text"

    with pytest.raises(AgentExecutionError, match="The model yielded 'text', not a Chunk"):
        await collect_events(Agent(Wrong()))
