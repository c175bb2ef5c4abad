"""Repair arguments that are almost valid; each step can be disabled, and each change is recorded."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

from toolsemble._schema.argument_problems import (
    TYPES,
    Path,
    Problem,
    find_member_names,
    find_ref_target,
    format_key,
    format_path,
    resolve_schema,
)
from toolsemble._schema.number import MOST_DIGITS, LongNumberError, WrittenFloat, is_exact, parse_number, to_integer
from toolsemble._vocabulary.serialization import compact_json, json_type

_SHOWN = 5


def hint_at_nesting(schema: Mapping[str, Any], value: Mapping[str, Any], problems: Sequence[Problem]) -> str:
    """Return a hint for unknown keys that belong in an object parameter; "" if there is none.

    >>> refund = {"properties": {"args": {"type": "object", "properties": {"name": {}, "amount": {}}}}}
    >>> hint_at_nesting(refund, {"name": "z", "amount": 3}, [Problem(("args",), "missing")])
    "; 'name' and 'amount' belong in 'args'"
    """
    root = resolve_schema(schema, schema)
    properties: Mapping[str, Any] = root.get("properties", {})
    if value.keys() <= properties.keys():
        return ""
    unknown = [key for key in value if key not in properties]
    missing = [str(problem.path[0]) for problem in problems if problem.message == "missing" and len(problem.path) == 1]
    wrong = {problem.path[0] for problem in problems if len(problem.path) == 1}
    # Without a missing parameter, a key may belong in any of the parameters sent.
    names, keys = (missing, unknown) if missing else (list(properties), [key for key in unknown if key in wrong])
    hints = []
    for name in names if keys else ():
        inside = find_properties(schema, properties.get(name))
        if fitting := [key for key in keys if key in inside]:
            hints.append(f"; {_join_keys(fitting)} belong{'s' if len(fitting) == 1 else ''} in '{name}'")
    return "".join(hints) if len(hints) == 1 else ""  # with several places, the right one is unknown


def find_properties(root: Mapping[str, Any], schema: Any) -> Mapping[str, Any]:
    """Return the properties of an object schema; for a union, the properties of all options.

    >>> sorted(find_properties({}, {"anyOf": [{"properties": {"a": {}}}, {"type": "null"}]}))
    ['a']
    """
    if not isinstance(schema, Mapping):
        return {}
    found = resolve_schema(root, schema)
    inside = dict(found.get("properties", {}))
    for option in (*found.get("anyOf", ()), *found.get("oneOf", ())):
        inside |= resolve_schema(root, option).get("properties", {}) if isinstance(option, Mapping) else {}
    return inside


def _join_keys(keys: Sequence[str]) -> str:
    shown = [f"'{format_key(key)}'" for key in keys[:_SHOWN]]
    if len(keys) > _SHOWN:
        shown.append(f"{len(keys) - _SHOWN} more")
    return " and ".join([", ".join(shown[:-1]), shown[-1]] if len(shown) > 1 else shown)


# An unterminated string takes the rest: a search for its end from every quote would be quadratic.
_TOKEN = re.compile(r'"(?:\\.|[^"\\])*+(?:"|\\?\Z)|\'(?:\\.|[^\'\\])*+(?:\'|\\?\Z)|\b(?:True|False|None)\b', re.DOTALL)
_PYTHON = {"True": "true", "False": "false", "None": "null"}
_CONTROL = str.maketrans({"\n": "\\n", "\r": "\\r", "\t": "\\t"})
_LONG_NUMBER = re.compile(f"[0-9]{{{MOST_DIGITS + 1}}}")
_FENCED = re.compile(r"```[A-Za-z0-9]{0,20}\s(.*)```", re.DOTALL)
_DEEPEST = 200
_MOST_QUOTES = 50_000  # respelling more strings would take too long


class CutOffError(ValueError):
    """The text is truncated; the missing part cannot be guessed."""


def parse_lenient(text: str, read: Callable[[str], Any] | None = None, *, words: bool = True) -> Any:
    r"""Return the value of almost valid JSON; raise :class:`CutOffError` if its end is missing.

    The content of a Markdown fence, or the object inside other text, is passed to ``read`` first, if given. Without
    ``words``, only a fence may surround the JSON.

    A number that is too long raises :class:`LongNumberError`, any other error is a :class:`ValueError`.

    >>> parse_lenient("```json\n{'city': 'Rome', 'now': True,}\n```")
    {'city': 'Rome', 'now': True}
    """
    import pyjson5

    inner = _extract_object(text) if words else _strip_fence(text)
    if read is not None and inner != text:
        try:
            return read(inner)
        except (ValueError, RecursionError):
            pass
    respelled = inner.count('"') + inner.count("'") < _MOST_QUOTES
    if respelled:
        inner = _TOKEN.sub(_respell, inner)
    try:
        return pyjson5.decode(inner, _DEEPEST)
    except pyjson5.Json5EOF as problem:
        if "Numeric" in str(problem) and _LONG_NUMBER.search(inner):
            raise LongNumberError from None
        if not respelled and any(map(inner.__contains__, "\n\r")):
            raise ValueError("not JSON") from None  # a line break also ends a string
        raise CutOffError from None
    except pyjson5.Json5Exception:
        raise ValueError("not JSON") from None


def _extract_object(text: str) -> str:
    """Return the object inside a Markdown fence or other text; fences inside the object are kept."""
    stripped = text.strip()
    if stripped[:1] in {"[", '"', "'"}:
        return stripped
    start, end = stripped.find("{"), stripped.rfind("}")
    if start < 0:
        return stripped
    return stripped[start : end + 1] if end > start else stripped[start:]


def _strip_fence(text: str) -> str:
    """Return the content of a Markdown fence; raise ValueError if there is text around it."""
    inner = _FENCED.fullmatch(text.strip())
    inside = text.strip() if inner is None else inner[1].strip()
    if inside[:1] not in {"{", "[", '"', "'"}:
        raise ValueError("not JSON")
    return inside


def _respell(token: re.Match[str]) -> str:
    """Return a token in JSON spelling: Python's constants, and line breaks inside strings."""
    found = token[0]
    if found in _PYTHON:
        return _PYTHON[found]
    return found.translate(_CONTROL)


