"""Cleaned server definitions: plain schemas, without invisible characters, with bounded texts."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from toolsemble._runtime.text import quote_text, without_invisible
from toolsemble._schema.json_schema import SchemaArguments
from toolsemble._schema.secret_values import PASSWORD
from toolsemble._schema.wellformed import DRAFTS, FORMATS, KEYWORDS, NAMED_SCHEMAS, ONE_SCHEMA, SCHEMA_LISTS
from toolsemble._vocabulary.errors import ToolDefinitionError

MAX_DESCRIPTION = 4000
"""The maximum length of a tool's description."""
MAX_TITLE = 200
"""The maximum length of a title."""
_MAX_PARAMETER = 1000
_MAX_FIXED = 4000
_DEEPEST = 50
_ODD_SPACE = re.compile(r"[^\S\n\t ]")
_CONTROL_SPACE = re.compile("[\r\v\f\x1c-\x1f\x85\u2028\u2029]")
_SAMPLES = ("default", "examples", "example")
_TEXTS = {"title": MAX_TITLE, "description": _MAX_PARAMETER}


def clean_text(text: object, limit: int) -> str:
    r"""Return a text without invisible characters, of at most ``limit`` characters; "" if it is not a str.

    >>> clean_text("Reads\u200b a file\x1b[2J", 100), clean_text("abcdef", 4)
    ('Reads a file[2J', 'abc…')
    """
    if not isinstance(text, str):
        return ""
    # Bounded before cleaning too: a server may send megabytes.
    cleaned = _ODD_SPACE.sub(" ", without_invisible(text[: 4 * limit])).strip()
    return cleaned if len(cleaned) <= limit else f"{cleaned[: limit - 1]}…"


def clean_line(text: object, limit: int) -> str:
    r"""Return a cleaned text on one line.

    >>> clean_line("notes\n\nof  Monday", 100)
    'notes of Monday'
    """
    return " ".join(clean_text(text, limit).split())


def clean_schema(schema: Any) -> dict[str, Any]:
    """Return a copy of a server's schema with cleaned texts, without unenforceable keywords.

    The server checks its keywords itself; an unsupported format moves into the description. Raise ToolDefinitionError
    for a schema that is too deep, or that has invisible characters or very long texts where cleaning would change its
    meaning: in names, patterns, and values that a model must repeat.

    >>> clean_schema({"properties": {"id": {"type": "integer", "format": "int64"}}})
    {'properties': {'id': {'type': 'integer', 'description': 'Format: int64'}}}
    """
    if not isinstance(schema, dict):
        raise ToolDefinitionError(f"the schema must be an object, not {type(schema).__name__}")
    cleaned: dict[str, Any] = _clean_node(schema, 0)
    _check_visible(cleaned)
    return cleaned


def _clean_node(node: Any, depth: int) -> Any:
    if depth > _DEEPEST:
        raise ToolDefinitionError(f"the schema is nested deeper than {_DEEPEST} levels")
    if not isinstance(node, dict):
        return node
    cleaned: dict[str, Any] = {}
    for key, value in node.items():
        if key == "$comment" or (key not in KEYWORDS and not key.startswith("x-")):
            continue
        cleaned[key] = _clean_value(key, value, depth + 1)
    if cleaned.get("$schema") is not None and str(cleaned["$schema"]).rstrip("#") not in DRAFTS:
        del cleaned["$schema"]
    return _move_format(cleaned)


def _clean_value(key: str, value: Any, depth: int) -> Any:
    if key in _TEXTS:
        return clean_text(value, _TEXTS[key])
    if key in _SAMPLES or key.startswith("x-"):
        return _clean_sample(value)
    if key in NAMED_SCHEMAS and isinstance(value, dict):
        return {name: _clean_node(each, depth) for name, each in value.items()}
    if key in SCHEMA_LISTS and isinstance(value, list):
        return [_clean_node(each, depth) for each in value]
    return _clean_node(value, depth) if key in ONE_SCHEMA else value


