"""Events and histories as JSON, and back."""

import json
import math
import subprocess
import sys
from dataclasses import dataclass
from typing import get_args, get_origin

import pytest
from hypothesis import HealthCheck, given, settings, strategies

from toolsemble import Agent, ToolCall, ToolReply, ToolResult, tool
from toolsemble._vocabulary.result import FileContent, ImageContent
from toolsemble.agent import (
    AgentResult,
    ArgumentsDelta,
    CacheHit,
    CallAbandoned,
    CallDelta,
    CallFinished,
    CallProgress,
    CallRepaired,
    CallReplied,
    CallRequested,
    CallRetried,
    CallStarted,
    CallTimedOut,
    Event,
    Final,
    ModelRetried,
    PromptProgress,
    ReviewDecided,
    ReviewRequested,
    RunCancelled,
    RunInterrupted,
    RunParked,
    TextDelta,
    ThoughtDelta,
    ToolCallRecord,
    TraceStep,
    TurnEnded,
    Usage,
    event_from_json,
    event_to_json,
)
from toolsemble.events import ModelReplied, RunFinished, RunStarted
from toolsemble.models import (
    AssistantMessage,
    ScriptedModel,
    SystemMessage,
    TokenUsage,
    ToolMessage,
    Transcript,
    UserMessage,
    messages_from_json,
    messages_to_json,
)
from toolsemble.review import Continue, Edit, ExitEarly, ReviewRequest

CALL = ToolCall("add", '{"a": 1}', "c1")
IMAGE = ImageContent(b"\x89PNG", "image/png")
REPLY = ToolReply(CALL, ToolResult.success("3", {"sum": 3}, contents=[IMAGE], attributes={"retries": 1}), 80, "m", "n")
RECORD = ToolCallRecord(CALL, REPLY, 0.5, 0.25)
REQUEST = ReviewRequest("Adds", "add", {"a": 1}, call_id="c1", repairs=({"step": "keys"},), scopes=("tool",))
MESSAGES = [
    SystemMessage("You are brief."),
    UserMessage("What is it?", (IMAGE,)),
    AssistantMessage("Let me see.", (CALL,), {"anthropic": [{"type": "thinking"}]}),
    ToolMessage(ToolReply(CALL, ToolResult.success("3"))),
    AssistantMessage("Three."),
]
RESULT = AgentResult(
    "Three.", "Three.", [RECORD], Transcript(MESSAGES), Usage(10, 2, cost=0.5), trace=(TraceStep("tool", "add", 0.1),)
)
EVENTS = [
    TextDelta("Rö \ud800 \x1b"),
    ThoughtDelta("Hm."),
    PromptProgress(0.5),
    CallDelta(0, "add", None),
    ArgumentsDelta(0, '{"a'),
    CallRequested(CALL),
    CallRequested(ToolCall("add", {"a": 1})),
    CallReplied(RECORD),
    CallReplied(ToolCallRecord(CALL, ToolReply(CALL, ToolResult.failure("no")))),
    ModelRetried("busy", 2.5, "Ro"),
    TurnEnded(MESSAGES[2], (RECORD,)),
    Final(RESULT),
    RunParked("r1", (REQUEST,)),
    RunInterrupted("r1"),
    RunCancelled("r1"),
    CallStarted("add", "c1", {"a": 1}, run_id="r1", at=1.0),
    CallRepaired("add", "c1", ({"step": "keys", "path": "a", "from": 1, "to": 2},)),
    CallRetried("add", "c1", 1, 0.5, "busy"),
    CallProgress("add", "c1", None, "half"),
    CallTimedOut("add", "c1", 5.0),
    CallAbandoned("add", "c1"),
    CacheHit("add", "c1"),
    CallFinished("add", "c1", "success", REPLY.result),
    CallFinished("add", "c1", "error", error_type="KeyError", error="'a'"),
    ReviewRequested(REQUEST),
    RunStarted("gpt-5", tuple(MESSAGES), ("add",)),
    ModelReplied(MESSAGES[2], 1, "gpt-5", TokenUsage(10, 2, 1), cost=0.5),
    RunFinished("answer", "Three.", 2, TokenUsage(10, 2), None, error_type="X", error="x"),
    ReviewDecided(REQUEST, Continue(always="tool")),
    ReviewDecided(REQUEST, Edit('{"a":2}')),
    ReviewDecided(REQUEST, ExitEarly("no", timed_out=True)),
]


