import asyncio

import pytest

from helpers.agent_scripts import add, assert_valid, sum_of
from toolsemble import (
    Agent,
    AgentExecutionError,
    ConversationMemory,
    ExitEarlyError,
    ToolConfigurationError,
    ToolDefinitionError,
)
from toolsemble.agent import keep_last_turns, summarize_earlier, trim_to_tokens
from toolsemble.models import AssistantMessage, ChatReply, SystemMessage, TokenUsage, Transcript, UserMessage
from toolsemble.testing import ScriptedModel


def talk(*texts):
    kinds = [UserMessage, AssistantMessage] * len(texts)
    return [kind(text) for kind, text in zip(kinds, texts, strict=False)]


def sent(model):
    return [[message.text for message in messages] for messages in model.requests]


def last_two(messages):
    return messages[-2:]


async def shout(messages, run):
    await asyncio.sleep(0)
    return [UserMessage(f"{run.memory_id}: {message.text}") for message in messages]


# --- processors


async def test_processors_change_what_is_sent_in_order_and_nothing_else():
    model, memory = ScriptedModel(["d", "f"]), ConversationMemory()
    agent = Agent(model, memory=memory, instructions="x", history_processors=[last_two, shout])
    result = await agent.run("c", history=talk("a", "b"), memory_id="ada")
    assert sent(model) == [["x", "ada: b", "ada: c"]]
    assert [message.text for message in result.messages] == ["x", "a", "b", "c", "d"]
    assert [message.text for message in memory.load("ada")] == ["a", "b", "c", "d"]


async def test_processors_are_called_before_each_request():
    lengths = []

    def count(messages):
        lengths.append(len(messages))
        return messages

    await Agent(ScriptedModel([sum_of(1, 2), "3"]), [add], history_processors=[count]).run("go")
    assert lengths == [1, 3]


async def test_the_window_of_the_memory_comes_before_the_processors():
    model, seen = ScriptedModel(["d"]), []
    memory = ConversationMemory(max_messages=1)
    agent = Agent(model, memory=memory, history_processors=[lambda messages: seen.append(len(messages)) or messages])
    await agent.run("c", history=talk("a", "b"), memory_id="ada")
    assert seen == [1]


async def test_the_processors_of_a_run_take_the_place_of_the_agents():
    model = ScriptedModel(["x", "y"])
    agent = Agent(model, history_processors=[last_two])
    await agent.run("c", history=talk("a", "b"), history_processors=[])
    await agent.run("c", history=talk("a", "b"))
    assert sent(model) == [["a", "b", "c"], ["b", "c"]]


async def test_a_system_message_of_a_processor_is_joined_with_the_instructions():
    model = ScriptedModel(["x", "y"])
    agent = Agent(model, history_processors=[lambda messages: [SystemMessage("Be kind."), *messages]])
    await agent.run("a", instructions="Be brief.")
    await agent.run("b")
    assert model.requests == [
        [SystemMessage("Be brief.\n\nBe kind."), UserMessage("a")],
        [SystemMessage("Be kind."), UserMessage("b")],
    ]


@pytest.mark.parametrize(
    ("processor", "problem"),
    [
        (lambda messages: None, "The history processor <lambda> must return messages, not None"),
        (lambda messages: "text", "The history processor <lambda> must return messages, not 'text'"),
        (lambda messages: [], "The history processor <lambda> removed every message; keep at least the question"),
        (lambda messages: [SystemMessage("x")], "removed every message"),
        (lambda messages: [7], "returned an invalid conversation: Message 0 is not a message but an int"),
        (lambda messages: messages[-1:], "returned an invalid conversation: Message 0 answers a call of 'add'"),
    ],
)
async def test_a_processor_that_returns_no_conversation_fails_the_run(processor, problem):
    history = [UserMessage("a"), *(await Agent(ScriptedModel([sum_of(1, 2), "3"]), [add]).run("a")).messages[1:3]]
    with pytest.raises(ToolConfigurationError, match=problem):
        await Agent(ScriptedModel(["x"]), history_processors=[processor]).run([], history=history)


async def test_a_processor_that_fails_fails_the_run():
    with pytest.raises(AgentExecutionError, match=r"The history processor <lambda> failed: .*division"):
        await Agent(ScriptedModel(["x"]), history_processors=[lambda messages: 1 / 0]).run("go")


async def test_a_processor_that_removes_the_question_fails_the_run():
    agent = Agent(ScriptedModel(["x"]), history_processors=[lambda messages: messages[:-1]])
    with pytest.raises(ToolConfigurationError, match="<lambda> removed the last message, so there is nothing to"):
        await agent.run("b", history=[UserMessage("a"), AssistantMessage("one")])


async def test_a_processor_may_end_the_run_early():
    def end(messages):
        raise ExitEarlyError("enough")

    with pytest.raises(ExitEarlyError, match="enough"):
        await Agent(ScriptedModel(["x"]), history_processors=[end]).run("go")


