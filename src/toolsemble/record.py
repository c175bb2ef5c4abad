"""The record of a call: its metrics and its log lines."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from toolsemble.context import LOGGER, SILENT, ToolContext
from toolsemble.errors import ToolConfigurationError
from toolsemble.masking.secrets import masked, masked_error
from toolsemble.metrics import Outcome
from toolsemble.result import ToolResult
from toolsemble.runtime.text import preview
from toolsemble.schema.decode import Repair
from toolsemble.shape import describe_error

TRACE = 5
"""The level of specifications in the log: below DEBUG."""

LOG_LIMIT = 200
"""How many characters of input and output a log line shows, unless the toolbox says otherwise."""


def record(
    context: ToolContext,
    given: object,
    result: ToolResult | None,
    error: BaseException | None,
    duration: float,
    log_limit: int,
) -> None:
    """Count the call and write it to the log; whatever goes wrong here does not disturb the call.

    The error is what the tool raised; the result is None when that passes through to the caller.
    """
    try:
        if context.metrics is not SILENT:
            _count(context, outcome_of(result, error), duration)
    except Exception:  # noqa: BLE001 - a metrics backend that is down must not fail calls
        LOGGER.warning("The metrics of a call of '%s' were lost", context.tool_name, exc_info=True)
    try:
        succeeded = error is None and result is not None and result.error_message is None
        level = logging.INFO if succeeded else _level(error)
        if context.logger.isEnabledFor(level) and _is_heard(context.logger):
            _log(level, context, given, result, error, outcome_of(result, error), duration, log_limit)
    except Exception:  # noqa: BLE001 - nor may a log that is broken, or an input whose text cannot be made
        LOGGER.warning("The log line of a call of '%s' was lost", context.tool_name, exc_info=True)


def record_repairs(context: ToolContext, repairs: Sequence[Repair], log_limit: int) -> None:
    """Count the repairs of a call's arguments and write them to the log; what goes wrong here disturbs nothing."""
    told = ", ".join(f"{repair['step']} at {repair['path']}" for repair in repairs)
    line = f"{context.tool_name} arguments repaired: {preview(told, log_limit)}"
    count_and_log(context, "repairs", line, len(repairs), logging.INFO)


def count_and_log(context: ToolContext, counter: str, line: str, amount: int = 1, level: int = logging.WARNING) -> None:
    """Count something that happened to a call and write it to the log; what goes wrong here disturbs nothing.

    >>> count_and_log(ToolContext(tool_name="weather"), "timeouts", "Tool 'weather' timed out after 5 s")
    """
    count(context, counter, amount)
    try:
        context.logger.log(level, "%s", masked(line), extra={"call_id": context.call_id, "run_id": context.run_id})
    except Exception:  # noqa: BLE001 - as above
        LOGGER.warning("The log line of the %s of '%s' was lost", counter, context.tool_name, exc_info=True)


def count(context: ToolContext, counter: str, amount: int = 1) -> None:
    """Count something that happened to a call; what goes wrong here disturbs nothing.

    >>> count(ToolContext(tool_name="weather"), "denials")
    """
    try:
        context.metrics.increment_counter(counter, context.tool_name, context.agent_role, amount)
    except Exception:  # noqa: BLE001 - as above
        LOGGER.warning("The %s of a call of '%s' were lost", counter, context.tool_name, exc_info=True)


def outcome_of(result: ToolResult | None, error: BaseException | None) -> Outcome:
    """Give how a call ended, by its result and what its tool raised.

    >>> outcome_of(ToolResult.failure("no such city"), None)
    'failure'
    """
    if error is not None:
        return "error"
    return "success" if result is not None and result.error_message is None else "failure"


def _count(context: ToolContext, outcome: Outcome, duration: float) -> None:
    metrics, tool, role = context.metrics, context.tool_name, context.agent_role
    if outcome == "success":
        metrics.increment_success(tool, role)
    elif outcome == "failure":
        metrics.increment_failure(tool, role)
    else:
        metrics.increment_error(tool, role)
    metrics.record_duration(tool, role, duration)


def _level(error: BaseException | None) -> int:
    return logging.ERROR if isinstance(error, ToolConfigurationError) else logging.WARNING


def _is_heard(logger: logging.Logger | None) -> bool:
    """Whether anybody listens: making a record takes longer than most refusals, and a library often has no listener."""
    silent = False
    while isinstance(logger, logging.Logger):
        for handler in logger.handlers:
            if type(handler) is not logging.NullHandler:
                return True
            silent = True
        logger = logger.parent if logger.propagate else None
    return not silent  # without any handler at all, the last resort of logging is one


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
    name, logger, taken = context.tool_name, context.logger, masked(str(given))
    cause = "" if error is None else f"{type(error).__name__}: {describe_error(error)}"
    told = cause if result is None else result.text
    if result is not None and error is not None and "reference" in result.attributes:
        told = f"{told}: {cause}"  # the model is not told, so it must stand here
    told = masked(told)
    facts = {
        "tool": name,
        "call_id": context.call_id,
        "run_id": context.run_id,
        "agent_role": context.agent_role,
        "outcome": outcome,
        "duration": duration,
    }
    milliseconds = round(duration * 1000)
    line = (name, preview(taken, limit), preview(told, limit), milliseconds)
    logger.log(level, "%s(%s) -> %s [%d ms]", *line, exc_info=masked_error(error), extra=facts)
    if logger.isEnabledFor(logging.DEBUG):
        whole = (name, preview(taken, len(taken)), preview(told, len(told)))
        logger.debug("%s input: %s output: %s", *whole, extra=facts)
