"""The servers of an OpenAPI document, and the check that credentials are sent only to its own origin."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urljoin

from toolsemble._vocabulary.errors import ToolDefinitionError

_ORIGIN = re.compile(r"(https?)://([^/?#\\{}@\s]+)", re.IGNORECASE)
_PORTS = {"http": ":80", "https": ":443"}


def find_url(name: str, *levels: Mapping[str, Any], guarded: bool, source: str = "") -> str:
    """Return the URL of an operation's server: the first of its own servers, its path's, or the document's.

    :param levels: the operation, its path and the document
    :param guarded: whether requests carry credentials, which must not be sent to another origin
    :param source: the URL of the document, to which URLs are relative, and whose origin alone gets credentials

    >>> document = {"servers": [{"url": "https://api.example.com/v1"}]}
    >>> find_url("add", {"servers": [{"url": "https://evil.example"}]}, document, guarded=True)
    Traceback (most recent call last):
    ...
    toolsemble.ToolDefinitionError: OpenAPI: 'add' would send credentials to https://evil.example, which is \
not https://api.example.com, the document's own server; set the URL of all operations with base_url='https://…'
    """
    given = _first_url(name, *levels)
    url = urljoin(source, given or "/") if source else given
    if not re.match(r"https?://", url, re.IGNORECASE):
        raise ToolDefinitionError(
            f"OpenAPI: the server of {name!r} is {url!r:.80}, which is not an absolute URL; "
            "set the URL of the service with base_url='https://…'"
        )
    if guarded:
        wanted = source or _first_url(name, levels[-1])
        _check_origin(name, url, _origin(wanted), "the document's origin" if source else "the document's own server")
    return url


def _check_origin(name: str, url: str, wanted: str, what: str) -> None:
    asked = _origin(url)
    if not wanted or wanted != asked:
        own = f"which is not {wanted}, {what}" if wanted else "and the document has no server"
        raise ToolDefinitionError(
            f"OpenAPI: {name!r} would send credentials to {asked or repr(url[:80])}, {own}; "
            "set the URL of all operations with base_url='https://…'"
        )


def _first_url(name: str, *levels: Mapping[str, Any]) -> str:
    """Return the URL of the first server of the first level that has servers, with its variables filled in."""
    servers: Any = next(filter(None, (each.get("servers") for each in levels)), [{}])
    variables = servers[0].get("variables", {})

    def fill(found: re.Match[str]) -> str:
        if found[1] not in variables:
            raise ToolDefinitionError(f"OpenAPI: the server of {name!r} has no variable {found[1]!r:.80}")
        return str(variables[found[1]]["default"])

    return re.sub(r"\{([^{}]+)\}", fill, servers[0].get("url", ""))


def _origin(url: str) -> str:
    """Return scheme, host and port of a URL, normalized; empty if it has a user name or is not valid.

    >>> _origin("HTTPS://API.example.com:443/v1"), _origin("https://api.example.com@evil.example/")
    ('https://api.example.com', '')
    """
    found = _ORIGIN.match(url)
    if not found or url[found.end() : found.end() + 1] not in ("", "/", "?", "#"):
        return ""
    scheme, host = found[1].lower(), found[2].lower()
    return f"{scheme}://{host.removesuffix(_PORTS[scheme])}"
