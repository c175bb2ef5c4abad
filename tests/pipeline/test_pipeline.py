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


def make_adder(letter, **attributes):
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


def execute_tool(mode, tool, given, context=None):
    """Run a tool in a sync or an async way: the outcome is the same."""
    if mode == "sync":
        return tool.execute(given, context)
    return asyncio.run(tool.aexecute(given, context))


@pytest.fixture(params=["sync", "async"])
def mode(request):
    return request.param


def summarize_steps(result):
    return [(step.name, step.input, step.result.text) for step in result.attributes["steps"]]


# --- how they are made


def test_pipeline_has_name_and_description():
    pipeline = ToolPipeline("chain", "Adds letters", [make_adder("a"), make_adder("b")])
    assert isinstance(pipeline, Tool)
    assert (pipeline.name, pipeline.description) == ("chain", "Adds letters")
    assert pipeline.error_strategy is FAIL_FAST
    assert [step.tool.name for step in pipeline.steps] == ["add_a", "add_b"]


@pytest.mark.parametrize(
    "make",
    [ToolPipeline.of, lambda a, b: a | b, lambda a, b: Step(a) | b, lambda a, b: a | Step(b)],
)
def test_pipeline_name_and_description_default_to_steps(make):
    pipeline = make(make_adder("a"), make_adder("b"))
    assert (pipeline.name, pipeline.description) == ("add_a_then_add_b", "Pipeline: add_a -> add_b")
    assert pipeline.execute("x").output == "xab"


def test_chained_pipe_operators_make_flat_steps():
    pipeline = make_adder("a") | make_adder("b") | make_adder("c")
    assert (pipeline.name, pipeline.description) == (
        "add_a_then_add_b_then_add_c",
        "Pipeline: add_a -> add_b -> add_c",
    )
    assert summarize_steps(pipeline.execute("x")) == [
        ("add_a", "x", "xa"),
        ("add_b", "xa", "xab"),
        ("add_c", "xab", "xabc"),
    ]


def test_of_accepts_name_and_description():
    pipeline = ToolPipeline.of(make_adder("a"), make_adder("b"), name="both", description="Adds both")
    assert (pipeline.name, pipeline.description) == ("both", "Adds both")


def with_gate():
    pipeline = make_adder("a") | make_adder("b")
    pipeline.requires_approval = True
    return pipeline


def with_plan():
    pipeline = make_adder("a") | make_adder("b")
    pipeline.approve_plan = True
    return pipeline


def with_name():
    pipeline = make_adder("a") | make_adder("b")
    pipeline.name = "renamed"
    return pipeline


@pytest.mark.parametrize(
    "inner",
    [
        lambda: ToolPipeline.of(make_adder("a"), make_adder("b"), name="named"),
        lambda: ToolPipeline("named", "", [make_adder("a"), make_adder("b")], CONTINUE),
        with_gate,
        with_plan,
        with_name,
    ],
)
def test_customized_pipeline_stays_one_step(inner):
    inner = inner()
    assert (inner | make_adder("c")).steps[0].tool is inner


@pytest.mark.parametrize("plain_first", [True, False])
def test_pipe_operator_accepts_plain_object_on_either_side(plain_first):
    pipeline = Plain() | make_adder("a") if plain_first else make_adder("a") | Plain()
    assert pipeline.execute("x").output == "xa"


def test_functions_methods_schemas_and_objects_with_one_tool_are_steps(mode):
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
    assert execute_tool(mode, pipeline, '{"number": 1}').output == "6"


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
        (lambda: Echo() | None, "Step 2 is None; pass a tool"),
        (lambda: 5 | Echo(), r"Step 1 \(int\) is not a tool"),
        (lambda: Step(Echo()) | 5, r"Step 2 \(int\) is not a tool"),
        (lambda: 5 | Step(Echo()), r"Step 1 \(int\) is not a tool"),
    ],
)
def test_invalid_pipelines_are_rejected_at_definition(make, problem):
    with pytest.raises(ToolDefinitionError, match=problem):
        make()


def test_raising_property_is_a_definition_error():
    class Broken:
        description = ""

        @property
        def name(self):
            raise RuntimeError("no name today")

        def execute(self, input): ...

    with pytest.raises(ToolDefinitionError, match=r"Step 1 of 'p' \(Broken\): no name today"):
        ToolPipeline("p", "", [Broken()])


def test_object_with_several_tools_is_ambiguous():
    class Two:
        @tool
        def one(self) -> str: ...

        @tool
        def other(self) -> str: ...

    with pytest.raises(ToolDefinitionError, match=r"\(Two\) has 2 tools; pass one of its methods"):
        ToolPipeline("p", "", [Two()])
    with pytest.raises(ToolDefinitionError, match="compensate has 2 tools; pass one of them"):
        ToolPipeline("p", "", [Step(Echo(), compensate=Two())])


def test_tool_with_tool_methods_is_used_itself():
    class Both(Echo):
        @tool
        def other(self) -> str: ...

    assert (Both() | make_adder("a")).execute("x").output == "xa"


