"""Calls in the streams for browsers: masked secrets, edited arguments, and ids."""

import json

import pytest

from toolsemble import Agent, Secret, ToolCall, ToolContext, tool
from toolsemble.agent import CallReplied, CallRequested, event_from_json, event_to_json
from toolsemble.agent.streams import UiRequest, sse, to_ag_ui, to_vercel
from toolsemble.models import UserMessage
from toolsemble.review import CallbackReview, Continue, Edit
from toolsemble.testing import FakeReviewer, ScriptedModel

REQUEST = UiRequest("t1", UserMessage("go"), run_id="r1")
SENT = '{"user": "hunter2 eve", "password": "hunter2"}'
MASKED = {"user": "********** eve", "password": "**********"}


@tool
def log_in(user: str, password: Secret[str]) -> str:
    return "welcome"


@tool
def add(a: int, b: int = 1) -> int:
    return a + b


@tool(requires_approval=True)
def pay(amount: int, context: ToolContext) -> str:
    context.progress(0.5)
    return f"paid {amount}"


def write_ag_ui(events):
    return to_ag_ui(events, REQUEST)


WRITERS = pytest.mark.parametrize("write", [sse, write_ag_ui, to_vercel])


async def read(stream):
    chunks = [chunk.removeprefix("data: ").strip() async for chunk in stream]
    return [json.loads(chunk) for chunk in chunks if chunk != "[DONE]"]


def stream_of(*calls, **settings):
    settings = {"review": CallbackReview(lambda _: Continue()), **settings}
    return Agent(ScriptedModel([[*calls], "done"]), [log_in, add, pay], **settings).stream("go")


@WRITERS
@pytest.mark.parametrize(
    "call",
    [
        ToolCall("log_in", SENT, "c1"),
        ToolCall("log_in", SENT[:-2], "c1"),
        ToolCall("log_in", json.loads(SENT)),
        ToolCall("login", SENT, "c1"),
    ],
    ids=["whole", "cut off", "without id", "misspelled"],
)
async def test_secrets_do_not_reach_a_browser(write, call):
    payloads = await read(write(stream_of(call)))
    assert call.name in str(payloads)
    assert "done" in str(payloads)
    assert "hunter2" not in str(payloads)


@WRITERS
async def test_secrets_of_a_call_that_is_not_run_do_not_reach_a_browser(write):
    calls = ToolCall("add", {"a": 1}, "c1"), ToolCall("log_in", SENT, "c2")
    payloads = await read(write(stream_of(*calls, max_tool_calls=1)))
    assert "log_in" in str(payloads)
    assert "hunter2" not in str(payloads)


async def test_a_browser_gets_the_other_arguments_of_a_call_with_secrets():
    stream = stream_of(ToolCall("log_in", SENT, "c1"), ToolCall("add", '{"a": 1}', "c2"))
    events = [event async for event in stream]

    async def again():
        for event in events:
            yield event_from_json(event_to_json(event))

    for source in (again(), stream_of(ToolCall("log_in", SENT, "c1"), ToolCall("add", '{"a": 1}', "c2"))):
        payloads = await read(sse(source))
        assert {each["index"] for each in payloads if each["kind"] == "arguments_delta"} == {1}
        requested = [each["call"]["arguments"] for each in payloads if each["kind"] == "call_requested"]
        assert requested == [MASKED, {"a": 1}]
        replied = [(each["call"]["id"], each["arguments"]) for each in payloads if each["kind"] == "call_replied"]
        assert sorted(replied) == [("c1", MASKED), ("c2", {"a": 1, "b": 1})]


async def test_protocols_get_the_other_arguments_of_a_call_with_secrets():
    ag_ui = await read(write_ag_ui(stream_of(ToolCall("log_in", SENT, "c1"))))
    assert [json.loads(each["delta"]) for each in ag_ui if each["type"] == "TOOL_CALL_ARGS"] == [MASKED]
    vercel = await read(to_vercel(stream_of(ToolCall("log_in", SENT, "c1"))))
    assert [each["input"] for each in vercel if each["type"] == "tool-input-available"] == [MASKED]


async def test_a_program_gets_what_the_model_wrote():
    events = [event async for event in stream_of(ToolCall("log_in", SENT, "c1"))]
    (requested,) = [event for event in events if isinstance(event, CallRequested)]
    assert (requested.call.json, requested.arguments) == (SENT, MASKED)


