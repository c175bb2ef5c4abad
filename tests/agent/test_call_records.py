"""What a run records of its calls: the arguments that ran, and what a reviewer changed."""

import asyncio
import json
import pickle
from dataclasses import InitVar, dataclass
from typing import Annotated, Any

import pytest
from pydantic import Field
from pydantic_core import core_schema

from helpers.sample_tools import Echo
from toolsemble import (
    Agent,
    ConversationMemory,
    ExitEarlyError,
    InvocationParameters,
    Secret,
    Toolbox,
    ToolCall,
    ToolReply,
    ToolResult,
    choose,
    fan_out,
    map_over,
    tool,
)
from toolsemble.agent import ToolCallRecord
from toolsemble.models import ToolMessage, message_from_json, message_to_json
from toolsemble.review import AutoReject, Continue, Edit, ExitEarly
from toolsemble.telemetry import TraceFile, read_trace
from toolsemble.testing import FakeReviewer, RecordingSink, ScriptedModel

NOTE = "Note: a reviewer changed the arguments of"


@tool
def add(a: int, b: int = 1) -> int:
    return a + b


@tool(requires_approval=True)
def pay(amount: int, to: str = "ada") -> str:
    return f"paid {amount} to {to}"


@tool(requires_approval=True)
def log_in(user: str, password: Secret[str] | None = None) -> str:
    return f"{user} {password}"


def run(tools, *calls, **settings):
    return Agent(ScriptedModel([list(calls), "done"]), tools, **settings).run_sync("go")


def record_of(tools, call, **settings):
    return run(tools, call, **settings).tool_calls[0]


@pytest.mark.parametrize(
    "sent", ['{"a": 1, "b": 2}', {"a": 1, "b": 2}, '{"a": "1", "b": 2.0}', "```{'a': 1, 'b': 2}```"]
)
def test_arguments_of_a_record_are_those_that_ran_however_they_were_sent(sent):
    record = record_of([add], ToolCall("add", sent))
    assert (record.arguments, record.reply.text) == ({"a": 1, "b": 2}, "3")


def test_record_of_a_string_tool_has_its_input():
    assert record_of([Echo()], ToolCall("echo", '{"input": "hi"}')).arguments == {"input": "hi"}


def test_arguments_are_json_data_from_before_the_body_could_change_them():
    @dataclass
    class Order:
        items: list[str]
        id: Annotated[str, Field(default_factory=lambda: str(len(ids)))] = ""

    ids: list[str] = []

    @tool
    def ship(order: Order) -> str:
        order.items.clear()
        ids.append(order.id)
        return "shipped"

    record = record_of([ship], ToolCall("ship", '{"order": {"items": ["tea"]}}'))
    assert record.arguments == {"order": {"items": ["tea"], "id": ids[0]}}
    assert json.loads(json.dumps(record.arguments)) == record.arguments
    assert pickle.loads(pickle.dumps(record)).arguments == record.arguments


def test_hook_that_changes_the_arguments_is_seen_in_the_record():
    box = Toolbox([add], before_call=lambda call, _: ToolCall(call.name, {**call.arguments, "b": 5}))
    record = record_of(box, ToolCall("add", '{"a": 1}'))
    assert (record.arguments, record.call.arguments) == ({"a": 1, "b": 5}, {"a": 1})


def test_calls_of_one_turn_keep_their_own_arguments():
    call = ToolCall("add", '{"a": "1"}')
    records = run([add], call, call, ToolCall("add", '{"a": 2}')).tool_calls
    assert [record.arguments["a"] for record in records] == [1, 1, 2]


@pytest.mark.parametrize(
    ("call", "arguments"),
    [
        (ToolCall("add", '{"a": "x"}'), {"a": "x"}),
        (ToolCall("add", '{"a": '), {}),
        (ToolCall("nothing", '{"a": 1}'), {"a": 1}),
        (ToolCall("pay", '{"amount": "5", "to": "bob"}'), {"amount": 5, "to": "bob"}),
    ],
)
def test_record_of_a_refused_call_has_what_was_read_or_requested(call, arguments):
    record = record_of([add, pay], call, review=AutoReject())
    assert (record.arguments, record.reply.is_error) == (arguments, True)


def test_call_that_was_not_run_any_more_has_the_requested_arguments():
    records = run([add], ToolCall("add", '{"a": 1}'), ToolCall("add", '{"a": 2}'), max_tool_calls=1).tool_calls
    assert [record.arguments["a"] for record in records] == [1, 2]


