"""What a program can do before and after each call of a toolbox."""

import asyncio

import pytest

from helpers.sample_tools import Echo, Function, call as call_of
from toolsemble import (
    Agent,
    ExitEarlyError,
    Step,
    Tool,
    Toolbox,
    ToolCall,
    ToolConfigurationError,
    ToolDefinitionError,
    ToolExecutionError,
    ToolPipeline,
    ToolResult,
    map_over,
    tool,
)
from toolsemble._engine.context import current_context
from toolsemble.review import Continue
from toolsemble.testing import CallbackReview, InMemoryMetrics, ScriptedModel

CALL = ToolCall("add", {"a": 1, "b": 2}, "c1")


@tool
def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    return a + b


def to_async(function):
    async def called(*given):
        return function(*given)

    return called


def unchanged(function):
    return function


FORMS = pytest.mark.parametrize("form", [unchanged, to_async], ids=["sync", "async"])


async def all_replies(box, call=CALL):
    """Return the replies to a call on every way in which a box executes it."""
    return [
        box.execute(call),
        *box.execute_all([call]),
        *box.execute_all([call, call]),
        await box.aexecute(call),
        *await box.aexecute_all([call]),
        *await box.aexecute_all([call, call]),
    ]


@FORMS
async def test_hook_returning_none_changes_nothing(form):
    seen = []
    box = Toolbox(
        [add],
        before_call=form(lambda call, context: seen.append((call, context.tool_name, context.call_id))),
        after_call=form(lambda call, result, context: seen.append((call, result, context.tool_name))),
    )
    assert {reply.text for reply in await all_replies(box)} == {"3"}
    assert len(seen) == 16
    assert seen[:2] == [(CALL, "add", "c1"), (CALL, ToolResult.success("3", 3), "add")]


@FORMS
async def test_before_call_can_change_the_arguments(form):
    box = Toolbox([add], before_call=form(lambda call, _: ToolCall(call.name, {**call.arguments, "b": 10})))
    made = await all_replies(box)
    assert {reply.text for reply in made} == {"11"}
    assert {reply.call for reply in made} == {CALL}


@FORMS
async def test_before_call_can_return_a_result(form):
    box = Toolbox([add], before_call=form(lambda *_: ToolResult.success("known")))
    assert {reply.text for reply in await all_replies(box)} == {"known"}


@FORMS
async def test_before_call_can_reject_the_call(form):
    box = Toolbox([add], before_call=form(lambda *_: ToolResult.failure("not on Sundays")))
    assert {reply.text for reply in await all_replies(box)} == {"Error: not on Sundays"}


@FORMS
async def test_after_call_can_change_the_result(form):
    box = Toolbox([add], after_call=form(lambda call, result, _: ToolResult.success(f"= {result.text}")))
    assert {reply.text for reply in await all_replies(box)} == {"= 3"}


HOOKS = ["before_call", "after_call"]


@pytest.mark.parametrize("hook", HOOKS)
@FORMS
async def test_raising_hook_fails_only_its_call(hook, form, caplog):
    def fail(call, *_):
        if call.arguments["a"] == 1:
            raise KeyError("user")

    box = Toolbox([add], **{hook: form(fail)})
    calls = [CALL, ToolCall("add", {"a": 2})]
    texts = [f"Error: The {hook} hook failed: KeyError: 'user'", "3"]
    assert [reply.text for reply in box.execute_all(calls)] == texts
    assert [reply.text for reply in await box.aexecute_all(calls)] == texts
    assert f"The {hook} hook of 'add' failed" in caplog.text


@pytest.mark.parametrize("hook", HOOKS)
@FORMS
async def test_stop_iteration_of_a_hook_has_the_same_message_everywhere(hook, form):
    def fail(*_):
        return next(iter(()))

    box = Toolbox([add], **{hook: form(fail)})
    assert {reply.text for reply in await all_replies(box)} == {
        f"Error: The {hook} hook failed: StopIteration: StopIteration"
    }


@pytest.mark.parametrize("hook", HOOKS)
def test_declared_error_of_a_hook_keeps_its_message(hook):
    def fail(*_):
        raise ToolExecutionError("not on Sundays", error_code=7)

    reply = Toolbox([add], **{hook: fail}).execute(CALL)
    assert (reply.text, reply.result.attributes["error_code"]) == ("Error: not on Sundays", 7)


