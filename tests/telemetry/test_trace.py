"""Trace files: concurrent writers, torn lines, full disks, and reading."""

import importlib
import json
import multiprocessing
import resource
import sys
import threading

import pytest

from toolsemble import (
    Agent,
    AudioContent,
    FileContent,
    ImageContent,
    TextContent,
    Toolbox,
    ToolCall,
    ToolPipeline,
    ToolResult,
    tool,
)
from toolsemble.events import (
    CacheHit,
    CallAbandoned,
    CallFinished,
    CallProgress,
    CallRepaired,
    CallRetried,
    CallStarted,
    CallTimedOut,
    ReviewDecided,
    ReviewRequested,
)
from toolsemble.review import AutoApprove, AutoReject, Continue, Edit, ExitEarly, OnTimeout, ReviewRequest
from toolsemble.telemetry import CallTrace, ConsoleSink, Trace, TraceFile, _trace_file as trace_module, read_trace
from toolsemble.testing import ScriptedModel

KNOWN = {"run_id": "r1", "parent_id": "c0", "agent_role": "clerk", "memory_id": "ada", "at": 1.5}
REQUEST = ReviewRequest("Deletes", "delete", {"path": "ü"}, on_timeout=OnTimeout.FAIL, call_id="c1", run_id="r1")
CONTENTS = (
    TextContent("t"),
    ImageContent(b"i", "image/png"),
    AudioContent(b"a", "audio/wav"),
    FileContent(b"f", "text/plain", "f.txt"),
)
EVENTS = [
    CallStarted("add", "c1", {"a": [1, None, "ü\ud800\n"]}, **KNOWN),
    CallRepaired("add", "c1", ({"step": "coerce", "path": "a", "from": "1", "to": 1},), **KNOWN),
    CallRetried("add", "c1", 1, 0.5, "refused", **KNOWN),
    CallProgress("add", "c1", None, "half", **KNOWN),
    CallTimedOut("add", "c1", 5.0, **KNOWN),
    CallAbandoned("add", "c1", **KNOWN),
    CacheHit("add", "c1", **KNOWN),
    CallFinished("add", "c1", "success", ToolResult.success("3", {"sum": 3}, contents=CONTENTS), **KNOWN),
    CallFinished("add", "c1", "error", None, {"a": 1}, 0.25, "KeyError", "'a'", **KNOWN),
    ReviewRequested(REQUEST),
    ReviewDecided(REQUEST, Continue("tool"), at=2.5),
    ReviewDecided(REQUEST, Edit('{"path": "b"}'), at=2.5),
    ReviewDecided(REQUEST, ExitEarly("no", timed_out=True), at=2.5),
]


@tool
def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    return a + b


@pytest.fixture
def path(tmp_path):
    return tmp_path / "trace.jsonl"


def run_in_child(function, path):
    """Return what a function sends in a separate process."""
    ours, theirs = multiprocessing.Pipe(duplex=False)
    child = multiprocessing.get_context("fork").Process(target=function, args=(path, theirs))
    child.start()
    theirs.close()
    assert ours.poll(60)
    sent = ours.recv()
    child.join(60)
    child.close()
    ours.close()
    return sent


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: event.kind)
def test_every_event_round_trips(event, path):
    TraceFile(path).emit(event)
    (read,) = read_trace(path).events
    assert read == event
    assert (read.run_id, read.agent_role, read.at) == (event.run_id, event.agent_role, event.at)
    assert getattr(read, "memory_id", None) == getattr(event, "memory_id", None)
    assert json.loads(path.read_text())["kind"] == event.kind


def test_run_is_read_as_calls(path):
    box = Toolbox([add], sinks=[TraceFile(path)], review=AutoApprove(), approve=["add"])
    box.execute(ToolCall("add", {"a": "2"}, "c1"), run_id="r1")
    trace = read_trace(path)
    (call,) = trace.calls
    assert call == CallTrace(
        "add",
        "c1",
        "r1",
        arguments={"a": 2, "b": 1},
        started=trace.events[0].at,
        duration=trace.events[-1].duration,
        outcome="success",
        text="3",
        decisions=(Continue(),),
        events=trace.events,
    )
    assert trace.unreadable == ()


