"""How much of an exception is shown to a model."""

import re
import threading
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

import pytest

from helpers.sample_tools import Echo, Function
from toolsemble import (
    Agent,
    ExitEarlyError,
    OnTimeout,
    Step,
    Tool,
    ToolArgumentsError,
    Toolbox,
    ToolCall,
    ToolDefinitionError,
    ToolExecutionError,
    ToolPipeline,
    ToolResult,
    fan_out,
    tool,
)
from toolsemble.review import AutoReject
from toolsemble.testing import CallbackReview, RecordingSink, ScriptedModel

INNER = "connection to db-7.internal as admin failed"
HIDDEN = re.compile(r"Error: (Step '\w+' raised: )?internal error \(reference ([0-9a-f]{16})\)")


def fail(_):
    raise ConnectionError(INNER)


def fail_with_cause(_):
    try:
        fail(_)
    except ConnectionError as error:
        raise RuntimeError("wrapped: " + INNER) from error


def fail_declared(_):
    try:
        fail(_)
    except ConnectionError as error:
        raise ToolExecutionError("The archive is down; try later", error_code=503) from error


class UnpicklableError(Exception):
    def __init__(self, message):
        super().__init__(message)
        self.hook = lambda: None


class Raises(Tool):
    """A tool that a worker process can have."""

    name = "function"
    description = "Fails"

    def run(self, input):
        raise UnpicklableError(INNER)


def execute(*tools, **settings):
    box = Toolbox(tools, expose_errors="declared", **settings)
    return box.execute(ToolCall(box.names[0], {"input": "x"}, "c1"))


def assert_hidden(reply, log):
    found = HIDDEN.fullmatch(reply.text)
    assert found, reply.text
    assert INNER not in repr(reply)
    assert f"(reference {found[2]})" in log
    assert INNER in log


class Nested(Tool):
    name = "nested"
    description = "Uses a tool that fails"

    def run(self, input):
        return Function(fail).execute(input)


class Boxed(Tool):
    name = "boxed"
    description = "Uses a box of its own"

    def run(self, input):
        return Toolbox([Function(fail)]).execute(ToolCall("function", {"input": input})).result


class Grouped(Tool):
    name = "grouped"
    description = "Fails twice"

    def run(self, input):
        raise ExceptionGroup(INNER, [ValueError(INNER), ToolExecutionError(INNER)])


def failing_agent():
    return Agent(ScriptedModel([ConnectionError(INNER)])).as_tool("agent", "Fails")


@pytest.mark.parametrize(
    "source",
    [
        Function(fail),
        Function(fail_with_cause),
        Nested(),
        Boxed(),
        Grouped(),
        failing_agent(),
        ToolPipeline("line", "Fails", [Function(fail), Echo()]),
        ToolPipeline("line", "Fails", [Echo(), Function(fail)]),
        ToolPipeline("line", "Fails", [Step(Echo(), fail), Echo()]),
        fan_out(Echo(), Function(str.upper, "shout"), merge=fail, name="fan"),
        ToolPipeline("line", "Fails", [ToolPipeline("inner", "Fails", [Function(fail)])]),
    ],
    ids=lambda source: f"{type(source).__name__}_{source.name}",
)
def test_undeclared_error_is_hidden_behind_a_reference(source, caplog):
    assert_hidden(execute(source), caplog.text)


def test_undeclared_error_of_another_process_is_hidden(caplog):
    with ProcessPoolExecutor(1) as pool:
        reply = execute(Function(str.upper, "other"), Raises(), executor=pool)
        assert reply.text == "X"
        (_, reply) = Toolbox([Raises()], expose_errors="declared", executor=pool).execute_all(
            [ToolCall("function", {"input": "x"})] * 2
        )
    assert_hidden(reply, caplog.text)


@pytest.mark.parametrize("hook", ["before_call", "after_call"])
def test_undeclared_error_of_a_hook_is_hidden(hook, caplog):
    assert_hidden(execute(Echo(), **{hook: lambda *_: fail(_)}), caplog.text)


def test_undeclared_error_of_a_compensation_is_hidden(caplog):
    line = ToolPipeline("line", "Fails", [Step(Echo(), compensate=lambda *_: fail(_)), Function(fail)])
    reply = execute(line)
    assert_hidden(reply, caplog.text)
    (undone,) = reply.result.attributes["undone"]
    assert undone.result.error_message.startswith("internal error (reference ")
    assert undone.result.attributes["reference"] in caplog.text


@pytest.mark.parametrize(
    ("source", "text"),
    [
        (Function(fail_declared), "Error: The archive is down; try later"),
        (Function(lambda _: ToolResult.failure("no such city")), "Error: no such city"),
        (Function(lambda _: iter(())), "Error: The tool returned a tuple_iterator; return a list instead"),
    ],
)
def test_declared_error_is_shown(source, text):
    assert execute(source).text == text


def test_invalid_arguments_and_unknown_tools_are_shown():
    def refuse(_):
        raise ToolArgumentsError("city: unknown")

    box = Toolbox([Function(refuse)], expose_errors="declared")
    assert box.execute(ToolCall("function", {"input": "x"})).text == "Error: city: unknown"
    assert box.execute(ToolCall("function", "{")).text.startswith("Error: Invalid JSON input for 'function'")
    assert box.execute(ToolCall("nothing")).text.startswith("Error: Unknown tool 'nothing'")


