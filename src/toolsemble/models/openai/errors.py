"""Errors of OpenAI's API and of compatible servers, as ModelError."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from toolsemble.errors import ModelError
from toolsemble.models.adapter.errors import quote
from toolsemble.models.adapter.retry import is_retryable, parse_retry_after
from toolsemble.models.openai.site import Site
from toolsemble.models.reply_limit import find_too_long
from toolsemble.providers.wire import field

_UNAUTHORIZED = 401
# Codes of retryable errors inside of an answer, which have no status.
_RETRYABLE = {
    "api_error", "internal_server_error", "overloaded", "overloaded_error", "rate_limit_error", "rate_limit_exceeded",
    "server_error", "service_unavailable", "timeout", "vector_store_timeout",
}  # fmt: skip
# A retry is useless when the quota is used up.
_FINAL = {"insufficient_quota", "billing_hard_limit_reached"}


@contextmanager
def translate_errors(sdk: ModuleType, site: Site) -> Iterator[None]:
    """Raise errors of the SDK as :class:`~toolsemble.ModelError` with the provider's message."""
    try:
        yield
    except sdk.OpenAIError as error:
        raise find_too_long(error) or _translate(error, sdk, site) from error
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ModelError(f"{site.label} sent something that is not JSON: {error}", retryable=True) from error


def error_from_body(body: object, label: str) -> ModelError:
    """Return the error that a server sent inside of an answer.

    >>> error_from_body({"message": "Overloaded", "code": 503}, "Router").retryable
    True
    """
    code, kind = str(field(body, "code")), str(field(body, "type"))
    status = int(code) if re.fullmatch("[1-5][0-9]{2}", code) else None
    retryable = is_retryable(status) if status is not None else bool({code, kind} & _RETRYABLE)
    return ModelError(f"{label}: {_read_message(body)}", retryable=retryable and code not in _FINAL)


def _translate(error: Any, sdk: ModuleType, site: Site) -> ModelError:
    if isinstance(error, sdk.APIStatusError):
        return _status_error(error, site)
    if isinstance(error, sdk.APITimeoutError):
        return ModelError(f"{site.label} at {site.address} did not answer in time", retryable=True)
    if isinstance(error, sdk.APIConnectionError):
        reason = _quote(str(error.__cause__ or error), site)
        return ModelError(f"{site.label} at {site.address} could not be reached: {reason}", retryable=True)
    if isinstance(error, sdk.APIError):
        return error_from_body(error.body if isinstance(error.body, dict) else {"message": error.message}, site.label)
    return ModelError(f"{site.label}: {_quote(str(error), site)}")


def _status_error(error: Any, site: Site) -> ModelError:
    status, headers = error.status_code, error.response.headers
    override = headers.get("x-should-retry")  # takes precedence over the status
    retryable = override == "true" if override in {"true", "false"} else is_retryable(status)
    hint = _hint(site) if status == _UNAUTHORIZED else ""
    return ModelError(
        f"{site.label} answered {status}: {_quote(_read_message(error.body) or error.message, site)}{hint}",
        retryable=retryable and error.code not in _FINAL,
        retry_after=parse_retry_after(headers),
    )


def _hint(site: Site) -> str:
    """Return how to set another key."""
    return f"; set {site.key_variable} or pass api_key=" if site.key_variable else "; pass api_key="


def _read_message(body: object) -> str:
    """Return the message of an error, in any of the formats that servers use."""
    message = field(body, "message", "error", "detail") or body
    return quote(message if isinstance(message, str) else json.dumps(message, default=str)) if message else ""


def _quote(text: str, site: Site) -> str:
    """Return a text with the key masked."""
    return quote(text, [site.key] if isinstance(site.key, str) else ())