@pytest.mark.parametrize(
    ("call", "arguments"),
    [
        (ToolCall("log_in", '{"user": "ada", "password": "hunter2"}'), {"user": "ada", "password": "**********"}),
        (ToolCall("log_in", '{"user": 5.5, "password": ["hunter2"]}'), {}),
        (ToolCall("login", '{"user": "ada", "password": "hunter2"}'), {}),
    ],
)
def test_secrets_are_masked_in_records(call, arguments):
    assert record_of([log_in], call, review=FakeReviewer(Continue())).arguments == arguments


@tool
async def sign_in(user: str, password: Secret[str]) -> str:
    if user == "stop":
        raise ExitEarlyError("no more")
    return "welcome"


LEAKING = ToolCall("sign_in", '{"user": "hunter2 eve", "password": "hunter2"}')
MASKED = {"user": "********** eve", "password": "**********"}


def assert_masked(result, *expected):
    assert [record.arguments for record in result.tool_calls] == [*expected]
    assert "hunter2" not in str(result)


@pytest.mark.parametrize(
    ("call", "arguments"),
    [
        (LEAKING, MASKED),
        (ToolCall("sign_in", '{"user": "eve", "password": "hunter2'), {}),
        (ToolCall("sing_in", LEAKING.json), {}),
    ],
)
def test_secrets_of_calls_that_did_not_run_are_masked(call, arguments):
    result = run([sign_in, add], ToolCall("add", {"a": 1}), call, max_tool_calls=1)
    assert_masked(result, {"a": 1, "b": 1}, arguments)


async def test_secrets_of_a_call_that_ran_out_of_time_are_masked(clock):
    @tool
    async def log_on(password: Secret[str]) -> None:
        clock.advance(0.5)
        await asyncio.Event().wait()

    model = ScriptedModel([[ToolCall("log_on", {"password": "hunter2"})], "done"])
    assert_masked(await Agent(model, [log_on], max_seconds=0.5).run("go"), {"password": "**********"})


def test_secrets_of_a_call_that_ended_the_run_are_masked():
    with pytest.raises(ExitEarlyError) as caught:
        run([sign_in], ToolCall("sign_in", {"user": "stop", "password": "hunter2"}))
    assert_masked(caught.value.partial, {"user": "stop", "password": "**********"})


async def test_secrets_of_a_cancelled_call_are_masked():
    begun = asyncio.Event()

    @tool
    async def log_on(password: Secret[str]) -> None:
        begun.set()
        await asyncio.Event().wait()

    agent = Agent(ScriptedModel([[ToolCall("log_on", {"password": "hunter2"})], "done"]), [log_on])
    task = asyncio.ensure_future(agent.run("go"))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError) as caught:
        await task
    assert_masked(caught.value.partial, {"password": "**********"})


class Odd:
    """A value that cannot be shown."""

    def __init__(self, text):
        self.text = text

    @classmethod
    def __get_pydantic_core_schema__(cls, *_):
        return core_schema.no_info_plain_validator_function(cls)

    @classmethod
    def __get_pydantic_json_schema__(cls, *_):
        return {"type": "string"}

    def __str__(self):
        raise RuntimeError("no text")

    __repr__ = __str__


def test_object_with_a_secret_that_cannot_be_shown_leaves_nothing():
    @tool
    def take(odd: Odd, password: Secret[str]) -> str:
        return odd.text

    assert record_of([take], ToolCall("take", {"odd": "x", "password": "hunter2"})).arguments == {}


def test_object_that_cannot_be_shown_leaves_the_requested_arguments():
    @tool
    def take(odd: Odd) -> str:
        return odd.text

    record = record_of([take], ToolCall("take", '{"odd": "x"}'))
    assert (record.arguments, record.reply.text) == ({"odd": "x"}, "x")


def test_field_that_an_object_does_not_keep_leaves_the_requested_arguments():
    @dataclass
    class Job:
        command: InitVar[str]

        def __post_init__(self, command):
            self.words = command.split()

    @tool
    def take(job: Job) -> str:
        return str(job.words)

    record = record_of([take], ToolCall("take", '{"job": {"command": "ls -l"}}'))
    assert (record.arguments, record.reply.text) == ({"job": {"command": "ls -l"}}, "['ls', '-l']")


