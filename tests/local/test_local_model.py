"""The model in this process: the real llama.cpp, with a model so small that every letter of its answers is known."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import random
import subprocess
import sys
import threading
from contextlib import aclosing
from pathlib import Path

import jsonschema_rs
import pytest

from helpers.tiny_model import TEMPLATE, write_model
from toolsemble import (
    Agent,
    AgentExecutionError,
    ModelError,
    Toolbox,
    ToolCall,
    ToolConfigurationError,
    ToolDefinitionError,
    ToolReply,
    ToolResult,
    ToolSpecification,
    tool,
)
from toolsemble._vocabulary.result import FileContent, ImageContent
from toolsemble.models import (
    ArgumentsDelta,
    Assembly,
    AssistantMessage,
    CallDelta,
    ChatReply,
    ChatRequest,
    LocalModel,
    PromptProgress,
    SystemMessage,
    TextDelta,
    TokenUsage,
    ToolMessage,
    UserMessage,
    model_of,
)
from toolsemble.models._local import engine as prefix_cache

pytestmark = pytest.mark.slow

SAYS = {'"': 'abn"}], ', "a": 'b"', "b": '"', "\n": "h{", "h": "i", "i": "\0"}
"""Calls what begins with an a, else with a b; says "ab" where it is free to, and "hi" in a chat."""
ENDLESS = {**SAYS, "b": "b", "h": "h"}
WEATHER = ToolSpecification(
    "about", "The weather", {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
)
BOUND = 60


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """Return a cache for all tests, so that a prompt is computed once."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def _surroundings(shared, monkeypatch):
    """Use a separate cache, and unload the engines at the end of a test."""
    monkeypatch.setenv("TOOLSEMBLE_CACHE", str(shared))
    monkeypatch.delenv("TOOLSEMBLE_MODEL", raising=False)
    yield
    gc.collect()


@pytest.fixture
def cache(_surroundings, tmp_path, monkeypatch):
    """Set up a separate cache for each test."""
    monkeypatch.setenv("TOOLSEMBLE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(scope="session")
def tiny(tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("tiny") / "tiny.gguf", SAYS)


@pytest.fixture(scope="session")
def endless(tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("endless") / "endless.gguf", ENDLESS)


@tool
def about(city: str) -> str:
    """Gives the weather."""
    return f"sunny in {city}"


def make_request(text="hello", *specifications, **more):
    return ChatRequest([UserMessage(text)], specifications, **more)


def summarize(reply: ChatReply):
    return reply.text, [(call.name, call.json) for call in reply.calls], reply.stop_reason


async def test_chat_without_tools_is_answered_in_plain_text(tiny):
    reply = await LocalModel(tiny, threads=1).reply(make_request())
    assert reply == ChatReply("hi", usage=TokenUsage(114, 3, 0))


async def test_agent_calls_tool_and_answers(tiny):
    result = await Agent(LocalModel(tiny, threads=1), [about]).run("hello")
    assert [(record.call.name, record.call.json, record.reply.text) for record in result.tool_calls] == [
        ("about", '{"city": "ab"}', "sunny in ab")
    ]
    # Once more would be the same call, so the model is held to an answer.
    assert (result.text, result.stop_reason) == ("ab", "answer")


def test_runs_in_successive_loops_share_loaded_model(tiny):
    agent = Agent(LocalModel(tiny, threads=1), [about])
    assert [agent.run_sync("hello").text for _ in range(3)] == ["ab"] * 3


async def test_waiting_run_releases_closed_event_loops(tiny, monkeypatch):
    monkeypatch.setattr("toolsemble.models._local.engine._SWEEP_INTERVAL", 0.001)
    swept, model = asyncio.Event(), LocalModel(tiny, threads=1)
    monkeypatch.setattr("toolsemble._runtime.locks.Table.release_closed_loops", lambda _: swept.set())
    stream = model.stream(make_request("hello", WEATHER))
    await anext(stream)
    waiting = asyncio.create_task(model.reply(make_request()))
    await swept.wait()
    await stream.aclose()
    assert (await waiting).text == "hi"


async def test_stream_yields_calls_and_text_as_generated(tiny):
    model = LocalModel(tiny, threads=1)
    chunks = [chunk async for chunk in model.stream(make_request("hello", WEATHER))]
    progress = [chunk.fraction for chunk in chunks if isinstance(chunk, PromptProgress)]
    assert len(progress) > 1
    assert progress == sorted(progress)
    assert 0 < progress[0] < progress[-1] < 1
    assert isinstance(chunks[len(progress)], CallDelta)
    assert len([chunk for chunk in chunks if isinstance(chunk, ArgumentsDelta)]) > 3
    assert (chunks[-1].stop_reason, set(chunks[-1].details["local_plan"])) == ("calls", {"about"})
    texts = [chunk async for chunk in model.stream(make_request("hello", WEATHER, tool_choice="none"))]
    assert [chunk for chunk in texts[:-1] if not isinstance(chunk, PromptProgress)] == [TextDelta("a"), TextDelta("b")]
    assert texts[-1].stop_reason == "stop"


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ("auto", ("", [("about", '{"city": "ab"}')], "calls")),
        ("required", ("", [("about", '{"city": "ab"}')], "calls")),
        ("none", ("ab", [], "stop")),
    ],
)
async def test_tool_choice_is_respected(tiny, choice, expected):
    assert (
        summarize(await LocalModel(tiny, threads=1).reply(make_request("hello", WEATHER, tool_choice=choice)))
        == expected
    )


