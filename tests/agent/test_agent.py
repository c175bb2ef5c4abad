import asyncio
import logging
import os
import signal
import threading

import pytest

from helpers.agent_scripts import TOOLS, add, assert_valid, delete, later, sum_of, told
from helpers.columns import column
from toolsemble import (
    Agent,
    AgentExecutionError,
    AgentResult,
    BudgetExceededError,
    ConversationMemory,
    EffectLedger,
    ExitEarlyError,
    ImageContent,
    InvocationParameters,
    ModelError,
    Prices,
    Retry,
    Tool,
    Toolbox,
    ToolCall,
    ToolConfigurationError,
    ToolContext,
    ToolDefinitionError,
    ToolReply,
    ToolResult,
    tool,
)
from toolsemble.agent import ToolCallRecord, TraceStep, Usage
from toolsemble.models import (
    AssistantMessage,
    ChatReply,
    SystemMessage,
    TokenUsage,
    ToolMessage,
    Transcript,
    UserMessage,
)
from toolsemble.testing import AutoApprove, AutoReject, FunctionModel, ScriptedModel

IMAGE = ImageContent(b"...", "image/png")
AT_ONCE = Retry(wait=0)


async def by_run(agent, prompt, **settings):
    return await agent.run(prompt, **settings)


async def by_run_sync(agent, prompt, **settings):
    return await asyncio.to_thread(agent.run_sync, prompt, **settings)


async def by_stream(agent, prompt, **settings):
    return [event async for event in agent.stream(prompt, **settings)][-1].result


async def by_iterate(agent, prompt, **settings):
    return [event async for event in agent.iterate(prompt, **settings)][-1].result


WAYS = [by_run, by_run_sync, by_stream, by_iterate]

SHOW = ToolCall("show", {"text": "a"})
FINISH = ToolCall("finish_with", {"text": "b"})
SHOW_BROKEN = ToolCall("show_broken")
BROKEN = ToolCall("broken")

# script, text, stop reason, the replies to the model's calls
RUNS = {
    "no tools needed": (["hi"], "hi", "answer", []),
    "an empty answer, then one": (["", "hi"], "hi", "answer", []),
    "a blank answer between calls": ([sum_of(1, 2), " \n", sum_of(3, 4), "", "7"], "7", "answer", ["3", "7"]),
    "one call": ([sum_of(1, 2), "3"], "3", "answer", ["3"]),
    "one after the other": ([sum_of(1, 2), sum_of(3, 4), "7"], "7", "answer", ["3", "7"]),
    "several at once": ([[sum_of(1, 2), sum_of(3, 4)], "both"], "both", "answer", ["3", "7"]),
    "sync and async": ([[ToolCall("later", {"text": "x"}), sum_of(1, 2)], "both"], "both", "answer", ["x", "3"]),
    "text beside a call": ([ChatReply("Let me see.", (sum_of(1, 2),)), "3"], "3", "answer", ["3"]),
    "a failing call": ([BROKEN, "sorry"], "sorry", "answer", ["Error: broken"]),
    "failing beside fine": ([[BROKEN, sum_of(1, 2)], "3"], "3", "answer", ["Error: broken", "3"]),
    "an unknown tool": ([ToolCall("shw"), "sorry"], "sorry", "answer", [
        f"Error: Unknown tool 'shw'. Available tools: {', '.join(each.name for each in TOOLS)}. Did you mean 'show'?"
    ]),
    "arguments that do not fit": ([ToolCall("add", {"a": 1}), "sorry"], "sorry", "answer", [
        "Error: Missing required parameter(s) for 'add': b"
    ]),
    "a function of the messages": ([sum_of(1, 2), lambda messages: messages[-1].text * 2], "33", "answer", ["3"]),
    "immediate": ([SHOW], "shown: a", "immediate", ["shown: a"]),
    "immediate if last": ([FINISH], '{"text":"b"}', "immediate", ['{"text":"b"}']),
    "all immediate": ([[SHOW, SHOW]], "shown: a", "immediate", ["shown: a", "shown: a"]),
    "immediate of both kinds": ([[FINISH, SHOW]], "shown: a", "immediate", ['{"text":"b"}', "shown: a"]),
    "for the model, then immediate if last": ([[sum_of(1, 2), FINISH]], '{"text":"b"}', "immediate", [
        "3", '{"text":"b"}'
    ]),
    "for the model, then immediate": ([[sum_of(1, 2), SHOW], "on"], "on", "answer", ["3", "shown: a"]),
    "immediate, then for the model": ([[SHOW, sum_of(1, 2)], "on"], "on", "answer", ["shown: a", "3"]),
    "immediate if last, but not last": ([[FINISH, sum_of(1, 2)], "on"], "on", "answer", ['{"text":"b"}', "3"]),
    "immediate that fails": ([SHOW_BROKEN, "on"], "on", "answer", ["Error: no screen"]),
    "immediate beside immediate that fails": ([[SHOW_BROKEN, SHOW], "on"], "on", "answer", [
        "Error: no screen", "shown: a"
    ]),
    "failing, then immediate if last": ([[BROKEN, FINISH], "on"], "on", "answer", ["Error: broken", '{"text":"b"}']),
    "unknown beside immediate": ([[SHOW, ToolCall("nothing")], "on"], "on", "answer", None),
    "immediate after an ordinary turn": ([sum_of(1, 2), SHOW], "shown: a", "immediate", ["3", "shown: a"]),
    "gated and approved": ([ToolCall("delete", {"path": "x"}), "gone"], "gone", "answer", ["deleted x"]),
}  # fmt: skip