def test_stream_and_a_turn_have_the_same_arguments():
    async def follow():
        agent = Agent(ScriptedModel([ToolCall("add", '{"a": "1"}'), "done"]), [add])
        return [event async for event in agent.stream("go")]

    events = {event.kind: event for event in reversed(asyncio.run(follow()))}
    assert events["call_requested"].call.arguments == {"a": "1"}
    assert events["call_replied"].record.arguments["a"] == 1
    assert events["turn_ended"].tool_calls[0].arguments["a"] == 1


def test_toolbox_keeps_arguments_for_those_who_observe_a_turn():
    seen = {}
    box = Toolbox([add])
    asyncio.run(
        box.aexecute_all([ToolCall("add", {"a": "1"})], observe=lambda index, reply: seen.update({index: reply}))
    )
    assert seen[0].arguments["a"] == 1
    assert box.execute(ToolCall("add", {"a": 1})).arguments is None


def test_edit_is_reported_to_the_model_the_program_and_sinks(tmp_path):
    memory, sink, path = ConversationMemory(), RecordingSink(), tmp_path / "trace.jsonl"
    model = ScriptedModel([ToolCall("pay", '{"amount": 500}'), "done"])
    agent = Agent(
        model, [pay], review=FakeReviewer(Edit('{"amount": 5}')), memory=memory, sinks=[sink, TraceFile(path)]
    )
    result = agent.run_sync("go", memory_id="ada")
    record, ran = result.tool_calls[0], {"amount": 5, "to": "ada"}
    told = f'paid 5 to ada\n\n{NOTE} \'pay\' to {{"amount":5,"to":"ada"}}'
    assert model.requests[1][-1].text == result.messages[2].text == record.reply.text == told
    assert (record.arguments, record.call.arguments) == (ran, {"amount": 500})
    assert record.reply.result.attributes["edited"] == ran
    assert record.reply.result.output == "paid 5 to ada"
    assert memory.load("ada")[1:][1].text == told
    (finished,) = sink.of("call_finished")
    assert (finished.arguments, finished.result.attributes["edited"]) == (ran, ran)
    agent.flush(5)
    assert read_trace(path).calls[0].arguments == ran
    assert '"edited":{"amount":5,"to":"ada"}' in path.read_text()


def test_note_survives_a_stored_message():
    result = run([pay], ToolCall("pay", {"amount": 500}), review=FakeReviewer(Edit('{"amount": 5}')))
    message = result.messages[2]
    assert isinstance(message, ToolMessage)
    assert message_from_json(message_to_json(message)).text == message.text


@pytest.mark.parametrize("provider", ["openai", "anthropic", "google", "bedrock", "mistral", "ollama", "mcp"])
def test_message_for_a_provider_has_the_note_and_the_text_of_a_reply_has_not(provider):
    box = Toolbox([pay], review=FakeReviewer(Edit('{"amount": 5}')))
    reply = box.execute(ToolCall("pay", {"amount": 500}, "c1"))
    assert (reply.text, reply.result.text) == ("paid 5 to ada", "paid 5 to ada")
    assert f"{NOTE} 'pay' to" in str(reply.to_provider(provider)).replace("\\'", "'")
    assert reply.with_edits().text.endswith(reply.edits)


def test_failed_call_tells_the_model_of_the_edit_as_well():
    @tool(requires_approval=True)
    def order(boxes: int) -> str:
        raise ValueError("sold out")

    record = record_of([order], ToolCall("order", {"boxes": 1}), review=FakeReviewer(Edit('{"boxes": 9}')))
    assert record.reply.text == f"Error: sold out\n\n{NOTE} 'order' to {{\"boxes\":9}}"


@pytest.mark.parametrize(
    "answer", [Continue(), Edit('{"amount": 5}'), Edit('{"to": "ada", "amount": 5}'), ExitEarly("no")]
)
def test_nothing_is_said_where_nothing_was_changed(answer):
    record = record_of([pay], ToolCall("pay", '{"amount": "5"}'), review=FakeReviewer(answer))
    assert "reviewer changed" not in record.reply.text
    assert "edited" not in record.reply.result.attributes


def test_secrets_in_an_edit_are_masked_for_the_model():
    review = FakeReviewer(Edit('{"user": "hunter2 eve", "password": "hunter2"}'))
    record = record_of([log_in], ToolCall("log_in", '{"user": "ada", "password": "first"}'), review=review)
    shown = {"user": "********** eve", "password": "**********"}
    assert record.arguments == record.reply.result.attributes["edited"] == shown
    assert "hunter2" not in record.reply.text.removeprefix(record.reply.result.text)