@pytest.mark.parametrize(
    "make",
    [lambda step: ToolPipeline("p", "", [Step(step)]), fan_out, map_over, lambda step: choose(len, Echo(), step)],
)
def test_nested_step_is_rejected(make):
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
def test_pipelines_and_branches_can_be_pickled(make, mode):
    made = make()
    again = pickle.loads(pickle.dumps(made))
    context = ToolContext(review=Reviewer())
    assert type(again) is type(made)
    assert execute_tool(mode, again, "[1]", context).text == execute_tool(mode, made, "[1]", context).text
    settings = ("name", "description", "requires_approval", "approval_role", "metadata")
    assert [getattr(again, name) for name in settings] == [getattr(made, name) for name in settings]
    assert len((again | Echo()).steps) == len((made | Echo()).steps)


def test_unknown_setting_is_rejected():
    with pytest.raises(TypeError, match="A tool has no setting 'colour'"):
        ToolPipeline("p", "", [Echo()], colour="red")


# --- what a model sees


def test_pipeline_has_the_schema_of_its_first_step():
    @tool
    def search(query: str, limit: int = 3) -> str:
        """Search."""

    [shown] = tool_specifications_from(search | Echo())
    assert shown.name == "search_then_echo"
    assert shown.parameters == tool_specifications_from(search)[0].parameters
    assert tool_specifications_from(Echo() | search)[0].parameters == tool_specifications_from(Echo())[0].parameters


def test_typed_pipeline_takes_named_parameters(mode):
    @tool
    def search(query: str, limit: int = 3) -> list[str]:
        return [f"{query} {number}" for number in range(limit)]

    box = Toolbox([search | Echo()])
    call = ToolCall("search_then_echo", {"query": "rome", "limit": "1"})
    reply = box.execute(call) if mode == "sync" else asyncio.run(box.aexecute(call))
    assert reply.text == '["rome 0"]'
    assert [repair["step"] for repair in reply.result.attributes["repairs"]] == ["coerce"]
    assert reply.result.attributes["steps"][0].input == {"query": "rome", "limit": 1}
    refused = box.execute(ToolCall("search_then_echo", {"limit": 2}))
    assert refused.text == "Error: Missing required parameter(s) for 'search': query"
    assert "steps" not in refused.result.attributes


def test_model_makes_one_call_and_gets_one_reply():
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


def test_missing_input_error_names_pipeline():
    box = Toolbox([make_adder("a") | make_adder("b")])
    assert (
        box.execute(ToolCall("add_a_then_add_b")).text
        == "Error: Missing required parameter(s) for 'add_a_then_add_b': input"
    )


def test_pipeline_accepts_strict_immediate_and_metadata():
    @tool
    def search(query: str, limit: int = 3) -> str:
        return f"{query} {limit}"

    pipeline = ToolPipeline("p", "", [search], strict=True, metadata={"a": 1})
    box = Toolbox([pipeline], repair=False)
    assert (box.specifications[0].strict, box.specifications[0].metadata) == (True, {"a": 1})
    assert box.execute(ToolCall("p", {"query": "x", "limit": None})).text == "x 3"


# --- one step after the other


def test_each_step_gets_output_of_previous_step(mode):
    result = execute_tool(mode, make_adder("a") | Slow("b") | make_adder("c"), "x")
    assert result.output == "xabc"
    assert summarize_steps(result) == [("add_a", "x", "xa"), ("add_b", "xa", "xab"), ("add_c", "xab", "xabc")]
    assert all(isinstance(step, StepRecord) and step.duration >= 0 for step in result.attributes["steps"])


def test_run_is_the_same_as_execute():
    assert (make_adder("a") | make_adder("b")).run("x").output == "xab"
    assert fan_out(make_adder("a")).run("x").output == '{"add_a":"xa"}'


def test_last_result_is_returned_with_contents_and_attributes(mode):
    image = ImageContent(b"...", "image/png")
    last = Function(lambda _: ToolResult.success("seen", {"a": 1}, contents=[image], attributes={"mine": 2}), "last")
    result = execute_tool(mode, Echo() | last, "x")
    assert (result.output, result.structured_output, result.contents) == ("seen", {"a": 1}, (image,))
    assert result.attributes["mine"] == 2
    assert [step.name for step in result.attributes["steps"]] == ["echo", "last"]


@pytest.mark.parametrize("given", [None, ""])
def test_none_becomes_empty_text(given, mode):
    seen = []
    nothing = Function(seen.append, "nothing")
    result = execute_tool(mode, nothing | Echo(), given)
    assert (seen, result.output, result.is_success) == ([""], "", True)


def test_plain_object_may_return_none():
    class Nothing(Plain):
        def execute(self, input):
            return None

    result = (Echo() | Nothing()).execute("x")
    assert (result.output, result.is_success) == ("", True)


def test_nested_pipelines_keep_their_own_records(mode):
    inner = ToolPipeline("inner", "", [make_adder("a"), Slow("b")])
    result = execute_tool(mode, ToolPipeline("outer", "", [inner, make_adder("c")]), "x")
    assert result.output == "xabc"
    assert summarize_steps(result) == [("inner", "x", "xab"), ("add_c", "xab", "xabc")]
    assert summarize_steps(result.attributes["steps"][0].result) == [("add_a", "x", "xa"), ("add_b", "xa", "xab")]
    assert execute_tool(mode, ToolPipeline("outer", "", [make_adder("c"), inner]), "x").output == "xcab"