def _move_format(node: dict[str, Any]) -> dict[str, Any]:
    """Return a schema with an unsupported format moved into its description."""
    form = node.get("format")
    if form is None or form == PASSWORD or form in FORMATS:
        return node
    rest = {key: value for key, value in node.items() if key != "format"}
    texts = (rest.get("description"), f"Format: {clean_text(form, MAX_TITLE)}")
    return {**rest, "description": ". ".join(filter(None, texts))}


def _clean_sample(value: Any) -> Any:
    """Return an example or a default with cleaned texts; neither affects validation."""
    if isinstance(value, str):
        return clean_text(value, _MAX_PARAMETER)
    if isinstance(value, list):
        return [_clean_sample(each) for each in value]
    if isinstance(value, dict):
        return {clean_text(key, MAX_TITLE): _clean_sample(each) for key, each in value.items()}
    return value


def _check_visible(value: Any) -> None:
    """Raise for any text visible to a model that has invisible characters or is too long."""
    waiting = [value]
    while waiting:
        part = waiting.pop()
        if isinstance(part, dict):
            waiting += (*part, *part.values())
        elif isinstance(part, list):
            waiting += part
        elif isinstance(part, str):
            _check_text(part)


def _check_text(text: str) -> None:
    if len(text) > _MAX_FIXED:
        raise ToolDefinitionError(f"{quote_text(text, 80)} has more than {_MAX_FIXED} characters")
    if without_invisible(text) != text or _CONTROL_SPACE.search(text):
        raise ToolDefinitionError(f"{quote_text(text, 80)} has invisible characters")


_TYPES = ["string", "integer", "number", "boolean", "null"]
_MOST_PARAMETERS = 40
_MOST_FIELDS = 10
_MOST_VALUES = 100
_MOST_CHOICES = 5
_LARGEST_COUNT = 1_000_000
_LONGEST_NAME = 200
# Known visible names and values; other characters may be visible too, but need a full check.
_VISIBLE = {"type": "string", "pattern": "^[ -~]*$", "maxLength": _LONGEST_NAME}
_COUNT = {"type": "integer", "minimum": 0, "maximum": _LARGEST_COUNT}
_TEXT = {"type": "string"}
_NUMBER = {"type": "number"}
_SAMPLE = {"type": ["string", "number", "boolean", "null"]}


def _object_form(field: dict[str, Any], most: int) -> dict[str, Any]:
    """Return the plain form of an object schema.

    :param field: the form of its fields' schemas
    :param most: the maximum number of fields
    """
    fields = {"type": "object", "maxProperties": most, "propertyNames": _VISIBLE, "additionalProperties": field}
    form = _closed(
        {
            "type": {"const": "object"},
            "title": _TEXT,
            "description": _TEXT,
            "properties": fields,
            "required": {"type": "array", "items": _VISIBLE, "maxItems": most, "uniqueItems": True},
            "additionalProperties": {"type": "boolean"},
        }
    )
    return {**form, "required": ["type"]}


def _value_form() -> dict[str, Any]:
    """Return the plain form of a schema for a text, a number, a list of them, or a choice such as a text or null."""
    described = {"title": _TEXT, "description": _TEXT}
    item = _closed({"type": {"enum": _TYPES}, **described})
    option = _closed({"type": {"enum": [*_TYPES, "array"]}, "format": {"enum": sorted(FORMATS)}, "items": item})
    return _closed(
        {
            **option["properties"],
            **described,
            "default": _SAMPLE,
            "enum": {
                "type": "array",
                "items": {"anyOf": [_VISIBLE, {"type": ["integer", "boolean", "null"]}]},
                "minItems": 1,
                "maxItems": _MOST_VALUES,
                "uniqueItems": True,
            },
            "anyOf": {"type": "array", "items": option, "minItems": 1, "maxItems": _MOST_CHOICES},
            **dict.fromkeys(("minimum", "maximum"), _NUMBER),
            **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems"), _COUNT),
        }
    )


def _closed(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "additionalProperties": False}


