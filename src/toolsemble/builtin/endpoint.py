"""One place of an HTTP service: how arguments become a request, and what of it nobody may see."""

from __future__ import annotations

import base64
import html
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias
from urllib.parse import parse_qsl, quote, quote_plus, urlsplit

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
HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""What the name of a header can be."""
_HEADER_VALUE = re.compile(r"[\t\x20-\x7e\xa0-\xff]*")
RESERVED = frozenset({
    "host", "content-length", "transfer-encoding", "connection", "accept-encoding", "te", "trailer", "upgrade",
    "keep-alive", "expect", "proxy-connection",
})  # fmt: skip
"""Headers, in small letters, that belong to the connection and not to whoever asks."""
_PUBLIC_HEADERS = {"accept", "accept-language", "cache-control", "content-type", "user-agent"}
_SECRET_HEADER = re.compile(r"auth|cookie|token|secret|key|password|credential|signature|session", re.IGNORECASE)
_LONG_PART = 8  # longer than the words that stand around a token
_SHORTEST_SECRET = 4  # what is shorter is found by chance in any text, unless it stands alone
_MARKS = {"spaceDelimited": "%20", "pipeDelimited": "%7C"}


@dataclass(frozen=True, slots=True)
class Style:
    """How lists and objects are written where only text can stand.

    >>> Style("form", explode=True).pairs("tags", ["a", "b c"])
    [('tags', 'a'), ('tags', 'b%20c')]
    >>> Style("simple").joined({"a": 1, "b": "x"})
    'a,1,b,x'
    """

    kind: str = ""
    """The name that OpenAPI has for it, or ``json``; empty for lists that are repeated and objects that are JSON."""
    explode: bool = False
    """Whether each part of it is written on its own."""

    def joined(self, value: Any, escaped: Callable[[str], str] = str) -> str:
        """Give a value as one text."""
        if self.kind == "json":
            return escaped(_json(value))
        mark = _MARKS.get(self.kind, ",")
        if self.kind and isinstance(value, list):
            return mark.join(escaped(_text(each)) for each in value)
        if self.kind and isinstance(value, dict):
            inner = "=" if self.explode else mark
            return mark.join(f"{escaped(name)}{inner}{escaped(_text(each))}" for name, each in value.items())
        return escaped(_text(value))

    def pairs(self, name: str, value: Any) -> list[tuple[str, str]]:
        """Give a value as parts of a query: names as they are, and values escaped."""
        if self.explode and isinstance(value, list):
            return [(name, _escaped(_text(each))) for each in value]
        if self.explode and self.kind and isinstance(value, dict):
            within = self.kind == "deepObject"
            return [(f"{name}[{key}]" if within else key, _escaped(_text(each))) for key, each in value.items()]
        return [] if self.kind and value in ([], {}) else [(name, self.joined(value, _escaped))]


_PLAIN = Style(explode=True)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where requests go, and how they are made from named arguments."""

    method: str
    """The method, in capital letters."""
    url: str = field(repr=False)
    """The URL, with ``{name}`` where an argument or a secret belongs."""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Headers of every request, with ``{name}`` where a secret belongs."""
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    """What is filled in when a request is sent, and shown to nobody."""
    query: Mapping[str, str] = field(default_factory=dict)
    """Arguments that go into the query, with their names there."""
    in_headers: Mapping[str, str] = field(default_factory=dict)
    """Arguments that go into headers, with their names there."""
    styles: Mapping[str, Style] = field(default_factory=dict)
    """How arguments in the URL and the headers are written."""
    body: str = ""
    """The argument that is the body; empty when all that is left over is, as an object."""
    content_type: str = ""
    """What the body is; empty for JSON if it is JSON, else plain text."""
    fields: Mapping[str, Style] = field(default_factory=dict)
    """How the fields of a body that is a form are written."""

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
        given = {wire: self._header(name, left.pop(name)) for name, wire in self.in_headers.items() if name in left}
        asked = left if self.method in SAFE else {name: left.pop(name) for name in self.query if name in left}
        url = _with_query(url, self._pairs(url, asked))
        body, kind = (b"", "") if self.method in SAFE else self._body(left)
        typed = {"Content-Type": kind} if kind and not _named(headers, "content-type") else {}
        return url, {**given, **typed, **headers}, body

    def _in_url(self, name: str, arguments: Mapping[str, Any]) -> str:
        if name in self.secrets:
            return _escaped(self.secrets[name])
        text = self._style(name).joined(arguments.get(name, ""), _escaped)
        if text in {"", ".", ".."}:  # these would lead to another place
            raise ToolArgumentsError(f"{name}: {text!r} cannot stand in a URL")
        return text

    def _filled(self, value: str) -> str:
        return _PLACEHOLDER.sub(lambda found: self.secrets.get(found[1], found[0]), value)

    def _style(self, name: str) -> Style:
        return self.styles.get(name, _PLAIN)

    def _header(self, name: str, value: Any) -> str:
        text = self._style(name).joined(value)
        if not _HEADER_VALUE.fullmatch(text):
            raise ToolArgumentsError(f"{name}: line breaks and letters beyond Latin-1 cannot stand in a header")
        return text

    def _pairs(self, url: str, asked: Mapping[str, Any]) -> list[tuple[str, str]]:
        """Give the parts of the query; refuse an object whose own names would pass for other parameters."""
        others = {*self.query.values(), *dict(parse_qsl(urlsplit(url).query, keep_blank_values=True))}
        found = []
        for name, value in asked.items():
            wire = self.query.get(name, name)
            pairs = self._style(name).pairs(wire, value)
            if taken := {each for each, _ in pairs} & others - {wire}:
                raise ToolArgumentsError(f"{name}: {min(taken)!r} is the name of another parameter")
            found += pairs
        return found

    def _body(self, left: dict[str, Any]) -> tuple[bytes, str]:
        if self.body not in left and (self.body or not left):
            return b"", ""
        value = left[self.body] if self.body else left
        if self.content_type == FORM:
            fields = value.items() if isinstance(value, dict) else ()
            pairs = [pair for name, each in fields for pair in self.fields.get(name, _PLAIN).pairs(name, each)]
            return _encoded(pairs).replace("%20", "+").encode(), FORM
        if isinstance(value, str) and self.content_type != JSON:
            return value.encode(), self.content_type or (JSON if _is_json(value) else "text/plain; charset=utf-8")
        return _json(value).encode(), self.content_type or JSON


def endpoint(
    method: Any,
    url: Any,
    *,
    headers: Mapping[str, str] | None,
    auth: Auth | None,
    secrets: Mapping[str, str] | None,
    **places: Any,
) -> Endpoint:
    """Give an endpoint from what a programmer wrote, and where arguments go; refuse what cannot be sent."""
    if not isinstance(method, str) or method.upper() not in METHODS:
        raise ToolDefinitionError(f"method must be one of {', '.join(METHODS)}, not {method!r:.80}")
    if not isinstance(url, str) or not re.match(r"https?://[^/?#\\{}@\s]+(?:[/?#]|$)", url, re.IGNORECASE):
        raise ToolDefinitionError(
            "url must begin with http:// or https:// and a host, without user name, password or placeholder; "
            "credentials go into auth=, headers= or secrets="
        )
    sent = {**_checked_headers(headers or {}), **_authorization(auth)}
    return Endpoint(method.upper(), url, sent, _checked_secrets(secrets or {}), **places)


def carries_credentials(
    headers: Mapping[str, str] | None, auth: Auth | None, secrets: Mapping[str, str] | None
) -> bool:
    """Whether requests hold what only one service may see: any header but those that every server may.

    >>> carries_credentials({"User-Agent": "us"}, None, None), carries_credentials({"X-Api-Key": "k"}, None, None)
    (False, True)
    """
    return bool(auth or secrets) or any(str(name).lower() not in _PUBLIC_HEADERS for name in headers or ())


class Redactor:
    """Blots out an endpoint's secrets, wherever a server repeats them.

    Secrets are what is configured as one, and what configured headers hold, but for those that any server may see.

    >>> redacted = Redactor(Endpoint("GET", "https://api.example.com", {"X-Api-Key": "s3cret-key"}))
    >>> redacted("your key s3cret-key has expired")
    'your key *** has expired'
    >>> redacted("your key s3cret-", cut=True)
    'your key ***'
    """

    def __init__(self, endpoint: Endpoint) -> None:
        hidden = set(endpoint.secrets.values())
        for name, value in endpoint.headers.items():
            hidden |= _hidden(name.lower(), value)
        spelled = {spelling for each in hidden if each for spelling in _spellings(each)}
        self._hidden = sorted(spelled, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(_pattern, self._hidden)) or r"(?!)")

    def __call__(self, text: str, *, cut: bool = False) -> str:
        """Give a text without secrets; with ``cut``, it may end in the middle of one."""
        shown = self._pattern.sub("***", text)
        if not cut:
            return shown
        whole = shown.rstrip("\ufffd")  # half a letter
        half = max((_overlap(whole, each) for each in self._hidden), default=0)
        return f"{whole[:-half]}***" if half else shown


def _hidden(name: str, value: str) -> set[str]:
    """Give what of a header nobody may see: the whole, and the parts that are long enough to be a token."""
    parts = {part for part in (value, *re.split(r"[\s;=,]+", value)) if len(part) >= _LONG_PART}
    if name == "authorization":
        return parts | {value, value.rpartition(" ")[2], *_basic_parts(value)}
    if _SECRET_HEADER.search(name):
        return parts | {each for each in (value, value.rpartition(" ")[2]) if len(each) >= _SHORTEST_SECRET}
    return set() if name in _PUBLIC_HEADERS else parts


def _spellings(secret: str) -> set[str]:
    return {secret, json.dumps(secret)[1:-1], _escaped(secret), quote_plus(secret), html.escape(secret)}


def _pattern(secret: str) -> str:
    found = re.escape(secret)
    return found if len(secret) >= _SHORTEST_SECRET else rf"(?<!\w){found}(?!\w)"


def _overlap(text: str, secret: str) -> int:
    """Give how many letters at the end of a text are the beginning of a secret."""
    return next((size for size in range(min(len(secret), len(text)), 0, -1) if text.endswith(secret[:size])), 0)


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
        if not isinstance(name, str) or not HEADER_NAME.fullmatch(name) or name.lower() in RESERVED:
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


def _named(headers: Mapping[str, str], name: str) -> bool:
    return any(each.lower() == name for each in headers)


def _with_query(url: str, pairs: list[tuple[str, str]]) -> str:
    if not pairs:
        return url
    plain = url.partition("#")[0]
    return f"{plain}{'&' if '?' in plain else '?'}{_encoded(pairs)}"


def _encoded(pairs: list[tuple[str, str]]) -> str:
    return "&".join(f"{_escaped(name)}={value}" for name, value in pairs)


def _escaped(text: str) -> str:
    return quote(text, safe="")


def _text(value: Any) -> str:
    return value if isinstance(value, str) else _json(value)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _is_json(text: str) -> bool:
    try:
        json.loads(text, parse_constant=_refused)
    except (ValueError, RecursionError):
        return False
    return True


def _refused(constant: str) -> None:
    raise ValueError(constant)