def test_long_and_deep_pipelines_run(mode):
    long = ToolPipeline("long", "", [make_adder("a")] * 100)
    assert execute_tool(mode, long, "").output == "a" * 100
    deep = make_adder("a")
    for level in range(40):
        deep = ToolPipeline(f"level_{level}", "", [deep, make_adder("b")])
    assert execute_tool(mode, deep, "").output == "a" + "b" * 40


def test_sync_steps_run_in_calling_thread():
    seen = []
    where = Function(lambda text: seen.append(threading.current_thread()) or text, "where")
    (where | ToolPipeline("inner", "", [where])).execute("x")
    assert seen == [threading.current_thread()] * 2


def test_pipeline_supports_concurrent_calls():
    pipeline = make_adder("a") | Slow("b") | make_adder("c")
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
def test_adapter_returns_input_of_next_step(adapter, given, mode):
    result = execute_tool(mode, Step(make_adder("a"), adapter) | Echo(), "x")
    assert result.output == given
    assert result.attributes["steps"][0].result.output == "xa"


def test_adapter_gets_structured_output_and_may_be_async(mode):
    hits = Function(lambda _: {"hits": ["rome", "bonn"]}, "hits")

    async def second(result):
        await asyncio.sleep(0)
        return result.structured_output["hits"][1]

    assert execute_tool(mode, Step(hits, second) | Echo(), "x").output == "bonn"


def test_adapter_runs_only_between_successful_steps(mode):
    ran = []

    def adapter(result):
        ran.append(result.output)
        return result.output

    execute_tool(mode, ToolPipeline("p", "", [Step(failing(), adapter), Step(Echo(), adapter)], CONTINUE), "x")
    execute_tool(mode, ToolPipeline("p", "", [Step(failing(), adapter), Step(Echo(), adapter)]), "x")
    execute_tool(mode, ToolPipeline("p", "", [Step(make_adder("a"), adapter), Step(Echo(), adapter)]), "x")
    assert ran == ["xa"]


def test_raising_adapter_fails_step(mode, caplog):
    def adapter(result):
        raise KeyError("hits")

    message = "Step 'add_a' raised: KeyError: 'hits'"
    for strategy, text in ((FAIL_FAST, f"Error: {message}"), (CONTINUE, message)):
        result = execute_tool(mode, ToolPipeline("p", "", [Step(make_adder("a"), adapter), Echo()], strategy), "x")
        assert result.text == text
        assert result.attributes["steps"][0].result.error_message == message
    assert "The adapter of step 'add_a' failed" in caplog.text


@pytest.mark.parametrize(
    "error", [ToolConfigurationError("set up wrongly"), ExceptionGroup("tasks", [ExitEarlyError("stop")])]
)
def test_fatal_errors_in_adapter_reach_caller(error, mode):
    def adapter(result):
        raise error

    with pytest.raises((ToolConfigurationError, ExitEarlyError)):
        execute_tool(mode, Step(Echo(), adapter) | Echo(), "x")


def test_tool_called_in_adapter_shares_run(mode):
    seen = []
    spy = Function(lambda text: seen.append(spy.context) or text, "spy")
    execute_tool(
        mode, Step(Echo(), lambda result: spy.execute(result.output).output) | Echo(), "x", ToolContext(memory_id="ada")
    )
    assert seen[0].memory_id == "ada"


# --- failures


def test_failed_step_ends_pipeline_with_its_result(mode):
    ran = []
    last = Function(ran.append, "last")
    result = execute_tool(mode, ToolPipeline("p", "", [make_adder("a"), failing(), last]), "x")
    assert (result.error_message, result.structured_output) == ("no luck", {"tried": 3})
    assert summarize_steps(result) == [("add_a", "x", "xa"), ("failing", "xa", "Error: no luck")]
    assert ran == []


def test_failed_result_keeps_contents_and_attributes(mode):
    image = ImageContent(b"...", "image/png")
    made = ToolResult(error_message="blurred", contents=(image,), attributes={"mine": 1})
    result = execute_tool(mode, Function(lambda _: made, "look") | Echo(), "x")
    assert (result.contents, result.attributes["mine"], result.error_message) == ((image,), 1, "blurred")


def test_error_message_becomes_input_of_next_step(mode):
    result = execute_tool(mode, ToolPipeline("p", "", [failing(), make_adder("a"), make_adder("b")], CONTINUE), "x")
    assert result.output == "no luckab"
    assert (
        execute_tool(mode, ToolPipeline("p", "", [make_adder("a"), failing()], CONTINUE), "x").text == "Error: no luck"
    )


