"""Hooks, masking and events around one call."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from typing import Any

from toolsemble._engine.context import LOGGER, ToolContext, is_resumed
from toolsemble._engine.definition import ToolDefinition
from toolsemble._engine.execution.hooks import AnsweredError, CallHooks
from toolsemble._engine.execution.outcome import FinishedCall
from toolsemble._engine.record import determine_outcome, input_text, is_unfinished
from toolsemble._engine.work.body import Work
from toolsemble._runtime.metrics import ToolMetrics, combine_metrics
from toolsemble._runtime.text import HIDDEN, get_message
from toolsemble._runtime.watchers import ScopedWatcher, Watcher, tell
from toolsemble._schema.decode import Decoded, Read, Repair
from toolsemble._schema.masking import (
    add_sent_secrets,
    mask_result,
    mask_value,
    read_with_secrets,
    restore_secrets,
    secrets,
)
from toolsemble._vocabulary.call import ToolCall
from toolsemble._vocabulary.result import ToolResult
from toolsemble.events import CallFinished, CallRepaired, CallStarted

_UNREAD = object()


class CallEvents:
    """Sends the events of one call, in order; a failing sink does not fail the call.

    A call that waited or was interrupted has already sent its start: only its end is sent.
    """

    __slots__ = ("_at", "_context", "_definition", "_is_known", "_shown", "_value")

    def __init__(self, definition: ToolDefinition, context: ToolContext) -> None:
        self._definition = definition
        self._context = context
        self._at = time.time()
        self._is_known = is_resumed(context)
        self._value: Any = _UNREAD
        self._shown: Any = None

    def begin(self, value: Any, repairs: Sequence[Repair]) -> None:
        """Send the call's start event and its repairs."""
        try:
            self._send_started(self._display(value))
            if repairs and not self._is_known:
                tell(CallRepaired.of(self._context, repairs=tuple(repairs)))
        except Exception:  # an input that cannot be shown must not fail the call
            self._log_loss()

    def end(self, given: Any, result: ToolResult | None, error: BaseException | None, duration: float) -> None:
        """Send the call's end event; if its arguments were invalid, send the start event first."""
        if error is not None and is_unfinished(error):
            return
        try:
            if self._value is _UNREAD:
                self._send_started(mask_value(input_text(given)))
            elif given is not self._value:  # a reviewer edited it
                self._display(given)
            facts: dict[str, Any] = {"outcome": determine_outcome(result, error), "duration": duration}
            if error is not None:
                facts |= {"error_type": type(error).__name__, "error": get_message(error)}
            shown = None if result is None else mask_result(result)
            tell(CallFinished.of(self._context, result=shown, arguments=self._shown, **facts))
        except Exception:
            self._log_loss()

    def _send_started(self, arguments: Any) -> None:
        self._shown = arguments
        if not self._is_known:
            tell(CallStarted.of(self._context, arguments=arguments, at=self._at))

    def _display(self, value: Any) -> Any:
        self._value, self._shown = value, None
        try:
            self._shown = mask_value(self._definition.present(value, best_effort=True))
        except Exception:  # a foreign object that cannot be shown; the event is sent anyway
            self._log_loss()
        return self._shown

    def _log_loss(self) -> None:
        LOGGER.warning("An event of a call of '%s' was lost", self._context.tool_name, exc_info=True)


class Instrumentation:
    """Hooks, masking and events of one call; created only when one of them is in use."""

    __slots__ = (
        "_before",
        "_call",
        "_companions",
        "_definition",
        "_ends",
        "_events",
        "_hooks",
        "_read",
        "_secrets",
        "context",
        "refusal",
        "unread",
    )

    def __init__(
        self,
        definition: ToolDefinition,
        context: ToolContext,
        given: Any,
        hooks: CallHooks | None,
        watched: tuple[Watcher, ...],
    ) -> None:
        self.refusal: BaseException | None = None
        """Why the body did not run; None if it did."""
        self._definition = definition
        self._hooks = hooks
        self._call: ToolCall | None = None
        self._read = False
        companions = [each for each in watched if isinstance(each, ScopedWatcher)]
        for each in companions:
            if each.metrics is not None:
                context = _add_metrics(context, each.metrics)
        self.context = context
        """The context of the call, with the metrics of its companions."""
        self._events = CallEvents(definition, context) if len(companions) < len(watched) else None
        self._secrets: list[str] | None = [] if definition.secret else None
        self._before = secrets()
        self.unread = HIDDEN if definition.secret else given
        """The input as shown before it is read: masked, if it may hold secrets."""
        self._companions = companions
        self._ends: list[Callable[..., object]] = []

    def enter(self) -> None:
        """Start masking and notify the companions; :meth:`finish` must follow, even after an exception."""
        if self._secrets is not None:
            self._secrets += self._before or ()
            restore_secrets(self._secrets)
        for each in self._companions:
            if (end := each.begin(self.context)) is not None:
                self._ends.append(end)

    def ask_hooks(self, read: Read, sent: Any, steps: frozenset[str]) -> Generator[Work, Any, tuple[Read, Any]]:
        """Return the input and the function that decodes it, as chosen by the hooks.

        Raise :class:`AnsweredError` if a hook answers the call.
        """
        if self._hooks is None:
            return read, sent
        if self._secrets is not None:
            add_sent_secrets(self._definition, sent)  # a hook that raises may quote it
        try:
            self._call, read, sent = yield from self._hooks.ask(self._definition, read, sent, steps, self.context)
        except AnsweredError as answer:
            self._call = answer.call
            raise
        return read, sent

    def read(self, read: Read, sent: Any, steps: frozenset[str]) -> Decoded:
        """Return the input and its repairs, and report the call's start."""
        if self._secrets is None:
            value, repairs = read(sent, steps)
        else:
            value, repairs = read_with_secrets(self._definition, read, sent, steps)
        self._read = True
        if self._events is not None:
            self._events.begin(value, repairs)
        return value, repairs

    def answer(self, result: ToolResult) -> Generator[Work, Any, ToolResult]:
        """Return the result, or the one that a hook replaced it with."""
        if self._hooks is None or self._call is None:
            return result
        return (yield from self._hooks.answer(self._call, result, self.context))

    def finish(self, given: Any, result: ToolResult | None, raised: BaseException | None, duration: float) -> None:
        """Report the end of the call, and forget its secrets."""
        try:
            if self._events is not None:
                self._events.end(given, result, raised, duration)
            if self._ends:
                finished = FinishedCall(
                    self._definition, given, result, raised, self.refusal, duration, read=self._read
                )
                while self._ends:
                    self._ends.pop()(finished)
        finally:
            self.forget_secrets()

    def forget_secrets(self) -> None:
        """Forget the secrets of the call."""
        # Compared instead of stored: an interrupt may come before anything is stored. A generator that the
        # garbage collector closes may run in another context, with nothing to undo.
        if self._secrets is not None and secrets() is self._secrets:
            restore_secrets(self._before)


def _add_metrics(context: ToolContext, added: ToolMetrics) -> ToolContext:
    """Return the context with the metrics of a companion added."""
    metrics = combine_metrics(context.metrics, added)
    return context if metrics is context.metrics else context.derive({"metrics": metrics})
