"""One place of an HTTP service: how arguments become a request, and what of it nobody may see."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias
from urllib.parse import quote, urlencode

from toolsemble.errors import ToolArgumentsError, ToolDefinitionError

METHODS = ("GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE")
"""The methods that can be configured."""
SAFE = frozenset(METHODS[:3])
"""Those that change nothing: they may be sent again, and have no body."""
JSON = "application/json"
FORM = "application/x-www-form-urlencoded"

Auth: TypeAlias = str | tuple[str, str]
"""A bearer token, or a user name and a password."""

_PLACEHOLDER = re.compile(r"\{([A-Za-z0-9_.-]+)\}")
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE = re.compile(r"[\t\x20-\x7e\xa0-\xff]*")
_RESERVED = {"host", "content-length", "transfer-encoding", "connection", "accept-encoding"}
_SECRET_HEADER = re.compile(r"auth|cookie|token|secret|key|password|credential|signature|session", re.IGNORECASE)
_LONG_PART = 8  # longer than the words that stand around a token
_SHORTEST_SECRET = 4  # what is shorter is found by chance in any text


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where requests go, and how they are made from named arguments."""

    method: str
    """The method, in capital letters."""
    url: str
    """The URL, with ``{name}`` where an argument or a secret belongs."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Headers of every request, with ``{name}`` where a secret belongs."""
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    """What is filled in when a request is sent, and shown to nobody."""
    query: Mapping[str, str] = field(default_factory=dict)
    """Arguments that go into the query, with their names there."""
    joined: frozenset[str] = frozenset()
    """Those of them whose lists are written with commas."""
    in_headers: Mapping[str, str] = field(default_factory=dict)
    """Arguments that go into headers, with their names there."""
    body: str = ""
    """The argument that is the body; empty when all that is left over is, as an object."""
    content_type: str = ""
    """What the body is; empty for JSON if it is JSON, else plain text."""

    @property
    def placeholders(self) -> set[str]:
        """The names in the URL that are no secrets."""
        return set(_PLACEHOLDER.findall(self.url)) - set(self.secrets)

    def request(self, arguments: Mapping[str, Any]) -> tuple[str, dict[str, str], bytes]:
        """Give the URL, the headers and the body for arguments; refuse what would change the request's shape."""
        left = {name: value for name, value in arguments.items() if value is not None}
        url = _PLACEHOLDER.sub(lambda found: self._in_url(found[1], left), self.url)
        left = {name: value for name, value in left.items() if name not in self.placeholders}
        headers = {name: self._filled(value) for name, value in self.headers.items()}
        given = {wire: _header(name, left.pop(name)) for name, wire in self.in_headers.items() if name in left}
        asked = left if self.method in SAFE else {name: left.pop(name) for name in self.query if name in left}
        url = _with_query(url, [pair for name, value in asked.items() for pair in self._pairs(name, value)])
        body, kind = (b"", "") if self.method in SAFE else self._body(left)
        typed = {"Content-Type": kind} if kind and not _named(headers, "content-type") else {}
        return url, {**given, **typed, **headers}, body

    def _in_url(self, name: str, arguments: Mapping[str, Any]) -> str:
        if name in self.secrets:
            return quote(self.secrets[name], safe="")
        text = _text(arguments.get(name, ""))
        if text in {"", ".", ".."}:  # these would lead to another place
            raise ToolArgumentsError(f"{name}: {text!r} cannot stand in a URL")
        return quote(text, safe="")

    def _filled(self, value: str) -> str:
        return _PLACEHOLDER.sub(lambda found: self.secrets.get(found[1], found[0]), value)

    def _pairs(self, name: str, value: Any) -> list[tuple[str, str]]:
        wire = self.query.get(name, name)
        if not isinstance(value, list):
            return [(wire, _text(value))]
        texts = [_text(each) for each in value]
        return [(wire, ",".join(texts))] if name in self.joined else [(wire, text) for text in texts]

    def _body(self, left: dict[str, Any]) -> tuple[bytes, str]:
        if self.body not in left and (self.body or not left):
            return b"", ""
        value = left[self.body] if self.body else left
        if self.content_type == FORM:
            fields = value.items() if isinstance(value, dict) else ()
            return urlencode([(name, _text(each)) for name, each in fields]).encode(), FORM
        if isinstance(value, str) and self.content_type != JSON:
            return value.encode(), self.content_type or (JSON if _is_json(value) else "text/plain; charset=utf-8")
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode(), self.content_type or JSON