@pytest.mark.parametrize(
    ("pipelines", "steps", "text"),
    [
        (FAIL_FAST, CONTINUE, "no lucka"),
        (CONTINUE, FAIL_FAST, "Error: no luck"),
        (FAIL_FAST, None, "Error: no luck"),
        (CONTINUE, None, "no lucka"),
    ],
)
def test_step_strategy_overrides_pipeline_strategy(pipelines, steps, text, mode):
    pipeline = ToolPipeline("p", "", [Step(failing(), on_error=steps), make_adder("a")], pipelines)
    assert execute_tool(mode, pipeline, "x").text == text


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
def test_raising_step_reports_its_error(error, message, raising, mode):
    result = execute_tool(mode, make_adder("a") | raising(error) | Echo(), "x")
    assert result.error_message == message
    assert result.attributes["steps"][1].result.error_message == message
    assert result.attributes.get("error_code") == getattr(error, "error_code", None)
    assert execute_tool(mode, ToolPipeline("p", "", [raising(error), Echo()], CONTINUE), "x").output == message


def test_raising_plain_object_reports_its_error(mode):
    class Broken(Plain):
        def execute(self, input):
            raise OSError("disk full")

    assert execute_tool(mode, Echo() | Broken(), "x").error_message == "Step 'plain' raised: disk full"


def test_error_of_nested_step_names_it_once(mode):
    inner = ToolPipeline("inner", "", [Raising(ValueError("broken"))])
    assert execute_tool(mode, inner | Echo(), "x").error_message == "Step 'raising' raised: broken"


@pytest.mark.parametrize("error", [ExitEarlyError("enough"), ToolConfigurationError("no key"), SystemExit(2)])
@pytest.mark.parametrize("strategy", [FAIL_FAST, CONTINUE])
def test_fatal_errors_reach_caller(error, strategy, mode):
    pipeline = ToolPipeline("p", "", [Raising(error), Echo()], strategy)
    with pytest.raises(type(error)):
        execute_tool(mode, pipeline, "x")


# --- context, metrics, log


def test_context_reaches_every_step(mode):
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
    execute_tool(mode, ToolPipeline("p", "", steps), "x", given)
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


def test_steps_use_metrics_and_role_of_toolbox(mode):
    metrics = InMemoryMetrics()
    pipeline = make_adder("a") | Plain() | failing()
    box = Toolbox([pipeline], metrics=metrics, agent_role="guide")
    call = ToolCall(pipeline.name, {"input": "x"})
    reply = box.execute(call) if mode == "sync" else asyncio.run(box.aexecute(call))
    assert reply.text == "Error: no luck"
    counts = {name: [metrics.count(name, outcome, "guide") for outcome in ("success", "failure", "error")] for name in
              (pipeline.name, "add_a", "plain", "failing")}  # fmt: skip
    assert counts == {pipeline.name: [0, 1, 0], "add_a": [1, 0, 0], "plain": [1, 0, 0], "failing": [0, 1, 0]}
    assert [len(metrics.durations(name)) for name in counts] == [1, 1, 1, 1]


def test_every_step_is_logged(caplog):
    caplog.set_level(logging.INFO, "toolsemble.tool")
    (make_adder("a") | make_adder("b")).execute("x")
    assert [(each.name, each.message.split(" [")[0]) for each in caplog.records] == [
        ("toolsemble.tool.add_a", "add_a(x) -> xa"),
        ("toolsemble.tool.add_b", "add_b(xa) -> xab"),
        ("toolsemble.tool.add_a_then_add_b", "add_a_then_add_b(x) -> xab"),
    ]


def test_blocking_step_runs_in_toolbox_workers(mode):
    seen = []
    where = Function(lambda text: seen.append(threading.current_thread().name) or text, "where")
    box = Toolbox([where | Slow("b") | where])
    call = ToolCall("where_then_add_b_then_where", {"input": "x"})
    if mode == "sync":
        box.execute(call)
        assert seen == ["MainThread"] * 2
    else:
        asyncio.run(box.aexecute(call))
        assert all(name.startswith("toolsemble") for name in seen)


def test_pipeline_uses_one_concurrency_slot():
    box = Toolbox(
        [ToolPipeline("p", "", [make_adder("a"), fan_out(make_adder("b"), Slow("c"))]), Echo()], max_concurrency=1
    )
    calls = [ToolCall("p", {"input": str(number)}) for number in range(5)]
    assert [reply.text for reply in box.execute_all(calls)] == [
        f'{{"add_b":"{number}ab","add_c":"{number}ac"}}' for number in range(5)
    ]


# --- cancellation


async def test_cancellation_stops_steps_and_leaves_no_task():
    reached, ran = asyncio.Event(), []

    async def wait(_):
        reached.set()
        await asyncio.Event().wait()

    pipeline = (
        make_adder("a") | fan_out(AsyncFunction(wait, "wait"), AsyncFunction(wait, "wait_too")) | Function(ran.append)
    )
    task = asyncio.create_task(pipeline.aexecute("x"))
    await asyncio.wait_for(reached.wait(), 30)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert ran == []


async def test_abandoned_pipeline_runs_no_undo():
    undone = []
    path = ToolPipeline("p", "", [Step(Echo(), compensate=lambda *_: undone.append(1)), AsyncEcho()])
    coroutine = path.aexecute("x")
    coroutine.send(None)
    coroutine.close()
    del coroutine
    gc.collect()
    assert undone == []


# --- undo


