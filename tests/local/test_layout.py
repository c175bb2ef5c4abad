"""The tokens of prompts, decoded to text."""

from __future__ import annotations

import gc

import pytest

from helpers.tiny_model import TEMPLATE, write_model
from toolsemble import Catalog, ModelError, SchemaTool, ToolCall, ToolReply, ToolResult, ToolSpecification
from toolsemble._vocabulary.result import FileContent
from toolsemble.models import AssistantMessage, ChatRequest, SystemMessage, ToolMessage, UserMessage
from toolsemble.models._local.engine import Setup, shared_engine
from toolsemble.models._local.model import build_prompt
from toolsemble.models._local.prompt import LocalRequest
from toolsemble.models._local.steps import PromptMessage

pytestmark = pytest.mark.slow

LONG = 100_000
SYSTEM = [(PromptMessage("system", "be brief"),)]


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    xllamacpp = pytest.importorskip("xllamacpp")
    path = write_model(tmp_path_factory.mktemp("tiny") / "tiny.gguf", {"a": "b"})
    yield shared_engine(Setup(path, 4096, 1, None), xllamacpp)
    gc.collect()


async def render(engine, opening, conversation, room=LONG):
    """Return the prompt as text; it contains marks of the template, because special tokens have no text."""
    prompt = await build_prompt(engine, lambda _: opening, conversation, room)
    assert len(prompt.tokens) <= room
    return await engine.detokenize(prompt.tokens)


def user_turn(text):
    return (PromptMessage("user", text),)


def assistant_turn(text):
    return (PromptMessage("assistant", text),)


def call_turn(step, *results):
    return tuple(
        message
        for result in results
        for message in (PromptMessage("assistant", step), PromptMessage("user", result, is_result=True))
    )


async def test_prompt_is_complete_when_it_fits(engine):
    turns = [user_turn("one"), assistant_turn("two"), user_turn("three")]
    prompt = await build_prompt(engine, lambda _: SYSTEM, turns, LONG)
    assert await engine.detokenize(prompt.tokens) == (
        "<|im_start|>system\nbe brief<|im_end|>\n<|im_start|>user\none<|im_end|>\n"
        "<|im_start|>assistant\ntwo<|im_end|>\n<|im_start|>user\nthree<|im_end|>\n<|im_start|>assistant\n"
    )
    assert await engine.detokenize(prompt.tokens[: prompt.prefix]) == (
        "<|im_start|>system\nbe brief<|im_end|>\n<|im_start|>user\n"
    )


async def test_consecutive_messages_of_one_role_are_merged(engine):
    text = await render(engine, SYSTEM, [user_turn("one"), user_turn("two"), assistant_turn("three")])
    assert "<|im_start|>user\none\n\ntwo<|im_end|>\n<|im_start|>assistant\nthree" in text


@pytest.mark.parametrize(
    ("room", "kept"),
    [
        (1000, "q1 a1 q2 c1 c2 q3 c3 c4"),
        (230, "q2 c1 c2 q3 c3 c4"),
        (150, "q3 c3 c4"),
        (86, "q3 c4"),
    ],
)
async def test_oldest_turns_are_dropped_first_with_their_results(engine, room, kept):
    turns = [
        user_turn("q1"),
        assistant_turn("a1" + "." * 50),
        user_turn("q2"),
        call_turn("c1", "r1"),
        call_turn("c2", "r2" + "." * 50),
        user_turn("q3"),
        call_turn("c3", "r3"),
        call_turn("c4", "r4"),
    ]
    text = await render(engine, SYSTEM, turns, room)
    assert " ".join(name for name in ("q1", "a1", "q2", "c1", "c2", "q3", "c3", "c4") if name in text) == kept
    assert all((f"r{number}" in text) == (f"c{number}" in text) for number in range(1, 5))


async def test_last_turns_are_kept_without_question(engine):
    turns = [assistant_turn("a1"), call_turn("c1", "r1" + "." * 50), call_turn("c2", "r2")]
    text = await render(engine, SYSTEM, turns, 110)
    assert ("a1" in text, "c1" in text, "c2" in text) == (False, False, True)


