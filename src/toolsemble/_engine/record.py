"""The record of a call: metrics and log lines."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from toolsemble._engine.context import LOGGER, SILENT, ToolContext
from toolsemble._runtime.lazy import LazyModule
from toolsemble._runtime.metrics import Outcome
from toolsemble._runtime.text import describe_with_class, preview
from toolsemble._schema.decode import Repair
from toolsemble._schema.masking import mask_error, mask_text
from toolsemble._vocabulary.errors import CallPausedError, RunCancelledError, RunError, ToolConfigurationError
from toolsemble._vocabulary.result import ToolResult

if TYPE_CHECKING:
    import asyncio
else:  # sync programs do not need it
    asyncio = LazyModule("asyncio")

LOG_LIMIT = 200
"""Default number of input and output characters in a log line."""


def record(
    context: ToolContext,
    given: object,
    result: ToolResult | None,
    error: BaseException | None,
    duration: float,
    log_limit: int,
) -> None:
    """Record a call in the metrics and the log; exceptions here are logged and not raised.

    A call that waits or continues elsewhere is recorded when it ends.

    ``error`` is what the tool raised; ``result`` is None if the error is raised to the caller.
    """
    if error is not None and is_unfinished(error):
        return  # the logs of reviews and journals have the reason
    try:
        if context.metrics is not SILENT:
            _count(context, determine_outcome(result, error), duration)
    except Exception:  # a failing metrics backend must not fail calls
        LOGGER.warning("The metrics of a call of '%s' were lost", context.tool_name, exc_info=True)
    try:
        succeeded = error is None and result is not None and result.error_message is None
        level = logging.INFO if succeeded else _choose_level(error)
        if context.logger.isEnabledFor(level) and has_handler(context.logger):
            _log(level, context, given, result, error, determine_outcome(result, error), duration, log_limit)
    except Exception:  # nor must a failing log handler, or an input that cannot be converted to text
        LOGGER.warning("The log line of a call of '%s' was lost", context.tool_name, exc_info=True)


def record_repairs(context: ToolContext, repairs: Sequence[Repair], log_limit: int) -> None:
    """Record the repairs of a call's arguments in the metrics and the log; never raise."""
    count(context, "repairs", len(repairs))
    _log_count(context, "repairs", lambda: _describe_repairs(context, repairs, log_limit), logging.INFO)


def _describe_repairs(context: ToolContext, repairs: Sequence[Repair], log_limit: int) -> str:
    repaired = ", ".join(f"{repair['step']} at {repair['path']}" for repair in repairs)
    return f"{context.tool_name} arguments repaired: {preview(repaired, log_limit)}"


def count_and_log(context: ToolContext, counter: str, line: str, level: int = logging.WARNING) -> None:
    """Increment a counter for a call and write a log line; never raise.

    >>> count_and_log(ToolContext(tool_name="weather"), "timeouts", "Tool 'weather' timed out after 5 s")
    """
    count(context, counter)
    _log_count(context, counter, lambda: line, level)


def _log_count(context: ToolContext, counter: str, describe: Callable[[], str], level: int) -> None:
    try:
        if context.logger.isEnabledFor(level):
            ids = {"call_id": context.call_id, "run_id": context.run_id}
            context.logger.log(level, "%s", mask_text(describe()), extra=ids)
    except Exception:
        LOGGER.warning("The log line of the %s of '%s' was lost", counter, context.tool_name, exc_info=True)


def count(context: ToolContext, counter: str, amount: int = 1) -> None:
    """Increment a counter for a call; never raise.

    >>> count(ToolContext(tool_name="weather"), "denials")
    """
    try:
        context.metrics.increment_counter(counter, context.tool_name, context.agent_role, amount)
    except Exception:
        LOGGER.warning("The %s of a call of '%s' were lost", counter, context.tool_name, exc_info=True)