def endpoint(
    method: Any,
    url: Any,
    *,
    headers: Mapping[str, str] | None,
    auth: Auth | None,
    secrets: Mapping[str, str] | None,
    body: str,
) -> Endpoint:
    """Give an endpoint from what a programmer wrote; refuse what cannot be sent."""
    if not isinstance(method, str) or method.upper() not in METHODS:
        raise ToolDefinitionError(f"method must be one of {', '.join(METHODS)}, not {method!r:.80}")
    if not isinstance(url, str) or not re.match(r"https?://[^/?#\\{}@\s]+(?:[/?#]|$)", url, re.IGNORECASE):
        raise ToolDefinitionError(
            "url must begin with http:// or https:// and a host, without user name, password or placeholder; "
            "credentials go into auth=, headers= or secrets="
        )
    sent = {**_checked_headers(headers or {}), **_authorization(auth)}
    return Endpoint(method.upper(), url, sent, _checked_secrets(secrets or {}), body=body)


def redactor(endpoint: Endpoint) -> Callable[[str], str]:
    """Give a function that blots out an endpoint's secrets, wherever a server repeats them.

    >>> show = redactor(Endpoint("GET", "https://api.example.com", {"X-Api-Key": "s3cret-key"}))
    >>> show("your key s3cret-key has expired")
    'your key *** has expired'
    """
    hidden = set(endpoint.secrets.values())
    for name, value in endpoint.headers.items():
        if _SECRET_HEADER.search(name):
            parts = [part for part in re.split(r"[\s;=,]+", value) if len(part) >= _LONG_PART]
            hidden |= {value, value.rpartition(" ")[2], *parts, *_basic_parts(value)}
    hidden |= {json.dumps(each)[1:-1] for each in hidden} | {quote(each, safe="") for each in hidden}
    found = sorted((each for each in hidden if len(each) >= _SHORTEST_SECRET), key=len, reverse=True)
    pattern = re.compile("|".join(map(re.escape, found)) or r"(?!)")
    return lambda text: pattern.sub("***", text)


def _basic_parts(value: str) -> list[str]:
    """Give the password that a header of basic authentication holds."""
    scheme, _, encoded = value.partition(" ")
    if scheme.lower() != "basic":
        return []
    try:
        return [base64.b64decode(encoded, validate=True).decode().partition(":")[2]]
    except ValueError:
        return []


def _authorization(auth: Any) -> dict[str, str]:
    if auth is None:
        return {}
    if isinstance(auth, str):
        return _checked_headers({"Authorization": f"Bearer {auth}"})
    if isinstance(auth, tuple) and [type(each) for each in auth] == [str, str]:
        return {"Authorization": f"Basic {base64.b64encode(':'.join(auth).encode()).decode()}"}
    raise ToolDefinitionError("auth must be a bearer token, or a user name and a password")  # not shown: it may be one


def _checked_headers(headers: Mapping[Any, Any]) -> dict[str, str]:
    for name, value in headers.items():
        if not isinstance(name, str) or not _HEADER_NAME.fullmatch(name) or name.lower() in _RESERVED:
            raise ToolDefinitionError(f"headers: {name!r:.80} is no header that can be set")
        if not isinstance(value, str) or not _HEADER_VALUE.fullmatch(value):
            raise ToolDefinitionError(
                f"headers: the value of {name!r} cannot be sent; use letters of Latin-1, on one line"
            )
    return dict(headers)


def _checked_secrets(secrets: Mapping[Any, Any]) -> dict[str, str]:
    for name, value in secrets.items():
        if (
            not _PLACEHOLDER.fullmatch(f"{{{name}}}")
            or not isinstance(value, str)
            or not _HEADER_VALUE.fullmatch(value)
        ):
            raise ToolDefinitionError(f"secrets: {name!r:.80} must be a name, and its value a text on one line")
    return dict(secrets)


def _header(name: str, value: Any) -> str:
    text = _text(value)
    if not _HEADER_VALUE.fullmatch(text):
        raise ToolArgumentsError(f"{name}: line breaks and letters beyond Latin-1 cannot stand in a header")
    return text


def _named(headers: Mapping[str, str], name: str) -> bool:
    return any(each.lower() == name for each in headers)


def _with_query(url: str, pairs: list[tuple[str, str]]) -> str:
    if not pairs:
        return url
    plain = url.partition("#")[0]
    return f"{plain}{'&' if '?' in plain else '?'}{urlencode(pairs, quote_via=quote)}"


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _is_json(text: str) -> bool:
    try:
        json.loads(text, parse_constant=_refused)
    except (ValueError, RecursionError):
        return False
    return True


def _refused(constant: str) -> None:
    raise ValueError(constant)
