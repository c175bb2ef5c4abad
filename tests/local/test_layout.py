"""The tokens of prompts, decoded to text."""

from __future__ import annotations

import gc

import pytest

from helpers.tiny_model import TEMPLATE, write_model
from toolsemble import ModelError, ToolCall, ToolReply, ToolResult, ToolSpecification
from toolsemble.local.engine import Setup, shared_engine
from toolsemble.local.history import PromptMessage
from toolsemble.local.prompt import LocalRequest
from toolsemble.local.prompt_layout import build_prompt
from toolsemble.models import AssistantMessage, ChatRequest, SystemMessage, ToolMessage, UserMessage
from toolsemble.result import FileContent

pytestmark = pytest.mark.slow

LONG = 100_000
SYSTEM = [(PromptMessage("system", "be brief"),)]


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    xllamacpp = pytest.importorskip("xllamacpp")
    path = write_model(tmp_path_factory.mktemp("tiny") / "tiny.gguf", {"a": "b"})
    yield shared_engine(Setup(path, 4096, 1, None), xllamacpp)
    gc.collect()


async def shown(engine, opening, conversation, room=LONG):
    """Return the prompt as text; it contains marks of the template, because special tokens have no text."""
    prompt = await build_prompt(engine, opening, conversation, room)
    assert len(prompt.tokens) <= room
    return await engine.detokenize(prompt.tokens)


def user(text):
    return (PromptMessage("user", text),)


def assistant(text):
    return (PromptMessage("assistant", text),)


def called(step, *results):
    return tuple(
        said
        for result in results
        for said in (PromptMessage("assistant", step), PromptMessage("user", result, is_result=True))
    )


async def test_everything_is_there_when_there_is_room(engine):
    turns = [user("one"), assistant("two"), user("three")]
    prompt = await build_prompt(engine, SYSTEM, turns, LONG)
    assert await engine.detokenize(prompt.tokens) == (
        "<|im_start|>system\nbe brief<|im_end|>\n<|im_start|>user\none<|im_end|>\n"
        "<|im_start|>assistant\ntwo<|im_end|>\n<|im_start|>user\nthree<|im_end|>\n<|im_start|>assistant\n"
    )
    assert await engine.detokenize(prompt.tokens[: prompt.prefix]) == (
        "<|im_start|>system\nbe brief<|im_end|>\n<|im_start|>user\n"
    )


async def test_consecutive_messages_of_one_role_are_merged(engine):
    text = await shown(engine, SYSTEM, [user("one"), user("two"), assistant("three")])
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
async def test_the_oldest_turns_go_first_and_a_call_goes_with_its_result(engine, room, kept):
    turns = [
        user("q1"),
        assistant("a1" + "." * 50),
        user("q2"),
        called("c1", "r1"),
        called("c2", "r2" + "." * 50),
        user("q3"),
        called("c3", "r3"),
        called("c4", "r4"),
    ]
    text = await shown(engine, SYSTEM, turns, room)
    assert " ".join(name for name in ("q1", "a1", "q2", "c1", "c2", "q3", "c3", "c4") if name in text) == kept
    assert all((f"r{number}" in text) == (f"c{number}" in text) for number in range(1, 5))


async def test_the_turns_of_a_conversation_without_a_question_are_kept_from_the_end(engine):
    turns = [assistant("a1"), called("c1", "r1" + "." * 50), called("c2", "r2")]
    text = await shown(engine, SYSTEM, turns, 110)
    assert ("a1" in text, "c1" in text, "c2" in text) == (False, False, True)


async def test_a_result_that_is_too_long_is_cut_in_its_middle(engine):
    text = await shown(engine, SYSTEM, [user("q"), called("c", "begin" + "." * 5000 + "end")], 800)
    assert "begin...." in text
    assert "....end<|im_end|>" in text
    assert "tokens are left out here: too long for this model ...]" in text


async def test_where_there_is_no_room_for_a_note_a_result_is_cut_without_one(engine):
    text = await shown(engine, SYSTEM, [user("q"), called("c", "begin" + "." * 500)], 150)
    assert "begin....." in text
    assert "…<|im_end|>" in text


async def test_the_results_of_one_turn_share_the_room(engine):
    turn = called("c", *(f"begin{number}" + "." * 5000 for number in range(3)))
    text = await shown(engine, SYSTEM, [user("q"), turn], 1500)
    assert all(f"begin{number}..." in text for number in range(3))


