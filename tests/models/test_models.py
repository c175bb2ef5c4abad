import asyncio
import copy
import json
import operator
import pickle
import sys
import threading
from contextlib import aclosing
from types import SimpleNamespace

import pytest

from toolsemble import (
    AudioContent,
    ChatModel,
    FileContent,
    ImageContent,
    ModelError,
    TextContent,
    ToolCall,
    ToolConfigurationError,
    ToolReply,
    ToolResult,
    ToolSpecification,
)
from toolsemble._runtime.event_loops import finish
from toolsemble._vocabulary.provider_list import PROVIDERS, Provider
from toolsemble.models import (
    ArgumentsDelta,
    Assembly,
    AssistantMessage,
    CallDelta,
    ChatReply,
    ChatRequest,
    FunctionModel,
    RecordedModel,
    ScriptedModel,
    StreamEnd,
    SystemMessage,
    TextDelta,
    TokenUsage,
    ToolMessage,
    Transcript,
    UserMessage,
    chunks_of,
    message_from_json,
    message_to_json,
    model_of,
)
from toolsemble.models._adapter.errors import mask_keys, status_error

CALL = ToolCall("add", {"a": 1}, id="c1")
IMAGE = ImageContent(b"\x00\xff", "image/png")
HELLO = ChatRequest([UserMessage("hello")])


def make_reply(call, text="done"):
    return ToolMessage(ToolReply(call, ToolResult.success(text)))


async def collect_chunks(model, request=HELLO):
    return [chunk async for chunk in model.stream(request)]


MESSAGES = [
    SystemMessage("You are brief."),
    UserMessage("hello"),
    UserMessage("what is this?", (IMAGE,)),
    UserMessage("half a pair: \ud800"),
    AssistantMessage("hi"),
    AssistantMessage("", (CALL, ToolCall("add", "not JSON"))),
    AssistantMessage("thought", (), {"signature": "abc"}),
    make_reply(CALL),
    ToolMessage(ToolReply(CALL, ToolResult.failure("no"), 100)),
    ToolMessage(
        ToolReply(
            CALL,
            ToolResult.success(
                "all",
                contents=[
                    IMAGE,
                    TextContent("t"),
                    AudioContent(b"a", "audio/wav"),
                    FileContent(b"f", "text/plain", "f.txt"),
                ],
            ),
        )
    ),
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: message.role)
def test_message_json_round_trip(message):
    text = message_to_json(message)
    assert text.isascii()
    assert "\n" not in text
    assert message_from_json(text) == message


def test_structured_output_is_not_serialized():
    reply = ToolReply(CALL, ToolResult.success("text", object(), attributes={"lock": threading.Lock()}))
    assert message_from_json(message_to_json(ToolMessage(reply))) == make_reply(CALL, "text")


@pytest.mark.parametrize("text", ["", "[]", "null", "{}", '{"role": "unknown"}', '{"role": "user"}', '{"role": []}'])
def test_invalid_message_json_is_rejected(text):
    with pytest.raises(ValueError, match="This is not a message"):
        message_from_json(text)


def test_every_message_has_a_role_and_a_text():
    assert [(message.role, message.text) for message in MESSAGES[:2]] == [
        ("system", "You are brief."),
        ("user", "hello"),
    ]
    assert (make_reply(CALL).role, make_reply(CALL).text, make_reply(CALL).call) == ("tool", "done", CALL)


# --- transcripts


def test_extended_transcript_shares_messages():
    first = Transcript([UserMessage("a")])
    second = first.plus(AssistantMessage("b"))
    third = second.plus(UserMessage("c"))
    assert (first, second) == ([UserMessage("a")], (UserMessage("a"), AssistantMessage("b")))
    assert third == [UserMessage("a"), AssistantMessage("b"), UserMessage("c")]


def test_transcript_continuations_are_independent():
    first = Transcript([UserMessage("a")])
    one, other = first.plus(UserMessage("b")), first.plus(UserMessage("c"))
    assert (one, other) == ([UserMessage("a"), UserMessage("b")], [UserMessage("a"), UserMessage("c")])