@pytest.mark.parametrize(("script", "text", "stop_reason", "replies"), RUNS.values(), ids=RUNS)
async def test_run_calls_tools_until_answer(script, text, stop_reason, replies):
    for way in WAYS:
        with column(way.__name__):
            model = ScriptedModel(script)
            result = await way(Agent(model, TOOLS, review=AutoApprove()), "go")
            assert (result.text, result.stop_reason) == (text, stop_reason)
            assert_valid(result.messages)
            assert len(model.requests) == len(script)
            assert [record.reply.text for record in result.tool_calls] == told(result.messages)
            if replies is not None:
                assert told(result.messages) == replies


async def test_each_request_contains_prior_calls_and_replies():
    model = ScriptedModel([[sum_of(1, 2, "c1"), sum_of(3, 4, "c2")], "done"])
    result = await Agent(model, [add]).run("add")
    replies = [ToolReply(call, ToolResult.success(text, int(text))) for call, text in
               ((sum_of(1, 2, "c1"), "3"), (sum_of(3, 4, "c2"), "7"))]  # fmt: skip
    asked = [UserMessage("add")]
    acted = [*asked, AssistantMessage("", (sum_of(1, 2, "c1"), sum_of(3, 4, "c2"))), *map(ToolMessage, replies)]
    assert model.requests == [asked, acted]
    assert result.messages == [*acted, AssistantMessage("done")]


async def test_tool_specifications_are_sent_with_every_request():
    model = ScriptedModel([sum_of(1, 2), "3"])
    await Agent(model, [add, later], settings={"temperature": 0}).run("add")
    for request in model.asked:
        assert [each.name for each in request.specifications] == ["add", "later"]
        assert (request.tool_choice, request.output_schema, dict(request.settings)) == (
            "auto",
            None,
            {"temperature": 0},
        )


async def test_model_without_tools_answers_in_one_call():
    model = ScriptedModel(["hi"])
    result = await Agent(model).run("hello")
    assert (result.text, result.output, result.tool_calls) == ("hi", "hi", [])
    assert [list(request.specifications) for request in model.asked] == [[]]


async def test_calls_of_one_reply_run_concurrently():
    met = asyncio.Barrier(3)

    @tool
    async def meet() -> str:
        await asyncio.wait_for(met.wait(), 30)
        return "met"

    result = await Agent(ScriptedModel([[ToolCall("meet")] * 3, "done"]), [meet]).run("go")
    assert [record.reply.text for record in result.tool_calls] == ["met"] * 3


async def test_replies_are_in_request_order():
    first_may_end = asyncio.Event()

    @tool
    async def slow() -> str:
        await asyncio.wait_for(first_may_end.wait(), 30)
        return "slow"

    @tool
    async def quick() -> str:
        first_may_end.set()
        return "quick"

    result = await Agent(ScriptedModel([[ToolCall("slow"), ToolCall("quick")], "done"]), [slow, quick]).run("go")
    assert [record.reply.text for record in result.tool_calls] == ["slow", "quick"]


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({}, None),
        ({"role": " ", "goal": ""}, None),
        ({"role": "a librarian"}, "You are a librarian."),
        ({"role": "a librarian."}, "You are a librarian."),
        ({"goal": "find it"}, "Your goal: find it"),
        (
            {"role": "a librarian", "goal": "find it", "background": "It is red."},
            "You are a librarian.\nYour goal: find it\nBackground: It is red.",
        ),
    ],
)
async def test_role_goal_and_background_become_system_message(settings, text):
    model = ScriptedModel(["hi"])
    await Agent(model, **settings).run("hello")
    system = [] if text is None else [SystemMessage(text)]
    assert model.requests == [[*system, UserMessage("hello")]]


@pytest.mark.parametrize(
    ("prompt", "messages"),
    [
        ("hello", [UserMessage("hello")]),
        (IMAGE, [UserMessage("", (IMAGE,))]),
        (["What is", "this?", IMAGE], [UserMessage("What is\nthis?", (IMAGE,))]),
        (UserMessage("hello"), [UserMessage("hello")]),
        ([UserMessage("a"), AssistantMessage("b"), UserMessage("c")],) * 2,
        (Transcript([UserMessage("a")]), [UserMessage("a")]),
    ],
)
async def test_prompt_can_be_text_messages_or_text_with_images(prompt, messages):
    model = ScriptedModel(["hi"])
    await Agent(model).run(prompt)
    assert model.requests == [messages]


@pytest.mark.parametrize("prompt", [None, 7, [1], ["a", UserMessage("b")], {"a": "b"}])
async def test_invalid_prompt_is_rejected(prompt):
    with pytest.raises(TypeError, match="A prompt must be a str, a list of str, images, audio and files, or messages"):
        await Agent(ScriptedModel(["hi"])).run(prompt)


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"memory": "a"}, r"A run has no setting 'memory'; did you mean memory_id\?"),
        ({"colour": "a"}, "A run has no setting 'colour'; it takes decisions, deps, history, .*, tools"),
        ({"memory_id": 7}, "The memory_id of a run must be a str, not 7"),
        ({"history": 7}, "The history of a run must be a list of messages, such as result.messages, not 7"),
        ({"history": "x"}, "The history of a run must be a list of messages, such as result.messages, not 'x'"),
        (
            {"parameters": ("user", "ada")},
            r"The parameters of a run must be a mutable mapping, such as {'user': 'ada'}, not \('user'",
        ),
    ],
)
async def test_invalid_run_settings_are_rejected(settings, problem):
    for way in WAYS:
        with pytest.raises(TypeError, match=problem):
            await way(Agent(ScriptedModel(["hi"])), "go", **settings)


