"""Arguments that fit a JSON Schema which somebody else wrote, checked by jsonschema-rs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

from toolsemble.errors import ToolDefinitionError
from toolsemble.schema.number import WrittenFloat, is_exact
from toolsemble.schema.present import HIDDEN, presented, written
from toolsemble.schema.problem import Path, Problem, UnfitError
from toolsemble.schema.repair import Repairs
from toolsemble.schema.required import is_missing
from toolsemble.schema.secret import PASSWORD, secret_keys
from toolsemble.schema.shorten import shortened
from toolsemble.schema.tagged import tagged_schema
from toolsemble.schema.words import TYPES, constraint, one_of

_DRAFTS = (
    "https://json-schema.org/draft/2020-12/schema",
    "https://json-schema.org/draft/2019-09/schema",
    "http://json-schema.org/draft-07/schema",
    "http://json-schema.org/draft-06/schema",
    "http://json-schema.org/draft-04/schema",
)
_FORMATS = {"date", "time", "date-time", "duration", "uuid", "email", "uri", "ipv4", "ipv6"}
_ONE = {"items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames", "additionalItems",
        "unevaluatedItems", "unevaluatedProperties"}  # fmt: skip
_MANY = {"anyOf", "oneOf", "allOf", "prefixItems", "items"}
_NAMED = {"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"}
_CHECKED = {
    "type", "enum", "const", "format", "pattern", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum",
    "multipleOf", "minLength", "maxLength", "minItems", "maxItems", "uniqueItems", "minContains", "maxContains",
    "minProperties", "maxProperties", "required", "dependentRequired", "dependencies", "$ref",
}  # fmt: skip
_ANNOTATIONS = {
    "title", "description", "default", "examples", "example", "deprecated", "readOnly", "writeOnly", "$comment",
    "$schema", "$id", "$anchor", "contentEncoding", "contentMediaType", "contentSchema",
}  # fmt: skip
_FROM_SHORTENING = {"required", "minItems", "minProperties", "contains", "dependentRequired", "dependencies"}
_OF_NULL = {"type", "enum", "const", "anyOf", "oneOf"}
_KNOWN = _ONE | _MANY | _NAMED | _CHECKED | _ANNOTATIONS
_DEEPEST = 50
_LARGEST = 10_000
_MOST_ERRORS = 100
_LONG_TEXT = 20_000


class GivenArguments:
    """Checks JSON text against a schema; the schema itself is checked when it is made."""

    def __init__(self, owner: str, parameters: dict[str, Any] | str | None) -> None:
        self.owner = owner
        self.ignored: frozenset[str] = frozenset()
        self.schema = _checked(owner, parameters)
        self.secret_keys = secret_keys(self.schema)
        self._counts = '"integer"' in json.dumps(self.schema)
        self._validator = _quick(_validator(owner, self.schema), owner, self.schema)

    def validate(self, text: str) -> dict[str, Any]:
        """Give the object that JSON text holds, or raise :class:`UnfitError`."""
        import pydantic_core  # noqa: PLC0415 - its reader bounds the depth, which the validator does not

        try:
            value = pydantic_core.from_json(text, allow_inf_nan=False)
            if self._counts and not _is_exact(value):
                value = pydantic_core.from_json(self._with_whole_numbers(text), allow_inf_nan=False)
        except (TypeError, ValueError, RecursionError):  # the first is for halves of surrogate pairs
            raise UnfitError from None
        if not isinstance(value, dict) or not self._validator.is_valid(value):
            raise UnfitError
        return value

    def _with_whole_numbers(self, text: str) -> str:
        """Return the text with integers where the schema wants some and a number of many digits is a whole one."""
        value = json.loads(text, parse_float=WrittenFloat)
        return json.dumps(Repairs(self.schema, frozenset()).mend(value, self.schema), allow_nan=False)

    def holds(self, _: Any) -> bool:
        """Give False: a schema makes no type of its own."""
        return False

    def take(self, value: Any) -> dict[str, Any]:
        """Give the object that a mapping is as JSON, or raise :class:`UnfitError`."""
        return self.validate(written(value))

    def wrong_keys(self, unfit: UnfitError) -> None:
        """Give None: whatever does not fit, any key may be to blame."""

    def problems(self, text: str, value: Any, unfit: UnfitError) -> tuple[list[Problem], int]:  # noqa: ARG002 - the text has it, plainly
        """Give what is wrong with a value, in words, and how many problems there are beyond."""
        found: dict[Path, list[str]] = {}
        for error in islice(self._errors(text), _MOST_ERRORS):
            for path, says in _said(error, self.schema):
                found.setdefault(path, []).append(says)
        ordered = sorted(found.items(), key=lambda item: _order(self.schema, item[0]))
        return [Problem(path, ", ".join(dict.fromkeys(says))) for path, says in ordered], 0

    def present(self, value: Any, *, reveal: bool = False) -> Any:
        """Give the values once more, in objects that nobody else holds; secrets hidden."""
        return hidden_in(presented(value, reveal=reveal), frozenset() if reveal else self.secret_keys)

    def _errors(self, text: str) -> list[Any]:
        """Give what the validator finds; of a long text the first problem has to do, for it would look for all."""
        value = json.loads(text)  # the validator takes no numbers that remember how they were written
        if len(text) <= _LONG_TEXT:
            return list(self._validator.iter_errors(value))
        # Of a choice it would still tell everything that is wrong with each option, item by item.
        first = self._first(shortened(value, self._validator.is_valid))
        return first if _FROM_SHORTENING.isdisjoint(_kinds(first)) else self._first(json.loads(text))

    def _first(self, value: Any) -> list[Any]:
        found = []
        try:
            self._validator.validate(value)
        except ValueError as first:
            found.append(first)
        return found


def _is_exact(value: Any) -> bool:
    """Return whether no number in a value is so large that a float may have lost its last digits."""
    kind = type(value)
    if kind is dict:
        return all(map(_is_exact, value.values()))
    if kind is list:
        return all(map(_is_exact, value))
    return kind is not float or is_exact(value)


def hidden_in(shown: Any, keys: frozenset[str]) -> Any:
    """Give JSON values in which those under some names are hidden, whole.

    >>> hidden_in({"user": "ada", "key": "k1"}, frozenset({"key"}))
    {'user': 'ada', 'key': '**********'}
    """
    if not keys or not isinstance(shown, dict):
        return shown
    return {key: HIDDEN if key in keys and each is not None else each for key, each in shown.items()}


def _checked(owner: str, parameters: dict[str, Any] | str | None) -> dict[str, Any]:
    """Give the schema as a dict of its own; refuse what is no schema of an object."""
    schema = parameters
    if isinstance(schema, str):
        try:
            schema = json.loads(schema)
        except (ValueError, RecursionError) as problem:
            raise ToolDefinitionError(f"Tool '{owner}': the schema is not JSON: {problem}") from None
    if schema is None:
        return {"type": "object", "properties": {}, "additionalProperties": False}
    if not isinstance(schema, dict):
        raise ToolDefinitionError(f"Tool '{owner}': the schema must be an object, not {type(schema).__name__}")
    if schema.get("type", "object") != "object":
        raise ToolDefinitionError(f"Tool '{owner}': the schema must be of type object, not {schema['type']!r}")
    if str(schema.get("$schema", _DRAFTS[0])).rstrip("#") not in _DRAFTS:
        raise ToolDefinitionError(f"Tool '{owner}': unknown $schema {schema['$schema']!r}; use {_DRAFTS[0]}")
    copied: dict[str, Any] = json.loads(_written(owner, schema))
    _check_keywords(owner, copied)
    return copied


def _written(owner: str, schema: dict[str, Any]) -> str:
    try:
        return json.dumps(schema, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as problem:
        raise ToolDefinitionError(f"Tool '{owner}': the schema is not JSON: {problem}") from None


def _check_keywords(owner: str, schema: Any) -> None:
    """Refuse what nobody would enforce, and a schema so deep or large that checking could take down the process."""
    waiting, seen = [(schema, 0, "$")], 0
    while waiting:
        node, depth, path = waiting.pop()
        seen += 1
        if depth > _DEEPEST or seen > _LARGEST:
            raise ToolDefinitionError(f"Tool '{owner}': the schema is too {'deep' if depth > _DEEPEST else 'large'}")
        if not isinstance(node, Mapping):
            continue
        if problem := _unenforced(node):
            raise ToolDefinitionError(f"Tool '{owner}': {path}: {problem}")
        waiting += [(each, depth + 1, f"{path}.{name}") for name, each in _subschemas(node)]


def _unenforced(node: Mapping[str, Any]) -> str:
    form = node.get("format")
    if form is not None and form != PASSWORD and form not in _FORMATS:  # a secret is any text; it is only not shown
        return f"format {form!r} cannot be enforced; use {', '.join(sorted(_FORMATS))}, or pattern"
    unknown = next((keyword for keyword in node if keyword not in _KNOWN and not keyword.startswith("x-")), None)
    return f"keyword {unknown!r} cannot be enforced; leave it out, or say it in the description" if unknown else ""


def _subschemas(node: Mapping[str, Any]) -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for keyword, value in node.items():
        if keyword in _NAMED and isinstance(value, Mapping):
            found += value.items()
        elif keyword in _MANY and isinstance(value, list):
            found += [(f"{keyword}[{index}]", each) for index, each in enumerate(value)]
        elif keyword in _ONE:
            found.append((keyword, value))
    return found


def _validator(owner: str, schema: dict[str, Any]) -> Any:
    import jsonschema_rs  # noqa: PLC0415 - only tools with a schema of their own pay for it

    try:
        # Nothing is ever fetched, and patterns are of the kind that cannot be made to run for ever.
        return jsonschema_rs.validator_for(
            schema, validate_formats=True, offline=True, pattern_options=jsonschema_rs.RegexOptions()
        )
    except ValueError as problem:  # its own errors, and references that cannot be resolved
        raise ToolDefinitionError(f"Tool '{owner}': the schema is not valid: {problem}".splitlines()[0]) from None


def _quick(validator: Any, owner: str, schema: dict[str, Any]) -> Any:
    """Give a validator that reads choices by their constants, where there are some and it would know how."""
    written = json.dumps(schema)
    if schema.get("$schema", _DRAFTS[0]).rstrip("#") not in _DRAFTS[:3] or "/anyOf/" in written or "/oneOf/" in written:
        return validator  # older drafts have no conditions, and references into a choice would miss it
    tagged = tagged_schema(schema)
    return validator if tagged == schema else _validator(owner, tagged)


def _said(error: Any, schema: Mapping[str, Any]) -> list[tuple[Path, str]]:
    """Give an error of the validator as places and words."""
    path: Path = tuple(error.instance_path)
    kind, facts = error.kind.name, error.kind.as_dict()
    if error.instance is None and kind in _OF_NULL and is_missing(schema, path):
        return [(path, "missing")]
    if kind == "required":
        return [((*path, facts["property"]), "missing")]
    if kind in {"additionalProperties", "unevaluatedProperties"}:
        return [((*path, name), "not a parameter of this tool") for name in facts["unexpected"]]
    if kind in {"anyOf", "oneOf"} and facts.get("context"):
        branches = [[said for each in branch for said in _said(each, schema)] for branch in facts["context"]]
        return _nearest(branches, path)
    return [(path, _words(kind, facts, error.message))]


def _kinds(errors: Iterable[Any]) -> Iterator[str]:
    """Give what kinds of errors there are, those of options included."""
    for error in errors:
        yield error.kind.name
        for branch in error.kind.as_dict().get("context", ()):
            yield from _kinds(branch)


def _nearest(branches: list[list[tuple[Path, str]]], path: Path) -> list[tuple[Path, str]]:
    """Give what is wrong with the option that came nearest, or that none of them fits."""
    inside = [branch for branch in branches if branch and all(len(place) > len(path) for place, _ in branch)]
    if inside:
        return min(inside, key=len)
    wanted = [says.removeprefix("expected ") for branch in branches for _, says in branch]
    return [(path, f"expected {' or '.join(dict.fromkeys(wanted))}")]


def _words(kind: str, facts: Mapping[str, Any], message: str) -> str:
    if kind == "type":
        return "expected " + " or ".join(TYPES.get(name, name) for name in facts["types"])
    if kind == "enum":
        return f"expected {one_of(facts['options'])}"
    if kind == "const":
        return f"expected {one_of([facts['expected_value']])}"
    if kind == "pattern":
        return f"expected text that matches {facts['pattern']}"
    said = constraint({kind: next(iter(facts.values()), True)}, kind)
    return f"expected {said}" if said else message


def _order(schema: Mapping[str, Any], path: Path) -> int:
    names = list(schema.get("properties", ()))
    return names.index(path[0]) if path and path[0] in names else len(names)
