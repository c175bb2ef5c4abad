import asyncio
import functools
import re
import threading
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import pytest

from helpers.sample_tools import AsyncEcho, AsyncFunction, Echo, Function, Plain, Raising, call
from toolsemble import (
    InMemoryMetrics,
    InvocationParameters,
    Toolbox,
    ToolCall,
    ToolConfigurationError,
    ToolContext,
    ToolDefinitionError,
    ToolReply,
    ToolResult,
    tool,
)
from toolsemble._vocabulary.call import received_call
from toolsemble.review import AutoApprove


def make_bad_tool(**attributes):
    return type("Bad", (), {"execute": lambda _self, input: input, "description": "", **attributes})()


def raise_no_name(_):
    raise RuntimeError("no name today")


class TestTools:
    def test_keeps_tools_in_registration_order(self):
        tools = [Plain(), Echo(), AsyncEcho()]
        box = Toolbox(iter(tools))
        assert box.names == ["plain", "echo", "async_echo"]
        assert list(box) == tools
        assert len(box) == 3
        assert "echo" in box
        assert "unknown" not in box
        assert box["echo"] is tools[1]
        assert repr(box) == "Toolbox(plain, echo, async_echo)"
        with pytest.raises(KeyError):
            box["unknown"]

    async def test_toolbox_can_be_empty(self):
        box = Toolbox([])
        assert await box.aexecute_all([]) == []
        assert (len(box), box.names, box.specifications, box.execute_all([])) == (0, [], [], [])
        assert box.execute(ToolCall("x")).text == "Error: Unknown tool 'x'. Available tools: none"

    def test_toolbox_is_immutable(self):
        box = Toolbox([Echo()])
        box.names.append("other")
        box.specifications.clear()
        assert box.names == ["echo"]
        assert len(box.specifications) == 1
        for attribute in ("names", "specifications", "tools", "anything"):
            with pytest.raises(AttributeError):
                setattr(box, attribute, [])

    def test_later_changes_of_a_tool_do_not_change_the_toolbox(self):
        tool = Function(str.upper, name="shout")
        box = Toolbox([tool])
        tool.name = "whisper"
        assert box.names == ["shout"]
        assert box.execute(call("shout")).text == "HI"

    def test_string_tool_has_one_parameter(self):
        (specification,) = Toolbox([Plain()]).specifications
        assert (specification.name, specification.description) == ("plain", "Repeats its input, plainly")
        assert specification.parameters == {
            "type": "object",
            "properties": {"input": {"type": "string", "description": "The input to pass to the tool"}},
            "required": ["input"],
        }

    def test_specifications_are_built_once(self):
        box = Toolbox([Echo()])
        assert box.specifications[0] is box.specifications[0]

    @pytest.mark.parametrize(
        ("tool", "problem"),
        [
            (None, "Tool at index 0 is None; pass a tool object"),
            (object(), "Tool at index 0 (object) is neither an AgentTool nor has @tool methods"),
            (5, "Tool at index 0 (int) is neither an AgentTool nor has @tool methods"),
            (Echo, "Tool at index 0 (Echo) is a class; pass an instance: Echo(...)"),
            (object, "Tool at index 0 (object) is a class; pass an instance: object(...)"),
            (
                make_bad_tool(name=""),
                "Tool at index 0 (Bad): Invalid tool name: it is blank; use 1 to 64 letters, digits, '_' or '-'",
            ),
            (
                make_bad_tool(name="a b"),
                "Tool at index 0 (Bad): Invalid tool name 'a b': use 1 to 64 letters, digits, '_' or '-'",
            ),
            (
                make_bad_tool(name="ok", description=None),
                "Tool at index 0 (Bad): Tool 'ok': description must be a str, not NoneType",
            ),
            (make_bad_tool(name=property(raise_no_name)), "Tool at index 0 (Bad): no name today"),
            (
                make_bad_tool(name="ok", execute=5),
                "Tool at index 0 (Bad) is neither an AgentTool nor has @tool methods",
            ),
        ],
    )
    def test_invalid_tool_error_names_its_index(self, tool, problem):
        with pytest.raises(ToolDefinitionError) as refused:
            Toolbox([tool])
        assert str(refused.value) == problem

    @pytest.mark.parametrize("name", ["x", "A-b_9", "x" * 64])
    def test_accepts_valid_names(self, name):
        assert Toolbox([make_bad_tool(name=name)]).names == [name]

    @pytest.mark.parametrize("name", ["x" * 65, "ä", "a.b", "a/b", "x\n", " x", "\x00", None, 5])
    def test_rejects_invalid_names(self, name):
        with pytest.raises(ToolDefinitionError, match=r"[Nn]ame"):
            Toolbox([make_bad_tool(name=name)])

    def test_rejects_duplicate_names(self):
        with pytest.raises(ToolDefinitionError) as refused:
            Toolbox([Echo(), Plain(), Echo(), Echo()])
        assert str(refused.value).startswith("Duplicate tool name: 'echo'; rename one of them")

    def test_reports_all_invalid_tools_at_once(self):
        with pytest.raises(ToolDefinitionError) as refused:
            Toolbox([Echo(), None, object(), Echo(), Plain, make_bad_tool(name="a b")])
        assert [line.partition("; rename")[0] for line in str(refused.value).splitlines()] == [
            "Tool at index 1 is None; pass a tool object",
            "Tool at index 2 (object) is neither an AgentTool nor has @tool methods",
            "Duplicate tool name: 'echo'",
            "Tool at index 4 (Plain) is a class; pass an instance: Plain(...)",
            "Tool at index 5 (Bad): Invalid tool name 'a b': use 1 to 64 letters, digits, '_' or '-'",
        ]

    @pytest.mark.parametrize("tools", [None, Echo(), "echo", {"echo": Echo()}, 5])
    def test_tools_must_be_a_list(self, tools):
        with pytest.raises(ToolDefinitionError, match="A toolbox takes a list of tools"):
            Toolbox(tools)

    @pytest.mark.parametrize(
        "setting",
        [
            {"max_concurrency": 0},
            {"max_concurrency": 1.5},
            {"max_concurrency": True},
            {"max_output": -1},
            {"log_limit": "many"},
            {"log_limit": None},
        ],
    )
    def test_invalid_setting_error_names_it(self, setting):
        (name,) = setting
        with pytest.raises(ToolDefinitionError, match=f"Toolbox {name} must be an int"):
            Toolbox([], **setting)

    @pytest.mark.parametrize(
        ("setting", "message"),
        [
            (
                {"review": "x"},
                (
                    "Toolbox review must be a ReviewHandler: an object with a method review(request), such as "
                    "CallbackReview(function), not 'x'"
                ),
            ),
            ({"review": print}, "Toolbox review must be a ReviewHandler"),
            ({"review": AutoApprove}, "Toolbox review must be a ReviewHandler"),
            ({"memory_id": 5}, "Toolbox memory_id must be a str, not 5"),
            ({"agent_role": None}, "Toolbox agent_role must be a str, not None"),
            ({"approval_timeout": "x"}, "Toolbox: approval_timeout must be a number of seconds >= 0, or None, not 'x'"),
            ({"approval_on_timeout": "fail"}, "Toolbox: approval_on_timeout must be an OnTimeout, not 'fail'"),
            ({"approval_role": 5}, "Toolbox: approval_role must be a str or None, not 5"),
            ({"repair": 5}, "Toolbox repair must be True, False or names of steps, not 5"),
            ({"repair": None}, "Toolbox repair must be True, False or names of steps, not None"),
            ({"repair": ["text", ["null"]]}, "Toolbox repair must be True, False or names of steps, not ['text', ["),
            ({"repair": ["texts"]}, "Toolbox repair: unknown step 'texts'"),
        ],
    )
    def test_setting_of_wrong_type_error_names_the_expected_type(self, setting, message):
        with pytest.raises(ToolDefinitionError, match=re.escape(message)):
            Toolbox([], **setting)


