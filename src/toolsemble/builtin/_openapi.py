"""Read an OpenAPI 3 document's operations, and determine where credentials may be sent."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, Literal, TypeAlias
from urllib.parse import urljoin

from toolsemble._runtime.extras import import_extra
from toolsemble._runtime.text import describe_error
from toolsemble._schema.argument_problems import follow_ref
from toolsemble._vocabulary.errors import ToolDefinitionError
from toolsemble._vocabulary.specification import check_name
from toolsemble.builtin._endpoint import FORM, HEADER_NAME, JSON, METHODS, RESERVED, Style

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


TEXT = "text/plain"
"""The content type of a body that is plain text."""

Rename: TypeAlias = Mapping[str, str] | Callable[[str], str] | Literal["short"]
"""New names by the names of operations, a function from one to the other, or ``"short"``."""


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation of a service."""

    name: str
    """The name of its tool."""
    description: str
    """What it does."""
    method: str
    """The method, in upper case."""
    path: str
    """The path, as the document has it."""
    url: str
    """The URL, with ``{name}`` for arguments."""
    schema: dict[str, Any]
    """The JSON Schema of the arguments."""
    endpoint_fields: dict[str, Any]
    """The fields of its ``Endpoint`` that map arguments to the request."""

    @property
    def editable(self) -> str:
        """The argument that a reviewer edits as plain text: a body of type text/plain; else empty."""
        return str(self.endpoint_fields["body"]) if self.endpoint_fields["content_type"] == TEXT else ""

    @property
    def effects(self) -> dict[str, Any]:
        """The tool settings implied by the HTTP method; none for POST and PATCH."""
        if self.method in {"GET", "HEAD", "OPTIONS"}:
            return {"effects": "read"}
        if self.method == "DELETE":
            return {"effects": "irreversible"}
        return {"idempotent": True} if self.method == "PUT" else {}


def rename_operations(operations: Sequence[Operation], rename: Any) -> list[Operation]:
    """Return the operations with other names; raise if a name is unknown, not valid, or used twice.

    >>> rename_operations([], {"list_pets": "pets"})
    Traceback (most recent call last):
    ...
    toolsemble.ToolDefinitionError: OpenAPI: rename: there is no operation 'list_pets'; the operations are none
    """
    if rename is None:
        return list(operations)
    if rename == "short":
        return _shorten(operations)
    if not (callable(rename) or isinstance(rename, Mapping)):
        raise ToolDefinitionError(
            "OpenAPI: rename must be a dict from names to new names, a function of a name, or 'short', not "
            f"{rename!r:.80}"
        )
    if isinstance(rename, Mapping):
        _check_known(rename, operations)
        renamed = [replace(each, name=check_name(rename.get(each.name, each.name))) for each in operations]
    else:
        renamed = [replace(each, name=check_name(rename(each.name))) for each in operations]
    for name, number in Counter(each.name for each in renamed).items():
        if number > 1:
            raise ToolDefinitionError(f"OpenAPI: rename gives {number} operations the name {name!r}")
    return renamed


def _check_known(rename: Mapping[str, str], operations: Sequence[Operation]) -> None:
    known = [each.name for each in operations]
    for name in rename:
        if name not in known:
            shown = ", ".join(known[:100]) or "none"
            raise ToolDefinitionError(
                f"OpenAPI: rename: there is no operation {name!r:.80}; the operations are {shown}"
            )


def _shorten(operations: Sequence[Operation]) -> list[Operation]:
    """Return the operations with function names, without the path and method that FastAPI adds."""
    short = [_strip_suffix(each) for each in operations]
    taken = Counter([*short, *(each.name for each in operations)])
    names = [
        name if taken[name] == 1 or name == each.name else each.name
        for name, each in zip(short, operations, strict=True)
    ]
    return [replace(each, name=name) for name, each in zip(names, operations, strict=True)]


def _strip_suffix(operation: Operation) -> str:
    suffix = re.sub(r"\W", "_", operation.path) + f"_{operation.method.lower()}"
    return operation.name.removesuffix(suffix) or operation.name


_URL = re.compile(r"https?://\S+", re.IGNORECASE)
_LONGEST_PATH = 4096