def make_undo_log():
    log = []

    def undoing(name):
        return lambda given, result: log.append((name, given, result.text))

    return log, undoing


def test_completed_steps_are_undone_in_reverse_order(mode):
    log, undoing = make_undo_log()
    steps = [
        Step(make_adder("a"), compensate=undoing("a")),
        Step(make_adder("b"), compensate=undoing("b")),
        make_adder("c"),
        Step(failing(), compensate=undoing("failing")),
        Step(make_adder("d"), compensate=undoing("d")),
    ]
    result = execute_tool(mode, ToolPipeline("p", "", steps), "x")
    assert log == [("b", "xa", "xab"), ("a", "x", "xa")]
    assert result.error_message == "no luck"
    assert [(each.name, each.input, each.result) for each in result.attributes["undone"]] == [
        ("add_b", "xa", ToolResult.success("")),
        ("add_a", "x", ToolResult.success("")),
    ]


def test_builtin_without_signature_can_be_an_undo():
    result = (Step(make_adder("a"), compensate=getattr) | failing()).execute("x")
    assert [each.result.is_success for each in result.attributes["undone"]] == [False]


def test_nothing_is_undone_when_pipeline_continues(mode):
    log, undoing = make_undo_log()
    steps = [Step(make_adder("a"), compensate=undoing("a")), failing(), make_adder("b")]
    result = execute_tool(mode, ToolPipeline("p", "", steps, CONTINUE), "x")
    assert (result.output, log, "undone" in result.attributes) == ("no luckb", [], False)
    assert execute_tool(mode, ToolPipeline("p", "", [*steps, Raising(OSError("end"))], CONTINUE), "x").error_message
    assert log == [("a", "x", "xa")]


@pytest.mark.parametrize("strategy", [FAIL_FAST, CONTINUE])
def test_failed_undo_is_reported_and_others_still_run(strategy, mode, caplog):
    log, undoing = make_undo_log()

    def broken(given, result):
        raise OSError("cannot undo")

    steps = [Step(make_adder("a"), compensate=undoing("a")), Step(make_adder("b"), compensate=broken), failing()]
    result = execute_tool(mode, ToolPipeline("p", "", steps, strategy), "x")
    assert log == [("a", "x", "xa")]
    assert [each.result.text for each in result.attributes["undone"]] == ["Error: cannot undo", ""]
    assert "The undo of step 'add_b' failed: cannot undo" in caplog.text


def test_undo_may_be_async_and_return_failure(mode):
    async def undo(given, result):
        await asyncio.sleep(0)
        return ToolResult.failure("gone already")

    result = execute_tool(mode, Step(make_adder("a"), compensate=undo) | failing(), "x")
    assert [each.result.error_message for each in result.attributes["undone"]] == ["gone already"]


def test_undo_can_be_a_tool(mode):
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
    steps = [Step(make_adder("a"), compensate=each) for each in (put_back, text, only_input, neither)]
    execute_tool(mode, ToolPipeline("p", "", [*steps, failing()]), "x", ToolContext(metrics=metrics))
    assert log == ["neither", "xaa", '{"input":"xa","result":"xaa"}', ("x", "xa")]
    assert metrics.count("put_back", "success") == 1


def test_undo_tool_gets_typed_values(mode):
    log = []

    @tool
    def create(path: str, size: int = 1) -> dict[str, int]:
        return {"id": 7}

    @tool
    def remove(input: dict, result: dict) -> None:
        log.append((input, result))

    execute_tool(mode, Step(create, compensate=remove) | Step(Raising(OSError("no"))), '{"path": "a"}')
    assert log == [({"path": "a", "size": 1}, {"id": 7})]


def test_undo_tool_with_other_parameters_is_rejected():
    @tool
    def delete(path: str) -> None: ...

    @tool
    def maybe(path: str = "") -> None: ...

    for each in (delete, maybe):
        with pytest.raises(
            ToolDefinitionError, match=f"compensate is given 'input' and 'result', but '{each.name}' takes path"
        ):
            ToolPipeline("p", "", [Step(Echo(), compensate=each)])


def test_undo_tool_without_reviewer_is_reported(mode):
    gated = Function(lambda _: "", "gated", requires_approval=True)
    result = execute_tool(mode, Step(Echo(), compensate=gated) | failing(), "x")
    assert [each.result.error_message for each in result.attributes["undone"]] == [
        "Tool 'gated' requires approval but no ReviewHandler is configured"
    ]


@pytest.mark.parametrize(
    "approve", [["delete_*"], ["delete_file"], lambda _, context: context.tool_name == "delete_file"]
)
@pytest.mark.parametrize("wrapped", [False, True])
def test_undo_tool_requires_approval(approve, wrapped, mode):
    deleted, reviewer = [], Reviewer(ExitEarly("not that one"))
    delete = Function(deleted.append, "delete_file")
    undo = ToolPipeline("undo", "", [delete]) if wrapped else delete
    box = Toolbox([ToolPipeline("p", "", [Step(Echo(), compensate=undo), failing()])], review=reviewer, approve=approve)
    call = ToolCall("p", {"input": "x"})
    reply = box.execute(call) if mode == "sync" else asyncio.run(box.aexecute(call))
    assert [each.result.error_message for each in reply.result.attributes["undone"]] == [
        "Rejected by reviewer: not that one"
    ]
    assert ([name for name, _ in reviewer.asked], deleted) == (["delete_file"], [])