def input_text(given: object) -> str:
    """Return the input of a call as text; a pipeline step's input as JSON, or as the previous step's text.

    >>> input_text(ToolResult.success("21 C", {"celsius": 21})), input_text(ToolResult.success("21 C"))
    ('{"celsius": 21}', '21 C')
    """
    if not isinstance(given, ToolResult):
        return str(given)
    if given.structured_output is None:
        return given.text
    from toolsemble._schema.argument_problems import MismatchError
    from toolsemble._schema.display import to_display_text

    try:
        return to_display_text(given.structured_output)
    except MismatchError:
        return given.text


def determine_outcome(result: ToolResult | None, error: BaseException | None) -> Outcome:
    """Return the outcome of a call from its result and the exception of its tool.

    >>> determine_outcome(ToolResult.failure("no such city"), None)
    'failure'
    """
    if error is not None:
        return "cancelled" if _is_cancellation(error) else "error"
    return "success" if result is not None and result.error_message is None else "failure"


def is_unfinished(error: BaseException) -> bool:
    """Return whether an exception leaves a call unfinished: it waits for a person, or its run continues elsewhere.

    >>> is_unfinished(CallPausedError()), is_unfinished(RunCancelledError()), is_unfinished(ValueError())
    (True, False, False)
    """
    return isinstance(error, (CallPausedError, RunError)) and not isinstance(error, RunCancelledError)


def _is_cancellation(error: BaseException) -> bool:
    """Return whether a call was cancelled from outside: its task, its run, or the generator that drives it."""
    if isinstance(error, Exception):
        return isinstance(error, RunCancelledError)
    return isinstance(error, (GeneratorExit, asyncio.CancelledError))


def _count(context: ToolContext, outcome: Outcome, duration: float) -> None:
    metrics, tool, role = context.metrics, context.tool_name, context.agent_role
    if outcome == "success":
        metrics.increment_success(tool, role)
    elif outcome == "failure":
        metrics.increment_failure(tool, role)
    elif outcome == "error":
        metrics.increment_error(tool, role)
    else:
        metrics.increment_counter("cancellations", tool, role)
        return
    metrics.record_duration(tool, role, duration)


def _choose_level(error: BaseException | None) -> int:
    if error is not None and _is_cancellation(error):
        return logging.INFO
    return logging.ERROR if isinstance(error, ToolConfigurationError) else logging.WARNING


def has_handler(logger: logging.Logger | None) -> bool:
    """Return whether a log line would be written: creating a log record takes longer than most failed calls."""
    silent = False
    while isinstance(logger, logging.Logger):
        for handler in logger.handlers:
            if type(handler) is not logging.NullHandler:
                return True
            silent = True
        logger = logger.parent if logger.propagate else None
    return not silent  # without any handler, logging uses its last resort


def _log(
    level: int,
    context: ToolContext,
    given: object,
    result: ToolResult | None,
    error: BaseException | None,
    outcome: Outcome,
    duration: float,
    limit: int,
) -> None:
    name, logger, shown = context.tool_name, context.logger, mask_text(input_text(given))
    if outcome == "cancelled":
        error, cause = None, "cancelled"
    else:
        cause = "" if error is None else describe_with_class(error)
    outcome_text = cause if result is None else result.text
    if result is not None and error is not None and "reference" in result.attributes:
        outcome_text = f"{outcome_text}: {cause}"  # hidden from the model, so it must be in the log
    outcome_text = mask_text(outcome_text)
    facts = {
        "tool": name,
        "call_id": context.call_id,
        "run_id": context.run_id,
        "agent_role": context.agent_role,
        "outcome": outcome,
        "duration": duration,
    }
    milliseconds = round(duration * 1000)
    line = (name, preview(shown, limit), preview(outcome_text, limit), milliseconds)
    logger.log(level, "%s(%s) -> %s [%d ms]", *line, exc_info=mask_error(error), extra=facts)
    if logger.isEnabledFor(logging.DEBUG):
        whole = (name, preview(shown, len(shown)), preview(outcome_text, len(outcome_text)))
        logger.debug("%s input: %s output: %s", *whole, extra=facts)