@pytest.mark.parametrize("settings", [{}, {"role": "a librarian"}])
async def test_empty_message_list_is_rejected(settings):
    with pytest.raises(ToolConfigurationError, match="There is nothing to answer"):
        await Agent(ScriptedModel(["hi"]), **settings).run([])


@pytest.mark.parametrize("history", [None, [UserMessage("a"), AssistantMessage("b")]])
@pytest.mark.parametrize("prompt", ["", " \n", [""], ["", " "], UserMessage(""), [SystemMessage("x"), UserMessage("")]])
async def test_blank_prompt_is_rejected(prompt, history):
    model = ScriptedModel(["hi"])
    for way in WAYS:
        with pytest.raises(ToolConfigurationError, match="There is nothing to answer"):
            await way(Agent(model), prompt, history=history)
    assert model.requests == []


async def test_blank_input_for_agent_tool_is_reported_to_model():
    poet = Agent(ScriptedModel([])).as_tool("poet", "Writes a poem")
    result = await Agent(ScriptedModel([ToolCall("poet", {"input": " "}), "done"]), [poet]).run("go")
    assert told(result.messages) == ["Error: The input is blank; describe the task"]


OTHER, THIRD = SystemMessage("You are wordy."), SystemMessage("You are a poet.")
HISTORY = [THIRD, UserMessage("a"), AssistantMessage("b")]


@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.parametrize(
    ("settings", "history", "prompt", "shown"),
    [
        ({"background": "x"}, None, [OTHER], ["Background: x", OTHER.text]),
        ({"background": "x"}, HISTORY, [OTHER], ["Background: x", THIRD.text, OTHER.text]),
        ({"instructions": "x"}, HISTORY, [], ["x", THIRD.text]),
        ({}, None, [OTHER], [OTHER.text]),
        ({}, None, [OTHER, THIRD], [OTHER.text, THIRD.text]),
        ({}, None, [OTHER, OTHER, SystemMessage(" ")], [OTHER.text]),
        ({}, HISTORY, [OTHER], [THIRD.text, OTHER.text]),
        ({}, HISTORY, [THIRD], [THIRD.text]),
        ({}, HISTORY, [], [THIRD.text]),
    ],
)
async def test_system_messages_are_merged_with_agent_text_first(settings, history, prompt, shown, kept):
    model = ScriptedModel(["hi"])
    memory = ConversationMemory() if kept else None
    await Agent(model, memory=memory, memory_id="default", **settings).run([*prompt, UserMessage("c")], history=history)
    history_messages = [] if history is None else history[1:]
    assert model.requests == [[SystemMessage("\n\n".join(shown)), *history_messages, UserMessage("c")]]


async def test_system_message_in_prompt_precedes_stored_conversation():
    model, memory = ScriptedModel(["b", "d"]), ConversationMemory()
    await Agent(model, memory=memory, memory_id="default").run("a")
    await Agent(model, memory=memory, memory_id="default").run([OTHER, UserMessage("c")])
    assert model.requests[1] == [OTHER, UserMessage("a"), AssistantMessage("b"), UserMessage("c")]


async def test_prompt_with_unanswered_call_is_rejected():
    with pytest.raises(ToolConfigurationError, match="has no reply"):
        await Agent(ScriptedModel(["hi"])).run([UserMessage("a"), AssistantMessage("", (sum_of(1, 2),))])


# --- history


async def test_history_continues_conversation():
    model = ScriptedModel(["one", SHOW, "three"])
    agent = Agent(model, TOOLS, role="a clerk")
    first = await agent.run("a")
    second = await agent.run("b", history=first.messages)
    third = await agent.run("c", history=list(second.messages))
    assert second.stop_reason == "immediate"
    assert [message.role for message in third.messages] == [
        "system", "user", "assistant", "user", "assistant", "tool", "user", "assistant",
    ]  # fmt: skip
    assert_valid(third.messages)
    assert (await make_agent("again").run([], history=third.messages[:-1])).text == "again"


def make_agent(*script, **settings):
    return Agent(ScriptedModel(script), TOOLS, **settings)


async def test_agent_system_message_replaces_one_in_history():
    model = ScriptedModel(["one", "two", "three"])
    history = (await Agent(model, role="a poet").run("a")).messages
    await Agent(model, role="a clerk").run("b", history=history)
    await Agent(model).run("c", history=history)
    assert [messages[0] for messages in model.requests] == [
        SystemMessage("You are a poet."),
        SystemMessage("You are a clerk."),
        SystemMessage("You are a poet."),
    ]


async def test_runs_from_same_history_are_independent():
    history = (await make_agent("hi").run("hello")).messages
    one = await make_agent("one").run("first", history=history)
    other = await make_agent("other").run("second", history=history)
    assert ([m.text for m in one.messages], [m.text for m in other.messages]) == (
        ["hello", "hi", "first", "one"],
        ["hello", "hi", "second", "other"],
    )


EMPTY = UserMessage("Your answer was empty. Answer in words, or call a tool.")