@dataclass
class Trip:
    city: str


def test_every_type_of_event_is_in_this_file():
    assert {type(event) for event in EVENTS} == {get_origin(each) or each for each in get_args(Event)}


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: event.kind)
def test_an_event_survives_json(event):
    text = event_to_json(event)
    assert text.isascii()
    assert "\n" not in text
    assert json.loads(text)["kind"] == event.kind
    assert event_from_json(text) == event
    assert event_from_json(text.encode()) == event


def test_the_run_and_the_time_of_an_event_survive():
    event = event_from_json(event_to_json(CallStarted("add", "c1", run_id="r1", memory_id="ada", at=7.0)))
    assert (event.run_id, event.memory_id, event.at) == ("r1", "ada", 7.0)


async def test_every_event_of_a_stream_survives_json():
    @tool
    def trip(city: str) -> Trip:
        """A trip."""
        return Trip(city)

    agent = Agent(ScriptedModel([ToolCall("trip", {"city": "Rome"}), "Done"]), [trip])
    kinds = []
    async for event in agent.stream("go"):
        again = event_from_json(event_to_json(event))
        kinds.append(again.kind)
    assert kinds[-1] == "final"
    assert again.result.tool_calls[0].reply.result.structured_output == {"city": "Rome"}
    assert [message.text for message in again.result.messages] == [message.text for message in event.result.messages]


def test_objects_become_json_values():
    final = event_from_json(event_to_json(Final(AgentResult("{}", Trip("Rome")))))
    assert final.result.output == {"city": "Rome"}


def test_numbers_that_json_does_not_have_are_left_out():
    assert '"fraction":null' in event_to_json(CallProgress("add", "c1", math.nan))
    assert '"arguments":{"a":"Infinity"}' in event_to_json(CallStarted("add", "c1", {"a": math.inf}))


def test_progress_of_the_wrong_type_can_be_read_back():
    assert event_from_json(event_to_json(CallProgress("add", "c1", "odd", None))) == CallProgress("add", "c1", None, "")
    assert event_from_json(event_to_json(CallProgress("add", "c1", 1, 7))).message == "7"


DEEP = "[" * 100_000
ODD = {"output": [], "error_message": None, "structured_output": None, "contents": [], "attributes": {}}
ASKED = {"description": "", "tool_name": "", "arguments": 1}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "Expecting value"),
        ("[]", "kind: expected one of text_delta, "),
        ('{"kind": ["final"]}', r"kind: expected one of .*, got \['final'\]"),
        ('{"kind": "explode"}', "got 'explode'"),
        ('{"kind": "text_delta"}', "text: missing"),
        ('{"kind": "text_delta", "text": null}', "text: expected a str, got None"),
        ('{"kind": "call_delta", "index": true, "name": ""}', "index: expected an int, got True"),
        ('{"kind": "model_retried", "reason": "", "seconds": "1"}', "seconds: expected a number, got '1'"),
        ('{"kind": "call_requested", "call": []}', "call: TypeError"),
        ('{"kind": "call_requested", "call": {"name": "a"}}', "call: KeyError: 'arguments'"),
        (
            '{"kind": "call_requested", "call": {"name": 1, "arguments": "", "id": null}}',
            "call: TypeError: ToolCall name",
        ),
        ('{"kind": "call_requested", "call": {"name": "a", "arguments": "", "id": 7}}', "the id of a call must be"),
        ('{"kind": "call_replied", "record": 7}', "record: expected an object, got 7"),
        ('{"kind": "turn_ended", "message": {"role": "pope"}}', "message: ValueError: This is not a message"),
        (
            '{"kind": "turn_ended", "message": {"role": "assistant", "text": "", "calls": []}, "tool_calls": {}}',
            "tool_calls: expected an array, got {}",
        ),
        ('{"kind": "final", "result": {"trace": [7]}}', r"result.trace\[0\]: expected an object, got 7"),
        ('{"kind": "final", "result": {"messages": [7]}}', "result.messages: ValueError: Message 0: "),
        ('{"kind": "call_finished", "tool_name": "a", "call_id": "c", "outcome": "great"}', "outcome: expected one of"),
        (
            json.dumps({"kind": "call_finished", "tool_name": "a", "call_id": "c", "outcome": "error", "result": ODD}),
            "result: TypeError: the output and the error message of a result must be texts",
        ),
        (
            '{"kind": "call_repaired", "tool_name": "a", "call_id": "c", "repairs": [7]}',
            r"repairs\[0\]: expected an obj",
        ),
        ('{"kind": "review_requested", "request": {}}', "request.description: missing"),
        (
            json.dumps({"kind": "review_requested", "request": {**ASKED, "timing": 9}}),
            "request.timing: expected one of",
        ),
        (
            json.dumps({"kind": "review_decided", "request": ASKED, "decision": 7}),
            "decision: expected an object, got 7",
        ),
        (
            json.dumps({"kind": "review_decided", "request": ASKED, "decision": {"decision": "maybe"}}),
            "decision.decision: expected continue, edit or reject, got 'maybe'",
        ),
        (DEEP, "(recursion|Stack overflow)"),
    ],
)
def test_rejects_other_text_with_the_place(text, problem):
    with pytest.raises(ValueError, match=f"(?s)^This is not an event: .*{problem}"):
        event_from_json(text)


