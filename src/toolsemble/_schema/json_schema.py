"""Validate arguments against a custom JSON Schema, with jsonschema-rs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

from toolsemble._runtime.text import HIDDEN, preview
from toolsemble._schema.argument_problems import (
    TYPES,
    MismatchError,
    Path,
    Problem,
    describe_constraint,
    describe_variants,
    format_choices,
)
from toolsemble._schema.display import to_display, to_display_text
from toolsemble._schema.number import WrittenFloat, is_exact
from toolsemble._schema.pydantic_errors import is_missing
from toolsemble._schema.pydantic_schema import tag_schema
from toolsemble._schema.repair import Repairs
from toolsemble._schema.secret_values import PASSWORD, secret_keys, unnamed_secret
from toolsemble._schema.wellformed import DRAFTS, check_schema
from toolsemble._schema.work_estimate import LINEAR, TooMuchWorkError, count_values, measure_work
from toolsemble._vocabulary.errors import ToolDefinitionError

_SHORT = 100
_MOST_LOOKS = 200


def shorten(value: Any, fits: Callable[[Any], bool]) -> Any:
    """Return an invalid value with long lists and objects cut after the first invalid item.

    The value is changed in place. Paths stay valid, since only ends are cut.

    >>> value = {"sizes": [1] * 1000 + ["x"] * 1000}
    >>> len(shorten(value, lambda each: "x" not in each["sizes"])["sizes"])
    1001
    """
    looks, waiting = _MOST_LOOKS, [value]
    while waiting and looks > 0:
        inner = waiting.pop()
        if not isinstance(inner, (list, dict)):
            continue
        if len(inner) > _SHORT:
            looks -= _cut(inner, lambda: fits(value))
        items = list(inner.values()) if isinstance(inner, dict) else inner
        waiting += items if len(items) <= _SHORT else items[-1:]  # the last item of a cut list is the invalid one
    return value


def _cut(inner: list[Any] | dict[str, Any], fits: Callable[[], bool]) -> int:
    """Cut the end of a list or an object while the whole stays invalid; return the number of validations."""
    items = list(inner.items()) if isinstance(inner, dict) else list(inner)
    low, high, looks = _SHORT, len(items), 0
    while low < high:
        middle = (low + high) // 2
        _keep(inner, items[:middle])
        low, high = (middle + 1, high) if fits() else (low, middle)
        looks += 1
    _keep(inner, items[:high])
    return looks


def _keep(inner: list[Any] | dict[str, Any], items: list[Any]) -> None:
    inner.clear()
    if isinstance(inner, dict):
        inner.update(items)
    else:
        inner.extend(items)


_FROM_SHORTENING = {"required", "minItems", "minProperties", "contains", "dependentRequired", "dependencies"}
_OF_NULL = {"type", "enum", "const", "anyOf", "oneOf"}
_EMPTY_KEY = '""'
_MOST_ERRORS = 100
_LONG_TEXT = 20_000
_LONG_LIST = 20
_LONGEST_MESSAGE = 500
_MOST_TELLING = 100_000


class SchemaArguments:
    """A validator of arguments by a JSON Schema, which is checked on construction."""

    def __init__(self, owner: str, parameters: dict[str, Any] | str | None) -> None:
        self.owner = owner
        self.ignored: frozenset[str] = frozenset()
        self.init_only = ""
        self.schema = check_schema(owner, parameters)
        text = json.dumps(self.schema)
        self.secret_keys = _find_secrets(owner, self.schema) if f'"{PASSWORD}"' in text else frozenset()
        self._has_integers = '"integer"' in text
        quick = _tag_choices(self.schema, text)
        try:
            self._work = measure_work(quick, text)
        except TooMuchWorkError as problem:  # a short value could block the process
            raise ToolDefinitionError(f"Tool '{owner}': the schema is too large: {problem}") from None
        self._at_most = self._work.at_most
        self._validator = _compile_validator(owner, quick)
        self._error_budget = _MOST_TELLING // (1 + _longest_list(self.schema) // _LONG_LIST)

    def validate(self, text: str) -> dict[str, Any]:
        """Return the object in JSON text, or raise :class:`MismatchError`."""
        import pydantic_core  # its parser limits the depth, which the validator does not

        try:
            value = pydantic_core.from_json(text, allow_inf_nan=False)
            if self._has_integers and not _has_exact_numbers(value):
                value = pydantic_core.from_json(self._restore_integers(text), allow_inf_nan=False)
        except (TypeError, ValueError, RecursionError):  # TypeError for lone surrogates
            raise MismatchError from None
        if len(text) > self._at_most and not self._work.admits(value, len(text)):
            raise MismatchError
        if not isinstance(value, dict) or not self._validator.is_valid(value):
            raise MismatchError
        return value

    def _restore_integers(self, text: str) -> str:
        """Return the text with floats replaced by integers where the schema requires integers and no digit is lost."""
        value = json.loads(text, parse_float=WrittenFloat)
        return json.dumps(Repairs(self.schema, frozenset()).repair(value, self.schema), allow_nan=False)

    def holds(self, _: Any) -> bool:
        """Return False: a schema has no Python type."""
        return False

    def take(self, value: Any) -> dict[str, Any]:
        """Return a mapping as a JSON object, or raise :class:`MismatchError`."""
        return self.validate(to_display_text(value))

    def wrong_keys(self, mismatch: MismatchError) -> None:
        """Return None: any key may be wrong."""

    def is_settled(self, mismatch: MismatchError) -> bool:
        """Return False: the errors are unknown."""
        return False

    def problems(
        self, text: str, value: Any, mismatch: MismatchError
    ) -> tuple[list[Problem], int]:  # the text is plain JSON
        """Return the problems of a value, and the number of omitted problems."""
        found: dict[Path, list[str]] = {}
        plain = json.loads(text)  # the validator does not accept WrittenFloat
        if not self._work.admits(plain, len(text)):
            return [Problem((), "nested too deeply or too long to be checked; send less")], 0
        if (errors := self._find_errors(plain, text)) is None:
            return [Problem((), "does not fit, and is too long to say where; send less")], 0
        for error in islice(errors, _MOST_ERRORS):
            for path, message in _translate_error(error, self.schema, plain if _EMPTY_KEY in text else None):
                found.setdefault(path, []).append(message)
        ordered = sorted(found.items(), key=lambda item: _order(self.schema, item[0]))
        return [Problem(path, ", ".join(dict.fromkeys(message))) for path, message in ordered], 0

    def present(self, value: Any, *, reveal: bool = False, best_effort: bool = False) -> Any:
        """Return a copy of the values, with secrets hidden."""
        return hide_values(to_display(value, reveal=reveal), frozenset() if reveal else self.secret_keys)

    def _find_errors(self, value: Any, text: str) -> list[Any] | None:
        """Return the validator's errors; for a long text only the first, because finding all takes too long.

        Return None if even the first error would take too long: an error in a choice lists all errors of each option.
        """
        if len(text) <= _LONG_TEXT and self._work.estimate(value, len(text)) <= 2 * self._error_budget:
            return list(self._validator.iter_errors(value))
        short = shorten(value, self._validator.is_valid)
        if self._work is not LINEAR and self._work.estimate(short, count_values(short)) > self._error_budget:
            return None
        first = self._find_first_error(short)
        return first if _FROM_SHORTENING.isdisjoint(_error_kinds(first)) else self._find_first_error(json.loads(text))

    def _find_first_error(self, value: Any) -> list[Any]:
        found = []
        try:
            self._validator.validate(value)
        except ValueError as first:
            found.append(first)
        return found


def _find_secrets(owner: str, schema: dict[str, Any]) -> frozenset[str]:
    """Return the parameters that are or contain secrets; raise if others could be secrets as well."""
    if (keyword := unnamed_secret(schema)) is not None:
        raise ToolDefinitionError(
            f"Tool '{owner}': {keyword} allows secrets (format 'password'), but only declared "
            "parameters can be hidden; list them under properties"
        )
    return secret_keys(schema)


def _has_exact_numbers(value: Any) -> bool:
    """Return whether every number in a value is small enough that a float loses no digits."""
    kind = type(value)
    if kind is dict:
        return all(map(_has_exact_numbers, value.values()))
    if kind is list:
        return all(map(_has_exact_numbers, value))
    return kind is not float or is_exact(value)


def hide_values(shown: Any, keys: frozenset[str]) -> Any:
    """Return JSON values with the values under some keys hidden.

    >>> hide_values({"user": "ada", "key": "k1"}, frozenset({"key"}))
    {'user': 'ada', 'key': '**********'}
    """
    if not keys or not isinstance(shown, dict):
        return shown
    return {key: HIDDEN if key in keys and each is not None else each for key, each in shown.items()}


def _compile_validator(owner: str, schema: dict[str, Any]) -> Any:
    import jsonschema_rs

    try:
        # Nothing is fetched, and patterns run in linear time.
        return jsonschema_rs.validator_for(
            schema, validate_formats=True, offline=True, pattern_options=jsonschema_rs.RegexOptions()
        )
    except ValueError as problem:  # its own errors, and unresolvable references
        raise ToolDefinitionError(f"Tool '{owner}': the schema is not valid: {problem}".splitlines()[0]) from None


def _tag_choices(schema: dict[str, Any], text: str) -> dict[str, Any]:
    """Return a schema in which constants select the options of choices, if the draft supports it."""
    if '"anyOf"' not in text and '"oneOf"' not in text:
        return schema
    if schema.get("$schema", DRAFTS[0]).rstrip("#") not in DRAFTS[:3] or "/anyOf/" in text or "/oneOf/" in text:
        return schema  # older drafts have no conditions, and references into a choice would break
    return tag_schema(schema)


def _longest_list(schema: Any) -> int:
    """Return the length of the longest enum, which every error repeats."""
    longest, waiting = 0, [schema]
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            allowed = node.get("enum")
            longest = max(longest, len(allowed)) if isinstance(allowed, list) else longest
            waiting += node.values()
        elif isinstance(node, list):
            waiting += [each for each in node if isinstance(each, (dict, list))]
    return longest


def _translate_error(error: Any, schema: Mapping[str, Any], value: Any) -> list[tuple[Path, str]]:
    """Return an error of the validator as paths and messages.

    :param value: the checked value, if it may have empty keys; else None
    """
    path: Path = tuple(error.instance_path)
    if value is not None:
        path = _add_empty_keys(value, path, error.instance) or path
    kind, facts = error.kind.name, error.kind.as_dict()
    if error.instance is None and kind in _OF_NULL and is_missing(schema, path):
        return [(path, "missing")]
    if kind == "required":
        return [((*path, facts["property"]), "missing")]
    if kind in {"additionalProperties", "unevaluatedProperties"}:
        return [((*path, name), "not a parameter of this tool") for name in facts["unexpected"]]
    if kind in {"anyOf", "oneOf"} and facts.get("context"):
        branches = [
            [found for each in branch for found in _translate_error(each, schema, value)] for branch in facts["context"]
        ]
        return _nearest_branch(branches, path)
    return [(path, _phrase(kind, facts, error.message))]


def _error_kinds(errors: Iterable[Any]) -> Iterator[str]:
    """Yield the kinds of errors, including errors of options."""
    for error in errors:
        yield error.kind.name
        for branch in error.kind.as_dict().get("context", ()):
            yield from _error_kinds(branch)


def _add_empty_keys(value: Any, path: Path, instance: Any) -> Path | None:
    """Return a path with the empty keys that the validator omits; None if it does not lead to the instance.

    Each value is tried once with each path suffix: nested empty keys must not double the work at each level.
    """
    tried: set[tuple[int, int]] = set()

    def search(value: Any, rest: Path) -> Path | None:
        if not rest and value == instance:
            return ()
        if (id(value), len(rest)) in tried or not isinstance(value, (dict, list)):
            return None
        tried.add((id(value), len(rest)))
        keys = value if isinstance(value, dict) else range(len(value))
        ways = [(rest[0], rest[1:])] if rest and rest[0] in keys else []
        ways += [("", rest)] if "" in keys else []
        inside: Any = value
        found = ((key, search(inside[key], left)) for key, left in ways)
        return next(((key, *inner) for key, inner in found if inner is not None), None)

    return search(value, path)


def _nearest_branch(branches: list[list[tuple[Path, str]]], path: Path) -> list[tuple[Path, str]]:
    """Return the errors of the nearest option, or one error that lists what each option expects."""
    inside = [branch for branch in branches if branch and all(len(place) > len(path) for place, _ in branch)]
    if inside:
        nearest = [branch for branch in inside if len(branch) == min(map(len, inside))]
        if len({frozenset(place for place, _ in branch) for branch in nearest}) == 1:
            return nearest[0]
        problems = describe_variants(path, [[Problem(*each) for each in branch] for branch in nearest])
        return [(each.path, each.message) for each in problems]
    wanted = [message.removeprefix("expected ") for branch in branches for _, message in branch]
    return [(path, f"expected {' or '.join(dict.fromkeys(wanted))}")]


def _phrase(kind: str, facts: Mapping[str, Any], message: str) -> str:
    if kind == "type":
        return "expected " + " or ".join(TYPES.get(name, name) for name in facts["types"])
    if kind == "enum":
        return f"expected {format_choices(facts['options'][:_MOST_ERRORS])}"
    if kind == "const":
        return f"expected {format_choices([facts['expected_value']])}"
    if kind == "pattern":
        return f"expected text that matches {facts['pattern']}"
    phrase = describe_constraint({kind: next(iter(facts.values()), True)}, kind)
    return f"expected {phrase}" if phrase else preview(message, _LONGEST_MESSAGE)


def _order(schema: Mapping[str, Any], path: Path) -> int:
    names = list(schema.get("properties", ()))
    return names.index(path[0]) if path and path[0] in names else len(names)
