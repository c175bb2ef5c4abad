import asyncio
import gc
import logging
import pickle
import threading
import time

import pytest

from helpers.sample_tools import AsyncEcho, AsyncFunction, AsyncRaising, Echo, Function, Plain, Raising
from toolsemble import (
    Continue,
    Edit,
    ErrorStrategy,
    ExitEarly,
    ExitEarlyError,
    ImageContent,
    InMemoryMetrics,
    OnTimeout,
    SchemaTool,
    Step,
    StepRecord,
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

CONTINUE = ErrorStrategy.CONTINUE_ON_FAILURE
FAIL_FAST = ErrorStrategy.FAIL_FAST


def adding(letter, **attributes):
    return Function(lambda text: f"{text}{letter}", f"add_{letter}", description="Adds it", **attributes)


def failing(name="failing", message="no luck"):
    return Function(lambda _: ToolResult.failure(message, structured_output={"tried": 3}), name)


class Slow(Tool):
    """Does the same as the others, after a round of the event loop."""

    description = "Adds a letter, later"

    def __init__(self, letter):
        self.name = f"add_{letter}"
        self.letter = letter

    async def run(self, input):
        await asyncio.sleep(0)
        return input + self.letter


def executed(how, tool, given, context=None):
    """Run a tool in a sync or an async way: the outcome is the same."""
    if how == "sync":
        return tool.execute(given, context)
    return asyncio.run(tool.aexecute(given, context))


@pytest.fixture(params=["sync", "async"])
def how(request):
    return request.param


def without_times(result):
    return [(step.name, step.input, step.result.text) for step in result.attributes["steps"]]


# --- how they are made


def test_a_pipeline_is_a_tool_with_a_name_and_a_description():
    pipeline = ToolPipeline("chain", "Adds letters", [adding("a"), adding("b")])
    assert isinstance(pipeline, Tool)
    assert (pipeline.name, pipeline.description) == ("chain", "Adds letters")
    assert pipeline.error_strategy is FAIL_FAST
    assert [step.tool.name for step in pipeline.steps] == ["add_a", "add_b"]


@pytest.mark.parametrize(
    "make",
    [ToolPipeline.of, lambda a, b: a | b, lambda a, b: Step(a) | b, lambda a, b: a | Step(b)],
)
def test_a_pipeline_without_a_name_is_named_and_described_after_its_steps(make):
    pipeline = make(adding("a"), adding("b"))
    assert (pipeline.name, pipeline.description) == ("add_a_then_add_b", "Pipeline: add_a -> add_b")
    assert pipeline.execute("x").output == "xab"


def test_three_tools_in_a_row_are_three_steps():
    pipeline = adding("a") | adding("b") | adding("c")
    assert (pipeline.name, pipeline.description) == (
        "add_a_then_add_b_then_add_c",
        "Pipeline: add_a -> add_b -> add_c",
    )
    assert without_times(pipeline.execute("x")) == [
        ("add_a", "x", "xa"),
        ("add_b", "xa", "xab"),
        ("add_c", "xab", "xabc"),
    ]


def test_of_takes_a_name_and_a_description():
    pipeline = ToolPipeline.of(adding("a"), adding("b"), name="both", description="Adds both")
    assert (pipeline.name, pipeline.description) == ("both", "Adds both")


def with_gate():
    pipeline = adding("a") | adding("b")
    pipeline.requires_approval = True
    return pipeline


def with_plan():
    pipeline = adding("a") | adding("b")
    pipeline.approve_plan = True
    return pipeline


def with_name():
    pipeline = adding("a") | adding("b")
    pipeline.name = "renamed"
    return pipeline


@pytest.mark.parametrize(
    "inner",
    [
        lambda: ToolPipeline.of(adding("a"), adding("b"), name="named"),
        lambda: ToolPipeline("named", "", [adding("a"), adding("b")], CONTINUE),
        with_gate,
        with_plan,
        with_name,
    ],
)
def test_a_pipeline_with_something_of_its_own_stays_one_step(inner):
    inner = inner()
    assert (inner | adding("c")).steps[0].tool is inner


@pytest.mark.parametrize("plain_first", [True, False])
def test_a_plain_object_stands_on_either_side(plain_first):
    pipeline = Plain() | adding("a") if plain_first else adding("a") | Plain()
    assert pipeline.execute("x").output == "xa"


def test_functions_methods_schemas_and_objects_with_one_tool_are_steps(how):
    class Numbers:
        @tool
        def double(self, number: int) -> int:
            return number * 2

    class Spec:
        name, description, parameters_schema = (
            "spec",
            "A tool that knows its schema",
            {"properties": {"n": {"type": "integer"}}},
        )

        def execute(self, arguments):
            return str(arguments["n"] + 1)

    @tool
    def start(number: int) -> int:
        return number

    schema = SchemaTool("plus", "", lambda arguments: arguments["n"] + 1, {"properties": {"n": {"type": "integer"}}})
    pipeline = ToolPipeline("all", "", [start, Numbers(), Numbers().double, schema, Spec(), Plain()])
    assert executed(how, pipeline, '{"number": 1}').output == "6"


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: ToolPipeline("p", "", []), "Pipeline 'p' has no steps; pass at least one tool"),
        (lambda: ToolPipeline("p", "", None), "Pipeline 'p' takes a list of steps, not NoneType"),
        (lambda: ToolPipeline("p", "", "ab"), "Pipeline 'p' takes a list of steps, not str"),
        (lambda: ToolPipeline("p", "", [Echo(), None]), "Step 2 of 'p' is None; pass a tool"),
        (lambda: ToolPipeline("p", "", [Step(None)]), "Step 1 of 'p' is None; pass a tool"),
        (lambda: ToolPipeline("p", "", [Echo]), r"Step 1 of 'p' is the class Echo; pass an instance: Echo\(...\)"),
        (lambda: ToolPipeline("p", "", [object()]), r"Step 1 of 'p' \(object\) is not a tool"),
        (lambda: ToolPipeline("p", "", [Echo()], "stop"), "Pipeline 'p': the error strategy must be an ErrorStrategy"),
        (
            lambda: ToolPipeline("p", "", [Step(Echo(), "x")]),
            "Step 'echo': the adapter must be a function of the result",
        ),
        (lambda: ToolPipeline("p", "", [Step(Echo(), on_error=1)]), "Step 'echo': the error strategy must be"),
        (
            lambda: ToolPipeline("p", "", [Step(Echo(), compensate=1)]),
            "Step 'echo': compensate must be a function or a",
        ),
        (lambda: ToolPipeline("p", "", [Step(Echo(), compensate=Echo)]), r"compensate takes \(input, result\)"),
        (lambda: ToolPipeline("p", "", [Step(Echo(), compensate=lambda a: 1)]), r"compensate takes \(input, result\)"),
        (lambda: ToolPipeline(" ", "", [Echo()]), "Invalid tool name: it is blank"),
        (lambda: ToolPipeline(None, "", [Echo()]), "has no name"),
        (lambda: ToolPipeline("p", None, [Echo()]), "description must be a str"),
        (lambda: ToolPipeline("p", "", [Function(str, " ")]), "Step 1 of 'p': Invalid tool name: it is blank"),
        (
            lambda: ToolPipeline.of(Function(str, "a" * 40), Function(str, "b" * 40)),
            r"pass another name with name=",
        ),
        (lambda: Echo() | None, "Step 2 is None; pass a tool"),
        (lambda: 5 | Echo(), r"Step 1 \(int\) is not a tool"),
        (lambda: Step(Echo()) | 5, r"Step 2 \(int\) is not a tool"),
        (lambda: 5 | Step(Echo()), r"Step 1 \(int\) is not a tool"),
    ],
)
def test_what_is_no_pipeline_is_refused_when_it_is_built(make, problem):
    with pytest.raises(ToolDefinitionError, match=problem):
        make()


