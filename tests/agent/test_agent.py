import asyncio
import logging
import os
import signal
import threading

import pytest

from helpers.agent_scripts import TOOLS, add, assert_valid, delete, later, sum_of, told
from toolsemble import (
    Agent,
    AgentExecutionError,
    AgentResult,
    ConversationMemory,
    EffectLedger,
    ExitEarlyError,
    ImageContent,
    InvocationParameters,
    MaxIterationsExceededError,
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

# script, text, stop reason, what the model was told about its calls
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


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("script", "text", "stop_reason", "replies"), RUNS.values(), ids=RUNS)
async def test_the_loop(way, script, text, stop_reason, replies):
    model = ScriptedModel(script)
    result = await way(Agent(model, TOOLS, review=AutoApprove()), "go")
    assert (result.text, result.stop_reason) == (text, stop_reason)
    assert_valid(result.messages)
    assert len(model.requests) == len(script)
    assert [record.reply.text for record in result.tool_calls] == told(result.messages)
    if replies is not None:
        assert told(result.messages) == replies


async def test_messages_grow_as_reasoning_acting_and_observing_do():
    model = ScriptedModel([[sum_of(1, 2, "c1"), sum_of(3, 4, "c2")], "done"])
    result = await Agent(model, [add]).run("add")
    replies = [ToolReply(call, ToolResult.success(text, int(text))) for call, text in
               ((sum_of(1, 2, "c1"), "3"), (sum_of(3, 4, "c2"), "7"))]  # fmt: skip
    asked = [UserMessage("add")]
    acted = [*asked, AssistantMessage("", (sum_of(1, 2, "c1"), sum_of(3, 4, "c2"))), *map(ToolMessage, replies)]
    assert model.requests == [asked, acted]
    assert result.messages == [*acted, AssistantMessage("done")]


async def test_the_specifications_are_sent_with_every_request():
    model = ScriptedModel([sum_of(1, 2), "3"])
    await Agent(model, [add, later], settings={"temperature": 0}).run("add")
    for request in model.asked:
        assert [each.name for each in request.specifications] == ["add", "later"]
        assert (request.tool_choice, request.output_schema, dict(request.settings)) == (
            "auto",
            None,
            {"temperature": 0},
        )


async def test_a_model_without_tools_answers_in_one_call():
    model = ScriptedModel(["hi"])
    result = await Agent(model).run("hello")
    assert (result.text, result.output, result.tool_calls, str(result)) == ("hi", "hi", [], "hi")
    assert [list(request.specifications) for request in model.asked] == [[]]


async def test_calls_of_one_reply_run_side_by_side():
    met = asyncio.Barrier(3)

    @tool
    async def meet() -> str:
        await asyncio.wait_for(met.wait(), 30)
        return "met"

    result = await Agent(ScriptedModel([[ToolCall("meet")] * 3, "done"]), [meet]).run("go")
    assert [record.reply.text for record in result.tool_calls] == ["met"] * 3


async def test_replies_are_in_request_order_whichever_ends_first():
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
async def test_role_goal_and_background_are_the_system_message(settings, text):
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
async def test_a_prompt_is_text_messages_or_text_with_images(prompt, messages):
    model = ScriptedModel(["hi"])
    await Agent(model).run(prompt)
    assert model.requests == [messages]


@pytest.mark.parametrize("prompt", [None, 7, [1], ["a", UserMessage("b")], {"a": "b"}])
async def test_an_invalid_prompt_is_refused(prompt):
    with pytest.raises(TypeError, match="A prompt must be a str, a list of str, images, audio and files, or messages"):
        await Agent(ScriptedModel(["hi"])).run(prompt)


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"memory": "a"}, "A run has no setting 'memory'; it takes history, memory_id, parameters, run_id"),
        ({"memory_id": 7}, "The memory_id of a run must be a str, not 7"),
        ({"history": 7}, "The history of a run must be messages, not 7"),
        (
            {"parameters": ("user", "ada")},
            r"The parameters of a run must be a mutable mapping, such as {'user': 'ada'}, not \('user'",
        ),
    ],
)
async def test_an_invalid_setting_of_a_run_is_refused(settings, problem):
    for way in WAYS:
        with pytest.raises(TypeError, match=problem):
            await way(Agent(ScriptedModel(["hi"])), "go", **settings)


@pytest.mark.parametrize("settings", [{}, {"role": "a librarian"}])
async def test_nothing_to_answer_is_refused(settings):
    with pytest.raises(ToolConfigurationError, match="There is nothing to answer"):
        await Agent(ScriptedModel(["hi"]), **settings).run([])


