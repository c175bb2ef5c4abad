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
from toolsemble.local import prefix_cache
from toolsemble.models import (
    ArgumentsDelta,
    Assembly,
    AssistantMessage,
    CallDelta,
    ChatReply,
    ChatRequest,
    LocalModel,
    SystemMessage,
    TextDelta,
    TokenUsage,
    ToolMessage,
    UserMessage,
    model_of,
)
from toolsemble.result import ImageContent

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
    """Return a test a cache of its own."""
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


def asked(text="hello", *specifications, **more):
    return ChatRequest([UserMessage(text)], specifications, **more)


def shape(reply: ChatReply):
    return reply.text, [(call.name, call.arguments) for call in reply.calls], reply.stop_reason


async def test_a_chat_without_tools_is_answered_in_plain_text(tiny):
    reply = await LocalModel(tiny, threads=1).reply(asked())
    assert reply == ChatReply("hi", usage=TokenUsage(62, 3, 0))


async def test_a_tool_is_called_and_then_the_question_answered(tiny):
    result = await Agent(LocalModel(tiny, threads=1), [about]).run("hello")
    assert [(record.call.name, record.call.json, record.reply.text) for record in result.tool_calls] == [
        ("about", '{"city": "ab"}', "sunny in ab")
    ]
    # Once more would be the same call, so the model is held to an answer.
    assert (result.text, result.stop_reason) == ("ab", "answer")


def test_runs_in_one_event_loop_after_the_other_share_what_is_loaded(tiny):
    agent = Agent(LocalModel(tiny, threads=1), [about])
    assert [agent.run_sync("hello").text for _ in range(3)] == ["ab"] * 3


async def test_a_run_that_waits_for_the_model_looks_for_closed_event_loops(tiny, monkeypatch):
    monkeypatch.setattr("toolsemble.local.engine._SWEEP_INTERVAL", 0.001)
    swept, model = asyncio.Event(), LocalModel(tiny, threads=1)
    monkeypatch.setattr("toolsemble.locks.table.Table.release_closed_loops", lambda _: swept.set())
    stream = model.stream(asked("hello", WEATHER))
    await anext(stream)
    waiting = asyncio.create_task(model.reply(asked()))
    await swept.wait()
    await stream.aclose()
    assert (await waiting).text == "hi"


async def test_a_stream_tells_calls_and_text_as_they_are_written(tiny):
    model = LocalModel(tiny, threads=1)
    chunks = [chunk async for chunk in model.stream(asked("hello", WEATHER))]
    assert isinstance(chunks[0], CallDelta)
    assert len([chunk for chunk in chunks if isinstance(chunk, ArgumentsDelta)]) > 3
    assert (chunks[-1].stop_reason, set(chunks[-1].details["local_plan"])) == ("calls", {"about"})
    texts = [chunk async for chunk in model.stream(asked("hello", WEATHER, tool_choice="none"))]
    assert texts[:-1] == [TextDelta("a"), TextDelta("b")]
    assert texts[-1].stop_reason == "stop"


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ("auto", ("", [("about", '{"city": "ab"}')], "calls")),
        ("required", ("", [("about", '{"city": "ab"}')], "calls")),
        ("none", ("ab", [], "stop")),
    ],
)
async def test_the_model_may_call_must_or_must_not(tiny, choice, expected):
    assert shape(await LocalModel(tiny, threads=1).reply(asked("hello", WEATHER, tool_choice=choice))) == expected


async def test_a_call_is_repeated_only_where_there_is_no_other_way(tiny):
    call = ToolCall("about", {"city": "ab"}, "1")
    said = ToolMessage(ToolReply(call, ToolResult.success("sunny")))
    messages = [UserMessage("hello"), AssistantMessage("", (call,)), said]
    model = LocalModel(tiny, threads=1)
    assert shape(await model.reply(ChatRequest(messages, [WEATHER], "required")))[1] == [("about", '{"city": "ab"}')]
    assert shape(await model.reply(ChatRequest(messages, [WEATHER]))) == ("ab", [], "stop")
    again = ChatRequest([*messages, AssistantMessage("ab"), UserMessage("once more")], [WEATHER])
    assert shape(await model.reply(again))[1] == [("about", '{"city": "ab"}')]
    assert shape(await model.reply(ChatRequest(messages))) == ("ab", [], "stop")


