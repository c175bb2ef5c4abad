"""``error_kind``: programs tell failures apart by it, models never see it."""

import asyncio
import json
import pickle
import threading
from dataclasses import replace

import pytest

from toolsemble import (
    Agent,
    Continue,
    EffectLedger,
    Idempotency,
    OnTimeout,
    RateLimit,
    ReviewTimeoutError,
    RunJournal,
    Step,
    ToolArgumentsError,
    Toolbox,
    ToolCall,
    ToolExecutionError,
    ToolPipeline,
    ToolReply,
    ToolResult,
    fan_out,
    tool,
)
from toolsemble.events import CallFinished
from toolsemble.models import ScriptedModel, ToolMessage, message_from_json, message_to_json
from toolsemble.review import AutoReject
from toolsemble.testing import RecordingSink

PROVIDERS = ("openai", "anthropic", "google", "bedrock", "mistral", "ollama", "mcp")
KINDS = ("unknown_tool", "json", "arguments", "rejected", "timeout", "limit", "unknown_outcome", "execution")


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool
def fail(how: str) -> str:
    """Fail in some way."""
    raise {
        "value": ValueError("no"),
        "declared": ToolExecutionError("no"),
        "arguments": ToolArgumentsError("no such city"),
        "timeout": TimeoutError("too slow"),
        "review": ReviewTimeoutError("no answer"),
    }[how]


@tool(requires_approval=True)
def delete(path: str) -> str:
    """Delete a file."""
    return path


@tool(timeout=0.01)
async def sleep() -> str:
    """Sleep until the time is up."""
    await asyncio.Event().wait()
    return ""


@tool
def refuse(kind: str) -> ToolResult:
    """Return a failure of a kind."""
    return ToolResult.failure("no", error_kind=kind)


BOX = Toolbox([add, fail, delete, sleep, refuse], review=AutoReject("not today"))


@pytest.mark.parametrize(
    ("name", "arguments", "kind"),
    [
        ("add", '{"a": 1, "b": 2}', None),
        ("wether", "{}", "unknown_tool"),
        ("add", '{"a": 1, "b": ', "json"),
        ("add", "[1]", "arguments"),
        ("add", '{"a": 1}', "arguments"),
        ("add", '{"a": 1, "b": "many"}', "arguments"),
        ("delete", '{"path": "a"}', "rejected"),
        ("sleep", "{}", "timeout"),
        ("fail", '{"how": "value"}', "execution"),
        ("fail", '{"how": "declared"}', "execution"),
        ("fail", '{"how": "arguments"}', "arguments"),
        ("fail", '{"how": "timeout"}', "timeout"),
        ("fail", '{"how": "review"}', "rejected"),
        ("refuse", '{"kind": "limit"}', "limit"),
    ],
)
def test_reply_and_event_say_why_a_call_failed(name, arguments, kind):
    sink = RecordingSink()
    reply = Toolbox(BOX, review=AutoReject("not today"), sinks=[sink]).execute(ToolCall(name, arguments))
    (event,) = [event for event in sink.events if isinstance(event, CallFinished)]
    assert (reply.error_kind, reply.result.error_kind, event.error_kind) == (kind, kind, kind)
    assert "error_kind" not in json.dumps([reply.to_provider(each) for each in PROVIDERS])


def test_unknown_errors_keep_their_kind_when_they_are_hidden():
    box = Toolbox([fail], expose_errors="declared")
    assert box.execute(ToolCall("fail", {"how": "timeout"})).error_kind == "timeout"
    assert box.execute(ToolCall("fail", {"how": "value"})).error_kind == "execution"


@pytest.mark.parametrize("kind", KINDS)
def test_kind_survives_replace_pickle_messages_and_processes(kind):
    result = ToolResult.failure("no", error_kind=kind)
    message = ToolMessage(ToolReply(ToolCall("add"), result))
    assert replace(result, attributes={"a": 1}).error_kind == kind
    assert pickle.loads(pickle.dumps(result)).error_kind == kind
    assert message_from_json(message_to_json(message)).reply.error_kind == kind


def test_success_made_of_a_failure_has_no_kind():
    assert replace(ToolResult.failure("no", error_kind="limit"), error_message=None).error_kind is None
    assert replace(ToolResult.success("yes"), error_message="no").error_kind == "execution"


def test_kind_is_shown_unless_it_is_execution_and_is_not_compared():
    limit = ToolResult.failure("no", error_kind="limit")
    assert repr(limit) == "ToolResult.failure('no', error_kind='limit')"
    assert repr(ToolResult.failure("no")) == "ToolResult.failure('no')"
    assert limit == ToolResult.failure("no")
    assert hash(limit) == hash(ToolResult.failure("no"))


