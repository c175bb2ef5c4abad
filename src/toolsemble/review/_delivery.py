"""Delivery of signed messages to a webhook URL, with retries."""

from __future__ import annotations

import asyncio
import re
import time
from http.client import HTTPException
from urllib.error import URLError
from urllib.parse import urlsplit
from urllib.request import HTTPHandler, HTTPSHandler, OpenerDirector, Request

from toolsemble._runtime.checks import check_count
from toolsemble._runtime.concurrency import ThreadPerJob
from toolsemble._vocabulary.call import new_id
from toolsemble._vocabulary.errors import ToolDefinitionError
from toolsemble.review._signature import sign_headers

_BACKOFF = 0.2
_POST_THREADS = ThreadPerJob(daemon=True)


def _build_opener() -> OpenerDirector:
    # No redirects, no proxies from the environment, no file URLs.
    opener = OpenerDirector()
    opener.addheaders = [("User-Agent", "toolsemble")]
    for handler in (HTTPHandler(), HTTPSHandler()):
        opener.add_handler(handler)
    return opener


class Delivery:
    """The URL of a webhook, and how often delivery is attempted.

    >>> Delivery("ftp://example.com", b"secret", 10.0, 3)
    Traceback (most recent call last):
    ...
    toolsemble.ToolDefinitionError: A webhook needs an http or https URL in ASCII, with a host and no password
    """

    def __init__(self, url: str, key: bytes, timeout: float, attempts: int) -> None:
        if not _is_http_url(url):
            raise ToolDefinitionError("A webhook needs an http or https URL in ASCII, with a host and no password")
        if not timeout > 0:
            raise ToolDefinitionError(f"timeout must be a number of seconds > 0, not {timeout!r:.80}")
        check_count("attempts", attempts, least=1)
        self._url = url
        self._key = key
        self._timeout = timeout
        self._attempts = attempts
        self._opener = _build_opener()

    async def deliver(self, body: bytes) -> str | None:
        """Post a message, with retries; return the problem, or None when it was accepted."""
        id_ = f"msg_{new_id()}"
        problem, again = None, True
        for attempt in range(self._attempts):
            if attempt:
                await asyncio.sleep(_BACKOFF * 2 ** (attempt - 1))
            problem, again = await asyncio.wrap_future(_POST_THREADS.submit(self._post, id_, body))
            if not again:
                break
        return problem

    def _post(self, id: str, body: bytes) -> tuple[str | None, bool]:
        """Return the problem, if any, and whether a retry may help."""
        headers = {"Content-Type": "application/json", **sign_headers(self._key, id, body, time.time())}
        request = Request(self._url, body, headers, method="POST")  # noqa: S310 - the scheme was checked: http or https
        try:
            with self._opener.open(request, timeout=self._timeout) as response:
                status = response.status
        except URLError as error:
            return f"{error.reason}", True
        except (OSError, HTTPException) as error:
            return f"{error}" or type(error).__name__, True
        if status // 100 == 2:  # noqa: PLR2004 - 200 to 299: accepted
            return None, False
        return f"it answered {status}", status == 429 or status >= 500  # noqa: PLR2004 - too many requests, server errors


def _is_http_url(url: object) -> bool:
    try:
        if not isinstance(url, str) or not re.fullmatch(r"[!-~]+", url):
            return False
        parts = urlsplit(url)
        return parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0 and not parts.username
    except ValueError:
        return False
