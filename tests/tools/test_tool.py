import asyncio
import contextvars
import copy
import dataclasses
import functools
import logging
import pickle
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from helpers.sample_tools import AsyncEcho, AsyncFunction, AsyncRaising, Echo, Function, Plain, Raising
from toolsemble import (
    AgentTool,
    ExitEarlyError,
    InMemoryMetrics,
    Tool,
    ToolArgumentsError,
    ToolConfigurationError,
    ToolContext,
    ToolDefinitionError,
    ToolExecutionError,
    ToolResult,
)
from toolsemble._engine.context import current_context, enter, leave

current = contextvars.ContextVar("current", default="unset")


class SilentError(Exception):
    def __str__(self):
        return ""


class UnprintableError(Exception):
    def __str__(self):
        raise ValueError("cannot be printed")


@pytest.mark.parametrize("tool", [Echo(), AsyncEcho(), Plain()])
def test_object_with_name_description_and_execute_is_an_agent_tool(tool):
    assert isinstance(tool, AgentTool)


@pytest.mark.parametrize("tool", [Echo(), AsyncEcho()])
async def test_sync_and_async_tools_run_from_sync_and_async_code(tool):
    assert tool.execute("x") == ToolResult.success("x")
    assert await tool.aexecute("x") == ToolResult.success("x")


@pytest.mark.parametrize("tool", [Echo(), AsyncEcho()])
def test_tools_run_without_an_event_loop(tool):
    assert tool.execute("x") == ToolResult.success("x")


def test_name_and_description_may_be_properties():
    class Numbered(Echo):
        def __init__(self, number):
            self.number = number

        @property
        def name(self):
            return f"echo_{self.number}"

    assert Numbered(3).execute("x").output == "x"


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ValueError("no such city"), "no such city"),
        (ValueError(), "ValueError"),
        (SilentError(), "SilentError"),
        (UnprintableError(), "UnprintableError"),
        (KeyError("x"), "KeyError: 'x'"),
        (StopIteration("stop"), "stop"),
        (ToolExecutionError("down"), "down"),
        (ToolArgumentsError("bad city"), "bad city"),
        (TimeoutError("late"), "late"),
        (RecursionError("deep"), "deep"),
        (ExceptionGroup("both", [ValueError("a"), KeyError("b")]), "both (2 sub-exceptions)"),
        (OSError("caf\udce9"), "caf\\udce9"),
    ],
)
@pytest.mark.parametrize("kind", [Raising, AsyncRaising])
async def test_exception_becomes_a_failure_with_its_message(kind, error, message, caplog):
    caplog.set_level(logging.CRITICAL, "toolsemble")  # a traceback with half a character cannot leave a test's process
    assert kind(error).execute("x") == ToolResult.failure(message)
    assert await kind(error).aexecute("x") == ToolResult.failure(message)


class OddCodeError(ToolExecutionError):
    @property
    def error_code(self):
        raise ValueError("no code today")

    @error_code.setter
    def error_code(self, _):
        pass


def test_failing_error_code_attribute_is_ignored():
    assert Raising(OddCodeError("down")).execute("x") == ToolResult.failure("down")


def test_async_exception_has_no_extra_context():
    error = ExitEarlyError("enough")
    with pytest.raises(ExitEarlyError):
        AsyncRaising(error).execute("x")
    assert error.__context__ is None


class Pretending:
    """An object that claims to be awaitable."""

    def __getattr__(self, name):
        if name == "__await__":
            return name
        raise AttributeError(name)

    def __str__(self):
        return "pretending"


async def test_only_awaitables_are_awaited():
    tool = Function(lambda _: Pretending())
    assert tool.execute("x").output == (await tool.aexecute("x")).output == '"pretending"'


@pytest.mark.parametrize("context", [{"memory_id": "ada"}, 5])
def test_context_of_another_type_is_a_configuration_error(context):
    with pytest.raises(ToolConfigurationError, match="must be a ToolContext, not"):
        Echo().execute("x", context)


def test_failing_name_property_is_a_definition_error():
    def explode(_):
        raise RuntimeError("no name today")

    kind = type("Bad", (Echo,), {"name": property(explode)})
    with pytest.raises(ToolDefinitionError, match="Bad: no name today"):
        kind().execute("x")


def test_run_must_be_a_method():
    with pytest.raises(ToolDefinitionError, match=r"Bad\.run must be a method, not int"):
        type("Bad", (Echo,), {"run": 5})().execute("x")


def test_context_without_a_logger_works():
    assert Echo().execute("x", ToolContext(logger=None)).output == "x"


@pytest.mark.parametrize("kind", [ToolExecutionError, ToolArgumentsError])
def test_error_code_is_in_the_result_attributes(kind):
    result = Raising(kind("down", error_code=503)).execute("x")
    assert result == ToolResult.failure("down", attributes={"error_code": 503})