async def test_call_is_repeated_only_if_required(tiny):
    call = ToolCall("about", {"city": "ab"}, "1")
    reply = ToolMessage(ToolReply(call, ToolResult.success("sunny")))
    messages = [UserMessage("hello"), AssistantMessage("", (call,)), reply]
    model = LocalModel(tiny, threads=1)
    assert summarize(await model.reply(ChatRequest(messages, [WEATHER], "required")))[1] == [
        ("about", '{"city": "ab"}')
    ]
    assert summarize(await model.reply(ChatRequest(messages, [WEATHER]))) == ("ab", [], "stop")
    again = ChatRequest([*messages, AssistantMessage("ab"), UserMessage("once more")], [WEATHER])
    assert summarize(await model.reply(again))[1] == [("about", '{"city": "ab"}')]
    assert summarize(await model.reply(ChatRequest(messages))) == ("ab", [], "stop")


async def test_failed_calls_are_followed_by_other_calls_until_limit(tiny):
    def ended(result, *cities):
        messages = [UserMessage("hello")]
        for city in cities:
            call = ToolCall("about", {"city": city}, city)
            messages += [AssistantMessage("", (call,)), ToolMessage(ToolReply(call, result))]
        return ChatRequest(messages, [WEATHER])

    model, closed = LocalModel(tiny, threads=1), ToolResult.failure("closed")
    assert summarize(await model.reply(ended(ToolResult.success("sunny"), "ab"))) == ("ab", [], "stop")
    once = await model.reply(ended(closed, "ab"))
    assert summarize(once) == ("", [("about", '{"city": "b"}')], "calls")
    twice = await model.reply(ended(closed, "ab", "b"))
    assert summarize(twice) == ("ab", [], "stop")
    assert twice.usage.output > once.usage.output


async def test_answer_matches_schema(tiny):
    schema = {"type": "object", "properties": {"n": {"enum": [7]}, "s": {"const": "x"}}, "required": ["n", "s"]}
    model = LocalModel(tiny, threads=1)
    assert summarize(await model.reply(make_request(output_schema=schema))) == ('{"n": 7, "s": "x"}', [], "stop")
    history = [UserMessage("hello"), AssistantMessage('{"n": 7, "s": "x"}'), UserMessage("again")]
    assert (await model.reply(ChatRequest(history, output_schema=schema))).text == '{"n": 7, "s": "x"}'
    assert model.native_output
    assert (await Agent(model, output_type=list[bool]).run("hello")).output == [True]


async def test_tool_may_be_named_like_the_answer(tiny):
    @tool(name="final_answer")
    def final() -> str:
        """Not an answer."""
        return "taken"

    request = make_request("hello", *Toolbox([final]).specifications)
    assert summarize(await LocalModel(tiny, threads=1).reply(request))[1] == [("final_answer", "{}")]


@pytest.mark.parametrize("text", ["<|im_end|>", "<|im_start|>assistant\n", "<|endoftext|>", "[mark-5e1c7a-0]"])
async def test_special_tokens_in_text_are_not_interpreted(tiny, text):
    model = LocalModel(tiny, threads=1)
    plain = await model.reply(make_request("x" * len(text)))
    assert (await model.reply(make_request(text))).usage.input == plain.usage.input
    call = ToolCall("about", {"city": text}, "1")

    async def tokens(result):
        reply = ToolMessage(ToolReply(call, ToolResult.success(result)))
        messages = [SystemMessage(result), UserMessage("hello"), AssistantMessage("", (call,)), reply]
        return (await model.reply(ChatRequest(messages, [WEATHER]))).usage.input

    assert await tokens(text) == await tokens("x" * len(text))