def test_calls_of_several_runs_are_separate(path):
    line = ToolPipeline("line", "Adds", [add])
    model = ScriptedModel([ToolCall("line", {"a": 1}, "c1"), "done"] * 2)
    agent = Agent(model, [line], sinks=[TraceFile(path)])
    first, second = agent.run_sync("go").run_id, agent.run_sync("go").run_id
    trace = read_trace(path)
    assert [(call.run_id, call.tool_name, call.parent_id) for call in trace.calls] == [
        (first, "line", ""),
        (first, "add", "c1"),
        (second, "line", ""),
        (second, "add", "c1"),
    ]
    assert [call.tool_name for call in trace.run(second).calls] == ["line", "add"]


def test_unfinished_call_is_read(path):
    sink = TraceFile(path)
    sink.emit(CallProgress("add", "c1", 0.5, run_id="r1"))
    (call,) = read_trace(path).calls
    assert (call.tool_name, call.outcome, call.started, call.text) == ("add", None, None, None)


def test_rejected_call_has_its_decision(path):
    Toolbox([add], sinks=[TraceFile(path)], review=AutoReject("no"), approve=["add"]).execute(ToolCall("add", {"a": 1}))
    (call,) = read_trace(path).calls
    assert (call.decisions, call.outcome, call.text) == (
        (ExitEarly("no"),),
        "failure",
        "Error: Rejected by reviewer: no",
    )


TORN = [
    (b'{"kind":"call_started","tool_name":"ad', "JSONDecodeError"),
    (b'{"kind":"\xff"}', "UnicodeDecodeError"),
    (b'{"kind":"nothing"}', "ValueError: kind: expected one of call_started, "),
    (b'{"kind":[]}', "ValueError: kind: expected one of call_started, "),
    (b'{"tool_name":"add"}', "ValueError: kind: expected one of call_started, "),
    (b'{"kind":"call_abandoned","tool_name":"add","call_id":7}', "ValueError: call_id: expected a str, got 7"),
    (b'{"kind":"call_abandoned","tool_name":"add"}', "ValueError: call_id: missing"),
    (b'{"kind":"review_decided","request":{},"decision":{}}', "ValueError: request.description: missing"),
    (b'{"kind":"review_decided","request":{},"decision":7}', "ValueError: request.description: missing"),
    (b'["kind"]', "ValueError: kind: expected one of call_started, "),
    (b"3", "ValueError: kind: expected one of call_started, "),
    (b"[" * 100_000, "RecursionError"),
]


@pytest.mark.parametrize(("line", "reason"), TORN, ids=range(len(TORN)))
def test_invalid_line_is_reported_and_skipped(line, reason, path):
    sink = TraceFile(path)
    sink.emit(EVENTS[0])
    with path.open("ab") as file:
        file.write(line)
    sink.emit(EVENTS[1])
    trace = read_trace(path)
    assert trace.events == (EVENTS[0], EVENTS[1])
    (bad,) = trace.unreadable
    assert (bad.number, bad.text[:8]) == (2, line[:8].decode(errors="replace"))
    assert bad.reason.startswith(reason)


