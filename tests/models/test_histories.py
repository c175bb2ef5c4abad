"""Histories in the formats of OpenAI and Anthropic, from and to messages of this library."""

import json
import subprocess
import sys

import pytest
from anthropic.types import Message as AnthropicReply, MessageParam
from hypothesis import given, settings, strategies
from openai.types.chat import ChatCompletionMessage, ChatCompletionMessageParam
from openai.types.responses import ResponseFunctionToolCall, ResponseInputItemParam

from helpers.sdk_checks import adapter_of, read_out
from toolsemble import Agent, ToolCall, ToolConfigurationError, ToolReply, ToolResult
from toolsemble._vocabulary.result import AudioContent, FileContent, ImageContent, TextContent
from toolsemble.models import (
    AssistantMessage,
    ScriptedModel,
    SystemMessage,
    ToolMessage,
    UserMessage,
    messages_from_anthropic,
    messages_from_json,
    messages_from_openai,
    messages_to_anthropic,
    messages_to_json,
    messages_to_openai,
)

PNG = "data:image/png;base64,aGk="
IMAGE = ImageContent(b"hi", "image/png")
CALL = ToolCall("weather", '{"city": "Rome"}', "c1")
TIME = ToolCall("now", "{}", "c2")


def reply(call, text):
    return ToolMessage(ToolReply(call, ToolResult.success(text)))


def failed(call, text):
    return ToolMessage(ToolReply(call, ToolResult.failure(text)))


def function_call(call):
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.json}}


CHAT = [
    {"role": "developer", "content": "You are brief."},
    {
        "role": "user",
        "content": [{"type": "text", "text": "What is it?"}, {"type": "image_url", "image_url": {"url": PNG}}],
    },
    {"role": "assistant", "content": None, "tool_calls": [function_call(CALL), function_call(TIME)]},
    {"role": "tool", "tool_call_id": "c2", "content": "Error: no clock"},
    {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "sunny"}]},
    {"role": "assistant", "content": [{"type": "text", "text": "It is"}, {"type": "refusal", "refusal": "no."}]},
    {"role": "system", "content": [{"type": "text", "text": "Be kind."}]},
    {"role": "assistant", "content": None, "refusal": "I will not."},
]
READ = [
    SystemMessage("You are brief."),
    UserMessage("What is it?", (IMAGE,)),
    AssistantMessage("", (CALL, TIME)),
    failed(TIME, "no clock"),
    reply(CALL, "sunny"),
    AssistantMessage("It is\nno."),
    SystemMessage("Be kind."),
    AssistantMessage("I will not."),
]


def test_reads_messages_of_chat_completions():
    assert messages_from_openai(CHAT) == READ


def test_reads_objects_of_the_openai_sdk():
    answer = ChatCompletionMessage.model_validate({**CHAT[2], "annotations": []})
    assert messages_from_openai([CHAT[1], answer, *CHAT[3:5]]) == READ[1:5]


ITEMS = [
    {"role": "developer", "content": "You are brief."},
    {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "What is it?"},
                                                    {"type": "input_image", "image_url": PNG, "detail": "auto"}]},
    {"type": "reasoning", "id": "rs_1", "summary": []},
    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Let me see."}]},
    {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": '{"city": "Rome"}'},
    ResponseFunctionToolCall(type="function_call", call_id="c2", name="now", arguments="{}"),
    {"type": "function_call_output", "call_id": "c1", "output": "sunny"},
    {"type": "function_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "Error: no clock"}]},
    {"type": "function_call", "call_id": "c2", "name": "now", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "c2", "output": "noon"},
]  # fmt: skip


def test_reads_input_items_of_responses():
    assert messages_from_openai(ITEMS) == [
        SystemMessage("You are brief."),
        UserMessage("What is it?", (IMAGE,)),
        AssistantMessage("Let me see.", (CALL, TIME)),
        reply(CALL, "sunny"),
        failed(TIME, "no clock"),
        AssistantMessage("", (TIME,)),
        reply(TIME, "noon"),
    ]


def test_reads_a_response_that_begins_with_a_call():
    assert messages_from_openai(ITEMS[-2:]) == [AssistantMessage("", (TIME,)), reply(TIME, "noon")]


SOURCE = {"type": "base64", "media_type": "image/png", "data": "aGk="}
BLOCKS = [
    {"role": "user", "content": [{"type": "image", "source": SOURCE}, {"type": "text", "text": "What is it?"}]},
    {"role": "assistant", "content": [{"type": "thinking", "thinking": "Hm.", "signature": "s"},
                                      {"type": "text", "text": "Let me see."},
                                      {"type": "tool_use", "id": "c1", "name": "weather", "input": {"city": "Rome"}},
                                      {"type": "tool_use", "id": "c2", "name": "now", "input": {}}]},
    {"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": "c1", "content": "sunny"},
        {"type": "tool_result", "tool_use_id": "c2", "content": "Error: no clock", "is_error": True},
        {"type": "text", "text": "Go on."},
    ]},
    {"role": "assistant", "content": [{"type": "text", "text": "It is Rome."}]},
]  # fmt: skip
ROME = ToolCall("weather", {"city": "Rome"}, "c1")
DETAILS = {
    "anthropic": [
        {"type": "thinking", "thinking": "Hm.", "signature": "s"},
        {"type": "text", "length": 11},
        {"type": "tool_use"},
        {"type": "tool_use"},
    ]
}


