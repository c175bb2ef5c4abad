"""The operations of an OpenAPI 3 document, each as what a tool needs to know of it."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from toolsemble.builtin.endpoint import FORM, HEADER_NAME, JSON, METHODS, RESERVED, Style
from toolsemble.builtin.servers import Servers
from toolsemble.errors import ToolDefinitionError

_IGNORED = {"accept", "content-type", "authorization"}  # the standard says to ignore parameters of these names
# Cookies carry a session, which is for the program to set, not for the model.
_NOT_ASKED = RESERVED | _IGNORED | {"cookie", "cookie2", "proxy-authorization"}
_UNSENT = ("TRACE", "QUERY")
_STYLES = {
    "path": ("simple",),
    "header": ("simple",),
    "query": ("form", "spaceDelimited", "pipeDelimited", "deepObject"),
}
_TEXT = "text/plain"
_LONGEST_NAME = 64
_LONGEST_NUMBER = 8
_LONGEST_DESCRIPTION = 1000
_DEEPEST = 50
_MOST_SCHEMAS = 1_000_000
_MOST_NAMED = 100
_KEPT = {
    "type", "enum", "const", "pattern", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf",
    "minLength", "maxLength", "minItems", "maxItems", "uniqueItems", "minProperties", "maxProperties", "required",
    "title", "description", "default", "examples",
}  # fmt: skip
_FORMATS = {"date", "date-time", "time", "duration", "uuid", "email", "uri", "ipv4", "ipv6", "password"}
_LISTS = {"anyOf", "oneOf", "allOf", "prefixItems"}


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation of a service."""

    name: str
    """A name that a model can call it by."""
    description: str
    """What it does."""
    method: str
    """The method, in capital letters."""
    url: str
    """The URL, with ``{name}`` where an argument belongs."""
    schema: dict[str, Any]
    """The JSON Schema of the arguments."""
    places: dict[str, Any]
    """Where the arguments go, as fields of an endpoint."""

    @property
    def editable(self) -> str:
        """The argument whose plain text a reviewer may edit: a body that is text."""
        return str(self.places["body"]) if self.places["content_type"] == _TEXT else ""


class _UnsendableError(ToolDefinitionError):
    """An operation is described well, but cannot be called from here."""


def operations(
    document: Mapping[str, Any] | str,
    base_url: str | None,
    only: Iterable[str] | None = None,
    configured: Collection[str] = (),
    *,
    guarded: bool = False,
) -> list[Operation]:
    """Give the operations of a document, in its order; refuse those that cannot be called.

    Headers whose names are ``configured``, in small letters, are not asked for. With ``guarded``, requests carry
    credentials, so no operation may go to another origin than the document itself.
    """
    parsed = _parsed(document)
    try:
        return _read(_Reader(parsed, Servers(parsed, base_url, guarded=guarded), configured), only)
    except ToolDefinitionError:
        raise
    except Exception as problem:
        # A document of somebody else's: whatever is wrong with it, there is one kind of error for it.
        raise ToolDefinitionError(f"OpenAPI: the document is broken: {type(problem).__name__}: {problem}") from problem


def _read(reader: _Reader, only: Iterable[str] | None) -> list[Operation]:
    wanted = None if only is None else list(only)
    found: dict[str, tuple[str, str, Mapping[str, Any]]] = {}
    names = _Names()
    for path, item in reader.document["paths"].items():
        whole = reader.resolved(item)
        for method in (*METHODS, *_UNSENT):
            if method.lower() in whole:
                name = names.unique(_name(whole[method.lower()], method, path))
                found[name] = (method, path, whole)
    if unknown := [name for name in wanted or () if name not in found]:
        raise ToolDefinitionError(f"OpenAPI: there is no operation {unknown[0]!r}; known are {_enumerated(found)}")
    return _sendable(reader, {name: found[name] for name in (found if wanted is None else wanted)})