EARLIER = (
    '{"kind":"call_progress","tool_name":"add","call_id":"c1","fraction":"nan","message":3,"at":1.5}\n'
    '{"kind":"call_progress","tool_name":"add","call_id":"c1","fraction":0.5,"message":"half","at":1.5}\n'
    '{"kind":"review_requested","request":{"description":"Adds","tool_name":"add","arguments":{"a":1},'
    '"timing":"before_execution","timeout":300,"on_timeout":"exit_early","prompt":"","required_role":null,'
    '"call_id":"c1","run_id":"r1","id":"q1","agent_role":"unknown","repairs":[],"editable":"","scopes":["tool"],'
    '"schema_digest":"","hidden_digest":"","asked_at":2.5},"at":2.5}\n'
    '{"kind":"review_decided","request":{"description":"Adds","tool_name":"add","arguments":{"a":1},"id":"q1",'
    '"asked_at":2.5},"at":3.5,"decision":{"name":"exit_early","reason":"no","timed_out":false}}\n'
    '{"kind":"review_decided","request":{"description":"Adds","tool_name":"add","arguments":{"a":1},"id":"q1",'
    '"asked_at":2.5},"at":3.5,"decision":{"name":"continue","always":"tool"}}\n'
    '{"kind":"model_replied","turn":1,"model":"m","usage":{"input":3,"output":4,"cached":0,"reasoning":0},"at":1.5}\n'
    '{"kind":"call_finished","tool_name":"add","call_id":"c1","outcome":"success","result":{"output":"3","error":null,'
    '"payload":3,"contents":[{"kind":"TextContent","text":"t"}],"attributes":{"retries":1}},"at":1.5}\n'
)


def test_a_trace_of_an_earlier_version_is_read(path):
    path.write_text(EARLIER)
    trace = read_trace(path)
    assert trace.unreadable == ()
    odd, half, requested, rejected, continued, replied, finished = trace.events
    assert (odd.fraction, odd.message, half.fraction, half.message) == (None, "3", 0.5, "half")
    assert (requested.request.id, requested.request.scopes, requested.at) == ("q1", ("tool",), 2.5)
    assert (rejected.decision, rejected.at) == (ExitEarly("no"), 3.5)
    assert continued.decision == Continue("tool")
    assert (replied.message.text, replied.usage.total) == ("", 7)
    assert (finished.result.structured_output, finished.result.contents) == (3, (TextContent("t"),))


def test_fields_of_a_later_version_are_left_out(path):
    path.write_text('{"kind":"call_abandoned","tool_name":"add","call_id":"c1","more":1}\n')
    assert read_trace(path).events == (CallAbandoned("add", "c1"),)


def test_every_line_has_a_kind_and_a_time(path):
    sink = TraceFile(path)
    for event in EVENTS:
        sink.emit(event)
    assert all({"kind", "at"} <= json.loads(line).keys() for line in path.read_text().splitlines())


def test_custom_objects_are_written_as_their_repr(path):
    class Odd:
        def __str__(self):
            raise ValueError("no")

        def __repr__(self):
            return "<odd>"

    result = ToolResult.success("x", Odd(), attributes={"nan": float("nan")})
    TraceFile(path).emit(CallFinished("add", "c1", "success", result))
    (read,) = read_trace(path).events
    assert (read.result.structured_output, read.result.attributes["nan"]) == ("<odd>", "nan")


