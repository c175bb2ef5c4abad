"""Whether and when to retry, from the status and headers of a response."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

_RETRYABLE = {408, 409, 429}
_SERVER_ERROR = 500


def is_retryable(status: int, headers: Mapping[str, str] | None = None) -> bool:
    """Return whether the same request may succeed later; the header ``x-should-retry`` takes precedence.

    >>> [status for status in (400, 401, 404, 408, 409, 422, 429, 500, 529) if is_retryable(status)]
    [408, 409, 429, 500, 529]
    """
    asked = (headers or {}).get("x-should-retry")
    if asked in {"true", "false"}:
        return asked == "true"
    return status in _RETRYABLE or status >= _SERVER_ERROR


def parse_retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the delay in seconds requested by a server, or None.

    >>> parse_retry_after({"retry-after": "7"}), parse_retry_after({"retry-after-ms": "1500", "retry-after": "2"})
    (7.0, 1.5)
    """
    exact = _parse_seconds(headers.get("retry-after-ms"))
    if exact is not None:
        return exact / 1000
    text = headers.get("retry-after")
    seconds = _parse_seconds(text)
    return _seconds_until(text) if seconds is None and text else seconds


def _parse_seconds(text: str | None) -> float | None:
    try:
        seconds = float(text or "")
    except ValueError:
        return None
    return seconds if math.isfinite(seconds) and seconds >= 0 else None


def _seconds_until(text: str) -> float | None:
    """Return the seconds until an HTTP date."""
    try:
        moment = parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return None
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)  # "-0000" means that the zone is unknown
    return max(0.0, (aware - datetime.now(UTC)).total_seconds())