@pytest.mark.parametrize("history", [None, [UserMessage("a"), AssistantMessage("b")]])
@pytest.mark.parametrize("prompt", ["", " \n", [""], ["", " "], UserMessage(""), [SystemMessage("x"), UserMessage("")]])
async def test_a_blank_prompt_is_refused(prompt, history):
    model = ScriptedModel(["hi"])
    for way in WAYS:
        with pytest.raises(ToolConfigurationError, match="There is nothing to answer"):
            await way(Agent(model), prompt, history=history)
    assert model.requests == []


async def test_a_blank_input_of_an_agent_that_is_a_tool_is_reported_to_the_model():
    poet = Agent(ScriptedModel([])).as_tool("poet", "Writes a poem")
    result = await Agent(ScriptedModel([ToolCall("poet", {"input": " "}), "done"]), [poet]).run("go")
    assert told(result.messages) == ["Error: The input is blank; describe the task"]


OTHER, THIRD = SystemMessage("You are wordy."), SystemMessage("You are a poet.")


@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.parametrize(
    ("settings", "history", "prompt", "shown"),
    [
        ({"background": "x"}, None, [OTHER], "Background: x"),
        ({"background": "x"}, [THIRD, UserMessage("a"), AssistantMessage("b")], [OTHER], "Background: x"),
        ({}, None, [OTHER], OTHER.text),
        ({}, [THIRD, UserMessage("a"), AssistantMessage("b")], [OTHER], OTHER.text),
        ({}, [THIRD, UserMessage("a"), AssistantMessage("b")], [], THIRD.text),
    ],
)
async def test_there_is_one_system_message_the_agents_own_before_all_others(settings, history, prompt, shown, kept):
    model = ScriptedModel(["hi"])
    memory = ConversationMemory() if kept else None
    await Agent(model, memory=memory, **settings).run([*prompt, UserMessage("c")], history=history)
    said = [] if history is None else history[1:]
    assert model.requests == [[SystemMessage(shown), *said, UserMessage("c")]]


async def test_a_system_message_in_a_prompt_comes_before_the_stored_conversation():
    model, memory = ScriptedModel(["b", "d"]), ConversationMemory()
    await Agent(model, memory=memory).run("a")
    await Agent(model, memory=memory).run([OTHER, UserMessage("c")])
    assert model.requests[1] == [OTHER, UserMessage("a"), AssistantMessage("b"), UserMessage("c")]


async def test_a_prompt_with_a_call_that_has_no_reply_is_refused():
    with pytest.raises(ToolConfigurationError, match="has no reply"):
        await Agent(ScriptedModel(["hi"])).run([UserMessage("a"), AssistantMessage("", (sum_of(1, 2),))])


# --- history


async def test_a_conversation_continues_from_its_history():
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
    assert (await agent_of("again").run([], history=third.messages[:-1])).text == "again"


def agent_of(*script, **settings):
    return Agent(ScriptedModel(script), TOOLS, **settings)


async def test_an_agents_own_system_message_takes_the_place_of_another():
    model = ScriptedModel(["one", "two", "three"])
    history = (await Agent(model, role="a poet").run("a")).messages
    await Agent(model, role="a clerk").run("b", history=history)
    await Agent(model).run("c", history=history)
    assert [messages[0] for messages in model.requests] == [
        SystemMessage("You are a poet."),
        SystemMessage("You are a clerk."),
        SystemMessage("You are a poet."),
    ]


async def test_two_runs_that_go_on_from_one_history_know_nothing_of_each_other():
    history = (await agent_of("hi").run("hello")).messages
    one = await agent_of("one").run("first", history=history)
    other = await agent_of("other").run("second", history=history)
    assert ([m.text for m in one.messages], [m.text for m in other.messages]) == (
        ["hello", "hi", "first", "one"],
        ["hello", "hi", "second", "other"],
    )


EMPTY = UserMessage("Your answer was empty. Answer in words, or call a tool.")


@pytest.mark.parametrize("text", ["", " \n"])
async def test_an_empty_answer_is_not_put_into_the_conversation_and_asked_for_once_more(text):
    model = ScriptedModel([text, "hi"])
    result = await Agent(model, memory=(memory := ConversationMemory())).run("hello")
    assert model.requests == [[UserMessage("hello")], [UserMessage("hello"), EMPTY]]
    assert result.messages == memory.load("default") == [UserMessage("hello"), EMPTY, AssistantMessage("hi")]
    assert (result.text, result.usage.model_calls) == ("hi", 2)