async def test_too_long_result_is_truncated_in_the_middle(engine):
    text = await render(engine, SYSTEM, [user_turn("q"), call_turn("c", "begin" + "." * 5000 + "end")], 800)
    assert "begin...." in text
    assert "....end<|im_end|>" in text
    assert "tokens are left out here: too long for this model ...]" in text


async def test_result_is_truncated_without_note_if_note_does_not_fit(engine):
    text = await render(engine, SYSTEM, [user_turn("q"), call_turn("c", "begin" + "." * 500)], 150)
    assert "begin....." in text
    assert "…<|im_end|>" in text


async def test_results_of_one_turn_share_available_tokens(engine):
    turn = call_turn("c", *(f"begin{number}" + "." * 5000 for number in range(3)))
    text = await render(engine, SYSTEM, [user_turn("q"), turn], 1500)
    assert all(f"begin{number}..." in text for number in range(3))


async def test_too_long_question_is_rejected(engine):
    with pytest.raises(
        ModelError, match=r"The question and its last step have \d+ tokens, and there is room for \d+; shorten"
    ):
        await build_prompt(engine, lambda _: SYSTEM, [user_turn("old"), user_turn("q" * 500)], 300)
    with pytest.raises(ModelError, match="The question and its last step"):
        await build_prompt(engine, lambda _: SYSTEM, [user_turn("q" * 150), assistant_turn("c" * 100)], 250)


async def test_too_many_tools_are_rejected(engine):
    with pytest.raises(ModelError, match="takes 58 tokens of 50; offer fewer tools"):
        await build_prompt(engine, lambda _: [(PromptMessage("system", "x" * 50),)], [user_turn("q")], 50)


async def test_template_with_long_markup_keeps_fewer_turns(tmp_path):
    wordy = TEMPLATE.replace("{{ message.role }}", "{{ message.role }} " + "says " * 5)
    xllamacpp = pytest.importorskip("xllamacpp")
    path = write_model(tmp_path / "wordy.gguf", {"a": "b"}, template=wordy)
    engine = shared_engine(Setup(path, 4096, 1, None), xllamacpp)
    turns = [turn for number in range(20) for turn in (user_turn(f"q{number}"), assistant_turn(f"a{number}"))]
    text = await render(engine, SYSTEM, turns, 500)
    assert "q19" in text
    assert "q0" not in text


async def test_too_long_template_is_reported(tmp_path):
    endless = TEMPLATE.replace("{{ message.role }}", "{{ message.role }} " + "says " * 300)
    path = write_model(tmp_path / "endless.gguf", {"a": "b"}, template=endless)
    engine = shared_engine(Setup(path, 4096, 1, None), pytest.importorskip("xllamacpp"))
    with pytest.raises(ModelError, match="The system prompt takes 1524 tokens of 900; offer fewer tools"):
        await build_prompt(engine, lambda _: SYSTEM, [user_turn("q")], 900)


async def test_token_cache_is_limited(engine):
    for number in range(530):
        await engine.tokenize(str(number))
    assert len(engine._tokens) == 512
    assert len(await engine.tokenize("x" * 200_000)) == 200_000
    assert len(engine._tokens) == 512


def render_texts(messages, **more):
    return [message.text for turn in LocalRequest(ChatRequest(messages, **more)).history.turns for message in turn]


FIRST, SECOND = ToolCall("a", '{"x":1}', "1"), ToolCall("b", "no json", "2")
FILE = ToolResult.success("see", contents=[FileContent(b"...", "text/plain", "x.txt")])
FAILED = ToolResult.failure("broken")
AGAIN = "(Task: do Call the tool again with values in place of names, or go on with another tool.)"


def test_conversation_of_another_model_is_shown_as_steps_with_plan():
    messages = [
        SystemMessage("be brief"),
        UserMessage("do"),
        AssistantMessage("I will", (FIRST, SECOND)),
        ToolMessage(ToolReply(FIRST, FILE)),
        ToolMessage(ToolReply(SECOND, FAILED)),
        AssistantMessage("done"),
        UserMessage("and now?"),
        AssistantMessage("nothing"),
    ]
    assert render_texts(messages) == [
        "do",
        '{"plan": ["a", "b", "final_answer"], "name": "a", "arguments": {"x": 1}}',
        "Result of a: see\n[FileContent: cannot be shown]\n(Task: do Next: b.)",
        '{"name": "b", "arguments": "no json"}',
        f"Result of b: Error: broken\n{AGAIN}",
        '{"name": "final_answer", "arguments": {"text": "done"}}',
        "and now?",
        '{"plan": ["final_answer"], "name": "final_answer", "arguments": {"text": "nothing"}}',
    ]
    assert LocalRequest(ChatRequest(messages[2:5])).history.made == {
        '{"name": "a", "arguments": {"x": 1}}',
        '{"name": "b", "arguments": "no json"}',
    }