def test_a_history_survives_json():
    text = messages_to_json(MESSAGES)
    assert text.isascii()
    assert messages_from_json(text) == MESSAGES
    assert messages_from_json(text.encode()) == Transcript(MESSAGES)
    assert messages_from_json("[]") == []


texts = strategies.text(strategies.characters(), max_size=20)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # a busy machine generates slowly
@given(strategies.lists(strategies.builds(UserMessage, texts) | strategies.builds(AssistantMessage, texts)))
def test_any_texts_survive_json(messages):
    assert messages_from_json(messages_to_json(messages)) == messages


def test_a_run_continues_with_a_history_from_json():
    first = Agent(ScriptedModel(["Hello, Ada."])).run_sync("I am Ada.")
    model = ScriptedModel(["Ada."])
    Agent(model).run_sync("Who am I?", history=messages_from_json(messages_to_json(first.messages)))
    assert [message.text for message in model.requests[0]] == ["I am Ada.", "Hello, Ada.", "Who am I?"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "A conversation must be a JSON array of messages: Expecting value"),
        (DEEP, "A conversation must be a JSON array of messages: (maximum recursion|Stack overflow)"),
        ('{"role": "user"}', "A conversation must be a JSON array of messages, not {'role'"),
        ("[[]]", "Message 0: This is not a message"),
        ('[{"role": "user", "text": "a"}, {"role": "user"}]', "Message 1: This is not a message: .*'text'"),
        ('[{"role": "user", "text": 7}]', "Message 0: its text must be a str, not 7"),
        (
            '[{"role": "assistant", "text": "", "calls": [{"name": "a", "arguments": "", "id": "1"}]}]',
            "The call of 'a' has no reply before message 1",
        ),
    ],
)
def test_rejects_what_is_not_a_history(text, problem):
    with pytest.raises(ValueError, match=problem):
        messages_from_json(text)


def test_files_of_results_survive_json():
    reply = ToolReply(CALL, ToolResult.success("", contents=[FileContent(b"a,b", "text/csv", "a.csv")]))
    assert event_from_json(event_to_json(CallReplied(ToolCallRecord(CALL, reply)))).record.reply == reply


FIRST_USE = """
import sys, threading
from toolsemble import ToolCall, ToolReply, ToolResult
from toolsemble.agent import AgentResult, Final, ToolCallRecord, event_from_json, event_to_json
from toolsemble.agent._run.journal_format import read_result, write_result

sys.setswitchinterval(1e-6)
record = ToolCallRecord(ToolCall("add"), ToolReply(ToolCall("add"), ToolResult.success("3")))
result = AgentResult("Three.", "Three.", [record])
threads, failed, start = 12, [], threading.Barrier(12)

def use():
    start.wait(60)
    try:
        assert read_result(write_result(result), "", None).tool_calls == [record]
        assert event_from_json(event_to_json(Final(result))) == Final(result)
    except BaseException as error:
        failed.append(repr(error))

users = [threading.Thread(target=use) for _ in range(threads)]
for user in users: user.start()
for user in users: user.join(60)
print(failed)
"""


@pytest.mark.slow
def test_many_threads_may_use_events_for_the_first_time():
    for _ in range(5):
        done = subprocess.run([sys.executable, "-c", FIRST_USE], capture_output=True, text=True, timeout=60, check=True)
        assert done.stdout == "[]\n"
