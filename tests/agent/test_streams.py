"""Runs for browsers: server-sent events, AG-UI, and the Vercel AI SDK."""

import asyncio
import json
import logging
from contextlib import aclosing
from dataclasses import dataclass

import pytest
from ag_ui.core import Event as AgUiEvent, RunAgentInput
from pydantic import TypeAdapter

from toolsemble import (
    Agent,
    AgentExecutionError,
    ModelError,
    ReturnBehavior,
    ToolCall,
    ToolContext,
    ToolDefinitionError,
    tool,
)
from toolsemble._vocabulary.result import ImageContent
from toolsemble.agent import event_from_json, event_to_json
from toolsemble.agent.streams import (
    SSE_HEADERS,
    VERCEL_HEADERS,
    UiRequest,
    read_ag_ui,
    read_vercel,
    sse,
    to_ag_ui,
    to_vercel,
)
from toolsemble.models import (
    AssistantMessage,
    ChatReply,
    PromptProgress,
    SystemMessage,
    TextDelta,
    ThoughtDelta,
    UserMessage,
)
from toolsemble.review import CallbackReview, Continue, Edit, ExitEarly
from toolsemble.testing import ScriptedModel

LOCATION = "postgres://admin:hunter2@10.0.0.5"
REQUEST = UiRequest(
    "t1", UserMessage("go"), run_id="r1", messages=({"id": "m1", "role": "user", "content": "go"},)
)  # fmt: skip


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool
def fail() -> str:
    """Fail."""
    raise RuntimeError(f"no connection to {LOCATION}")


@tool
def report(context: ToolContext) -> str:
    """Report progress."""
    context.progress(0.5, "half")
    context.progress(float("nan"))
    return "done"


@tool(return_behavior=ReturnBehavior.IMMEDIATE)
def shout() -> str:
    """Answer at once."""
    return "AT ONCE"


@dataclass
class Trip:
    city: str


class Breaking(ScriptedModel):
    """Its first reply breaks off after some text, or before it."""

    def __init__(self, replies, text):
        super().__init__(replies)
        self.text = text

    async def stream(self, request):
        if not self.asked:
            self.asked.append(request)
            if self.text:
                yield TextDelta(self.text)
            raise ModelError(f"{LOCATION} broke", retryable=True, retry_after=0)
        async for chunk in super().stream(request):
            yield chunk


class Thinking(ScriptedModel):
    """Each reply begins with its own chunks; a chunk that is an exception breaks the reply off."""

    def __init__(self, replies, *beginnings):
        super().__init__(replies)
        self.beginnings = list(beginnings)

    async def stream(self, request):
        for chunk in self.beginnings.pop(0) if self.beginnings else ():
            if isinstance(chunk, Exception):
                raise chunk
            yield chunk
        async for chunk in super().stream(request):
            yield chunk


BREAK = ModelError("broke", retryable=True, retry_after=0)
SUM = ToolCall("add", '{"a": 1, "b": 2}', "c1")


def agent_of(*replies, **settings):
    tools = settings.pop("tools", [add, fail, report, shout])
    return Agent(ScriptedModel(replies), tools, **settings)


async def read(stream):
    """Return the payloads of a stream; each chunk is one event of ASCII."""
    payloads = []
    async for chunk in stream:
        assert chunk.startswith("data: ")
        assert chunk.endswith("\n\n")
        assert chunk.count("\n") == 2
        assert chunk.isascii()
        text = chunk[6:-2]
        payloads.append(text if text == "[DONE]" else json.loads(text))
    return payloads


async def sse_of(agent, **settings):
    return await read(sse(agent.stream("go"), **settings))


AG_UI = TypeAdapter(AgUiEvent)


def check_order(events):
    """Check the rules by which AG-UI's own client verifies a stream."""
    messages, calls, ended = set(), set(), False
    assert events[0]["type"] == "RUN_STARTED"
    for event in events[1:]:
        assert not ended
        match event["type"]:
            case "TEXT_MESSAGE_START" | "REASONING_START":
                assert event["messageId"] not in messages
                messages.add(event["messageId"])
            case "TEXT_MESSAGE_CONTENT" | "REASONING_MESSAGE_CONTENT":
                assert event["messageId"] in messages
                assert event["delta"]
            case "TEXT_MESSAGE_END" | "REASONING_END":
                messages.remove(event["messageId"])
            case "REASONING_MESSAGE_START" | "REASONING_MESSAGE_END":
                assert event["messageId"] in messages
            case "TOOL_CALL_START":
                assert event["toolCallId"] not in calls
                calls.add(event["toolCallId"])
            case "TOOL_CALL_ARGS":
                assert event["toolCallId"] in calls
            case "TOOL_CALL_END":
                calls.remove(event["toolCallId"])
            case "RUN_FINISHED" | "RUN_ERROR":
                assert not messages | calls
                ended = True
    assert ended


async def ag_ui_of(agent, request=REQUEST, **settings):
    events = await read(to_ag_ui(agent.stream("go"), request, **settings))
    check_order(events)
    for event in events:
        assert AG_UI.validate_python(event).model_dump(mode="json", by_alias=True) == event
    return events


# The keys of each part that all versions of the SDK accept; version 5 refuses others.
PARTS = {
    "start": {"messageId"},
    "start-step": set(),
    "text-start": {"id"},
    "text-delta": {"id", "delta"},
    "text-end": {"id"},
    "reasoning-start": {"id"},
    "reasoning-delta": {"id", "delta"},
    "reasoning-end": {"id"},
    "tool-input-available": {"toolCallId", "toolName", "input"},
    "tool-output-available": {"toolCallId", "output"},
    "tool-output-error": {"toolCallId", "errorText"},
    "finish-step": set(),
    "finish": set(),
    "error": {"errorText"},
}