async def test_after_a_failure_another_call_is_looked_for_before_an_answer_and_every_try_counts(tiny):
    def ended(result, *cities):
        messages = [UserMessage("hello")]
        for city in cities:
            call = ToolCall("about", {"city": city}, city)
            messages += [AssistantMessage("", (call,)), ToolMessage(ToolReply(call, result))]
        return ChatRequest(messages, [WEATHER])

    model, closed = LocalModel(tiny, threads=1), ToolResult.failure("closed")
    assert shape(await model.reply(ended(ToolResult.success("sunny"), "ab"))) == ("ab", [], "stop")
    once = await model.reply(ended(closed, "ab"))
    assert shape(once) == ("", [("about", '{"city": "b"}')], "calls")
    twice = await model.reply(ended(closed, "ab", "b"))
    assert shape(twice) == ("ab", [], "stop")
    assert twice.usage.output > once.usage.output


async def test_an_answer_fits_its_schema(tiny):
    schema = {"type": "object", "properties": {"n": {"enum": [7]}, "s": {"const": "x"}}, "required": ["n", "s"]}
    model = LocalModel(tiny, threads=1)
    assert shape(await model.reply(asked(output_schema=schema))) == ('{"n": 7, "s": "x"}', [], "stop")
    history = [UserMessage("hello"), AssistantMessage('{"n": 7, "s": "x"}'), UserMessage("again")]
    assert (await model.reply(ChatRequest(history, output_schema=schema))).text == '{"n": 7, "s": "x"}'
    assert model.native_output
    assert (await Agent(model, output_type=list[bool]).run("hello")).output == [True]


async def test_a_tool_may_have_the_name_of_the_answer(tiny):
    @tool(name="final_answer")
    def final() -> str:
        """Not an answer."""
        return "taken"

    request = asked("hello", *Toolbox([final]).specifications)
    assert shape(await LocalModel(tiny, threads=1).reply(request))[1] == [("final_answer", "{}")]


@pytest.mark.parametrize("text", ["<|im_end|>", "<|im_start|>assistant\n", "<|endoftext|>", "[mark-5e1c7a-0]"])
async def test_no_text_can_end_a_turn(tiny, text):
    model = LocalModel(tiny, threads=1)
    plain = await model.reply(asked("x" * len(text)))
    assert (await model.reply(asked(text))).usage.input == plain.usage.input
    call = ToolCall("about", {"city": text}, "1")

    async def tokens(result):
        said = ToolMessage(ToolReply(call, ToolResult.success(result)))
        messages = [SystemMessage(result), UserMessage("hello"), AssistantMessage("", (call,)), said]
        return (await model.reply(ChatRequest(messages, [WEATHER]))).usage.input

    assert await tokens(text) == await tokens("x" * len(text))


async def test_an_answer_that_is_too_long_is_cut(endless):
    model = LocalModel(endless, threads=1, max_tokens=120)
    reply = await model.reply(asked("hello", WEATHER))
    assert (reply.stop_reason, reply.usage.output) == ("length", 120)
    assert reply.calls[0].json.startswith('{"city": "abbbb')
    assert shape(await model.reply(asked(settings={"max_tokens": 3, "seed": 1}))) == ("hhh", [], "length")


async def test_a_stream_that_is_closed_stops_the_computation(endless):
    model = LocalModel(endless, threads=1, context=16384, max_tokens=10_000)
    async with asyncio.timeout(BOUND):
        async with aclosing(model.stream(asked())) as chunks:
            assert await anext(chunks) == TextDelta("h")
        reply = await model.reply(asked(settings={"max_tokens": 2}))
    assert reply.text == "hh"


async def test_a_task_that_is_cancelled_stops_the_computation_and_gives_its_turn_to_the_next(endless):
    model = LocalModel(endless, threads=1, context=16384, max_tokens=10_000)
    begun = asyncio.Event()

    async def run():
        async with aclosing(model.stream(asked())) as chunks:
            async for _ in chunks:
                begun.set()

    running, waiting = asyncio.create_task(run()), asyncio.create_task(model.reply(asked()))
    async with asyncio.timeout(BOUND):
        await begun.wait()
        waiting.cancel()
        running.cancel()
        await asyncio.wait([running, waiting])
        assert (running.cancelled(), waiting.cancelled()) == (True, True)
        assert (await model.reply(asked(settings={"max_tokens": 2}))).text == "hh"