def test_later_step_is_shown_with_its_note():
    messages = [UserMessage("do")]
    for call, note in [(FIRST, "not of a first step"), (SECOND, "x is 1"), (FIRST, 7)]:
        messages += [AssistantMessage("", (call,), {"local_note": note}), ToolMessage(ToolReply(call, FILE))]
    first, second, third = render_texts(messages)[1::2]
    assert first == '{"plan": ["a", "b", "a", "final_answer"], "name": "a", "arguments": {"x": 1}}'
    assert second == '{"note": "x is 1", "name": "b", "arguments": "no json"}'
    assert third == '{"name": "a", "arguments": {"x": 1}}'


@pytest.mark.parametrize(
    ("plan", "results", "left"),
    [
        (["a", "b"], [FILE], ["b"]),
        (["a", "b", "a"], [FILE, FILE], ["b"]),
        (["a", "b"], [FAILED], ["a", "b"]),
        (["a", "b"], [FAILED, FAILED], ["b"]),
        (["b"], [FILE], ["b"]),
        (["gone"], [FILE], ["gone"]),
        (["a", 7], [FILE], []),
        ("nonsense", [FILE], []),
    ],
)
def test_unfinished_plan_prevents_answer(plan, results, left):
    messages = [UserMessage("do")]
    for number, result in enumerate(results):
        call = ToolCall("a", {}, str(number))
        messages += [AssistantMessage("", (call,), {"local_plan": plan}), ToolMessage(ToolReply(call, result))]
    tools = [ToolSpecification("a", ""), ToolSpecification("b", "")]
    offer = LocalRequest(ChatRequest(messages, tools))
    assert offer.history.left == left
    assert ('"final_answer' in offer.grammar().replace("\\", "")) == ("b" not in left)
    assert '"final_answer' in LocalRequest(ChatRequest(messages, tools, "none")).grammar().replace("\\", "")


@pytest.mark.parametrize(
    ("result", "name", "ways"),
    [
        (FILE, "a", ["first", "answer"]),
        (FAILED, "a", ["first", "other start", "sampled", "answer"]),
        (FAILED, "gone", ["first", "other start", "sampled", "answer"]),
    ],
)
def test_failed_call_requires_another_call_before_answer(result, name, ways):
    schema = {"type": "object", "properties": {"x": {"type": "string"}}, "required": ["x"]}
    call = ToolCall(name, {"x": "total"})
    messages = [UserMessage("do"), AssistantMessage("", (call,)), ToolMessage(ToolReply(call, result))]
    offer = LocalRequest(ChatRequest(messages, [ToolSpecification("a", "", schema)]))
    assert offer.attempts() == ways
    grammars = {way: offer.grammar(way) for way in ways}
    assert ["[^tT" in grammar for grammar in grammars.values()] == [
        way == "other start" and name == "a" for way in ways
    ]
    assert ["temperature" in offer.settings(way) for way in ways] == [way == "sampled" for way in ways]
    assert '"name": "a"' not in grammars["answer"].replace("\\", "")


def test_tools_are_shown_as_lines():
    schema = {
        "type": "object",
        "properties": {
            "where": {"enum": ["in", "out"]},
            "what": {"type": "array", "items": {"type": "string"}},
            "when": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
            "why": {"type": ["number", "null"]},
            "who": True,
            "which": {"type": "string", "description": "The JSON text"},
        },
        "required": ["what"],
    }
    request = ChatRequest(
        [SystemMessage("You are brief.")],
        [ToolSpecification("go", "Goes\n  there. Fast.", schema), ToolSpecification("no", "")],
    )
    ((message,), *_) = LocalRequest(request).opening_turns()
    own, details, *_, go, no, _ = message.text.splitlines()
    assert own == "You are brief."
    assert (
        details == 'go: Fast. Optional: where: "in"|"out", when: integer|null, why: number|null, who: any, which: JSON.'
    )
    assert (go, no) == ("- go(what: string[]): Goes there.", "- no(): ")


