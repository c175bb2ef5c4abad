"""A reviewer at a URL: requests are posted there, signed, and the answers come back signed."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from toolsemble.errors import ReviewRefusedError
from toolsemble.review.audit import LOGGER
from toolsemble.review.callback import MAX_BYTES, Callback
from toolsemble.review.decision import ExitEarly, ReviewDecision
from toolsemble.review.delivery import Delivery
from toolsemble.review.listener import listen
from toolsemble.review.queue import QueueReview
from toolsemble.review.request import ReviewRequest
from toolsemble.review.signature import check_signature, webhook_key
from toolsemble.review.store import MemoryStore, ReviewStore

# Requests that are made within this many seconds go into one message, up to this many, and this many characters.
_TOGETHER = 0.01
_MOST = 100
_LONGEST = 200_000


class _UnreachableError(Exception):
    """The message could not be delivered."""


class WebhookReview(QueueReview):
    """A handler that posts requests to a URL, and waits for a signed answer.

    The message is a JSON object with ``requests`` and ``callback_url``, signed as the Standard Webhooks specification
    says. That it was taken means that it was delivered, nothing more: only a signed answer, by :meth:`receive` or in
    the store, lets a call run. When it cannot be delivered, the call is refused.

    :param url: where requests are posted, http or https
    :param secret: what messages and answers are signed with; ``whsec_`` and base64, or any text
    :param store: where requests wait; by default in memory
    :param callback_url: where the answers are to be posted, for whoever gets the message
    :param timeout: how many seconds one attempt to post may take
    :param attempts: how often it is tried
    :param poll: how many seconds pass between looks at the store

    >>> webhook = WebhookReview("https://example.com/reviews", "secret")
    >>> webhook.receive(b"{}", {})
    (401, 'the message has no webhook-id or no webhook-timestamp')
    """

    def __init__(
        self,
        url: str,
        secret: str | bytes,
        *,
        store: ReviewStore | None = None,
        callback_url: str = "",
        timeout: float = 10.0,
        attempts: int = 3,
        poll: float = 0.05,
    ) -> None:
        self._key = webhook_key(secret)
        self._delivery = Delivery(url, self._key, timeout, attempts)
        self._bundles: dict[asyncio.AbstractEventLoop, _Bundle] = {}
        self.callback_url = callback_url
        super().__init__(MemoryStore(secret=self._key) if store is None else store, poll=poll)

    async def review(self, request: ReviewRequest) -> ReviewDecision:
        """Give the answer that comes back; a refusal when the request cannot be delivered."""
        try:
            return await super().review(request)
        except _UnreachableError as problem:
            return ExitEarly(f"the reviewer cannot be reached: {problem}")

    async def announce(self, request: ReviewRequest) -> None:
        """Post the request, in one message with others that are made at the same time."""
        loop, text = asyncio.get_running_loop(), _text(request)
        bundle = self._bundles.get(loop)
        if bundle is None or not bundle.has_room:
            bundle = self._bundles[loop] = _Bundle()
            bundle.task = loop.create_task(self._sent(loop, bundle))
        bundle.requests.append(text)
        # The message is that of others, too, who have not been cancelled.
        problem = await asyncio.shield(bundle.task)
        if problem is not None:
            raise _UnreachableError(problem)

    def receive(self, body: bytes, headers: Mapping[str, str]) -> tuple[int, str]:
        """Take an answer that was posted, from any web framework; give the HTTP status and a text to answer with.

        The body is a JSON object with ``request_id``, ``decision`` ("continue", "edit" or "exit_early"),
        ``arguments_digest`` as it was posted, and, where they apply, ``revised``, ``reason``, ``always``, ``person``
        and ``role``. The status is 200 when it was taken, 400 for another body, 401 when it is not signed or not of
        this time, 404 when the request is unknown, and 409 when the answer is refused.
        """
        if len(body) > MAX_BYTES:
            return 400, f"the body is larger than {MAX_BYTES} bytes"
        try:
            check_signature(self._key, body, headers, time.time())
        except ReviewRefusedError as refusal:
            LOGGER.warning("refused: a callback: %s", refusal)
            return 401, f"{refusal}"
        try:
            answer = Callback.read(body)
        except ValueError as problem:
            return 400, f"{problem}"
        request = self.store.find(answer.request_id)
        if request is None:
            return 404, "the request is unknown"
        return self._stored(request, answer)

    @contextmanager
    def listen(self, host: str = "127.0.0.1", port: int = 0) -> Iterator[str]:
        """Run a small server for answers while the block runs, and give its URL, which messages name meanwhile."""
        with listen(self.receive, host, port) as url:
            before, self.callback_url = self.callback_url, url
            try:
                yield url
            finally:
                self.callback_url = before

    def _stored(self, request: ReviewRequest, answer: Callback) -> tuple[int, str]:
        try:
            self.store.answer(
                request,
                answer.decision,
                person=answer.person,
                role=answer.role,
                arguments_digest=answer.arguments_digest,
            )
        except ReviewRefusedError as refusal:
            return 409, f"{refusal}"
        return 200, "answered"

    async def _sent(self, loop: asyncio.AbstractEventLoop, bundle: _Bundle) -> str | None:
        try:
            await asyncio.sleep(_TOGETHER)
        finally:
            self._bundles.pop(loop, None)  # where a full one was replaced, the next request begins another
        return await self._delivery.deliver(self._message(bundle.requests))

    def _message(self, requests: list[str]) -> bytes:
        head = json.dumps({"type": "review.requested", "callback_url": self.callback_url})
        return f'{head[:-1]}, "requests": [{", ".join(requests)}]}}'.encode()


class _Bundle:
    """Requests that go into one message, and the task that sends it."""

    def __init__(self) -> None:
        self.requests: list[str] = []
        self.task: asyncio.Task[str | None]

    @property
    def has_room(self) -> bool:
        return len(self.requests) < _MOST and sum(map(len, self.requests)) < _LONGEST


def _text(request: ReviewRequest) -> str:
    """Give a request as JSON for anybody; one with numbers that JSON does not have fails alone."""
    values = json.loads(request.to_json())
    shown = {**values, "deadline": request.deadline, "arguments_digest": request.arguments_digest}
    return json.dumps(shown, allow_nan=False)