async def test_too_long_answer_is_truncated(endless):
    model = LocalModel(endless, threads=1, max_tokens=120)
    reply = await model.reply(make_request("hello", WEATHER))
    assert (reply.stop_reason, reply.usage.output) == ("length", 120)
    assert reply.calls[0].json.startswith('{"city": "abbbb')
    assert summarize(await model.reply(make_request(settings={"max_tokens": 3, "seed": 1}))) == ("hhh", [], "length")


async def test_closing_stream_stops_computation(endless):
    model = LocalModel(endless, threads=1, context=16384, max_tokens=10_000)
    async with asyncio.timeout(BOUND):
        async with aclosing(model.stream(make_request())) as chunks:
            assert await anext(chunks) == TextDelta("h")
        reply = await model.reply(make_request(settings={"max_tokens": 2}))
    assert reply.text == "hh"


async def test_cancelled_task_stops_computation_and_yields_to_next(endless):
    model = LocalModel(endless, threads=1, context=16384, max_tokens=10_000)
    begun = asyncio.Event()

    async def run():
        async with aclosing(model.stream(make_request())) as chunks:
            async for _ in chunks:
                begun.set()

    running, waiting = asyncio.create_task(run()), asyncio.create_task(model.reply(make_request()))
    async with asyncio.timeout(BOUND):
        await begun.wait()
        waiting.cancel()
        running.cancel()
        await asyncio.wait([running, waiting])
        assert (running.cancelled(), waiting.cancelled()) == (True, True)
        assert (await model.reply(make_request(settings={"max_tokens": 2}))).text == "hh"


def test_agents_in_many_threads_take_turns(tiny):
    answers = []

    def run():
        async def several():
            model = LocalModel(tiny, threads=1)
            return await asyncio.gather(*(model.reply(make_request("hello", WEATHER)) for _ in range(3)))

        answers.extend(asyncio.run(several()))

    keeping = LocalModel(tiny, threads=1)
    asyncio.run(keeping.reply(make_request()))
    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(BOUND)
    assert [answer.calls[0].json for answer in answers] == ['{"city": "ab"}'] * 12


async def test_cached_prompt_tokens_are_counted(tiny):
    model = LocalModel(tiny, threads=1)
    first, second = [(await model.reply(make_request("hello", WEATHER))).usage for _ in range(2)]
    assert first.input == second.input
    assert second.cached == second.input - 1
    assert first.cached > first.input // 2  # what comes before the conversation was computed beforehand