def unambiguous_names(properties: Mapping[str, Any], among: Iterable[str] | None) -> dict[str, str]:
    """Return the declared names by their folded form, if only one name has that form.

    >>> unambiguous_names({"minScore": {}, "tag": {}, "TAG": {}}, None)
    {'minscore': 'minScore'}
    """
    forms = [fold_key(name) for name in properties]
    number = Counter(forms)
    wanted = properties.keys() if among is None else set(among)
    return {form: name for form, name in zip(forms, properties, strict=True) if number[form] == 1 and name in wanted}


def conflicting_keys(value: dict[str, Any], unknown: Mapping[str, str], wanted: Mapping[str, str]) -> set[str]:
    """Return the keys with different values for one declared name, so that none can be chosen."""
    keys_by_name: dict[str, list[str]] = {}
    for key, form in unknown.items():
        if form in wanted:
            keys_by_name.setdefault(wanted[form], [wanted[form]] if wanted[form] in value else []).append(key)
    conflicts = [
        keys for keys in keys_by_name.values() if not all(_is_same(value[keys[0]], value[key]) for key in keys)
    ]
    return set().union(*conflicts)


def _is_same(first: Any, second: Any) -> bool:
    """Return whether two JSON values are the same, also as text: in Python, True equals 1."""
    return first == second and json.dumps(first) == json.dumps(second)


def fold_key(key: str) -> str:
    """Return a key without case and separators: ``minScore``, ``min-score`` and ``min_score`` are equal.

    >>> fold_key("min-Score")
    'minscore'
    """
    return re.sub(r"[\W_]", "", key).casefold()


def has_same(inside: Any, key: str, value: Any) -> bool:
    """Return whether a value is an object that has a given value under a key.

    >>> has_same({"name": "z"}, "name", "z"), has_same({"count": 1}, "count", True)
    (True, False)
    """
    return isinstance(inside, dict) and key in inside and _is_same(inside[key], value)


STEPS: Final = frozenset({"text", "nested", "null", "coerce", "keys", "extra"})
"""All steps: text around JSON, JSON inside strings, null for a default, near types, near keys, extra keys."""

