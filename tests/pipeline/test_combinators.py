import asyncio
import threading
import time

import pytest

from helpers.sample_tools import AsyncFunction, AsyncRaising, Echo, Function, Meeting, Plain, Raising
from toolsemble import (
    Continue,
    Edit,
    ErrorStrategy,
    ExitEarly,
    ExitEarlyError,
    ImageContent,
    InMemoryMetrics,
    Step,
    Tool,
    Toolbox,
    ToolCall,
    ToolConfigurationError,
    ToolContext,
    ToolDefinitionError,
    ToolExecutionError,
    ToolPipeline,
    ToolResult,
    choose,
    fan_out,
    map_over,
    tool,
    tool_specifications_from,
)

FAIL_FAST = ErrorStrategy.FAIL_FAST


@tool
def upper(text: str) -> str:
    """Say it louder."""
    return text.upper()


@tool
def length(text: str) -> int:
    """Count the letters."""
    return len(text)


@tool
def repeat(text: str, times: int = 2) -> str:
    """Say it again."""
    return text * times


def failing(name="failing"):
    return Function(lambda _: ToolResult.failure(f"{name} has no luck"), name)


@pytest.fixture(params=["sync", "async"])
def run(request):
    """Run a tool in a sync or an async way: the outcome is the same."""

    def run(tool, given, context=None):
        if request.param == "sync":
            return tool.execute(given, context)
        return asyncio.run(tool.aexecute(given, context))

    return run


# --- fan_out


def test_branches_get_same_input_and_return_results_by_name(run):
    both = fan_out(upper, length)
    assert isinstance(both, Tool)
    assert (both.name, both.description) == ("upper_and_length", "Side by side: upper, length")
    result = run(both, '{"text": "rome"}')
    assert result.output == '{"upper":"ROME","length":4}'
    assert result.structured_output == {"upper": ToolResult.success("ROME"), "length": ToolResult.success("4", 4)}


@pytest.mark.parametrize("kind", [Function, AsyncFunction])
def test_branches_run_concurrently(kind, run):
    meeting = Meeting(3) if kind is Function else AsyncMeeting(3)
    branches = [kind(meeting, name) for name in ("a", "b", "c")]
    assert run(fan_out(*branches), "x").is_success


class AsyncMeeting:
    """A place where a number of tasks must be at the same time, or the test fails."""

    def __init__(self, parties):
        self.missing = parties
        self.all_here = None

    async def __call__(self, _):
        self.all_here = self.all_here or asyncio.Event()
        self.missing -= 1
        if not self.missing:
            self.all_here.set()
        await asyncio.wait_for(self.all_here.wait(), 30)


def test_merge_combines_results(run):
    async def joined(results):
        await asyncio.sleep(0)
        return {name: result.output for name, result in results.items()}

    merged = fan_out(upper, length, merge=lambda results: results["upper"].output * results["length"].structured_output)
    assert run(merged, '{"text": "ab"}').output == "ABAB"
    assert run(fan_out(upper, length, merge=joined), '{"text": "ab"}').structured_output == {
        "upper": "AB",
        "length": "2",
    }
    result = run(fan_out(upper, merge=lambda results: results["lower"]), '{"text": "ab"}')
    assert result.error_message == "KeyError: 'lower'"
    assert run(Echo() | fan_out(upper, merge=lambda results: results["lower"]), "ab").error_message == (
        "Step 'upper' raised: KeyError: 'lower'"
    )


def test_failed_branch_keeps_other_results(run):
    result = run(fan_out(Echo(), failing(), Raising(ValueError("broken"))), "x")
    assert result.is_success
    assert {name: each.text for name, each in result.structured_output.items()} == {
        "echo": "x",
        "failing": "Error: failing has no luck",
        "raising": "Error: broken",
    }
    assert result.output == '{"echo":"x","failing":"Error: failing has no luck","raising":"Error: broken"}'


def test_fan_out_fails_when_all_branches_fail(run):
    result = run(fan_out(failing("a"), failing("b")), "x")
    assert result.error_message == "All 2 failed: a has no luck; b has no luck"
    assert {name: each.error_message for name, each in result.structured_output.items()} == {
        "a": "a has no luck",
        "b": "b has no luck",
    }
    assert run(fan_out(failing("a")), "x").error_message == "a has no luck"
    many = [failing(f"f{number}") for number in range(5)]
    assert run(fan_out(*many), "x").error_message.endswith("f2 has no luck; and 2 more")