@pytest.mark.parametrize("text", ["", " \n"])
async def test_empty_answer_is_dropped_and_retried_once(text):
    model = ScriptedModel([text, "hi"])
    result = await Agent(model, memory=(memory := ConversationMemory()), memory_id="default").run("hello")
    assert model.requests == [[UserMessage("hello")], [UserMessage("hello"), EMPTY]]
    assert result.messages == memory.load("default") == [UserMessage("hello"), EMPTY, AssistantMessage("hi")]
    assert (result.text, result.usage.model_calls) == ("hi", 2)


async def test_details_of_empty_answer_are_kept():
    thought = ChatReply("", details={"anthropic": [{"type": "thinking"}]})
    result = await make_agent(thought, "hi").run("hello")
    assert result.messages == [
        UserMessage("hello"),
        AssistantMessage("", (), thought.details),
        EMPTY,
        AssistantMessage("hi"),
    ]


@pytest.mark.parametrize("way", WAYS)
async def test_two_empty_answers_fail_the_run(way):
    model = ScriptedModel([sum_of(1, 2), "", " ", "on"])
    with pytest.raises(AgentExecutionError) as caught:
        await way(Agent(model, [add]), "go")
    assert str(caught.value) == "The model returned an empty answer twice"
    assert isinstance(caught.value.__cause__, ModelError)
    partial = caught.value.partial
    assert (partial.stop_reason, told(partial.messages), partial.messages[-1]) == ("error", ["3"], EMPTY)
    assert_valid(partial.messages)
    assert (await way(Agent(model, [add]), "go on", history=partial.messages)).text == "on"


# --- results


async def test_result_contains_calls_messages_usage_and_trace():
    model = ScriptedModel([[sum_of(1, 2), BROKEN], "3"], usage=TokenUsage(10, 5, 4))
    result = await Agent(model, TOOLS).run("add")
    assert result == AgentResult(
        "3", "3", result.tool_calls, result.messages, result.usage, "answer", result.trace, result.run_id
    )
    records = [ToolCallRecord(record.call, record.reply, record.duration, record.started) for record in result.calls]
    assert records == result.tool_calls
    assert [(record.name, record.call) for record in records] == [("add", sum_of(1, 2)), ("broken", BROKEN)]
    assert all(record.duration > 0 and record.started >= 0 for record in records)
    usage = result.usage
    assert usage == Usage(20, 10, 8, 2, 2, 0.0, usage.model_seconds, usage.tool_seconds)
    assert (usage.total_tokens, usage.model_seconds > 0, usage.tool_seconds > 0) == (30, True, True)
    steps = [(step.kind, step.name, step.detail) for step in result.trace]
    assert sorted(steps[1:3]) == [("tool", "add", "success"), ("tool", "broken", "error")]
    assert (steps[0], steps[3]) == (("model", "ScriptedModel", "calls"), ("model", "ScriptedModel", "stop"))
    assert all(isinstance(step, TraceStep) and step.duration >= 0 for step in result.trace)
    assert result.run_id


async def test_immediate_result_is_truncated_for_model_only():
    box = Toolbox(TOOLS, max_output=3)
    result = await Agent(ScriptedModel([FINISH]), box).run("go")
    assert (result.text, result.output) == ('{"text":"b"}', {"text": "b"})
    assert told(result.messages) == ['{"t... [truncated, full length: 12 chars]']
    assert (await make_agent(SHOW).run("go")).output == "shown: a"


# --- context


async def test_tools_of_run_share_parameters_ids_and_role():
    seen = []

    @tool
    def look(context: ToolContext, parameters: InvocationParameters) -> str:
        parameters["count"] = parameters.get("count", 0) + 1
        seen.append((context.run_id, context.memory_id, context.agent_role, parameters["user"]))
        return "seen"

    mine = {"user": "ada"}
    agent = Agent(
        ScriptedModel([ToolCall("look"), ToolCall("look"), "done", ToolCall("look"), "done"]), [look], role="spy"
    )
    first = await agent.run("go", parameters=mine, memory_id="conversation")
    assert seen == [(first.run_id, "conversation", "spy", "ada")] * 2
    assert mine == {"user": "ada", "count": 2}
    second = await agent.run("go", parameters=InvocationParameters({"user": "bob"}))
    assert seen[2:] == [(second.run_id, "default", "spy", "bob")]
    assert first.run_id != second.run_id


async def test_repeated_run_id_does_not_repeat_payment(tmp_path):
    paid = []

    @tool(effects="irreversible", idempotency=True)
    def pay(order: int) -> str:
        paid.append(order)
        return f"paid {order}"

    with EffectLedger(tmp_path / "effects.db") as ledger:
        box = Toolbox([pay], ledger=ledger)
        for name in ("r1", "r1", "r2"):
            model = ScriptedModel([ToolCall("pay", {"order": 7}), "done"])
            result = await Agent(model, box).run("Pay.", run_id=name)
            assert (result.run_id, result.tool_calls[0].reply.text) == (name, "paid 7")
    assert paid == [7, 7]
    with pytest.raises(TypeError, match="The run_id of a run must be a str, not 7"):
        await Agent(ScriptedModel(["done"])).run("Pay.", run_id=7)


async def test_runs_without_parameters_do_not_share_them():
    @tool
    def count(parameters: InvocationParameters) -> int:
        parameters["count"] = parameters.get("count", 0) + 1
        return parameters["count"]

    agent = Agent(ScriptedModel([ToolCall("count"), ToolCall("count"), "done"] * 2), [count])
    assert [told((await agent.run("go")).messages) for _ in range(2)] == [["1", "2"]] * 2


