"""An endpoint of an HTTP service: build requests from arguments, and redact its secrets."""

from __future__ import annotations

import base64
import html
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias
from urllib.parse import parse_qsl, quote, quote_plus, urlsplit

from toolsemble._vocabulary.errors import ToolArgumentsError, ToolDefinitionError
from toolsemble._vocabulary.serialization import compact_json

METHODS = ("GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE")
"""The supported methods."""
SAFE = frozenset(METHODS[:3])
"""The safe methods: they may be retried, and have no body."""
JSON = "application/json"
FORM = "application/x-www-form-urlencoded"

Auth: TypeAlias = str | tuple[str, str]
"""A bearer token, or a user name and a password."""

_PLACEHOLDER = re.compile(r"\{([A-Za-z0-9_.-]+)\}")
HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""The syntax of header names."""
_HEADER_VALUE = re.compile(r"[\t\x20-\x7e\xa0-\xff]*")
RESERVED = frozenset({
    "host", "content-length", "transfer-encoding", "connection", "accept-encoding", "te", "trailer", "upgrade",
    "keep-alive", "expect", "proxy-connection",
})  # fmt: skip
"""Headers of the connection, in lower case, which callers must not set."""
_PUBLIC_HEADERS = {"accept", "accept-language", "cache-control", "content-type", "user-agent"}
_SECRET_HEADER = re.compile(r"auth|cookie|token|secret|key|password|credential|signature|session", re.IGNORECASE)
_LONG_PART = 8  # longer than the words next to a token, such as Bearer
_MIN_SECRET = 4  # shorter ones occur by chance in any text, so they are redacted as whole words only
_SEPARATORS = {"spaceDelimited": "%20", "pipeDelimited": "%7C"}


@dataclass(frozen=True, slots=True)
class Style:
    """The serialization of lists and objects in a URL, a header or a form.

    >>> Style("form", explode=True).pairs("tags", ["a", "b c"])
    [('tags', 'a'), ('tags', 'b%20c')]
    >>> Style("simple").join({"a": 1, "b": "x"})
    'a,1,b,x'
    """

    kind: str = ""
    """OpenAPI's name of the style, or ``json``; empty: lists are repeated, and objects are JSON."""
    explode: bool = False
    """Whether each item is a separate parameter."""

    def join(self, value: Any, escape: Callable[[str], str] = str) -> str:
        """Return a value as one str."""
        if self.kind == "json":
            return escape(compact_json(value))
        separator = _SEPARATORS.get(self.kind, ",")
        if self.kind and isinstance(value, list):
            return separator.join(escape(_to_text(each)) for each in value)
        if self.kind and isinstance(value, dict):
            inner = "=" if self.explode else separator
            return separator.join(f"{escape(name)}{inner}{escape(_to_text(each))}" for name, each in value.items())
        return escape(_to_text(value))

    def pairs(self, name: str, value: Any) -> list[tuple[str, str]]:
        """Return a value as query pairs: names unchanged, values escaped."""
        if self.explode and isinstance(value, list):
            return [(name, _escape(_to_text(each))) for each in value]
        if self.explode and self.kind and isinstance(value, dict):
            within = self.kind == "deepObject"
            return [(f"{name}[{key}]" if within else key, _escape(_to_text(each))) for key, each in value.items()]
        return [] if self.kind and value in ([], {}) else [(name, self.join(value, _escape))]