async def test_fail_fast_cancels_other_branches():
    waiting, cancelled = asyncio.Event(), []

    async def wait(_):
        waiting.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(1)
            raise

    async def fail(_):
        await asyncio.wait_for(waiting.wait(), 30)
        return ToolResult.failure("no luck", structured_output={"a": 1})

    both = fan_out(AsyncFunction(wait, "wait"), AsyncFunction(fail, "fail"), error_strategy=FAIL_FAST)
    result = await both.aexecute("x")
    assert (result.error_message, result.structured_output) == ("no luck", {"a": 1})
    assert cancelled == [1]
    assert asyncio.all_tasks() == {asyncio.current_task()}


def test_fail_fast_returns_all_successful_results(run):
    assert run(fan_out(upper, length, error_strategy=FAIL_FAST), '{"text": "ab"}').output == '{"upper":"AB","length":2}'


def test_contents_of_all_branches_are_kept(run):
    images = [ImageContent(str(number).encode(), "image/png") for number in range(2)]
    shots = [Function(lambda _, image=image: image, f"shot{number}") for number, image in enumerate(images)]
    assert run(fan_out(*shots), "x").contents == tuple(images)


@pytest.mark.parametrize("raising", [Raising, AsyncRaising])
@pytest.mark.parametrize("error", [ExitEarlyError("stop"), ToolConfigurationError("no key"), SystemExit(3)])
def test_fatal_errors_reach_caller(error, raising, run):
    with pytest.raises(type(error)):
        run(fan_out(Echo(), raising(error)), "x")


async def test_cancellation_raised_by_tool_cancels_other_branches():
    async def wait(_):
        await asyncio.Event().wait()

    with pytest.raises(asyncio.CancelledError):
        await fan_out(AsyncRaising(asyncio.CancelledError()), AsyncFunction(wait, "wait")).aexecute("x")
    assert asyncio.all_tasks() == {asyncio.current_task()}


def test_branches_can_be_nested(run):
    inner = ToolPipeline("inner", "", [Echo(), upper])
    outer = fan_out(inner, fan_out(Echo(), Plain()), name="outer")
    result = run(Echo() | outer, "x")
    assert result.output == '{"inner":"X","echo_and_plain":{"echo":"x","plain":"x"}}'


def test_gated_branches_are_reviewed_together(run):
    class Together:
        def __init__(self):
            self.rounds = []

        def review(self, request):
            raise AssertionError("asked alone")

        def review_all(self, requests):
            self.rounds.append([request.tool_name for request in requests])
            return {request.id: Continue() for request in requests}

    reviewer = Together()
    branches = [Function(str, name, requires_approval=True) for name in ("a", "b")]
    assert run(fan_out(*branches), "x", ToolContext(review=reviewer)).output == '{"a":"x","b":"x"}'
    assert reviewer.rounds == [["a", "b"]]


def test_gate_on_branches_shows_their_input(run):
    shown = []

    class Watch:
        def review(self, request):
            shown.append(request.arguments)
            return Edit("y") if isinstance(request.arguments, str) else Edit('{"text": "y"}')

    context = ToolContext(review=Watch())
    text = fan_out(Echo(), Plain(), requires_approval=True)
    typed = fan_out(upper, length, requires_approval=True)
    assert run(text, "x", context).output == '{"echo":"y","plain":"y"}'
    assert run(Echo() | text, "x", context).output == '{"echo":"y","plain":"y"}'
    assert run(typed, '{"text": "x"}', context).output == '{"upper":"Y","length":1}'
    giver = Function(lambda _: {"text": "x"}, "giver")
    assert run(giver | typed, "x", context).output == '{"upper":"Y","length":1}'
    assert shown == ["x", "x", {"text": "x"}, {"text": "x"}]


def test_schema_combines_parameters_of_all_branches():
    [shown] = tool_specifications_from(fan_out(upper, repeat))
    assert shown.parameters == {
        "type": "object",
        "properties": {"text": {"type": "string"}, "times": {"type": "integer", "default": 2}},
        "required": ["text"],
        "additionalProperties": False,
    }
    assert (
        tool_specifications_from(fan_out(Echo(), Plain()))[0].parameters
        == tool_specifications_from(Echo())[0].parameters
    )