def test_plan_lists_and_approves_undo_tools(mode):
    undo = Function(lambda _: "", "undo", requires_approval=True)
    reviewer = Reviewer()
    pipeline = make_planned_pipeline(Step(Echo(), compensate=undo), Step(Plain(), compensate=print), failing())
    assert not execute_tool(mode, pipeline, "x", ToolContext(review=reviewer)).is_success
    assert [request.tool_name for request in reviewer.requests] == ["p"]
    assert reviewer.requests[0].description.splitlines()[1:3] == [
        "1. echo: takes the pipeline's input; can be undone by undo; requires approval (Does what the test says)",
        "2. plain: takes the output of 'echo'; can be undone",
    ]


def test_step_is_undone_when_its_adapter_fails(mode):
    log, undoing = make_undo_log()
    step = Step(make_adder("a"), lambda result: result.missing, compensate=undoing("a"))
    assert not execute_tool(mode, step | Echo(), "x").is_success
    assert log == [("a", "x", "xa")]


def test_steps_of_nested_pipeline_are_undone(mode):
    log, undoing = make_undo_log()
    inner = ToolPipeline(
        "inner", "", [Step(make_adder("a"), compensate=undoing("a")), Step(make_adder("b"), compensate=undoing("b"))]
    )
    outer = ToolPipeline("outer", "", [inner, Step(make_adder("c"), compensate=undoing("c")), failing()])
    result = execute_tool(mode, outer, "x")
    assert [name for name, _, _ in log] == ["c", "b", "a"]
    assert [each.name for each in result.attributes["undone"]] == ["add_c", "add_b", "add_a"]


def test_failed_nested_pipeline_is_undone_once(mode):
    log, undoing = make_undo_log()
    inner = ToolPipeline("inner", "", [Step(make_adder("a"), compensate=undoing("a")), failing()])
    outer = ToolPipeline("outer", "", [Step(make_adder("c"), compensate=undoing("c")), inner])
    result = execute_tool(mode, outer, "x")
    assert [name for name, _, _ in log] == ["a", "c"]
    assert [each.name for each in result.attributes["undone"]] == ["add_a", "add_c"]
    execute_tool(mode, inner, "x")
    assert [name for name, _, _ in log] == ["a", "c", "a"]


@pytest.mark.parametrize(
    ("error", "undone"), [(ExitEarlyError("stop"), True), (ToolConfigurationError("no"), True), (SystemExit(1), False)]
)
def test_steps_are_undone_after_exception_but_not_system_exit(error, undone, mode):
    log, undoing = make_undo_log()
    with pytest.raises(type(error)):
        execute_tool(mode, Step(make_adder("a"), compensate=undoing("a")) | Raising(error), "x")
    assert bool(log) == undone


async def test_steps_are_undone_after_cancellation():
    log, undoing = make_undo_log()
    reached = asyncio.Event()

    async def wait(_):
        reached.set()
        await asyncio.Event().wait()

    steps = [Step(make_adder("a"), compensate=undoing("a")), Step(AsyncFunction(wait), compensate=undoing("wait"))]
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


def test_gated_steps_are_reviewed_in_order(mode):
    reviewer = Reviewer()
    pipeline = make_adder("a", requires_approval=True) | Slow("b") | make_adder("c", requires_approval=True)
    assert execute_tool(mode, pipeline, "x", ToolContext(review=reviewer)).output == "xabc"
    assert reviewer.asked == [("add_a", "x"), ("add_c", "xab")]


def test_rejected_step_fails_and_undoes_completed_steps(mode):
    log, undoing = make_undo_log()
    pipeline = (
        Step(make_adder("a"), compensate=undoing("a")) | make_adder("b", requires_approval=True) | make_adder("c")
    )
    result = execute_tool(mode, pipeline, "x", ToolContext(review=Reviewer(ExitEarly("not today"))))
    assert result.error_message == "Rejected by reviewer: not today"
    assert log == [("a", "x", "xa")]


def test_edited_input_is_run_and_recorded(mode):
    pipeline = make_adder("a") | make_adder("b", requires_approval=True)
    result = execute_tool(mode, pipeline, "x", ToolContext(review=Reviewer(Edit("other"))))
    assert (result.output, result.attributes["steps"][1].input) == ("otherb", "other")


def test_gated_step_without_a_reviewer_is_a_configuration_error(mode):
    with pytest.raises(ToolConfigurationError, match="'add_b' requires approval but no ReviewHandler"):
        execute_tool(mode, make_adder("a") | make_adder("b", requires_approval=True), "x")


def test_pipeline_can_be_gated_itself(mode):
    reviewer = Reviewer(Edit("y"))
    pipeline = ToolPipeline("p", "Adds", [make_adder("a")], requires_approval=True)
    assert execute_tool(mode, pipeline, "x", ToolContext(review=reviewer)).output == "ya"
    assert reviewer.asked == [("p", "x")]