async def test_the_details_of_an_empty_answer_stay_in_the_conversation():
    thought = ChatReply("", details={"anthropic": [{"type": "thinking"}]})
    result = await agent_of(thought, "hi").run("hello")
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


async def test_the_result_tells_everything():
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


async def test_an_immediate_result_is_whole_for_the_caller_and_cut_for_the_model():
    box = Toolbox(TOOLS, max_output=3)
    result = await Agent(ScriptedModel([FINISH]), box).run("go")
    assert (result.text, result.output) == ('{"text":"b"}', {"text": "b"})
    assert told(result.messages) == ['{"t... [truncated, full length: 12 chars]']
    assert (await agent_of(SHOW).run("go")).output == "shown: a"


# --- context


async def test_the_tools_of_a_run_share_its_parameters_ids_and_role():
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


async def test_a_run_that_is_named_again_makes_no_payment_twice(tmp_path):
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


async def test_without_parameters_each_run_has_its_own():
    @tool
    def count(parameters: InvocationParameters) -> int:
        parameters["count"] = parameters.get("count", 0) + 1
        return parameters["count"]

    agent = Agent(ScriptedModel([ToolCall("count"), ToolCall("count"), "done"] * 2), [count])
    assert [told((await agent.run("go")).messages) for _ in range(2)] == [["1", "2"]] * 2


async def test_a_run_leaves_no_context_behind():
    agent = agent_of(sum_of(1, 2), "3", sum_of(1, 2), "3")
    await agent.run("go")
    stream = agent.stream("go")
    async for _ in stream:
        assert Tool.context.fget(add).run_id == ""


# --- review


async def test_a_refusal_is_reported_to_the_model():
    result = await agent_of(ToolCall("delete", {"path": "x"}), "pity", review=AutoReject("not today")).run("go")
    assert told(result.messages) == ["Error: Rejected by reviewer: not today"]


async def test_a_toolbox_is_taken_as_it_is_with_the_agents_reviewer_where_it_has_none():
    box = Toolbox([delete], review=AutoReject("the box"))
    call = ToolCall("delete", {"path": "x"})
    result = await Agent(ScriptedModel([call, "x"]), box, review=AutoApprove()).run("go")
    assert told(result.messages) == ["Error: Rejected by reviewer: the box"]
    result = await Agent(ScriptedModel([call, "x"]), Toolbox([delete]), review=AutoApprove()).run("go")
    assert told(result.messages) == ["deleted x"]


@pytest.mark.parametrize("way", WAYS)
async def test_a_call_that_nobody_can_approve_reaches_the_caller(way):
    with pytest.raises(ToolConfigurationError, match="requires approval but no ReviewHandler") as caught:
        await way(agent_of([sum_of(1, 2), ToolCall("delete", {"path": "x"})]), "go")
    partial = caught.value.partial
    assert_valid(partial.messages)
    assert partial.stop_reason == "configuration_error"
    assert told(partial.messages) == [
        "3",
        "Error: The run ended before this call did: Tool 'delete' requires approval but no ReviewHandler is configured",
    ]


@pytest.mark.parametrize("way", WAYS)
async def test_who_stops_the_run_reaches_the_caller(way):
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
async def test_a_model_that_fails_fails_the_run_with_its_message(way, error):
    agent = agent_of(sum_of(1, 2), error, "on")
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
async def test_a_model_that_fails_is_asked_again_when_it_is_worth_it(way, error):
    model = ScriptedModel([error, error, "hi"])
    result = await way(Agent(model, retry=AT_ONCE), "hello")
    assert (result.text, model.requests) == ("hi", [[UserMessage("hello")]] * 3)
    assert [(step.kind, step.detail) for step in result.trace] == [
        ("retry", "busy"),
        ("retry", "busy"),
        ("model", "stop"),
    ]


async def test_a_model_is_asked_again_only_so_often(caplog):
    caplog.set_level(logging.WARNING, "toolsemble.agent")
    model = ScriptedModel([ModelError("busy", retryable=True)] * 9)
    with pytest.raises(AgentExecutionError, match="busy"):
        await Agent(model, retry=Retry(attempts=2, wait=0)).run("hello")
    assert len(model.requests) == 3
    assert caplog.messages == [f"The model failed (busy); retry {number} in 0.0 s" for number in (1, 2)]


