"""What the call path needs done, each in a sync and an async form."""

from __future__ import annotations

from contextvars import ContextVar, copy_context
from typing import Any, Protocol

from toolsemble.context import ToolContext, enter, leave
from toolsemble.definition import ToolDefinition
from toolsemble.limits import Slots
from toolsemble.review import ReviewHandler, ReviewRequest
from toolsemble.workers import THREADS, finish

_in_worker: ContextVar[bool] = ContextVar("toolsemble.in_worker", default=False)


class Work(Protocol):
    """One thing to be done before the call can go on."""

    def do(self) -> Any:
        """Do it in this thread, which may wait."""
        ...

    async def ado(self) -> Any:
        """Do it without blocking the event loop."""
        ...


class RunBody:
    """Run a tool's body with its input, inside its context."""

    __slots__ = ("_context", "_definition", "_value")

    def __init__(self, definition: ToolDefinition, value: Any, context: ToolContext) -> None:
        self._definition = definition
        self._value = value
        self._context = context

    def do(self) -> Any:
        """Run it here; a body that is async gets an event loop."""
        token = enter(self._context)
        try:
            returned = self._definition.body(self._value)
            return finish(returned) if hasattr(returned, "__await__") else returned
        finally:
            leave(token)

    async def ado(self) -> Any:
        """Await an async body in place; run a blocking one in a worker."""
        token = enter(self._context)
        try:
            if self._definition.awaits or self._definition.inline:
                returned = self._definition.body(self._value)
            else:
                returned = await self._in_worker()
            return await returned if hasattr(returned, "__await__") else returned
        finally:
            leave(token)

    async def _in_worker(self) -> Any:
        import asyncio  # noqa: PLC0415 - sync programs never pay for it

        # A body that waits for further calls must not wait for a place in the pool that it fills itself;
        # the pool of the event loop that asks is never the one that waits.
        shared = self._context.executor is THREADS or _in_worker.get()
        executor = None if shared else self._context.executor
        job = Job(self._definition, self._value, self._context)
        returned, error = await asyncio.get_running_loop().run_in_executor(executor, job)
        if error is not None:
            raise error
        return returned


class Job:
    """A body and its input, ready for any executor; gives what was returned and what was raised.

    In another process, where context variables and live objects cannot go, it gets the detached context.
    """

    def __init__(self, definition: ToolDefinition, value: Any, context: ToolContext) -> None:
        self._body = definition.body
        self._value = value
        self._context = context
        self._variables = copy_context()

    def __call__(self) -> tuple[Any, BaseException | None]:
        """Run the body, in this thread or process."""
        return self._variables.run(self._run)

    def _run(self) -> tuple[Any, BaseException | None]:
        _in_worker.set(True)
        enter(self._context)
        try:
            return self._body(self._value), None
        except BaseException as error:  # noqa: BLE001 - raised again by whoever asked; futures cannot carry every kind
            return None, error

    def __getstate__(self) -> tuple[Any, ...]:
        return self._body, self._value, self._context.detached()

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self._body, self._value, self._context = state
        self._variables = copy_context()


class AskReviewer:
    """Put a request to whoever decides, and give the answer."""

    __slots__ = ("_handler", "_request")

    def __init__(self, handler: ReviewHandler, request: ReviewRequest) -> None:
        self._handler = handler
        self._request = request

    def do(self) -> Any:
        """Ask here, and wait."""
        answer = self._handler.review(self._request)
        return finish(answer) if hasattr(answer, "__await__") else answer

    async def ado(self) -> Any:
        """Ask without holding up other calls."""
        import asyncio  # noqa: PLC0415 - sync programs never pay for it

        answer = await asyncio.to_thread(self._handler.review, self._request)
        return await answer if hasattr(answer, "__await__") else answer


class TakeSlot:
    """Wait until one more call may run."""

    __slots__ = ("_slots",)

    def __init__(self, slots: Slots) -> None:
        self._slots = slots

    def do(self) -> None:
        """Wait in this thread."""
        self._slots.take()

    async def ado(self) -> None:
        """Wait without blocking the event loop."""
        await self._slots.atake()
