"""Translate pydantic-core's errors into problems: one for each path, without the names of union members."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from toolsemble._schema.argument_problems import FORMATS, Path, Problem, describe_variants, find_ref_target

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails


def is_missing(root: Mapping[str, Any], path: Path) -> bool:
    """Return whether null at a path means that a required value is missing; not for items, or if null is allowed.

    >>> schema = {"properties": {"city": {"type": "string"}, "days": {"type": "integer"}}, "required": ["city"]}
    >>> is_missing(schema, ("city",)), is_missing(schema, ("days",))
    (True, False)
    """
    *outer, last = path
    around = _expand(root, [root])
    for part in outer:
        around = _expand(root, _find_subschemas(around, part))
    required = any(last in schema.get("required", ()) for schema in around)
    return required and not any(map(_admits_null, _expand(root, _find_subschemas(around, last))))


def _expand(root: Mapping[str, Any], schemas: list[Any]) -> list[Mapping[str, Any]]:
    """Return the schemas and all schemas that they reference or choose from, each once."""
    found: dict[int, Mapping[str, Any]] = {}
    waiting = schemas
    while waiting:
        schema = waiting.pop()
        if isinstance(schema, Mapping) and id(schema) not in found:
            found[id(schema)] = schema
            waiting += [each for keyword in ("anyOf", "oneOf", "allOf") for each in schema.get(keyword, ())]
            waiting += [find_ref_target(root, schema["$ref"])] if "$ref" in schema else []
    return list(found.values())


def _find_subschemas(schemas: Iterable[Mapping[str, Any]], part: str | int) -> list[Any]:
    """Return the schemas of one key or item."""
    if isinstance(part, int):
        return [schema.get("items") for schema in schemas]
    return [schema.get("properties", {}).get(part, schema.get("additionalProperties")) for schema in schemas]


def _admits_null(schema: Mapping[str, Any]) -> bool:
    kinds = schema.get("type", ())
    return kinds == "null" or (not isinstance(kinds, str) and "null" in kinds)


def translate_errors(errors: list[ErrorDetails], value: Any, schema: Mapping[str, Any]) -> list[Problem]:
    """Return the problems that errors report for a value; the schema decides where null means missing."""
    located = [(_locate(error, value), error) for error in errors]
    if any(members for (_, members), _ in located):
        return _to_problems(_select_nearest(located), value, schema)
    return _merge_paths(located, value, schema)


_Location = tuple[Path, dict[Path, str]]
_Located = tuple[_Location, "ErrorDetails"]


def _to_problems(chosen: list[_Located], value: Any, schema: Mapping[str, Any]) -> list[Problem]:
    """Return the problems of errors: one per path, and one per union with several equally close members."""
    if (union := _find_open_union(chosen)) is not None:
        variants: dict[str, list[_Located]] = {}
        for (path, members), error in chosen:
            if union in members:
                others = {place: name for place, name in members.items() if place != union}
                variants.setdefault(members[union], []).append(((path, others), error))
        first = next(index for index, ((_, members), _) in enumerate(chosen) if union in members)
        before, after = chosen[:first], [item for item in chosen[first:] if union not in item[0][1]]
        described = describe_variants(union, [_to_problems(each, value, schema) for each in variants.values()])
        return [*_to_problems(before, value, schema), *described, *_to_problems(after, value, schema)]
    return _merge_paths(chosen, value, schema)


def _merge_paths(chosen: list[_Located], value: Any, schema: Mapping[str, Any]) -> list[Problem]:
    """Return one problem for each path."""
    found: dict[Path, list[str]] = {}
    for (path, _), error in chosen:
        phrases = found.setdefault(path, [])
        words = "missing" if _value_at(value, path) is None and is_missing(schema, path) else _phrase(error)
        if words not in phrases:
            phrases.append(words)
    return [Problem(path, _combine(phrases)) for path, phrases in found.items()]


def _find_open_union(chosen: list[_Located]) -> Path | None:
    """Return the outermost union whose closest members have problems at different paths; None if there is none."""
    unions = {union for (_, members), _ in chosen for union in members}
    for union in sorted(unions, key=len):
        paths: dict[str, set[Path]] = {}
        for (path, members), _ in chosen:
            if union in members:
                paths.setdefault(members[union], set()).add(path)
        if len(set(map(frozenset, paths.values()))) > 1 and all(
            len(each) > len(union) for each in set().union(*paths.values())
        ):
            return union
    return None


def _locate(error: ErrorDetails, value: Any) -> _Location:
    """Return an error's path, and its union members by the paths of their unions."""
    path: list[str | int] = []
    members: dict[Path, str] = {}
    for index, part in enumerate(error["loc"]):
        inner = _value_at(value, (part,)) if isinstance(value, (dict, list)) else _ABSENT
        if inner is not _ABSENT:
            value = inner
        elif not (index == len(error["loc"]) - 1 and error["type"] == "missing"):
            if part != "[key]":
                members[tuple(path)] = f"{members.get(tuple(path), '')}/{part}"
            continue
        path.append(part)
    if error["type"] in _OF_TAGS and isinstance(value, dict) and (tag := _tag_name(error)):
        path.append(tag)
    return tuple(path), members