def test_examples_use_names_of_offered_tools():
    schema = {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}
    other = {"type": "object", "properties": {"file": {"type": "string"}}, "required": ["file"]}
    tools = [ToolSpecification("calculator", "", schema), ToolSpecification("file_read", "", other)]
    text = "".join(
        message.text
        for turn in LocalRequest(ChatRequest([UserMessage("do")], tools)).opening_turns()[1:]
        for message in turn
    )
    assert '"plan": ["open_file", "calculator", "final_answer"]' in text


def list_example_questions(tools):
    """Return the questions of the examples that a prompt with these tools has."""
    schemas = {name: {"properties": {key: {}}, "required": [key]} for name, key in tools.items()}
    specifications = [ToolSpecification(name, "", schema) for name, schema in schemas.items()]
    turns = LocalRequest(ChatRequest([UserMessage("do")], specifications)).opening_turns()[1:]
    return [turn[0].text for turn in turns if turn[0].role == "user"]


def test_examples_of_other_tools_are_left_out_if_the_offered_ones_show_two_calls():
    questions = list_example_questions({"calculator": "input", "file_read": "path"})
    assert [each for each in questions if ".txt" in each or "Mail" in each or "day" in each] == []
    assert "What do one S and two L of the lamps in lamps.json cost?" in questions


@pytest.mark.parametrize(
    "tools", [{"look": "at"}, {"calculator": "input"}, {"datetime": "input", "calculator": "input"}]
)
def test_all_examples_are_there_if_the_offered_tools_show_one_call_at_most(tools):
    assert len(list_example_questions(tools)) == 8


def test_a_chat_without_instructions_says_what_the_model_is():
    assert LocalRequest(ChatRequest([UserMessage("Who are you?")])).opening_turns() == [
        (PromptMessage("system", "You are a helpful assistant, a small open model that runs locally in toolsemble."),)
    ]


def test_a_chat_with_instructions_has_only_these():
    request = ChatRequest([SystemMessage("You are Ada."), UserMessage("Who are you?")])
    assert LocalRequest(request).opening_turns() == [(PromptMessage("system", "You are Ada."),)]


SEARCH = ToolSpecification("find_tools", "Find tools.", {"properties": {"query": {}}, "required": ["query"]})
LOADED = "1 tool is loaded now; call it by name:\n- add(a: integer): Adds."


def search_turns(*replies):
    """Return the messages of a question, and of searches with these replies."""
    messages = [UserMessage("What is 2 + 2?")]
    for reply in replies:
        call = ToolCall("find_tools", {"query": "add"})
        messages += [AssistantMessage("", (call,)), ToolMessage(ToolReply(call, reply))]
    return messages


def test_the_examples_search_for_tools_that_are_not_offered():
    opening = LocalRequest(ChatRequest([UserMessage("do")], [SEARCH])).opening_turns()
    texts = [message.text for turn in opening for message in turn]
    first = next(text for text in texts if '"plan": ["find_tools", "final_answer"]' in text)
    assert '"arguments": {"query": "day of the week of a date"}' in first
    loaded = texts[texts.index(first) + 1]
    assert "- calendar(input: string): Calculates with dates.\n- week_plan(" in loaded
    assert loaded.endswith("Next: the loaded tool that fits, or find_tools with other words.)")
    assert texts[texts.index(first) + 2].startswith(
        '{"note": "day of the week of a date: calendar fits.", "name": "calendar"'
    )


def say_found(*calls):
    """Return what a catalog says of searches."""
    texts = {"warm_plate": "A plate for warm food.", "weather": "Tells how warm it becomes."}
    texts |= {f"{name}clock": "Clock." for name in "abcd"}
    tools = [SchemaTool(name, text, str, {"properties": {}}) for name, text in texts.items()]
    return [
        reply.text
        for reply in Catalog(tools, budget=130).box().execute_all([ToolCall("find_tools", each) for each in calls])
    ]


