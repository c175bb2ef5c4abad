import logging
import re

import pytest

from helpers.sample_tools import Echo, Function, Raising, call
from toolsemble import (
    ExitEarlyError,
    InMemoryMetrics,
    SilentMetrics,
    Toolbox,
    ToolCall,
    ToolConfigurationError,
    ToolContext,
    ToolResult,
)
from toolsemble._engine.record import count_and_log


@pytest.fixture
def log(caplog):
    caplog.set_level(logging.INFO, "toolsemble")
    return caplog


def lines(log):
    return [(record.levelname, record.name, record.getMessage().rsplit(" [", 1)[0]) for record in log.records]


def test_call_is_logged_with_input_output_and_duration(log):
    Toolbox([Echo()]).execute(call(text="hello"))
    (record,) = log.records
    assert record.levelno == logging.INFO
    assert record.name == "toolsemble.tool.echo"
    assert re.fullmatch(r"echo\(hello\) -> hello \[\d+ ms\]", record.getMessage())


def test_log_record_has_call_attributes(log):
    Toolbox([Echo()], agent_role="writer").execute(call(id="c1"), run_id="r1")
    (record,) = log.records
    facts = (record.tool, record.call_id, record.run_id, record.agent_role, record.outcome)
    assert facts == ("echo", "c1", "r1", "writer", "success")
    assert 0 <= record.duration < 30


@pytest.mark.parametrize(("limit", "shown"), [(200, 200), (7, 7), (0, 0)])
def test_input_and_output_are_truncated(log, limit, shown):
    Toolbox([Function(lambda _: "y" * 500)], log_limit=limit).execute(call("function", "x" * 500))
    assert lines(log)[0][2] == f"function({'x' * shown}...) -> {'y' * shown}..."


def test_errors_are_logged_as_warnings_with_traceback(log):
    box = Toolbox([Raising(ValueError("boom")), Function(lambda _: ToolResult.failure("no"))])
    for name in ("raising", "function", "ghost"):
        box.execute(call(name))
    assert lines(log) == [
        ("WARNING", "toolsemble.tool.raising", "raising(hi) -> Error: boom"),
        ("WARNING", "toolsemble.tool.function", "function(hi) -> Error: no"),
        (
            "WARNING",
            "toolsemble.tool.(unknown)",
            """(unknown)({"input":"hi"}) -> Error: Unknown tool 'ghost'. Available tools: raising, function""",
        ),
    ]
    assert [record.outcome for record in log.records] == ["error", "failure", "failure"]
    assert [bool(record.exc_info) for record in log.records] == [True, False, False]


@pytest.mark.parametrize(
    ("error", "level"),
    [(ToolConfigurationError("no region"), "ERROR"), (ExitEarlyError("no region"), "WARNING")],
)
def test_exceptions_for_the_caller_are_logged(log, error, level):
    with pytest.raises(type(error)):
        Toolbox([Raising(error)]).execute(call("raising"))
    assert lines(log) == [(level, "toolsemble.tool.raising", f"raising(hi) -> {type(error).__name__}: no region")]


def test_debug_shows_full_input_and_output(caplog):
    caplog.set_level(logging.DEBUG, "toolsemble")
    Toolbox([Function(lambda _: "y" * 500)]).execute(call("function", "x" * 500))
    assert caplog.records[1].levelno == logging.DEBUG
    assert caplog.records[1].getMessage() == f"function input: {'x' * 500} output: {'y' * 500}"


def test_model_cannot_forge_log_lines(log):
    Toolbox([Echo()]).execute(call(text="x\nWARNING forged\x1b[31m\u2028"))
    (message,) = log.records[0].getMessage().splitlines()
    assert message.startswith(r"echo(x\nWARNING forged\x1b[31m\u2028) -> x\nWARNING forged\x1b[31m\u2028 [")


def test_nothing_is_formatted_when_the_level_is_off(caplog, monkeypatch):
    formatted = []
    monkeypatch.setattr("toolsemble._engine.record.preview", lambda text, _: formatted.append(text) or text)
    caplog.set_level(logging.WARNING, "toolsemble")
    box = Toolbox([Echo(), Function(lambda _: ToolResult.failure("no"))])
    box.execute(call())
    assert (formatted, caplog.records) == ([], [])
    box.execute(call("function"))
    assert formatted == ["hi", "Error: no"]  # the warning alone: DEBUG is off