CAUTIOUS: Final = "cautious"
"""A pseudo-step for tools with irreversible effects: nothing is dropped, and no object becomes a string."""

_BUDGET = 5000
_BOOLEANS = {"true": True, "false": False}


class Repairs:
    """The repair of one value, with the changes made; the work is bounded for values of any size."""

    def __init__(self, schema: Mapping[str, Any], steps: frozenset[str], wrong: frozenset[str] | None = None) -> None:
        self.changes: list[dict[str, Any]] = []
        self._wrong = wrong
        self._root = schema
        self._steps = steps
        self._left = _BUDGET
        self._respelled = False

    @property
    def has_changed(self) -> bool:
        """Whether the value may have changed."""
        return bool(self.changes) or self._respelled

    def repair(self, value: Any, schema: Any, path: Path = ()) -> Any:
        """Return the value changed to fit the schema, as far as the intent is unambiguous."""
        self._left -= 1
        if self._left < 0 or not isinstance(schema, (dict, Mapping)):  # the check for a dict is much faster
            return value
        if _COMBINING.isdisjoint(schema):
            return self._repair_kind(value, schema, path)
        return self._repair_combined(value, self._resolve(schema), path)

    def _repair_combined(self, value: Any, schema: Mapping[str, Any], path: Path) -> Any:
        """Return the value changed to fit a combined schema, or a list of values."""
        options = schema.get("anyOf") or schema.get("oneOf")
        if options and "properties" not in schema:
            return self._repair_option(value, options, path)
        for part in schema.get("allOf", ()):
            value = self.repair(value, part, path)
        if (allowed := _find_allowed(schema)) is not None:
            value = self._repair_choice(value, allowed, schema, path)
        return self._repair_kind(value, schema, path)

    def _repair_kind(self, value: Any, schema: Mapping[str, Any], path: Path) -> Any:
        """Return the value changed to fit the type of a schema, and the schemas of its parts."""
        kinds = _kinds(schema)
        if (kind := json_type(value)) not in kinds or kind == "number":
            value = self._repair_type(value, kind, kinds, schema, path)
        if isinstance(value, dict) and ("object" in kinds or _OF_OBJECTS & schema.keys()):
            return self._repair_object(value, schema, path)
        if isinstance(value, list) and ("array" in kinds or "items" in schema):
            return self._repair_items(value, schema, path)
        return value

    def _resolve(self, schema: Mapping[str, Any]) -> Mapping[str, Any]:
        if "$ref" not in schema:
            return schema
        for _ in range(20):
            ref = schema.get("$ref")
            if not isinstance(ref, str) or not ref.startswith("#"):
                return schema
            siblings = {key: each for key, each in schema.items() if key != "$ref"}
            schema = {**find_ref_target(self._root, ref), **siblings}
        return schema

    def _repair_option(self, value: Any, options: list[Any], path: Path) -> Any:
        """Return the value changed to fit one of several schemas: one it fits, or the one with the fewest changes."""
        resolved = [self._resolve(option) for option in options if isinstance(option, Mapping)]
        if value is None or any(self._fits(value, option) for option in resolved):
            fitting = [option for option in resolved if self._fits(value, option)]
            return self.repair(value, fitting[0], path) if fitting else value
        best, least = value, None
        for option in resolved:
            before = len(self.changes)
            repaired = self.repair(value, option, path)
            changes = self.changes[before:]
            del self.changes[before:]
            if repaired is value or not self._fits(repaired, option):
                continue
            if (least is None or len(changes) < len(least)) and not _is_ambiguous(
                value, option, resolved, changes, path
            ):
                best, least = repaired, changes
        self.changes += least or ()
        return best

    def _fits(self, value: Any, schema: Mapping[str, Any]) -> bool:
        """Return whether a value has the types that a schema requires; True if the budget is used up."""
        self._left -= 1
        if self._left < 0:
            return True
        schema = self._resolve(schema)
        if options := schema.get("anyOf") or schema.get("oneOf"):
            return any(self._fits(value, option) for option in options if isinstance(option, Mapping))
        if (allowed := _find_allowed(schema)) is not None:
            self._left -= len(allowed) // _MANY_VALUES
            return _is_among(value, allowed)
        kinds = _kinds(schema)
        if kinds and json_type(value) not in kinds and not (json_type(value) == "integer" and "number" in kinds):
            return False
        if not isinstance(value, dict):
            return True
        properties = schema.get("properties", {})
        tags = {name: each for name, each in properties.items() if isinstance(each, Mapping) and "const" in each}
        closed = schema.get("additionalProperties") is False and "properties" in schema
        extra = schema.get("additionalProperties")
        inside = ((each, properties.get(name, extra)) for name, each in value.items())
        return (
            all(name in value for name in schema.get("required", ()))
            and all(value.get(name, each["const"]) == each["const"] for name, each in tags.items())
            and (not closed or all(name in properties for name in value))
            and all(self._fits(each, part) for each, part in inside if isinstance(part, Mapping))
        )

    def _repair_choice(self, value: Any, allowed: list[Any], schema: Mapping[str, Any], path: Path) -> Any:
        if "coerce" not in self._steps:
            return value
        self._left -= len(allowed) // _MANY_VALUES  # searching a long list also costs work
        if self._left < 0 or _is_among(value, allowed):
            return value
        if isinstance(value, str):
            plain = value.strip()
            exact = [each for each in allowed if plain == (each if isinstance(each, str) else json.dumps(each))]
            near = [each for each in allowed if isinstance(each, str) and each.casefold() == plain.casefold()]
            found = exact or near or _find_named(plain, schema)
            if exact or len(found) == 1:
                return self._record("coerce", path, value, found[0])
        return value

    def _repair_type(self, value: Any, kind: str, kinds: frozenset[str], schema: Mapping[str, Any], path: Path) -> Any:
        """Return a value of one kind converted to a declared kind, if that is unambiguous."""
        if kind == "number" and not math.isfinite(value):
            return self._respell(value)  # JSON cannot hold it, which is reported when it is written
        if value is None or not kinds or kind in kinds or (kind == "integer" and "number" in kinds):
            return value
        if kind == "number" and "integer" in kinds and value.is_integer():
            # The same number in another spelling is accepted even without repairs. If its last digits are unknown it
            # becomes text, which never validates: a validator would accept the rounded number.
            whole = to_integer(value)
            if whole is None:
                return self._respell(_to_text(value))
            return self._record("coerce", path, value, whole) if "coerce" in self._steps else self._respell(whole)
        if isinstance(value, str) and "string" not in kinds:
            return self._convert_text(value, kinds, schema, path)
        if "array" in kinds and "coerce" in self._steps and self._can_wrap(schema):
            return self._record("coerce", path, value, [value])
        cautious = CAUTIOUS in self._steps and isinstance(value, (dict, list))
        if "string" in kinds and "coerce" in self._steps and not cautious and _is_plain_text(value, schema):
            return self._record("coerce", path, value, _to_text(value))
        return value

    def _can_wrap(self, schema: Mapping[str, Any]) -> bool:
        """Return whether a value may be wrapped in a list; not for a list of lists, where the depth is unclear."""
        items = schema.get("items")
        return not isinstance(items, Mapping) or "array" not in _kinds(self._resolve(items))

    def _convert_text(self, text: str, kinds: frozenset[str], schema: Mapping[str, Any], path: Path) -> Any:
        if kinds & {"object", "array"} and text.lstrip()[:1] in {"{", "["}:
            try:
                parsed = _parse_nested(text) if "nested" in self._steps else None
            except CutOffError:
                return text
            if parsed is None and "nested" not in self._steps:
                return text
            if json_type(parsed) in kinds:
                return self._record("nested", path, text, parsed)
        if "coerce" not in self._steps:
            return text
        plain = text.strip()
        if kinds & {"number", "integer"}:
            number = parse_number(plain, whole="number" not in kinds)
            if number is not None:
                return self._record("coerce", path, text, number)
        if "boolean" in kinds and plain.casefold() in _BOOLEANS:
            return self._record("coerce", path, text, _BOOLEANS[plain.casefold()])
        if "array" in kinds and self._can_wrap(schema):
            return self._record("coerce", path, text, [text])
        return text

    def _repair_object(self, value: dict[str, Any], schema: Mapping[str, Any], path: Path) -> dict[str, Any]:
        properties, extra = schema.get("properties", {}), schema.get("additionalProperties")
        named, renamed = self._repair_keys(value, schema, path)
        repaired = dict(named)
        wrong = named.keys() if path or self._wrong is None else self._wrong | renamed
        for key in [key for key in named if key in wrong]:
            if self._left < 0:
                break
            each, inner = named[key], properties.get(key) or self._find_pattern_schema(key, schema) or extra
            if each is None and key in properties and self._is_default(key, properties[key], schema):
                self._record("null", (*path, key), None, properties[key].get("default"))
                del repaired[key]
            else:
                repaired[key] = self.repair(each, inner, (*path, key))
        return repaired

    def _fits_already(self, key: str, path: Path) -> bool:
        return not path and self._wrong is not None and key not in self._wrong

    def _is_default(self, key: str, schema: Any, parent: Mapping[str, Any]) -> bool:
        """Return whether null stands for the parameter's default."""
        optional = key not in parent.get("required", ())
        return "null" in self._steps and optional and not self._fits(None, schema)

    def _repair_keys(
        self, value: dict[str, Any], schema: Mapping[str, Any], path: Path
    ) -> tuple[dict[str, Any], set[str]]:
        """Return the value with declared names as keys, and the names that were spelled differently."""
        properties, extra = schema.get("properties", {}), schema.get("additionalProperties")
        renamed: set[str] = set()
        if value.keys() <= properties.keys():
            return value, renamed
        wanted = unambiguous_names(properties, None if extra is False else schema.get("required", ()))
        dropping = extra is False and "extra" in self._steps
        unknown = self._find_unknown_keys(value, schema, path)
        kept = conflicting_keys(value, unknown, wanted)
        named: dict[str, Any] = {}
        for key, each in value.items():
            form = unknown.get(key)
            declared = None if form is None or key in kept else wanted.get(form)
            if declared is not None and "keys" in self._steps and declared not in value and declared not in renamed:
                self._record("keys", (*path, declared), key, declared)
                named[declared] = each
                renamed.add(declared)
            elif dropping and form is not None and key not in kept and self._is_extra(key, value, schema):
                self._record("extra", (*path, key), each, None)
            else:
                named[key] = each
        return named, renamed

    def _find_unknown_keys(self, value: dict[str, Any], schema: Mapping[str, Any], path: Path) -> dict[str, str]:
        """Return the keys that are not declared, each in its folded form."""
        found: dict[str, str] = {}
        for key in value:
            if key in schema.get("properties", ()) or self._left < 0 or self._fits_already(key, path):
                continue
            self._left -= 1
            found[key] = fold_key(key)
        return found

    def _is_extra(self, key: str, value: dict[str, Any], schema: Mapping[str, Any]) -> bool:
        """Return whether a key belongs nowhere in an object; False if the budget is used up."""
        properties, required = schema.get("properties", {}), schema.get("required", ())
        self._left -= len(properties)
        # A flattened field: dropping it would replace its value by another. A missing parameter is reported.
        for name in (each for each in properties if self._left >= 0 and (each in value or each not in required)):
            if key in find_properties(self._root, properties[name]) and not has_same(value.get(name), key, value[key]):
                return False
        if not schema.get("patternProperties"):
            return True
        return self._find_pattern_schema(key, schema) is None and self._left >= 0

    def _find_pattern_schema(self, key: str, schema: Mapping[str, Any]) -> Any:
        """Return the schema of the first pattern that matches a key; None if there is none or the budget is used up."""
        patterns = schema.get("patternProperties")
        if not patterns:
            return None
        self._left -= len(patterns) - 1
        if self._left < 0:
            return None
        try:
            return next((each for pattern, each in patterns.items() if _compile_pattern(pattern).is_valid(key)), None)
        except UnicodeEncodeError:  # a lone surrogate, which is rejected elsewhere
            return None

    def _repair_items(self, value: list[Any], schema: Mapping[str, Any], path: Path) -> list[Any]:
        parts, rest = schema.get("prefixItems", ()), schema.get("items", {})
        if isinstance(rest, list):  # older drafts
            parts, rest = rest, schema.get("additionalItems", {})
        repaired: list[Any] = []
        for index, each in enumerate(value):
            if self._left < 0:
                return repaired + value[index:]
            repaired.append(self.repair(each, parts[index] if index < len(parts) else rest, (*path, index)))
        return repaired

    def _respell(self, after: Any) -> Any:
        self._respelled = True
        return after

    def _record(self, step: str, path: Path, before: Any, after: Any) -> Any:
        self.changes.append({"step": step, "path": format_path(path), "from": before, "to": after})
        return after


