"""When a call that failed is made again, and after how long."""

from __future__ import annotations

import logging
import time
from collections.abc import Generator
from dataclasses import dataclass, replace
from types import MappingProxyType, ModuleType
from typing import Any

from toolsemble.context import ToolContext
from toolsemble.definition.definition import ToolDefinition
from toolsemble.definition.policy import Inner, Layer
from toolsemble.errors import ExitEarlyError, ToolConfigurationError, ToolDefinitionError
from toolsemble.events import CallRetried
from toolsemble.observers.watchers import tell
from toolsemble.record import LOG_LIMIT, count_and_log
from toolsemble.result import ToolResult
from toolsemble.runtime.checks import check_count, check_seconds, format_seconds
from toolsemble.runtime.extras import import_extra
from toolsemble.runtime.text import preview
from toolsemble.shape import describe_error, to_result
from toolsemble.work.body import Work
from toolsemble.work.deadline import TimedOutError
from toolsemble.work.wait import Sleep

_NEVER = (TimedOutError, ExitEarlyError, ToolConfigurationError)


@dataclass(frozen=True, slots=True)
class Retries:
    """How often a call is made again, after which errors, and after how long.

    >>> from toolsemble import tool
    >>> @tool(effects="read", retries=Retries(2, on=(OSError,), wait=0.1))
    ... def fetch(page: int) -> str:
    ...     return "text"
    >>> fetch.execute('{"page": 1}').output
    'text'
    """

    attempts: int = 3
    """How many times the call is made again."""
    on: tuple[type[Exception], ...] = (ConnectionError, TimeoutError)
    """The errors after which it is; a call whose own time is up is never made again."""
    wait: float = 0.5
    """How many seconds pass before the first time; twice as many before each further one."""
    longest: float = 30.0
    """The longest that is waited."""
    jitter: float = 0.5
    """How many seconds more it may be, by chance: those who failed together would fail together again."""

    def __post_init__(self) -> None:
        check_count("Retries attempts", self.attempts, least=0)
        for name in ("wait", "longest", "jitter"):
            check_seconds(f"Retries {name}", getattr(self, name), zero=True)
        kinds: Any = self.on
        kinds = tuple(kinds) if isinstance(kinds, (tuple, list, set, frozenset)) else (kinds,)
        for kind in kinds:
            if not (isinstance(kind, type) and issubclass(kind, Exception)):
                raise ToolDefinitionError(f"Retries on must be exception classes, not {kind!r:.80}")
        object.__setattr__(self, "on", kinds)


class Retrying(Layer):
    """The layer that makes calls again; tenacity says when, and the call path waits."""

    binds = True

    def __init__(self, owner: str, retries: Retries) -> None:
        self._retries = retries
        self._tenacity: ModuleType = import_extra("tenacity", extra="retry", user=f"{owner} with retries")
        self._waits = self._tenacity.wait_exponential_jitter(retries.wait, retries.longest, 2, retries.jitter)

    def around(
        self, definition: ToolDefinition, value: Any, context: ToolContext, inner: Inner
    ) -> Generator[Work, Any, Any]:
        """Walk what is inside, and again as long as it fails with an error that says so."""
        _ = definition, value
        done, state = 0, None
        while True:
            try:
                returned = yield from inner(context)
            except self._retries.on as error:
                if isinstance(error, _NEVER):
                    raise
                state = state or self._state(context)
                state.set_exception((type(error), error, error.__traceback__))
                state.retry_object.begin()  # its statistics belong to a thread, and the path to none
                pause = state.retry_object.iter(state)  # raises the error when it was the last time
                state.prepare_for_next_attempt()
                done += 1
                _told(context, done, pause, error)
            else:
                return _counted(to_result(returned), done) if done else returned
            yield Sleep(pause)

    def _state(self, context: ToolContext) -> Any:
        def no_time(state: Any) -> bool:
            # An error that says what is wrong now is worth more than a timeout later.
            return context.deadline is not None and time.monotonic() + state.upcoming_sleep >= context.deadline

        tenacity = self._tenacity
        most = tenacity.stop_after_attempt(self._retries.attempts + 1)
        always = tenacity.retry_if_exception_type(Exception)
        retrying = tenacity.Retrying(stop=most | no_time, wait=self._waits, retry=always, reraise=True)
        return tenacity.RetryCallState(retrying, None, (), {})


def retrying_layer(owner: str, said: object, *, repeatable: bool) -> Retrying | None:
    """Give the layer for what a tool or a toolbox says; refuse what is unclear, and tools that may not be called twice.

    >>> retrying_layer("Tool 'send'", 3, repeatable=False)
    Traceback (most recent call last):
    ...
    toolsemble.errors.ToolDefinitionError: Tool 'send': retries are for tools that may be called twice: declare \
effects="read", or idempotent=True
    """
    retries = _checked(owner, said)
    if not retries.attempts:
        return None
    if not repeatable:
        raise ToolDefinitionError(
            f'{owner}: retries are for tools that may be called twice: declare effects="read", or idempotent=True'
        )
    return Retrying(owner, retries)


def _checked(owner: str, said: Any) -> Retries:
    if isinstance(said, Retries):
        return said
    check_count(f"{owner}: retries", said, least=0, other=", or Retries(...)")
    return Retries(said)


def _told(context: ToolContext, attempt: int, pause: float, error: BaseException) -> None:
    message = describe_error(error)
    line = f"{context.tool_name} is called again in {format_seconds(pause)}, for the {attempt}. time, after: {message}"
    count_and_log(context, "retries", preview(line, LOG_LIMIT), level=logging.INFO)
    tell(CallRetried.of(context, attempt=attempt, wait=pause, error=message))


def _counted(result: ToolResult, done: int) -> ToolResult:
    return replace(result, attributes=MappingProxyType({**result.attributes, "retries": done}))