async def vercel_of(agent, **settings):
    *parts, done = await read(to_vercel(agent.stream("go"), **settings))
    assert done == "[DONE]"
    open_texts, calls = set(), set()
    for part in parts:
        kind = part["type"]
        if kind.startswith("data-"):
            assert part.keys() - {"transient"} == {"type", "data"}
        elif kind != "reset-step":
            assert part.keys() == PARTS[kind] | {"type"}
        match kind:
            case "text-start" | "reasoning-start":
                open_texts.add(part["id"])
            case "text-delta" | "reasoning-delta":
                assert part["id"] in open_texts
            case "text-end" | "reasoning-end":
                open_texts.remove(part["id"])
            case "tool-input-available":
                calls.add(part["toolCallId"])
            case "tool-output-available" | "tool-output-error":
                assert part["toolCallId"] in calls
    assert not open_texts
    return parts


def kinds(payloads, name="type"):
    return [payload[name] for payload in payloads]


async def test_sse_yields_what_a_browser_may_see():
    agent = agent_of(ChatReply("Let me", (SUM,)), "It is 3", role="a secret role")
    payloads = await sse_of(agent)
    assert payloads == [
        {"kind": "text_delta", "text": "Let "},
        {"kind": "text_delta", "text": "me"},
        {"kind": "call_delta", "index": 0, "name": "add"},
        {"kind": "arguments_delta", "index": 0, "text": '{"a": 1,'},
        {"kind": "arguments_delta", "index": 0, "text": ' "b": 2}'},
        {"kind": "call_requested", "call": {"id": "c1", "name": "add", "arguments": {"a": 1, "b": 2}}},
        {
            "kind": "call_replied",
            "call": {"id": "c1", "name": "add", "arguments": {"a": 1, "b": 2}},
            "arguments": {"a": 1, "b": 2},
            "text": "3",
            "is_error": False,
        },
        {"kind": "turn_ended", "text": "Let me"},
        *({"kind": "text_delta", "text": text} for text in ("It ", "is ", "3")),
        {"kind": "turn_ended", "text": "It is 3"},
        {"kind": "final", "text": "It is 3", "stop_reason": "answer"},
    ]
    assert "secret" not in str(payloads)


async def test_sse_can_yield_everything_for_a_program():
    agent = agent_of(SUM, "It is 3")
    chunks = [chunk async for chunk in sse(agent.stream("go"), encode=event_to_json)]
    events = [event_from_json(chunk.removeprefix("data: ")) for chunk in chunks]
    assert events[-1].result.messages[-1] == AssistantMessage("It is 3")


async def test_sse_leaves_out_events_and_keeps_lines_together():
    def encode(event):
        return "a\n\nid: 7\rb\r\nc\u2028" if event.kind == "final" else None

    chunks = [chunk async for chunk in sse(agent_of("Rome").stream("go"), encode=encode)]
    assert chunks == ["data: a\ndata: \ndata: id: 7\ndata: b\ndata: c\u2028\n\n"]


def test_the_headers_name_the_formats():
    assert SSE_HEADERS["content-type"] == "text/event-stream"
    assert VERCEL_HEADERS["content-type"] == "text/event-stream"
    assert VERCEL_HEADERS["x-vercel-ai-ui-message-stream"] == "v1"


async def test_ag_ui_yields_the_events_of_the_protocol():
    events = await ag_ui_of(agent_of(ChatReply("Let me", (SUM,)), "It is 3"))
    first, last = events[1]["messageId"], events[-3]["messageId"]
    ids = {"threadId": "t1", "runId": "r1"}
    assert events == [
        {"type": "RUN_STARTED", **ids},
        {"type": "TEXT_MESSAGE_START", "messageId": first, "role": "assistant"},
        {"type": "TEXT_MESSAGE_CONTENT", "messageId": first, "delta": "Let "},
        {"type": "TEXT_MESSAGE_CONTENT", "messageId": first, "delta": "me"},
        {"type": "TEXT_MESSAGE_END", "messageId": first},
        {"type": "TOOL_CALL_START", "toolCallId": "c1", "toolCallName": "add", "parentMessageId": first},
        {"type": "TOOL_CALL_ARGS", "toolCallId": "c1", "delta": '{"a": 1, "b": 2}'},
        {"type": "TOOL_CALL_END", "toolCallId": "c1"},
        {**events[8], "type": "TOOL_CALL_RESULT", "toolCallId": "c1", "content": "3", "role": "tool"},
        {"type": "TEXT_MESSAGE_START", "messageId": last, "role": "assistant"},
        *({"type": "TEXT_MESSAGE_CONTENT", "messageId": last, "delta": text} for text in ("It ", "is ", "3")),
        {"type": "TEXT_MESSAGE_END", "messageId": last},
        {"type": "RUN_FINISHED", **ids, "result": {"stop_reason": "answer"}},
    ]
    assert first != last


async def test_vercel_yields_the_parts_of_the_protocol():
    parts = await vercel_of(agent_of(ChatReply("Let me", (SUM,)), "It is 3"))
    first, last = parts[2]["id"], parts[10]["id"]
    assert parts == [
        {"type": "start", "messageId": parts[0]["messageId"]},
        {"type": "start-step"},
        {"type": "text-start", "id": first},
        {"type": "text-delta", "id": first, "delta": "Let "},
        {"type": "text-delta", "id": first, "delta": "me"},
        {"type": "text-end", "id": first},
        {"type": "tool-input-available", "toolCallId": "c1", "toolName": "add", "input": {"a": 1, "b": 2}},
        {"type": "tool-output-available", "toolCallId": "c1", "output": "3"},
        {"type": "finish-step"},
        {"type": "start-step"},
        {"type": "text-start", "id": last},
        *({"type": "text-delta", "id": last, "delta": text} for text in ("It ", "is ", "3")),
        {"type": "text-end", "id": last},
        {"type": "finish-step"},
        {"type": "finish"},
    ]
    assert first != last