def test_specification_is_not_formatted_if_the_log_is_off(caplog, monkeypatch):
    written = []
    monkeypatch.setattr("toolsemble._vocabulary.specification.ToolSpecification.to_json", written.append)
    caplog.set_level(logging.DEBUG, "toolsemble")
    assert Toolbox([Echo()]).specifications
    assert written == []


def test_prints_nothing_without_logging_setup(capfd):
    manager = logging.getLogger("toolsemble.tool")
    propagate, manager.propagate = manager.propagate, False
    try:
        Toolbox([Raising(ValueError("boom"))]).execute(call("raising"))
    finally:
        manager.propagate = propagate
    assert capfd.readouterr() == ("", "")


class DownMetrics(SilentMetrics):
    def increment_success(self, tool_name, agent_role):
        raise ConnectionError(f"no way to count {tool_name} of {agent_role}")


def test_failing_metrics_do_not_fail_the_call(log):
    reply = Toolbox([Echo()], metrics=DownMetrics()).execute(call())
    assert reply.text == "hi"
    assert lines(log) == [
        ("WARNING", "toolsemble.tool", "The metrics of a call of 'echo' were lost"),
        ("INFO", "toolsemble.tool.echo", "echo(hi) -> hi"),
    ]


def test_failing_log_does_not_fail_the_call(log):
    def explode(_record):
        raise OSError("disk full")

    logger = logging.getLogger("toolsemble.tool.echo")
    logger.addFilter(explode)
    try:
        assert Toolbox([Echo()]).execute(call()).text == "hi"
    finally:
        logger.removeFilter(explode)
    assert lines(log) == [("WARNING", "toolsemble.tool", "The log line of a call of 'echo' was lost")]


def test_unreadable_arguments_are_logged_unchanged(log):
    Toolbox([Echo()]).execute(ToolCall("echo", "no json"))
    assert lines(log)[0][2].startswith("echo(no json) -> Error: Invalid JSON input for 'echo'")


def test_failing_counter_is_logged(caplog):
    class Broken(SilentMetrics):
        def increment_counter(self, *_):
            raise OSError("no space left")

    count_and_log(ToolContext(tool_name="echo", metrics=Broken()), "timeouts", "Tool 'echo' timed out after 5 s")
    assert "The timeouts of a call of 'echo' were lost" in caplog.text


def test_counter_is_incremented_if_the_log_fails(log):
    def explode(_record):
        raise OSError("disk full")

    logger, metrics = logging.getLogger("toolsemble.tool.echo"), InMemoryMetrics()
    logger.addFilter(explode)
    try:
        count_and_log(
            ToolContext("echo", logger=logger, metrics=metrics), "timeouts", "Tool 'echo' timed out after 5 s"
        )
    finally:
        logger.removeFilter(explode)
    assert metrics.counter("timeouts", "echo") == 1
    assert lines(log) == [("WARNING", "toolsemble.tool", "The log line of the timeouts of 'echo' was lost")]


class Counted(logging.Filter):
    """A counter of log records."""

    def __init__(self):
        super().__init__()
        self.made = 0

    def filter(self, _record):
        self.made += 1
        return True


@pytest.mark.parametrize(
    ("own", "around", "propagates", "made"),
    [
        ((), (), True, 1),  # logging's last resort receives it
        ((logging.NullHandler,), (), True, 0),
        ((), (logging.NullHandler,), True, 0),
        ((logging.NullHandler,), (logging.StreamHandler,), True, 1),
        ((logging.NullHandler,), (logging.StreamHandler,), False, 0),
        ((logging.NullHandler, logging.StreamHandler), (), True, 1),
    ],
)
def test_log_line_without_a_handler_is_not_created(capsys, own, around, propagates, made):
    # Created separately from the process's loggers, to which the tests' listener belongs.
    outer, inner = logging.Logger("outer"), logging.Logger("inner")  # noqa: LOG001 - as said above
    counted = Counted()
    inner.setLevel(logging.WARNING)
    inner.parent, inner.propagate = outer, propagates
    inner.addFilter(counted)
    for logger, handlers in ((inner, own), (outer, around)):
        for handler in handlers:
            logger.addHandler(handler())
    failing = Function(lambda _: ToolResult.failure("no"))
    assert failing.execute("x", ToolContext(logger=inner)).error_message == "no"
    assert counted.made == made
    assert ("no" in capsys.readouterr().err) is bool(made)