def _tag_name(error: ErrorDetails) -> str:
    """Return the name of the discriminator field; empty if the discriminator is a function."""
    discriminator = str(error.get("ctx", {}).get("discriminator"))
    return discriminator[1:-1] if discriminator[:1] == discriminator[-1:] == "'" else ""


def _select_nearest(located: list[_Located]) -> list[_Located]:
    """Return the errors of each union's closest member; all errors if no member is close."""
    unions = {union for (_, members), _ in located for union in members}
    for union in sorted(unions, key=len, reverse=True):  # inner unions first
        paths: dict[str, list[Path]] = {}
        for (path, members), _ in located:
            if union in members:
                paths.setdefault(members[union], []).append(path)
        counts = {name: len(each) for name, each in paths.items() if all(len(path) > len(union) for path in each)}
        nearest = {name for name, count in counts.items() if count == min(counts.values())} or paths.keys()
        located = [item for item in located if item[0][1].get(union) in {None, *nearest}]
    return located


def _value_at(value: Any, path: Path) -> Any:
    for part in path:
        try:
            value = value[part]
        except (KeyError, IndexError, TypeError):
            return _ABSENT
    return value


_ABSENT = object()


def _combine(phrases: list[str]) -> str:
    """Return several expectations for one path as one phrase."""
    if len(phrases) == 1:
        return phrases[0]
    expected = [words.removeprefix("expected ") for words in phrases if words.startswith("expected ")]
    if expected and all(words.startswith("one of ") for words in expected) and len(expected) == len(phrases):
        return f"expected one of {', '.join(words.removeprefix('one of ') for words in expected)}"
    if len(expected) == len(phrases):
        kinds = dict.fromkeys(expected)
        if "a number" in kinds:
            kinds.pop("an integer", None)  # it is also a number
        return f"expected {' or '.join(kinds)}"
    return ", ".join(phrases)


def _phrase(error: ErrorDetails) -> str:
    kind, context = error["type"], error.get("ctx", {})
    if kind == "missing" or (kind == "union_tag_not_found" and _tag_name(error)):
        return "missing"
    if kind in {"extra_forbidden", "unexpected_keyword_argument"}:
        return "not a parameter of this tool"
    if kind in {"value_error", "assertion_error"}:
        raised = context.get("error")
        return str(raised.args[0] if isinstance(raised, Exception) and raised.args else error["msg"])
    if kind in _BOUNDS:
        return f"expected {_BOUNDS[kind].format(**context)}"
    if phrase := _EXPECTED.get(kind) or _family_phrase(kind) or _choices_phrase(error, context):
        return f"expected {phrase}"
    return re.sub("^Input should be ", "expected ", error["msg"])


@lru_cache(256)
def _family_phrase(kind: str) -> str:
    for family, words in _FAMILIES.items():
        if kind.startswith(family):
            return words
    return ""


def _choices_phrase(error: ErrorDetails, context: Mapping[str, Any]) -> str:
    """Return the allowed values as a phrase, if the error lists them."""
    if "expected" in context:
        return _list_choices(context["expected"])
    if "expected_tags" in context:
        return f"one of {context['expected_tags']}{'' if _tag_name(error) else ' as its kind'}"
    return ""


@lru_cache(256)
def _list_choices(expected: str) -> str:
    listed = re.findall(r"'(?:\\.|[^'\\])*'|(?<!\w)(?!or\b)[\w.+-]+", expected)
    return f"one of {', '.join(_JSON_WORDS.get(word, word) for word in listed)}"


_OF_TAGS = {"union_tag_invalid", "union_tag_not_found"}
_JSON_WORDS = {"None": "null", "True": "true", "False": "false"}
_EXPECTED = {
    "none_required": "null",
    "finite_number": "a finite number",
    "int_from_float": "an integer",
    "is_instance_of": "another value",
    "union_tag_not_found": "another value",
}
_FAMILIES = {
    "int_": "an integer",
    "float_": "a number",
    "decimal_": "a number",
    "string_type": "a string",
    "string_unicode": "a string",
    "bool_": "true or false",
    "list_": "an array",
    "tuple_": "an array",
    "set_": "an array",
    "frozen_set_": "an array",
    "dict_": "an object",
    "model_": "an object",
    "dataclass_": "an object",
    "mapping_": "an object",
    "datetime_": FORMATS["date-time"],
    "timezone_": FORMATS["date-time"],
    "date_": FORMATS["date"],
    "time_delta_": FORMATS["duration"],
    "time_": FORMATS["time"],
    "uuid_": FORMATS["uuid"],
    "bytes_": "base64 text",
    "path_": FORMATS["path"],
    "url_": FORMATS["uri"],
    "ip_v4_": FORMATS["ipv4"],
    "ip_v6_": FORMATS["ipv6"],
}
_BOUNDS = {
    "greater_than": "more than {gt}",
    "greater_than_equal": "at least {ge}",
    "less_than": "less than {lt}",
    "less_than_equal": "at most {le}",
    "multiple_of": "a multiple of {multiple_of}",
    "string_too_short": "at least {min_length} character(s)",
    "string_too_long": "at most {max_length} character(s)",
    "too_short": "at least {min_length} item(s)",
    "too_long": "at most {max_length} item(s)",
    "string_pattern_mismatch": "text that matches {pattern}",
}