THOUGHTS = [ThoughtDelta("One "), ThoughtDelta(""), ThoughtDelta("and two")]


def thinking_agent(*beginnings):
    return Agent(Thinking([ChatReply("", (SUM,)), "3"], *beginnings), [add])


@pytest.mark.parametrize("write", [sse_of, ag_ui_of, vercel_of])
async def test_thoughts_are_not_shown_unless_they_are_wanted(write):
    hidden = await write(thinking_agent(THOUGHTS))
    assert "One" not in str(hidden)
    assert len(hidden) == len(await write(thinking_agent()))
    assert "One" in str(await write(thinking_agent(THOUGHTS), show_thoughts=True))


async def test_sse_shows_thoughts_on_request():
    payloads = await sse_of(thinking_agent([ThoughtDelta("One")]), show_thoughts=True)
    assert payloads[0] == {"kind": "thought_delta", "text": "One"}


async def test_ag_ui_shows_thoughts_as_reasoning_before_a_call():
    events = await ag_ui_of(thinking_agent(THOUGHTS), show_thoughts=True)
    ids = {"messageId": events[1]["messageId"]}
    assert events[1:7] == [
        {"type": "REASONING_START", **ids},
        {"type": "REASONING_MESSAGE_START", **ids, "role": "reasoning"},
        {"type": "REASONING_MESSAGE_CONTENT", **ids, "delta": "One "},
        {"type": "REASONING_MESSAGE_CONTENT", **ids, "delta": "and two"},
        {"type": "REASONING_MESSAGE_END", **ids},
        {"type": "REASONING_END", **ids},
    ]
    assert events[7]["type"] == "TOOL_CALL_START"


async def test_vercel_shows_thoughts_as_reasoning_before_a_call():
    parts = await vercel_of(thinking_agent(THOUGHTS), show_thoughts=True)
    ids = {"id": parts[2]["id"]}
    assert parts[2:6] == [
        {"type": "reasoning-start", **ids},
        {"type": "reasoning-delta", **ids, "delta": "One "},
        {"type": "reasoning-delta", **ids, "delta": "and two"},
        {"type": "reasoning-end", **ids},
    ]
    assert parts[6]["type"] == "tool-input-available"


async def test_thoughts_end_where_text_begins():
    beginning = [ThoughtDelta("One"), TextDelta("It"), ThoughtDelta("two"), TextDelta(" is ")]
    events = await ag_ui_of(Agent(Thinking(["3"], beginning)), show_thoughts=True)
    reasoning = ["REASONING_START", "REASONING_MESSAGE_START", "REASONING_MESSAGE_CONTENT", "REASONING_MESSAGE_END"]
    content = "TEXT_MESSAGE_CONTENT"
    assert kinds(events) == [
        "RUN_STARTED",
        *(*reasoning, "REASONING_END"),
        *("TEXT_MESSAGE_START", content),
        *(*reasoning, "REASONING_END"),
        *(content, content, "TEXT_MESSAGE_END", "RUN_FINISHED"),
    ]
    parts = await vercel_of(Agent(Thinking(["3"], beginning)), show_thoughts=True)
    reasoning = ["reasoning-start", "reasoning-delta", "reasoning-end"]
    assert kinds(parts)[2:-2] == [
        *reasoning,
        *("text-start", "text-delta", "text-end"),
        *reasoning,
        *("text-start", "text-delta", "text-delta", "text-end"),
    ]


@pytest.mark.parametrize("beginning", [[ThoughtDelta("One"), BREAK], [ThoughtDelta("One"), TextDelta("It"), BREAK]])
async def test_thoughts_of_a_reply_that_begins_anew_are_removed(beginning):
    events = await ag_ui_of(thinking_agent(beginning, [ThoughtDelta("Two")]), show_thoughts=True)
    place = kinds(events).index("MESSAGES_SNAPSHOT")
    assert events[place]["messages"] == list(REQUEST.messages)
    assert events[place + 1]["type"] == "REASONING_START"
    parts = await vercel_of(thinking_agent(beginning, [ThoughtDelta("Two")]), show_thoughts=True)
    place = kinds(parts).index("reset-step")
    assert kinds(parts)[place - 1 : place + 2] in (
        ["reasoning-end", "reset-step", "reasoning-start"],
        ["text-end", "reset-step", "reasoning-start"],
    )


async def test_a_snapshot_of_ag_ui_keeps_the_thoughts_of_the_turns_before():
    agent = thinking_agent([ThoughtDelta("One")], [ThoughtDelta("Two"), TextDelta("It"), BREAK])
    events = await ag_ui_of(agent, show_thoughts=True)
    snapshot = next(event["messages"] for event in events if event["type"] == "MESSAGES_SNAPSHOT")
    assert [message["role"] for message in snapshot] == ["user", "reasoning", "assistant", "tool"]
    assert snapshot[1] == {"id": events[1]["messageId"], "role": "reasoning", "content": "One"}


async def test_a_retry_of_an_inner_agent_keeps_the_thoughts():
    def agent():
        inner = Agent(Breaking(["Sunny."], "Rome is su")).as_tool("inner", "Tells the weather")
        replies = [ToolCall("inner", {"input": "x"}, "c1"), "Done"]
        return Agent(Thinking(replies, [ThoughtDelta("One")]), [inner])

    assert "MESSAGES_SNAPSHOT" not in kinds(await ag_ui_of(agent(), show_thoughts=True))
    assert "reset-step" not in kinds(await vercel_of(agent(), show_thoughts=True))


async def test_an_exception_ends_open_thoughts():
    beginning = [ThoughtDelta("One"), ModelError("broke")]
    events = await ag_ui_of(Agent(Thinking([], beginning)), show_thoughts=True)
    assert kinds(events)[-3:] == ["REASONING_MESSAGE_END", "REASONING_END", "RUN_ERROR"]
    parts = await vercel_of(Agent(Thinking([], beginning)), show_thoughts=True)
    assert kinds(parts)[-3:] == ["reasoning-end", "finish-step", "error"]