@pytest.mark.parametrize(
    ("retry", "error", "tried", "least", "most"),
    [
        (Retry(), ModelError("x", retryable=True), 0, 0.25, 0.5),
        (Retry(), ModelError("x", retryable=True), 2, 1, 2),
        (Retry(), ModelError("x", retryable=True), 3, None, None),
        (Retry(attempts=99), ModelError("x", retryable=True), 90, 60, 60),
        (Retry(), ModelError("x", retryable=True, retry_after=7), 0, 7, 7),
        (Retry(), ModelError("x", retryable=True, retry_after=61), 0, None, None),
        (Retry(), ModelError("x", retry_after=7), 0, None, None),
        (Retry(), ConnectionResetError(), 0, 0.25, 0.5),
        (Retry(), OSError(), 0, None, None),
    ],
)
def test_how_long_is_waited_before_a_model_is_asked_again(retry, error, tried, least, most):
    pause = retry.pause(error, tried)
    assert pause is least is None if least is None else least <= pause <= most


async def test_no_retry_waits_beyond_the_time_of_the_run():
    model = ScriptedModel([ModelError("busy", retryable=True, retry_after=50), "hi"])
    with pytest.raises(AgentExecutionError, match="busy"):
        await Agent(model, max_seconds=30).run("hello")


@pytest.mark.parametrize(
    "wrong", ["text", None, ChatReply(None), ChatReply(7), ChatReply("", None), ChatReply("", (SHOW, "add"))]
)
async def test_an_invalid_reply_fails_the_run(wrong):
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
async def test_an_invalid_usage_fails_the_run(usage):
    for way in WAYS:
        with pytest.raises(AgentExecutionError) as caught:
            await way(agent_of(ChatReply("x", usage=usage)), "hello")
        assert str(caught.value) == (
            f"The model returned {usage!r} as the usage of its reply; it must be a TokenUsage of ints >= 0, or left out"
        )


async def test_a_list_of_calls_will_do():
    reply = ChatReply("", [sum_of(1, 2)])
    assert told((await agent_of(reply, "3").run("go")).messages) == ["3"]


async def test_calls_with_duplicate_ids_get_new_ids():
    calls = [sum_of(1, 2, "c"), sum_of(3, 4, "c"), sum_of(5, 6, "d"), sum_of(7, 8), sum_of(9, 0)]
    result = await agent_of(calls, "done").run("go")
    ids = [record.call.id for record in result.tool_calls]
    assert (ids[0], ids[2:]) == ("c", ["d", None, None])
    assert ids[1] not in {"c", "d", None}
    assert told(result.messages) == ["3", "7", "11", "15", "9"]


async def test_half_a_surrogate_pair_never_gets_into_the_conversation():
    wrong = ChatReply("half \ud800", (ToolCall("add\udfff", "{}"), ToolCall("add", {"a": "\ud800"}, "c")))
    result = await agent_of(wrong, "done \udc00").run("go")
    for message in result.messages:
        message.text.encode()
    message = result.messages[1]
    assert [(call.name, call.json, call.id) for call in message.calls] == [
        ("add\\udfff", "{}", None),
        ("add", '{"a":"\\ud800"}', "c"),
    ]
    assert (message.text, result.text) == ("half \\ud800", "done \\udc00")


async def test_a_base_exception_passes_with_the_work_so_far():
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


async def test_an_exception_that_takes_no_attributes_passes_all_the_same():
    class Closed(BaseException):
        __slots__ = ()

        def __setattr__(self, name, value):
            raise AttributeError(name)

    with pytest.raises(Closed):
        await Agent(ScriptedModel([Closed()])).run("go")


# --- dynamic tools


async def test_tools_may_be_a_function_of_the_run():
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


async def test_a_function_of_the_run_that_fails_fails_the_run():
    def tools(run):
        if run.turn:
            raise ValueError("no tools today")
        return [add]

    with pytest.raises(AgentExecutionError, match="no tools today") as caught:
        await Agent(ScriptedModel([sum_of(1, 2)]), tools).run("go")
    assert told(caught.value.partial.messages) == ["3"]