def load_document(source: Any, fetch: Callable[[str], str]) -> tuple[Mapping[str, Any], str]:
    """Return a document of version 3, and the URL that it came from, empty if it came from elsewhere.

    :param source: a dict, JSON or YAML text, the path of a file, or a URL
    :param fetch: returns the text at a URL

    >>> load_document('{"openapi": "3.1.0", "paths": {}}', str)
    ({'openapi': '3.1.0', 'paths': {}}, '')
    """
    url = source.strip() if isinstance(source, str) and _URL.fullmatch(source.strip()) else ""
    if url:
        parsed = _parse(fetch(url))
    elif isinstance(source, os.PathLike) or (isinstance(source, str) and _is_path(source)):
        parsed = _parse(_read_file(source))
    else:
        parsed = _parse(source) if isinstance(source, str) else source
    if not isinstance(parsed, Mapping) or not str(parsed.get("openapi", "")).startswith("3."):
        raise ToolDefinitionError("OpenAPI: the document must have version 3 ('openapi': '3.…')")
    if not isinstance(parsed.get("paths"), Mapping):
        raise ToolDefinitionError("OpenAPI: the document has no paths")
    return parsed, url


def _is_path(text: str) -> bool:
    """Return whether a text is the path of a file: one line that is neither JSON nor a YAML mapping."""
    plain = text.strip()
    return 0 < len(plain) <= _LONGEST_PATH and "\n" not in plain and plain[0] not in '{["' and ": " not in plain


def _read_file(path: str | os.PathLike[str]) -> str:
    try:
        return Path(path).read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as problem:
        raise ToolDefinitionError(
            f"OpenAPI: {os.fspath(path)!r:.200} is not JSON, YAML or a URL, and cannot be read as a file: "
            f"{describe_error(problem)}"
        ) from None