def test_a_property_that_raises_is_a_problem_of_the_definition():
    class Broken:
        description = ""

        @property
        def name(self):
            raise RuntimeError("no name today")

        def execute(self, input): ...

    with pytest.raises(ToolDefinitionError, match=r"Step 1 of 'p' \(Broken\): no name today"):
        ToolPipeline("p", "", [Broken()])


def test_an_object_with_several_tools_has_to_say_which():
    class Two:
        @tool
        def one(self) -> str: ...

        @tool
        def other(self) -> str: ...

    with pytest.raises(ToolDefinitionError, match=r"\(Two\) has 2 tools; pass one of its methods"):
        ToolPipeline("p", "", [Two()])
    with pytest.raises(ToolDefinitionError, match="compensate has 2 tools; pass one of them"):
        ToolPipeline("p", "", [Step(Echo(), compensate=Two())])


def test_a_tool_with_tools_among_its_methods_is_meant_itself():
    class Both(Echo):
        @tool
        def other(self) -> str: ...

    assert (Both() | adding("a")).execute("x").output == "xa"


@pytest.mark.parametrize(
    "make",
    [lambda step: ToolPipeline("p", "", [Step(step)]), fan_out, map_over, lambda step: choose(len, Echo(), step)],
)
def test_a_step_of_a_step_is_refused_in_words(make):
    with pytest.raises(ToolDefinitionError, match="is a Step, which only a pipeline takes; pass its"):
        make(Step(Echo()))


@pytest.mark.parametrize(
    "make",
    [
        lambda: ToolPipeline("p", "", [Step(Echo(), compensate=print), Plain()], CONTINUE),
        lambda: Echo() | Plain(),
        lambda: ToolPipeline("p", "", [Echo()], approve_plan=True, approval_role="boss"),
        lambda: fan_out(Echo(), Plain(), merge=len, description="Both"),
        lambda: map_over(Echo(), 3, name="all", requires_approval=True),
        lambda: choose(len, Echo(), Plain(), metadata={"a": 1}),
        lambda: Echo() | fan_out(Echo(), Plain(), error_strategy=FAIL_FAST),
    ],
)
def test_pipelines_and_branches_can_be_pickled(make, how):
    made = make()
    again = pickle.loads(pickle.dumps(made))
    context = ToolContext(review=Reviewer())
    assert type(again) is type(made)
    assert executed(how, again, "[1]", context).text == executed(how, made, "[1]", context).text
    settings = ("name", "description", "requires_approval", "approval_role", "metadata")
    assert [getattr(again, name) for name in settings] == [getattr(made, name) for name in settings]
    assert len((again | Echo()).steps) == len((made | Echo()).steps)


def test_an_unknown_setting_is_refused():
    with pytest.raises(TypeError, match="A tool has no setting 'colour'"):
        ToolPipeline("p", "", [Echo()], colour="red")


# --- what a model sees


def test_the_model_sees_the_first_steps_own_schema():
    @tool
    def search(query: str, limit: int = 3) -> str:
        """Search."""

    [shown] = tool_specifications_from(search | Echo())
    assert shown.name == "search_then_echo"
    assert shown.parameters == tool_specifications_from(search)[0].parameters
    assert tool_specifications_from(Echo() | search)[0].parameters == tool_specifications_from(Echo())[0].parameters


def test_a_pipeline_of_typed_tools_is_called_with_named_parameters(how):
    @tool
    def search(query: str, limit: int = 3) -> list[str]:
        return [f"{query} {number}" for number in range(limit)]

    box = Toolbox([search | Echo()])
    call = ToolCall("search_then_echo", {"query": "rome", "limit": "1"})
    reply = box.execute(call) if how == "sync" else asyncio.run(box.aexecute(call))
    assert reply.text == '["rome 0"]'
    assert [repair["step"] for repair in reply.result.attributes["repairs"]] == ["coerce"]
    assert reply.result.attributes["steps"][0].input == {"query": "rome", "limit": 1}
    refused = box.execute(ToolCall("search_then_echo", {"limit": 2}))
    assert refused.text == "Error: Missing required parameter(s) for 'search': query"
    assert "steps" not in refused.result.attributes