_PLAIN = Style(explode=True)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An endpoint, and how named arguments become its requests."""

    method: str
    """The method, in upper case."""
    url: str = field(repr=False)
    """The URL, with ``{name}`` for arguments and secrets."""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The headers of every request, with ``{name}`` for secrets."""
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Secrets by name; inserted when a request is sent, and never shown."""
    query: Mapping[str, str] = field(default_factory=dict)
    """Query parameters: from the argument's name to the parameter's."""
    in_headers: Mapping[str, str] = field(default_factory=dict)
    """Header parameters: from the argument's name to the header's."""
    styles: Mapping[str, Style] = field(default_factory=dict)
    """The styles of arguments in the URL and the headers."""
    body: str = ""
    """The argument that is the body; empty: an object of all remaining arguments is."""
    content_type: str = ""
    """The content type of the body; empty: JSON if the body is JSON, else plain text."""
    fields: Mapping[str, Style] = field(default_factory=dict)
    """The styles of a form's fields."""

    @property
    def placeholders(self) -> set[str]:
        """The names in the URL that are not secrets."""
        return set(_PLACEHOLDER.findall(self.url)) - set(self.secrets)

    def request(self, arguments: Mapping[str, Any]) -> tuple[str, dict[str, str], bytes]:
        """Return URL, headers and body for arguments; raise if they would alter the request's structure."""
        left = {name: value for name, value in arguments.items() if value is not None}
        url = _PLACEHOLDER.sub(lambda found: self._fill_placeholder(found[1], left), self.url)
        left = {name: value for name, value in left.items() if name not in self.placeholders}
        headers = {name: self._fill_secrets(value) for name, value in self.headers.items()}
        in_headers = {
            wire: self._format_header(name, left.pop(name)) for name, wire in self.in_headers.items() if name in left
        }
        in_query = left if self.method in SAFE else {name: left.pop(name) for name in self.query if name in left}
        url = _append_query(url, self._make_pairs(url, in_query))
        body, kind = (b"", "") if self.method in SAFE else self._make_body(left)
        typed = {"Content-Type": kind} if kind and "content-type" not in map(str.lower, headers) else {}
        return url, {**in_headers, **typed, **headers}, body

    def _fill_placeholder(self, name: str, arguments: Mapping[str, Any]) -> str:
        if name in self.secrets:
            return _escape(self.secrets[name])
        text = self._get_style(name).join(arguments.get(name, ""), _escape)
        if text in {"", ".", ".."}:  # these would change the path
            raise ToolArgumentsError(f"{name}: {text!r} is not allowed in a URL")
        return text

    def _fill_secrets(self, value: str) -> str:
        return _PLACEHOLDER.sub(lambda found: self.secrets.get(found[1], found[0]), value)

    def _get_style(self, name: str) -> Style:
        return self.styles.get(name, _PLAIN)

    def _format_header(self, name: str, value: Any) -> str:
        text = self._get_style(name).join(value)
        if not _HEADER_VALUE.fullmatch(text):
            raise ToolArgumentsError(f"{name}: line breaks and characters outside Latin-1 are not allowed in a header")
        return text

    def _make_pairs(self, url: str, in_query: Mapping[str, Any]) -> list[tuple[str, str]]:
        """Return the query pairs; raise if an object's key is another parameter's name."""
        others = {*self.query.values(), *dict(parse_qsl(urlsplit(url).query, keep_blank_values=True))}
        found = []
        for name, value in in_query.items():
            wire = self.query.get(name, name)
            pairs = self._get_style(name).pairs(wire, value)
            if taken := {each for each, _ in pairs} & others - {wire}:
                raise ToolArgumentsError(f"{name}: {min(taken)!r} is the name of another parameter")
            found += pairs
        return found

    def _make_body(self, left: dict[str, Any]) -> tuple[bytes, str]:
        if self.body not in left and (self.body or not left):
            return b"", ""
        value = left[self.body] if self.body else left
        if self.content_type == FORM:
            fields = value.items() if isinstance(value, dict) else ()
            pairs = [pair for name, each in fields for pair in self.fields.get(name, _PLAIN).pairs(name, each)]
            return _encode_pairs(pairs).replace("%20", "+").encode(), FORM
        if isinstance(value, str) and self.content_type != JSON:
            return value.encode(), self.content_type or (JSON if _is_json(value) else "text/plain; charset=utf-8")
        return compact_json(value).encode(), self.content_type or JSON


def make_endpoint(
    method: Any,
    url: Any,
    *,
    headers: Mapping[str, str] | None,
    auth: Auth | None,
    secrets: Mapping[str, str] | None,
    **options: Any,
) -> Endpoint:
    """Return an endpoint; raise if its method, URL, headers or secrets are not valid."""
    if not isinstance(method, str) or method.upper() not in METHODS:
        raise ToolDefinitionError(f"method must be one of {', '.join(METHODS)}, not {method!r:.80}")
    if not isinstance(url, str) or not re.match(r"https?://[^/?#\\{}@\s]+(?:[/?#]|$)", url, re.IGNORECASE):
        raise ToolDefinitionError(
            "url must begin with http:// or https:// and a host, without user name, password or placeholder; "
            "credentials go into auth=, headers= or secrets="
        )
    sent = {**_check_headers(headers or {}), **_make_authorization(auth)}
    return Endpoint(method.upper(), url, sent, _check_secrets(secrets or {}), **options)


def carries_credentials(
    headers: Mapping[str, str] | None, auth: Auth | None, secrets: Mapping[str, str] | None
) -> bool:
    """Return whether requests carry credentials; every header counts, except a few well-known ones.

    >>> carries_credentials({"User-Agent": "us"}, None, None), carries_credentials({"X-Api-Key": "k"}, None, None)
    (False, True)
    """
    return bool(auth or secrets) or any(str(name).lower() not in _PUBLIC_HEADERS for name in headers or ())