async def test_the_progress_of_a_prompt_is_shown():
    def agent():
        return Agent(Thinking(["3"], [PromptProgress(0.5), PromptProgress(float("nan"))]))

    payloads = await sse_of(agent())
    assert payloads[:2] == [{"kind": "prompt_progress", "fraction": value} for value in (0.5, None)]
    events = await ag_ui_of(agent())
    assert events[1] == {"type": "CUSTOM", "name": "prompt_progress", "value": {"fraction": 0.5}}
    parts = await vercel_of(agent())
    assert parts[1] == {"type": "data-prompt-progress", "data": {"fraction": 0.5}, "transient": True}


async def test_a_reply_that_begins_anew_is_reported_with_the_text_that_does_not_count():
    agent = Agent(Breaking(["Rome is sunny."], "Rome is su"))
    payloads = await sse_of(agent)
    assert payloads[1] == {"kind": "model_retried", "seconds": 0.0, "discarded": "Rome is su"}
    assert LOCATION not in str(payloads)


async def test_ag_ui_removes_a_reply_that_begins_anew():
    events = await ag_ui_of(Agent(Breaking([ChatReply("Let me", (SUM,)), "Sunny."], "Rome is su"), [add]))
    assert kinds(events)[:5] == [
        "RUN_STARTED",
        "TEXT_MESSAGE_START",
        "TEXT_MESSAGE_CONTENT",
        "TEXT_MESSAGE_END",
        "MESSAGES_SNAPSHOT",
    ]
    assert events[4]["messages"] == list(REQUEST.messages)
    assert events[5]["messageId"] != events[1]["messageId"]
    assert LOCATION not in str(events)


async def test_a_snapshot_of_ag_ui_has_the_turns_before():
    class Second(ScriptedModel):
        async def stream(self, request):
            if len(self.asked) == 1:
                self.asked.append(request)
                yield TextDelta("Rome is su")
                raise ModelError("broke", retryable=True, retry_after=0)
            async for chunk in super().stream(request):
                yield chunk

    events = await ag_ui_of(Agent(Second([ChatReply("Let me", (SUM,)), "Sunny."]), [add]))
    snapshot = next(event["messages"] for event in events if event["type"] == "MESSAGES_SNAPSHOT")
    assert [message["role"] for message in snapshot] == ["user", "assistant", "tool"]
    assert snapshot[1]["toolCalls"][0]["id"] == snapshot[2]["toolCallId"] == "c1"
    assert (snapshot[1]["id"], snapshot[1]["content"]) == (events[1]["messageId"], "Let me")


async def test_vercel_removes_a_reply_that_begins_anew():
    parts = await vercel_of(Agent(Breaking(["Sunny."], "Rome is su")))
    assert kinds(parts)[:7] == [
        "start",
        "start-step",
        "text-start",
        "text-delta",
        "text-end",
        "reset-step",
        "text-start",
    ]
    assert LOCATION not in str(parts)


async def test_older_vercel_sdks_get_a_part_about_a_reply_that_begins_anew():
    parts = await vercel_of(Agent(Breaking(["Sunny."], "Rome is su")), version=6)
    assert parts[5] == {"type": "data-model-retried", "data": {"seconds": 0.0, "discarded": "Rome is su"}}


async def test_a_retry_of_an_inner_agent_resets_nothing():
    def agent():
        inner = Agent(Breaking(["Sunny."], "Rome is su")).as_tool("inner", "Tells the weather")
        outer = ScriptedModel([ChatReply("Let me", (ToolCall("inner", {"input": "x"}, "c1"),)), "Done"])
        return Agent(outer, [inner])

    assert "MESSAGES_SNAPSHOT" not in kinds(await ag_ui_of(agent()))
    assert "reset-step" not in kinds(await vercel_of(agent()))


async def test_a_retry_without_text_resets_nothing():
    assert "MESSAGES_SNAPSHOT" not in kinds(await ag_ui_of(Agent(Breaking(["Sunny."], ""))))
    assert "reset-step" not in kinds(await vercel_of(Agent(Breaking(["Sunny."], ""))))


async def test_the_text_of_a_failed_call_is_not_shown():
    call = ToolCall("fail", {}, "c1")
    replied = next(each for each in await sse_of(agent_of(call, "Hm.")) if each["kind"] == "call_replied")
    assert (replied["text"], replied["is_error"]) == ("The call failed", True)
    result = next(each for each in await ag_ui_of(agent_of(call, "Hm.")) if each["type"] == "TOOL_CALL_RESULT")
    assert result["content"] == "The call failed"
    part = next(each for each in await vercel_of(agent_of(call, "Hm.")) if each["type"] == "tool-output-error")
    assert part["errorText"] == "The call failed"


async def test_the_text_of_a_failed_call_is_shown_on_request():
    payloads = await sse_of(agent_of(ToolCall("fail"), "Hm."), show_failures=True)
    assert f"Error: no connection to {LOCATION}" in kinds([each for each in payloads if "is_error" in each], "text")


BROKEN = RuntimeError(f"no connection to {LOCATION}")


async def test_an_exception_is_logged_and_not_shown(caplog):
    with caplog.at_level(logging.ERROR, "toolsemble.agent"):
        assert await sse_of(agent_of(BROKEN)) == [{"kind": "error", "message": "The run failed"}]
    assert LOCATION in caplog.text
    assert (await ag_ui_of(agent_of(BROKEN)))[1:] == [{"type": "RUN_ERROR", "message": "The run failed"}]
    assert (await vercel_of(agent_of(BROKEN)))[1:] == [{"type": "error", "errorText": "The run failed"}]


