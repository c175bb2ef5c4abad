"""The events of runs that sinks receive."""

import re
import sys

import pytest

from toolsemble import Agent, AgentExecutionError, ToolCall, tool
from toolsemble._vocabulary.errors import ModelError
from toolsemble.agent import Prices, Retry
from toolsemble.events import CallFinished, ModelReplied, ModelRetried, RunEvent, RunFinished, RunStarted
from toolsemble.models import AssistantMessage, ChatReply, SystemMessage, TokenUsage, UserMessage
from toolsemble.telemetry import ConsoleSink, TraceFile, read_trace
from toolsemble.testing import ScriptedModel


@tool
def shout(text: str) -> str:
    """Shout."""
    return text.upper()


@pytest.fixture
def seen():
    return []


def run_events(seen):
    return [event for event in seen if isinstance(event, RunEvent)]


async def test_a_run_sends_its_start_its_replies_and_its_end(seen):
    call = ToolCall("shout", {"text": "x"}, "call_1")
    replies = [call, ChatReply("Done", usage=TokenUsage(1000, 500, 100))]
    agent = Agent(ScriptedModel(replies), [shout], role="a crier", prices=Prices(1000, 2000), sinks=[seen.append])
    await agent.run("Shout!", run_id="run_1", memory_id="ada")
    assert run_events(seen) == [
        RunStarted("ScriptedModel", (SystemMessage("You are a crier."), UserMessage("Shout!")), ("shout",)),
        ModelReplied(AssistantMessage("", (call,)), 1, "ScriptedModel", TokenUsage(), "calls", cost=0.0),
        ModelReplied(AssistantMessage("Done"), 2, "ScriptedModel", TokenUsage(1000, 500, 100), cost=2.0),
        RunFinished("answer", "Done", 2, TokenUsage(1000, 500, 100), 2.0),
    ]
    assert {(event.run_id, event.memory_id, event.agent_role) for event in seen} == {("run_1", "ada", "a crier")}


async def test_without_prices_there_is_no_cost(seen):
    await Agent(ScriptedModel(["Done"]), sinks=[seen.append]).run("go")
    assert [event.cost for event in seen[1:]] == [None, None]


async def test_the_conversation_in_memory_is_part_of_the_start(seen):
    agent = Agent(ScriptedModel(["One", "Two"]), sinks=[seen.append])
    first = await agent.run("First")
    await agent.run("Second", history=first.messages)
    started = [event for event in seen if event.kind == "run_started"]
    assert [each.text for each in started[1].messages] == ["First", "One", "Second"]


async def test_a_failed_run_sends_its_error(seen):
    with pytest.raises(AgentExecutionError):
        await Agent(ScriptedModel([ValueError("broken")]), sinks=[seen.append]).run("go")
    end = seen[-1]
    assert (end.kind, end.stop_reason, end.error) == ("run_finished", "error", "broken")
    assert end.error_type == "toolsemble.AgentExecutionError"


async def test_an_invalid_prompt_sends_an_end_without_a_start(seen):
    with pytest.raises(Exception, match="nothing to answer"):
        await Agent(ScriptedModel([]), sinks=[seen.append]).run(" ")
    assert [(event.kind, event.stop_reason) for event in seen] == [("run_finished", "configuration_error")]


async def test_a_retry_is_sent(seen):
    model = ScriptedModel([ModelError("busy", retryable=True), "Done"])
    await Agent(model, sinks=[seen.append], retry=Retry(2, wait=0)).run("go", run_id="run_1")
    assert seen[1] == ModelRetried("busy", 0.0)
    assert seen[1].run_id == "run_1"


async def test_dynamic_tools_have_no_names_at_the_start(seen):
    await Agent(ScriptedModel(["Done"]), lambda _: [shout], sinks=[seen.append]).run("go")
    assert seen[0].tools == ()


async def test_events_of_a_nested_run_reach_the_sinks_and_the_stream_of_the_outer_one():
    inner = Agent(ScriptedModel([ToolCall("shout", {"text": "x"}), "said"]), [shout]).as_tool("inner", "Asks")
    agent = Agent(ScriptedModel([ToolCall("inner", {"input": "go"}, "call_1"), "Done"]), [inner])
    seen = [event async for event in agent.stream("go")]
    nested = run_events(seen)
    assert [event.kind for event in nested] == ["run_started", "model_replied", "model_replied", "run_finished"]
    assert {event.parent_id for event in nested} == {"call_1"}