def test_threads_write_whole_lines(path):
    sinks = [TraceFile(path), TraceFile(path)]
    big = CallStarted("add", "c1", "x" * 20_000)

    def work(sink):
        for _ in range(25):
            sink.emit(big)

    threads = [threading.Thread(target=work, args=(sinks[number % 2],)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    trace = read_trace(path)
    assert (len(trace.events), trace.unreadable) == (200, ())


def _append(path, number):
    for _ in range(50):
        TraceFile(path).emit(CallStarted("add", str(number), "x" * 20_000))


def test_processes_write_whole_lines(path):
    context = multiprocessing.get_context("fork")
    children = [context.Process(target=_append, args=(path, number)) for number in range(4)]
    for child in children:
        child.start()
    for child in children:
        child.join(60)
        child.close()
    trace = read_trace(path)
    assert (len(trace.events), trace.unreadable) == (200, ())


def test_full_disk_fails_no_call(caplog):
    box = Toolbox([add], sinks=[TraceFile("/dev/full")])
    for _ in range(3):
        assert box.execute(ToolCall("add", {"a": 1})).text == "2"
    assert caplog.text.count("A sink failed") == 1
    assert "No space left on device" in caplog.text


def test_missing_folder_fails_no_call_and_is_used_once_created(tmp_path):
    box = Toolbox([add], sinks=[TraceFile(tmp_path / "later" / "trace.jsonl")])
    assert box.execute(ToolCall("add", {"a": 1})).text == "2"
    (tmp_path / "later").mkdir()
    box.execute(ToolCall("add", {"a": 1}))
    assert len(read_trace(tmp_path / "later" / "trace.jsonl").events) == 2


def _fill(path, pipe):
    sink = TraceFile(path)
    sink.emit(CallStarted("add", "c1"))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        sink.emit(CallStarted("add", "c2", "x" * 5000))
    except OSError as error:
        pipe.send(error.strerror)
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
    sink.emit(CallStarted("add", "c3"))
    pipe.close()


def test_no_partial_line_on_a_full_disk(path):
    assert run_in_child(_fill, path) == "No space left on device"
    trace = read_trace(path)
    assert ([event.call_id for event in trace.events], trace.unreadable) == (["c1", "c3"], ())


def test_only_the_owner_can_read_a_trace(path):
    TraceFile(path).emit(EVENTS[0])
    assert path.stat().st_mode & 0o777 == 0o600


def test_writes_without_file_locks(path, monkeypatch):
    monkeypatch.setattr("toolsemble.telemetry._trace_file.fcntl", None)
    TraceFile(path).emit(EVENTS[0])
    assert read_trace(path).events == (EVENTS[0],)


def _import_without_locks(_, pipe):
    sys.modules["fcntl"] = None
    pipe.send(importlib.reload(trace_module).fcntl)
    pipe.close()


def test_imports_without_file_locks(path):
    assert run_in_child(_import_without_locks, path) is None


def test_missing_trace_raises(tmp_path):
    with pytest.raises(FileNotFoundError):
        read_trace(tmp_path / "nothing")


def test_empty_trace_has_no_events(path):
    path.touch()
    assert read_trace(path) == Trace(())


SAID = [
    "called with {'a': [1, None, 'ü\\ud800\\n']}",
    "repaired a",
    "failed (refused); retry 1 in 0.5 s",
    "half",
    "timed out after 5 s",
    "still running in the background",
    "answered from the cache",
    "success in 0 ms: 3",
    "error in 250 ms: KeyError: 'a'",
    "review requested: {'path': 'ü'}",
    "review decided: Continue(always='tool')",
    """review decided: Edit(revised='{"path": "b"}')""",
    "review decided: ExitEarly(reason='no', timed_out=True)",
]


@pytest.mark.parametrize(("event", "said"), list(zip(EVENTS, SAID, strict=True)), ids=[event.kind for event in EVENTS])
def test_console_writes_a_line_per_event(event, said, capsys):
    ConsoleSink(times=False).emit(event)
    assert capsys.readouterr().err == f"{event.tool_name} c1: {said}\n"


def test_console_shows_unknown_events_by_kind(capsys):
    ConsoleSink(sys.stdout).emit(type("New", (), {"kind": "new", "tool_name": "add", "call_id": "c1", "at": 0.0}))
    assert capsys.readouterr().out.split(" ", 1)[1] == "add c1: new\n"


def test_model_cannot_forge_console_lines(capsys):
    ConsoleSink(times=False, limit=20).emit(CallStarted("add", "c\n1", "x\n" * 50))
    assert capsys.readouterr().err == "add c\\n1: called with x\\nx\\nx\\nx\\n...\n"


def test_console_sink_needs_no_settings(capsys):
    Toolbox([add], sinks=[ConsoleSink()]).execute(ToolCall("add", {"a": 1}, "c1"))
    assert len(capsys.readouterr().err.splitlines()) == 2