@pytest.mark.parametrize("hook", HOOKS)
@pytest.mark.parametrize("error", [ExitEarlyError("enough"), ToolConfigurationError("no region"), KeyboardInterrupt()])
@pytest.mark.parametrize("grouped", [False, True])
def test_hook_can_raise_exceptions_for_the_caller(hook, error, grouped):
    def fail(*_):
        if grouped and isinstance(error, Exception):
            raise ExceptionGroup("several", [error])
        raise error

    metrics = InMemoryMetrics()
    with pytest.raises(type(error)):
        Toolbox([add], metrics=metrics, **{hook: fail}).execute(CALL)
    assert metrics.count("add", "error") == 1


@pytest.mark.parametrize(
    ("hook", "given", "text"),
    [
        ("before_call", True, "The before_call hook must return None, a ToolCall or a ToolResult, not bool"),
        ("before_call", "no", "The before_call hook must return None, a ToolCall or a ToolResult, not str"),
        ("after_call", CALL, "The after_call hook must return None or a ToolResult, not ToolCall"),
        ("after_call", "3", "The after_call hook must return None or a ToolResult, not str"),
        (
            "before_call",
            ToolCall("delete"),
            "The before_call hook returned a call of 'delete' in place of 'add'; it can change the arguments only",
        ),
    ],
)
def test_rejects_invalid_return_value_of_a_hook(hook, given, text):
    assert Toolbox([add], **{hook: lambda *_: given}).execute(CALL).text == f"Error: {text}"


@pytest.mark.parametrize("hook", HOOKS)
def test_uncallable_hook_is_a_definition_error(hook):
    with pytest.raises(ToolDefinitionError, match=f"Toolbox {hook} must be a function"):
        Toolbox([add], **{hook: "log"})


def test_changed_arguments_are_validated_repaired_and_approved():
    asked = []

    def approve(request):
        asked.append((request.arguments, [repair["to"] for repair in request.repairs]))
        return Continue()

    box = Toolbox(
        [add],
        approve=["add"],
        review=CallbackReview(approve),
        before_call=lambda call, _: ToolCall(call.name, '{"a": "5", "b": 2}'),
    )
    assert box.execute(CALL).text == "7"
    assert asked == [({"a": 5, "b": 2}, [5])]


def test_invalid_changed_arguments_fail_the_call():
    box = Toolbox([add], before_call=lambda call, _: ToolCall(call.name, {"a": []}))
    assert box.execute(CALL).text == "Error: Invalid arguments for 'add': a: expected an integer"


def test_result_of_before_call_needs_no_approval():
    box = Toolbox([add], approve=["add"], before_call=lambda *_: ToolResult.success("known"))
    assert box.execute(CALL).text == "known"


def test_after_call_sees_every_call_and_result():
    seen = []

    def fail(_):
        raise ValueError("broken")

    box = Toolbox(
        [add, Function(fail, "broken")],
        before_call=lambda call, _: ToolResult.failure("no") if call.id == "veto" else None,
        after_call=lambda call, result, _: seen.append((call.name, result.text)),
    )
    box.execute(ToolCall("add", "{}", "veto"))
    box.execute(ToolCall("add", "{"))
    box.execute(ToolCall("nothing"))
    box.execute(ToolCall("broken", {"input": "x"}))
    assert [name for name, _ in seen] == ["add", "add", "nothing", "broken"]
    assert seen[0][1] == "Error: no"
    assert seen[2][1].startswith("Error: Unknown tool 'nothing'")
    assert seen[3][1] == "Error: broken"


def test_before_call_can_answer_for_an_unknown_tool():
    box = Toolbox([add], before_call=lambda call, _: ToolResult.success(f"no {call.name}"))
    assert box.execute(ToolCall("subtract")).text == "no subtract"


def test_pipeline_continues_after_a_hook_replaced_a_failure():
    def fail(_):
        raise ValueError("broken")

    line = ToolPipeline("line", "Fails, then repeats", [Function(fail, "broken"), Echo()])
    box = Toolbox(
        [line], after_call=lambda call, result, _: ToolResult.success("mended") if call.name == "broken" else None
    )
    assert box.execute(ToolCall("line", {"input": "x"})).text == "mended"