def test_a_scripted_model_makes_one_call_and_gets_one_reply():
    @tool
    def search(query: str) -> list[str]:
        """Search."""
        return [f"{query} {number}" for number in range(2)]

    saved = []
    box = Toolbox(
        [ToolPipeline("research", "Searches and saves", [search, map_over(Echo()), Function(saved.append, "save")])]
    )
    offered = [each["function"]["name"] for each in box.to_openai()]

    def model(messages):
        """Call the one tool there is, then answer with its reply."""
        if messages[-1]["role"] == "tool":
            return {"role": "assistant", "content": f"done: {messages[-1]['content']!r}"}
        function = {"name": offered[0], "arguments": '{"query": "rome"}'}
        return {"role": "assistant", "tool_calls": [{"id": "call_1", "type": "function", "function": function}]}

    messages = [{"role": "user", "content": "Look up Rome and save it"}]
    while "content" not in (reply := model(messages)):
        messages += [reply, *(box.execute(ToolCall.from_openai(call)).to_openai() for call in reply["tool_calls"])]
    assert (reply["content"], saved) == ("done: ''", ['["rome 0","rome 1"]'])
    assert [message["role"] for message in messages] == ["user", "assistant", "tool"]


def test_a_string_pipeline_is_asked_for_its_input_under_its_own_name():
    box = Toolbox([adding("a") | adding("b")])
    assert (
        box.execute(ToolCall("add_a_then_add_b")).text
        == "Error: Missing required parameter(s) for 'add_a_then_add_b': input"
    )


def test_a_pipeline_can_be_strict_immediate_and_have_metadata():
    @tool
    def search(query: str, limit: int = 3) -> str:
        return f"{query} {limit}"

    pipeline = ToolPipeline("p", "", [search], strict=True, metadata={"a": 1})
    box = Toolbox([pipeline], repair=False)
    assert (box.specifications[0].strict, box.specifications[0].metadata) == (True, {"a": 1})
    assert box.execute(ToolCall("p", {"query": "x", "limit": None})).text == "x 3"


# --- one step after the other


def test_each_step_gets_what_the_one_before_it_gave(how):
    result = executed(how, adding("a") | Slow("b") | adding("c"), "x")
    assert result.output == "xabc"
    assert without_times(result) == [("add_a", "x", "xa"), ("add_b", "xa", "xab"), ("add_c", "xab", "xabc")]
    assert all(isinstance(step, StepRecord) and step.duration >= 0 for step in result.attributes["steps"])


def test_run_is_the_same_as_execute():
    assert (adding("a") | adding("b")).run("x").output == "xab"
    assert fan_out(adding("a")).run("x").output == '{"add_a":"xa"}'


def test_the_last_result_is_the_result_with_its_payload_contents_and_attributes(how):
    image = ImageContent(b"...", "image/png")
    last = Function(lambda _: ToolResult.success("seen", {"a": 1}, contents=[image], attributes={"mine": 2}), "last")
    result = executed(how, Echo() | last, "x")
    assert (result.output, result.structured_output, result.contents) == ("seen", {"a": 1}, (image,))
    assert result.attributes["mine"] == 2
    assert [step.name for step in result.attributes["steps"]] == ["echo", "last"]


@pytest.mark.parametrize("given", [None, ""])
def test_no_input_and_no_result_are_the_empty_text(given, how):
    seen = []
    nothing = Function(seen.append, "nothing")
    result = executed(how, nothing | Echo(), given)
    assert (seen, result.output, result.is_success) == ([""], "", True)


def test_a_plain_object_that_gives_none_is_a_success():
    class Nothing(Plain):
        def execute(self, input):
            return None

    result = (Echo() | Nothing()).execute("x")
    assert (result.output, result.is_success) == ("", True)


def test_pipelines_in_pipelines_keep_their_own_records(how):
    inner = ToolPipeline("inner", "", [adding("a"), Slow("b")])
    result = executed(how, ToolPipeline("outer", "", [inner, adding("c")]), "x")
    assert result.output == "xabc"
    assert without_times(result) == [("inner", "x", "xab"), ("add_c", "xab", "xabc")]
    assert without_times(result.attributes["steps"][0].result) == [("add_a", "x", "xa"), ("add_b", "xa", "xab")]
    assert executed(how, ToolPipeline("outer", "", [adding("c"), inner]), "x").output == "xcab"


def test_a_hundred_steps_and_forty_levels_are_walked(how):
    long = ToolPipeline("long", "", [adding("a")] * 100)
    assert executed(how, long, "").output == "a" * 100
    deep = adding("a")
    for level in range(40):
        deep = ToolPipeline(f"level_{level}", "", [deep, adding("b")])
    assert executed(how, deep, "").output == "a" + "b" * 40


def test_sync_steps_called_from_sync_code_stay_in_the_callers_thread():
    seen = []
    where = Function(lambda text: seen.append(threading.current_thread()) or text, "where")
    (where | ToolPipeline("inner", "", [where])).execute("x")
    assert seen == [threading.current_thread()] * 2


def test_one_pipeline_serves_many_calls_at_once():
    pipeline = adding("a") | Slow("b") | adding("c")
    box = Toolbox([pipeline], max_concurrency=7)
    calls = [ToolCall(pipeline.name, {"input": str(number)}) for number in range(200)]
    assert [reply.text for reply in box.execute_all(calls)] == [f"{number}abc" for number in range(200)]


# --- adapters


@pytest.mark.parametrize(
    ("adapter", "given"),
    [
        (lambda result: result.output.upper(), "XA"),
        (lambda result: {"text": result.output}, '{"text":"xa"}'),
        (lambda result: result.structured_output, ""),
        (lambda result: None, ""),
        (lambda result: [1, 2], "[1,2]"),
    ],
)
def test_an_adapter_makes_the_next_steps_input(adapter, given, how):
    result = executed(how, Step(adding("a"), adapter) | Echo(), "x")
    assert result.output == given
    assert result.attributes["steps"][0].result.output == "xa"


def test_an_adapter_sees_the_structured_output_and_may_be_async(how):
    hits = Function(lambda _: {"hits": ["rome", "bonn"]}, "hits")

    async def second(result):
        await asyncio.sleep(0)
        return result.structured_output["hits"][1]

    assert executed(how, Step(hits, second) | Echo(), "x").output == "bonn"


def test_an_adapter_runs_only_after_a_success_and_before_a_next_step(how):
    ran = []

    def adapter(result):
        ran.append(result.output)
        return result.output

    executed(how, ToolPipeline("p", "", [Step(failing(), adapter), Step(Echo(), adapter)], CONTINUE), "x")
    executed(how, ToolPipeline("p", "", [Step(failing(), adapter), Step(Echo(), adapter)]), "x")
    executed(how, ToolPipeline("p", "", [Step(adding("a"), adapter), Step(Echo(), adapter)]), "x")
    assert ran == ["xa"]