def test_parameters_with_conflicting_types_become_any_of(run):
    @tool
    def total(text: list[int]) -> int:
        return sum(text)

    both = fan_out(upper, total)
    [shown] = tool_specifications_from(both)
    assert shown.parameters["properties"]["text"] == {
        "anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "integer"}}]
    }
    assert run(both, '{"text": [1, 2]}').structured_output["total"].output == "3"


def test_text_and_typed_tools_can_be_combined(run):
    both = fan_out(Echo(), upper)
    assert tool_specifications_from(both)[0].parameters["required"] == ["input", "text"]
    assert run(both, '{"input": "a", "text": "b"}').output == '{"echo":"a","upper":"B"}'
    assert run(Echo() | both, "x").output == '{"echo":"x","upper":"X"}'
    refused = run(both, '{"text": 1.5, "more": 1}')
    assert refused.error_message == "Missing required parameter(s) for 'echo_and_upper': input"


def test_model_can_call_fan_out_in_toolbox(run):
    metrics = InMemoryMetrics()
    box = Toolbox([fan_out(upper, length), map_over(upper)], metrics=metrics)
    assert box.execute(ToolCall("upper_and_length", {"text": "ab"})).text == '{"upper":"AB","length":2}'
    assert box.execute(ToolCall("each_upper", '{"items": [{"text": "a"}, {"text": "b"}]}')).text == '["A","B"]'
    assert [metrics.count(name, "success") for name in ("upper_and_length", "upper", "length", "each_upper")] == [
        1,
        3,
        1,
        1,
    ]
    assert box.execute(ToolCall("upper_and_length", {})).text == (
        "Error: Missing required parameter(s) for 'upper_and_length': text"
    )


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (fan_out, "fan_out has no branches"),
        (lambda: fan_out(upper, None), "Branch 2 of fan_out is None; pass a tool"),
        (lambda: fan_out(upper, upper), "Duplicate branch name: 'upper'"),
        (lambda: fan_out(upper, merge="x"), "fan_out: merge must be a function of the results, not 'x'"),
        (lambda: fan_out(upper, error_strategy="x"), "fan_out: the error strategy must be an ErrorStrategy"),
        (lambda: fan_out(upper, name=" "), "Invalid tool name: it is blank"),
        (lambda: map_over(5), r"The tool of map_over \(int\) is not a tool"),
        (lambda: map_over(upper, 0), "map_over: max_concurrency must be an int >= 1, not 0"),
        (lambda: map_over(upper, True), "map_over: max_concurrency must be an int >= 1, not True"),
        (lambda: map_over(upper, 1.5), "map_over: max_concurrency must be an int >= 1, not 1.5"),
        (lambda: map_over(upper, error_strategy=None), "map_over: the error strategy must be an ErrorStrategy"),
        (lambda: choose(1, upper, length), "choose: the predicate must be a function of the input, not 1"),
        (lambda: choose(len, upper, None), "The second branch of choose is None"),
        (lambda: choose(len, None, upper), "The first branch of choose is None"),
    ],
)
def test_invalid_branches_are_rejected(make, problem):
    with pytest.raises(ToolDefinitionError, match=problem):
        make()


def test_combinators_accept_name_description_and_settings():
    for made in (
        fan_out(upper, name="made", description="Does it", metadata={"a": 1}),
        map_over(upper, name="made", description="Does it", metadata={"a": 1}),
        choose(len, upper, length, name="made", description="Does it", metadata={"a": 1}),
    ):
        [shown] = tool_specifications_from(made)
        assert (shown.name, shown.description, shown.metadata) == ("made", "Does it", {"a": 1})
    with pytest.raises(TypeError, match="A tool has no setting 'colour'"):
        fan_out(upper, colour="red")


# --- map_over


def test_map_over_applies_tool_to_each_item_in_order(run):
    each = map_over(upper)
    assert (each.name, each.description) == ("each_upper", "For each item: Say it louder.")
    result = run(each, '{"items": [{"text": "a"}, {"text": "b"}]}')
    assert (result.output, result.structured_output) == (
        '["A","B"]',
        [ToolResult.success("A"), ToolResult.success("B")],
    )


