"""The events of one call: started, repaired, finished."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from toolsemble._engine.context import LOGGER, ToolContext, is_resumed
from toolsemble._engine.definition.definition import ToolDefinition
from toolsemble._engine.record import determine_outcome, input_text, is_unfinished
from toolsemble._runtime.observers.watchers import tell
from toolsemble._runtime.text import get_message
from toolsemble._schema.decode import Repair
from toolsemble._schema.masking.secrets import mask_result, mask_value
from toolsemble._vocabulary.result import ToolResult
from toolsemble.events import CallFinished, CallRepaired, CallStarted

_UNREAD = object()


class CallEvents:
    """Sends the events of one call, in order; an error while sending does not fail the call.

    The start of a call that waited, or was interrupted, was sent before: only its end is sent.
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
        """Send that the call has started, and its repairs."""
        try:
            self._send_started(self._display(value))
            if repairs and not self._is_known:
                tell(CallRepaired.of(self._context, repairs=tuple(repairs)))
        except Exception:  # an input that cannot be shown must not fail the call
            self._log_loss()

    def end(self, given: Any, result: ToolResult | None, error: BaseException | None, duration: float) -> None:
        """Send that the call has finished; first that it has started, if its arguments were invalid."""
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
        except Exception:  # an object of somebody's own that cannot be shown; its call is told all the same
            self._log_loss()
        return self._shown

    def _log_loss(self) -> None:
        LOGGER.warning("An event of a call of '%s' was lost", self._context.tool_name, exc_info=True)