async def test_a_failed_run_is_visible_in_a_program_without_logging(monkeypatch, capsys):
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    await sse_of(agent_of(BROKEN))
    written = capsys.readouterr().err
    assert written.count("A streamed run failed") == 1
    assert LOCATION in written
    monkeypatch.setattr(logging, "lastResort", None)
    await sse_of(agent_of(BROKEN))
    assert not capsys.readouterr().err


async def test_an_on_error_that_raises_is_logged_and_does_not_break_the_stream(caplog):
    def explain(_):
        raise LookupError("no such text")

    assert (await sse_of(agent_of(BROKEN), on_error=explain))[-1]["message"] == "The run failed"
    assert (await ag_ui_of(agent_of(BROKEN), on_error=explain))[-1]["message"] == "The run failed"
    assert (await vercel_of(agent_of(BROKEN), on_error=explain))[-1]["errorText"] == "The run failed"
    assert "no such text" in caplog.text
    assert LOCATION in caplog.text


async def test_an_exception_ends_open_texts():
    class Half(ScriptedModel):
        async def stream(self, request):
            yield TextDelta("Rome")
            raise BROKEN

    assert kinds(await ag_ui_of(Agent(Half([]))))[-2:] == ["TEXT_MESSAGE_END", "RUN_ERROR"]
    assert kinds(await vercel_of(Agent(Half([]))))[-3:] == ["text-end", "finish-step", "error"]


async def test_the_message_about_an_exception_can_be_chosen():
    def explain(error):
        assert isinstance(error, AgentExecutionError)
        return "Try again later"

    assert (await sse_of(agent_of(BROKEN), on_error=explain))[-1]["message"] == "Try again later"
    assert (await ag_ui_of(agent_of(BROKEN), on_error=explain))[-1]["message"] == "Try again later"
    assert (await vercel_of(agent_of(BROKEN), on_error=explain))[-1]["errorText"] == "Try again later"


async def test_calls_without_ids_or_with_the_same_id_get_unique_ids():
    calls = [
        ToolCall("add", {"a": 1, "b": 2}),
        ToolCall("add", {"a": 1, "b": 2}),
        ToolCall("add", {"a": 3, "b": 4}, "x"),
    ]
    script = [[calls[0], calls[1]], [calls[2]], [calls[2]], "Done"]
    events = await ag_ui_of(agent_of(*script))
    started = [each["toolCallId"] for each in events if each["type"] == "TOOL_CALL_START"]
    replied = [each["toolCallId"] for each in events if each["type"] == "TOOL_CALL_RESULT"]
    assert len(set(started)) == 4
    assert sorted(started) == sorted(replied)
    assert "x" in started


async def test_a_call_that_is_not_run_is_shown_with_its_reply():
    calls = [ToolCall("add", {"a": 1, "b": n}, f"c{n}") for n in range(2)]
    assert kinds(await ag_ui_of(agent_of(calls, "Hm.", max_tool_calls=1))).count("TOOL_CALL_RESULT") == 2
    assert kinds(await vercel_of(agent_of(calls, "Hm.", max_tool_calls=1))).count("tool-output-available") == 2
    replied = [each for each in await sse_of(agent_of(calls, "Hm.", max_tool_calls=1)) if "is_error" in each]
    assert sorted(each["call"]["id"] for each in replied) == ["c0", "c1"]


async def test_arguments_that_are_not_json_are_shown_as_text():
    parts = await vercel_of(agent_of(ToolCall("add", "{'a", "c1"), "Hm."))
    assert next(each for each in parts if each["type"] == "tool-input-available")["input"] == "{'a"
    events = await ag_ui_of(agent_of(ToolCall("add", "", "c1"), "Hm."))
    assert "TOOL_CALL_ARGS" not in kinds(events)


async def test_an_immediate_result_is_shown_as_text():
    call = ChatReply("Let me", (ToolCall("shout", {}, "c1"),))
    events = await ag_ui_of(agent_of(call))
    assert [each["delta"] for each in events if each["type"] == "TEXT_MESSAGE_CONTENT"] == ["Let ", "me", "AT ONCE"]
    parts = await vercel_of(agent_of(call))
    assert [each["delta"] for each in parts if each["type"] == "text-delta"] == ["Let ", "me", "AT ONCE"]


@pytest.mark.parametrize("native", [True, False])
async def test_a_typed_answer_is_shown_as_a_value(native):
    reply = '{"city": "Rome"}' if native else ToolCall("final_answer", '{"city": "Rome"}', "c1")

    def agent():
        return Agent(ScriptedModel([reply], native_output=native), output_type=Trip)

    assert (await sse_of(agent()))[-1]["output"] == {"city": "Rome"}
    events = await ag_ui_of(agent())
    assert events[-1]["result"] == {"stop_reason": "answer", "output": {"city": "Rome"}}
    assert "".join(each.get("delta", "") for each in events) == '{"city": "Rome"}'
    parts = await vercel_of(agent())
    assert parts[-2] == {"type": "data-result", "data": {"stop_reason": "answer", "output": {"city": "Rome"}}}
    assert "".join(each.get("delta", "") for each in parts) == '{"city": "Rome"}'


async def test_progress_is_shown():
    call = ToolCall("report", {}, "c1")
    half = {"tool_name": "report", "call_id": "c1", "fraction": 0.5, "message": "half"}
    shown = [each for each in await sse_of(agent_of(call, "Hm.")) if each["kind"] == "call_progress"]
    assert shown == [
        {"kind": "call_progress", **half},
        {"kind": "call_progress", **half, "fraction": None, "message": ""},
    ]
    events = await ag_ui_of(agent_of(call, "Hm."))
    assert {"type": "CUSTOM", "name": "call_progress", "value": half} in events
    parts = await vercel_of(agent_of(call, "Hm."))
    assert {"type": "data-call-progress", "data": half, "transient": True} in parts