@pytest.mark.parametrize(
    ("given", "output"),
    [
        (["a", "b"], '["A","B"]'),
        (("a", "b"), '["A","B"]'),
        ({"a"}, '["A"]'),
        ([{"text": "a", "other": 1}], '["A"]'),
        ({"items": ["a"]}, '["A"]'),
        ('["a", "b"]', '["A","B"]'),
        ('{"items": ["a"]}', '["A"]'),
        ([], "[]"),
        ("[]", "[]"),
    ],
)
def test_map_over_takes_list_of_previous_step(given, output, run):
    assert run(Function(lambda _: given, "giver") | map_over(upper), "x").output == output


@pytest.mark.parametrize(
    ("given", "kind"), [("no list", "str"), ("", "str"), ("5", "int"), ({"a": 1}, "dict"), ("[" * 100_000, "str")]
)
def test_map_over_fails_without_a_list(given, kind, run):
    result = run(Function(lambda _: given, "giver") | map_over(upper), "x")
    assert result.error_message == f"Step 'each_upper' raised: map_over takes a list of items, not {kind}"


def test_schema_of_map_over():
    assert tool_specifications_from(map_over(upper))[0].parameters == {
        "type": "object",
        "properties": {
            "items": {
                "type": "array",
                "description": "The items, in order",
                "items": {
                    "type": "object",
                    "properties": {"text": {"type": "string"}},
                    "required": ["text"],
                    "additionalProperties": False,
                },
            }
        },
        "required": ["items"],
        "additionalProperties": False,
    }
    assert tool_specifications_from(map_over(Echo()))[0].parameters["properties"]["items"]["items"] == {
        "type": "string"
    }


def test_text_tool_gets_each_item_as_text(run):
    assert run(map_over(Echo()), '{"items": ["a", "b"]}').output == '["a","b"]'
    assert (
        run(Function(lambda _: [1, {"a": 2}, None, "x"], "giver") | map_over(Echo()), "x").output
        == '["1","{\\"a\\":2}","","x"]'
    )


def test_invalid_items_are_reported_with_path(run):
    assert run(map_over(upper), '{"items": [{}, 5]}').error_message == (
        "Invalid arguments for 'each_upper': items[0].text: missing; items[1]: expected an object"
    )


def test_results_in_list_are_unwrapped(run):
    giver = Function(lambda _: ToolResult.success("", [ToolResult.success("a"), "b"]), "giver")
    assert run(giver | map_over(upper), "x").output == '["A","B"]'


def test_map_over_accepts_results_of_map_over(run):
    pipeline = Function(lambda _: ["a", "b"], "giver") | map_over(upper) | map_over(repeat) | Echo()
    assert run(pipeline, "x").output == '["AA","BB"]'


def test_failed_item_keeps_other_results(run):
    def odd(text):
        if text == "2":
            raise ValueError("two")
        return text

    result = run(Function(lambda _: ["1", "2", "3"], "giver") | map_over(Function(odd, "odd")), "x")
    assert [each.text for each in result.structured_output] == ["1", "Error: two", "3"]
    assert result.output == '["1","Error: two","3"]'
    none = run(Function(lambda _: ["2", "2"], "giver") | map_over(Function(odd, "odd")), "x")
    assert (none.error_message, len(none.structured_output)) == ("All 2 failed: two", 2)
    assert run(Function(lambda _: ["2"], "giver") | map_over(Function(odd, "odd")), "x").error_message == (
        "Step 'odd' raised: two"
    )


def test_fail_fast_starts_no_further_items(run):
    seen = []

    def body(text):
        seen.append(text)
        return ToolResult.failure("no luck") if text == "2" else text

    each = map_over(Function(body, "body"), 1, error_strategy=FAIL_FAST)
    result = run(Function(lambda _: list("1234"), "giver") | each, "x")
    assert (result.error_message, seen) == ("no luck", ["1", "2"])


async def test_tool_that_ignores_cancellation_gets_no_further_items():
    seen, waiting = [], asyncio.Event()

    async def body(text):
        seen.append(text)
        if text == "stubborn":
            try:
                waiting.set()
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                return "stayed"
        await asyncio.wait_for(waiting.wait(), 30)
        return ToolResult.failure("no luck")

    each = map_over(AsyncFunction(body, "body"), 2, error_strategy=FAIL_FAST)
    result = await (Function(lambda _: ["stubborn", "bad", "third"], "giver") | each).aexecute("x")
    assert (result.error_message, seen) == ("no luck", ["stubborn", "bad"])


