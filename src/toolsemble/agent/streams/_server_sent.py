"""Runs as plain server-sent events."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable
from typing import Any

from toolsemble.agent._event import Event
from toolsemble.agent.streams._browser_view import BrowserView
from toolsemble.agent.streams._delivery import PING, deliver


def sse(
    events: AsyncIterator[Event],
    *,
    encode: Callable[[Event], str | None] | None = None,
    show_failures: bool = False,
    show_thoughts: bool = False,
    on_error: Callable[[Exception], str] | None = None,
    ping: float | None = PING,
) -> AsyncGenerator[str, None]:
    r"""Yield the events of a run as server-sent events, for a response with :data:`SSE_HEADERS`.

    Each is a JSON object with a ``kind``. By default it holds what a browser may see: the text, the calls and their
    results, progress, review requests, and the answer; no payloads, system prompt, thoughts or error texts. A failed
    run ends with ``{"kind": "error", "message": "The run failed"}``, and the exception is logged. After
    ``model_retried``, discard the text ``discarded`` and the thoughts of this reply.

    A client that disconnects closes the generator, which ends the run.

    :param events: the events of :meth:`~toolsemble.Agent.stream`
    :param encode: returns the text of an event, such as :func:`~toolsemble.agent.event_to_json` for a program that may
        see everything; or None to skip the event
    :param show_failures: whether the texts of failed calls are shown
    :param show_thoughts: whether the model's reasoning is shown; it may repeat the system prompt and tool results
    :param on_error: returns the browser's message for the exception that ended the run
    :param ping: idle seconds before a keep-alive comment is sent; None: no comments

    >>> import asyncio
    >>> from toolsemble import Agent
    >>> from toolsemble.testing import ScriptedModel
    >>> async def chunks():
    ...     return [chunk async for chunk in sse(Agent(ScriptedModel(["Rome"])).stream("Where?"))]
    >>> asyncio.run(chunks())[0]
    'data: {"kind":"text_delta","text":"Rome"}\n\n'
    """
    view = BrowserView(show_failures=show_failures, show_thoughts=show_thoughts)
    return deliver(events, _SseEncoder(encode, view), on_error, ping)


class _SseEncoder:
    """Encodes plain events."""

    def __init__(self, encode: Callable[[Event], str | None] | None, view: BrowserView) -> None:
        self._encode = encode
        self._view = view

    def start(self) -> Iterable[Any]:
        return ()

    def write(self, event: Event) -> Iterable[Any]:
        shown = self._view.write(event) if self._encode is None else self._encode(event)
        return () if shown is None else (shown,)

    def fail(self, message: str) -> Iterable[Any]:
        return ({"kind": "error", "message": message},)

    def end(self) -> Iterable[Any]:
        return ()