def test_agents_in_many_threads_wait_for_their_turn(tiny):
    answers = []

    def run():
        async def several():
            model = LocalModel(tiny, threads=1)
            return await asyncio.gather(*(model.reply(asked("hello", WEATHER)) for _ in range(3)))

        answers.extend(asyncio.run(several()))

    keeping = LocalModel(tiny, threads=1)
    asyncio.run(keeping.reply(asked()))
    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(BOUND)
    assert [answer.calls[0].json for answer in answers] == ['{"city": "ab"}'] * 12


async def test_tokens_of_the_prompt_that_were_kept_are_counted(tiny):
    model = LocalModel(tiny, threads=1)
    first, second = [(await model.reply(asked("hello", WEATHER))).usage for _ in range(2)]
    assert first.input == second.input
    assert second.cached == second.input - 1
    assert first.cached > first.input // 2  # what comes before the conversation was computed beforehand


async def test_the_beginning_of_a_prompt_is_kept_for_the_next_process(tiny, cache, monkeypatch):
    async def fresh():
        gc.collect()  # nobody holds the engine any more
        return (await LocalModel(tiny, threads=1).reply(asked("hello", WEATHER))).usage.cached

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


async def test_where_nothing_can_be_kept_the_model_answers_all_the_same(tiny, cache):
    cache.mkdir()
    (cache / "prefixes").write_text("a file")
    assert shape(await LocalModel(tiny, threads=1).reply(asked("hello", WEATHER)))[2] == "calls"
    gc.collect()
    (cache / "prefixes").unlink()
    model = LocalModel(tiny, threads=1)
    await model.reply(asked())
    (cache / "prefixes").rmdir()  # as if the disk were full
    assert shape(await model.reply(asked("hello", WEATHER)))[2] == "calls"


async def test_pictures_are_refused_in_words(tiny):
    message = UserMessage("what is this?", (ImageContent(b"...", "image/png"),))
    with pytest.raises(ModelError, match="reads text only"):
        await LocalModel(tiny, threads=1).reply(ChatRequest([message]))


async def test_a_setting_that_llama_cpp_refuses_is_reported(tiny):
    with pytest.raises(ModelError, match=r"^llama\.cpp: .*type must be"):
        await LocalModel(tiny, threads=1).reply(asked(settings={"temperature": "warm"}))


async def test_a_conversation_that_does_not_fit_loses_its_oldest_turns(endless):
    model = LocalModel(endless, threads=1, context=2048, max_tokens=20)
    history = [message for _ in range(50) for message in (UserMessage("q" * 100), AssistantMessage("a" * 100))]
    reply = await model.reply(ChatRequest([*history, UserMessage("now")]))
    assert 1500 < reply.usage.input <= 2048
    with pytest.raises(ModelError, match="The question and its last step have 3"):
        await model.reply(asked("q" * 3000))
    with pytest.raises(AgentExecutionError, match="The question and its last step have 3"):
        await Agent(model).run("q" * 3000)


async def test_a_model_made_for_less_context_has_less(tmp_path):
    model = LocalModel(write_model(tmp_path / "small.gguf", SAYS, context=512), threads=1)
    with pytest.raises(ModelError, match=r"takes \d+ tokens of 384; offer fewer tools"):
        await model.reply(asked("hello", WEATHER))


NO_SYSTEM = TEMPLATE.replace(
    "{% for", "{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}{% for", 1
)


@pytest.mark.parametrize(
    "template", [NO_SYSTEM, TEMPLATE.replace("messages %}", "messages if message.role != 'system' %}")]
)
async def test_a_template_without_system_messages_gets_a_user_message(tmp_path, template):
    model = LocalModel(write_model(tmp_path / "other.gguf", SAYS, template=template), threads=1)
    assert shape(await model.reply(asked("hello", WEATHER)))[1] == [("about", '{"city": "ab"}')]