async def test_map_over_respects_concurrency_limit():
    busy, most = 0, 0

    async def body(text):
        nonlocal busy, most
        busy += 1
        most = max(most, busy)
        for _ in range(3):
            await asyncio.sleep(0)
        busy -= 1
        return text

    items = [str(number) for number in range(1000)]
    giver = Function(lambda _: items, "giver")
    for limit, expected in ((7, 7), (None, 16)):
        most = 0
        result = await (giver | map_over(AsyncFunction(body, "body"), limit)).aexecute("x")
        assert [each.output for each in result.structured_output] == items
        assert most == expected


def test_thousand_blocking_items_keep_order(run):
    busy, most, lock = 0, 0, threading.Lock()

    def body(text):
        nonlocal busy, most
        with lock:
            busy += 1
            most = max(most, busy)
        time.sleep(0.0001)
        with lock:
            busy -= 1
        return text

    items = [str(number) for number in range(1000)]
    box = Toolbox([map_over(Function(body, "body"), 8)])
    result = box.execute(ToolCall("each_body", {"items": items})).result
    assert [each.output for each in result.structured_output] == items
    assert most <= 8


async def test_cancelled_map_leaves_no_task_and_starts_no_items():
    seen, waiting = [], asyncio.Event()

    async def body(text):
        seen.append(text)
        if len(seen) == 4:
            waiting.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(
        (Function(lambda _: list("abcdefgh"), "giver") | map_over(AsyncFunction(body, "body"), 4)).aexecute("x")
    )
    await asyncio.wait_for(waiting.wait(), 30)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (len(seen), asyncio.all_tasks()) == (4, {asyncio.current_task()})


def test_combined_arguments_can_be_taken_from_values():
    arguments = fan_out(upper, repeat)._define().arguments
    assert arguments.take({"text": "a", "times": 3}) == {"text": "a", "times": 3}
    assert not arguments.holds({})


# --- choose


def test_predicate_gets_input_and_selects_tool(run):
    seen = []

    def predicate(input):
        seen.append(input)
        return len(input) > 3

    chosen = choose(predicate, Function(str.upper, "upper"), Echo())
    assert (chosen.name, chosen.description) == ("upper_or_echo", "One of: upper, echo")
    assert (run(chosen, "rome").output, run(chosen, "rom").output) == ("ROME", "rom")
    assert run(Function(lambda text: [text], "giver") | chosen, "rom").output == '["ROM"]'
    assert seen == ["rome", "rom", '["rom"]']


def test_predicate_gets_values_of_typed_tools(run):
    seen = []

    async def predicate(input):
        seen.append(input)
        return False

    chosen = choose(predicate, upper, repeat)
    assert run(chosen, '{"text": "ab", "times": 3}').output == "ababab"
    assert run(Echo() | chosen, "ab").output == "abab"
    assert run(Function(lambda _: {"text": "x"}, "giver") | chosen, "ab").output == "xx"
    assert seen == [{"text": "ab", "times": 3}, "ab", {"text": "x"}]
    assert tool_specifications_from(choose(predicate, repeat, Echo()))[0].parameters.get("required", []) == []


def test_raising_predicate_fails_choice(run):
    def predicate(input):
        raise ValueError("undecided")

    assert run(choose(predicate, upper, length), '{"text": "x"}').error_message == "undecided"
    assert (
        run(Echo() | choose(predicate, upper, length), "x").error_message == "Step 'upper_or_length' raised: undecided"
    )


def test_combinators_can_be_combined(run):
    saved = []

    @tool
    def save(summary: str, translation: str) -> str:
        saved.append((summary, translation))
        return "saved"

    search = Function(lambda text: f"all about {text}", "search")
    summary = Function(lambda text: text[:3], "summary")
    translation = Function(str.upper, "translation")
    assert run(search | fan_out(summary, translation) | save, "rome").output == "saved"
    assert saved == [("all", "ALL ABOUT ROME")]
    assert run(choose(len, search, summary) | map_over(upper), "x").is_success is False


def test_plan_describes_branches():
    pipeline = ToolPipeline("p", "", [choose(len, upper, Echo(), name="pick"), map_over(upper)])
    assert pipeline.describe().text.splitlines() == [
        "p: ",
        "1. pick: takes the pipeline's input; one of these:",
        "   - upper: takes the pipeline's input",
        "   - echo: takes the pipeline's input",
        "2. each_upper: takes the output of 'pick'; this, for each item of the list:",
        "   - upper: takes each item of the output of 'pick'",
    ]