def test_an_adapter_that_raises_is_the_steps_failure_under_either_strategy(how, caplog):
    def adapter(result):
        raise KeyError("hits")

    message = "Step 'add_a' raised: KeyError: 'hits'"
    for strategy, text in ((FAIL_FAST, f"Error: {message}"), (CONTINUE, message)):
        result = executed(how, ToolPipeline("p", "", [Step(adding("a"), adapter), Echo()], strategy), "x")
        assert result.text == text
        assert result.attributes["steps"][0].result.error_message == message
    assert "The adapter of step 'add_a' failed" in caplog.text


@pytest.mark.parametrize(
    "error", [ToolConfigurationError("set up wrongly"), ExceptionGroup("tasks", [ExitEarlyError("stop")])]
)
def test_what_must_reach_the_caller_passes_an_adapter_too(error, how):
    def adapter(result):
        raise error

    with pytest.raises((ToolConfigurationError, ExitEarlyError)):
        executed(how, Step(Echo(), adapter) | Echo(), "x")


def test_a_tool_called_in_an_adapter_belongs_to_the_pipelines_run(how):
    seen = []
    spy = Function(lambda text: seen.append(spy.context) or text, "spy")
    executed(
        how, Step(Echo(), lambda result: spy.execute(result.output).output) | Echo(), "x", ToolContext(memory_id="ada")
    )
    assert seen[0].memory_id == "ada"


# --- failures


def test_the_failing_steps_own_result_is_the_result_and_later_steps_do_not_run(how):
    ran = []
    last = Function(ran.append, "last")
    result = executed(how, ToolPipeline("p", "", [adding("a"), failing(), last]), "x")
    assert (result.error_message, result.structured_output) == ("no luck", {"tried": 3})
    assert without_times(result) == [("add_a", "x", "xa"), ("failing", "xa", "Error: no luck")]
    assert ran == []


def test_a_failed_result_keeps_its_contents_and_attributes(how):
    image = ImageContent(b"...", "image/png")
    made = ToolResult(error_message="blurred", contents=(image,), attributes={"mine": 1})
    result = executed(how, Function(lambda _: made, "look") | Echo(), "x")
    assert (result.contents, result.attributes["mine"], result.error_message) == ((image,), 1, "blurred")


def test_the_error_message_becomes_the_next_steps_input(how):
    result = executed(how, ToolPipeline("p", "", [failing(), adding("a"), adding("b")], CONTINUE), "x")
    assert result.output == "no luckab"
    assert executed(how, ToolPipeline("p", "", [adding("a"), failing()], CONTINUE), "x").text == "Error: no luck"


@pytest.mark.parametrize(
    ("pipelines", "steps", "text"),
    [
        (FAIL_FAST, CONTINUE, "no lucka"),
        (CONTINUE, FAIL_FAST, "Error: no luck"),
        (FAIL_FAST, None, "Error: no luck"),
        (CONTINUE, None, "no lucka"),
    ],
)
def test_a_steps_own_strategy_stands_above_the_pipelines(pipelines, steps, text, how):
    pipeline = ToolPipeline("p", "", [Step(failing(), on_error=steps), adding("a")], pipelines)
    assert executed(how, pipeline, "x").text == text


@pytest.mark.parametrize("raising", [Raising, AsyncRaising])
@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ValueError("broken"), "Step 'raising' raised: broken"),
        (ValueError(), "Step 'raising' raised: ValueError"),
        (StopIteration("over"), "Step 'raising' raised: over"),
        (ToolExecutionError("no disk", error_code=7), "Step 'raising' raised: no disk"),
    ],
)
def test_a_step_that_raises_says_so(error, message, raising, how):
    result = executed(how, adding("a") | raising(error) | Echo(), "x")
    assert result.error_message == message
    assert result.attributes["steps"][1].result.error_message == message
    assert result.attributes.get("error_code") == getattr(error, "error_code", None)
    assert executed(how, ToolPipeline("p", "", [raising(error), Echo()], CONTINUE), "x").output == message


def test_a_plain_object_that_raises_says_so(how):
    class Broken(Plain):
        def execute(self, input):
            raise OSError("disk full")

    assert executed(how, Echo() | Broken(), "x").error_message == "Step 'plain' raised: disk full"


def test_a_step_that_raised_inside_a_pipeline_is_named_once(how):
    inner = ToolPipeline("inner", "", [Raising(ValueError("broken"))])
    assert executed(how, inner | Echo(), "x").error_message == "Step 'raising' raised: broken"


@pytest.mark.parametrize("error", [ExitEarlyError("enough"), ToolConfigurationError("no key"), SystemExit(2)])
@pytest.mark.parametrize("strategy", [FAIL_FAST, CONTINUE])
def test_what_must_reach_the_caller_reaches_it(error, strategy, how):
    pipeline = ToolPipeline("p", "", [Raising(error), Echo()], strategy)
    with pytest.raises(type(error)):
        executed(how, pipeline, "x")


# --- context, metrics, log


def test_context_reaches_every_step(how):
    seen = []
    spy = Function(lambda text: seen.append(spy.context) or text, "spy")
    nested = ToolPipeline("nested", "", [spy])
    review, metrics = object(), InMemoryMetrics()
    given = ToolContext(
        call_id="c",
        run_id="r",
        memory_id="ada",
        agent_role="guide",
        metrics=metrics,
        review=review,
        deadline=time.monotonic() + 60,
    )
    given.parameters["user"] = "ada"
    steps = [spy, nested, Step(fan_out(spy, Echo()), lambda _: ["item"]), map_over(spy), choose(len, spy, Echo())]
    executed(how, ToolPipeline("p", "", steps), "x", given)
    assert len(seen) == 5
    for context in seen:
        assert (context.tool_name, context.run_id, context.memory_id, context.agent_role) == (
            "spy",
            "r",
            "ada",
            "guide",
        )
        assert (context.review, context.metrics, context.deadline) == (review, metrics, given.deadline)
        assert context.parameters is given.parameters
        assert context.logger.name == "toolsemble.tool.spy"
    assert [context.call_id for context in seen] == ["c.1", "c.2.1", "c.3.1", "c.4.1", "c.5.1"]


