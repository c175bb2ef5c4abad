"""What those who watch are told of one call: its beginning, its repairs, its end."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from toolsemble.context import LOGGER, ToolContext
from toolsemble.definition.definition import ToolDefinition
from toolsemble.events import CallFinished, CallRepaired, CallStarted
from toolsemble.masking.secrets import masked_result, masked_value
from toolsemble.observers.watchers import tell
from toolsemble.record import outcome_of
from toolsemble.result import ToolResult
from toolsemble.schema.decode import Repair
from toolsemble.shape import describe_error

_UNREAD = object()


class CallEvents:
    """The events of one call, in order; what goes wrong while they are told does not disturb the call."""

    __slots__ = ("_at", "_context", "_definition", "_shown", "_value")

    def __init__(self, definition: ToolDefinition, context: ToolContext) -> None:
        self._definition = definition
        self._context = context
        self._at = time.time()
        self._value: Any = _UNREAD
        self._shown: Any = None

    def begin(self, value: Any, repairs: Sequence[Repair]) -> None:
        """Tell that the call has begun, and what had to be repaired in what was sent."""
        try:
            self._started(self._presented(value))
            if repairs:
                tell(CallRepaired.of(self._context, repairs=tuple(repairs)))
        except Exception:  # noqa: BLE001 - an input that cannot be shown must not fail the call
            self._lost()

    def end(self, given: Any, result: ToolResult | None, error: BaseException | None, duration: float) -> None:
        """Tell that the call has ended; and that it had begun, where what was sent did not fit."""
        try:
            if self._value is _UNREAD:
                self._started(masked_value(str(given)))
            elif given is not self._value:  # a reviewer has changed it
                self._presented(given)
            facts: dict[str, Any] = {"outcome": outcome_of(result, error), "duration": duration}
            if error is not None:
                facts |= {"error_type": type(error).__name__, "error": describe_error(error)}
            shown = None if result is None else masked_result(result)
            tell(CallFinished.of(self._context, result=shown, arguments=self._shown, **facts))
        except Exception:  # noqa: BLE001 - as above
            self._lost()

    def _started(self, arguments: Any) -> None:
        self._shown = arguments
        tell(CallStarted.of(self._context, arguments=arguments, at=self._at))

    def _presented(self, value: Any) -> Any:
        self._value, self._shown = value, None
        try:
            self._shown = masked_value(self._definition.present(value, glance=True))
        except Exception:  # noqa: BLE001 - an object of somebody's own that cannot be shown; its call is told all the same
            self._lost()
        return self._shown

    def _lost(self) -> None:
        LOGGER.warning("What is told of a call of '%s' was lost", self._context.tool_name, exc_info=True)
