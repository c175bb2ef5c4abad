import itertools

import pytest

from helpers.agent_scripts import add, assert_valid, broken, delete, finish_with, sum_of, told
from helpers.sample_tools import Reviewer
from toolsemble import (
    Agent,
    BudgetExceededError,
    ConversationMemory,
    ExitEarly,
    ImageContent,
    LoopGuard,
    Toolbox,
    ToolCall,
    ToolDefinitionError,
    ToolResult,
    tool,
)
from toolsemble.models import message_from_json, message_to_json
from toolsemble.testing import FunctionModel, ScriptedModel

END = "try something else, or answer with what you know."
STOP = (
    "STOP: Maximum turns without progress (3) reached. "
    "You must provide your best final answer now based on information gathered so far."
)
CIRCLE = f"Note: the same calls come again and again, with the same results: {END}"


def same_result_note(turns):
    return f"Note: this call has given the same result {turns} turns in a row: {END}"


def same_error_note(name, turns):
    return f"Note: '{name}' has failed with the same error {turns} turns in a row: {END}"


def with_note(text, note):
    return f"{text}\n\n{note}"


A, B, C = sum_of(1, 2), sum_of(3, 4), sum_of(5, 6)
WHY = [ToolCall("broken", {"why": "down"}), ToolCall("broken", {"why": "down", "x": 1})]
UNKNOWN = "Error: Unknown tool 'nothing'. Available tools: add, broken"

# script, the replies to the model, why the run ended
RUNS = {
    "something new each time": ([sum_of(n, 0) for n in range(7)], [str(n) for n in range(7)], "answer"),
    "twice is no loop": ([A, A, B, B], ["3", "3", "7", "7"], "answer"),
    "three times, and the model turns away": (
        [A, A, A, B, A],
        ["3", "3", with_note("3", same_result_note(3)), "7", "3"],
        "answer",
    ),
    "five times": (
        [A] * 5,
        ["3", "3", with_note("3", same_result_note(3)), with_note("3", same_result_note(4)), with_note("3", STOP)],
        "loop",
    ),
    "keys in another order, and blanks, are the same call": (
        [A, ToolCall("add", '{"b": 2, "a": 1}'), ToolCall("add", ' {"a":1,\n"b":2}')],
        ["3", "3", with_note("3", same_result_note(3))],
        "answer",
    ),
    "A-B-A-B": ([A, B, A, B, C], ["3", "7", "3", with_note("7", CIRCLE), "11"], "answer"),
    "A-B-A-B-A-B": (
        [A, B, A, B, A, B],
        ["3", "7", "3", with_note("7", CIRCLE), with_note("3", CIRCLE), with_note("7", STOP)],
        "loop",
    ),
    "A-A-B-A-A-B": ([A, A, B, A, A, B], ["3", "3", "7", "3", "3", with_note("7", CIRCLE)], "answer"),
    "A-B-A-C is none": ([A, B, A, C, A, sum_of(7, 8)], ["3", "7", "3", "11", "3", "15"], "answer"),
    "the same error of other arguments": (
        [ToolCall("broken", {"why": "down"}), *WHY, ToolCall("broken", {"why": "up"})],
        ["Error: down", "Error: down", with_note("Error: down", same_error_note("broken", 3)), "Error: up"],
        "answer",
    ),
    "an unknown tool, again and again": (
        [ToolCall("nothing", {"n": n}) for n in range(5)],
        [
            UNKNOWN,
            UNKNOWN,
            with_note(UNKNOWN, same_error_note("nothing", 3)),
            with_note(UNKNOWN, same_error_note("nothing", 4)),
            with_note(UNKNOWN, STOP),
        ],
        "loop",
    ),
    "what is no JSON": (
        [ToolCall("add", "{")] * 3,
        None,
        "answer",
    ),
    "the calls of one reply were made without knowing of each other": ([[A] * 5, [A] * 5], ["3"] * 10, "answer"),
    "beside a call that gives something new": (
        [[A, sum_of(n, 0)] for n in range(6)],
        [
            *["3", "0", "3", "1"],
            *[
                with_note("3", same_result_note(3)),
                "2",
                with_note("3", same_result_note(4)),
                "3",
                with_note("3", same_result_note(5)),
                "4",
                with_note("3", same_result_note(6)),
                "5",
            ],
        ],
        "answer",
    ),
    "several calls that all repeat": (
        [[A, B]] * 5,
        [
            *[
                "3",
                "7",
                "3",
                "7",
                with_note("3", same_result_note(3)),
                with_note("7", same_result_note(3)),
                with_note("3", same_result_note(4)),
                with_note("7", same_result_note(4)),
            ],
            *[with_note("3", same_result_note(5)), with_note("7", STOP)],
        ],
        "loop",
    ),
}