async def test_a_function_with_an_unknown_signature_gets_the_messages():
    model = ScriptedModel(["x"])
    await Agent(model, history_processors=[iter]).run("go")
    assert sent(model) == [["go"]]


@pytest.mark.parametrize("processors", [7, "text", [7], [str], [lambda a, b, c: []]])
def test_an_invalid_processor_is_refused(processors):
    with pytest.raises(ToolDefinitionError, match="Agent history_processors"):
        Agent(ScriptedModel([]), history_processors=processors)


async def test_the_time_of_a_run_limits_its_processors():
    async def hang(messages):
        await asyncio.Event().wait()

    model = ScriptedModel(["x"])
    processors = [hang]
    agent = Agent(
        model, history_processors=[lambda messages: hang(messages) if processors and processors.pop() else messages]
    )
    result = await agent.run("go", max_seconds=1)
    assert (result.text, result.stop_reason) == ("x", "max_seconds")


async def test_agents_inside_a_processor_count_for_the_budgets_of_the_run():
    inner = Agent(ScriptedModel(["short"], usage=TokenUsage(70, 7)))

    async def shorten(messages):
        return [UserMessage((await inner.run(messages[-1].text)).text)]

    model = ScriptedModel(["x"], usage=TokenUsage(10, 1))
    result = await Agent(model, history_processors=[shorten]).run("long")
    assert (sent(model), result.usage.total_tokens, result.usage.model_calls) == ([["short"]], 88, 2)


# --- ready-made ones


@pytest.mark.parametrize(
    ("number", "texts"),
    [(1, ["e"]), (2, ["c", "d", "e"]), (3, ["a", "b", "c", "d", "e"]), (9, ["a", "b", "c", "d", "e"])],
)
async def test_the_last_turns_are_kept(number, texts):
    model = ScriptedModel(["f"])
    agent = Agent(model, instructions="x", history_processors=[keep_last_turns(number)])
    await agent.run("e", history=talk("a", "b", "c", "d"))
    assert sent(model) == [["x", *texts]]


async def test_calls_stay_with_their_replies_and_a_correction_does_not_push_out_the_question():
    model = ScriptedModel([sum_of(1, 2), sum_of(3, 4), "", "done"])
    agent = Agent(model, [add], history_processors=[keep_last_turns(1)])
    await agent.run("go", history=talk("a", "b"))
    for messages in model.requests:
        assert_valid(Transcript(messages))
        assert messages[0] == UserMessage("go")
    assert [len(messages) for messages in model.requests] == [1, 3, 5, 2]


async def test_the_messages_that_fit_into_tokens_are_kept():
    model = ScriptedModel(["x", "y"])
    said = talk("a" * 400, "b" * 400, "c", "d")
    await Agent(model, history_processors=[trim_to_tokens(50)]).run("e", history=said)
    await Agent(model, history_processors=[trim_to_tokens(2, lambda message: 1)]).run("e", history=said)
    assert sent(model) == [["c", "d", "e"], ["e"]]


async def test_the_question_stays_although_an_earlier_processor_copied_it():
    model = ScriptedModel(["x"])
    processors = [lambda messages: [UserMessage(message.text) for message in messages], trim_to_tokens(1)]
    await Agent(model, history_processors=processors).run("long question", history=talk("a", "b"))
    assert sent(model) == [["long question"]]


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: keep_last_turns(0), "keep_last_turns number must be an int >= 1, not 0"),
        (lambda: trim_to_tokens(0), "trim_to_tokens limit must be an int >= 1, not 0"),
        (lambda: trim_to_tokens(1, 7), "trim_to_tokens count must be a function of a message, not 7"),
        (lambda: summarize_earlier(ScriptedModel([]), above=0), "summarize_earlier above must be an int >= 1, not 0"),
        (lambda: summarize_earlier(ScriptedModel([]), keep=0), "summarize_earlier keep must be an int >= 1, not 0"),
        (lambda: summarize_earlier(ScriptedModel([]), count=7), "summarize_earlier count must be a function"),
    ],
)
def test_invalid_settings_of_processors_are_refused(make, problem):
    with pytest.raises(ToolDefinitionError, match=problem):
        make()


# --- summaries

HEADING = "Summary of the earlier conversation:\n"


def one(message):
    return 1


async def test_the_earlier_part_of_a_long_conversation_is_summarized_once():
    model, small = ScriptedModel([sum_of(1, 2), "x", "y"]), ScriptedModel(["They met."])
    summarize = summarize_earlier(small, above=3, keep=1, count=one)
    agent = Agent(model, [add], history_processors=[summarize])
    result = await agent.run("c", history=talk("a", "b", "c", "d"))
    assert sent(small)[0][1] == "user: a\n\nassistant: b\n\nuser: c\n\nassistant: d"
    assert sent(model) == [[f"{HEADING}They met.", "c"], [f"{HEADING}They met.", "c", "", "3"]]
    assert [message.text for message in result.messages] == ["a", "b", "c", "d", "c", "", "3", "x"]
    await agent.run("short")
    assert sent(model)[2] == ["short"]


