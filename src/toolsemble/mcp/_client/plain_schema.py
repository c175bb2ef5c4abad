"""Plain schemas, as those of most tools are: recognized by one check in native code, and read at the first call."""

from __future__ import annotations

from functools import cache
from typing import Any

from toolsemble._schema.json_schema import SchemaArguments
from toolsemble._schema.wellformed import DRAFTS, FORMATS
from toolsemble.mcp._client.cleaning import clean_schema

_TYPES = ["string", "integer", "number", "boolean", "null"]
_MOST_PARAMETERS = 40
_MOST_FIELDS = 10
_MOST_VALUES = 100
_MOST_CHOICES = 5
_LARGEST_COUNT = 1_000_000
_LONGEST_NAME = 200
# Names and allowed values without invisible characters; other characters may be visible as well, but need a look.
_VISIBLE = {"type": "string", "pattern": "^[ -~]*$", "maxLength": _LONGEST_NAME}
_COUNT = {"type": "integer", "minimum": 0, "maximum": _LARGEST_COUNT}
_TEXT = {"type": "string"}
_NUMBER = {"type": "number"}
_SAMPLE = {"type": ["string", "number", "boolean", "null"]}


def _object_form(field: dict[str, Any], most: int) -> dict[str, Any]:
    """Return the form of the schema of an object.

    :param field: the form of the schemas of its fields
    :param most: how many fields it may have
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
    """Return the form of the schema of a text, a number, a list of them, or a choice such as a text or null."""
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
    """Return whether a schema is valid, small, visible and without secrets, so that it need not be read before a call.

    What it does not recognize may be valid as well.

    >>> is_plain({"type": "object", "properties": {"city": {"type": "string"}}})
    True
    >>> is_plain({"type": "object", "properties": {"city": {"type": "text"}}})
    False
    """
    try:
        return bool(_plain_form().is_valid(schema))
    except (TypeError, ValueError):  # not JSON, or a text that cannot be written
        return False


class PlainArguments(SchemaArguments):
    """A validator of arguments by a plain schema, which is built when it is first used.

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
        """Return an attribute that is not known before the validator is built."""
        if name.startswith("__") or "_listed" not in vars(self):  # as copies ask for
            raise AttributeError(name)
        super().__init__(self.owner, clean_schema(self._listed))
        return super().__getattribute__(name)


def build_arguments(owner: str, listed: Any) -> SchemaArguments:
    """Return the validator for a schema that a server lists; raise ToolDefinitionError if it cannot be used.

    >>> build_arguments("now", {"type": "objekt"})
    Traceback (most recent call last):
    ...
    toolsemble.ToolDefinitionError: Tool 'now': the schema must be of type object, not 'objekt'
    """
    return PlainArguments(owner, listed) if is_plain(listed) else SchemaArguments(owner, clean_schema(listed))