def test_a_toolbox_gives_every_step_its_surroundings(how):
    metrics = InMemoryMetrics()
    pipeline = adding("a") | Plain() | failing()
    box = Toolbox([pipeline], metrics=metrics, agent_role="guide")
    call = ToolCall(pipeline.name, {"input": "x"})
    reply = box.execute(call) if how == "sync" else asyncio.run(box.aexecute(call))
    assert reply.text == "Error: no luck"
    counts = {name: [metrics.count(name, outcome, "guide") for outcome in ("success", "failure", "error")] for name in
              (pipeline.name, "add_a", "plain", "failing")}  # fmt: skip
    assert counts == {pipeline.name: [0, 1, 0], "add_a": [1, 0, 0], "plain": [1, 0, 0], "failing": [0, 1, 0]}
    assert [len(metrics.durations(name)) for name in counts] == [1, 1, 1, 1]


def test_every_step_has_its_line_in_the_log(caplog):
    caplog.set_level(logging.INFO, "toolsemble.tool")
    (adding("a") | adding("b")).execute("x")
    assert [(each.name, each.message.split(" [")[0]) for each in caplog.records] == [
        ("toolsemble.tool.add_a", "add_a(x) -> xa"),
        ("toolsemble.tool.add_b", "add_b(xa) -> xab"),
        ("toolsemble.tool.add_a_then_add_b", "add_a_then_add_b(x) -> xab"),
    ]


def test_a_blocking_step_runs_in_the_toolboxs_workers(how):
    seen = []
    where = Function(lambda text: seen.append(threading.current_thread().name) or text, "where")
    box = Toolbox([where | Slow("b") | where])
    call = ToolCall("where_then_add_b_then_where", {"input": "x"})
    if how == "sync":
        box.execute(call)
        assert seen == ["MainThread"] * 2
    else:
        asyncio.run(box.aexecute(call))
        assert all(name.startswith("toolsemble") for name in seen)


def test_a_pipeline_takes_one_place_and_its_steps_none():
    box = Toolbox([ToolPipeline("p", "", [adding("a"), fan_out(adding("b"), Slow("c"))]), Echo()], max_concurrency=1)
    calls = [ToolCall("p", {"input": str(number)}) for number in range(5)]
    assert [reply.text for reply in box.execute_all(calls)] == [
        f'{{"add_b":"{number}ab","add_c":"{number}ac"}}' for number in range(5)
    ]


# --- cancellation


async def test_cancelling_in_the_middle_stops_the_steps_and_leaves_no_task():
    reached, ran = asyncio.Event(), []

    async def wait(_):
        reached.set()
        await asyncio.Event().wait()

    pipeline = (
        adding("a") | fan_out(AsyncFunction(wait, "wait"), AsyncFunction(wait, "wait_too")) | Function(ran.append)
    )
    task = asyncio.create_task(pipeline.aexecute("x"))
    await asyncio.wait_for(reached.wait(), 30)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert ran == []


async def test_a_pipeline_that_is_dropped_in_the_middle_runs_no_undo():
    undone = []
    path = ToolPipeline("p", "", [Step(Echo(), compensate=lambda *_: undone.append(1)), AsyncEcho()])
    coroutine = path.aexecute("x")
    coroutine.send(None)
    coroutine.close()
    del coroutine
    gc.collect()
    assert undone == []


# --- undo


def undo_log():
    log = []

    def undoing(name):
        return lambda given, result: log.append((name, given, result.text))

    return log, undoing


def test_completed_steps_are_undone_newest_first_once_each(how):
    log, undoing = undo_log()
    steps = [
        Step(adding("a"), compensate=undoing("a")),
        Step(adding("b"), compensate=undoing("b")),
        adding("c"),
        Step(failing(), compensate=undoing("failing")),
        Step(adding("d"), compensate=undoing("d")),
    ]
    result = executed(how, ToolPipeline("p", "", steps), "x")
    assert log == [("b", "xa", "xab"), ("a", "x", "xa")]
    assert result.error_message == "no luck"
    assert [(each.name, each.input, each.result) for each in result.attributes["undone"]] == [
        ("add_b", "xa", ToolResult.success("")),
        ("add_a", "x", ToolResult.success("")),
    ]


def test_a_builtin_that_does_not_tell_its_parameters_can_be_an_undo():
    result = (Step(adding("a"), compensate=getattr) | failing()).execute("x")
    assert [each.result.is_success for each in result.attributes["undone"]] == [False]


def test_nothing_is_undone_while_the_pipeline_goes_on(how):
    log, undoing = undo_log()
    steps = [Step(adding("a"), compensate=undoing("a")), failing(), adding("b")]
    result = executed(how, ToolPipeline("p", "", steps, CONTINUE), "x")
    assert (result.output, log, "undone" in result.attributes) == ("no luckb", [], False)
    assert executed(how, ToolPipeline("p", "", [*steps, Raising(OSError("end"))], CONTINUE), "x").error_message
    assert log == [("a", "x", "xa")]


@pytest.mark.parametrize("strategy", [FAIL_FAST, CONTINUE])
def test_a_failing_undo_is_reported_and_the_rest_go_on(strategy, how, caplog):
    log, undoing = undo_log()

    def broken(given, result):
        raise OSError("cannot undo")

    steps = [Step(adding("a"), compensate=undoing("a")), Step(adding("b"), compensate=broken), failing()]
    result = executed(how, ToolPipeline("p", "", steps, strategy), "x")
    assert log == [("a", "x", "xa")]
    assert [each.result.text for each in result.attributes["undone"]] == ["Error: cannot undo", ""]
    assert "The undo of step 'add_b' failed: cannot undo" in caplog.text


def test_an_undo_may_be_async_and_fail_by_its_result(how):
    async def undo(given, result):
        await asyncio.sleep(0)
        return ToolResult.failure("gone already")

    result = executed(how, Step(adding("a"), compensate=undo) | failing(), "x")
    assert [each.result.error_message for each in result.attributes["undone"]] == ["gone already"]


