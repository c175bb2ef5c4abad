"""Errors of requests: refused, a failed connection, a stream that was cut off, a body that cannot be read."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping

from toolsemble._runtime.text import preview
from toolsemble._vocabulary.errors import ModelError
from toolsemble.models._adapter.retry import parse_retry_after
from toolsemble.models._adapter.wire import field

_SHOWN = 500
_SERVER_ERROR = re.compile(r"5\d\d\b")  # some codes have a name behind the number
_BEFORE_KEY = r"(?:(?<=[\"'`:=])|(?<=[:=] )|(?<=[Bb]earer ))"
_SHORT = 8  # shorter keys occur by chance inside of words


def quote(text: str, secrets: Iterable[str | None] = ()) -> str:
    """Return the message of a server on one line, shortened, with keys masked.

    >>> quote("No such key: s3cret", ["s3cret", None])
    'No such key: ***'
    """
    return preview(mask_keys(text, secrets), _SHOWN)


def mask_keys(text: str, secrets: Iterable[str | None]) -> str:
    """Return a text with keys replaced by asterisks.

    A short key, such as a dummy for a local server, is replaced as a word only; one of letters alone may be a word of
    the message, and is replaced only in quotes, after a colon or an equals sign, and after "Bearer".

    >>> mask_keys("No such key: s3cret", ["s3cret", None]), mask_keys("No such key: k", ["k"])
    ('No such key: ***', 'No such key: ***')
    >>> mask_keys("Incorrect API key provided: 'key'", ["key"])
    "Incorrect API key provided: '***'"
    """
    for secret in filter(None, secrets):
        text = re.sub(_find_pattern(secret), "***", text)
    return text


def _find_pattern(secret: str) -> str:
    found = re.escape(secret)
    if len(secret) >= _SHORT:
        return found
    before = _BEFORE_KEY if secret.isalpha() else ""
    return rf"{before}(?<!\w){found}(?!\w)"


def read_reason(body: object) -> str:
    """Return the message in the body of an error, in any of the formats that servers use; empty if there is none.

    >>> read_reason({"error": {"message": "Overloaded"}}), read_reason({"detail": [{"msg": "bad"}]}), read_reason(None)
    ('Overloaded', '[{"msg": "bad"}]', '')
    """
    reason = body
    while (inner := field(reason, "message", "detail", "error")) is not None:
        reason = inner
    return reason if isinstance(reason, str) else json.dumps(reason, default=str) if reason else ""


def status_error(
    provider: str, code: object, reason: str, headers: Mapping[str, str], *, retryable: bool
) -> ModelError:
    """Return the error for a request that was refused, or that the server failed to answer.

    :param reason: the provider's message, quoted

    >>> status_error("Mistral", 429, "Slow down", {"retry-after": "7"}, retryable=True)
    ModelError('Mistral refused the request (429): Slow down')
    """
    verb = "failed to answer" if _SERVER_ERROR.match(str(code)) else "refused the request"
    message = f"{provider} {verb} ({code}): {reason}"
    return ModelError(message, retryable=retryable, retry_after=parse_retry_after(headers))


def connection_error(provider: str, problem: BaseException, secrets: Iterable[str | None] = ()) -> ModelError:
    """Return the retryable error for a connection that failed, timed out or broke.

    >>> connection_error("Mistral", ConnectionError("no route"))
    ModelError('The connection to Mistral failed: no route (ConnectionError)')
    """
    # Some exceptions have no message, and for some the class name says more than the message.
    message = quote(f"{problem} ({type(problem).__name__})".strip(), secrets)
    return ModelError(f"The connection to {provider} failed: {message}", retryable=True)


def cut_off_error(provider: str) -> ModelError:
    """Return the retryable error for a stream without an end.

    >>> cut_off_error("Mistral")
    ModelError("Mistral's answer was cut off before its end")
    """
    return ModelError(f"{provider}'s answer was cut off before its end", retryable=True)


def unreadable_error(provider: str, problem: BaseException) -> ModelError:
    """Return the retryable error for an answer that cannot be parsed.

    >>> unreadable_error("Mistral", ValueError("not JSON"))
    ModelError("Mistral's answer cannot be read: not JSON")
    """
    return ModelError(f"{provider}'s answer cannot be read: {quote(str(problem))}", retryable=True)