def test_transcript_continuations_are_thread_safe():
    base = Transcript([UserMessage("base")])
    made = {}

    def go_on(name):
        transcript = base
        for number in range(200):
            transcript = transcript.plus(UserMessage(f"{name}-{number}"))
        made[name] = transcript

    threads = [threading.Thread(target=go_on, args=(name,)) for name in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    for name in range(8):
        assert [message.text for message in made[name]] == ["base", *(f"{name}-{number}" for number in range(200))]


def test_transcript_is_a_sequence():
    messages = [UserMessage(text) for text in "abcd"]
    transcript = Transcript(messages[:3])
    transcript.plus(messages[3])
    assert (len(transcript), transcript[0], transcript[-1]) == (3, messages[0], messages[2])
    assert (transcript[1:], transcript[::-1]) == (messages[1:3], messages[2::-1])
    assert list(reversed(transcript)) == messages[2::-1]
    assert transcript + [messages[3]] == messages  # noqa: RUF005 - the operator is what is tried
    assert repr(transcript) == repr(messages[:3])
    assert (transcript == "abc", transcript == messages, messages[1] in transcript) == (False, False, True)
    for index in (3, -4):
        with pytest.raises(IndexError, match="out of range: there are 3 messages"):
            transcript[index]
    with pytest.raises(TypeError, match="unhashable"):
        hash(transcript)


@pytest.mark.parametrize("cut", range(4))
def test_system_message_is_stored_separately_and_counted(cut):
    system, *rest = messages = [SystemMessage("s"), UserMessage("a"), UserMessage("b")]
    transcript = Transcript(messages[:cut]).plus(*messages[cut:])
    assert (list(transcript), list(reversed(transcript)), len(transcript)) == (messages, messages[::-1], 3)
    assert [transcript[index] for index in range(-3, 3)] == messages * 2
    for part in (slice(None), slice(1, None), slice(0, 1), slice(-2, None), slice(None, None, -2)):
        assert transcript[part] == messages[part]
    assert (transcript.under(None), transcript.under(SystemMessage("t"))) == (rest, [SystemMessage("t"), *rest])
    assert transcript.under(system) is transcript


def test_transcript_can_be_copied_and_pickled():
    transcript = Transcript([UserMessage("a"), AssistantMessage("", (CALL,)), make_reply(CALL)])
    assert copy.deepcopy(transcript) == transcript
    assert pickle.loads(pickle.dumps(transcript)) == transcript


@pytest.mark.parametrize(
    ("messages", "problem"),
    [
        ([AssistantMessage("", (CALL,))], "The call of 'add' has no reply before message 1"),
        ([AssistantMessage("", (CALL,)), UserMessage("go on")], "The call of 'add' has no reply before message 1"),
        ([AssistantMessage("", (CALL, CALL)), make_reply(CALL)], "has no reply before message 2"),
        ([make_reply(CALL)], "Message 0 answers a call of 'add' that was not made"),
        ([AssistantMessage("", (CALL,)), make_reply(ToolCall("add", {"a": 1}))], "Message 1 answers a call of 'add'"),
        ([UserMessage("a"), "b"], "Message 1 is not a message but a str"),
    ],
)
def test_transcript_with_unanswered_call_is_rejected(messages, problem):
    with pytest.raises(ToolConfigurationError, match=problem):
        Transcript(messages)
    with pytest.raises(ToolConfigurationError):
        Transcript().plus(*messages)


def test_replies_may_be_in_any_order():
    other = ToolCall("sub", id="c2")
    messages = [AssistantMessage("", (CALL, other)), make_reply(other), make_reply(CALL)]
    assert Transcript(messages) == messages


# --- pieces


def test_reply_is_assembled_from_chunks():
    reply = ChatReply("two words", (CALL, ToolCall("now", "{}")), TokenUsage(5, 7, 3), "calls", {"signature": "abc"})
    assembly = Assembly()
    for chunk in chunks_of(reply):
        assembly.add(chunk)
    assert assembly.reply() == reply


def test_interleaved_arguments_are_separated():
    assembly = Assembly()
    for chunk in (
        CallDelta(3, "a", "c1"),
        CallDelta(1, "b"),
        ArgumentsDelta(1, '{"x":'),
        ArgumentsDelta(3, "{}"),
        ArgumentsDelta(1, "1}"),
        StreamEnd(),
    ):
        assembly.add(chunk)
    assert assembly.reply().calls == (ToolCall("a", "{}", "c1"), ToolCall("b", '{"x":1}'))


def test_truncated_stream_is_retryable():
    assembly = Assembly()
    assembly.add(TextDelta("All roads"))
    with pytest.raises(ModelError, match="cut off") as caught:
        assembly.reply()
    assert caught.value.retryable


def test_arguments_without_call_are_a_model_error():
    with pytest.raises(ModelError, match="before its start"):
        Assembly().add(ArgumentsDelta(0, "{}"))


# --- models for tests


@pytest.mark.parametrize("make", [ScriptedModel, lambda replies: FunctionModel(lambda _: replies[0])])
@pytest.mark.parametrize(
    ("scripted", "reply"),
    [
        ("hi", ChatReply("hi")),
        ("", ChatReply("")),
        (CALL, ChatReply("", (CALL,), stop_reason="calls")),
        ([CALL, CALL], ChatReply("", (CALL, CALL), stop_reason="calls")),
        (ChatReply("as it is", (CALL,)), ChatReply("as it is", (CALL,))),
    ],
)
async def test_scripted_model_returns_its_replies(make, scripted, reply):
    assert await make([scripted]).reply(HELLO) == reply
    assert await collect_chunks(make([scripted])) == list(chunks_of(reply))


async def test_function_in_script_gets_messages():
    async def later(messages):
        return f"{messages[-1].text} later"

    model = ScriptedModel([lambda messages: messages[-1].text.upper(), later, lambda _: CALL, lambda _: OSError("no")])
    assert [(await model.reply(HELLO)).text for _ in range(3)] == ["HELLO", "hello later", ""]
    with pytest.raises(OSError, match="no"):
        await model.reply(HELLO)


@pytest.mark.parametrize("error", [ValueError("broken"), ValueError, KeyboardInterrupt()])
async def test_exception_in_a_script_is_raised(error):
    with pytest.raises(error if isinstance(error, type) else type(error)):
        await ScriptedModel([error]).reply(HELLO)


async def test_exhausted_script_raises_error():
    model = ScriptedModel(["one"])
    await model.reply(HELLO)
    with pytest.raises(ModelError, match="The script is used up: this is request 2"):
        await model.reply(HELLO)
    assert model.requests == [HELLO.messages, HELLO.messages]
    assert model.asked == [HELLO, HELLO]


async def test_script_may_be_infinite():
    model = ScriptedModel(f"line {number}" for number in iter(int, 1))
    assert [(await model.reply(HELLO)).text for _ in range(3)] == ["line 0"] * 3


async def test_async_function_can_be_a_model():
    async def answer(request):
        await asyncio.sleep(0)
        return f"{len(request.messages)} message"

    assert await FunctionModel(answer, usage=TokenUsage(1, 2)).reply(HELLO) == ChatReply(
        "1 message", usage=TokenUsage(1, 2)
    )


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: ScriptedModel("hi"), r"write ScriptedModel\(\[...\]\)"),
        (lambda: ScriptedModel(CALL), "A script is a list of replies, not ToolCall"),
        (lambda: ScriptedModel(None), "A script is a list of replies, not NoneType"),
        (lambda: ScriptedModel([1]), "Line 0 of the script must be a str, a ToolCall"),
        (lambda: ScriptedModel(["a", [CALL, "b"]]), "Line 1 of the script"),
        (lambda: FunctionModel("hi"), "FunctionModel needs a function, not str"),
        (lambda: finish(ScriptedModel([lambda _: 7]).reply(HELLO)), "The reply must be a str"),
    ],
)
def test_invalid_scripts_are_rejected(make, problem):
    with pytest.raises(TypeError, match=problem):
        make()