async def test_prompt_prefix_is_cached_across_processes(tiny, cache, monkeypatch):
    async def fresh():
        gc.collect()  # nothing references the engine
        return (await LocalModel(tiny, threads=1).reply(make_request("hello", WEATHER))).usage.cached

    def kept():
        return {path.name: path.read_bytes() for path in (cache / "prefixes").iterdir()}

    computed = await fresh()
    ((name, content),) = kept().items()
    assert await fresh() == computed
    assert kept() == {name: content}
    (cache / "prefixes" / name).write_bytes(content[: len(content) // 2])
    assert await fresh() == computed
    assert kept() == {name: content}
    monkeypatch.setattr(prefix_cache, "_MAX_BYTES", 1)
    (cache / "prefixes" / name).rename(cache / "prefixes" / "another.kv")
    assert await fresh() == computed
    assert kept() == {name: content}


async def test_unwritable_cache_does_not_fail_model(tiny, cache):
    cache.mkdir()
    (cache / "prefixes").write_text("a file")
    assert summarize(await LocalModel(tiny, threads=1).reply(make_request("hello", WEATHER)))[2] == "calls"
    gc.collect()
    (cache / "prefixes").unlink()
    model = LocalModel(tiny, threads=1)
    await model.reply(make_request())
    (cache / "prefixes").rmdir()  # as if the disk were full
    assert summarize(await model.reply(make_request("hello", WEATHER)))[2] == "calls"


async def test_images_are_rejected(tiny):
    message = UserMessage("what is this?", (ImageContent(b"...", "image/png"),))
    with pytest.raises(ModelError, match=r"reads text and text files only, not \[image/png, 3 bytes, not shown\]; use"):
        await LocalModel(tiny, threads=1).reply(ChatRequest([message]))


async def test_text_files_are_part_of_the_prompt(tiny):
    model = LocalModel(tiny, threads=1)
    notes = FileContent(b"Rome is sunny.", "text/plain", "notes.txt")
    asked = await model.reply(ChatRequest([UserMessage("hello", (notes,))]))
    written = await model.reply(ChatRequest([UserMessage("hello\n\nFile notes.txt:\n\nRome is sunny.")]))
    assert (asked.text, asked.usage.input) == (written.text, written.usage.input)


async def test_setting_rejected_by_llama_cpp_is_reported(tiny):
    with pytest.raises(ModelError, match=r"^llama\.cpp: .*type must be"):
        await LocalModel(tiny, threads=1).reply(make_request(settings={"temperature": "warm"}))


async def test_too_long_conversation_loses_oldest_turns(endless):
    model = LocalModel(endless, threads=1, context=2048, max_tokens=20)
    history = [message for _ in range(50) for message in (UserMessage("q" * 100), AssistantMessage("a" * 100))]
    reply = await model.reply(ChatRequest([*history, UserMessage("now")]))
    assert 1500 < reply.usage.input <= 2048
    with pytest.raises(ModelError, match="The question and its last step have 3"):
        await model.reply(make_request("q" * 3000))
    with pytest.raises(AgentExecutionError, match="The question and its last step have 3"):
        await Agent(model).run("q" * 3000)


async def test_context_is_limited_by_the_model(tmp_path):
    model = LocalModel(write_model(tmp_path / "small.gguf", SAYS, context=512), threads=1)
    with pytest.raises(ModelError, match=r"takes \d+ tokens of 384; offer fewer tools"):
        await model.reply(make_request("hello", WEATHER))


NO_SYSTEM = TEMPLATE.replace(
    "{% for", "{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}{% for", 1
)


@pytest.mark.parametrize(
    "template", [NO_SYSTEM, TEMPLATE.replace("messages %}", "messages if message.role != 'system' %}")]
)
async def test_template_without_system_messages_gets_a_user_message(tmp_path, template):
    model = LocalModel(write_model(tmp_path / "other.gguf", SAYS, template=template), threads=1)
    assert summarize(await model.reply(make_request("hello", WEATHER)))[1] == [("about", '{"city": "ab"}')]


ONE_QUESTION = TEMPLATE.replace(
    "{% for", "{% if messages|length > 2 %}{{ raise_exception('one question only') }}{% endif %}{% for", 1
)


@pytest.mark.parametrize("template", [ONE_QUESTION, "nothing of it"])
async def test_failing_template_is_reported(tmp_path, template):
    model = LocalModel(write_model(tmp_path / "other.gguf", SAYS, template=template), threads=1)
    with pytest.raises(ModelError, match="The chat template of this model cannot format this conversation: "):
        await model.reply(make_request("hello", WEATHER))


async def test_unloadable_file_is_reported(tmp_path, capfd):
    path = tmp_path / "bad.gguf"
    path.write_bytes(b"GGUF" + bytes(100))
    with pytest.raises(ModelError, match=r"llama\.cpp cannot load .*bad\.gguf: it is damaged"):
        await LocalModel(path).reply(make_request())
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        (
            "local",
            r"qwen2\.5-coder-1\.5b.*: run `toolsemble models pull` once, which downloads 1\.1 GB; .* 1\.5 GB of mem",
        ),
        ("local:small", r"run `toolsemble models pull small` once, which downloads 0\.5 GB"),
        ("local:smal", r"Unknown embedded model 'smal'; known: qwen2\.5-coder-1\.5b \(default\)"),
        ("local:/nowhere/x.gguf", "There is no file '/nowhere/x.gguf'; pass the path of a .gguf file$"),
        (f"local:{__file__}", 'is not a GGUF file: it begins with b\'"""T\''),
    ],
)
def test_missing_weights_error_names_next_step(name, problem):
    with pytest.raises(ToolConfigurationError, match=problem):
        model_of(name)