class Redactor:
    """A callable that redacts an endpoint's secrets in texts from the server.

    Secrets are the configured secrets, and the values of configured headers except a few well-known ones.

    >>> redact = Redactor(Endpoint("GET", "https://api.example.com", {"X-Api-Key": "s3cret-key"}))
    >>> redact("your key s3cret-key has expired")
    'your key *** has expired'
    >>> redact("your key s3cret-", truncated=True)
    'your key ***'
    """

    def __init__(self, endpoint: Endpoint) -> None:
        hidden = set(endpoint.secrets.values())
        for name, value in endpoint.headers.items():
            hidden |= _secret_parts(name.lower(), value)
        spelled = {spelling for each in hidden if each for spelling in _spellings(each)}
        self._spellings = sorted(spelled, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(_make_pattern, self._spellings)) or r"(?!)")

    def __call__(self, text: str, *, truncated: bool = False) -> str:
        """Return a text without secrets; a truncated text may end in the middle of one."""
        shown = self._pattern.sub("***", text)
        if not truncated:
            return shown
        whole = shown.rstrip("\ufffd")  # an incomplete character
        half = max((_overlap(whole, each) for each in self._spellings), default=0)
        return f"{whole[:-half]}***" if half else shown


def _secret_parts(name: str, value: str) -> set[str]:
    """Return the secrets in a header: its value, and the parts of it that are long enough to be a token."""
    parts = {part for part in (value, *re.split(r"[\s;=,]+", value)) if len(part) >= _LONG_PART}
    if name == "authorization":
        return parts | {value, value.rpartition(" ")[2], *_basic_parts(value)}
    if _SECRET_HEADER.search(name):
        return parts | {each for each in (value, value.rpartition(" ")[2]) if len(each) >= _MIN_SECRET}
    return set() if name in _PUBLIC_HEADERS else parts


def _spellings(secret: str) -> set[str]:
    return {secret, json.dumps(secret)[1:-1], _escape(secret), quote_plus(secret), html.escape(secret)}


def _make_pattern(secret: str) -> str:
    found = re.escape(secret)
    return found if len(secret) >= _MIN_SECRET else rf"(?<!\w){found}(?!\w)"


def _overlap(text: str, secret: str) -> int:
    """Return the length of the longest suffix of a text that is a prefix of a secret."""
    return next((size for size in range(min(len(secret), len(text)), 0, -1) if text.endswith(secret[:size])), 0)


def _basic_parts(value: str) -> list[str]:
    """Return the password in a header of basic authentication."""
    scheme, _, encoded = value.partition(" ")
    if scheme.lower() != "basic":
        return []
    try:
        return [base64.b64decode(encoded, validate=True).decode().partition(":")[2]]
    except ValueError:
        return []


def _make_authorization(auth: Any) -> dict[str, str]:
    if auth is None:
        return {}
    if isinstance(auth, str):
        return _check_headers({"Authorization": f"Bearer {auth}"})
    if isinstance(auth, tuple) and [type(each) for each in auth] == [str, str]:
        return {"Authorization": f"Basic {base64.b64encode(':'.join(auth).encode()).decode()}"}
    # The value is not shown, as it may be a secret.
    raise ToolDefinitionError("auth must be a bearer token, or a user name and a password")


def _check_headers(headers: Mapping[Any, Any]) -> dict[str, str]:
    for name, value in headers.items():
        if not isinstance(name, str) or not HEADER_NAME.fullmatch(name) or name.lower() in RESERVED:
            raise ToolDefinitionError(f"headers: {name!r:.80} cannot be set")
        if not isinstance(value, str) or not _HEADER_VALUE.fullmatch(value):
            raise ToolDefinitionError(f"headers: the value of {name!r} must be one line of Latin-1 characters")
    return dict(headers)


def _check_secrets(secrets: Mapping[Any, Any]) -> dict[str, str]:
    for name, value in secrets.items():
        if (
            not _PLACEHOLDER.fullmatch(f"{{{name}}}")
            or not isinstance(value, str)
            or not _HEADER_VALUE.fullmatch(value)
        ):
            raise ToolDefinitionError(f"secrets: {name!r:.80} must be a name, and its value a str on one line")
    return dict(secrets)


def _append_query(url: str, pairs: list[tuple[str, str]]) -> str:
    if not pairs:
        return url
    plain = url.partition("#")[0]
    return f"{plain}{'&' if '?' in plain else '?'}{_encode_pairs(pairs)}"


def _encode_pairs(pairs: list[tuple[str, str]]) -> str:
    return "&".join(f"{_escape(name)}={value}" for name, value in pairs)


def _escape(text: str) -> str:
    return quote(text, safe="")


def _to_text(value: Any) -> str:
    return value if isinstance(value, str) else compact_json(value)


def _is_json(text: str) -> bool:
    try:
        json.loads(text, parse_constant=_reject_constant)
    except (ValueError, RecursionError):
        return False
    return True


def _reject_constant(constant: str) -> None:
    raise ValueError(constant)