def test_token_usages_are_added():
    assert TokenUsage(3, 4, 2).total == 7


def test_models_match_protocol(tmp_path):
    for model in (ScriptedModel([]), FunctionModel(str), RecordedModel(tmp_path / "x.jsonl", ScriptedModel([]))):
        assert isinstance(model, ChatModel)


# --- recordings

SEVERAL = [
    HELLO,
    ChatRequest([UserMessage("hello")], [ToolSpecification("add", "Adds")]),
    ChatRequest([UserMessage("hello")], tool_choice="none"),
    ChatRequest([UserMessage("hello")], output_schema={"type": "object"}),
    ChatRequest([UserMessage("hello")], settings={"temperature": 0}),
    ChatRequest([UserMessage("hello", (IMAGE,))]),
    ChatRequest([]),
]


def record(path, lines):
    return RecordedModel(path, ScriptedModel(lines, usage=TokenUsage(1, 2, 3)))


@pytest.mark.parametrize("streamed_first", [False, True])
@pytest.mark.parametrize("streamed_then", [False, True])
async def test_recording_replays_replies(tmp_path, streamed_first, streamed_then):
    async def ask(model, request, streamed):
        if not streamed:
            return await model.reply(request)
        assembly = Assembly()
        async for chunk in model.stream(request):
            assembly.add(chunk)
        return assembly.reply()

    path = tmp_path / "talk.jsonl"
    lines = ["one", CALL, [CALL, ToolCall("now")], ChatReply("x", details={"a": 1}), "five", "six", "seven"]
    recorder = record(path, lines)
    replies = [await ask(recorder, request, streamed_first) for request in SEVERAL]
    player = RecordedModel(path)
    backwards = [await ask(player, request, streamed_then) for request in reversed(SEVERAL)]
    assert backwards[::-1] == replies
    assert [reply.text for reply in replies] == ["one", "", "", "x", "five", "six", "seven"]