def test_toolbox_approval_rules_apply_to_steps(mode):
    reviewer = Reviewer()
    pipeline = ToolPipeline("p", "", [make_adder("a"), ToolPipeline("inner", "", [fan_out(make_adder("b"), Echo())])])
    box = Toolbox([pipeline], review=reviewer, approve=["add_b"])
    call = ToolCall("p", {"input": "x"})
    reply = box.execute(call) if mode == "sync" else asyncio.run(box.aexecute(call))
    assert reply.result.is_success
    assert reviewer.asked == [("add_b", "xa")]
    with pytest.raises(ToolDefinitionError, match="approve names 'add_z', but the tools are p, add_a, inner"):
        Toolbox([pipeline], approve=["add_z"])


def make_planned_pipeline(*steps, **settings):
    return ToolPipeline("p", "Adds letters", steps, approve_plan=True, **settings)


def test_plan_approval_covers_all_gated_steps(mode):
    reviewer = Reviewer()
    inner = ToolPipeline("inner", "", [make_adder("c", requires_approval=lambda arguments, context: True)])
    adapted = Step(make_adder("b", requires_approval=True), lambda result: result.output, compensate=print)
    pipeline = make_planned_pipeline(
        make_adder("a"), adapted, inner, fan_out(make_adder("d", requires_approval=True), Echo())
    )
    result = execute_tool(mode, pipeline, "x", ToolContext(review=reviewer))
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


def test_plan_approval_covers_one_call(mode):
    reviewer = Reviewer()
    pipeline = make_planned_pipeline(make_adder("a", requires_approval=True))
    for _ in range(2):
        execute_tool(mode, pipeline, "x", ToolContext(review=reviewer))
    assert len(reviewer.requests) == 2


def test_rejected_plan_runs_nothing(mode):
    ran = []
    pipeline = make_planned_pipeline(Function(ran.append, "one"), Function(ran.append, "two", requires_approval=True))
    result = execute_tool(mode, pipeline, "x", ToolContext(review=Reviewer(ExitEarly("no"))))
    assert (result.error_message, ran) == ("Rejected by reviewer: no", [])


def test_edited_plan_changes_pipeline_input(mode):
    pipeline = make_planned_pipeline(make_adder("a"), make_adder("b", requires_approval=True))
    assert execute_tool(mode, pipeline, "x", ToolContext(review=Reviewer(Edit("y")))).output == "yab"


def test_plan_without_gated_steps_needs_no_review(mode):
    assert execute_tool(mode, make_planned_pipeline(make_adder("a")), "x").output == "xa"
    reviewer = Reviewer()
    execute_tool(
        mode, make_planned_pipeline(make_adder("a"), requires_approval=True), "x", ToolContext(review=reviewer)
    )
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
def test_step_with_other_approval_role_is_reviewed_separately(roles, own, asked, mode):
    reviewer = Reviewer()
    steps = [
        make_adder(letter, requires_approval=True, approval_role=role) for letter, role in zip("ab", roles, strict=True)
    ]
    execute_tool(mode, make_planned_pipeline(*steps, approval_role=own), "x", ToolContext(review=reviewer))
    assert [(request.tool_name, request.required_role) for request in reviewer.requests] == asked


def test_plan_timeout_cannot_approve_stricter_step():
    step = make_adder("a", requires_approval=True)
    lax = make_adder("b", requires_approval=True, approval_on_timeout=OnTimeout.CONTINUE)
    with pytest.raises(ToolDefinitionError, match="a timeout would approve 'add_a', which has EXIT_EARLY"):
        make_planned_pipeline(step, lax, approval_on_timeout=OnTimeout.CONTINUE)
    assert make_planned_pipeline(lax, approval_on_timeout=OnTimeout.CONTINUE)
    with pytest.raises(ToolDefinitionError, match="Pipeline 'p': approval_timeout must be a number of seconds"):
        make_planned_pipeline(step, approval_timeout="soon")


def test_toolbox_approval_rules_apply_beside_plan(mode):
    reviewer = Reviewer()
    box = Toolbox(
        [make_planned_pipeline(make_adder("a", requires_approval=True), make_adder("b"))],
        review=reviewer,
        approve=["add_b"],
    )
    call = ToolCall("p", {"input": "x"})
    assert (box.execute(call) if mode == "sync" else asyncio.run(box.aexecute(call))).text == "xab"
    assert reviewer.asked == [("p", "x"), ("add_b", "xa")]


# --- plans and dry runs


def test_describe_returns_text_and_graph():
    branches = fan_out(
        make_adder("b"), ToolPipeline("inner", "", [make_adder("c"), make_adder("d", requires_approval=True)])
    )
    legal = make_adder("e", requires_approval=True, approval_role="legal", approval_description="Mail\nit")
    plan = ToolPipeline("p", "Adds letters", [make_adder("a"), branches, Step(legal, compensate=print)]).describe()
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
    assert (
        make_planned_pipeline(make_adder("a", requires_approval=True))
        .describe()
        .text.endswith("requires approval (Adds it)")
    )
    assert str(plan) == f"{plan.text}\n\n```mermaid\n{plan.mermaid}\n```\n"


