"""Problems in arguments: their path, and the expectation in words that a model can act on."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from toolsemble._runtime.text import preview
from toolsemble._vocabulary.errors import ToolArgumentsError
from toolsemble._vocabulary.serialization import json_type


def follow_ref(document: Any, ref: str) -> Any:
    """Return the value in a document that a reference such as ``#/$defs/a`` refers to.

    Raise :class:`LookupError` if there is none, or if the reference leaves the document.

    >>> follow_ref({"$defs": {"a/b": [{"type": "string"}]}}, "#/$defs/a~1b/0")
    {'type': 'string'}
    """
    if "%" in ref:
        from urllib.parse import unquote

        ref = unquote(ref)
    start, *tokens = ref.split("/")
    if start != "#":
        raise LookupError(f"{ref!r:.80} does not refer to a place in the same document, such as '#/$defs/name'")
    for token in tokens:
        key = token.replace("~1", "/").replace("~0", "~")
        if isinstance(document, Mapping) and key in document:
            document = document[key]
        elif isinstance(document, list) and key in map(str, range(len(document))):
            document = document[int(key)]
        else:
            raise LookupError(f"{ref!r:.80}: there is no {key!r:.80}")
    return document


def escape_token(name: str) -> str:
    """Return a key as escaped in a JSON pointer.

    >>> escape_token("a/b")
    'a~1b'
    """
    return name.replace("~", "~0").replace("/", "~1")


def find_ref_target(root: Mapping[str, Any], ref: str) -> Mapping[str, Any]:
    """Return the schema that a ``$ref`` in the same document refers to; empty if there is none.

    >>> find_ref_target({"$defs": {"a": {"type": "string"}}}, "#/$defs/a")
    {'type': 'string'}
    """
    try:
        target = follow_ref(root, ref)
    except LookupError:
        return {}
    return target if isinstance(target, Mapping) else {}


def resolve_schema(root: Mapping[str, Any], schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a schema merged with the target of its ``$ref``; its own keywords take precedence.

    >>> resolve_schema({"$defs": {"a": {"type": "string"}}}, {"$ref": "#/$defs/a", "title": "A"})
    {'type': 'string', '$ref': '#/$defs/a', 'title': 'A'}
    """
    return {**find_ref_target(root, schema["$ref"]), **schema} if "$ref" in schema else schema


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
"""The keyword with the names of enum values, in their order; code generators also use it."""
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
    """Return enum values by their names in the schema; empty if it has no names.

    >>> find_member_names({"enum": [1, 2], "x-enum-varnames": ["RED", "BLUE"]})
    {'RED': 1, 'BLUE': 2}
    """
    names, values = schema.get(MEMBER_NAMES), [schema["const"]] if "const" in schema else schema.get("enum")
    if not isinstance(names, list) or not isinstance(values, list) or len(names) != len(values):
        return {}
    return dict(zip(names, values, strict=True)) if all(isinstance(name, str) for name in names) else {}


def describe_constraint(schema: Mapping[str, Any], keyword: str) -> str:
    """Return a keyword as a phrase; empty if there is nothing to describe.

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


Path: TypeAlias = tuple[str | int, ...]

_LONGEST = 990  # with its prefix, the message stays below 1,000 characters
_LONGEST_NAME = 100
_LONGEST_KEY = 300


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem in the arguments."""

    path: Path
    """The keys and indices to the value, outermost first."""
    message: str
    """The description, such as ``missing`` or ``expected a number``."""


class MismatchError(Exception):
    """Arguments do not validate; the problems are determined later, if repairs fail.

    Its only argument is the validator's exception, if it has more details.
    """

    errors: list[Any] | None = None
    """The validator's errors, after they were first read."""

    @property
    def cause(self) -> Any:
        """The validator's exception."""
        return self.args[0]


def format_path(path: Path) -> str:
    """Return a path as text.

    >>> format_path(("items", 2, "price"))
    'items[2].price'
    >>> format_path(("", "price"))
    '[""].price'
    """
    text = ""
    for part in path:
        if isinstance(part, int) or not part:
            text += '[""]' if part == "" else f"[{part}]"  # an empty key would be invisible
        else:
            text += f".{format_key(part)}" if text else format_key(part)
    return text or "$"


def format_key(key: str) -> str:
    r"""Return a key from a model on one line, shortened, with invisible characters escaped.

    >>> format_key("price"), format_key("a\nb\u202ec\u3164")
    ('price', 'a\\nb\\u202ec\\u3164')
    """
    if key.isascii() and key.isprintable() and len(key) <= _LONGEST_KEY:
        return key
    return preview(key, _LONGEST_KEY)


def describe_variants(path: Path, variants: Iterable[Sequence[Problem]]) -> list[Problem]:
    """Return one problem for a value that matches no variant, with a line for each variant.

    >>> x, y = Problem(("v", "x"), "missing"), Problem(("v", "y"), "missing")
    >>> print(describe_variants(("v",), [[x], [y]])[0].message)
    expected
      either v.x: missing
      or v.y: missing
    """
    different = list(dict.fromkeys(map(tuple, variants)))
    if len(different) == 1:
        return list(different[0])
    lines = ("; ".join(f"{format_path(each.path)}: {each.message}" for each in problems) for problems in different)
    return [Problem(path, "expected\n  either " + "\n  or ".join(lines))]


def report(owner: str, problems: Sequence[Problem], more: int = 0, hint: str = "") -> ToolArgumentsError:
    """Return the error that lists every problem, in a text of limited length; ``more`` problems are only counted.

    :param hint: a hint after the problems, omitted if the text would become too long

    >>> report("search", [Problem(("query",), "missing"), Problem(("limit",), "missing")])
    ToolArgumentsError("Missing required parameter(s) for 'search': query, limit")
    >>> report("search", [Problem(("query",), "missing"), Problem(("limit",), "expected an integer")])
    ToolArgumentsError("Invalid arguments for 'search': query: missing; limit: expected an integer")
    """
    owner = owner[:_LONGEST_NAME]
    if all(problem.message == "missing" and len(problem.path) == 1 for problem in problems):
        missing = [format_path(problem.path) for problem in problems]
        return _add_hint(_join(f"Missing required parameter(s) for '{owner}': ", missing, ", ", more), hint)
    described = [f"{format_path(problem.path)}: {problem.message}" for problem in problems]
    return _add_hint(_join(f"Invalid arguments for '{owner}': ", described, "; ", more), hint)


def _add_hint(text: str, hint: str) -> ToolArgumentsError:
    return ToolArgumentsError(text + hint if len(text) + len(hint) <= _LONGEST else text)


def _join(start: str, parts: Sequence[str], separator: str, more: int) -> str:
    """Return the joined parts, up to the maximum length, and the number of omitted parts."""
    if not more and len(text := start + separator.join(parts)) <= _LONGEST // 3:
        return text  # far from any limit
    room = max(_LONGEST // 3, (_LONGEST - len(start) - 50) // max(1, len(parts)))
    parts = [part if len(part) <= room else f"{part[:room]}..." for part in parts]
    text = start
    for index, part in enumerate(parts):
        rest = f"{separator}and {len(parts) - index + more} more"
        if len(text) + len(part) + len(separator) + len(rest) > _LONGEST:
            return text + rest.removeprefix(separator) if index == 0 else text + rest
        text += (separator if index else "") + part
    return f"{text}{separator}and {more} more" if more else text
