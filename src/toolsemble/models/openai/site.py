"""Where OpenAI's API is spoken, and the key for it."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from toolsemble.errors import ToolConfigurationError, ToolDefinitionError

if TYPE_CHECKING:
    from openai import AsyncOpenAI

_HOST = "api.openai.com"
_ADDRESS = f"https://{_HOST}/v1"
_KEY = "OPENAI_API_KEY"


@dataclass(frozen=True, slots=True)
class Site:
    """Where a model is asked, and with what.

    >>> Site("OpenAI", "https://api.openai.com/v1", "OPENAI_API_KEY", "sk-secret")
    Site(label='OpenAI', address='https://api.openai.com/v1', key_variable='OPENAI_API_KEY')
    """

    label: str
    """What it is called in messages."""
    address: str
    """Its base URL."""
    key_variable: str | None
    """The variable of the environment that holds the key."""
    key: Any = field(repr=False)
    """The key, or a function that gives one."""


def is_openai(address: str) -> bool:
    """Whether an address is OpenAI's own.

    >>> is_openai("https://eu.api.openai.com/v1"), is_openai("http://127.0.0.1:8000/v1")
    (True, False)
    """
    host = urlsplit(address).hostname or ""
    return host == _HOST or host.endswith(f".{_HOST}")  # OpenAI has one for each region, too


def site(base_url: str | None, label: str | None, key: Any, variable: str | None) -> Site:
    """Give where a model is, and the key for it; refuse an address that is none, and OpenAI without a key.

    >>> site("http://127.0.0.1:8000/v1/", None, None, None)
    Site(label='127.0.0.1', address='http://127.0.0.1:8000/v1', key_variable=None)
    """
    address = base_url or os.environ.get("OPENAI_BASE_URL") or _ADDRESS
    _check_address(address)
    variable = variable or (_KEY if base_url is None else None)
    found = _key(key, variable)
    if not found and base_url is None:
        raise ToolConfigurationError(f"OpenAIModel has no key: set {variable} or pass api_key=")
    return Site(label or _label(address), address.rstrip("/"), variable, found)


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
        raise ToolDefinitionError("OpenAIModel base_url holds a password; pass it as api_key= or in headers=")


def site_of(client: AsyncOpenAI, label: str | None) -> Site:
    """Give where a client asks."""
    address = str(client.base_url).rstrip("/")
    return Site(label or _label(address), address, None, client.api_key)


def _label(address: str) -> str:
    return "OpenAI" if is_openai(address) else urlsplit(address).hostname or address


def _key(key: Any, variable: str | None) -> Any:
    """Give the key; None when there is none. Refuse one that could not be sent, without showing it."""
    if key is None and variable is not None:
        key = os.environ.get(variable)
    if not isinstance(key, str):
        return key
    stripped = key.strip()  # files and shells like to add a line break
    if not (stripped.isascii() and stripped.isprintable()):
        where = f" in {variable}" if variable else ""
        raise ToolConfigurationError(f"The key for OpenAIModel{where} has characters that no key has")
    return stripped or None