def test_unknown_kind_is_refused():
    with pytest.raises(ValueError, match=r"error_kind must be one of unknown_tool, json, .*, not 'moonphase'"):
        ToolResult.failure("no", error_kind="moonphase")


def test_unknown_kind_in_a_stored_message_reads_as_execution():
    fields = json.loads(message_to_json(ToolMessage(ToolReply(ToolCall("add"), ToolResult.failure("no")))))
    assert message_from_json(json.dumps({**fields, "error_kind": "moonphase"})).reply.error_kind == "execution"
    assert message_from_json(json.dumps({**fields, "error_kind": ["json"]})).reply.error_kind == "execution"


def test_pipeline_has_the_kind_of_the_step_that_failed():
    pipeline = ToolPipeline("both", "Add, then fail.", [Step(add, lambda _: {"kind": "limit"}), refuse])
    assert pipeline.execute({"a": 1, "b": 2}).error_kind == "limit"
    assert ToolPipeline.of(refuse, name="one").execute({"kind": "json"}).error_kind == "json"


def test_pipeline_whose_time_is_up_has_the_kind_timeout():
    assert Toolbox([ToolPipeline.of(sleep, name="slow")]).execute(ToolCall("slow")).error_kind == "timeout"


def test_branches_that_fail_alike_give_their_kind():
    @tool
    def limit_1() -> ToolResult:
        return ToolResult.failure("a", error_kind="limit")

    @tool
    def limit_2() -> ToolResult:
        return ToolResult.failure("b", error_kind="limit")

    @tool
    def other() -> ToolResult:
        return ToolResult.failure("c", error_kind="timeout")

    assert fan_out(limit_1, limit_2).execute({}).error_kind == "limit"
    assert fan_out(limit_1, other).execute({}).error_kind == "execution"


def test_used_up_rate_is_a_limit():
    @tool(rate_limit=RateLimit(1, per=60), timeout=5)
    def ping() -> str:
        return "pong"

    box = Toolbox([ping])
    assert box.execute(ToolCall("ping")).error_kind is None
    assert box.execute(ToolCall("ping")).error_kind == "limit"


def test_agents_that_are_nested_too_deep_are_a_limit():
    inner = Agent(ScriptedModel(["never"]), role="inner")
    box_of_outer = [inner.as_tool("ask", "Ask.")]
    outer = Agent(ScriptedModel([ToolCall("ask", {"input": "?"}), "done"]), box_of_outer, max_depth=0)
    (record,) = outer.run_sync("go").tool_calls
    assert record.reply.error_kind == "limit"
    assert "nested more than 0 deep" in record.reply.text


def test_unknown_outcome_of_a_ledger_has_its_kind():
    with EffectLedger() as ledger:

        @tool(effects="write", idempotency=Idempotency(ledger=ledger, scope="ledger"))
        def pay(order: int) -> str:
            raise ValueError("the connection broke")

        box = Toolbox([pay])
        box.execute(ToolCall("pay", {"order": 1}))
        reply = box.execute(ToolCall("pay", {"order": 1}))
    assert (reply.error_kind, reply.text[:22]) == ("unknown_outcome", "Error: Unknown outcome")


def test_journaled_run_keeps_the_kind_of_its_calls(tmp_path):
    def run():
        model = ScriptedModel([[ToolCall("refuse", {"kind": "limit"}), ToolCall("wether")], "done"])
        with RunJournal(tmp_path / "runs.db") as journal:
            return Agent(model, [refuse], journal=journal).run_sync("go", run_id="r1")

    first, again = run(), run()
    kinds = [[record.reply.error_kind for record in result.tool_calls] for result in (first, again)]
    assert kinds == [["limit", "unknown_tool"]] * 2


def test_call_that_a_reviewer_did_not_answer_in_time_is_rejected():
    never = threading.Event()

    class Silent:
        def review(self, request):
            never.wait(60)
            return Continue()

    @tool(requires_approval=True, approval_timeout=0.01, approval_on_timeout=OnTimeout.FAIL)
    def wipe() -> str:
        return ""

    reply = Toolbox([wipe], review=Silent()).execute(ToolCall("wipe"))
    never.set()
    assert reply.error_kind == "rejected"


def test_process_hands_its_kind_back():
    from helpers.isolated_tools import refuse_isolated  # imported by the worker process, too

    assert refuse_isolated.execute({}).error_kind == "limit"