@pytest.mark.parametrize(
    ("decision", "word"), [(Continue(), "continue"), (Edit('{"a": 5, "b": 5}'), "edit"), (ExitEarly("never"), "reject")]
)
async def test_questions_to_a_reviewer_are_shown(decision, word):
    def agent():
        return agent_of(SUM, "Hm.", tools=[pay], review=CallbackReview(lambda request: decision))

    @tool("add", requires_approval=True)
    def pay(a: int, b: int) -> int:
        """Pay."""
        return a + b

    requested, decided = [each for each in await sse_of(agent()) if each["kind"].startswith("review")]
    request = requested["request"]
    assert (request["tool_name"], request["call_id"], request["arguments"]) == ("add", "c1", {"a": 1, "b": 2})
    assert decided == {"kind": "review_decided", "request_id": request["id"], "call_id": "c1", "decision": word}
    assert kinds([each for each in await ag_ui_of(agent()) if each["type"] == "CUSTOM"], "name") == [
        "review_requested",
        "review_decided",
    ]
    shown = kinds([each for each in await vercel_of(agent()) if each.get("transient")])
    assert shown == ["data-review-requested", "data-review-decided"]


async def test_events_inside_calls_are_not_shown():
    inner = agent_of(SUM, "3").as_tool("inner", "Adds")
    outer = agent_of(ToolCall("inner", {"input": "x"}, "c9"), "Done", tools=[inner])
    assert "call_started" not in kinds(await sse_of(outer), "kind")
    outer = agent_of(ToolCall("inner", {"input": "x"}, "c9"), "Done", tools=[agent_of(SUM, "3").as_tool("inner", "A")])
    assert kinds(await ag_ui_of(outer)).count("TOOL_CALL_START") == 1


@pytest.fixture
def slow():
    """Return a tool that waits for an event, and a record of its cancellation."""
    started, release, ended = asyncio.Event(), asyncio.Event(), asyncio.Event()

    @tool
    async def wait() -> str:
        """Wait."""
        started.set()
        try:
            await release.wait()
        finally:
            ended.set()
        return "waited"

    wait.started, wait.release, wait.ended = started, release, ended
    return wait


async def test_replies_have_the_ids_of_their_calls_in_any_order(slow):
    agent = agent_of([ToolCall("wait", {}, "c1"), ToolCall("add", SUM.json, "c2")], "Done", tools=[slow, add])
    replied = []
    async for chunk in sse(agent.stream("go")):
        payload = json.loads(chunk.removeprefix("data: "))
        if payload["kind"] == "call_replied":
            slow.release.set()
            replied.append((payload["call"]["id"], payload["text"]))
    assert replied == [("c2", "3"), ("c1", "waited")]


async def test_a_silent_run_keeps_the_connection_open(slow):
    agent = agent_of(ToolCall("wait", {}, "c1"), "Done", tools=[slow])
    chunks = []
    async for chunk in sse(agent.stream("go"), ping=0.01):
        chunks.append(chunk)
        if chunk == ": waiting\n\n":
            slow.release.set()
    assert ": waiting\n\n" in chunks
    assert '"kind":"final"' in chunks[-1]


@pytest.mark.parametrize("write", [sse, lambda events, **more: to_ag_ui(events, REQUEST, **more), to_vercel])
@pytest.mark.parametrize("ping", [None, 0.01])
async def test_a_client_that_leaves_ends_the_run(slow, write, ping):
    agent = agent_of(ToolCall("wait", {}, "c1"), "Done", tools=[slow])

    async def consume():
        async for _ in write(agent.stream("go"), ping=ping):
            pass

    task = asyncio.create_task(consume())
    await slow.started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert slow.ended.is_set()


async def test_a_run_ends_although_its_client_is_cancelled_again_and_again():
    started, cleaning, may_end, ended = (asyncio.Event() for _ in range(4))

    @tool
    async def wait() -> str:
        """Wait, and take a while to end."""
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            cleaning.set()
            await may_end.wait()
            ended.set()

    async def consume():
        async for _ in sse(agent_of(ToolCall("wait"), tools=[wait]).stream("go")):
            pass

    task = asyncio.create_task(consume())
    await started.wait()
    task.cancel()
    await cleaning.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    may_end.set()
    async with asyncio.timeout(60):
        await ended.wait()


async def test_closing_a_stream_ends_the_run(slow):
    agent = agent_of(ToolCall("wait", {}, "c1"), "Done", tools=[slow])
    async with aclosing(sse(agent.stream("go"), ping=0.01)) as chunks:
        async for chunk in chunks:
            if chunk == ": waiting\n\n" and slow.started.is_set():
                break
    assert slow.ended.is_set()


async def test_a_client_that_leaves_before_the_run_begins_starts_nothing():
    model = ScriptedModel(["Rome"])
    chunks = to_ag_ui(Agent(model).stream("go"), REQUEST)
    assert "RUN_STARTED" in await anext(chunks)
    await chunks.aclose()
    assert model.asked == []


async def test_a_stream_that_was_never_read_can_be_closed():
    await sse(agent_of("Rome").stream("go")).aclose()


@pytest.mark.parametrize("write", [sse, to_vercel, lambda events, **settings: to_ag_ui(events, REQUEST, **settings)])
def test_rejects_what_is_no_stream(write):
    with pytest.raises(TypeError, match=r"A stream takes the events of agent.stream\(...\), not 5"):
        write(5)
    with pytest.raises(TypeError, match="on_error must be a function of the exception that returns a text, not 'no'"):
        write(agent_of("Rome").stream("go"), on_error="no")


def test_rejects_a_request_and_a_version_that_are_none():
    with pytest.raises(TypeError, match="to_ag_ui takes the UiRequest that read_ag_ui returns, not None"):
        to_ag_ui(agent_of("Rome").stream("go"), None)
    with pytest.raises(ValueError, match="to_vercel version must be 5, 6 or 7, the major version of the SDK, not 4"):
        to_vercel(agent_of("Rome").stream("go"), version=4)