async def test_equal_requests_are_answered_in_the_order_of_the_recording(tmp_path):
    recorder = record(tmp_path / "talk.jsonl", ["one", "two"])
    await recorder.reply(HELLO)
    await recorder.reply(HELLO)
    player = RecordedModel(tmp_path / "talk.jsonl")
    assert [(await player.reply(HELLO)).text, (await player.reply(HELLO)).text] == ["one", "two"]
    for ask in (player.reply, lambda request: collect_chunks(player, request)):
        with pytest.raises(ModelError, match=r"has no recording of this request \(1 messages, the last: 'hello'\)"):
            await ask(HELLO)


async def test_missing_requests_are_recorded(tmp_path):
    path = tmp_path / "talk.jsonl"
    await record(path, ["one"]).reply(HELLO)
    behind = ScriptedModel(["two"])
    model = RecordedModel(path, behind)
    assert [(await model.reply(HELLO)).text, (await model.reply(SEVERAL[1])).text] == ["one", "two"]
    assert behind.asked == [SEVERAL[1]]
    assert (await RecordedModel(path).reply(SEVERAL[1])).text == "two"


async def test_errors_are_recorded(tmp_path):
    path = tmp_path / "talk.jsonl"
    error = ModelError("Too many requests", retryable=True, retry_after=2.5)
    recorder = record(path, [error, error, ValueError("not the model's")])
    with pytest.raises(ModelError):
        await recorder.reply(HELLO)
    with pytest.raises(ModelError):
        await collect_chunks(recorder)
    with pytest.raises(ValueError, match="not the model's"):
        await recorder.reply(HELLO)
    player = RecordedModel(path)
    for ask in (player.reply, lambda request: collect_chunks(player, request)):
        with pytest.raises(ModelError, match="Too many requests") as caught:
            await ask(HELLO)
        assert (caught.value.retryable, caught.value.retry_after) == (True, 2.5)
    with pytest.raises(ModelError, match="has no recording"):
        await player.reply(HELLO)