class TestCalls:
    def test_reply_has_its_call(self):
        asked = call(id="7")
        assert Toolbox([Echo()]).execute(asked) == ToolReply(asked, ToolResult.success("hi"))

    @pytest.mark.parametrize("tool", [Echo(), AsyncEcho(), Plain()])
    async def test_every_kind_of_tool_runs_in_sync_and_async_code(self, tool):
        box = Toolbox([tool])
        assert box.execute(call(tool.name)).text == "hi"
        assert (await box.aexecute(call(tool.name))).text == "hi"
        assert [reply.text for reply in box.execute_all([call(tool.name)] * 2)] == ["hi", "hi"]
        assert [reply.text for reply in await box.aexecute_all([call(tool.name)] * 2)] == ["hi", "hi"]

    def test_plain_object_can_be_async(self):
        async def execute(input):
            return ToolResult.success(input)

        assert Toolbox([make_bad_tool(name="plain", execute=staticmethod(execute))]).execute(call("plain")).text == "hi"

    def test_execute_of_a_plain_object_can_be_a_callable_object(self):
        class Callable:
            async def __call__(self, input):
                await asyncio.sleep(0)
                return f"{input} {threading.current_thread() is threading.main_thread()}"

        box = Toolbox([make_bad_tool(name="plain", execute=Callable())])
        assert asyncio.run(box.aexecute(call("plain"))).text == "hi True"

    @pytest.mark.parametrize(
        ("returned", "result"),
        [(None, ToolResult.success("")), ("text", ToolResult.success("text")), (5, ToolResult.success("5", 5))],
    )
    def test_plain_objects_can_return_any_result(self, returned, result):
        box = Toolbox([make_bad_tool(name="plain", execute=lambda _self, _input: returned)])
        assert box.execute(call("plain")).result == result

    def test_plain_objects_have_exception_handling_and_metrics(self):
        def explode(_self, _input):
            raise ValueError("boom")

        metrics = InMemoryMetrics()
        box = Toolbox([make_bad_tool(name="bad", execute=explode), Plain()], metrics=metrics)
        assert box.execute(call("bad")).text == "Error: boom"
        assert box.execute(call("plain")).text == "hi"
        assert metrics.count("bad", "error") == metrics.count("plain", "success") == 1

    @pytest.mark.parametrize(
        ("name", "hint"),
        [("ecko", ". Did you mean 'echo'?"), ("async_echo_", ". Did you mean 'async_echo'?"), ("weather", "")],
    )
    def test_unknown_name_error_lists_the_tools(self, name, hint):
        reply = Toolbox([Echo(), AsyncEcho(), Plain()]).execute(ToolCall(name))
        assert reply.text == f"Error: Unknown tool '{name}'. Available tools: echo, async_echo, plain{hint}"
        assert reply.is_error

    @pytest.mark.parametrize("name", ["x" * 1_000_000, "", "a\nb", "\ud800"])
    def test_hostile_name_is_truncated_in_the_error(self, name):
        text = Toolbox([Echo()]).execute(received_call(name)).text
        assert text.startswith("Error: Unknown tool '")
        assert len(text) < 200
        assert text.isprintable()

    def test_long_list_of_names_is_truncated(self):
        box = Toolbox([make_bad_tool(name=f"tool_{number}") for number in range(1000)])
        assert box.execute(ToolCall("weather")).text.endswith("tool_49 and 950 more")

    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("name", "near"), [("tool_9x87", "tool_987"), ("TOOL-12", "tool_12"), ("tol_999", "tool_999")]
    )
    def test_unknown_name_error_suggests_the_nearest_name(self, name, near):
        box = Toolbox([make_bad_tool(name=f"tool_{number}") for number in range(1000)])
        assert box.execute(ToolCall(name)).text.endswith(f". Did you mean '{near}'?")

    def test_unknown_names_share_one_metric(self):
        metrics = InMemoryMetrics()
        Toolbox([], metrics=metrics).execute(ToolCall("made_up"))
        assert metrics.count("(unknown)", "failure") == 1

    @pytest.mark.parametrize("thing", [None, {"name": "echo"}, "echo"])
    def test_rejects_values_that_are_not_calls(self, thing):
        with pytest.raises(ToolConfigurationError, match="A toolbox executes ToolCall objects"):
            Toolbox([Echo()]).execute(thing)

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"run_id": 5}, "The run_id of a call must be a str, not 5"),
            ({"memory_id": 5}, "The memory_id of a call must be a str, not 5"),
            (
                {"parameters": 5},
                "The parameters of a call must be a mutable mapping such as {'user': 'ada'}, not 5",
            ),
        ],
    )
    async def test_rejects_call_options_of_wrong_type(self, options, message):
        box = Toolbox([Echo()])
        for attempt in (box.execute, box.execute_all):
            with pytest.raises(TypeError, match=re.escape(message)):
                attempt([call()], **options)
        for attempt in (box.aexecute, box.aexecute_all):
            with pytest.raises(TypeError, match=re.escape(message)):
                await attempt([call()], **options)

    @pytest.mark.parametrize("thing", [call(), None, 5])
    async def test_execute_all_takes_a_list_of_calls(self, thing):
        box = Toolbox([Echo()])
        with pytest.raises(TypeError, match=r"The calls of a turn must be a list of ToolCall objects, not "):
            box.execute_all(thing)
        with pytest.raises(TypeError, match=r"The calls of a turn must be a list of ToolCall objects, not "):
            await box.aexecute_all(thing)

    def test_only_the_text_for_the_model_is_truncated(self):
        reply = Toolbox([Echo()], max_output=3).execute(call(text="0123456789"))
        assert reply.text == "012... [truncated, full length: 10 chars]"
        assert reply.result.output == "0123456789"

    def test_metrics_distinguish_success_failure_and_error(self):
        metrics = InMemoryMetrics()
        box = Toolbox(
            [Echo(), Function(lambda _: ToolResult.failure("no")), Raising(ValueError("boom"))],
            metrics=metrics,
            agent_role="writer",
        )
        for name in ("echo", "function", "raising"):
            box.execute(call(name))
        box.execute(ToolCall("echo", "no json"))
        table = {
            name: tuple(metrics.count(name, outcome, "writer") for outcome in ("success", "failure", "error"))
            for name in box.names
        }
        assert table == {"echo": (1, 1, 0), "function": (0, 1, 0), "raising": (0, 0, 1)}
        assert [len(metrics.durations(name)) for name in box.names] == [2, 1, 1]