@pytest.mark.parametrize(("script", "texts", "reason"), RUNS.values(), ids=RUNS)
async def test_repetition_warns_model_and_then_ends_run(script, texts, reason):
    model = ScriptedModel([*script, "best"])
    # One call at a time: the last one says STOP.
    result = await Agent(model, Toolbox([add, broken], max_concurrency=1)).run("go")
    assert (result.text, result.stop_reason) == ("best", reason)
    assert_valid(result.messages)
    if texts is not None:
        assert told(model.requests[-1]) == texts
    assert [record.reply.text for record in result.tool_calls] == told(result.messages)
    assert model.asked[-1].tool_choice == ("none" if reason == "loop" else "auto")
    assert ("loop" in [step.name for step in result.trace if step.kind == "stop"]) == (reason == "loop")


async def test_stream_reports_replies_with_notes():
    model = ScriptedModel([A, A, A, A, A, "best"])
    events = [event async for event in Agent(model, [add]).stream("go")]
    seen = [event.record.reply.text for event in events if event.kind == "call_replied"]
    assert seen == [
        "3",
        "3",
        with_note("3", same_result_note(3)),
        with_note("3", same_result_note(4)),
        with_note("3", STOP),
    ]
    assert (events[-1].result.stop_reason, told(model.requests[-1])) == ("loop", seen)


def test_recorded_result_has_no_note():
    result = Agent(ScriptedModel([A, A, A, "best"]), [add]).run_sync("go")
    assert result.tool_calls[2].reply.result == ToolResult.success("3", 3)
    assert result.tool_calls[2].reply.note == same_result_note(3)


def test_note_is_never_truncated():
    @tool
    def read() -> str:
        return "x" * 50

    result = Agent(ScriptedModel([ToolCall("read")] * 3 + ["best"]), Toolbox([read], max_output=4)).run_sync("go")
    assert told(result.messages)[2] == with_note("xxxx... [truncated, full length: 50 chars]", same_result_note(3))


def test_note_is_stored_in_memory():
    memory = ConversationMemory()
    agent = Agent(ScriptedModel([A, A, A, "best", "again"]), [add], memory=memory, memory_id="default")
    agent.run_sync("go")
    message = memory.load("default")[-2]
    assert message.text == with_note("3", same_result_note(3))
    assert message_from_json(message_to_json(message)).text == message.text


def test_changing_results_are_not_repetition():
    numbers = itertools.count()

    @tool
    def now() -> int:
        return next(numbers)

    result = Agent(ScriptedModel([ToolCall("now")] * 8 + ["best"]), [now]).run_sync("go")
    assert (told(result.messages), result.stop_reason) == ([str(n) for n in range(8)], "answer")


@pytest.mark.parametrize(
    ("pictures", "reason"),
    [(itertools.repeat(b"same"), "loop"), (map(b"%d".__mod__, itertools.count()), "answer")],
    ids=["same", "other"],
)
def test_contents_are_compared(pictures, reason):
    @tool
    def look() -> ImageContent:
        return ImageContent(next(pictures), "image/png")

    result = Agent(ScriptedModel([ToolCall("look")] * 5 + ["best"]), [look]).run_sync("go")
    assert result.stop_reason == reason


def test_contents_that_cannot_be_compared_are_never_equal():
    @tool
    def look() -> ImageContent:
        return ImageContent(bytearray(b"same"), "image/png")

    assert Agent(ScriptedModel([ToolCall("look")] * 6 + ["best"]), [look]).run_sync("go").stop_reason == "answer"


def test_error_references_are_ignored_in_comparison():
    box = Toolbox([broken], expose_errors="declared")
    result = Agent(ScriptedModel([ToolCall("broken")] * 5 + ["best"]), box).run_sync("go")
    assert result.stop_reason == "loop"
    assert told(result.messages)[3].endswith(with_note(")", same_error_note("broken", 4)))


def test_repeated_rejections_end_run():
    reviewer = Reviewer(ExitEarly("no"))
    calls = [ToolCall("delete", {"path": f"{n}.log"}) for n in range(20)]
    result = Agent(ScriptedModel([*calls[:5], "best"]), [delete], review=reviewer).run_sync("go")
    assert (result.stop_reason, len(reviewer.requests)) == ("loop", 5)
    assert told(result.messages)[2] == with_note("Error: Rejected by reviewer: no", same_error_note("delete", 3))


@tool(polling=True)
def status() -> str:
    """Tell whether it is ready."""
    return "not yet"


@pytest.mark.parametrize("turn", [ToolCall("status"), [ToolCall("status"), A]], ids=["alone", "beside another"])
def test_polling_tools_are_exempt(turn):
    result = Agent(ScriptedModel([turn] * 10 + ["best"]), [status, add]).run_sync("go")
    assert result.stop_reason == "answer"
    assert {record.reply.text for record in result.tool_calls if record.name == "status"} == {"not yet"}