ONE_QUESTION = TEMPLATE.replace(
    "{% for", "{% if messages|length > 2 %}{{ raise_exception('one question only') }}{% endif %}{% for", 1
)


@pytest.mark.parametrize("template", [ONE_QUESTION, "nothing of it"])
async def test_a_template_that_cannot_write_a_conversation_is_reported(tmp_path, template):
    model = LocalModel(write_model(tmp_path / "other.gguf", SAYS, template=template), threads=1)
    with pytest.raises(ModelError, match="The chat template of this model cannot format this conversation: "):
        await model.reply(asked("hello", WEATHER))


async def test_a_file_that_llama_cpp_cannot_load_is_reported(tmp_path, capfd):
    path = tmp_path / "bad.gguf"
    path.write_bytes(b"GGUF" + bytes(100))
    with pytest.raises(ModelError, match=r"llama\.cpp cannot load .*bad\.gguf: it is damaged"):
        await LocalModel(path).reply(asked())
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
def test_weights_that_are_not_there_are_reported_with_what_to_do(name, problem):
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
def test_settings_that_make_no_sense_are_refused(tiny, settings, problem):
    with pytest.raises(ToolDefinitionError, match=problem):
        LocalModel(tiny, **settings)


def test_a_wait_policy_in_the_environment_is_kept(tiny, monkeypatch):
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


def test_a_program_that_ends_in_the_middle_of_an_answer_ends_quietly(endless):
    ended = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROGRAM, str(endless)],
        capture_output=True,
        text=True,
        timeout=BOUND,
        check=False,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "src")},
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "h\n", "")


def test_pieces_make_the_same_reply_as_the_whole(tiny):
    async def both():
        model = LocalModel(tiny, threads=1)
        assembly = Assembly()
        async for chunk in model.stream(asked("hello", WEATHER)):
            assembly.add(chunk)
        return shape(assembly.reply()), shape(await model.reply(asked("hello", WEATHER)))

    streamed, whole = asyncio.run(both())
    assert streamed == whole
    assert json.loads(whole[1][0][1]) == {"city": "ab"}


HOSTILE = ['x" | "y', "a\\", "a\nroot ::= [a-z]", "\u2028", "]#%{}", "<|im_end|>", "ü😀", "a" * 64]


def schemas(draw: random.Random, depth: int = 3):
    """Return a schema out of what tools are made of, with names that try to break out of the grammar."""
    kinds = ["string", "integer", "number", "boolean", "null", "enum", "const", "date", "any"]
    kind = draw.choice(kinds + ["object", "array", "union"] * 3 if depth else kinds)
    if kind == "object":
        properties = {draw.choice(HOSTILE): schemas(draw, depth - 1) for _ in range(draw.randint(0, 3))}
        return {
            "type": "object",
            "properties": properties,
            "required": [name for name in properties if draw.random() < 0.5],
        }
    if kind == "array":
        least = draw.randint(0, 2)
        return {"type": "array", "items": schemas(draw, depth - 1), "minItems": least, "maxItems": least + 2}
    plain = {
        "union": {"anyOf": [schemas(draw, depth - 1), {"type": "null"}]} if kind == "union" else {},
        "enum": {"enum": draw.sample(HOSTILE, 2)},
        "const": {"const": [draw.choice(HOSTILE), 1.5, None]},
        "date": {"type": "string", "format": "date"},
        "any": {},
    }
    return plain.get(kind, {"type": kind})


@pytest.fixture(scope="module")
def loaded(tiny):
    """Return one model for many questions."""
    return LocalModel(tiny, threads=1, max_tokens=400)


@pytest.mark.parametrize("seed", range(16))
async def test_whatever_the_schema_llama_cpp_takes_its_grammar_and_the_arguments_fit(loaded, seed):
    draw = random.Random(seed)  # noqa: S311 - the same each time
    schema = {"type": "object", "properties": {name: schemas(draw) for name in HOSTILE[:3]}, "required": HOSTILE[:2]}
    name = draw.choice(HOSTILE)
    request = asked("hello", ToolSpecification(name, "", schema), tool_choice="required")
    reply = await loaded.reply(request)
    assert reply.calls[0].name == name
    if reply.stop_reason != "length":
        jsonschema_rs.validate(schema, json.loads(reply.calls[0].json))