def test_weights_are_found_by_path_and_by_variable(tiny, monkeypatch):
    assert repr(model_of(f"local:{tiny}")) == "LocalModel('tiny.gguf')"
    monkeypatch.setenv("TOOLSEMBLE_MODEL", str(tiny))
    assert LocalModel().path == tiny


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"context": 255}, "context must be an int >= 256, not 255"),
        ({"context": "large"}, "context must be an int >= 256, not 'large'"),
        ({"max_tokens": 0}, "max_tokens must be an int >= 1, not 0"),
        ({"threads": True}, "threads must be an int >= 1, not True"),
    ],
)
def test_invalid_settings_are_rejected(tiny, settings, problem):
    with pytest.raises(ToolDefinitionError, match=problem):
        LocalModel(tiny, **settings)


def test_omp_wait_policy_is_not_changed(tiny, monkeypatch):
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    LocalModel(tiny)
    assert "OMP_WAIT_POLICY" not in os.environ
    monkeypatch.setenv("OMP_WAIT_POLICY", "active")
    LocalModel(tiny)
    assert os.environ["OMP_WAIT_POLICY"] == "active"


PROGRAM = """
import asyncio, sys
from toolsemble.models import ChatRequest, LocalModel, UserMessage

model = LocalModel(sys.argv[1], threads=1, context=16384, max_tokens=10_000)

async def main():
    stream = model.stream(ChatRequest([UserMessage("hello")]))
    print((await anext(stream)).text)

asyncio.run(main())
"""


def test_program_can_exit_during_answer(endless):
    ended = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROGRAM, str(endless)],
        capture_output=True,
        text=True,
        timeout=BOUND,
        check=False,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "src")},
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "h\n", "")


def test_reply_and_stream_agree(tiny):
    async def both():
        model = LocalModel(tiny, threads=1)
        assembly = Assembly()
        async for chunk in model.stream(make_request("hello", WEATHER)):
            assembly.add(chunk)
        return summarize(assembly.reply()), summarize(await model.reply(make_request("hello", WEATHER)))

    streamed, whole = asyncio.run(both())
    assert streamed == whole
    assert json.loads(whole[1][0][1]) == {"city": "ab"}


HOSTILE = ['x" | "y', "a\\", "a\nroot ::= [a-z]", "\u2028", "]#%{}", "<|im_end|>", "ü😀", "a" * 64]


def make_schema(draw: random.Random, depth: int = 3):
    """Return a schema out of what tools are made of, with names that try to break out of the grammar."""
    kinds = ["string", "integer", "number", "boolean", "null", "enum", "const", "date", "any"]
    kind = draw.choice(kinds + ["object", "array", "union"] * 3 if depth else kinds)
    if kind == "object":
        properties = {draw.choice(HOSTILE): make_schema(draw, depth - 1) for _ in range(draw.randint(0, 3))}
        return {
            "type": "object",
            "properties": properties,
            "required": [name for name in properties if draw.random() < 0.5],
        }
    if kind == "array":
        least = draw.randint(0, 2)
        return {"type": "array", "items": make_schema(draw, depth - 1), "minItems": least, "maxItems": least + 2}
    plain = {
        "union": {"anyOf": [make_schema(draw, depth - 1), {"type": "null"}]} if kind == "union" else {},
        "enum": {"enum": draw.sample(HOSTILE, 2)},
        "const": {"const": [draw.choice(HOSTILE), 1.5, None]},
        "date": {"type": "string", "format": "date"},
        "any": {},
    }
    return plain.get(kind, {"type": kind})


@pytest.fixture(scope="module")
def shared_model(tiny):
    """Return one model for many questions."""
    return LocalModel(tiny, threads=1, max_tokens=400)


@pytest.mark.parametrize("seed", range(16))
async def test_arguments_match_random_schemas(shared_model, seed):
    draw = random.Random(seed)  # noqa: S311 - the same each time
    schema = {
        "type": "object",
        "properties": {name: make_schema(draw) for name in HOSTILE[:3]},
        "required": HOSTILE[:2],
    }
    name = draw.choice(["find", "-", "a" * 64])
    request = make_request("hello", ToolSpecification(name, "", schema), tool_choice="required")
    reply = await shared_model.reply(request)
    assert reply.calls[0].name == name
    if reply.stop_reason != "length":
        jsonschema_rs.validate(schema, json.loads(reply.calls[0].json))


async def test_reasoning_cannot_be_set(tiny):
    with pytest.raises(ToolConfigurationError, match="The local model has no reasoning setting; leave out reasoning="):
        await LocalModel(tiny, threads=1).reply(ChatRequest([UserMessage("hello")], reasoning="low"))