async def test_a_final_answer_is_streamed_beside_tools_with_secrets():
    answer = ToolCall("final_answer", {"answer": 7}, "c1")
    agent = Agent(ScriptedModel([answer]), [log_in], output_type=int)
    deltas = [event for event in [event async for event in agent.stream("go")] if event.kind == "arguments_delta"]
    assert deltas
    assert not any(event.secret for event in deltas)


def edited(call):
    return stream_of(call, review=FakeReviewer(Edit('{"amount": 5}')))


async def test_an_edit_is_in_the_reply_for_a_browser():
    payloads = await read(sse(edited(ToolCall("pay", {"amount": 500}, "c1"))))
    (replied,) = [each for each in payloads if each["kind"] == "call_replied"]
    assert replied["call"] == {"id": "c1", "name": "pay", "arguments": {"amount": 500}}
    assert replied["arguments"] == {"amount": 5}


async def test_an_edit_replaces_the_input_for_vercel():
    parts = await read(to_vercel(edited(ToolCall("pay", {"amount": 500}, "c1"))))
    shown = [(each["toolCallId"], each["input"]) for each in parts if each["type"] == "tool-input-available"]
    assert shown == [("c1", {"amount": 500}), ("c1", {"amount": 5})]


async def test_an_edit_replaces_the_arguments_for_ag_ui():
    calls = ToolCall("add", {"a": 1}, "c0"), ToolCall("pay", {"amount": 500}, "c1")
    events = await read(write_ag_ui(stream_of(*calls, review=FakeReviewer(Edit('{"amount": 5}')))))
    (snapshot,) = [each for each in events if each["type"] == "MESSAGES_SNAPSHOT"]
    (assistant,) = [each for each in snapshot["messages"] if each["role"] == "assistant"]
    shown = {each["id"]: json.loads(each["function"]["arguments"]) for each in assistant["toolCalls"]}
    assert shown == {"c0": {"a": 1}, "c1": {"amount": 5}}


@pytest.mark.parametrize("own", [None, "", "c1"])
async def test_a_call_has_one_id_in_all_events(own):
    stream = stream_of(ToolCall("pay", {"amount": 5}, own), review=CallbackReview(lambda _: Continue()))
    payloads = {each["kind"]: each for each in await read(sse(stream))}
    ids = {
        payloads["call_requested"]["call"]["id"],
        payloads["review_requested"]["request"]["call_id"],
        payloads["review_decided"]["call_id"],
        payloads["call_progress"]["call_id"],
        payloads["call_replied"]["call"]["id"],
    }
    assert len(ids) == 1
    assert own in (None, "", *ids)


async def test_a_repeated_id_of_the_provider_is_replaced_in_all_events():
    call = ToolCall("pay", {"amount": 5}, "c1")
    agent = Agent(ScriptedModel([call, call, "done"]), [pay], review=CallbackReview(lambda _: Continue()))
    payloads = await read(sse(agent.stream("go")))
    requested = [each["call"]["id"] for each in payloads if each["kind"] == "call_requested"]
    assert [each["call_id"] for each in payloads if each["kind"] == "call_progress"] == requested
    assert len({*requested}) == 2


async def test_a_call_without_an_id_has_none_in_the_conversation():
    model = ScriptedModel([ToolCall("add", {"a": 1}), "done"])
    events = [event async for event in Agent(model, [add]).stream("go")]
    (asked, replied) = model.asked[-1].messages[-2:]
    assert (asked.calls[0].id, replied.call.id) == (None, None)
    (requested,) = [event.call for event in events if isinstance(event, CallRequested)]
    (record,) = [event.record for event in events if isinstance(event, CallReplied)]
    assert requested.id
    assert record.call == requested
    assert events[-1].result.tool_calls[0].call == asked.calls[0]


def test_rejects_a_reply_in_json_whose_arguments_are_no_object():
    text = event_to_json(CallReplied(next(iter(run_add().tool_calls))))
    assert event_from_json(text).record.arguments == {"a": 1, "b": 1}
    with pytest.raises(ValueError, match="the arguments of a reply must be an object, not 7"):
        event_from_json(text.replace('"arguments":{"a":1,"b":1}', '"arguments":7'))


def run_add():
    return Agent(ScriptedModel([ToolCall("add", {"a": 1}, "c1"), "done"]), [add]).run_sync("go")