def test_reads_messages_of_anthropic():
    assert messages_from_anthropic(BLOCKS, system=[{"type": "text", "text": "Be brief."}]) == [
        SystemMessage("Be brief."),
        UserMessage("What is it?", (IMAGE,)),
        AssistantMessage("Let me see.", (ROME, TIME), DETAILS),
        reply(ROME, "sunny"),
        failed(TIME, "no clock"),
        UserMessage("Go on."),
        AssistantMessage("It is Rome."),
    ]


def test_messages_of_anthropic_come_back_as_they_were():
    assert messages_to_anthropic(messages_from_anthropic(BLOCKS, "Be brief.")) == {
        "system": "Be brief.",
        "messages": BLOCKS,
    }


def test_reads_objects_of_the_anthropic_sdk():
    about = {"id": "m", "type": "message", "model": "x", "stop_reason": "tool_use", "stop_sequence": None}
    answer = AnthropicReply.model_validate({**about, "usage": {"input_tokens": 1, "output_tokens": 1}, **BLOCKS[1]})
    read = messages_from_anthropic([BLOCKS[0], answer, BLOCKS[2]])
    assert read == messages_from_anthropic(BLOCKS[:3])
    mixed = messages_from_anthropic([BLOCKS[0], {"role": "assistant", "content": answer.content}, BLOCKS[2]])
    assert mixed == read


def test_reads_contents_of_results_of_anthropic():
    source = {"type": "base64", "media_type": "application/pdf", "data": "aGk="}
    content = [
        {"type": "text", "text": "a map"},
        BLOCKS[0]["content"][0],
        {"type": "text", "text": "and"},
        {"type": "document", "source": source, "title": "a.pdf"},
        {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "a;b"}},
    ]
    turns = [BLOCKS[1], {"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": "c1", "content": content},
        {"type": "tool_result", "tool_use_id": "c2", "content": content[1:2]},
    ]}]  # fmt: skip
    first, second = messages_from_anthropic(turns)[1:]
    assert first.reply.result.output == "a map"
    assert first.reply.contents == (
        IMAGE,
        TextContent("and"),
        FileContent(b"hi", "application/pdf", "a.pdf"),
        FileContent(b"a;b", "text/plain", ""),
    )
    assert (second.text, second.reply.contents) == ("", (IMAGE,))


def test_reads_a_failure_of_several_blocks():
    content = [{"type": "text", "text": "no"}, BLOCKS[0]["content"][0], {"type": "text", "text": "clock"}]
    call = {"role": "assistant", "content": [BLOCKS[1]["content"][3]]}
    result = {"type": "tool_result", "tool_use_id": "c2", "content": content, "is_error": True}
    assert messages_from_anthropic([call, {"role": "user", "content": [result]}])[1] == failed(TIME, "no\nclock")
    empty = {"type": "tool_result", "tool_use_id": "c2"}
    assert messages_from_anthropic([call, {"role": "user", "content": [empty]}])[1] == reply(TIME, "")