async def test_run_resets_context():
    agent = make_agent(sum_of(1, 2), "3", sum_of(1, 2), "3")
    await agent.run("go")
    stream = agent.stream("go")
    async for _ in stream:
        assert Tool.context.fget(add).run_id == ""


# --- review


async def test_rejection_is_reported_to_model():
    result = await make_agent(ToolCall("delete", {"path": "x"}), "pity", review=AutoReject("not today")).run("go")
    assert told(result.messages) == ["Error: Rejected by reviewer: not today"]


async def test_toolbox_without_reviewer_uses_agent_reviewer():
    box = Toolbox([delete], review=AutoReject("the box"))
    call = ToolCall("delete", {"path": "x"})
    result = await Agent(ScriptedModel([call, "x"]), box, review=AutoApprove()).run("go")
    assert told(result.messages) == ["Error: Rejected by reviewer: the box"]
    result = await Agent(ScriptedModel([call, "x"]), Toolbox([delete]), review=AutoApprove()).run("go")
    assert told(result.messages) == ["deleted x"]


@pytest.mark.parametrize("way", WAYS)
async def test_missing_reviewer_error_reaches_caller(way):
    with pytest.raises(ToolConfigurationError, match="requires approval but no ReviewHandler") as caught:
        await way(make_agent([sum_of(1, 2), ToolCall("delete", {"path": "x"})]), "go")
    partial = caught.value.partial
    assert_valid(partial.messages)
    assert partial.stop_reason == "configuration_error"
    assert told(partial.messages) == [
        "3",
        "Error: The run ended before this call did: Tool 'delete' requires approval but no ReviewHandler is configured",
    ]


@pytest.mark.parametrize("way", WAYS)
async def test_exit_early_error_reaches_caller(way):
    @tool
    def leave() -> str:
        raise ExitEarlyError("enough", timed_out=True)

    model = ScriptedModel([[sum_of(1, 2), ToolCall("leave")], "on"])
    with pytest.raises(ExitEarlyError, match="enough") as caught:
        await way(Agent(model, [add, leave]), "go")
    partial = caught.value.partial
    assert (caught.value.timed_out, partial.stop_reason, len(partial.tool_calls)) == (True, "exit_early", 2)
    assert told(partial.messages) == ["3", "Error: The run ended before this call did: enough"]
    assert_valid(partial.messages)
    result = await way(Agent(model, [add]), "go on", history=partial.messages)
    assert result.text == "on"


# --- what a model does wrong


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "error", [ModelError("No such model"), ValueError("No such model"), lambda _: ValueError("No such model")]
)
async def test_model_error_fails_run_with_its_message(way, error):
    agent = make_agent(sum_of(1, 2), error, "on")
    with pytest.raises(AgentExecutionError, match=r"^No such model$") as caught:
        await way(agent, "go")
    partial = caught.value.partial
    assert isinstance(caught.value.__cause__, ModelError | ValueError)
    assert ([m.text for m in partial.messages], partial.stop_reason) == (["go", "", "3"], "error")
    assert (len(partial.calls), partial.usage.model_calls, partial.usage.tool_calls) == (1, 1, 1)
    result = await way(agent, "go on", history=partial.messages)
    assert (result.text, len(result.messages)) == ("on", 5)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "error",
    [ModelError("busy", retryable=True), ModelError("busy", retryable=True, retry_after=0), ConnectionError("busy"),
     TimeoutError("busy")],
)  # fmt: skip
async def test_retryable_model_errors_are_retried(way, error):
    model = ScriptedModel([error, error, "hi"])
    result = await way(Agent(model, retry=AT_ONCE), "hello")
    assert (result.text, model.requests) == ("hi", [[UserMessage("hello")]] * 3)
    assert [(step.kind, step.detail) for step in result.trace] == [
        ("retry", "busy"),
        ("retry", "busy"),
        ("model", "stop"),
    ]


async def test_model_retries_are_limited(caplog):
    caplog.set_level(logging.WARNING, "toolsemble.agent")
    model = ScriptedModel([ModelError("busy", retryable=True)] * 9)
    with pytest.raises(AgentExecutionError, match="busy"):
        await Agent(model, retry=Retry(attempts=3, wait=0)).run("hello")
    assert len(model.requests) == 3
    assert caplog.messages == [f"The model failed (busy); retry {number} in 0.0 s" for number in (1, 2)]


@pytest.mark.parametrize(
    ("retry", "error", "tried", "least", "most"),
    [
        (Retry(), ModelError("x", retryable=True), 0, 0.25, 0.5),
        (Retry(), ModelError("x", retryable=True), 2, 1, 2),
        (Retry(), ModelError("x", retryable=True), 3, None, None),
        (Retry(attempts=3), ModelError("x", retryable=True), 1, 0.5, 1),
        (Retry(attempts=3), ModelError("x", retryable=True), 2, None, None),
        (Retry(attempts=1), ModelError("x", retryable=True), 0, None, None),
        (Retry(attempts=0), ModelError("x", retryable=True), 0, None, None),
        (Retry(attempts=100), ModelError("x", retryable=True), 90, 60, 60),
        (Retry(), ModelError("x", retryable=True, retry_after=7), 0, 7, 7),
        (Retry(), ModelError("x", retryable=True, retry_after=61), 0, None, None),
        (Retry(), ModelError("x", retry_after=7), 0, None, None),
        (Retry(), ConnectionResetError(), 0, 0.25, 0.5),
        (Retry(), OSError(), 0, None, None),
    ],
)
def test_retry_pause_is_within_bounds(retry, error, tried, least, most):
    pause = retry.pause(error, tried)
    assert pause is least is None if least is None else least <= pause <= most


