"""The delivery of events as server-sent events: frames, keep-alive comments, failures, and disconnects."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Protocol

from toolsemble._engine.record import has_handler
from toolsemble._runtime.checks import check_seconds
from toolsemble._vocabulary.errors import RunBusyError
from toolsemble._vocabulary.serialization import compact_json
from toolsemble.agent._event import Event
from toolsemble.models._chat import closing

LOGGER = logging.getLogger("toolsemble.agent")

FAILED = "The run failed"
"""The browser's message for any exception; the exception itself is only logged."""

BUSY = "Another process does this run"
"""The browser's message for a run that another process drives."""

PING = 15.0
"""Default idle seconds before a keep-alive comment is sent."""

SSE_HEADERS: Mapping[str, str] = MappingProxyType(
    {"content-type": "text/event-stream", "cache-control": "no-cache", "x-accel-buffering": "no"}
)
"""The headers of a response with server-sent events; the last one turns off nginx buffering."""

_LINE_END = re.compile("\r\n|\n|\r")
_COMMENT = ": waiting\n\n"
_ENDING: set[asyncio.Future[None]] = set()  # the event loop itself does not keep its tasks alive


class Encoder(Protocol):
    """Encodes one stream in one protocol; each method returns payloads: JSON objects, or texts."""

    def start(self) -> Iterable[Any]:
        """Return the payloads before the first event."""
        ...

    def write(self, event: Event) -> Iterable[Any]:
        """Return the payloads for an event."""
        ...

    def fail(self, message: str) -> Iterable[Any]:
        """Return the payloads for a run that failed."""
        ...

    def end(self) -> Iterable[Any]:
        """Return the payloads after the last event."""
        ...


def deliver(
    events: AsyncIterator[Event],
    encoder: Encoder,
    on_error: Callable[[Exception], str] | None,
    ping: float | None,
) -> AsyncGenerator[str, None]:
    """Yield the events as server-sent events; closing the generator ends the run.

    :param on_error: returns the browser's message for an exception; None: a fixed message
    :param ping: idle seconds before a keep-alive comment is sent; None: no comments
    """
    if not hasattr(events, "__anext__"):
        raise TypeError(f"A stream takes the events of agent.stream(...), not {events!r:.80}")
    if on_error is not None and not callable(on_error):
        raise TypeError(f"on_error must be a function of the exception that returns a text, not {on_error!r:.80}")
    if ping is not None:
        check_seconds("ping", ping)
    return _deliver(events, encoder, on_error, ping)


async def _deliver(
    events: AsyncIterator[Event],
    encoder: Encoder,
    on_error: Callable[[Exception], str] | None,
    ping: float | None,
) -> AsyncGenerator[str, None]:
    waiting: asyncio.Future[Event] | None = None
    try:
        for payload in encoder.start():
            yield _frame(payload)
        try:
            while True:
                waiting = asyncio.ensure_future(anext(events))
                while not (await asyncio.wait({waiting}, timeout=ping))[0]:
                    yield _COMMENT
                for payload in encoder.write(waiting.result()):
                    yield _frame(payload)
        except StopAsyncIteration:
            pass
        except Exception as error:  # logged, and reported without its details
            for payload in encoder.fail(_describe(error, on_error)):
                yield _frame(payload)
        for payload in encoder.end():
            yield _frame(payload)
    finally:
        # Web frameworks cancel repeatedly until the response ends, possibly before the run has ended.
        ending = asyncio.ensure_future(_end_run(events, waiting))
        _ENDING.add(ending)
        ending.add_done_callback(_ENDING.discard)
        await asyncio.shield(ending)


def _frame(payload: Any) -> str:
    """Return a payload as one server-sent event; each line of a text is prefixed, so that it cannot forge a field."""
    text = payload if isinstance(payload, str) else compact_json(payload, ensure_ascii=True, allow_nan=False)
    return "".join([f"data: {line}\n" for line in _LINE_END.split(text)]) + "\n"


def _describe(error: Exception, on_error: Callable[[Exception], str] | None) -> str:
    if isinstance(error, RunBusyError):
        LOGGER.info("A run was not streamed: %s", error)
    else:
        _log_failure("A streamed run failed", error)
    message = BUSY if isinstance(error, RunBusyError) else FAILED
    try:
        return message if on_error is None else str(on_error(error))
    except Exception as problem:  # logged; the stream still has to end properly
        _log_failure("on_error of a stream failed", problem)
        return FAILED


def _log_failure(message: str, error: Exception) -> None:
    """Log an exception; to stderr if logging is not configured, since it would be lost otherwise."""
    LOGGER.error(message, exc_info=error)
    if not has_handler(LOGGER) and LOGGER.isEnabledFor(logging.ERROR) and logging.lastResort is not None:
        details = (type(error), error, error.__traceback__)
        logging.lastResort.handle(LOGGER.makeRecord(LOGGER.name, logging.ERROR, __file__, 0, message, (), details))


async def _end_run(events: AsyncIterator[Event], waiting: asyncio.Future[Event] | None) -> None:
    """Cancel the request for the next event, which ends the run, and close the stream."""
    if waiting is not None:
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
    async with closing(events):  # type: ignore[arg-type]  # any stream, not only a model's
        pass