def _is_ambiguous(
    value: Any, option: Mapping[str, Any], options: list[Mapping[str, Any]], changes: list[dict[str, Any]], path: Path
) -> bool:
    """Return whether a repair drops a key that another option of the union has, and no tag names the option."""
    dropped = {change["path"] for change in changes if change["step"] == "extra"}
    if not dropped or not isinstance(value, dict):
        return False
    own: Mapping[str, Any] = option.get("properties", {})
    if any(name in value and isinstance(each, Mapping) and "const" in each for name, each in own.items()):
        return False
    elsewhere = {name for other in options if other is not option for name in other.get("properties", ())}
    return any(format_path((*path, key)) in dropped for key in value if key in elsewhere)


_MANY_VALUES = 100
_COMBINING = frozenset({"$ref", "anyOf", "oneOf", "allOf", "enum", "const"})
_OF_OBJECTS = {"properties", "patternProperties", "additionalProperties"}
_STRINGS_OF_A_KIND = {"enum", "const", "format", "pattern"}


def _to_text(value: Any) -> str:
    """Return a value as the JSON text it was parsed from."""
    if isinstance(value, WrittenFloat):
        return value.text
    return compact_json(value)


def _is_plain_text(value: Any, schema: Mapping[str, Any]) -> bool:
    """Return whether the schema accepts any text, and the value has an exact text."""
    return not _STRINGS_OF_A_KIND & schema.keys() and (not isinstance(value, float) or is_exact(value))