async def test_all_events_have_the_attributes_of_calls(seen):
    await Agent(ScriptedModel([ToolCall("shout", {"text": "x"}, "c1"), "Done"]), [shout], sinks=[seen.append]).run("go")
    names = [(event.kind, event.tool_name, event.call_id) for event in seen]
    assert names[0] == ("run_started", "", "")
    assert ("call_finished", "shout", "c1") in names


class TestTraceFile:
    async def trace(self, path, **settings):
        model = ScriptedModel([ToolCall("shout", {"text": "x"}, "c1"), ChatReply("Done", usage=TokenUsage(10, 5))])
        seen = []
        agent = Agent(model, [shout], sinks=[TraceFile(path, **settings), seen.append])
        await agent.run("Private question")
        return seen, read_trace(path)

    async def test_messages_come_back_as_they_were(self, tmp_path):
        seen, trace = await self.trace(tmp_path / "trace.jsonl", messages=True)
        assert list(trace.events) == seen
        assert [event.run_id for event in trace.events] == [event.run_id for event in seen]

    async def test_messages_are_left_out_by_default(self, tmp_path):
        _, trace = await self.trace(tmp_path / "trace.jsonl")
        assert "Private question" not in (tmp_path / "trace.jsonl").read_text()
        assert [event for event in trace.events if isinstance(event, RunEvent)] == [
            RunStarted("ScriptedModel", (), ("shout",)),
            ModelReplied(AssistantMessage(), 1, "ScriptedModel", TokenUsage(), "calls"),
            ModelReplied(AssistantMessage(), 2, "ScriptedModel", TokenUsage(10, 5)),
            RunFinished("answer", "", 2, TokenUsage(10, 5)),
        ]
        assert [call.tool_name for call in trace.calls] == ["shout"]
        assert any(isinstance(event, CallFinished) for event in trace.events)


async def test_the_console_shows_runs(capsys):
    model = ScriptedModel([ToolCall("shout", {"text": "x"}, "c1"), ModelError("busy", retryable=True), "Done"])
    agent = Agent(model, [shout], sinks=[ConsoleSink(sys.stdout, times=False)], retry=Retry(2, wait=0))
    await agent.run("Shout!", run_id="r1")
    lines = [re.sub(r"\d+ ms", "T", line) for line in capsys.readouterr().out.splitlines()]
    assert [line for line in lines if line.startswith("run ")] == [
        "run r1: started with ScriptedModel",
        "run r1: ScriptedModel replied in T, 0 tokens, calls shout",
        "run r1: the model failed (busy); retry in 0 s",
        "run r1: ScriptedModel replied in T, 0 tokens",
        "run r1: answer in T",
    ]


async def test_the_console_shows_messages_on_request(capsys):
    sink = ConsoleSink(sys.stdout, times=False, messages=True)
    with pytest.raises(AgentExecutionError):
        await Agent(ScriptedModel([ValueError("broken")]), sinks=[sink]).run("Hello", run_id="r1")
    await Agent(ScriptedModel(["Done"]), sinks=[sink]).run("Hello", run_id="r2")
    lines = [re.sub(r"\d+ ms", "T", line) for line in capsys.readouterr().out.splitlines()]
    assert lines == [
        "run r1: started with ScriptedModel: Hello",
        "run r1: error in T: broken: ",
        "run r2: started with ScriptedModel: Hello",
        "run r2: ScriptedModel replied in T, 0 tokens: Done",
        "run r2: answer in T: Done",
    ]


async def test_sinks_see_the_typed_answer_of_the_model(seen):
    agent = Agent(ScriptedModel([ToolCall("final_answer", {"answer": 7})]), output_type=int, sinks=[seen.append])
    assert (await agent.run("How many?")).output == 7
    (reply,) = [event for event in seen if isinstance(event, ModelReplied)]
    assert [(call.name, call.arguments) for call in reply.message.calls] == [("final_answer", {"answer": 7})]
