"""A body that runs in a process of its own, which is killed when the call ends before it."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

from toolsemble.bounded import ALONE, ended
from toolsemble.context import ToolContext
from toolsemble.deadline import TimedOutError, left
from toolsemble.definition import ToolDefinition
from toolsemble.errors import ToolExecutionError
from toolsemble.shape import described
from toolsemble.start import Start
from toolsemble.work import Job
from toolsemble.workers import GRACE, JobFuture, received, wait_for


class RunApart:
    """Run a tool's body with its input in a worker process, until its deadline."""

    __slots__ = ("_context", "_definition", "_sent", "_value")

    def __init__(self, definition: ToolDefinition, value: Any, context: ToolContext) -> None:
        self._definition = definition
        self._value = value
        self._context = context
        self._sent: Callable[[], None] | None = None

    def count(self, start: Start) -> None:
        """Take down when the body is sent to its process: of what happens there, nothing is known here."""
        self._sent = start.begin

    def do(self) -> Any:
        """Wait for it in this thread."""
        errand = self._errand()
        seconds = left(self._context)
        future: JobFuture[Any] = JobFuture()
        try:
            ALONE.start(future, errand)
            wait_for(future, seconds)
        finally:
            late = not future.done()
            if late:
                errand.call_off()
        if late:
            wait_for(future, GRACE)  # what is killed is gone when the call is
            raise TimedOutError
        return received(future.result())

    async def ado(self) -> Any:
        """Wait for it, and let other tasks run."""
        errand = self._errand()
        seconds = left(self._context)
        return received(await ended(ALONE.submit(errand), seconds, errand.call_off))

    def _errand(self) -> Any:
        from toolsemble.processes import Errand  # noqa: PLC0415 - only tools that run apart pay for it

        try:
            payload = pickle.dumps(Job(self._definition, self._value, self._context, ALONE))
        except Exception as error:
            raise ToolExecutionError(f"The call cannot be sent to a worker process: {described(error)}") from error
        return Errand(payload, self._sent)