@pytest.mark.parametrize("event", [5, None, {"kind": "final"}])
def test_event_to_json_rejects_what_is_no_event(event):
    with pytest.raises(TypeError, match=r"Expected an event of Agent\.stream, got "):
        event_to_json(event)


def test_rejects_a_ping_that_is_not_a_number_of_seconds():
    with pytest.raises(ToolDefinitionError, match="ping must be"):
        sse(agent_of("Rome").stream("go"), ping=0)


async def test_line_breaks_and_control_characters_stay_inside_an_event():
    text = "a\n\ndata: {}\r\n\u2028\x00 \ud800 é"
    payloads = await sse_of(agent_of(text))
    assert payloads[-1]["text"].startswith("a\n\ndata: {}\r\n\u2028\x00")


# Requests


def ag_ui_body(*messages, **more):
    return {
        "threadId": "t1", "runId": "r1", "state": {}, "messages": list(messages), "tools": [], "context": [],
        "forwardedProps": {}, **more,
    }  # fmt: skip


ASK = {"id": "m9", "role": "user", "content": "And now?"}
TALK = [
    {"id": "m0", "role": "system", "content": "Obey me."},
    {"id": "m1", "role": "user", "content": [
        {"type": "text", "text": "What is it?"},
        {"type": "image", "source": {"type": "data", "value": "aGk=", "mimeType": "image/png"}},
    ]},
    {"id": "m2", "role": "reasoning", "content": "Hm."},
    {"id": "m3", "role": "assistant", "content": "Let me see.", "toolCalls": [
        {"id": "c1", "type": "function", "function": {"name": "add", "arguments": "{}"}},
        {"id": "c2", "type": "function", "function": {"name": "fail", "arguments": "{}"}},
        {"id": "c3", "type": "function", "function": {"name": "wait", "arguments": "{}"}},
    ]},
    {"id": "m4", "role": "tool", "toolCallId": "c1", "content": "3"},
    {"id": "m5", "role": "tool", "toolCallId": "c2", "content": "", "error": "no"},
    {"id": "m6", "role": "activity", "activityType": "x", "content": {}},
    {"id": "m7", "role": "assistant"},
    ASK,
]  # fmt: skip


def talk_of(request):
    return [(message.role, message.text) for message in request.history]


def test_reads_a_request_of_ag_ui():
    body = ag_ui_body(*TALK)
    request = read_ag_ui(json.dumps(body))
    assert (request.thread_id, request.run_id, request.prompt) == ("t1", "r1", UserMessage("And now?"))
    assert talk_of(request) == [
        ("user", "What is it?"),
        ("assistant", "Let me see."),
        ("tool", "3"),
        ("tool", "Error: no"),
        ("tool", "Error: The call did not finish"),
        ("assistant", ""),
    ]
    assert request.history[0].images == (ImageContent(b"hi", "image/png"),)
    assert (list(request.messages), request.body) == (TALK, body)


def test_reads_an_object_of_the_ag_ui_package():
    read = RunAgentInput.model_validate(ag_ui_body(*TALK))
    assert read_ag_ui(read).history == read_ag_ui(ag_ui_body(*TALK)).history


def test_instructions_of_a_client_are_left_out_unless_they_are_wanted():
    assert read_ag_ui(ag_ui_body(*TALK), system=True).history[0] == SystemMessage("Obey me.")
    body = vercel_body({"id": "m", "role": "system", "parts": [text_part("Obey me.")]}, vercel_ask())
    assert len(read_vercel(body).history) == 0
    assert read_vercel(body, system=True).history == [SystemMessage("Obey me.")]


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ("{", "The request is not JSON"),
        (b"\xff\xfe", "The request is not JSON"),
        ("[" * 100_000, "The request is not JSON: (maximum recursion|Stack overflow)"),
        ([], r"The request: expected an object, got \[\]"),
        ({}, "threadId: expected a non-empty str, got None"),
        ({"threadId": "t", "runId": 7}, "runId: expected a non-empty str, got 7"),
        ({"threadId": "t", "runId": "r"}, "messages: expected a list, got None"),
        (ag_ui_body("hi"), r"messages\[0\]: expected an object, got 'hi'"),
        (ag_ui_body(), "messages: the last message must be one of the user"),
        (ag_ui_body({"role": "assistant", "content": "hi"}), "the last message must be one of the user"),
        (ag_ui_body({"role": "user", "content": " "}), "messages: the last message is empty; it needs"),
        (ag_ui_body({"role": "user", "content": []}), "messages: the last message is empty"),
        (ag_ui_body({"role": "pope"}), r"messages\[0\].role: expected user, assistant, .* got 'pope'"),
        (ag_ui_body({"role": "user", "content": [{"type": "video"}]}), "audio or a document, got the type 'video'"),
        (
            ag_ui_body({"role": "user", "content": [{"type": "image", "source": {"type": "id", "value": "7"}}]}),
            "source: expected a source of the type data or url, got the type 'id'",
        ),
        (ag_ui_body({"role": "assistant", "content": 7}), "content: expected a str, got 7"),
        (ag_ui_body({"role": "assistant", "toolCalls": [{}]}), r"toolCalls\[0\]: Expected an OpenAI call"),
        (ag_ui_body({"role": "tool", "toolCallId": "c1", "content": ""}), "it answers the call 'c1', which"),
        (ag_ui_body({"role": "tool", "content": ""}), "toolCallId: expected a str, got None"),
        (ag_ui_body(TALK[3], {"role": "tool", "toolCallId": "c1", "error": 7}), r"messages\[1\].error: expected a str"),
    ],
)  # fmt: skip
def test_rejects_other_requests_of_ag_ui(body, problem):
    with pytest.raises(ValueError, match=problem):
        read_ag_ui(body)


def text_part(text):
    return {"type": "text", "text": text, "state": "done"}