@cache
def _plain_form() -> Any:
    """Return the validator of plain schemas."""
    import jsonschema_rs

    is_object = {"properties": {"type": {"const": "object"}}, "required": ["type"]}
    value = _value_form()
    field = {"if": is_object, "then": _object_form(value, _MOST_FIELDS), "else": value}
    form = _object_form(field, _MOST_PARAMETERS)
    form["properties"]["$schema"] = {"enum": [DRAFTS[0], DRAFTS[2], f"{DRAFTS[2]}#"]}
    return jsonschema_rs.validator_for(form)


def is_plain(schema: Any) -> bool:
    """Return whether a schema is valid, small, visible and without secrets, so that calls need not parse it.

    Schemas that it does not recognize may also be valid.

    >>> is_plain({"type": "object", "properties": {"city": {"type": "string"}}})
    True
    >>> is_plain({"type": "object", "properties": {"city": {"type": "text"}}})
    False
    """
    try:
        return bool(_plain_form().is_valid(schema))
    except (TypeError, ValueError):  # not JSON, or text that cannot be encoded
        return False


class PlainArguments(SchemaArguments):
    """An argument validator for a plain schema, built on first use.

    >>> arguments = PlainArguments("now", {"type": "object", "properties": {"zone": {"type": "string"}}})
    >>> arguments.validate('{"zone": "UTC"}')
    {'zone': 'UTC'}
    """

    def __init__(self, owner: str, listed: dict[str, Any]) -> None:
        self.owner = owner
        self.ignored = frozenset()
        self.init_only = ""
        self.secret_keys = frozenset()
        self._listed = listed

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the built validator."""
        if name.startswith("__") or "_listed" not in vars(self):  # looked up by copies
            raise AttributeError(name)
        super().__init__(self.owner, clean_schema(self._listed))
        return super().__getattribute__(name)


def build_arguments(owner: str, listed: Any) -> SchemaArguments:
    """Return the validator for a server's schema; raise ToolDefinitionError if it is unusable.

    >>> build_arguments("now", {"type": "objekt"})
    Traceback (most recent call last):
    ...
    toolsemble.ToolDefinitionError: Tool 'now': the schema must be of type object, not 'objekt'
    """
    return PlainArguments(owner, listed) if is_plain(listed) else SchemaArguments(owner, clean_schema(listed))


TOOL = "tool"
"""The kind of a tool."""
PROMPT = "prompt"
"""The kind of a prompt."""
READ_RESOURCE = "read_resource"
"""The kind of the tool that reads a resource, and its name."""
LIST_RESOURCES = "list_resources"
"""The kind of the tool that lists resources, and its name."""


@dataclass(frozen=True, slots=True)
class RemoteDefinition:
    """A tool as defined by its server."""

    name: str
    """The server's own name."""
    title: str | None
    description: str | None
    input_schema: dict[str, Any]
    """The full schema, as sent."""
    output_schema: Any
    """As sent; None if there is none."""
    hints: dict[str, Any]
    """The annotations, as sent."""
    kind: str = TOOL
    """The kind of target: a tool, a prompt, or resources."""
    target: str = ""
    """The name to send."""
    is_plain: bool = field(init=False, compare=False, repr=False)
    """Whether its argument schema need not be parsed before a call."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "is_plain", is_plain(self.input_schema))

    def to_listed(self) -> dict[str, Any]:
        """Return the definition as listed by the server, for a lock.

        >>> RemoteDefinition("now", None, "The time", {}, None, {}).to_listed()["description"]
        'The time'
        """
        return {
            "name": self.name,
            "title": self.title,
            "description": self.description,
            "inputSchema": self.input_schema,
            "outputSchema": self.output_schema,
            "annotations": self.hints,
        }


@dataclass(frozen=True, slots=True)
class Listing:
    """The tools of a server, in its order."""

    tools: tuple[RemoteDefinition, ...]
    """The selected tools."""
    shown: tuple[RemoteDefinition, ...] = ()
    """All listed tools."""