def _sendable(reader: _Reader, found: Mapping[str, tuple[str, str, Mapping[str, Any]]]) -> list[Operation]:
    made, problems = [], []
    for name, where in found.items():
        try:
            made.append(reader.operation(name, *where))
        except _UnsendableError as problem:
            problems.append(f"{name!r}: {problem}")
    if problems:
        others = _enumerated([repr(each.name) for each in made])
        raise ToolDefinitionError(
            f"OpenAPI: cannot call {_enumerated(problems, '; ')}; for the others pass only=[{others}]"
        )
    return made


def _parsed(document: Mapping[str, Any] | str) -> Mapping[str, Any]:
    parsed: Any = document
    if isinstance(document, str):
        try:
            parsed = json.loads(document)
        except (ValueError, RecursionError) as problem:
            raise ToolDefinitionError(f"OpenAPI: the document is not JSON: {problem}") from None
    if not isinstance(parsed, Mapping) or not str(parsed.get("openapi", "")).startswith("3."):
        raise ToolDefinitionError("OpenAPI: the document must be of version 3; it has no 'openapi': '3.…'")
    if not isinstance(parsed.get("paths"), Mapping):
        raise ToolDefinitionError("OpenAPI: the document has no paths")
    return parsed


def _name(operation: Mapping[str, Any], method: str, path: str) -> str:
    given = operation.get("operationId") or f"{method.lower()} {path}"
    return _clean(str(given))[:_LONGEST_NAME] or method.lower()


def _clean(name: str) -> str:
    return re.sub(r"[^a-zA-Z0-9_-]+", "_", name).strip("_")


def _enumerated(parts: Collection[str], separator: str = ", ") -> str:
    """Return parts as one text, the first hundred of them."""
    more = f"{separator}and {len(parts) - _MOST_NAMED} more" if len(parts) > _MOST_NAMED else ""
    return separator.join(islice(parts, _MOST_NAMED)) + more


class _Names:
    """Gives names that nobody else has, by a number at the end."""

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._numbers: dict[str, int] = {}  # the last one for each beginning: counting from 2 would take ever longer

    def unique(self, name: str) -> str:
        """Return the name, or one like it that is not taken yet, of at most 64 characters."""
        found, stem = name, name[: _LONGEST_NAME - _LONGEST_NUMBER]
        while found in self._taken:
            self._numbers[stem] = self._numbers.get(stem, 1) + 1
            found = f"{stem}_{self._numbers[stem]}"
        self._taken.add(found)
        return found


class _Reader:
    """Reads the parts of one document; references lead nowhere else."""

    def __init__(self, document: Mapping[str, Any], servers: Servers, configured: Collection[str]) -> None:
        self.document = document
        self._servers = servers
        self._not_asked = {*_NOT_ASKED, *configured}
        self._left = _MOST_SCHEMAS

    def spend(self) -> None:
        """Count one schema that was read; refuse a document whose operations have too many of them."""
        self._left -= 1
        if self._left < 0:
            raise ToolDefinitionError(
                f"OpenAPI: the operations have more than {_MOST_SCHEMAS} schemas; choose some with only=[…]"
            )

    def resolved(self, node: Any) -> Mapping[str, Any]:
        """Give what a node is or refers to."""
        for _ in range(_DEEPEST):
            if not isinstance(node, Mapping):
                raise ToolDefinitionError(f"OpenAPI: expected an object, not {node!r:.80}")
            if "$ref" not in node:
                return node
            node = self._referred(node["$ref"])
        raise ToolDefinitionError("OpenAPI: references lead in a circle")

    def _referred(self, reference: str) -> Any:
        node: Any = self.document
        if not str(reference).startswith("#/"):
            raise ToolDefinitionError(
                f"OpenAPI: only references inside the document are followed, not {reference!r:.80}"
            )
        for part in reference[2:].split("/"):
            key = part.replace("~1", "/").replace("~0", "~")
            if not isinstance(node, Mapping) or key not in node:
                raise ToolDefinitionError(f"OpenAPI: {reference!r:.80} refers to nothing")
            node = node[key]
        return node

    def operation(self, name: str, method: str, path: str, item: Mapping[str, Any]) -> Operation:
        """Give one operation."""
        what = item[method.lower()]
        if method in _UNSENT:
            raise _UnsendableError(f"the method {method} cannot be sent")
        form = _Form(self)
        clean = {(each["in"], each["name"]): form.add(each) for each in self._parameters(item, what)}
        whole = re.sub(r"\{([^{}]+)\}", lambda found: f"{{{clean.get(('path', found[1]), found[1])}}}", path)
        # Not joined as links are: a path may have a colon, which is not the end of a scheme.
        url = f"{self._servers.address(name, what, item).rstrip('/')}/{whole.lstrip('/')}"
        if "requestBody" in what:
            form.add_body(self.resolved(what["requestBody"]))
        told = " ".join(filter(None, (what.get("summary"), what.get("description")))) or f"{method} {path}"
        return Operation(name, told[:_LONGEST_DESCRIPTION], method, url, form.schema(), form.places)

    def _parameters(self, item: Mapping[str, Any], what: Mapping[str, Any]) -> list[Mapping[str, Any]]:
        """Give the parameters of an operation; its own stand above those of its path."""
        both = [self.resolved(each) for each in (*item.get("parameters", ()), *what.get("parameters", ()))]
        named = {(each["in"], each["name"]): each for each in both}
        return [each for (place, name), each in named.items() if self._is_asked(place, name)]

    def _is_asked(self, place: str, name: str) -> bool:
        return place in {"path", "query"} or (place == "header" and name.lower() not in self._not_asked)