async def test_retry_never_waits_beyond_run_deadline():
    model = ScriptedModel([ModelError("busy", retryable=True, retry_after=50), "hi"])
    with pytest.raises(AgentExecutionError, match="busy"):
        await Agent(model, max_seconds=30).run("hello")


@pytest.mark.parametrize(
    "wrong", ["text", None, ChatReply(None), ChatReply(7), ChatReply("", None), ChatReply("", (SHOW, "add"))]
)
async def test_invalid_reply_fails_the_run(wrong):
    class Wrong:
        async def reply(self, request):
            return wrong

        async def stream(self, request):
            yield wrong

    with pytest.raises(AgentExecutionError) as caught:
        await Agent(Wrong()).run("hello")
    assert str(caught.value) == (
        f"The model returned {wrong!r:.80} instead of a ChatReply with a text and a tuple of ToolCalls"
    )


@pytest.mark.parametrize(
    "usage", [None, 7, TokenUsage(-5), TokenUsage(1, None), TokenUsage(1, 1, 0.5), TokenUsage(True)]
)
async def test_invalid_usage_fails_the_run(usage):
    for way in WAYS:
        with pytest.raises(AgentExecutionError) as caught:
            await way(make_agent(ChatReply("x", usage=usage)), "hello")
        assert str(caught.value) == (
            f"The model returned {usage!r} as the usage of its reply; it must be a TokenUsage of ints >= 0, or left out"
        )


async def test_reply_calls_may_be_a_list():
    reply = ChatReply("", [sum_of(1, 2)])
    assert told((await make_agent(reply, "3").run("go")).messages) == ["3"]


async def test_calls_with_duplicate_ids_get_new_ids():
    calls = [sum_of(1, 2, "c"), sum_of(3, 4, "c"), sum_of(5, 6, "d"), sum_of(7, 8), sum_of(9, 0)]
    result = await make_agent(calls, "done").run("go")
    ids = [record.call.id for record in result.tool_calls]
    assert (ids[0], ids[2:]) == ("c", ["d", None, None])
    assert ids[1] not in {"c", "d", None}
    assert told(result.messages) == ["3", "7", "11", "15", "9"]


async def test_lone_surrogates_never_enter_conversation():
    wrong = ChatReply("half \ud800", (ToolCall("add\udfff", "{}"), ToolCall("add", {"a": "\ud800"}, "c")))
    result = await make_agent(wrong, "done \udc00").run("go")
    for message in result.messages:
        message.text.encode()
    message = result.messages[1]
    assert [(call.name, call.json, call.id) for call in message.calls] == [
        ("add\\udfff", "{}", None),
        ("add", '{"a":"\\ud800"}', "c"),
    ]
    assert (message.text, result.text) == ("half \\ud800", "done \\udc00")


async def test_base_exception_carries_partial_result():
    @tool
    async def interrupt() -> str:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as caught:
        await Agent(ScriptedModel([[sum_of(1, 2), ToolCall("interrupt")]]), [add, interrupt]).run("go")
    assert told(caught.value.partial.messages) == [
        "3",
        "Error: The run ended before this call did: KeyboardInterrupt",
    ]
    assert caught.value.partial.stop_reason == "cancelled"


async def test_exception_without_attributes_is_reraised():
    class Closed(BaseException):
        __slots__ = ()

        def __setattr__(self, name, value):
            raise AttributeError(name)

    with pytest.raises(Closed):
        await Agent(ScriptedModel([Closed()])).run("go")


# --- dynamic tools


async def test_tools_may_be_a_function():
    seen = []

    def tools(run):
        seen.append((run.turn, run.memory_id, len(run.messages), run.parameters["user"], run.usage.model_calls))
        return [add] if run.turn == 0 else [later]

    model = ScriptedModel([sum_of(1, 2), sum_of(1, 2), ToolCall("later", {"text": "x"}), "done"])
    result = await Agent(model, tools).run("go", memory_id="m", parameters={"user": "ada"})
    assert [[each.name for each in request.specifications] for request in model.asked] == [["add"]] + [["later"]] * 3
    assert told(result.messages) == ["3", "Error: Unknown tool 'add'. Available tools: later", "x"]
    assert seen == [(0, "m", 1, "ada", 0), (1, "m", 3, "ada", 1), (2, "m", 5, "ada", 2), (3, "m", 7, "ada", 3)]


async def test_tools_may_be_an_async_function_that_returns_a_toolbox():
    box = Toolbox([add])

    async def tools(run):
        await asyncio.sleep(0)
        return box

    assert (await Agent(ScriptedModel([sum_of(1, 2), "3"]), tools).run("go")).tool_calls[0].reply.text == "3"


async def test_dynamic_tools_are_reviewed_by_the_agents_reviewer():
    agent = Agent(
        ScriptedModel([ToolCall("delete", {"path": "x"}), "gone"]), lambda run: [delete], review=AutoApprove()
    )
    assert told((await agent.run("go")).messages) == ["deleted x"]


async def test_failing_tools_function_fails_run():
    def tools(run):
        if run.turn:
            raise ValueError("no tools today")
        return [add]

    with pytest.raises(AgentExecutionError, match="no tools today") as caught:
        await Agent(ScriptedModel([sum_of(1, 2)]), tools).run("go")
    assert told(caught.value.partial.messages) == ["3"]