@pytest.mark.parametrize("tools", [lambda run: None, lambda city: 7])
async def test_a_function_that_returns_no_tools_is_refused(tools):
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
        (lambda: Agent("nobody:x"), ToolConfigurationError, "Unknown model 'nobody:x'"),
        (lambda: Agent(object()), ToolConfigurationError, "is not a ChatModel"),
        (lambda: agent_of(max_iterations=-1), ToolDefinitionError, "max_iterations must be an int >= 0"),
        (lambda: agent_of(max_iterations=True), ToolDefinitionError, "max_iterations must be an int"),
        (lambda: agent_of(max_depth=1.5), ToolDefinitionError, "max_depth must be an int >= 0, not 1.5"),
        (lambda: agent_of(output_retries=-1), ToolDefinitionError, "output_retries must be an int >= 0"),
        (lambda: agent_of(max_turns=0), ToolDefinitionError, "max_turns must be an int >= 1, not 0"),
        (lambda: agent_of(max_tokens="9"), ToolDefinitionError, "max_tokens must be an int >= 1, not '9'"),
        (lambda: agent_of(max_turns=1.5), ToolDefinitionError, "max_turns must be an int >= 1, not 1.5"),
        (lambda: agent_of(max_seconds=float("nan")), ToolDefinitionError, "max_seconds must be a number of seconds"),
        (lambda: agent_of(max_cost=1), ToolDefinitionError, "max_cost needs prices"),
        (lambda: agent_of(role=7), ToolDefinitionError, "Agent role must be a str, not 7"),
        (lambda: agent_of(goal=None), ToolDefinitionError, "Agent goal must be a str, not None"),
        (lambda: agent_of(background=["x"]), ToolDefinitionError, r"Agent background must be a str, not \['x'\]"),
        (lambda: agent_of(memory_id=7), ToolDefinitionError, "Agent memory_id must be a str, not 7"),
        (lambda: agent_of(memory="talks.db"), ToolDefinitionError,
         r"Agent memory must be a ConversationMemory, such as ConversationMemory\('talks.db'\), not 'talks.db'"),
        (lambda: agent_of(memory=ConversationMemory), ToolDefinitionError, "Agent memory must be a ConversationMemory"),
        (lambda: agent_of(review=AutoApprove), ToolDefinitionError,
         r"Agent review must be a ReviewHandler: an object with a method review\(request\), not <class"),
        (lambda: agent_of(review=print), ToolDefinitionError, "Agent review must be a ReviewHandler"),
        (lambda: agent_of(retry=3), ToolDefinitionError,
         r"Agent retry must be a Retry, such as Retry\(attempts=3\), not 3"),
        (lambda: agent_of(retry=None), ToolDefinitionError, "Agent retry must be a Retry"),
        (lambda: agent_of(settings=["temperature"]), ToolDefinitionError,
         r"Agent settings must be a mapping, such as {'temperature': 0}, not \['temperature'\]"),
        (lambda: agent_of(prices=2), ToolDefinitionError, r"Agent prices must be Prices, such as Prices\(2"),
        (lambda: agent_of(loop_guard=3), ToolDefinitionError, "Agent loop_guard must be a LoopGuard or None, not 3"),
        (lambda: Agent(ScriptedModel([]), [None]), ToolDefinitionError, "Tool at index 0 is None"),
        (lambda: Agent(ScriptedModel([]), add), ToolDefinitionError, "A toolbox takes a list of tools"),
        (lambda: Agent(ScriptedModel([]), 7), ToolDefinitionError, "A toolbox takes a list of tools, not int"),
        (lambda: Retry(attempts=-1), ToolDefinitionError, "Retry attempts must be an int >= 0, not -1"),
        (lambda: Retry(attempts=2.5), ToolDefinitionError, "Retry attempts must be an int >= 0, not 2.5"),
        (lambda: Retry(attempts=True), ToolDefinitionError, "Retry attempts must be an int >= 0"),
        (lambda: Retry(wait="1"), ToolDefinitionError, "Retry wait must be a number of seconds >= 0, not '1'"),
        (lambda: Retry(longest=True), ToolDefinitionError, "Retry longest must be a number of seconds >= 0"),
        (lambda: agent_of(max_cost=True, prices=Prices(1, 1)), ToolDefinitionError, "max_cost must be a number >"),
        (lambda: Agent(ScriptedModel([]), [agent_of()]), ToolDefinitionError,
         r"An Agent is not a tool; pass agent.as_tool\(name, description\) instead"),
        (lambda: Agent(ScriptedModel([]), agent_of()), ToolDefinitionError, "An Agent is not a tool"),
        (lambda: Agent(ScriptedModel([]), [Toolbox([add])]), ToolDefinitionError,
         r"A Toolbox is not a tool; pass the box itself, Agent\(model, box\), not a list of it"),
        (lambda: Agent(ScriptedModel([]), Toolbox), ToolDefinitionError,
         "Agent tools must be tools, not the class Toolbox; pass an instance"),
        (lambda: Agent(ScriptedModel([]), lambda: [add]), ToolDefinitionError, "a function that takes a RunView"),
        (lambda: Agent(ScriptedModel([]), lambda a, b: []), ToolDefinitionError, "decorate it with @tool"),
    ],
)  # fmt: skip
def test_invalid_settings_are_refused_when_the_agent_is_created(make, error, problem):
    with pytest.raises(error, match=problem):
        make()