def test_a_history_moves_from_one_provider_to_the_other():
    moved = messages_to_anthropic(messages_from_openai(CHAT[:5]))
    assert moved["system"] == "You are brief."
    assert messages_from_anthropic(**moved)[1] == READ[1]
    assert [block.get("is_error") for block in moved["messages"][2]["content"]] == [True, None]


words = strategies.text(min_size=1, max_size=20).filter(str.strip)
data = strategies.binary(min_size=1)
images = strategies.builds(ImageContent, data, strategies.just("image/png")) | strategies.sampled_from(
    [ImageContent.from_url("https://example.com/map.png?size=2"), ImageContent.from_url("https://example.com/map")]
)
audio = strategies.builds(AudioContent, data, strategies.sampled_from(["audio/wav", "audio/mpeg"]))
pdfs = strategies.builds(FileContent, data, strategies.just("application/pdf"), words) | strategies.just(
    FileContent.from_url("https://example.com/report.pdf")
)
csvs = strategies.builds(FileContent, data, strategies.just("text/csv"), words)
notes = strategies.builds(FileContent, words.map(str.encode), strategies.just("text/plain"), words)
names = strategies.from_regex(r"[a-z_]{1,10}", fullmatch=True)
arguments = strategies.dictionaries(words, strategies.none() | strategies.integers(-9, 9) | words)
results = strategies.builds(ToolResult.success, words.filter(lambda text: not text.startswith("Error: "))) | (
    strategies.builds(ToolResult.failure, words.filter(lambda text: not text.startswith("Error: ")))
)


@strategies.composite
def histories(draw, contents):
    """Return a conversation that begins with the user, as all providers want it."""
    messages = [SystemMessage(draw(words))] if draw(strategies.booleans()) else []
    for turn in range(draw(strategies.integers(1, 3))):
        messages.append(UserMessage(draw(words), tuple(draw(strategies.lists(contents, max_size=3)))))
        calls = [
            ToolCall(draw(names), draw(arguments), f"call_{turn}_{index}")
            for index in range(draw(strategies.integers(0, 2)))
        ]
        messages.append(AssistantMessage(draw(words), tuple(calls)))
        messages += [ToolMessage(ToolReply(call, draw(results))) for call in calls]
    return messages


@pytest.mark.slow
@settings(deadline=None)  # the first one builds the checks of the SDK
@given(histories(images | audio | pdfs))
def test_any_history_comes_back_from_chat_completions(messages):
    check_openai(messages, "chat", ChatCompletionMessageParam)


@pytest.mark.slow
@settings(deadline=None)  # the first one builds the checks of the SDK
@given(histories(images | pdfs | csvs))
def test_any_history_comes_back_from_responses(messages):
    check_openai(messages, "responses", ResponseInputItemParam)


def check_openai(messages, api, kind):
    written = messages_to_openai(messages, api)
    read_out(adapter_of(list[kind]).validate_python(json.loads(json.dumps(written))))
    assert messages_from_openai(written) == messages


def test_contents_of_results_come_back_from_responses():
    contents = (IMAGE, TextContent("and"), FileContent(b"hi", "application/pdf", "a.pdf"))
    answers = [
        ToolMessage(ToolReply(CALL, ToolResult.success("a map", contents=contents))),
        ToolMessage(ToolReply(TIME, ToolResult.success("", contents=contents))),
    ]
    messages = [UserMessage("Go."), AssistantMessage("", (CALL, TIME)), *answers]
    check_openai(messages, "responses", ResponseInputItemParam)


def test_reads_files_of_openai_in_all_forms():
    parts = [
        {"type": "file", "file": {"file_data": "aGk="}},
        {"type": "file", "file": {"file_data": "aGk=", "filename": "a.csv"}},
        {"type": "input_file", "file_url": "https://example.com/a/report"},
        {"type": "input_file", "file_url": "https://example.com/a.docx", "filename": "b.docx"},
        {"type": "input_file", "file_data": "data:text/csv;base64,aGk=", "filename": "a.csv"},
    ]
    url = "https://example.com/a"
    word = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
    assert messages_from_openai(user(*parts))[0].contents == (
        FileContent(b"hi", "application/pdf", "file"),
        FileContent(b"hi", "text/csv", "a.csv"),
        FileContent(b"", "application/pdf", "report", url=f"{url}/report"),
        FileContent(b"", word, "b.docx", url=f"{url}.docx"),
        FileContent(b"hi", "text/csv", "a.csv"),
    )