def _parse_nested(text: str) -> Any:
    """Return the value of JSON inside a string; None if it is not JSON."""
    try:
        return json.loads(text, parse_float=WrittenFloat)
    except (json.JSONDecodeError, RecursionError):
        pass
    except ValueError:
        raise LongNumberError from None
    try:
        return parse_lenient(text)
    except (CutOffError, LongNumberError):
        raise
    except ValueError:
        return None


def _is_among(value: Any, allowed: list[Any]) -> bool:
    # In Python, True equals 1; in JSON Schema, true and 1 differ.
    return any(value == each and isinstance(value, bool) == isinstance(each, bool) for each in allowed)


@lru_cache(maxsize=100)
def _compile_pattern(pattern: str) -> Any:
    # The validator's own engine: linear time, and the same results.
    import jsonschema_rs

    return jsonschema_rs.validator_for({"pattern": pattern}, pattern_options=jsonschema_rs.RegexOptions(), offline=True)


def _find_allowed(schema: Mapping[str, Any]) -> list[Any] | None:
    if "const" in schema:
        return [schema["const"]]
    allowed: list[Any] | None = schema.get("enum")
    return allowed


def _find_named(text: str, schema: Mapping[str, Any]) -> list[Any]:
    """Return the values of an enumeration whose name is a text: the exact match, or the matches that differ in case.

    >>> _find_named("Color.RED", {"enum": [1, 2], "x-enum-varnames": ["RED", "BLUE"]})
    [1]
    """
    names = find_member_names(schema)
    qualifier, _, last = text.rpartition(".")
    if qualifier.isidentifier():  # as Python displays a member
        text = last
    if text in names:
        return [names[text]]
    return [value for name, value in names.items() if name.casefold() == text.casefold()]


def _kinds(schema: Mapping[str, Any]) -> frozenset[str]:
    kinds = schema.get("type", ())
    return _ONE_KIND.get(kinds) or frozenset([kinds]) if isinstance(kinds, str) else frozenset(kinds)


_ONE_KIND = {kind: frozenset([kind]) for kind in TYPES}