@pytest.mark.parametrize("path", [None, "talks.db"])
async def test_a_summary_is_extended_as_the_conversation_goes_on(path, tmp_path):
    memory = ConversationMemory(path and tmp_path / path)
    model, small = ScriptedModel(["b", "d", "f", "h"]), ScriptedModel(["First.", "Second."])
    summarize = summarize_earlier(small, above=4, keep=1, count=one)
    for question in "aceg":
        agent = Agent(model, memory=memory, history_processors=[summarize])
        await agent.run(question, memory_id="ada")
    assert sent(model) == [
        ["a"],
        ["a", "b", "c"],
        [f"{HEADING}First.", "e"],
        [f"{HEADING}First.", "e", "f", "g"],
    ]
    model = ScriptedModel(["j"])
    await Agent(model, memory=memory, history_processors=[summarize]).run("i", memory_id="ada")
    assert sent(model) == [[f"{HEADING}Second.", "i"]]
    assert sent(small)[1][1] == f"{HEADING}First.\n\nuser: e\n\nassistant: f\n\nuser: g\n\nassistant: h"
    memory.close()


async def test_conversations_have_summaries_of_their_own():
    model, small = ScriptedModel(["x", "y"]), ScriptedModel(["Ada.", "Eve."])
    agent = Agent(model, history_processors=[summarize_earlier(small, above=1, keep=1, count=one)])
    for user in ("ada", "eve"):
        await agent.run("q", history=talk(user, "hi"), memory_id=user)
    assert sent(model) == [[f"{HEADING}Ada.", "q"], [f"{HEADING}Eve.", "q"]]


async def test_another_history_of_the_same_conversation_is_summarized_anew():
    model, small = ScriptedModel(["x", "y"]), ScriptedModel(["One.", "Two."])
    agent = Agent(model, history_processors=[summarize_earlier(small, above=1, keep=1, count=one)])
    for first in ("a", "b"):
        await agent.run("q", history=talk(first, "hi"), memory_id="ada")
    assert sent(model) == [[f"{HEADING}One.", "q"], [f"{HEADING}Two.", "q"]]


async def test_a_question_with_many_calls_is_not_summarized_itself():
    model, small = ScriptedModel([sum_of(1, 2), sum_of(3, 4), "x"]), ScriptedModel([])
    agent = Agent(model, [add], history_processors=[summarize_earlier(small, above=1, count=one)])
    await agent.run("go")
    assert [len(messages) for messages in model.requests] == [1, 3, 5]


async def test_calls_and_their_results_are_in_the_text_to_summarize():
    model, small = ScriptedModel([sum_of(1, 2), "3", "x"]), ScriptedModel(["Sum."])
    first = await Agent(model, [add]).run("add")
    agent = Agent(model, history_processors=[summarize_earlier(small, above=1, keep=1, count=one)])
    await agent.run("q", history=first.messages)
    assert sent(small)[0][1].split("\n\n") == [
        "user: add",
        'assistant: (calls add with {"a":1,"b":2})',
        "Result of add: 3",
        "assistant: 3",
    ]


async def test_the_tokens_of_a_summary_count_and_without_room_the_earlier_part_is_left_out():
    small = ScriptedModel(["They met."], usage=TokenUsage(90, 10))
    agent = Agent(
        ScriptedModel([ChatReply("x", usage=TokenUsage(9, 1))]),
        history_processors=[summarize_earlier(small, above=1, keep=1, count=one)],
    )
    assert (await agent.run("q", history=talk("a", "b"))).usage.total_tokens == 110
    model = ScriptedModel([ChatReply("", (sum_of(1, 2),), TokenUsage(9, 1)), "x"])
    agent = Agent(model, [add], history_processors=[keep_last_turns(9), summarize_late(small)], max_tokens=5)
    result = await agent.run("q", history=talk("a", "b"))
    assert (result.stop_reason, sent(model)[1][0]) == ("max_tokens", "q")


def summarize_late(model):
    """Summarize from the second request on, when the budget is used up."""
    summarize = summarize_earlier(model, above=1, keep=1, count=one)
    return lambda messages, run: summarize(messages, run) if run.turn else messages


async def test_only_the_summaries_of_the_last_conversations_are_kept(monkeypatch):
    monkeypatch.setattr("toolsemble.agent._summarize._CONVERSATIONS", 1)
    small = ScriptedModel(["One.", "Two.", "Three."])
    summarize = summarize_earlier(small, above=1, keep=1, count=one)
    for user in ("ada", "eve", "ada"):
        agent = Agent(ScriptedModel(["x"]), history_processors=[summarize])
        await agent.run("q", history=talk(user, "hi"), memory_id=user)
    assert len(small.requests) == 3
