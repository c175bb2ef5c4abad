"""Describe schema keywords in short phrases, for descriptions and for error messages."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from toolsemble._vocabulary.serialization import json_type

FORMATS = {
    "date": "a date, YYYY-MM-DD",
    "date-time": "a date and time, such as 2024-03-15T12:30:00Z",
    "time": "a time, HH:MM:SS",
    "duration": "a duration, such as PT1H30M",
    "uuid": "a UUID",
    "email": "an email address",
    "uri": "a URL",
    "ipv4": "an IPv4 address",
    "ipv6": "an IPv6 address",
    "ipv4network": "an IPv4 network",
    "ipv6network": "an IPv6 network",
    "path": "a path",
    "file-path": "the path of a file that exists",
    "directory-path": "the path of a directory that exists",
    "base64": "base64",
    "base64url": "base64",
    "binary": "text",
    "regex": "a regular expression",
    "json-string": "JSON text",
    "password": "a secret",
    "hostname": "a host name",
}
MEMBER_NAMES = "x-enum-varnames"
"""The keyword with the names of the values of an enumeration, in their order; code generators use it, too."""
_MOST_NAMES = 100
TYPES = {
    "string": "a string",
    "integer": "an integer",
    "number": "a number",
    "boolean": "true or false",
    "array": "an array",
    "object": "an object",
    "null": "null",
}


def has_json_type(value: object, kind: object) -> bool:
    """Return whether a value is of a JSON type; an integral float is an integer, and an integer is a number.

    >>> has_json_type(2, "number"), has_json_type(2.0, "integer"), has_json_type(True, "integer")
    (True, True, False)
    """
    own = json_type(value)
    if own == "integer":
        return kind in ("integer", "number")
    return own == kind or (kind == "integer" and isinstance(value, float) and value.is_integer())


def format_value(value: object) -> str:
    """Return a value as it is quoted in messages.

    >>> format_value("asc"), format_value(None)
    ("'asc'", 'null')
    """
    return f"'{value}'" if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def format_choices(values: list[Any]) -> str:
    """Return the allowed values as a phrase.

    >>> format_choices(["asc", "desc"])
    "one of 'asc', 'desc'"
    """
    return (
        f"one of {', '.join(format_value(value) for value in values)}" if len(values) > 1 else format_value(values[0])
    )


def find_member_names(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of an enumeration by the names that the schema has for them; empty if it has none.

    >>> find_member_names({"enum": [1, 2], "x-enum-varnames": ["RED", "BLUE"]})
    {'RED': 1, 'BLUE': 2}
    """
    names, values = schema.get(MEMBER_NAMES), [schema["const"]] if "const" in schema else schema.get("enum")
    if not isinstance(names, list) or not isinstance(values, list) or len(names) != len(values):
        return {}
    return dict(zip(names, values, strict=True)) if all(isinstance(name, str) for name in names) else {}


def describe_constraint(schema: Mapping[str, Any], keyword: str) -> str:
    """Return a keyword as a phrase; empty if there is nothing to say.

    >>> describe_constraint({"minimum": 1, "maximum": 7}, "minimum"), describe_constraint({"format": "date"}, "format")
    ('between 1 and 7', 'a date, YYYY-MM-DD')
    """
    value = schema[keyword]
    if keyword in _PAIRS:
        return _describe_bounds(schema, keyword)
    if keyword == "format":
        return FORMATS.get(value, f"format {value}")
    if keyword == "uniqueItems":
        return "no duplicates" if value else ""
    if keyword == MEMBER_NAMES:
        named = [f"{name}={format_value(each)}" for name, each in find_member_names(schema).items()]
        return ", ".join(named[:_MOST_NAMES]) + ", ..." * (len(named) > _MOST_NAMES)
    template = _WORDS.get(keyword)
    if template is None:
        return ""
    return template.format(", ".join(map(format_value, value)) if isinstance(value, list) else value)


_WORDS = {
    "exclusiveMinimum": "more than {}",
    "exclusiveMaximum": "less than {}",
    "multipleOf": "a multiple of {}",
    "pattern": "must match {}",
    "examples": "for example {}",
    "contentEncoding": "{} encoded",
    "contentMediaType": "{} content",
}
_PAIRS = {
    "minimum": ("minimum", "maximum", ""),
    "maximum": ("minimum", "maximum", ""),
    "minLength": ("minLength", "maxLength", " characters"),
    "maxLength": ("minLength", "maxLength", " characters"),
    "minItems": ("minItems", "maxItems", " items"),
    "maxItems": ("minItems", "maxItems", " items"),
    "minProperties": ("minProperties", "maxProperties", " entries"),
    "maxProperties": ("minProperties", "maxProperties", " entries"),
}


def _describe_bounds(schema: Mapping[str, Any], keyword: str) -> str:
    """Return both bounds for the lower keyword, and nothing for the upper one."""
    low, high, unit = _PAIRS[keyword]
    if low in schema and high in schema:
        if keyword == high:
            return ""
        if schema[low] == schema[high]:
            return f"exactly {schema[low]}{unit}"
        return f"between {schema[low]} and {schema[high]}{unit}"
    return f"at {'least' if keyword == low else 'most'} {schema[keyword]}{unit}"