def test_a_text_replaces_contents_that_a_format_does_not_have():
    sound, archive = AudioContent(b"hi", "audio/flac"), FileContent(b"hi", "application/zip", "a.zip")
    written = str([messages_to_openai([UserMessage("", (sound, archive))], api) for api in ("chat", "responses")])
    written += str(messages_to_anthropic([UserMessage("", (sound, archive))]))
    assert written.count("[audio/flac, 2 bytes, not shown]") == 3
    assert written.count("[a.zip, application/zip, 2 bytes, not shown]") == 3


@settings(deadline=None)  # the first one builds the checks of the SDK
@given(histories(images | pdfs | notes))
def test_any_history_comes_back_from_anthropic(messages):
    written = messages_to_anthropic(messages)
    read_out(adapter_of(list[MessageParam]).validate_python(json.loads(json.dumps(written["messages"]))))
    assert messages_from_anthropic(**written) == messages


def test_the_error_about_a_dict_names_the_converters():
    for history in ([{"role": "user", "content": "hello"}], [ChatCompletionMessage(role="assistant", content="hi")]):
        with pytest.raises(ToolConfigurationError, match="messages_from_openai or messages_from_anthropic"):
            Agent(ScriptedModel(["hi"])).run_sync("hello", history=history)
    with pytest.raises(ToolConfigurationError, match=r"Message 0 is not a message but an int$"):
        Agent(ScriptedModel(["hi"])).run_sync("hello", history=[7])


def test_a_run_continues_with_a_history_of_openai():
    model = ScriptedModel(["Yes."])
    Agent(model).run_sync("Is it?", history=messages_from_openai(CHAT[1:6]))
    assert len(model.requests[0]) == 6


