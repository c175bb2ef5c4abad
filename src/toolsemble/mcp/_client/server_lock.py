"""The lock of one client: which tools of its server may be shown and called."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence

from toolsemble.catalog._lock.lock import ToolLock
from toolsemble.catalog._lock.verdict import Verdict
from toolsemble.mcp._client.definitions import RemoteDefinition
from toolsemble.review._request import ReviewHandler


class ServerLock:
    """A lock for the tools of one server, with the verdict about what one client is shown.

    :param lock: the lock of the program, which other clients may use as well
    :param source: the identity of the server
    :param review: the reviewer of the client; None: that of the lock
    """

    def __init__(self, lock: ToolLock, source: str, review: ReviewHandler | None) -> None:
        self._lock = lock.separate()
        self._source = source
        self._review = review

    async def check(self, shown: Sequence[RemoteDefinition]) -> AsyncIterator[Verdict]:
        """Yield the verdict about a list; before it, if a reviewer is asked, one that refuses what has changed."""
        listed = [each.to_listed() for each in shown]
        checking = asyncio.ensure_future(self._lock.acheck(self._source, listed, review=self._review))
        try:
            await asyncio.sleep(0)  # a check that asks nobody is done in one step
            if not checking.done():
                yield self._lock.verdict(self._source)
            yield await checking
        finally:
            checking.cancel()

    def check_now(self, shown: Sequence[RemoteDefinition]) -> Verdict:
        """Return the verdict about a list; a reviewer is waited for."""
        return self._lock.check(self._source, [each.to_listed() for each in shown], review=self._review)

    @property
    def refused(self) -> Mapping[str, str]:
        """Why tools are refused, by the server's own names."""
        return self._lock.verdict(self._source).refused

    def check_call(self, name: str, digest: str) -> None:
        """Raise ToolExecutionError if a tool may not be called.

        :param name: the server's own name
        :param digest: the digest of its pin when it was taken
        """
        self._lock.check_call(self._source, name, digest)
