"""The servers that an OpenAPI document names: where operations go, and where credentials must not go."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from toolsemble.errors import ToolDefinitionError

_ORIGIN = re.compile(r"(https?)://([^/?#\\{}@\s]+)", re.IGNORECASE)
_PORTS = {"http": ":80", "https": ":443"}


class Servers:
    """Gives the address of each operation of one document.

    :param base_url: where all operations go, whatever the document says
    :param guarded: whether requests carry credentials, which no part of a document may send to another origin
    """

    def __init__(self, document: Mapping[str, Any], base_url: str | None, *, guarded: bool) -> None:
        self._document = document
        self._base = base_url
        self._guarded = guarded

    def address(self, name: str, *levels: Mapping[str, Any]) -> str:
        """Return where an operation goes: the first server of the first level, from its own outwards, that names one.

        >>> document = {"servers": [{"url": "https://api.example.com/v1"}]}
        >>> Servers(document, None, guarded=True).address("add", {"servers": [{"url": "https://evil.example"}]})
        Traceback (most recent call last):
        ...
        toolsemble.errors.ToolDefinitionError: OpenAPI: 'add' would send credentials to https://evil.example, which is \
not https://api.example.com, the document's own server; say where all operations go with base_url='https://…'
        """
        if self._base:
            return self._base
        url = _first(name, *levels, self._document)
        if not re.match(r"https?://", url, re.IGNORECASE):
            raise ToolDefinitionError(
                f"OpenAPI: the server of {name!r} is {url!r:.80}, which is no whole address; "
                "say where the service is with base_url='https://…'"
            )
        if self._guarded:
            self._check_origin(name, url)
        return url

    def _check_origin(self, name: str, url: str) -> None:
        wanted, asked = _origin(_first(name, self._document)), _origin(url)
        if not wanted or wanted != asked:
            own = f"which is not {wanted}, the document's own server" if wanted else "and the document has no server"
            raise ToolDefinitionError(
                f"OpenAPI: {name!r} would send credentials to {asked or repr(url[:80])}, {own}; "
                "say where all operations go with base_url='https://…'"
            )


def _first(name: str, *levels: Mapping[str, Any]) -> str:
    """Return the URL of the first server of the first level that has any, its variables filled in."""
    servers: Any = next(filter(None, (each.get("servers") for each in levels)), [{}])
    variables = servers[0].get("variables", {})

    def filled(found: re.Match[str]) -> str:
        if found[1] not in variables:
            raise ToolDefinitionError(f"OpenAPI: the server of {name!r} has no variable {found[1]!r:.80}")
        return str(variables[found[1]]["default"])

    return re.sub(r"\{([^{}]+)\}", filled, servers[0].get("url", ""))


def _origin(url: str) -> str:
    """Return scheme, host and port of a URL in one spelling; empty when it has a user name, or is no URL.

    >>> _origin("HTTPS://API.example.com:443/v1"), _origin("https://api.example.com@evil.example/")
    ('https://api.example.com', '')
    """
    found = _ORIGIN.match(url)
    if not found or url[found.end() : found.end() + 1] not in ("", "/", "?", "#"):
        return ""
    scheme, host = found[1].lower(), found[2].lower()
    return f"{scheme}://{host.removesuffix(_PORTS[scheme])}"