def _style(parameter: Mapping[str, Any]) -> Style:
    """Give how a parameter is written; refuse what cannot be."""
    if parameter["in"] == "header" and not HEADER_NAME.fullmatch(parameter["name"]):
        raise _UnsendableError(f"no header can have the name {parameter['name']!r:.80}")
    if kinds := list(parameter.get("content", ())):
        return Style("json" if _is_json(kinds[0]) else "")
    known = _STYLES[parameter["in"]]
    kind = parameter.get("style", known[0])
    if kind not in known:
        raise _UnsendableError(f"its parameter {parameter['name']!r} has the style {kind!r:.80}")
    return Style(kind, explode=kind == "deepObject" or bool(parameter.get("explode", kind == "form")))


def _is_json(kind: str) -> bool:
    plain = kind.partition(";")[0].strip().lower()
    return plain == JSON or plain.endswith("+json")


class _Form:
    """Collects the arguments of one operation."""

    def __init__(self, reader: _Reader) -> None:
        self._reader = reader
        self._properties: dict[str, Any] = {}
        self._required: list[str] = []
        self._definitions: dict[str, Any] = {}
        self._names = _Names()
        self._made: dict[int, dict[str, Any]] = {}  # what was made of a schema, by its id
        self._open: set[int] = set()
        self.places: dict[str, Any] = {
            "query": {},
            "in_headers": {},
            "styles": {},
            "body": "",
            "content_type": "",
            "fields": {},
        }

    def add(self, parameter: Mapping[str, Any]) -> str:
        """Take a parameter, and give the name of its argument."""
        name = self._names.unique(_clean(parameter["name"]) or "value")
        content: Mapping[str, Any] = next(iter(parameter.get("content", {}).values()), {})
        schema = parameter.get("schema", content.get("schema", {}))
        self._put(name, schema, parameter.get("description"), required=parameter.get("required"))
        place = {"query": "query", "header": "in_headers"}.get(parameter["in"])
        if place is not None:
            self.places[place][name] = parameter["name"]
        self.places["styles"][name] = _style(parameter)
        return name

    def add_body(self, body: Mapping[str, Any]) -> None:
        """Take a body that can be written as JSON, as a form or as text."""
        offered = {kind.partition(";")[0].strip().lower(): media for kind, media in body.get("content", {}).items()}
        kind = next(filter(_is_json, offered), None)
        kind = kind or next((each for each in (FORM, _TEXT) if each in offered), None)
        if kind is None:
            raise _UnsendableError(f"its body is {', '.join(offered) or 'nothing'}, not JSON, a form or plain text")
        name = self._names.unique("body")
        schema = {"type": "string"} if kind == _TEXT else offered[kind].get("schema", {})
        self._put(name, schema, body.get("description"), required=body.get("required"))
        told = offered[kind].get("encoding", {}).items()
        fields = {
            each: _style({"name": each, "in": "query", **how}) for each, how in told if {"style", "explode"} & set(how)
        }
        self.places |= {"body": name, "content_type": kind, "fields": fields}

    def schema(self) -> dict[str, Any]:
        """Give the JSON Schema of all arguments."""
        schema: dict[str, Any] = {"type": "object", "properties": self._properties, "additionalProperties": False}
        if self._required:
            schema["required"] = self._required
        return {**schema, "$defs": self._definitions} if self._definitions else schema

    def _put(self, name: str, schema: Any, description: str | None, *, required: bool | None) -> None:
        told = {"description": description} if description else {}
        self._properties[name] = {**self._portable(schema, 0), **told}
        if required:
            self._required.append(name)

    def _portable(self, schema: Any, depth: int) -> dict[str, Any]:
        """Give a schema without what only OpenAPI says."""
        if schema is True or schema is None:
            return {}
        if not isinstance(schema, Mapping) or depth > _DEEPEST:
            raise ToolDefinitionError(f"OpenAPI: a schema is too deep, or is none: {schema!r:.80}")
        if id(schema) in self._open:
            raise ToolDefinitionError("OpenAPI: a schema contains itself; use $ref for what is recursive")
        if id(schema) not in self._made:  # a document that was read from YAML may have the same one in many places
            self._open.add(id(schema))
            self._made[id(schema)] = self._rewritten(schema, depth)
            self._open.remove(id(schema))
        return self._made[id(schema)]

    def _rewritten(self, schema: Mapping[str, Any], depth: int) -> dict[str, Any]:
        self._reader.spend()
        if "$ref" in schema:
            return {"$ref": f"#/$defs/{self._defined(schema['$ref'], depth)}"}
        made = {key: value for key, value in schema.items() if key in _KEPT}
        if schema.get("format") in _FORMATS:
            made["format"] = schema["format"]
        for key in _LISTS & set(schema):
            made[key] = [self._portable(each, depth + 1) for each in schema[key]]
        for key in {"items", "additionalProperties", "not"} & set(schema):
            made[key] = schema[key] if isinstance(schema[key], bool) else self._portable(schema[key], depth + 1)
        self._take_properties(schema, made, depth)
        return _modern(schema, made)

    def _take_properties(self, schema: Mapping[str, Any], made: dict[str, Any], depth: int) -> None:
        """Put the properties that a request can have; what a server alone writes is none of them."""
        if "properties" not in schema:
            return
        sent = {name: each for name, each in schema["properties"].items() if not self._is_answer(each)}
        made["properties"] = {name: self._portable(each, depth + 1) for name, each in sent.items()}
        gone = set(schema["properties"]) - set(sent)
        if "required" in made:
            made["required"] = [name for name in made["required"] if name not in gone]

    def _is_answer(self, schema: Any) -> bool:
        return isinstance(schema, Mapping) and bool(self._reader.resolved(schema).get("readOnly"))

    def _defined(self, reference: str, depth: int) -> str:
        name = _clean(str(reference))
        if name not in self._definitions:
            self._definitions[name] = {}  # a schema may refer to itself
            self._definitions[name] = self._portable(self._reader.resolved({"$ref": reference}), depth + 1)
        return name


def _modern(schema: Mapping[str, Any], made: dict[str, Any]) -> dict[str, Any]:
    """Give a schema with what version 3.0 wrote in another way."""
    for bound, strict in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
        if isinstance(made.get(strict), bool) and made.pop(strict) and bound in made:
            made[strict] = made.pop(bound)
    if schema.get("nullable") is True:
        return {"anyOf": [made, {"type": "null"}]}
    return made
