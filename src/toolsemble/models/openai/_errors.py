"""Errors of OpenAI's API and of compatible servers, as ModelError."""

from __future__ import annotations

import re
from types import ModuleType
from typing import Any

from toolsemble._vocabulary.errors import ModelError
from toolsemble.models._adapter.errors import connection_error, quote, read_reason, status_error
from toolsemble.models._adapter.offer import key_hint
from toolsemble.models._adapter.retry import is_retryable
from toolsemble.models._adapter.wire import field
from toolsemble.models.openai._address import Site

_UNAUTHORIZED = 401
# Codes of retryable errors inside of an answer, which have no status.
_RETRYABLE = {
    "api_error", "internal_server_error", "overloaded", "overloaded_error", "rate_limit_error", "rate_limit_exceeded",
    "server_error", "service_unavailable", "timeout", "vector_store_timeout",
}  # fmt: skip
# A retry is useless when the quota is used up.
_FINAL = {"insufficient_quota", "billing_hard_limit_reached"}


def translate(error: Any, keys: list[str], sdk: ModuleType, site: Site) -> ModelError | None:
    """Return the error for an exception of the SDK; None if it is not one."""
    if isinstance(error, sdk.APIStatusError):
        return _status_error(error, keys, site)
    if isinstance(error, sdk.APIConnectionError):
        return connection_error(f"{site.label} at {site.address}", error.__cause__ or error, keys)
    if isinstance(error, sdk.APIError):
        return error_from_body(error.body if isinstance(error.body, dict) else {"message": error.message}, site.label)
    return ModelError(f"{site.label}: {quote(str(error), keys)}") if isinstance(error, sdk.OpenAIError) else None


def error_from_body(body: object, label: str) -> ModelError:
    """Return the error that a server sent inside of an answer.

    >>> error_from_body({"message": "Overloaded", "code": 503}, "Router").retryable
    True
    """
    code, kind = str(field(body, "code")), str(field(body, "type"))
    status = int(code) if re.fullmatch("[1-5][0-9]{2}", code) else None
    retryable = is_retryable(status) if status is not None else bool({code, kind} & _RETRYABLE)
    return ModelError(f"{label}: {quote(read_reason(body))}", retryable=retryable and code not in _FINAL)


def _status_error(error: Any, keys: list[str], site: Site) -> ModelError:
    status, headers = error.status_code, error.response.headers
    variable = f"set {site.key_variable} or " if site.key_variable else ""
    hint = key_hint(site.key_source, f"{variable}pass api_key=") if status == _UNAUTHORIZED else ""
    reason = quote(read_reason(error.body) or error.message, keys)
    retryable = is_retryable(status, headers) and error.code not in _FINAL
    return status_error(site.label, status, f"{reason}{hint}", headers, retryable=retryable)