def _parse(text: str) -> Any:
    """Return the value of JSON text, or else of YAML text."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as problem:
        if text.lstrip()[:1] in {"{", "[", '"', ""}:
            raise ToolDefinitionError(f"OpenAPI: the document is not JSON: {problem}") from None
    return _parse_yaml(text)


def _parse_yaml(text: str) -> Any:
    yaml = import_extra("yaml", extra="yaml", user="An OpenAPI document in YAML")
    try:
        return yaml.load(text, _make_loader(yaml))
    except (yaml.YAMLError, ValueError, RecursionError) as problem:
        reason = " ".join(str(problem).split())[:300] or type(problem).__name__
        raise ToolDefinitionError(f"OpenAPI: the document is neither JSON nor YAML: {reason}") from None


def _make_loader(yaml: Any) -> Any:
    """Return a loader that reads YAML with JSON types: NO is not false, and a date is a text."""

    class Loader(yaml.SafeLoader):  # type: ignore[misc]  # a module that is loaded when it is needed
        yaml_implicit_resolvers = {  # noqa: RUF012 - as in the base class
            first: [(tag, pattern) for tag, pattern in known if not tag.endswith((":timestamp", ":bool"))]
            for first, known in yaml.SafeLoader.yaml_implicit_resolvers.items()
        }

    Loader.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile(r"^(?:true|false)$"), list("tf"))
    return Loader


_IGNORED = {"accept", "content-type", "authorization"}  # OpenAPI says to ignore header parameters with these names
# Cookies carry a session, which the program sets, not the model.
_EXCLUDED_HEADERS = RESERVED | _IGNORED | {"cookie", "cookie2", "proxy-authorization"}
_UNSUPPORTED_METHODS = ("TRACE", "QUERY")
_STYLES = {
    "path": ("simple",),
    "header": ("simple",),
    "query": ("form", "spaceDelimited", "pipeDelimited", "deepObject"),
}
_MAX_NAME = 64
_MAX_NUMBER = 8
_MAX_DESCRIPTION = 1000
_MAX_DEPTH = 50
_MAX_SCHEMAS = 1_000_000
_MAX_LISTED = 100
_KEPT_KEYWORDS = {
    "type", "enum", "const", "pattern", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf",
    "minLength", "maxLength", "minItems", "maxItems", "uniqueItems", "minProperties", "maxProperties", "required",
    "title", "description", "default", "examples",
}  # fmt: skip
_FORMATS = {"date", "date-time", "time", "duration", "uuid", "email", "uri", "ipv4", "ipv6", "password"}
_LISTS = {"anyOf", "oneOf", "allOf", "prefixItems"}


class _UnsupportedError(ToolDefinitionError):
    """An operation is valid, but not supported."""


def read_operations(
    document: Mapping[str, Any],
    base_url: str | None,
    only: Iterable[str] | None = None,
    configured: Collection[str] = (),
    *,
    rename: Rename | None = None,
    source: str = "",
    guarded: bool = False,
) -> list[Operation]:
    """Return the operations of a document, in its order; raise if one is not supported.

    Headers whose names are ``configured``, in lower case, do not become arguments. With ``guarded``, requests carry
    credentials, so all operations must have the origin of the document's server.

    :param rename: the names of the tools: see ``HttpTool.from_openapi``
    :param source: the URL of the document, to which the URLs of its servers are relative
    """
    try:
        reader = _Reader(document, base_url, configured, source=source, guarded=guarded)
        found = _find_operations(reader, only)
    except ToolDefinitionError:
        raise
    except Exception as problem:
        # The document is untrusted input: any problem in it is the same kind of error.
        raise ToolDefinitionError(f"OpenAPI: the document is broken: {type(problem).__name__}: {problem}") from problem
    return rename_operations(found, rename)


def _find_operations(reader: _Reader, only: Iterable[str] | None) -> list[Operation]:
    wanted = None if only is None else list(only)
    found: dict[str, tuple[str, str, Mapping[str, Any]]] = {}
    names = _Names()
    for path, item in reader.document["paths"].items():
        resolved_item = reader.resolve(item)
        for method in (*METHODS, *_UNSUPPORTED_METHODS):
            if method.lower() in resolved_item:
                name = names.unique(_make_name(resolved_item[method.lower()], method, path))
                found[name] = (method, path, resolved_item)
    if unknown := [name for name in wanted or () if name not in found]:
        raise ToolDefinitionError(
            f"OpenAPI: there is no operation {unknown[0]!r}; the operations are {_enumerate(found)}"
        )
    return _build_operations(reader, {name: found[name] for name in (found if wanted is None else wanted)})


def _build_operations(reader: _Reader, found: Mapping[str, tuple[str, str, Mapping[str, Any]]]) -> list[Operation]:
    built, problems = [], []
    for name, where in found.items():
        try:
            built.append(reader.operation(name, *where))
        except _UnsupportedError as problem:
            problems.append(f"{name!r}: {problem}")
    if problems:
        others = _enumerate([repr(each.name) for each in built])
        raise ToolDefinitionError(
            f"OpenAPI: cannot call {_enumerate(problems, '; ')}; for the others pass only=[{others}]"
        )
    return built


def _make_name(operation: Mapping[str, Any], method: str, path: str) -> str:
    given = operation.get("operationId") or f"{method.lower()} {path}"
    return _clean_name(str(given))[:_MAX_NAME] or method.lower()


def _clean_name(name: str) -> str:
    return re.sub(r"[^a-zA-Z0-9_-]+", "_", name).strip("_")


def _enumerate(parts: Collection[str], separator: str = ", ") -> str:
    """Return the first hundred parts as one str."""
    more = f"{separator}and {len(parts) - _MAX_LISTED} more" if len(parts) > _MAX_LISTED else ""
    return separator.join(islice(parts, _MAX_LISTED)) + more


class _Names:
    """A generator of unique names, which appends numbers to duplicates."""

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._numbers: dict[str, int] = {}  # the last one for each stem, so that n duplicates take linear time

    def unique(self, name: str) -> str:
        """Return the name, or the name with a number if it is taken, of at most 64 characters."""
        found, stem = name, name[: _MAX_NAME - _MAX_NUMBER]
        while found in self._taken:
            self._numbers[stem] = self._numbers.get(stem, 1) + 1
            found = f"{stem}_{self._numbers[stem]}"
        self._taken.add(found)
        return found


class _Reader:
    """A reader of one document; it follows references inside the document only."""

    def __init__(
        self,
        document: Mapping[str, Any],
        base_url: str | None,
        configured: Collection[str],
        *,
        source: str,
        guarded: bool,
    ) -> None:
        self.document = document
        self._source = source
        self._base_url = base_url
        self._guarded = guarded
        self._excluded_headers = {*_EXCLUDED_HEADERS, *configured}
        self._schemas_left = _MAX_SCHEMAS

    def count_schema(self) -> None:
        """Count one schema; raise if the operations have too many of them."""
        self._schemas_left -= 1
        if self._schemas_left < 0:
            raise ToolDefinitionError(
                f"OpenAPI: the operations have more than {_MAX_SCHEMAS} schemas; choose some with only=[…]"
            )

    def resolve(self, node: Any) -> Mapping[str, Any]:
        """Return a node, or the node that it refers to."""
        for _ in range(_MAX_DEPTH):
            if not isinstance(node, Mapping):
                raise ToolDefinitionError(f"OpenAPI: expected an object, not {node!r:.80}")
            if "$ref" not in node:
                return node
            node = self._follow(node["$ref"])
        raise ToolDefinitionError("OpenAPI: references are circular")

    def _follow(self, reference: str) -> Any:
        if not str(reference).startswith("#/"):
            raise ToolDefinitionError(
                f"OpenAPI: only references inside the document are followed, not {reference!r:.80}"
            )
        try:
            return follow_ref(self.document, reference)
        except LookupError:
            raise ToolDefinitionError(f"OpenAPI: {reference!r:.80} does not exist") from None

    def operation(self, name: str, method: str, path: str, item: Mapping[str, Any]) -> Operation:
        """Return one operation; raise if it is not supported."""
        operation = item[method.lower()]
        if method in _UNSUPPORTED_METHODS:
            raise _UnsupportedError(f"the method {method} cannot be sent")
        builder = _ArgumentsBuilder(self)
        clean = {(each["in"], each["name"]): builder.add(each) for each in self._parameters(item, operation)}
        template = re.sub(r"\{([^{}]+)\}", lambda found: f"{{{clean.get(('path', found[1]), found[1])}}}", path)
        base = self._base_url or find_url(
            name, operation, item, self.document, source=self._source, guarded=self._guarded
        )
        # Not with urljoin: a colon in the path would be read as the end of a scheme.
        url = f"{base.rstrip('/')}/{template.lstrip('/')}"
        if "requestBody" in operation:
            builder.add_body(self.resolve(operation["requestBody"]))
        texts = filter(None, (operation.get("summary"), operation.get("description")))
        description = " ".join(texts) or f"{method} {path}"
        text = description[:_MAX_DESCRIPTION]
        return Operation(name, text, method, path, url, builder.schema(), builder.endpoint_fields)

    def _parameters(self, item: Mapping[str, Any], operation: Mapping[str, Any]) -> list[Mapping[str, Any]]:
        """Return an operation's parameters; its own override its path's."""
        both = [self.resolve(each) for each in (*item.get("parameters", ()), *operation.get("parameters", ()))]
        named = {(each["in"], each["name"]): each for each in both}
        return [each for (place, name), each in named.items() if self._is_argument(place, name)]

    def _is_argument(self, place: str, name: str) -> bool:
        return place in {"path", "query"} or (place == "header" and name.lower() not in self._excluded_headers)


def _make_style(parameter: Mapping[str, Any]) -> Style:
    """Return the style of a parameter; raise if it is not supported."""
    if parameter["in"] == "header" and not HEADER_NAME.fullmatch(parameter["name"]):
        raise _UnsupportedError(f"{parameter['name']!r:.80} is not a valid header name")
    if kinds := list(parameter.get("content", ())):
        return Style("json" if _is_json(kinds[0]) else "")
    known = _STYLES[parameter["in"]]
    kind = parameter.get("style", known[0])
    if kind not in known:
        raise _UnsupportedError(f"its parameter {parameter['name']!r} has the style {kind!r:.80}")
    return Style(kind, explode=kind == "deepObject" or bool(parameter.get("explode", kind == "form")))


def _is_json(kind: str) -> bool:
    plain = kind.partition(";")[0].strip().lower()
    return plain == JSON or plain.endswith("+json")


class _ArgumentsBuilder:
    """A builder of the arguments of one operation."""

    def __init__(self, reader: _Reader) -> None:
        self._reader = reader
        self._properties: dict[str, Any] = {}
        self._required: list[str] = []
        self._definitions: dict[str, Any] = {}
        self._names = _Names()
        self._converted: dict[int, dict[str, Any]] = {}  # converted schemas, by the id of the original
        self._converting: set[int] = set()
        self.endpoint_fields: dict[str, Any] = {
            "query": {},
            "in_headers": {},
            "styles": {},
            "body": "",
            "content_type": "",
            "fields": {},
        }

    def add(self, parameter: Mapping[str, Any]) -> str:
        """Add a parameter and return the name of its argument."""
        name = self._names.unique(_clean_name(parameter["name"]) or "value")
        content: Mapping[str, Any] = next(iter(parameter.get("content", {}).values()), {})
        schema = parameter.get("schema", content.get("schema", {}))
        self._add_property(name, schema, parameter.get("description"), required=parameter.get("required"))
        place = {"query": "query", "header": "in_headers"}.get(parameter["in"])
        if place is not None:
            self.endpoint_fields[place][name] = parameter["name"]
        self.endpoint_fields["styles"][name] = _make_style(parameter)
        return name

    def add_body(self, body: Mapping[str, Any]) -> None:
        """Add a body; raise if it is not JSON, a form or plain text."""
        offered = {kind.partition(";")[0].strip().lower(): media for kind, media in body.get("content", {}).items()}
        kind = next(filter(_is_json, offered), None)
        kind = kind or next((each for each in (FORM, TEXT) if each in offered), None)
        if kind is None:
            raise _UnsupportedError(f"its body is {', '.join(offered) or 'nothing'}, not JSON, a form or plain text")
        name = self._names.unique("body")
        schema = {"type": "string"} if kind == TEXT else offered[kind].get("schema", {})
        self._add_property(name, schema, body.get("description"), required=body.get("required"))
        encodings = offered[kind].get("encoding", {}).items()
        fields = {
            each: _make_style({"name": each, "in": "query", **how})
            for each, how in encodings
            if {"style", "explode"} & set(how)
        }
        self.endpoint_fields |= {"body": name, "content_type": kind, "fields": fields}

    def schema(self) -> dict[str, Any]:
        """Return the JSON Schema of all arguments."""
        schema: dict[str, Any] = {"type": "object", "properties": self._properties, "additionalProperties": False}
        if self._required:
            schema["required"] = self._required
        return {**schema, "$defs": self._definitions} if self._definitions else schema

    def _add_property(self, name: str, schema: Any, description: str | None, *, required: bool | None) -> None:
        extra = {"description": description} if description else {}
        self._properties[name] = {**self._convert(schema, 0), **extra}
        if required:
            self._required.append(name)

    def _convert(self, schema: Any, depth: int) -> dict[str, Any]:
        """Return a schema without the keywords that only OpenAPI has."""
        if schema is True or schema is None:
            return {}
        if not isinstance(schema, Mapping) or depth > _MAX_DEPTH:
            raise ToolDefinitionError(f"OpenAPI: a schema is nested too deeply, or is not an object: {schema!r:.80}")
        if id(schema) in self._converting:
            raise ToolDefinitionError("OpenAPI: a schema contains itself; use $ref for recursive schemas")
        if id(schema) not in self._converted:  # YAML anchors may share one schema in many places
            self._converting.add(id(schema))
            self._converted[id(schema)] = self._convert_object(schema, depth)
            self._converting.remove(id(schema))
        return self._converted[id(schema)]

    def _convert_object(self, schema: Mapping[str, Any], depth: int) -> dict[str, Any]:
        self._reader.count_schema()
        if "$ref" in schema:
            return {"$ref": f"#/$defs/{self._define(schema['$ref'], depth)}"}
        converted = {key: value for key, value in schema.items() if key in _KEPT_KEYWORDS}
        if schema.get("format") in _FORMATS:
            converted["format"] = schema["format"]
        for key in _LISTS & set(schema):
            converted[key] = [self._convert(each, depth + 1) for each in schema[key]]
        for key in {"items", "additionalProperties", "not"} & set(schema):
            converted[key] = schema[key] if isinstance(schema[key], bool) else self._convert(schema[key], depth + 1)
        self._convert_properties(schema, converted, depth)
        return _modernize(schema, converted)

    def _convert_properties(self, schema: Mapping[str, Any], converted: dict[str, Any], depth: int) -> None:
        """Convert the properties of a request, without read-only ones, which only responses have."""
        if "properties" not in schema:
            return
        sent = {name: each for name, each in schema["properties"].items() if not self._is_read_only(each)}
        converted["properties"] = {name: self._convert(each, depth + 1) for name, each in sent.items()}
        gone = set(schema["properties"]) - set(sent)
        if "required" in converted:
            converted["required"] = [name for name in converted["required"] if name not in gone]

    def _is_read_only(self, schema: Any) -> bool:
        return isinstance(schema, Mapping) and bool(self._reader.resolve(schema).get("readOnly"))

    def _define(self, reference: str, depth: int) -> str:
        name = _clean_name(str(reference))
        if name not in self._definitions:
            self._definitions[name] = {}  # a schema may refer to itself
            self._definitions[name] = self._convert(self._reader.resolve({"$ref": reference}), depth + 1)
        return name


def _modernize(schema: Mapping[str, Any], converted: dict[str, Any]) -> dict[str, Any]:
    """Return a schema with the keywords of OpenAPI 3.0 translated to JSON Schema."""
    for bound, strict in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
        if isinstance(converted.get(strict), bool) and converted.pop(strict) and bound in converted:
            converted[strict] = converted.pop(bound)
    if schema.get("nullable") is True:
        return {"anyOf": [converted, {"type": "null"}]}
    return converted