def test_hook_that_replaces_the_result_does_not_hide_the_edit():
    box = Toolbox(
        [pay], review=FakeReviewer(Edit('{"amount": 5}')), after_call=lambda *_: ToolResult.success("other words")
    )
    record = record_of(box, ToolCall("pay", {"amount": 500}))
    assert record.reply.text == f'other words\n\n{NOTE} \'pay\' to {{"amount":5,"to":"ada"}}'


def test_long_edit_is_cut_and_cannot_forge_lines():
    @tool(requires_approval=True)
    def write(text: str) -> str:
        return "written"

    long = json.dumps({"text": "\u2028" + "x" * 5000})
    record = record_of([write], ToolCall("write", {"text": ""}), review=FakeReviewer(Edit(long)))
    note = record.reply.text.removeprefix("written\n\n")
    assert len(note) < 2200
    assert note.endswith("...")
    assert "\u2028" not in note


def test_attribute_of_the_tool_itself_is_not_taken_for_an_edit():
    @tool
    def save(text: str) -> ToolResult:
        return ToolResult.success("saved", attributes={"edited": {"text": "other"}, "steps": "none", "undone": (1,)})

    assert record_of([save], ToolCall("save", {"text": "a"})).reply.text == "saved"


@tool
def double(amount: int) -> dict[str, Any]:
    return {"amount": amount * 2}


@pytest.mark.parametrize(
    ("built", "arguments"),
    [
        (double | pay, {"amount": 250}),
        (pay | Echo(), {"amount": 500}),
        (fan_out(pay, double), {"amount": 500}),
        (fan_out(pay, double, merge=lambda results: results["pay"].output), {"amount": 500}),
        (fan_out(pay, double, merge=lambda results: [results["pay"], "paid"]), {"amount": 500}),
        (map_over(pay), {"items": [{"amount": 500}]}),
        (choose(lambda _: True, pay, double), {"amount": 500}),
    ],
    ids=["last step", "first step", "branch", "merged", "merged in a list", "item", "choice"],
)
def test_edit_inside_a_combined_tool_is_reported_once(built, arguments):
    record = record_of([built], ToolCall(built.name, arguments), review=FakeReviewer(Edit('{"amount": 5}')))
    assert record.reply.text.count(NOTE) == 1
    assert record.reply.text.endswith(f'{NOTE} \'pay\' to {{"amount":5,"to":"ada"}}')


def test_edit_of_a_call_inside_a_body_is_reported_with_its_result():
    @tool
    def through(amount: int, parameters: InvocationParameters) -> ToolResult:
        return Toolbox([pay]).execute(ToolCall("pay", {"amount": amount}), parameters=parameters).result

    record = record_of([through], ToolCall("through", {"amount": 500}), review=FakeReviewer(Edit('{"amount": 5}')))
    assert record.reply.text.endswith(f'{NOTE} \'pay\' to {{"amount":5,"to":"ada"}}')
    assert record.arguments == {"amount": 500}


def test_note_of_the_loop_guard_and_of_an_edit_are_both_there():
    call = ToolCall("pay", {"amount": 500})
    agent = Agent(ScriptedModel([call, call, call, "done"]), [pay], review=FakeReviewer(Edit('{"amount": 5}')))
    text = agent.run_sync("go").tool_calls[-1].reply.text
    assert NOTE in text
    assert "Note: this call has given the same result" in text


def test_edit_can_be_pickled_with_its_result():
    result = (
        run([pay], ToolCall("pay", {"amount": 500}), review=FakeReviewer(Edit('{"amount": 5}'))).tool_calls[0].reply
    )
    restored = pickle.loads(pickle.dumps(result.result.attributes["edited"]))
    assert (restored, restored.tool_name) == ({"amount": 5, "to": "ada"}, "pay")


def test_records_are_made_by_hand_without_arguments():
    call = ToolCall("add", '{"a": 1}')
    record = ToolCallRecord(call, ToolReply(call, ToolResult.success("2")))
    assert record.arguments == {"a": 1}


def test_printed_result_escapes_what_would_control_the_terminal():
    result = Agent(ScriptedModel(["caf\xe9\n\x1b[2Jfree\u202e"])).run_sync("go")
    assert str(result).startswith("caf\xe9\n\\x1b[2Jfree\\u202e\n")