class TestContext:
    def test_context_has_the_settings_of_toolbox_and_call(self):
        seen = []
        tool = Function(lambda _: seen.append(tool.context))
        metrics, review = InMemoryMetrics(), AutoApprove()
        with ThreadPoolExecutor(1) as executor:
            box = Toolbox(
                [tool], metrics=metrics, review=review, executor=executor, memory_id="ada", agent_role="writer"
            )
            box.execute(call("function", id="c1"), parameters={"user": 7}, run_id="r1")
            box.execute(call("function"), memory_id="bob")
        first, second = seen
        assert (first.tool_name, first.call_id, first.run_id) == ("function", "c1", "r1")
        assert (first.memory_id, first.agent_role, first.logger.name) == ("ada", "writer", "toolsemble.tool.function")
        assert (first.metrics, first.review, first.executor) == (metrics, review, executor)
        assert (dict(first.parameters), first.deadline) == ({"user": 7}, None)
        assert second.memory_id == "bob"
        assert second.call_id != second.run_id != first.run_id

    def test_tool_in_two_toolboxes_sees_the_context_of_each_call(self):
        meeting = threading.Barrier(2, timeout=30)

        def use(_):
            before = (tool.context.memory_id, tool.metrics, tool.context.review)
            meeting.wait()
            tool.metrics.increment_counter("used", "function", tool.context.agent_role)
            return "same" if before == (tool.context.memory_id, tool.metrics, tool.context.review) else "mixed"

        tool = Function(use)
        metrics = [InMemoryMetrics(), InMemoryMetrics()]
        boxes = [
            Toolbox([tool], metrics=each, review=AutoApprove(), memory_id=str(number), agent_role=str(number))
            for number, each in enumerate(metrics)
        ]
        with ThreadPoolExecutor(2) as threads:
            replies = list(threads.map(lambda box: box.execute(call("function")), boxes))
        assert [reply.text for reply in replies] == ["same", "same"]
        for number, each in enumerate(metrics):
            assert each.counter("used", "function") == each.counter("used", "function", str(number)) == 1

    def test_calls_share_and_change_the_parameters(self):
        def count(_):
            tool.context.parameters["count"] = tool.context.parameters.get("count", 0) + 1

        tool = Function(count)
        box = Toolbox([tool])
        mine = {"count": 5}
        box.execute(call("function"), parameters=mine)
        shared = InvocationParameters(mine)
        box.execute_all([call("function"), call("function")], parameters=shared)
        assert mine == {"count": 8}
        del shared["count"]
        assert (mine, len(shared), repr(shared)) == ({}, 0, "InvocationParameters({})")

    async def test_tools_get_the_deps_of_their_calls(self):
        @tool
        def look(context: ToolContext[str | None]) -> str:
            """Tell the dependencies."""
            return context.deps or "none"

        box, one = Toolbox([look]), call("look")
        replies = [
            box.execute(one, deps="a"),
            await box.aexecute(one, deps="b"),
            *box.execute_all([one, one], deps="c"),
            *await box.aexecute_all([one, one], deps="d"),
            *box.execute_all([one], deps="e"),
            box.execute(one),
        ]
        assert [reply.text for reply in replies] == ["a", "b", "c", "c", "d", "d", "e", "none"]

    def test_a_nested_call_inherits_the_deps_unless_it_has_its_own(self):
        @tool
        def inner(context: ToolContext[str]) -> str:
            """Tell the dependencies."""
            return context.deps

        @tool
        def outer() -> str:
            """Call the inner tool twice."""
            box = Toolbox([inner])
            return box.execute(call("inner")).text + box.execute(call("inner"), deps="own").text

        assert Toolbox([outer]).execute(call("outer"), deps="outer ").text == "outer own"

    def test_each_turn_has_its_own_run_id(self):
        tool = Function(lambda _: tool.context.run_id)
        box = Toolbox([tool])
        first = {reply.text for reply in box.execute_all([call("function")] * 3)}
        second = {reply.text for reply in box.execute_all([call("function")] * 3)}
        assert (len(first), len(second), len(first | second)) == (1, 1, 2)

    def test_nested_toolbox_shares_the_run_and_keeps_its_settings(self):
        inner = Function(lambda _: f"{inner.context.run_id} {inner.context.memory_id}", name="inner")
        box = Toolbox([inner], memory_id="inner")
        outer = Function(lambda _: f"{outer.context.run_id} {box.execute(call('inner')).text}", name="outer")
        run, inner_run, memory = Toolbox([outer], memory_id="outer").execute(call("outer")).text.split()
        assert (inner_run, memory) == (run, "inner")