def test_plan_describes_items_at_every_depth():
    rows = map_over(map_over(ToolPipeline.of(upper, Echo())))
    assert ToolPipeline("p", "", [rows]).describe().text.splitlines()[1:] == [
        "1. each_each_upper_then_echo: takes the pipeline's input; this, for each item of the list:",
        "   - each_upper_then_echo: takes each item of the pipeline's input; this, for each item of the list:",
        "      - upper_then_echo: takes each item of each item of the pipeline's input; one after the other:",
        "         1. upper: takes each item of each item of the pipeline's input",
        "         2. echo: takes the output of 'upper'",
    ]


# --- undo through branches


def log_undo(log, name):
    return lambda given, result: log.append(name)


def make_pipeline(log, name, *more):
    step = Step(Function(str, f"{name}_body"), compensate=log_undo(log, name))
    return ToolPipeline(name, "", [step, *more])


def test_branches_are_undone_when_later_step_fails(run):
    log = []
    chosen = choose(len, make_pipeline(log, "c"), Echo())
    spread = fan_out(make_pipeline(log, "a"), make_pipeline(log, "b"))
    each = map_over(make_pipeline(log, "d"))
    giver = Function(lambda _: ["1", "2"], "giver")
    assert not run(chosen | spread | giver | each | failing(), "x").is_success
    assert log == ["d", "d", "b", "a", "c"]
    log.clear()
    assert run(chosen | spread | giver | each, "x").is_success
    assert run(fan_out(make_pipeline(log, "a"), chosen), "x").is_success
    assert run(chosen, "x").is_success
    assert log == []


def test_failed_branch_is_undone_once(run):
    log = []
    together = fan_out(Echo(), make_pipeline(log, "b", failing()), error_strategy=FAIL_FAST)
    assert run(together, "x").error_message == "failing has no luck"
    assert log == ["b"]


async def test_completed_branches_are_undone_after_exception():
    log, done = [], asyncio.Event()

    class Watch(InMemoryMetrics):
        def increment_success(self, tool_name, agent_role):
            if tool_name == "first":
                done.set()

    async def refuse(_):
        await asyncio.wait_for(done.wait(), 30)
        raise ToolConfigurationError("no key")

    with pytest.raises(ToolConfigurationError):
        await fan_out(make_pipeline(log, "first"), AsyncFunction(refuse, "refuse")).aexecute(
            "x", ToolContext(metrics=Watch())
        )
    assert log == ["first"]


async def test_cancelled_branch_undoes_its_steps():
    log, waiting = [], asyncio.Event()

    async def wait(_):
        waiting.set()
        await asyncio.Event().wait()

    async def fail(_):
        await asyncio.wait_for(waiting.wait(), 30)
        return ToolResult.failure("no luck")

    first = ToolPipeline("first", "", [Step(Echo(), compensate=log_undo(log, "first")), AsyncFunction(wait, "wait")])
    done = ToolPipeline("done", "", [Step(Echo(), compensate=log_undo(log, "done"))])
    result = await fan_out(
        first, done, ToolPipeline("bad", "", [AsyncFunction(fail, "fail")]), error_strategy=FAIL_FAST
    ).aexecute("x")
    assert result.error_message == "no luck"
    assert sorted(log) == ["done", "first"]
    assert [each.name for each in result.attributes["undone"]] == ["echo", "echo"]


async def test_undo_of_cancelled_branch_is_reported_at_any_depth():
    log, waiting = [], asyncio.Event()

    async def wait(_):
        waiting.set()
        await asyncio.Event().wait()

    async def fail(_):
        await asyncio.wait_for(waiting.wait(), 30)
        return ToolResult.failure("no luck")

    inner = fan_out(make_pipeline(log, "inner", AsyncFunction(wait, "wait")), Echo(), name="both")
    outer = make_pipeline(log, "outer", choose(len, inner, Echo(), name="choice"))
    result = await fan_out(outer, AsyncFunction(fail, "fail"), error_strategy=FAIL_FAST).aexecute("x")
    assert log == ["inner", "outer"]
    assert [each.name for each in result.attributes["undone"]] == ["inner_body", "outer_body"]


def refuse_to_merge(results):
    raise ToolExecutionError("no merge", error_code="m1")