async def test_recording_keeps_native_output(tmp_path):
    path = tmp_path / "talk.jsonl"
    assert not RecordedModel(path, ScriptedModel([])).native_output
    await RecordedModel(path, ScriptedModel(["hi"], native_output=True)).reply(HELLO)
    assert RecordedModel(path).native_output


@pytest.mark.parametrize("content", [None, "not JSON", "[]\n", "{}\n", "7\n", "é"])
def test_unreadable_recording_is_rejected(tmp_path, content):
    path = tmp_path / "talk.jsonl"
    if content is not None:
        path.write_text(content, encoding="utf-8")
    with pytest.raises(ToolConfigurationError, match=r"The recording '.*talk.jsonl' cannot be used"):
        RecordedModel(path)


async def test_recording_consists_of_json_lines(tmp_path):
    path = tmp_path / "talk.jsonl"
    await record(path, ["ü\u2028"]).reply(ChatRequest([UserMessage("line\nbreak")]))
    (line,) = path.read_text(encoding="ascii").splitlines()
    assert json.loads(line)["asked"] == "line\\nbreak"


async def test_closing_recording_closes_model_stream(tmp_path):
    closed = []

    class Watched(ScriptedModel):
        async def stream(self, request):
            try:
                async for chunk in super().stream(request):
                    yield chunk
            finally:
                closed.append(True)

    path = tmp_path / "talk.jsonl"
    async with aclosing(RecordedModel(path, Watched(["one two three"])).stream(ChatRequest([]))) as chunks:
        assert await anext(chunks) == TextDelta("one ")
    assert (closed, path.exists()) == ([True], False)


# --- names


def test_model_object_is_returned_unchanged():
    model = ScriptedModel([])
    assert model_of(model) is model


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("", "Unknown model ''"),
        ("unknown:nothing", "Unknown model 'unknown:nothing'"),
        (7, "7 is not a ChatModel; pass an object with the methods reply and stream"),
        (ScriptedModel, "is not a ChatModel"),
    ],
)
def test_non_model_object_is_rejected(source, problem):
    with pytest.raises(ToolConfigurationError, match=problem):
        model_of(source)


def test_model_name_is_resolved_by_prefix(monkeypatch):
    monkeypatch.setitem(PROVIDERS, "echo", Provider("echo", models=("echo",)))
    monkeypatch.setitem(sys.modules, "toolsemble.models.echo._model", SimpleNamespace(model_from_name=operator.concat))
    assert model_of("echo:text:more") == "echotext:more"  # what it makes of both parts is its own matter
    with pytest.raises(ToolConfigurationError, match=r"known providers: .*echo"):
        model_of("unknown")


@pytest.mark.parametrize(
    ("key", "text", "masked"),
    [
        ("key", "Incorrect API key provided", "Incorrect API key provided"),
        ("key", "Incorrect API key provided: key", "Incorrect API key provided: ***"),
        ("key", "Authorization: Bearer key, token='key'", "Authorization: Bearer ***, token='***'"),
        ("k3y", "k3y is not a key", "*** is not a key"),
        ("keykeykey", "akeykeykeyb", "a***b"),
    ],
)
def test_a_short_key_of_letters_is_masked_only_where_a_key_stands(key, text, masked):
    assert mask_keys(text, [key]) == masked


@pytest.mark.parametrize(("code", "verb"), [(500, "failed to answer"), (400, "refused the request")])
def test_a_failure_of_the_server_is_not_called_a_refusal(code, verb):
    assert str(status_error("Server", code, "boom", {}, retryable=True)) == f"Server {verb} ({code}): boom"
