"""What the answer of a provider's server says about asking again."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

_PASSING = {408, 409, 429}
_SERVER_ERROR = 500


def worth_retrying(status: int) -> bool:
    """Whether the same request may be answered another time.

    >>> [status for status in (400, 401, 404, 408, 409, 422, 429, 500, 529) if worth_retrying(status)]
    [408, 409, 429, 500, 529]
    """
    return status in _PASSING or status >= _SERVER_ERROR


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Give how many seconds a server asks to wait; None when it does not say.

    >>> retry_after({"retry-after": "7"}), retry_after({"retry-after-ms": "1500", "retry-after": "2"}), retry_after({})
    (7.0, 1.5, None)
    """
    exact = _seconds(headers.get("retry-after-ms"))
    if exact is not None:
        return exact / 1000
    asked = headers.get("retry-after")
    seconds = _seconds(asked)
    return _until(asked) if seconds is None and asked else seconds


def _seconds(text: str | None) -> float | None:
    try:
        seconds = float(text or "")
    except ValueError:
        return None
    return seconds if math.isfinite(seconds) and seconds >= 0 else None


def _until(text: str) -> float | None:
    """Give how many seconds are left until a date as HTTP writes it."""
    try:
        moment = parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return None
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)  # "-0000" says that the zone is not known
    return max(0.0, (aware - datetime.now(UTC)).total_seconds())