def test_other_calls_are_allowed_between_polls():
    result = Agent(ScriptedModel([A, ToolCall("status")] * 5 + ["best"]), [status, add]).run_sync("go")
    assert (result.stop_reason, told(result.messages)) == ("answer", ["3", "not yet"] * 5)


# guard, the replies to so many equal calls, why the run ended
GUARDS = {
    "none": (None, ["3"] * 6, "answer"),
    "no patience": (
        LoopGuard(patience=0),
        ["3", "3", with_note("3", STOP.replace("(3)", "(1)"))],
        "loop",
    ),
    "two are enough": (
        LoopGuard(repeats=2, patience=1),
        ["3", with_note("3", same_result_note(2)), with_note("3", STOP.replace("(3)", "(2)"))],
        "loop",
    ),
    "many repetitions are no pattern": (LoopGuard(repeats=7), ["3"] * 6, "answer"),
}


@pytest.mark.parametrize(("guard", "texts", "reason"), GUARDS.values(), ids=GUARDS)
def test_guard_limits_can_be_set(guard, texts, reason):
    result = Agent(ScriptedModel([A] * len(texts) + ["best"]), [add], loop_guard=guard).run_sync("go")
    assert (told(result.messages), result.stop_reason) == (texts, reason)


def test_longer_patterns_can_be_allowed():
    guard = LoopGuard(longest=1)
    result = Agent(ScriptedModel([A, B] * 4 + ["best"]), [add], loop_guard=guard).run_sync("go")
    assert (told(result.messages), result.stop_reason) == (["3", "7"] * 4, "answer")


def test_call_after_stop_is_not_an_answer():
    with pytest.raises(BudgetExceededError) as caught:
        Agent(ScriptedModel([A] * 6), [add]).run_sync("go")
    assert str(caught.value) == "Maximum turns without progress (3) reached, and the model returned no final answer"
    assert (told(caught.value.partial.messages)[-1], caught.value.partial.stop_reason) == (STOP, "loop")


def test_final_answer_call_is_accepted_after_stop():
    answer = ToolCall("final_answer", {"value": 3})
    result = Agent(ScriptedModel([A] * 5 + [answer]), [add], output_type=dict[str, int]).run_sync("go")
    assert (result.output, result.stop_reason) == ({"value": 3}, "loop")


def test_immediate_tool_still_ends_run():
    calls = [ToolCall("finish_with", {"text": "done"})]
    result = Agent(ScriptedModel([A, A, A, calls]), [add, finish_with]).run_sync("go")
    assert (result.output, result.stop_reason) == ({"text": "done"}, "immediate")


def test_budget_takes_precedence_in_same_turn():
    result = Agent(ScriptedModel([A, A, A, A, [A, A], "best"]), [add], max_tool_calls=5).run_sync("go")
    assert result.stop_reason == "max_iterations"


def test_nested_agents_have_their_own_guard():
    inside = FunctionModel(lambda request: A if request.tool_choice == "auto" else "best inside")
    inner = Agent(inside, [add]).as_tool("inner", "Works inside")
    call = ToolCall("inner", {"input": "go"})
    result = Agent(ScriptedModel([call, call, "best"]), [inner]).run_sync("go")
    inner_results = [record.reply.result.attributes["result"] for record in result.tool_calls]
    assert [each.stop_reason for each in inner_results] == ["loop", "loop"]
    assert (told(result.messages), result.stop_reason) == (["best inside"] * 2, "answer")


def test_each_run_starts_with_fresh_guard():
    agent = Agent(ScriptedModel([A, A, "one", A, A, "two"]), [add])
    first = agent.run_sync("go")
    second = agent.run_sync("go on", history=first.messages)
    assert told(second.messages) == ["3"] * 4


def test_thousand_distinct_turns_are_allowed():
    calls = [sum_of(n % 7, n) for n in range(1000)]
    result = Agent(ScriptedModel([*calls, "best"]), [add], max_tool_calls=1000).run_sync("go")
    assert (len(result.tool_calls), result.stop_reason) == (1000, "answer")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"repeats": 1}, "LoopGuard repeats must be an int >= 2, not 1"),
        ({"longest": 0}, "LoopGuard longest must be an int >= 1, not 0"),
        ({"patience": -1}, "LoopGuard patience must be an int >= 0, not -1"),
        ({"patience": True}, "LoopGuard patience must be an int >= 0, not True"),
        ({"repeats": "3"}, "LoopGuard repeats must be an int >= 2, not '3'"),
    ],
)
def test_invalid_limits_are_rejected(settings, message):
    with pytest.raises(ToolDefinitionError) as caught:
        LoopGuard(**settings)
    assert str(caught.value) == message


def test_invalid_guard_is_rejected():
    with pytest.raises(ToolDefinitionError, match="Agent loop_guard must be a LoopGuard or None, not True"):
        Agent(ScriptedModel([]), loop_guard=True)