def test_no_sdk_is_imported():
    code = (
        "import sys; from toolsemble.models import messages_from_openai as o, messages_to_openai as to;"
        "from toolsemble.models import messages_from_anthropic as a, messages_to_anthropic as ta;"
        "ta(o([{'role': 'user', 'content': 'hi'}])); to(a([{'role': 'user', 'content': 'hi'}]));"
        "print({'openai', 'anthropic', 'httpx'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "set()"


def user(*parts):
    return [{"role": "user", "content": list(parts)}]


def assistant(*calls, **more):
    return {"role": "assistant", "content": None, "tool_calls": list(calls), **more}


ANSWER = {"role": "tool", "tool_call_id": "c1", "content": "sunny"}


@pytest.mark.parametrize(
    ("messages", "problem"),
    [
        (7, "messages: expected a list, got 7"),
        ("hello", "messages: expected a list, got 'hello'"),
        ({"role": "user"}, "messages: expected a list, got an object with the keys 'role'"),
        (ChatCompletionMessage(role="assistant"), "messages: expected a list, got ChatCompletionMessage"),
        (["hello"], r"messages\[0\]: expected a message with a role, .* got 'hello'"),
        ([{}], r"messages\[0\]: expected a message with a role, .* got an object with the keys \(none\)"),
        ([{"type": "item_reference"}], r"messages\[0\]: expected a message .* got the type 'item_reference'"),
        ([{"role": "pope", "content": ""}], r"messages\[0\].role: expected system, .*, got 'pope'"),
        ([{"role": ["user"], "content": ""}], r"messages\[0\].role: expected system"),
        ([{"role": "user"}], r"messages\[0\].content: expected a str or a list, got None"),
        ([{"role": "user", "content": 7}], r"messages\[0\].content: expected a str or a list, got 7"),
        (user("hi"), r"messages\[0\].content\[0\]: expected a text, an image, audio or a file, got 'hi'"),
        (user({"type": "text", "text": 7}), r"messages\[0\].content\[0\].text: expected a str, got 7"),
        (user({"type": "video"}), "expected a text, an image, audio or a file, got the type 'video'"),
        (user({"type": "file", "file": {"file_id": "f1"}}), r"\[0\].file: expected file_data or file_url; .* id"),
        (user({"type": "file", "file": {"file_data": 7}}), r"file.file_data: expected a str, got 7"),
        (user({"type": "file", "file": {"file_data": "a"}}), r"file.file_data: this is not base64"),
        (user({"type": "file", "file": {"file_data": "data:a"}}), r"file.file_data: FileContent cannot decode"),
        (user({"type": "input_file", "file_url": "file:///etc/passwd"}), r"file_url: FileContent needs an http"),
        (user({"type": "input_file", "filename": 7, "file_data": "aGk="}), r"filename: expected a str, got 7"),
        (user({"type": "input_audio", "input_audio": {"data": "aGk="}}), "format: expected wav or mp3, got None"),
        (user({"type": "input_audio", "input_audio": {"data": "aGk=", "format": []}}), "format: expected wav or mp3"),
        (user({"type": "input_audio", "input_audio": {"format": "wav"}}), r"input_audio.data: expected a str"),
        (user({"type": "image_url", "image_url": {}}), r"image_url.url: expected a str, got None"),
        (user({"type": "image_url", "image_url": {"url": "file:///etc/passwd"}}), r"url: ImageContent needs an http"),
        (user({"type": "image_url", "image_url": {"url": "http://a:b@c/"}}), "url: ImageContent URL contains a pass"),
        (user({"type": "input_image", "image_url": "data:image/png,hi"}), "expected an image as data:image/png;base64"),
        (user({"type": "input_image", "image_url": "data:text/html;base64,aGk="}), "the media type of an image"),
        (user({"type": "input_image", "image_url": "data:image/png;base64,a"}), "this is not base64"),
        ([{"role": "system", "content": user({"type": "input_image", "image_url": PNG})[0]["content"]}], "text only"),
        ([assistant(7)], r"messages\[0\].tool_calls\[0\]: Expected an OpenAI call"),
        ([assistant({"id": "c1", "type": "custom", "custom": {}})], r"tool_calls\[0\]: Expected an OpenAI call"),
        ([assistant({"id": "", "function": {"name": "a"}})], "a call needs a name and an id"),
        ([assistant({"id": "c1", "function": {}})], "a call needs a name and an id"),
        ([assistant(function_call(CALL), function_call(CALL))], "call 1: two calls have the id 'c1'"),
        ([assistant(function_call(CALL))], r"messages\[0\], call 0: the call 'c1' of 'weather' has no reply"),
        ([assistant(function_call(CALL)), *user()], "the call 'c1' of 'weather' has no reply"),
        ([ANSWER], r"messages\[0\]: it answers the call 'c1', which was not made just before it"),
        ([assistant(function_call(CALL)), ANSWER, ANSWER], r"messages\[2\]: it answers the call 'c1'"),
        ([{"role": "tool", "content": ""}], r"messages\[0\].tool_call_id: expected a str, got None"),
        ([assistant(function_call={"name": "a"})], "function_call and audio of an assistant are not supported"),
        ([{"type": "function_call_output", "call_id": 7, "output": ""}], "call_id: expected a str, got 7"),
        ([{"role": "assistant", "refusal": 7}], "refusal: expected a str, got 7"),
    ],
)  # fmt: skip
def test_rejects_what_is_not_a_history_of_openai(messages, problem):
    with pytest.raises(ValueError, match=problem):
        messages_from_openai(messages)


def test_rejects_an_unknown_api_of_openai():
    with pytest.raises(ValueError, match="OpenAI's api is 'chat' or 'responses', not 'text'"):
        messages_to_openai([], "text")


def result_of(content):
    return [BLOCKS[1], {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": content}]}]


LOOP = {"type": "thinking"}
LOOP["self"] = LOOP


@pytest.mark.parametrize(
    ("messages", "problem"),
    [
        (None, "messages: expected a list, got None"),
        ([{"role": "system", "content": "x"}], r"messages\[0\].role: expected user or assistant, got 'system'"),
        ([{"role": "user"}], r"messages\[0\].content: expected a str or a list, got None"),
        (user({"type": "audio"}), "expected a text, an image, a document or a tool_result, got the type 'audio'"),
        (user({"type": "document"}), "source: expected a source of the type base64, text or url, got None"),
        (user({"type": "document", "source": {"type": "file"}}), "base64, text or url, got the type 'file'"),
        (user({"type": "document", "source": {"type": "url", "url": "ftp://a"}}), "source.url: FileContent needs"),
        (user({"type": "text"}), r"messages\[0\].content\[0\].text: expected a str, got None"),
        (user({"type": "tool_result"}), "tool_use_id: expected a str, got None"),
        (user({"type": "image"}), r"content\[0\].source: expected a source of the type base64 or url, got None"),
        (user({"type": "image", "source": {"type": "file"}}), "of the type base64 or url, got the type 'file'"),
        (user({"type": "image", "source": {"type": "url"}}), "source.url: expected a str, got None"),
        (user({"type": "image", "source": {"type": "base64", "data": "aGk="}}), "expected the media type of an image"),
        ([{"role": "assistant", "content": ["hi"]}], r"content\[0\]: expected an object, got 'hi'"),
        ([{"role": "assistant", "content": [{"type": "text", "text": b""}]}], "it must consist of JSON values"),
        ([{"role": "assistant", "content": [LOOP]}], "it must consist of JSON values"),
        ([{"role": "assistant", "content": [{"type": "text"}]}], "text: expected a str, got None"),
        ([{"role": "assistant", "content": [{"type": 7}]}], "expected a block with a type, got the type 7"),
        ([{"role": "assistant", "content": [{"type": "tool_use", "name": "a"}]}], "a call needs a name and an id"),
        (BLOCKS[:2], r"messages\[1\], call 0: the call 'c1' of 'weather' has no reply"),
        (result_of([{"type": "audio"}]), r"content\[0\].content\[0\]: expected a text, an image or a document"),
        (result_of([{"type": "document"}]), "source: expected a source of the type base64, text or url, got None"),
        (result_of(7), r"messages\[1\].content\[0\].content: expected a str or a list, got 7"),
    ],
)  # fmt: skip
def test_rejects_what_is_not_a_history_of_anthropic(messages, problem):
    with pytest.raises(ValueError, match=problem):
        messages_from_anthropic(messages)


def test_rejects_a_system_prompt_that_is_not_text():
    with pytest.raises(ValueError, match=r"system\[0\].text: expected a str, got None"):
        messages_from_anthropic([], [{}])
    with pytest.raises(ValueError, match="system: expected a str or a list, got 7"):
        messages_from_anthropic([], 7)


@pytest.mark.parametrize("write", [messages_to_json, messages_to_openai, messages_to_anthropic])
@pytest.mark.parametrize(
    ("messages", "problem"),
    [
        ([5], "takes messages of toolsemble.models; message 0 is of the type int$"),
        ([UserMessage("a"), {"role": "user", "content": "b"}], "message 1 is of the type dict; convert the list with"),
        ("x", "takes a list of messages of toolsemble.models, not 'x'"),
        (b"", "takes a list of messages of toolsemble.models, not b''"),
        ({}, "takes a list of messages of toolsemble.models, not {}"),
        (None, "takes a list of messages of toolsemble.models, not None"),
    ],
)
def test_writers_reject_what_is_no_list_of_messages(write, messages, problem):
    with pytest.raises(TypeError, match=f"{write.__name__} .*{problem}|{write.__name__} {problem}"):
        write(messages)


def test_messages_from_json_names_what_came_instead():
    with pytest.raises(TypeError, match="messages_from_json takes the text of messages_to_json, not 5"):
        messages_from_json(5)
    with pytest.raises(ValueError, match=r"Message 0: This is not a message: '1' .*it must be an object with a role"):
        messages_from_json("[1]")


def test_messages_from_anthropic_names_the_stars_for_what_messages_to_anthropic_wrote():
    written = messages_to_anthropic([SystemMessage("Be brief."), UserMessage("hello")])
    with pytest.raises(ValueError, match=r"got a dict with messages; write messages_from_anthropic\(\*\*it\)"):
        messages_from_anthropic(written)
    assert [message.text for message in messages_from_anthropic(**written)] == ["Be brief.", "hello"]


@pytest.mark.parametrize("role", ["system", "developer", "user", "assistant"])
def test_rejects_the_name_of_a_participant(role):
    message = {"role": role, "content": "hello", "name": "ada"}
    with pytest.raises(ValueError, match=r"messages\[0\].name: the name of a participant is not supported; write it"):
        messages_from_openai([message])
    assert messages_from_openai([{**message, "name": None}])[0].text == "hello"