def test_the_examples_show_what_a_catalog_says():
    opening = LocalRequest(ChatRequest([UserMessage("do")], [SEARCH])).opening_turns()
    shown = "\n".join(message.text for turn in opening for message in turn)
    said = say_found({"query": "clock", "limit": 2}, {"query": "warm air outside"})
    assert [f"Result of find_tools: {each.splitlines()[0]}\n" in shown for each in said] == [True, True]


def test_an_example_searches_again_when_nothing_fits():
    opening = LocalRequest(ChatRequest([UserMessage("do")], [SEARCH])).opening_turns()
    texts = [message.text for turn in opening for message in turn]
    nothing = (
        "Result of find_tools: No tool fits 'warm air outside'. Nearest by words: warm_plate, weather; to load one,"
    )
    place = next(index for index, text in enumerate(texts) if text.startswith(nothing))
    assert texts[place].endswith("Next: find_tools with other words.)")
    assert '"name": "find_tools", "arguments": {"query": "weather"}}' in texts[place + 1]


def test_the_examples_call_offered_tools_without_a_search():
    dates = ToolSpecification("datetime", "Dates.", {"properties": {"input": {}}, "required": ["input"]})
    opening = LocalRequest(ChatRequest([UserMessage("do")], [dates, SEARCH])).opening_turns()
    texts = [message.text for turn in opening for message in turn]
    assert any(text.startswith('{"plan": ["datetime", "final_answer"], "name": "datetime"') for text in texts)
    assert any(text.startswith('{"plan": ["datetime", "find_tools", "final_answer"]') for text in texts)


def test_a_tool_that_was_loaded_does_not_change_the_prompt_before_the_conversation():
    before = LocalRequest(ChatRequest(search_turns(), [SEARCH]))
    added = ToolSpecification("add", "Adds.", {"properties": {"a": {"type": "integer"}}, "required": ["a"]})
    after = LocalRequest(ChatRequest(search_turns(ToolResult.success(LOADED)), [SEARCH, added]))
    assert after.opening_turns({"add"}) == before.opening_turns()
    assert '"add' in after.grammar().replace("\\", "")
    assert after.history.turns[-1][-1].text.endswith(
        "Next: the loaded tool that fits, or find_tools with other words.)"
    )


async def test_a_loaded_tool_whose_search_is_left_out_is_described_with_the_others(engine):
    added = ToolSpecification("add", "Adds.", {"properties": {"a": {"type": "integer"}}, "required": ["a"]})
    call = ToolCall("add", {"a": 1})
    messages = search_turns(ToolResult.success(LOADED))
    for _ in range(4):
        messages += [AssistantMessage("", (call,)), ToolMessage(ToolReply(call, ToolResult.success("number " * 30)))]
    request = LocalRequest(ChatRequest(messages, [SEARCH, added]))
    whole = await build_prompt(engine, request.opening_turns, request.history.turns, LONG)
    cut = await build_prompt(engine, request.opening_turns, request.history.turns, len(whole.tokens) - 1)
    for prompt in (whole, cut):
        text = await engine.detokenize(prompt.tokens)
        assert text.count("- add(a: integer): Adds.") == 1
    assert "- add(a: integer): Adds." in (await engine.detokenize(cut.tokens[: cut.prefix])).splitlines()


async def test_a_tool_of_a_search_that_is_cut_is_described_with_the_others(engine):
    names = [f"tool_{number}" for number in range(60)]
    found = "\n".join(["60 tools are loaded now", *(f"- {name}(a: integer): Adds to {name}." for name in names)])
    tools = [ToolSpecification(name, f"Adds to {name}.") for name in names]
    request = LocalRequest(ChatRequest(search_turns(ToolResult.success(found)), [SEARCH, *tools]))
    opening = await build_prompt(engine, request.opening_turns, [], LONG)
    prompt = await build_prompt(engine, request.opening_turns, request.history.turns, len(opening.tokens) + 800)
    text = await engine.detokenize(prompt.tokens)
    assert all(f"Adds to {name}." in text for name in names)


def test_a_search_that_found_nothing_leads_on():
    (*_, last) = LocalRequest(ChatRequest(search_turns(ToolResult.success("No tool fits")), [SEARCH])).history.turns
    assert last[-1].text.endswith("Next: find_tools with other words.)")