def test_a_tool_can_be_the_undo(how):
    log = []

    @tool
    def put_back(input: str, result: str) -> str:
        log.append((input, result))

    text = Function(log.append, "text")

    @tool
    def only_input(input: str) -> None:
        log.append(input)

    @tool
    def neither() -> None:
        log.append("neither")

    metrics = InMemoryMetrics()
    steps = [Step(adding("a"), compensate=each) for each in (put_back, text, only_input, neither)]
    executed(how, ToolPipeline("p", "", [*steps, failing()]), "x", ToolContext(metrics=metrics))
    assert log == ["neither", "xaa", '{"input":"xa","result":"xaa"}', ("x", "xa")]
    assert metrics.count("put_back", "success") == 1


def test_an_undo_tool_gets_typed_inputs_and_payloads_as_values(how):
    log = []

    @tool
    def create(path: str, size: int = 1) -> dict[str, int]:
        return {"id": 7}

    @tool
    def remove(input: dict, result: dict) -> None:
        log.append((input, result))

    executed(how, Step(create, compensate=remove) | Step(Raising(OSError("no"))), '{"path": "a"}')
    assert log == [({"path": "a", "size": 1}, {"id": 7})]


def test_an_undo_tool_that_takes_something_else_is_refused():
    @tool
    def delete(path: str) -> None: ...

    @tool
    def maybe(path: str = "") -> None: ...

    for each in (delete, maybe):
        with pytest.raises(
            ToolDefinitionError, match=f"compensate is given 'input' and 'result', but '{each.name}' takes path"
        ):
            ToolPipeline("p", "", [Step(Echo(), compensate=each)])


def test_an_undo_tool_that_nobody_may_approve_is_reported(how):
    gated = Function(lambda _: "", "gated", requires_approval=True)
    result = executed(how, Step(Echo(), compensate=gated) | failing(), "x")
    assert [each.result.error_message for each in result.attributes["undone"]] == [
        "Tool 'gated' requires approval but no ReviewHandler is configured"
    ]


@pytest.mark.parametrize(
    "approve", [["delete_*"], ["delete_file"], lambda _, context: context.tool_name == "delete_file"]
)
@pytest.mark.parametrize("wrapped", [False, True])
def test_a_tool_that_undoes_a_step_does_not_get_around_a_gate(approve, wrapped, how):
    deleted, reviewer = [], Reviewer(ExitEarly("not that one"))
    delete = Function(deleted.append, "delete_file")
    undo = ToolPipeline("undo", "", [delete]) if wrapped else delete
    box = Toolbox([ToolPipeline("p", "", [Step(Echo(), compensate=undo), failing()])], review=reviewer, approve=approve)
    call = ToolCall("p", {"input": "x"})
    reply = box.execute(call) if how == "sync" else asyncio.run(box.aexecute(call))
    assert [each.result.error_message for each in reply.result.attributes["undone"]] == [
        "Rejected by reviewer: not that one"
    ]
    assert ([name for name, _ in reviewer.asked], deleted) == (["delete_file"], [])


def test_a_plan_tells_of_tools_that_undo_steps_and_covers_them(how):
    undo = Function(lambda _: "", "undo", requires_approval=True)
    reviewer = Reviewer()
    pipeline = planned(Step(Echo(), compensate=undo), Step(Plain(), compensate=print), failing())
    assert not executed(how, pipeline, "x", ToolContext(review=reviewer)).is_success
    assert [request.tool_name for request in reviewer.requests] == ["p"]
    assert reviewer.requests[0].description.splitlines()[1:3] == [
        "1. echo: takes the pipeline's input; can be undone by undo; requires approval (Does what the test says)",
        "2. plain: takes the output of 'echo'; can be undone",
    ]


def test_a_step_whose_adapter_failed_is_undone_as_it_was_completed(how):
    log, undoing = undo_log()
    step = Step(adding("a"), lambda result: result.missing, compensate=undoing("a"))
    assert not executed(how, step | Echo(), "x").is_success
    assert log == [("a", "x", "xa")]


def test_the_steps_of_a_pipeline_inside_are_undone_with_the_whole(how):
    log, undoing = undo_log()
    inner = ToolPipeline(
        "inner", "", [Step(adding("a"), compensate=undoing("a")), Step(adding("b"), compensate=undoing("b"))]
    )
    outer = ToolPipeline("outer", "", [inner, Step(adding("c"), compensate=undoing("c")), failing()])
    result = executed(how, outer, "x")
    assert [name for name, _, _ in log] == ["c", "b", "a"]
    assert [each.name for each in result.attributes["undone"]] == ["add_c", "add_b", "add_a"]


def test_a_pipeline_inside_that_failed_is_undone_once(how):
    log, undoing = undo_log()
    inner = ToolPipeline("inner", "", [Step(adding("a"), compensate=undoing("a")), failing()])
    outer = ToolPipeline("outer", "", [Step(adding("c"), compensate=undoing("c")), inner])
    result = executed(how, outer, "x")
    assert [name for name, _, _ in log] == ["a", "c"]
    assert [each.name for each in result.attributes["undone"]] == ["add_a", "add_c"]
    executed(how, inner, "x")
    assert [name for name, _, _ in log] == ["a", "c", "a"]


@pytest.mark.parametrize(
    ("error", "undone"), [(ExitEarlyError("stop"), True), (ToolConfigurationError("no"), True), (SystemExit(1), False)]
)
def test_steps_are_undone_when_an_exception_ends_the_pipeline_but_not_the_program(error, undone, how):
    log, undoing = undo_log()
    with pytest.raises(type(error)):
        executed(how, Step(adding("a"), compensate=undoing("a")) | Raising(error), "x")
    assert bool(log) == undone


async def test_steps_are_undone_when_the_run_is_cancelled():
    log, undoing = undo_log()
    reached = asyncio.Event()

    async def wait(_):
        reached.set()
        await asyncio.Event().wait()

    steps = [Step(adding("a"), compensate=undoing("a")), Step(AsyncFunction(wait), compensate=undoing("wait"))]
    task = asyncio.create_task(ToolPipeline("p", "", steps).aexecute("x"))
    await asyncio.wait_for(reached.wait(), 30)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert log == [("a", "x", "xa")]


# --- approval