@pytest.mark.parametrize("tools", [lambda run: None, lambda city: 7])
async def test_tools_function_must_return_tools(tools):
    with pytest.raises(AgentExecutionError, match="must return a list of tools, not"):
        await Agent(ScriptedModel([]), tools).run("go")


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize(("role", "seen"), [("", "unknown"), ("a clerk", "a clerk")])
async def test_fixed_and_dynamic_tools_see_the_same_role(dynamic, role, seen):
    @tool
    def whose(context: ToolContext) -> str:
        return context.agent_role

    tools = (lambda run: [whose]) if dynamic else [whose]
    result = await Agent(ScriptedModel([ToolCall("whose"), "done"]), tools, role=role).run("go")
    assert told(result.messages) == [seen]


# --- settings


@pytest.mark.parametrize(
    ("make", "error", "problem"),
    [
        (lambda: Agent("unknown:x"), ToolConfigurationError, "Unknown model 'unknown:x'"),
        (lambda: Agent(object()), ToolConfigurationError, "is not a ChatModel"),
        (lambda: make_agent(max_tool_calls=-1), ToolDefinitionError, "max_tool_calls must be an int >= 0"),
        (lambda: make_agent(max_tool_calls=True), ToolDefinitionError, "max_tool_calls must be an int"),
        (lambda: make_agent(max_depth=1.5), ToolDefinitionError, "max_depth must be an int >= 0, not 1.5"),
        (lambda: make_agent(output_retries=-1), ToolDefinitionError, "output_retries must be an int >= 0"),
        (lambda: make_agent(max_turns=0), ToolDefinitionError, "max_turns must be an int >= 1, not 0"),
        (lambda: make_agent(max_tokens="9"), ToolDefinitionError, "max_tokens must be an int >= 1, not '9'"),
        (lambda: make_agent(max_turns=1.5), ToolDefinitionError, "max_turns must be an int >= 1, not 1.5"),
        (lambda: make_agent(max_seconds=float("nan")), ToolDefinitionError, "max_seconds must be a number of seconds"),
        (lambda: make_agent(max_cost=1), ToolDefinitionError, "max_cost needs prices"),
        (lambda: make_agent(role=7), ToolDefinitionError, "Agent role must be a str, not 7"),
        (lambda: make_agent(goal=None), ToolDefinitionError, "Agent goal must be a str, not None"),
        (lambda: make_agent(background=["x"]), ToolDefinitionError, r"Agent background must be a str, not \['x'\]"),
        (lambda: make_agent(memory_id=7), ToolDefinitionError, "Agent memory_id must be a str, not 7"),
        (lambda: make_agent(memory="talks.db"), ToolDefinitionError,
         r"Agent memory must be a ConversationMemory, such as ConversationMemory\('talks.db'\), not 'talks.db'"),
        (lambda: make_agent(memory=ConversationMemory), ToolDefinitionError,
         "Agent memory must be a ConversationMemory"),
        (lambda: make_agent(review=AutoApprove), ToolDefinitionError,
         (r"Agent review must be a ReviewHandler: an object with a method review\(request\), such as "
          r"CallbackReview\(function\), not <class")),
        (lambda: make_agent(review=print), ToolDefinitionError, "Agent review must be a ReviewHandler"),
        (lambda: make_agent(retry=3), ToolDefinitionError,
         r"Agent retry must be a Retry, such as Retry\(attempts=3\), not 3"),
        (lambda: make_agent(retry=None), ToolDefinitionError, "Agent retry must be a Retry"),
        (lambda: make_agent(settings=["temperature"]), ToolDefinitionError,
         r"Agent settings must be a mapping, such as {'temperature': 0}, not \['temperature'\]"),
        (lambda: make_agent(prices=2), ToolDefinitionError, r"Agent prices must be Prices, such as Prices\(2"),
        (lambda: make_agent(loop_guard=3), ToolDefinitionError, "Agent loop_guard must be a LoopGuard or None, not 3"),
        (lambda: Agent(ScriptedModel([]), [None]), ToolDefinitionError, "Tool at index 0 is None"),
        (lambda: Agent(ScriptedModel([]), add), ToolDefinitionError, "A toolbox takes a list of tools"),
        (lambda: Agent(ScriptedModel([]), 7), ToolDefinitionError, "A toolbox takes a list of tools, not int"),
        (lambda: Retry(attempts=-1), ToolDefinitionError, r"including the first\) must be an int >= 0, not -1"),
        (lambda: Retry(attempts=2.5), ToolDefinitionError, r"including the first\) must be an int >= 0, not 2.5"),
        (lambda: Retry(attempts=True), ToolDefinitionError, r"including the first\) must be an int >= 0"),
        (lambda: Retry(wait="1"), ToolDefinitionError, "Retry wait must be a number of seconds >= 0, not '1'"),
        (lambda: Retry(longest=True), ToolDefinitionError, "Retry longest must be a number of seconds >= 0"),
        (lambda: make_agent(max_cost=True, prices=Prices(1, 1)), ToolDefinitionError, "max_cost must be a number >"),
        (lambda: Agent(ScriptedModel([]), [make_agent()]), ToolDefinitionError,
         r"An Agent is not a tool; pass agent.as_tool\(name, description\) instead"),
        (lambda: Agent(ScriptedModel([]), make_agent()), ToolDefinitionError, "An Agent is not a tool"),
        (lambda: Agent(ScriptedModel([]), Toolbox), ToolDefinitionError,
         "Agent tools must be tools, not the class Toolbox; pass an instance"),
        (lambda: Agent(ScriptedModel([]), lambda a, b: [add]), ToolDefinitionError, "takes a RunView or nothing"),
        (lambda: Agent(ScriptedModel([]), lambda a, b: []), ToolDefinitionError, "decorate it with @tool"),
    ],
)  # fmt: skip
def test_invalid_settings_are_rejected_at_creation(make, error, problem):
    with pytest.raises(error, match=problem):
        make()


