"""A server with OpenAI's API: its address, its key, and conversion of its errors."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from toolsemble._vocabulary.errors import ModelError, ToolConfigurationError, ToolDefinitionError
from toolsemble.models._adapter import wire
from toolsemble.models._adapter.errors import connection_error, quote, read_reason, status_error
from toolsemble.models._adapter.offer import CLIENT_KEY, find_key_source, key_hint
from toolsemble.models._adapter.retry import is_retryable

if TYPE_CHECKING:
    from openai import AsyncOpenAI


_HOST = "api.openai.com"
_BASE_URL = f"https://{_HOST}/v1"
_KEY_VARIABLE = "OPENAI_API_KEY"


@dataclass(frozen=True, slots=True)
class Site:
    """The address of a server, and its key.

    >>> Site("OpenAI", "https://api.openai.com/v1", "OPENAI_API_KEY", "sk-secret")
    Site(label='OpenAI', address='https://api.openai.com/v1', key_variable='OPENAI_API_KEY')
    """

    label: str
    """Its name in messages."""
    address: str
    """Its base URL."""
    key_variable: str | None
    """The environment variable with the key."""
    key: Any = field(repr=False)
    """The key, or a function that returns it."""
    key_source: str | None = field(default=None, repr=False)
    """The key's source; None if there is none."""


def is_openai(address: str) -> bool:
    """Return whether an address belongs to OpenAI.

    >>> is_openai("https://eu.api.openai.com/v1"), is_openai("http://127.0.0.1:8000/v1")
    (True, False)
    """
    host = urlsplit(address).hostname or ""
    return host == _HOST or host.endswith(f".{_HOST}")  # there is also a host per region


def resolve_site(
    base_url: str | None, label: str | None, key: Any, variable: str | None, headers: Mapping[str, str]
) -> Site:
    """Return the site for some settings; raise an error for an invalid address, and for OpenAI without a key.

    >>> resolve_site("http://127.0.0.1:8000/v1/", None, None, None, {})
    Site(label='127.0.0.1', address='http://127.0.0.1:8000/v1', key_variable=None)
    """
    address = base_url or os.environ.get("OPENAI_BASE_URL") or _BASE_URL
    _check_address(address)
    variable = variable or (_KEY_VARIABLE if base_url is None else None)
    resolved = _find_key(key, variable)
    if not resolved and base_url is None:
        raise ToolConfigurationError(f"OpenAIModel has no key: set {variable} or pass api_key=")
    source = find_key_source(key, *filter(None, [variable])) if resolved else None
    if any(name.lower() == "authorization" for name in headers):
        source = "the key in headers="  # replaces the other one
    return Site(label or _label_of(address), address.rstrip("/"), variable, resolved, source)


def _check_address(address: str) -> None:
    try:
        parts = urlsplit(address)
        is_url = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_url = False
    if not is_url:
        raise ToolDefinitionError(
            f"OpenAIModel base_url must be a URL such as 'http://127.0.0.1:8000/v1', not {address!r:.80}"
        )
    if parts.username is not None:
        raise ToolDefinitionError("OpenAIModel base_url contains a password; pass it as api_key= or in headers=")


def site_from_client(client: AsyncOpenAI, label: str | None) -> Site:
    """Return the site of a client."""
    address = str(client.base_url).rstrip("/")
    return Site(label or _label_of(address), address, None, client.api_key, CLIENT_KEY)


def _label_of(address: str) -> str:
    return "OpenAI" if is_openai(address) else urlsplit(address).hostname or address


def _find_key(key: Any, variable: str | None) -> Any:
    """Return the key, or None; raise an error, without the key, if it is not valid in a header."""
    if key is None and variable is not None:
        key = os.environ.get(variable)
    if not isinstance(key, str):
        return key
    stripped = key.strip()  # keys from files and shells often end with a newline
    if not (stripped.isascii() and stripped.isprintable()):
        where = f" in {variable}" if variable else ""
        raise ToolConfigurationError(f"The key for OpenAIModel{where} contains invalid characters")
    return stripped or None


_UNAUTHORIZED = 401
# Codes of retryable errors inside an answer, which have no status.
_RETRYABLE = {
    "api_error", "internal_server_error", "overloaded", "overloaded_error", "rate_limit_error", "rate_limit_exceeded",
    "server_error", "service_unavailable", "timeout", "vector_store_timeout",
}  # fmt: skip
# A retry is useless when the quota is exhausted.
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
    """Return the error that a server sent inside an answer.

    >>> error_from_body({"message": "Overloaded", "code": 503}, "Router").retryable
    True
    """
    code, kind = str(wire.field(body, "code")), str(wire.field(body, "type"))
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