def test_metrics_and_events_have_the_results_of_hooks():
    metrics, seen = InMemoryMetrics(), []
    box = Toolbox([add], metrics=metrics, sinks=[seen.append], before_call=lambda *_: ToolResult.failure("no"))
    box.execute(CALL)
    assert (metrics.count("add", "failure"), seen[-1].text) == (1, "Error: no")


class TestSteps:
    """A tool does not get around a hook by standing in a pipeline."""

    def test_hooks_run_for_every_step(self):
        seen = []
        line = ToolPipeline("line", "Adds, then repeats", [Step(add), Step(Echo())])
        box = Toolbox([line], before_call=lambda call, _: seen.append(call))
        assert box.execute(ToolCall("line", {"a": 1}, "c1")).text == "2"
        assert seen == [
            ToolCall("line", {"a": 1}, "c1"),
            ToolCall("add", {"a": 1, "b": 1}, "c1.1"),
            ToolCall("echo", {"input": "2"}, "c1.2"),
        ]

    def test_before_call_can_reject_a_step(self):
        def veto(call, _):
            return ToolResult.failure("never") if call.name == "echo" else None

        line = ToolPipeline("line", "Adds, then repeats", [add, Echo()])
        reply = Toolbox([line], before_call=veto).execute(ToolCall("line", {"a": 1}))
        assert reply.text == "Error: never"

    def test_before_call_can_change_the_arguments_of_a_step(self):
        def change(call, _):
            return ToolCall("echo", {"input": "other"}) if call.name == "echo" else None

        line = ToolPipeline("line", "Adds, then repeats", [add, Echo()])
        assert Toolbox([line], before_call=change).execute(ToolCall("line", {"a": 1})).text == "other"

    def test_hooks_do_not_run_for_a_step_with_invalid_arguments(self):
        seen = []
        line = ToolPipeline("line", "Repeats, then adds", [Echo(), Step(add, lambda _: {"a": "x"})])
        box = Toolbox([line], after_call=lambda call, result, _: seen.append(call.name))
        assert not box.execute(ToolCall("line", {"input": "x"})).result.is_success
        assert seen == ["echo", "line"]

    def test_hooks_run_for_every_item(self):
        seen = []
        box = Toolbox([map_over(Echo(), name="each")], before_call=lambda call, _: seen.append(call.name))
        assert box.execute(ToolCall("each", {"items": ["a", "b"]})).text == '["a","b"]'
        assert seen == ["each", "echo", "echo"]

    def test_hooks_do_not_run_for_calls_made_by_a_body(self):
        class Outer(Tool):
            name = "outer"
            description = "Uses another tool"

            def run(self, input):
                return Echo().execute(input)

        seen = []
        box = Toolbox([Outer()], before_call=lambda call, _: seen.append(call.name))
        assert box.execute(ToolCall("outer", {"input": "x"})).text == "x"
        assert seen == ["outer"]


def test_hooks_of_a_toolbox_apply_to_its_agent():
    box = Toolbox([add], before_call=lambda *_: ToolResult.failure("not on Sundays"))
    result = Agent(ScriptedModel([CALL, "done"]), box).run_sync("go")
    assert [record.reply.text for record in result.tool_calls] == ["Error: not on Sundays"]


def test_dry_run_runs_hooks_and_no_body():
    ran, seen = [], []
    box = Toolbox([Function(ran.append)], before_call=lambda call, _: seen.append(call.name))
    reply = box.execute(ToolCall("function", {"input": "x"}), dry_run=True)
    assert (reply.text, ran, seen) == ("Dry run: 'function' was not run", [], ["function"])


def test_call_dropped_inside_a_hook_does_not_change_the_callers_context():
    async def hook(call, context):
        await asyncio.get_running_loop().create_future()

    async def begin():
        task = asyncio.ensure_future(Toolbox([Echo()], before_call=hook).aexecute(call_of("echo")))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        task._log_destroy_pending = False
        return task.get_coro()

    loop = asyncio.new_event_loop()
    path = loop.run_until_complete(begin())
    loop.close()
    path.close()
    assert current_context() is None