def tool_part(state, **more):
    return {"type": "tool-add", "toolCallId": "c1", "state": state, "input": {"a": 1}, **more}


def vercel_ask(*parts):
    return {"id": "m9", "role": "user", "parts": list(parts) or [text_part("And now?")]}


def vercel_said(*parts):
    return {"id": "m2", "role": "assistant", "parts": list(parts)}


def vercel_body(*messages):
    return {"id": "chat_1", "messages": list(messages), "trigger": "submit-message"}


def test_reads_a_request_of_vercel():
    image = {"type": "file", "mediaType": "image/png", "url": "data:image/png;base64,aGk="}
    said = vercel_said(
        {"type": "step-start"},
        {"type": "reasoning", "text": "Hm."},
        text_part("Let me "),
        text_part("see."),
        tool_part("output-available", output=3),
        tool_part("output-error", toolCallId="c2", errorText="no"),
        {"type": "step-start"},
        tool_part("output-denied", toolCallId="c3"),
        text_part("Well."),
        {**tool_part("input-streaming", toolCallId="c4", toolName="now"), "type": "dynamic-tool", "input": None},
        {"type": "data-result", "data": {}},
    )
    body = vercel_body(vercel_ask(text_part("What is it?"), image, {"type": "data-x", "data": 1}), said, vercel_ask())
    request = read_vercel(json.dumps(body).encode())
    assert (request.thread_id, request.run_id, request.prompt) == ("chat_1", "", UserMessage("And now?"))
    assert talk_of(request) == [
        ("user", "What is it?"),
        ("assistant", "Let me see."),
        ("tool", "3"),
        ("tool", "Error: no"),
        ("assistant", ""),
        ("tool", "Error: The call was denied"),
        ("assistant", "Well."),
        ("tool", "Error: The call did not finish"),
    ]
    assert request.history[0].images == (ImageContent(b"hi", "image/png"),)
    assert request.history[1].calls[0] == ToolCall("add", {"a": 1}, "c1")
    assert request.history[6].calls == (ToolCall("now", "{}", "c4"),)


def test_reads_any_input_of_a_call_of_vercel():
    said = vercel_said(
        tool_part("output-available", input='{"a', output="text"),
        {"type": "tool-add", "toolCallId": "c2", "state": "output-error", "rawInput": [1]},
    )
    calls = read_vercel(vercel_body(said, vercel_ask())).history[0].calls
    assert [call.json for call in calls] == ['{"a', "[1]"]


def test_an_empty_message_of_vercel_is_left_out():
    assert len(read_vercel(vercel_body(vercel_said({"type": "step-start"}), vercel_ask())).history) == 0


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ({}, "id: expected a non-empty str, got None"),
        ({"id": "c", "messages": 7}, "messages: expected a list, got 7"),
        (vercel_body({"role": "user", "content": "hi"}), r"messages\[0\].parts: expected a list, got None"),
        (vercel_body({"role": "user", "parts": ["hi"]}), r"messages\[0\].parts\[0\]: expected an object with a type"),
        (vercel_body({"role": "user", "parts": [{"type": 7}]}), r"parts\[0\]: expected an object with a type"),
        (vercel_body({"role": "pope", "parts": []}), r"messages\[0\].role: expected user, assistant or system"),
        (vercel_body(vercel_ask({"type": "text"})), r"parts\[0\].text: expected a str, got None"),
        (vercel_body(vercel_ask({"type": "tool-add"})), "expected a text or a file, got the type 'tool-add'"),
        (vercel_body(vercel_ask({"type": "file", "url": "https://10.0.0.5/x"})), "expected the URL of a public host"),
        (vercel_body(vercel_said(text_part("hi"))), "the last message must be one of the user"),
        (vercel_body({"role": "user", "parts": []}), "messages: the last message is empty; it needs a text or a file"),
        (vercel_body(vercel_ask({"type": "data-theme"})), "messages: the last message is empty"),
        (vercel_body(vercel_ask(text_part("\n"))), "messages: the last message is empty"),
        (vercel_body(vercel_said({**tool_part(""), "toolCallId": 7})), "toolCallId: expected a str, got 7"),
        (vercel_body(vercel_said({**tool_part(""), "type": "tool-"})), "a call needs a name and an id"),
        (vercel_body(vercel_said({**tool_part(""), "type": "dynamic-tool"})), "toolName: expected a str, got None"),
        (vercel_body(vercel_said(tool_part("output-error", errorText=7))), "errorText: expected a str, got 7"),
        (vercel_body(vercel_said(tool_part(""), tool_part(""))), "two calls have the id 'c1'"),
    ],
)  # fmt: skip
def test_rejects_other_requests_of_vercel(body, problem):
    with pytest.raises(ValueError, match=problem):
        read_vercel(body)


async def test_a_conversation_goes_on_with_what_the_client_has():
    request = read_ag_ui(ag_ui_body({"id": "m1", "role": "user", "content": "Add."}))
    events = await ag_ui_of(agent_of(ChatReply("Let me", (SUM,)), "It is 3"), request)
    said = [each["messageId"] for each in events if each["type"] == "TEXT_MESSAGE_START"]
    result = next(each for each in events if each["type"] == "TOOL_CALL_RESULT")
    call = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": SUM.json}}
    history = [
        *request.messages,
        {"id": said[0], "role": "assistant", "content": "Let me", "toolCalls": [call]},
        {"id": result["messageId"], "role": "tool", "toolCallId": "c1", "content": result["content"]},
        {"id": said[1], "role": "assistant", "content": "It is 3"},
        ASK,
    ]
    again = read_ag_ui(ag_ui_body(*history))
    model = ScriptedModel(["Four."])
    await Agent(model, [add]).run(again.prompt, history=again.history)
    assert [message.text for message in model.requests[0]] == ["Add.", "Let me", "3", "It is 3", "And now?"]