def test_settings_are_checked_before_model_lookup(monkeypatch):
    monkeypatch.setattr("toolsemble.agent._settings.model_of", lambda model: pytest.fail("looked for"))
    with pytest.raises(ToolDefinitionError, match="Agent memory must be"):
        Agent(memory="talks.db")


async def test_agent_supports_concurrent_runs():
    agent = Agent(FunctionModel(lambda request: request.messages[-1].text.upper() if len(request.messages) > 1 else
                                ToolCall("later", {"text": request.messages[0].text})), [later])  # fmt: skip
    results = await asyncio.gather(*(agent.run(f"run {number}") for number in range(50)))
    assert [result.text for result in results] == [f"RUN {number}" for number in range(50)]


async def test_run_sync_works_inside_event_loop():
    assert make_agent(sum_of(1, 2), "3").run_sync("go").text == "3"


@pytest.mark.parametrize(
    ("tools", "shown"),
    [
        ((), "Agent(ScriptedModel, tools: none)"),
        ([add, later], "Agent(ScriptedModel, tools: add, later)"),
        (lambda run: [], "Agent(ScriptedModel, tools: a function of the run)"),
    ],
)
def test_agent_repr_shows_model_and_tools(tools, shown):
    assert repr(Agent(ScriptedModel([]), tools)) == shown


async def test_lone_surrogate_in_prompt_is_escaped():
    model = ScriptedModel(["done"])
    await Agent(model).run("caf\udce9")
    assert model.requests == [[UserMessage("caf\\udce9")]]


async def test_error_of_another_run_gets_own_partial_result():
    def tools(run):
        if run.turn:
            raise BudgetExceededError("another run", partial="of another run")
        return [add]

    with pytest.raises(BudgetExceededError, match="another run") as caught:
        await Agent(ScriptedModel([sum_of(1, 2)]), tools).run("go")
    assert (caught.value.partial.stop_reason, told(caught.value.partial.messages)) == ("error", ["3"])


RELEASED = threading.Event()


@tool
async def raise_interrupt() -> str:
    """Be interrupted."""
    raise KeyboardInterrupt


@tool
async def interrupt_while_waiting() -> str:
    """Be interrupted on the event loop."""
    os.kill(os.getpid(), signal.SIGINT)
    await asyncio.Event().wait()
    return "never"


@tool
def interrupt_while_blocking() -> str:
    """Be interrupted in a thread."""
    os.kill(os.getpid(), signal.SIGINT)
    return str(RELEASED.wait(30))


@pytest.mark.parametrize(
    "tool", [raise_interrupt, interrupt_while_waiting, interrupt_while_blocking], ids=lambda tool: tool.name
)
def test_interrupt_in_sync_code_carries_partial_result(tool):
    agent = Agent(ScriptedModel([sum_of(1, 2), ToolCall(tool.name)]), [add, tool])
    with pytest.raises(KeyboardInterrupt) as caught:
        agent.run_sync("go")
    RELEASED.set()
    partial = caught.value.partial
    assert_valid(partial.messages)
    assert (partial.stop_reason, told(partial.messages)[0]) == ("cancelled", "3")
    assert Agent(ScriptedModel(["on"])).run_sync("go on", history=partial.messages).text == "on"


class WithoutSignature:
    """A callable without a signature that returns tools."""

    @property
    def __signature__(self):
        raise ValueError("no signature")

    def __call__(self, view):
        return [add]


async def test_tools_function_may_lack_a_signature():
    result = await Agent(ScriptedModel([sum_of(1, 2), "3"]), WithoutSignature()).run("go")
    assert told(result.messages) == ["3"]


def test_sync_run_does_not_format_its_result(monkeypatch):
    formatted = []
    monkeypatch.setattr(AgentResult, "__repr__", lambda _: formatted.append("result") or "AgentResult()")
    result = Agent(ScriptedModel(["Rome"])).run_sync("Where do all roads lead?")
    assert (result.text, formatted) == ("Rome", [])


async def test_attempts_are_retries_after_the_first_request():
    model = ScriptedModel([ModelError("overloaded", retryable=True)] * 5)
    with pytest.raises(AgentExecutionError, match="overloaded"):
        await Agent(model, retry=Retry(attempts=4, wait=0)).run("go")
    assert len(model.requests) == 4


class Controller:
    def __init__(self, tools):
        self.tools = tools

    def get_tools(self):
        return self.tools

    async def find_tools(self):
        return self.tools

    def get_tools_of(self, run):
        return self.tools if run.run_id else []


@pytest.mark.parametrize("method", ["get_tools", "find_tools", "get_tools_of"])
async def test_function_for_tools_may_take_no_parameter(method):
    model = ScriptedModel([sum_of(1, 2), "3"])
    result = await Agent(model, getattr(Controller([add]), method)).run("1 + 2?")
    assert [record.reply.text for record in result.tool_calls] == ["3"]


async def test_function_for_tools_that_returns_a_text_is_explained():
    with pytest.raises(
        AgentExecutionError, match=r"must return a list of tools, not 'noon'\. To use a function as a tool"
    ):
        await Agent(ScriptedModel(["hi"]), lambda: "noon").run("go")
