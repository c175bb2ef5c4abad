"""A reviewer at a URL: signed requests are posted there, and signed answers come back."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from toolsemble._vocabulary.errors import ReviewRefusedError
from toolsemble.review._audit import LOGGER
from toolsemble.review._callback import MAX_BYTES, Callback
from toolsemble.review._decision import ExitEarly, ReviewDecision
from toolsemble.review._delivery import Delivery
from toolsemble.review._listener import listen
from toolsemble.review._queue import QueueReview
from toolsemble.review._request import ReviewRequest
from toolsemble.review._signature import check_signature, webhook_key
from toolsemble.review._store import MemoryStore, ReviewStore

# Requests made within _TOGETHER seconds go into one message, up to _MAX_REQUESTS and _MAX_CHARACTERS.
_TOGETHER = 0.01
_MAX_REQUESTS = 100
_MAX_CHARACTERS = 200_000


class _UnreachableError(Exception):
    """The message could not be delivered."""


class WebhookReview(QueueReview):
    """A reviewer that posts requests to a URL, and waits for a signed answer.

    The message is a JSON object with ``requests`` and ``callback_url``, signed as the Standard Webhooks specification
    says. A success status only means that it was delivered: only a signed answer, by :meth:`receive` or in the store,
    lets a call run. If it cannot be delivered, the call is rejected.

    :param url: where requests are posted, http or https
    :param secret: the secret that messages and answers are signed with; ``whsec_`` and base64, or any str
    :param store: the store of requests; by default in memory
    :param callback_url: the URL to which answers are posted; part of the message
    :param timeout: seconds for one attempt to post
    :param attempts: the maximum number of attempts
    :param poll: seconds between checks of the store

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
        """Return the answer; a rejection if the request cannot be delivered."""
        try:
            return await super().review(request)
        except _UnreachableError as problem:
            return ExitEarly(f"the reviewer cannot be reached: {problem}")

    async def announce(self, request: ReviewRequest) -> None:
        """Post the request, in one message with concurrent ones."""
        loop, text = asyncio.get_running_loop(), _to_json(request)
        bundle = self._bundles.get(loop)
        if bundle is None or not bundle.has_room:
            bundle = self._bundles[loop] = _Bundle()
            bundle.task = loop.create_task(self._send(loop, bundle))
        bundle.requests.append(text)
        # Shielded: the message also contains requests that are not cancelled.
        problem = await asyncio.shield(bundle.task)
        if problem is not None:
            raise _UnreachableError(problem)

    def receive(self, body: bytes, headers: Mapping[str, str]) -> tuple[int, str]:
        """Store a posted answer, from any web framework; return the HTTP status and text of the response.

        The body is a JSON object with ``request_id``, ``decision`` ("continue", "edit" or "exit_early"),
        ``arguments_digest`` as it was posted, and, where they apply, ``revised``, ``reason``, ``always``, ``person``
        and ``role``. The status is 200 for success, 400 for an invalid body, 401 for a missing, wrong or outdated
        signature, 404 for an unknown request, and 409 for an answer that is refused.
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
        return self._store_answer(request, answer)

    @contextmanager
    def listen(self, host: str = "127.0.0.1", port: int = 0) -> Iterator[str]:
        """Run a small server for answers during the block; yield its URL, which is the callback URL meanwhile."""
        with listen(self.receive, host, port) as url:
            before, self.callback_url = self.callback_url, url
            try:
                yield url
            finally:
                self.callback_url = before

    def _store_answer(self, request: ReviewRequest, answer: Callback) -> tuple[int, str]:
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

    async def _send(self, loop: asyncio.AbstractEventLoop, bundle: _Bundle) -> str | None:
        try:
            await asyncio.sleep(_TOGETHER)
        finally:
            self._bundles.pop(loop, None)  # even if a full one was replaced: the next request starts another
        return await self._delivery.deliver(self._message(bundle.requests))

    def _message(self, requests: list[str]) -> bytes:
        head = json.dumps({"type": "review.requested", "callback_url": self.callback_url})
        return f'{head[:-1]}, "requests": [{", ".join(requests)}]}}'.encode()


class _Bundle:
    """A message with several requests, and the task that sends it."""

    def __init__(self) -> None:
        self.requests: list[str] = []
        self.task: asyncio.Task[str | None]

    @property
    def has_room(self) -> bool:
        return len(self.requests) < _MAX_REQUESTS and sum(map(len, self.requests)) < _MAX_CHARACTERS


def _to_json(request: ReviewRequest) -> str:
    """Return a request as strict JSON; raise ValueError for NaN and infinity."""
    values = json.loads(request.to_json())
    shown = {**values, "deadline": request.deadline, "arguments_digest": request.arguments_digest}
    return json.dumps(shown, allow_nan=False)