async def test_a_question_that_is_too_long_is_refused(engine):
    with pytest.raises(
        ModelError, match=r"The question and its last step have \d+ tokens, and there is room for \d+; shorten"
    ):
        await build_prompt(engine, SYSTEM, [user("old"), user("q" * 500)], 300)
    with pytest.raises(ModelError, match="The question and its last step"):
        await build_prompt(engine, SYSTEM, [user("q" * 150), assistant("c" * 100)], 250)


async def test_tools_that_leave_no_room_are_refused(engine):
    with pytest.raises(ModelError, match="takes 58 tokens of 50; offer fewer tools"):
        await build_prompt(engine, [(PromptMessage("system", "x" * 50),)], [user("q")], 50)


async def test_a_template_with_long_markup_gets_fewer_turns(tmp_path):
    wordy = TEMPLATE.replace("{{ message.role }}", "{{ message.role }} " + "says " * 5)
    xllamacpp = pytest.importorskip("xllamacpp")
    path = write_model(tmp_path / "wordy.gguf", {"a": "b"}, template=wordy)
    engine = shared_engine(Setup(path, 4096, 1, None), xllamacpp)
    turns = [turn for number in range(20) for turn in (user(f"q{number}"), assistant(f"a{number}"))]
    text = await shown(engine, SYSTEM, turns, 500)
    assert "q19" in text
    assert "q0" not in text


async def test_a_template_that_leaves_no_room_is_reported(tmp_path):
    endless = TEMPLATE.replace("{{ message.role }}", "{{ message.role }} " + "says " * 300)
    path = write_model(tmp_path / "endless.gguf", {"a": "b"}, template=endless)
    engine = shared_engine(Setup(path, 4096, 1, None), pytest.importorskip("xllamacpp"))
    with pytest.raises(ModelError, match="The system prompt takes 1524 tokens of 900; offer fewer tools"):
        await build_prompt(engine, SYSTEM, [user("q")], 900)


async def test_the_tokens_of_many_texts_do_not_fill_the_memory(engine):
    for number in range(530):
        await engine.tokenize(str(number))
    assert len(engine._tokens) == 512
    assert len(await engine.tokenize("x" * 200_000)) == 200_000
    assert len(engine._tokens) == 512


def texts(messages, **more):
    return [said.text for turn in LocalRequest(ChatRequest(messages, **more)).history.turns for said in turn]


FIRST, SECOND = ToolCall("a", '{"x":1}', "1"), ToolCall("b", "no json", "2")
FILE = ToolResult.success("see", contents=[FileContent(b"...", "text/plain", "x.txt")])
FAILED = ToolResult.failure("broken")
AGAIN = "(Task: do Call the tool again with values in place of names, or go on with another tool.)"


def test_a_conversation_of_another_model_is_shown_as_steps_with_the_plan_it_followed():
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
    assert texts(messages) == [
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


def test_a_later_step_is_shown_with_the_note_that_the_model_wrote():
    messages = [UserMessage("do")]
    for call, note in [(FIRST, "not of a first step"), (SECOND, "x is 1"), (FIRST, 7)]:
        messages += [AssistantMessage("", (call,), {"local_note": note}), ToolMessage(ToolReply(call, FILE))]
    first, second, third = texts(messages)[1::2]
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
def test_what_was_planned_and_not_done_yet_keeps_the_model_from_an_answer(plan, results, left):
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
def test_after_a_call_that_failed_another_one_is_asked_for_until_the_model_has_to_answer(result, name, ways):
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
    ((said,), *_) = LocalRequest(request).opening_turns()
    own, details, *_, go, no, _ = said.text.splitlines()
    assert own == "You are brief."
    assert (
        details == 'go: Fast. Optional: where: "in"|"out", when: integer|null, why: number|null, who: any, which: JSON.'
    )
    assert (go, no) == ("- go(what: string[]): Goes there.", "- no(): ")


def test_examples_have_the_names_of_tools_that_are_offered():
    schema = {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}
    other = {"type": "object", "properties": {"file": {"type": "string"}}, "required": ["file"]}
    tools = [ToolSpecification("calculator", "", schema), ToolSpecification("file_read", "", other)]
    text = "".join(
        said.text for turn in LocalRequest(ChatRequest([UserMessage("do")], tools)).opening_turns()[1:] for said in turn
    )
    assert '"plan": ["open_file", "calculator", "final_answer"]' in text
