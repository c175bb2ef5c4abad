"""Retries of failed calls, with exponential backoff and jitter."""

from __future__ import annotations

import logging
from collections.abc import Generator
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from toolsemble._engine.context import ToolContext
from toolsemble._engine.definition import Inner, Layer, ToolDefinition
from toolsemble._engine.record import LOG_LIMIT, count_and_log
from toolsemble._engine.work.body import TimedOutError, Work, remaining
from toolsemble._engine.work.wait import Sleep
from toolsemble._runtime.checks import check_count, check_seconds, format_seconds
from toolsemble._runtime.text import describe_error, preview
from toolsemble._runtime.watchers import tell
from toolsemble._schema.result_shape import to_result
from toolsemble._vocabulary.errors import PassThroughError, ToolDefinitionError
from toolsemble._vocabulary.result import ToolResult
from toolsemble.events import CallRetried

_NEVER = (TimedOutError, PassThroughError)
_MAX_DOUBLINGS = 1000  # 2.0 ** 1024 is too large for a float


@dataclass(frozen=True, slots=True)
class Retries:
    """The retries of a failed tool call: how many attempts, for which exceptions, and how long apart.

    For failed requests to a model, see :class:`~toolsemble.Retry`.

    >>> from toolsemble import tool
    >>> @tool(effects="read", retries=Retries(3, on=(OSError,), wait=0.1))
    ... def fetch(page: int) -> str:
    ...     return "text"
    >>> fetch.execute('{"page": 1}').output
    'text'
    """

    attempts: int = 4
    """Maximum runs of the body, including the first: ``Retries(3)`` runs it up to 3 times; 1 or 0 runs it once.
    A number as the setting counts only the retries: ``retries=2`` means ``Retries(3)``."""
    on: tuple[type[Exception], ...] = (ConnectionError, TimeoutError)
    """The exceptions that are retried; a call past its own deadline is never retried."""
    wait: float = 0.5
    """Seconds before the first retry; doubled before each further one."""
    longest: float = 30.0
    """The maximum number of seconds before a retry."""
    jitter: float | None = None
    """Maximum random seconds added to each delay, so that calls that failed together do not retry
    together; None: as many as ``wait``."""

    def __post_init__(self) -> None:
        check_count("Retries attempts (including the first)", self.attempts, least=0)
        for name in ("wait", "longest", "jitter"):
            if name != "jitter" or self.jitter is not None:
                check_seconds(f"Retries {name}", getattr(self, name), zero=True)
        kinds: Any = self.on
        kinds = tuple(kinds) if isinstance(kinds, (tuple, list, set, frozenset)) else (kinds,)
        for kind in kinds:
            if not (isinstance(kind, type) and issubclass(kind, Exception)):
                raise ToolDefinitionError(f"Retries on must be exception classes, not {kind!r:.80}")
        object.__setattr__(self, "on", kinds)


class RetryLayer(Layer):
    """The layer that retries calls; the call path waits before each retry."""

    binds = True

    def __init__(self, retries: Retries) -> None:
        self._retries = retries

    def around(
        self, definition: ToolDefinition, value: Any, context: ToolContext, inner: Inner
    ) -> Generator[Work, Any, Any]:
        """Run the inner path, and retry it while it fails with a retryable exception."""
        _ = definition, value
        done = 0
        while True:
            try:
                returned = yield from inner(context)
            except self._retries.on as error:
                pause = _delay(self._retries, done)
                if isinstance(error, _NEVER) or done + 1 >= self._retries.attempts or _exceeds_deadline(context, pause):
                    raise
                done += 1
                _report(context, done, pause, error)
            else:
                return _with_count(to_result(returned), done) if done else returned
            yield Sleep(pause)


def _delay(retries: Retries, done: int) -> float:
    """Return the seconds before the next retry."""
    import random

    most = retries.wait if retries.jitter is None else retries.jitter
    jitter = random.uniform(0, most)  # noqa: S311 - not used for security
    return min(retries.wait * 2.0 ** min(done, _MAX_DOUBLINGS) + jitter, retries.longest)


def _exceeds_deadline(context: ToolContext, pause: float) -> bool:
    # The error now is more useful than a timeout later.
    left = remaining(context)
    return left is not None and pause >= left


def retry_layer(owner: str, setting: object, *, repeatable: bool) -> RetryLayer | None:
    """Return the layer for a setting, None for no retries; raise ToolDefinitionError if it is not valid.

    >>> retry_layer("Tool 'send'", 3, repeatable=False)
    Traceback (most recent call last):
    ...
    toolsemble.ToolDefinitionError: Tool 'send': retries need a tool that may be called twice; declare \
effects="read", or idempotent=True
    """
    retries = _read_setting(owner, setting)
    if retries.attempts <= 1:
        return None
    if not repeatable:
        raise ToolDefinitionError(
            f'{owner}: retries need a tool that may be called twice; declare effects="read", or idempotent=True'
        )
    return RetryLayer(retries)


def _read_setting(owner: str, setting: Any) -> Retries:
    if isinstance(setting, Retries):
        return setting
    check_count(f"{owner}: retries", setting, least=0, other=", or Retries(...)")
    return Retries(setting + 1)


def _report(context: ToolContext, attempt: int, pause: float, error: BaseException) -> None:
    message = describe_error(error)
    line = f"{context.tool_name} failed ({message}); retry {attempt} in {format_seconds(pause)}"
    count_and_log(context, "retries", preview(line, LOG_LIMIT), level=logging.INFO)
    tell(CallRetried.of(context, attempt=attempt, wait=pause, error=message))


def _with_count(result: ToolResult, done: int) -> ToolResult:
    return replace(result, attributes=MappingProxyType({**result.attributes, "retries": done}))