class Reviewer:
    """A reviewer that records requests, answers in order, and then approves."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.requests = []

    def review(self, request):
        self.requests.append(request)
        return self.answers.pop(0) if self.answers else Continue()

    @property
    def asked(self):
        return [(request.tool_name, request.arguments) for request in self.requests]


def test_each_gated_step_asks_when_its_turn_comes(how):
    reviewer = Reviewer()
    pipeline = adding("a", requires_approval=True) | Slow("b") | adding("c", requires_approval=True)
    assert executed(how, pipeline, "x", ToolContext(review=reviewer)).output == "xabc"
    assert reviewer.asked == [("add_a", "x"), ("add_c", "xab")]


def test_a_refused_step_fails_and_what_was_done_is_undone(how):
    log, undoing = undo_log()
    pipeline = Step(adding("a"), compensate=undoing("a")) | adding("b", requires_approval=True) | adding("c")
    result = executed(how, pipeline, "x", ToolContext(review=Reviewer(ExitEarly("not today"))))
    assert result.error_message == "Rejected by reviewer: not today"
    assert log == [("a", "x", "xa")]


def test_an_edit_of_a_step_is_what_it_runs_with_and_what_is_on_record(how):
    pipeline = adding("a") | adding("b", requires_approval=True)
    result = executed(how, pipeline, "x", ToolContext(review=Reviewer(Edit("other"))))
    assert (result.output, result.attributes["steps"][1].input) == ("otherb", "other")


def test_a_gated_step_without_a_reviewer_is_a_configuration_error(how):
    with pytest.raises(ToolConfigurationError, match="'add_b' requires approval but no ReviewHandler"):
        executed(how, adding("a") | adding("b", requires_approval=True), "x")


def test_a_pipeline_can_be_gated_itself(how):
    reviewer = Reviewer(Edit("y"))
    pipeline = ToolPipeline("p", "Adds", [adding("a")], requires_approval=True)
    assert executed(how, pipeline, "x", ToolContext(review=reviewer)).output == "ya"
    assert reviewer.asked == [("p", "x")]


def test_a_toolboxs_own_gates_reach_the_steps(how):
    reviewer = Reviewer()
    pipeline = ToolPipeline("p", "", [adding("a"), ToolPipeline("inner", "", [fan_out(adding("b"), Echo())])])
    box = Toolbox([pipeline], review=reviewer, approve=["add_b"])
    call = ToolCall("p", {"input": "x"})
    reply = box.execute(call) if how == "sync" else asyncio.run(box.aexecute(call))
    assert reply.result.is_success
    assert reviewer.asked == [("add_b", "xa")]
    with pytest.raises(ToolDefinitionError, match="approve names 'add_z', but the tools are p, add_a, inner"):
        Toolbox([pipeline], approve=["add_z"])


def planned(*steps, **settings):
    return ToolPipeline("p", "Adds letters", steps, approve_plan=True, **settings)


def test_a_plan_is_approved_once_for_all_gated_steps(how):
    reviewer = Reviewer()
    inner = ToolPipeline("inner", "", [adding("c", requires_approval=lambda arguments, context: True)])
    adapted = Step(adding("b", requires_approval=True), lambda result: result.output, compensate=print)
    pipeline = planned(adding("a"), adapted, inner, fan_out(adding("d", requires_approval=True), Echo()))
    result = executed(how, pipeline, "x", ToolContext(review=reviewer))
    assert result.output == '{"add_d":"xabcd","echo":"xabc"}'
    assert reviewer.asked == [("p", "x")]
    assert reviewer.requests[0].description.splitlines() == [
        "Adds letters",
        "1. add_a: takes the pipeline's input",
        "2. add_b: takes the output of 'add_a'; requires approval (Adds it); can be undone",
        "3. inner: takes the adapted output of 'add_b'; one after the other:",
        "   1. add_c: takes the adapted output of 'add_b'; may require approval (Adds it)",
        "4. add_d_and_echo: takes the output of 'inner'; all of these, side by side:",
        "   - add_d: takes the output of 'inner'; requires approval (Adds it)",
        "   - echo: takes the output of 'inner'",
    ]


def test_the_approval_of_a_plan_is_for_one_call(how):
    reviewer = Reviewer()
    pipeline = planned(adding("a", requires_approval=True))
    for _ in range(2):
        executed(how, pipeline, "x", ToolContext(review=reviewer))
    assert len(reviewer.requests) == 2


def test_a_refused_plan_runs_nothing(how):
    ran = []
    pipeline = planned(Function(ran.append, "one"), Function(ran.append, "two", requires_approval=True))
    result = executed(how, pipeline, "x", ToolContext(review=Reviewer(ExitEarly("no"))))
    assert (result.error_message, ran) == ("Rejected by reviewer: no", [])


def test_an_edit_of_a_plan_changes_the_pipelines_own_input(how):
    pipeline = planned(adding("a"), adding("b", requires_approval=True))
    assert executed(how, pipeline, "x", ToolContext(review=Reviewer(Edit("y")))).output == "yab"


def test_a_plan_without_gated_steps_asks_nobody(how):
    assert executed(how, planned(adding("a")), "x").output == "xa"
    reviewer = Reviewer()
    executed(how, planned(adding("a"), requires_approval=True), "x", ToolContext(review=reviewer))
    assert reviewer.asked == [("p", "x")]


@pytest.mark.parametrize(
    ("roles", "own", "asked"),
    [
        ((None, None), None, [("p", None)]),
        (("admin", None), None, [("p", "admin")]),
        (("admin", "admin"), None, [("p", "admin")]),
        (("admin", "legal"), None, [("add_a", "admin"), ("add_b", "legal")]),
        (("admin", "legal"), "admin", [("p", "admin"), ("add_b", "legal")]),
        (("admin", None), "boss", [("p", "boss"), ("add_a", "admin")]),
    ],
)
def test_a_step_that_wants_another_role_asks_for_itself(roles, own, asked, how):
    reviewer = Reviewer()
    steps = [
        adding(letter, requires_approval=True, approval_role=role) for letter, role in zip("ab", roles, strict=True)
    ]
    executed(how, planned(*steps, approval_role=own), "x", ToolContext(review=reviewer))
    assert [(request.tool_name, request.required_role) for request in reviewer.requests] == asked


def test_silence_does_not_approve_a_step_that_would_not_run_then():
    step = adding("a", requires_approval=True)
    lax = adding("b", requires_approval=True, approval_on_timeout=OnTimeout.CONTINUE)
    with pytest.raises(ToolDefinitionError, match="a timeout would approve 'add_a', which has EXIT_EARLY"):
        planned(step, lax, approval_on_timeout=OnTimeout.CONTINUE)
    assert planned(lax, approval_on_timeout=OnTimeout.CONTINUE)
    with pytest.raises(ToolDefinitionError, match="Pipeline 'p': approval_timeout must be a number of seconds"):
        planned(step, approval_timeout="soon")


def test_what_a_toolbox_asks_for_is_asked_beside_the_plan(how):
    reviewer = Reviewer()
    box = Toolbox([planned(adding("a", requires_approval=True), adding("b"))], review=reviewer, approve=["add_b"])
    call = ToolCall("p", {"input": "x"})
    assert (box.execute(call) if how == "sync" else asyncio.run(box.aexecute(call))).text == "xab"
    assert reviewer.asked == [("p", "x"), ("add_b", "xa")]


# --- plans and dry runs


def test_a_pipeline_describes_itself_as_text_and_as_a_graph():
    branches = fan_out(adding("b"), ToolPipeline("inner", "", [adding("c"), adding("d", requires_approval=True)]))
    legal = adding("e", requires_approval=True, approval_role="legal", approval_description="Mail\nit")
    plan = ToolPipeline("p", "Adds letters", [adding("a"), branches, Step(legal, compensate=print)]).describe()
    assert plan.text.splitlines() == [
        "p: Adds letters",
        "1. add_a: takes the pipeline's input",
        "2. add_b_and_inner: takes the output of 'add_a'; all of these, side by side:",
        "   - add_b: takes the output of 'add_a'",
        "   - inner: takes the output of 'add_a'; one after the other:",
        "      1. add_c: takes the output of 'add_a'",
        "      2. add_d: takes the output of 'add_c'; requires approval (Adds it)",
        "3. add_e: takes the output of 'add_b_and_inner'; requires approval by legal (Mail\\nit); can be undone",
    ]
    assert plan.mermaid.splitlines() == [
        "flowchart LR",
        '    s0["add_a"]',
        '    s1{{"add_b_and_inner"}}',
        '    s2["add_b"]',
        "    s1 --> s2",
        '    s3["add_c"]',
        '    s4["add_d (approval)"]',
        "    s3 --> s4",
        "    s1 --> s3",
        "    s0 --> s1",
        '    s5["add_e (approval)"]',
        "    s2 --> s5",
        "    s4 --> s5",
    ]
    assert planned(adding("a", requires_approval=True)).describe().text.endswith("requires approval (Adds it)")
    assert str(plan) == f"{plan.text}\n\n```mermaid\n{plan.mermaid}\n```\n"


def dry(how, box, call):
    if how == "sync":
        return box.execute(call, dry_run=True)
    return asyncio.run(box.aexecute(call, dry_run=True))


def test_a_dry_run_validates_gates_and_records_without_running_a_body(how):
    ran, reviewer, metrics = [], Reviewer(), InMemoryMetrics()

    @tool(requires_approval=True)
    def delete(path: str) -> None:
        """Delete a file."""
        ran.append(path)

    box = Toolbox([delete], review=reviewer, metrics=metrics)
    reply = dry(how, box, ToolCall("delete", {"path": "a"}))
    assert (reply.text, dict(reply.result.attributes)) == ("Dry run: 'delete' was not run", {"dry_run": True})
    assert dry(how, box, ToolCall("delete", {})).text == "Error: Missing required parameter(s) for 'delete': path"
    assert dry(how, box, ToolCall("nothing")).is_error
    assert (ran, reviewer.asked) == ([], [("delete", {"path": "a"})])
    assert reviewer.requests[0].description == "Dry run, nothing will be done: Delete a file."
    assert (metrics.count("delete", "success"), metrics.count("delete", "failure")) == (1, 1)


def test_a_dry_run_of_a_pipeline_shows_what_is_known_of_its_steps(how):
    ran, reviewer = [], Reviewer()
    body = Function(ran.append, "body", requires_approval=True)
    spread = fan_out(body, choose(len, body, Echo(), name="choice"), merge=ran.append)
    last = Step(map_over(body), ran.append, compensate=print)
    box = Toolbox([ToolPipeline("p", "", [spread, last])], review=reviewer)
    result = dry(how, box, ToolCall("p", {"input": "x"})).result
    assert (ran, result.output, result.attributes["dry_run"]) == ([], "Dry run: 'p' was not run", True)
    assert [(step.name, step.input) for step in result.attributes["steps"]] == [
        ("body_and_choice", "x"),
        ("each_body", None),
    ]
    assert reviewer.asked == [("body", "x"), ("body", "x")]
    refused = Toolbox([ToolPipeline("p", "", [spread, last])], review=Reviewer(*[ExitEarly("no")] * 2))
    assert dry(how, refused, ToolCall("p", {"input": "x"})).is_error


def test_a_dry_run_goes_on_where_a_refused_step_would_not_end_it(how):
    steps = [adding("a", requires_approval=True), adding("b")]
    box = Toolbox([ToolPipeline("p", "", steps, CONTINUE)], review=Reviewer(ExitEarly("no")))
    result = dry(how, box, ToolCall("p", {"input": "x"})).result
    assert (result.output, result.attributes["dry_run"]) == ("Dry run: 'p' was not run", True)
    assert without_times(result) == [
        ("add_a", "x", "Error: Rejected by reviewer: no"),
        ("add_b", None, "Dry run: 'add_b' was not run"),
    ]


def test_a_dry_run_goes_through_a_list_that_is_known(how):
    ran = []
    box = Toolbox([map_over(Function(ran.append, "body"))])
    reply = dry(how, box, ToolCall("each_body", {"items": ["a", "b"]}))
    assert (reply.text, ran) == ("Dry run: 'each_body' was not run", [])


def test_the_calls_of_a_turn_can_be_dry_too():
    ran = []
    box = Toolbox([Function(ran.append, "body")])
    calls = [ToolCall("body", {"input": "x"})] * 2
    for some in (calls, calls[:1]):
        assert {reply.text for reply in box.execute_all(some, dry_run=True)} == {"Dry run: 'body' was not run"}
        assert len(asyncio.run(box.aexecute_all(some, dry_run=True))) == len(some)
    assert ran == []