def test_settings_are_checked_before_a_model_is_looked_for(monkeypatch):
    monkeypatch.setattr("toolsemble.agent.settings.model_of", lambda model: pytest.fail("looked for"))
    with pytest.raises(ToolDefinitionError, match="Agent memory must be"):
        Agent(memory="talks.db")


async def test_one_agent_serves_many_runs_at_once():
    agent = Agent(FunctionModel(lambda request: request.messages[-1].text.upper() if len(request.messages) > 1 else
                                ToolCall("later", {"text": request.messages[0].text})), [later])  # fmt: skip
    results = await asyncio.gather(*(agent.run(f"run {number}") for number in range(50)))
    assert [result.text for result in results] == [f"RUN {number}" for number in range(50)]


async def test_run_sync_works_inside_an_event_loop_too():
    assert agent_of(sum_of(1, 2), "3").run_sync("go").text == "3"


@pytest.mark.parametrize(
    ("tools", "shown"),
    [
        ((), "Agent(ScriptedModel, tools: none)"),
        ([add, later], "Agent(ScriptedModel, tools: add, later)"),
        (lambda run: [], "Agent(ScriptedModel, tools: a function of the run)"),
    ],
)
def test_an_agent_shows_its_model_and_tools(tools, shown):
    assert repr(Agent(ScriptedModel([]), tools)) == shown


async def test_half_a_surrogate_pair_in_a_prompt_is_written_as_an_escape():
    model = ScriptedModel(["done"])
    await Agent(model).run("caf\udce9")
    assert model.requests == [[UserMessage("caf\\udce9")]]


async def test_an_error_of_another_run_is_not_taken_for_the_own_one():
    def tools(run):
        if run.turn:
            raise MaxIterationsExceededError("another run", partial="of another run")
        return [add]

    with pytest.raises(MaxIterationsExceededError, match="another run") as caught:
        await Agent(ScriptedModel([sum_of(1, 2)]), tools).run("go")
    assert (caught.value.partial.stop_reason, told(caught.value.partial.messages)) == ("error", ["3"])


RELEASED = threading.Event()


@tool
async def interrupted() -> str:
    """Be interrupted."""
    raise KeyboardInterrupt


@tool
async def interrupted_while_waiting() -> str:
    """Be interrupted on the event loop."""
    os.kill(os.getpid(), signal.SIGINT)
    await asyncio.Event().wait()
    return "never"


@tool
def interrupted_while_blocking() -> str:
    """Be interrupted in a thread."""
    os.kill(os.getpid(), signal.SIGINT)
    return str(RELEASED.wait(30))


@pytest.mark.parametrize(
    "tool", [interrupted, interrupted_while_waiting, interrupted_while_blocking], ids=lambda tool: tool.name
)
def test_an_interrupt_in_sync_code_carries_the_work_so_far(tool):
    agent = Agent(ScriptedModel([sum_of(1, 2), ToolCall(tool.name)]), [add, tool])
    with pytest.raises(KeyboardInterrupt) as caught:
        agent.run_sync("go")
    RELEASED.set()
    partial = caught.value.partial
    assert_valid(partial.messages)
    assert (partial.stop_reason, told(partial.messages)[0]) == ("cancelled", "3")
    assert Agent(ScriptedModel(["on"])).run_sync("go on", history=partial.messages).text == "on"


class Unknown:
    """A callable without a signature that returns tools."""

    @property
    def __signature__(self):
        raise ValueError("no signature")

    def __call__(self, view):
        return [add]


async def test_a_function_without_a_signature_may_return_the_tools():
    result = await Agent(ScriptedModel([sum_of(1, 2), "3"]), Unknown()).run("go")
    assert told(result.messages) == ["3"]


def test_a_sync_run_does_not_format_its_result(monkeypatch):
    formatted = []
    monkeypatch.setattr(AgentResult, "__repr__", lambda _: formatted.append("result") or "AgentResult()")
    result = Agent(ScriptedModel(["Rome"])).run_sync("Where do all roads lead?")
    assert (result.text, formatted) == ("Rome", [])