def test_rejections_and_review_timeouts_are_shown():
    assert execute(Echo(), approve=["echo"], review=AutoReject("no")).text == "Error: Rejected by reviewer: no"
    silent = CallbackReview(lambda _: threading.Event().wait(5))
    terms = {"approve": ["echo"], "approval_timeout": 0.01, "approval_on_timeout": OnTimeout.FAIL}
    assert execute(Echo(), review=silent, **terms).text.startswith("Error: No answer to the review of 'echo'")


def test_declared_error_keeps_its_code_and_has_no_reference():
    assert dict(execute(Function(fail_declared)).result.attributes) == {"error_code": 503}


def test_reference_is_in_the_result_attributes():
    reply = execute(Function(fail))
    assert reply.text == f"Error: internal error (reference {reply.result.attributes['reference']})"


def test_each_failure_has_its_own_reference():
    assert execute(Function(fail)).text != execute(Function(fail)).text


def test_messages_are_shown_by_default():
    assert Toolbox([Function(fail)]).execute(ToolCall("function", {"input": "x"})).text == f"Error: {INNER}"


def test_sinks_receive_the_cause():
    seen = []
    execute(Function(fail), sinks=[seen.append])
    assert (seen[-1].error_type, seen[-1].error) == ("ConnectionError", INNER)


def test_nested_agent_inherits_expose_errors():
    @tool
    def broken() -> str:
        """Fail."""
        raise ConnectionError(INNER)

    model = ScriptedModel([ToolCall("broken"), "done"])
    inner = Agent(model, [broken]).as_tool("inner", "Tries")
    assert execute(inner).text == "done"
    assert INNER not in str(model.requests)


def test_exception_for_the_caller_is_found_in_nested_groups():
    def leave(_):
        raise ExceptionGroup("outer", [ExceptionGroup("inner", [ValueError("a"), ExitEarlyError("enough")])])

    with pytest.raises(ExitEarlyError, match="enough"):
        execute(Function(leave))


@pytest.mark.parametrize("value", ["none", None, True, ["all"]])
def test_rejects_unknown_expose_errors(value):
    with pytest.raises(ToolDefinitionError, match="Toolbox expose_errors must be 'all' or 'declared', not"):
        Toolbox([], expose_errors=value)


@dataclass
class Place:
    name: str


class BrokenRepr:
    def __repr__(self):
        raise RuntimeError("no repr")

    def __str__(self):
        return "shown"


class OwnTextError(KeyError):
    def __str__(self):
        return f"no such city: {self.args[0]}"


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (KeyError("rome"), "KeyError: 'rome'"),
        (KeyError("\ud800"), r"KeyError: '\ud800'"),
        (KeyError("Column 'x' is missing"), "KeyError: \"Column 'x' is missing\""),
        (KeyError(("rome", 1)), "KeyError: ('rome', 1)"),
        (ValueError(404), "ValueError: 404"),
        (ValueError("no", 404), "ValueError: ('no', 404)"),
        (RuntimeError(Place("rome")), "RuntimeError: Place(name='rome')"),
        (KeyError(), "KeyError"),
        (OwnTextError("rome"), "no such city: rome"),
        (ValueError("'rome'"), "'rome'"),
        (ValueError("no such city"), "no such city"),
        (FileNotFoundError(2, "No such file"), "[Errno 2] No such file"),
        (RuntimeError(ValueError("no such city")), "no such city"),
        (RuntimeError(BrokenRepr()), "shown"),
    ],
)
def test_message_that_is_only_a_repr_gets_the_class_name(error, message):
    def raising(_):
        raise error

    assert Toolbox([Function(raising)]).execute(ToolCall("function", {"input": "x"})).text == f"Error: {message}"


def test_class_name_is_there_once_where_it_always_is(caplog):
    def raising(*_):
        raise KeyError("rome")

    hooked = Toolbox([Echo()], before_call=raising).execute(ToolCall("echo", {"input": "x"}))
    assert hooked.text == "Error: The before_call hook failed: KeyError: 'rome'"
    events = RecordingSink()
    Toolbox([Function(raising)], sinks=[events]).execute(ToolCall("function", {"input": "x"}))
    assert [(each.error_type, each.error) for each in events.of("call_finished")] == [("KeyError", "'rome'")]
    assert "KeyError: KeyError" not in caplog.text
    assert "-> Error: KeyError: 'rome' [" in caplog.text
    asked = []

    @tool(requires_approval=raising)
    def delete(path: str) -> str:
        return path

    box = Toolbox([delete], review=CallbackReview(lambda request: asked.append(request.prompt)))
    box.execute(ToolCall("delete", {"path": "a"}))
    assert asked == ["The approval predicate failed: KeyError: 'rome'"]


def test_constructor_that_raises_a_key_error_is_named():
    @dataclass
    class City:
        name: str

        def __post_init__(self):
            raise KeyError(self.name)

    @tool
    def visit(city: City) -> str:
        return city.name

    reply = Toolbox([visit]).execute(ToolCall("visit", {"city": {"name": "rome"}}))
    assert reply.text == "Error: Invalid arguments for 'visit': city: KeyError: 'rome'"