class TestExecutors:
    async def test_blocking_tools_run_in_the_executor(self):
        tool = Function(lambda _: threading.current_thread().name)
        with ThreadPoolExecutor(2, "mine") as executor:
            box = Toolbox([tool], executor=executor)
            one = await box.aexecute(call("function"))
            many = await box.aexecute_all([call("function")] * 3)
        assert all(reply.text.startswith("mine") for reply in [one, *many])

    def test_sync_turn_uses_the_executor(self):
        tool = Function(lambda _: threading.current_thread().name)
        with ThreadPoolExecutor(2, "mine") as executor:
            replies = Toolbox([tool], executor=executor).execute_all([call("function")] * 3)
        assert all(reply.text.startswith("mine") for reply in replies)

    def test_single_call_runs_in_the_callers_thread(self):
        here = threading.current_thread().name
        tool = Function(lambda _: threading.current_thread().name)
        box = Toolbox([tool])
        assert box.execute(call("function")).text == here
        assert [reply.text for reply in box.execute_all([call("function")])] == [here]

    def test_bodies_can_run_in_a_process_pool(self):
        with ProcessPoolExecutor(1) as executor:
            box = Toolbox([InProcess()], executor=executor, memory_id="ada", metrics=InMemoryMetrics())
            replies = box.execute_all([call("in_process", "a", id="1"), call("in_process", "boom", id="2")])
        assert [reply.text for reply in replies] == ["a ada 1 in_process", "Error: boom"]

    async def test_closed_executor_is_a_failure(self):
        executor = ThreadPoolExecutor(1)
        executor.shutdown()
        reply = await Toolbox([Echo()], executor=executor).aexecute(call())
        assert reply.text == "Error: cannot schedule new futures after shutdown"

    def test_submitted_work_sees_the_tools_context(self):
        tool = Function(lambda _: tool.executor.submit(lambda: tool.context.call_id).result(30))
        assert Toolbox([tool]).execute(call("function", id="c1")).text == "c1"