PASSING = [
    ExitEarlyError("enough"),
    ToolConfigurationError("no region"),
    asyncio.CancelledError(),
    KeyboardInterrupt(),
    SystemExit(3),
    GeneratorExit(),
    BaseExceptionGroup("some", [KeyboardInterrupt()]),
]


@pytest.mark.parametrize("error", PASSING, ids=lambda error: type(error).__name__)
def test_special_exceptions_are_raised_and_counted(error):
    metrics = InMemoryMetrics()
    with pytest.raises(type(error)) as raised:
        Raising(error).execute("x", ToolContext(metrics=metrics))
    assert raised.value is error
    is_cancellation = isinstance(error, (asyncio.CancelledError, GeneratorExit))
    assert metrics.count("raising", "cancelled" if is_cancellation else "error") == 1
    assert len(metrics.durations("raising")) == int(not is_cancellation)


@pytest.mark.parametrize(
    "error",
    [error for error in PASSING if not isinstance(error, (KeyboardInterrupt, SystemExit, GeneratorExit))],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.parametrize("kind", [Raising, AsyncRaising])
async def test_special_exceptions_are_raised_in_async_code(kind, error):
    with pytest.raises(type(error)):
        await kind(error).aexecute("x")


@pytest.mark.parametrize("error", [ExitEarlyError("enough"), ToolConfigurationError("no region")])
def test_special_exceptions_are_raised_out_of_exception_groups(error):
    group = ExceptionGroup("outer", [ValueError("a"), ExceptionGroup("inner", [KeyError("b"), error])])
    with pytest.raises(type(error)) as raised:
        Raising(group).execute("x")
    assert raised.value is error
    assert raised.value.__cause__ is group


@pytest.mark.parametrize("method", ["execute", "aexecute"])
def test_execute_cannot_be_overridden(method):
    with pytest.raises(TypeError, match=f"Bad overrides {method}, which is final; override run instead"):
        type("Bad", (Echo,), {method: lambda _self, input: input})
    mixin = type("Mixin", (), {method: lambda _self, input: input})
    with pytest.raises(TypeError, match="final"):
        type("Bad", (mixin, Echo), {})


def test_tool_without_run_cannot_be_instantiated():
    with pytest.raises(TypeError, match="run"):
        type("Empty", (Tool,), {"name": "empty", "description": ""})()


@pytest.mark.parametrize(
    ("attributes", "problem"),
    [
        ({}, "no name"),
        ({"name": "  "}, "blank"),
        ({"name": "two words"}, "Invalid tool name 'two words'"),
        ({"name": "x" * 65}, "Invalid tool name"),
        ({"name": "x\n"}, "Invalid tool name"),
        ({"name": 5}, "Invalid tool name 5"),
        ({"name": "ok"}, "description must be a str, not NoneType"),
        ({"name": "ok", "description": "\ud800"}, "description is not valid text"),
    ],
)
def test_definition_error_is_raised_at_the_first_call(attributes, problem):
    kind = type("Bad", (Tool,), {**attributes, "run": lambda _self, input: input})
    with pytest.raises(ToolDefinitionError, match=problem):
        kind().execute("x")


def test_standalone_tool_has_a_default_context():
    tool = Function(lambda _: seen.append(tool.context) or tool.executor.submit(lambda: tool.context.call_id).result())
    seen = []
    output = tool.execute("x").output
    context = seen[0]
    assert (context.tool_name, context.memory_id, context.agent_role) == ("function", "default", "unknown")
    assert context.call_id == output
    assert len(context.call_id) == len(context.run_id) == 16
    assert (context.review, context.deadline, dict(context.parameters)) == (None, None, {})
    assert tool.log.name == "toolsemble.tool.function"
    tool.metrics.increment_counter("silent", "function", "unknown")


def test_tool_has_a_default_context_outside_of_a_call():
    assert Echo().context.tool_name == "echo"
    assert Echo().log is logging.getLogger("toolsemble.tool.echo")
    assert Echo().executor.submit(pow, 2, 3).result(30) == 8


def test_explicit_context_is_current_inside_run():
    seen = []
    tool = Function(lambda _: seen.append((tool.context, tool.log, tool.metrics, tool.executor)))
    with ThreadPoolExecutor(1) as executor:
        context = ToolContext(
            call_id="c1",
            run_id="r1",
            memory_id="ada",
            agent_role="writer",
            logger=logging.getLogger("mine"),
            metrics=InMemoryMetrics(),
            executor=executor,
            deadline=time.monotonic() + 600,
        )
        tool.execute("x", context)
    assert seen == [(dataclasses.replace(context, tool_name="function"), context.logger, context.metrics, executor)]


async def test_blocking_tools_keep_the_context_in_their_worker_thread():
    main = threading.current_thread()
    seen = []
    tool = Function(lambda _: seen.append((tool.context.call_id, threading.current_thread() is main)))
    await tool.aexecute("x", ToolContext(call_id="c1"))
    assert seen == [("c1", False)]


@pytest.mark.parametrize("make_context", [lambda _: None, lambda tool: tool.context])
def test_nested_tool_inherits_the_run_with_its_own_call_id(make_context):
    metrics = InMemoryMetrics()
    contexts = []
    inner = Function(lambda _: contexts.append(inner.context), name="inner")
    outer = Function(lambda _: contexts.append(outer.context) or inner.execute("y", make_context(outer)), name="outer")
    outer.execute("x", ToolContext(memory_id="ada", agent_role="writer", metrics=metrics))
    first, second = contexts
    assert (second.run_id, second.memory_id, second.agent_role) == (first.run_id, "ada", "writer")
    assert second.parameters is first.parameters
    assert (first.tool_name, second.tool_name, second.logger.name) == ("outer", "inner", "toolsemble.tool.inner")
    assert first.call_id != second.call_id
    assert metrics.count("outer", "success") == metrics.count("inner", "success") == 1


def test_context_is_reset_after_the_call():
    tool = Function(lambda _: None)
    tool.execute("x", ToolContext(memory_id="ada"))
    assert tool.context.memory_id == "default"
    with pytest.raises(KeyboardInterrupt):
        Raising(KeyboardInterrupt()).execute("x", ToolContext(memory_id="ada"))
    assert tool.context.memory_id == "default"


def test_tool_can_be_copied_and_pickled():
    for tool in (copy.deepcopy(Echo()), pickle.loads(pickle.dumps(Echo()))):
        assert tool.execute("x").output == "x"


async def answer():
    await asyncio.sleep(0)
    return "answer"


@pytest.mark.parametrize("tool", [Function(lambda _: answer()), Function(functools.partial(lambda _: answer()))])
async def test_coroutine_returned_by_a_sync_body_is_awaited(tool):
    assert tool.execute("x").output == "answer"
    assert (await tool.aexecute("x")).output == "answer"


async def test_async_tool_runs_on_the_current_event_loop():
    async def where(_):
        return str(asyncio.current_task() is here)

    here = asyncio.current_task()
    assert (await AsyncFunction(where).aexecute("x")).output == "True"


async def test_inline_body_runs_on_the_event_loop_thread():
    tool = Function(lambda _: str(threading.current_thread() is threading.main_thread()), inline=True)
    assert (await tool.aexecute("x")).output == "True"


async def test_every_body_sees_the_callers_context_variables():
    tools = [
        Function(lambda _: current.get()),
        Function(lambda _: current.get(), inline=True),
        AsyncFunction(lambda _: _value()),
    ]

    async def _value():
        return current.get()

    token = current.set("mine")
    try:
        for tool in tools:
            assert tool.execute("x").output == "mine"
            assert (await tool.aexecute("x")).output == "mine"
    finally:
        current.reset(token)


def test_event_loop_of_the_program_is_not_changed():
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    try:
        assert AsyncEcho().execute("x").output == "x"
        assert asyncio.get_event_loop() is loop
        assert not loop.is_closed()
    finally:
        asyncio.set_event_loop(None)
        loop.close()


async def test_cancelled_call_is_counted_as_cancelled_and_raises():
    metrics = InMemoryMetrics()
    started = asyncio.Event()

    async def sleep(_):
        started.set()
        await asyncio.sleep(60)

    task = asyncio.create_task(AsyncFunction(sleep).aexecute("x", ToolContext(metrics=metrics)))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (metrics.count("function", "cancelled"), metrics.count("function", "error")) == (1, 0)


def test_leaving_in_another_context_changes_nothing():
    token = enter(ToolContext(tool_name="inner"))
    contextvars.Context().run(leave, token)
    assert current_context().tool_name == "inner"
    leave(token)
    assert current_context() is None


def test_call_can_move_between_contextvars_contexts():
    path = AsyncEcho().aexecute("hi")
    contexts = contextvars.Context(), contextvars.Context()
    contexts[0].run(path.send, None)
    with pytest.raises(StopIteration) as ended:
        contexts[1].run(path.send, None)
    assert ended.value.value.output == "hi"
    assert contexts[1].run(current_context) is None


def test_dropped_coroutine_does_not_change_the_callers_context():
    async def sleep(_):
        await asyncio.sleep(60)

    path = AsyncFunction(sleep).aexecute("x")
    loop = asyncio.new_event_loop()
    context = contextvars.copy_context()
    try:
        asyncio.events._set_running_loop(loop)
        context.run(path.send, None)
    finally:
        asyncio.events._set_running_loop(None)
        loop.close()
    path.close()
    assert Echo().context.call_id == ""