def test_describe_returns_the_steps_as_data():
    sometimes = make_adder("d", requires_approval=lambda arguments, context: True)
    legal = make_adder("e", requires_approval=True, approval_role="legal")
    choice = choose(lambda text: True, make_adder("b"), map_over(make_adder("c")))
    steps = [Step(make_adder("a"), adapter=lambda result: result.output), choice, sometimes]
    steps += [Step(legal, compensate=print), Step(make_adder("f"), compensate=make_adder("g"))]
    graph = ToolPipeline("p", "Adds letters", steps).describe().graph
    assert (graph.name, graph.kind, graph.description) == ("p", "sequence", "Adds letters")
    first, second, third, fourth, fifth = graph.parts
    assert (first.kind, first.is_adapted, first.undo, first.parts) == ("tool", True, "", ())
    assert (second.kind, second.is_adapted) == ("choice", False)
    assert [(each.name, each.kind) for each in second.parts] == [("add_b", "tool"), ("each_add_c", "each")]
    assert [each.name for each in second.parts[1].parts] == ["add_c"]
    assert (third.approval, third.role) == ("sometimes", "")
    assert (fourth.approval, fourth.role, fourth.undo) == ("always", "legal", "a function")
    assert fifth.undo == "add_g"
    side_by_side = ToolPipeline("q", "", [make_adder("a"), fan_out(make_adder("b"), make_adder("c"))])
    assert side_by_side.describe().graph.parts[1].kind == "parallel"


def dry_run_call(mode, box, call):
    if mode == "sync":
        return box.execute(call, dry_run=True)
    return asyncio.run(box.aexecute(call, dry_run=True))


def test_dry_run_validates_reviews_and_records_without_running(mode):
    ran, reviewer, metrics = [], Reviewer(), InMemoryMetrics()

    @tool(requires_approval=True)
    def delete(path: str) -> None:
        """Delete a file."""
        ran.append(path)

    box = Toolbox([delete], review=reviewer, metrics=metrics)
    reply = dry_run_call(mode, box, ToolCall("delete", {"path": "a"}))
    assert (reply.text, dict(reply.result.attributes)) == ("Dry run: 'delete' was not run", {"dry_run": True})
    assert (
        dry_run_call(mode, box, ToolCall("delete", {})).text
        == "Error: Missing required parameter(s) for 'delete': path"
    )
    assert dry_run_call(mode, box, ToolCall("nothing")).is_error
    assert (ran, reviewer.asked) == ([], [("delete", {"path": "a"})])
    assert reviewer.requests[0].description == "Dry run, nothing will be done: Delete a file."
    assert (metrics.count("delete", "success"), metrics.count("delete", "failure")) == (1, 1)


def test_dry_run_of_pipeline_shows_known_step_inputs(mode):
    ran, reviewer = [], Reviewer()
    body = Function(ran.append, "body", requires_approval=True)
    spread = fan_out(body, choose(len, body, Echo(), name="choice"), merge=ran.append)
    last = Step(map_over(body), ran.append, compensate=print)
    box = Toolbox([ToolPipeline("p", "", [spread, last])], review=reviewer)
    result = dry_run_call(mode, box, ToolCall("p", {"input": "x"})).result
    assert (ran, result.output, result.attributes["dry_run"]) == ([], "Dry run: 'p' was not run", True)
    assert [(step.name, step.input) for step in result.attributes["steps"]] == [
        ("body_and_choice", "x"),
        ("each_body", None),
    ]
    assert reviewer.asked == [("body", "x"), ("body", "x")]
    refused = Toolbox([ToolPipeline("p", "", [spread, last])], review=Reviewer(*[ExitEarly("no")] * 2))
    assert dry_run_call(mode, refused, ToolCall("p", {"input": "x"})).is_error


def test_dry_run_continues_after_rejected_step(mode):
    steps = [make_adder("a", requires_approval=True), make_adder("b")]
    box = Toolbox([ToolPipeline("p", "", steps, CONTINUE)], review=Reviewer(ExitEarly("no")))
    result = dry_run_call(mode, box, ToolCall("p", {"input": "x"})).result
    assert (result.output, result.attributes["dry_run"]) == ("Dry run: 'p' was not run", True)
    assert summarize_steps(result) == [
        ("add_a", "x", "Error: Rejected by reviewer: no"),
        ("add_b", None, "Dry run: 'add_b' was not run"),
    ]


def test_dry_run_maps_over_known_list(mode):
    ran = []
    box = Toolbox([map_over(Function(ran.append, "body"))])
    reply = dry_run_call(mode, box, ToolCall("each_body", {"items": ["a", "b"]}))
    assert (reply.text, ran) == ("Dry run: 'each_body' was not run", [])


def test_execute_all_supports_dry_run():
    ran = []
    box = Toolbox([Function(ran.append, "body")])
    calls = [ToolCall("body", {"input": "x"})] * 2
    for some in (calls, calls[:1]):
        assert {reply.text for reply in box.execute_all(some, dry_run=True)} == {"Dry run: 'body' was not run"}
        assert len(asyncio.run(box.aexecute_all(some, dry_run=True))) == len(some)
    assert ran == []