@pytest.mark.parametrize(
    ("merge", "attributes"),
    [(lambda _: ToolResult.failure("no merge"), {}), (refuse_to_merge, {"error_code": "m1"})],
)
def test_branches_are_undone_when_merge_fails(merge, attributes, run):
    log = []
    result = run(fan_out(make_pipeline(log, "a"), Echo(), merge=merge), "x")
    assert (result.error_message, log) == ("no merge", ["a"])
    remaining = dict(result.attributes)
    assert [each.name for each in remaining.pop("undone")] == ["a_body"]
    assert remaining == attributes


@pytest.mark.parametrize("group", [False, True])
def test_fatal_error_in_merge_undoes_branches(group, run):
    log, error = [], ExitEarlyError("enough")

    def merge(results):
        raise ExceptionGroup("several", [error]) if group else error

    with pytest.raises(ExitEarlyError):
        run(fan_out(make_pipeline(log, "a"), merge=merge), "x")
    assert log == ["a"]


@pytest.mark.parametrize(
    "branches",
    [
        lambda raising: choose(len, raising, Echo()),
        lambda raising: fan_out(Echo(), raising, error_strategy=FAIL_FAST),
        fan_out,
        lambda raising: choose(len, choose(len, raising, Echo()), Echo(), name="outer"),
    ],
)
def test_error_names_branch_that_raised(branches, run):
    made = branches(Raising(ValueError("bad")))
    assert run(made | Plain(), "x").error_message == "Step 'raising' raised: bad"
    assert run(ToolPipeline("outer", "", [made | Plain()]), "x").error_message == "Step 'raising' raised: bad"
    assert run(made, "x").error_message == "bad"
    assert run(branches(failing()) | Plain(), "x").error_message == "failing has no luck"


@pytest.mark.parametrize(
    "make",
    [lambda gated: fan_out(Function(str, "a"), gated), map_over, lambda gated: ToolPipeline("p", "", [Echo(), gated])],
)
def test_missing_reviewer_is_reported_before_any_branch_runs(make, run):
    seen = []
    first = Function(lambda _: seen.append("ran") or ["1"], "first")
    gated = Function(str, "gated", requires_approval=True)
    pipeline = ToolPipeline("all", "", [first, make(gated)])
    for dry in (False, True):
        with pytest.raises(ToolConfigurationError, match="'gated' requires approval but no ReviewHandler"):
            Toolbox([pipeline]).execute(ToolCall("all", {"input": "x"}), dry_run=dry)
    with pytest.raises(ToolConfigurationError):
        run(pipeline, "x")
    assert seen == []


def test_conditional_approval_does_not_require_reviewer(run):
    gated = Function(str, "gated", requires_approval=True)
    seldom = Function(str, "seldom", requires_approval=lambda arguments, _: arguments != "x")
    assert run(Echo() | choose(lambda _: False, gated, seldom), "x").output == "x"


@pytest.mark.parametrize(
    ("make", "arguments", "text"),
    [
        (
            lambda gated: fan_out(Echo(), gated, name="both"),
            {"input": "x"},
            '{"echo":"Dry run: \'echo\' was not run","gated":"Error: Rejected by reviewer: no"}',
        ),
        (
            lambda gated: map_over(gated, 1, name="both"),
            {"items": ["x", "y"]},
            '["Error: Rejected by reviewer: no","Dry run: \'gated\' was not run"]',
        ),
    ],
)
def test_dry_run_reports_rejected_branch(make, arguments, text):
    class Once:
        def __init__(self):
            self.answers = [ExitEarly("no"), Continue()]

        def review(self, request):
            return self.answers.pop(0)

    gated = Function(str, "gated", requires_approval=True)
    result = Toolbox([make(gated)], review=Once()).execute(ToolCall("both", arguments), dry_run=True).result
    assert (result.output, dict(result.attributes)) == (text, {"dry_run": True})


async def test_system_exit_in_branch_undoes_nothing():
    log = []
    ended = asyncio.Event()

    async def end(_):
        await asyncio.wait_for(ended.wait(), 30)
        raise SystemExit(1)

    async def mark(text):
        ended.set()
        return text

    done = ToolPipeline("done", "", [Step(AsyncFunction(mark, "mark"), compensate=log_undo(log, "done"))])
    with pytest.raises(SystemExit):
        await fan_out(done, AsyncFunction(end, "end")).aexecute("x")
    assert log == []