class InProcess(Echo):
    name = "in_process"

    def run(self, input):
        if input == "boom":
            raise ValueError("boom")
        self.metrics.increment_counter("silent", self.name, "unknown")
        return f"{input} {self.context.memory_id} {self.context.call_id} {self.context.logger.name.split('.')[-1]}"


def make_nested_tool(box_of, width):
    """A tool whose body executes a turn of calls of itself, as deep as its input says."""

    def run(input):
        level = int(input)
        if level == 0:
            return "1"
        replies = box_of().execute_all([call("function", str(level - 1))] * width)
        return str(sum(int(reply.text) for reply in replies))

    return Function(run)


@pytest.mark.parametrize("settings", [{}, {"max_concurrency": 1}, {"executor": 1}])
def test_nested_calls_do_not_deadlock(settings):
    with ThreadPoolExecutor(1) as executor:
        settings = {"executor": executor} if "executor" in settings else settings
        boxes = []
        boxes.append(Toolbox([make_nested_tool(functools.partial(boxes.__getitem__, 0), width=3)], **settings))
        replies = boxes[0].execute_all([call("function", "2")] * 3)
    assert [reply.text for reply in replies] == ["9"] * 3


async def test_nested_async_calls_do_not_deadlock():
    async def run(input):
        replies = await box.aexecute_all([call("function", str(int(input) - 1))] * 3) if int(input) else []
        return str(sum(int(reply.text) for reply in replies) or 1)

    box = Toolbox([AsyncFunction(run)], max_concurrency=1)
    assert (await box.aexecute(call("function", "2"))).text == "9"
