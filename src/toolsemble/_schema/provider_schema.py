"""Convert any JSON Schema to the portable subset that every provider accepts.

Keywords outside the subset are moved into the description; validation still enforces them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

from toolsemble._schema import argument_problems as problem
from toolsemble._vocabulary.serialization import json_type
from toolsemble._vocabulary.specification import Note

Schema: TypeAlias = Mapping[str, Any]

DEPTH = 3
"""The number of times a recursive type is expanded before the schema is left open."""

_LARGEST = 5000
_DEEPEST = 100
_MOST_VALUES = 100
_KEPT = ("type", "description", "enum", "properties", "required", "items", "anyOf", "additionalProperties", "default")
_MOVED = (
    "format", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minLength", "maxLength",
    "pattern", "minItems", "maxItems", "uniqueItems", "minProperties", "maxProperties", "contentEncoding",
    "contentMediaType", "examples", problem.MEMBER_NAMES,
)  # fmt: skip
_BOUNDS = tuple(each for each in _MOVED if each not in {"examples", problem.MEMBER_NAMES})
_STRUCTURE = {
    "$ref", "$defs", "definitions", "title", "$schema", "$id", "$comment", "const", "oneOf", "allOf", "prefixItems",
    "discriminator", "nullable",
}  # fmt: skip


def make_portable(schema: Schema, *, bounds: bool = False) -> tuple[dict[str, Any], list[Note]]:
    """Return the schema in the portable subset, and a note for every keyword that was moved, rewritten or dropped.

    :param bounds: whether bounds, patterns and formats also stay as keywords, for readers that check them

    >>> make_portable({"type": "integer", "minimum": 1, "maximum": 7})[0]
    {'type': 'integer', 'description': 'between 1 and 7'}
    >>> make_portable({"type": "integer", "minimum": 1}, bounds=True)[0]
    {'type': 'integer', 'description': 'at least 1', 'minimum': 1}
    """
    notes: list[Note] = []
    written = _Writer(schema, notes, _BOUNDS if bounds else ()).write(schema, "$", ())
    return written, list(dict.fromkeys(notes))


class _Writer:
    """The conversion of one schema, with its notes and limits."""

    def __init__(self, root: Schema, notes: list[Note], further: tuple[str, ...]) -> None:
        self._root = root
        self._further = further
        self._notes = notes
        self._left = _LARGEST
        self._depth = 0

    def write(self, schema: Any, path: str, above: tuple[str, ...]) -> dict[str, Any]:
        self._left -= 1
        if not isinstance(schema, Mapping) or self._left < -_LARGEST:
            return {}  # true or false, which are not in the subset
        if self._depth >= _DEEPEST:
            self._note(path, "$ref" if "$ref" in schema else "properties", "dropped", f"more than {_DEEPEST} levels")
            return {}
        self._depth += 1
        written = self._write(schema, path, above)
        self._depth -= 1
        return written

    def _write(self, schema: Schema, path: str, above: tuple[str, ...]) -> dict[str, Any]:
        if "$ref" in schema:
            return self._write_reference(schema, path, above)
        if "allOf" in schema:
            refs = [part["$ref"] for part in schema["allOf"] if isinstance(part, Mapping) and "$ref" in part]
            deep = len(above) - len(set(above)) >= DEPTH - 1 and any(ref in above for ref in refs)
            return self.write(self._merge_all_of(schema, path, deep=deep), path, (*above, *refs))
        words: list[str] = []
        written = self._write_shape(schema, path, above, words)
        self._move_keywords(schema, path, words)
        description = _append_words(schema.get("description", ""), words)
        made = _order_keywords({**written, **({"description": description} if description else {})})
        return made | {keyword: schema[keyword] for keyword in self._further if keyword in schema}

    def _write_reference(self, schema: Schema, path: str, above: tuple[str, ...]) -> dict[str, Any]:
        """Write the target of a reference; below the maximum depth, accept anything."""
        ref = schema["$ref"]
        target = problem.find_ref_target(self._root, ref)
        siblings = {key: value for key, value in schema.items() if key != "$ref"}
        repeated = len(above) - len(set(above))
        if self._left < 0 or (ref in above and repeated >= DEPTH - 1):
            self._note(path, "$ref", "dropped", f"nested more than {DEPTH} deep")
            kind = {"type": target["type"]} if isinstance(target.get("type"), str) else {}
            return _order_keywords(
                {**kind, "description": _append_words(siblings.get("description", ""), ["and so on, as above"])}
            )
        if ref in above:
            self._note(path, "$ref", "rewritten", "written out")
        return self.write({**target, **siblings}, path, (*above, ref))

    def _merge_all_of(self, schema: Schema, path: str, *, deep: bool) -> dict[str, Any]:
        """Return one schema that merges all parts of ``allOf``; if ``deep``, without references."""
        self._note(path, "allOf", "rewritten", "merged")
        merged: dict[str, Any] = {}
        parts = [part for part in schema["allOf"] if isinstance(part, Mapping) and not (deep and "$ref" in part)]
        for part in (*parts, {key: value for key, value in schema.items() if key != "allOf"}):
            target = {**problem.find_ref_target(self._root, part["$ref"]), **part} if "$ref" in part else dict(part)
            target.pop("$ref", None)
            merged.update(
                {key: _merge_keyword(key, merged[key], each) if key in merged else each for key, each in target.items()}
            )
        return merged

    def _write_shape(self, schema: Schema, path: str, above: tuple[str, ...], words: list[str]) -> dict[str, Any]:
        """Write all keywords except the description."""
        options = schema.get("anyOf") or schema.get("oneOf")
        if options and "properties" in schema:
            self._describe_alternatives(options, path, words)
        elif options:
            if "oneOf" in schema:
                self._note(path, "oneOf", "rewritten", "anyOf")
            return self._add_default(schema, {"anyOf": self._write_options(options, path, above)})
        kinds = schema.get("type")
        if isinstance(kinds, list):
            self._note(path, "type", "rewritten", "anyOf")
            options = self._write_options(self._split_by_type(kinds, schema, path), path, above)
            return self._add_default(schema, options[0] if len(options) == 1 else {"anyOf": options})
        if values := self._find_values(schema, path, words):
            written = _write_enum(values, kinds)
            if kinds == "array" and "items" in schema:
                written["items"] = self._write_items(schema, path, above, words)
            return self._add_default(schema, written)
        written = {"type": kinds} if kinds else {}
        if kinds == "array" or (not kinds and schema.keys() & {"items", "prefixItems"}):
            written |= {"type": "array", "items": self._write_items(schema, path, above, words)}
        if kinds == "object" or (not kinds and "properties" in schema):
            written |= {"type": "object"} | self._write_object(schema, path, above)
        return self._add_default(schema, written)

    def _describe_alternatives(self, options: Iterable[Any], path: str, words: list[str]) -> None:
        """Describe options that only require different parameters; other options are enforced but not described."""
        names = [", ".join(option.get("required", ())) for option in options if isinstance(option, Mapping)]
        phrase = f"give {' or '.join(filter(None, names))}" if any(names) else ""
        words += [phrase] if phrase else []
        self._note(path, "anyOf", "moved" if phrase else "dropped", phrase)

    def _write_options(self, options: Iterable[Any], path: str, above: tuple[str, ...]) -> list[dict[str, Any]]:
        written: dict[str, dict[str, Any]] = {}
        for option in options:
            each = self.write(option, path, above)
            for flat in each["anyOf"] if set(each) == {"anyOf"} else [each]:
                written.setdefault(json.dumps(flat, sort_keys=True, default=str), flat)
        return list(written.values())

    def _find_values(self, schema: Schema, path: str, words: list[str]) -> list[Any]:
        """Return the allowed values of the declared type; describe them if no value has that type."""
        if "const" in schema:
            self._note(path, "const", "rewritten", "enum")
        values, kind = _listed_values(schema), schema.get("type")
        kinds = [kind] if isinstance(kind, str) else []
        fitting = self._select_values(values, kinds, path)
        if values and not fitting:
            words.append(f"one of {', '.join(map(problem.format_value, values[:_MOST_VALUES]))}")
            self._note(path, "enum", "moved", f"{words[-1]}; none is of type {kind}, so no value fits")
        return fitting

    def _select_values(self, values: list[Any], kinds: list[str], path: str) -> list[Any]:
        """Return the values of the given types; all values if no types are given."""
        fitting = [value for value in values if not kinds or any(problem.has_json_type(value, kind) for kind in kinds)]
        if 0 < len(fitting) < len(values):
            others = [value for value in values if not any(problem.has_json_type(value, kind) for kind in kinds)]
            listed = ", ".join(map(problem.format_value, others[:_MOST_VALUES]))
            self._note(path, "enum", "rewritten", f"without {listed}, not of type {' or '.join(kinds)}")
        return fitting

    def _split_by_type(self, kinds: list[str], schema: Schema, path: str) -> list[dict[str, Any]]:
        """Return a schema with several types as one schema for each type, with the allowed values of that type."""
        shared = {key: value for key, value in schema.items() if key not in {"description", "default"}}
        fitting = self._select_values(_listed_values(schema), kinds, path)
        if not fitting:
            return [shared | {"type": kind} for kind in kinds]
        shared.pop("const", None)
        by_type = {kind: [value for value in fitting if problem.has_json_type(value, kind)] for kind in kinds}
        return [shared | {"type": kind, "enum": values} for kind, values in by_type.items() if values]

    def _write_items(self, schema: Schema, path: str, above: tuple[str, ...], words: list[str]) -> dict[str, Any]:
        parts, rest = schema.get("prefixItems"), schema.get("items", {})
        if isinstance(rest, list):  # older drafts
            parts, rest = rest, schema.get("additionalItems", {})
        if not parts:
            return self.write(rest, f"{path}[]", above)
        self._note(path, "prefixItems", "moved")
        rest = [rest] if isinstance(rest, Mapping) and rest else []
        written = self._write_options([*parts, *rest], f"{path}[]", above)
        words.append("in this order: " + ", ".join(_describe(self.write(part, path, above)) for part in parts))
        return written[0] if len(written) == 1 else {"anyOf": written}

    def _write_object(self, schema: Schema, path: str, above: tuple[str, ...]) -> dict[str, Any]:
        written: dict[str, Any] = {}
        named, required = schema.get("properties", {}), schema.get("required", ())
        unnamed = [name for name in required if name not in named]
        if named or unnamed or "properties" in schema:
            written["properties"] = {name: self.write(each, f"{path}.{name}", above) for name, each in named.items()}
            written["properties"] |= {name: self._write_undeclared(name, schema, path, above) for name in unnamed}
            names = set(required)
            if required := [name for name in written["properties"] if name in names]:
                written["required"] = required
        extra = schema.get("additionalProperties")
        if isinstance(extra, Mapping):
            written["additionalProperties"] = self.write(extra, f"{path}.*", above)
        elif extra is not None:
            written["additionalProperties"] = extra
        return written

    def _write_undeclared(self, name: str, schema: Schema, path: str, above: tuple[str, ...]) -> dict[str, Any]:
        """Write a key that is required but not declared, so that the model knows about it."""
        self._note(path, "required", "rewritten", f"{name} is a property")
        return self.write(schema.get("additionalProperties"), f"{path}.{name}", above)

    def _add_default(self, schema: Schema, written: dict[str, Any]) -> dict[str, Any]:
        has_default = "default" in schema and _is_sendable(schema["default"])
        return {**written, "default": schema["default"]} if has_default else written

    def _move_keywords(self, schema: Schema, path: str, words: list[str]) -> None:
        for keyword in _MOVED:
            if keyword in schema:
                phrase = problem.describe_constraint(schema, keyword)
                words += [phrase] if phrase and phrase not in words else []
                if keyword not in self._further:
                    self._note(path, keyword, "moved", phrase)
        for keyword in schema:
            if keyword not in _KEPT and keyword not in _MOVED and keyword not in _STRUCTURE:
                self._note(path, keyword, "dropped")

    def _note(self, path: str, keyword: str, action: Any, detail: str = "") -> None:
        self._notes.append(Note(path, keyword, action, detail))


def _is_sendable(value: object) -> bool:
    """Return whether a default can be sent to a provider: finite numbers, and no lone surrogates."""
    try:
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except ValueError:
        return False
    return True


def _listed_values(schema: Schema) -> list[Any]:
    """Return the values that a schema allows; empty if it lists none."""
    values: list[Any] = [schema["const"]] if "const" in schema else schema.get("enum", [])
    return values


def _merge_keyword(keyword: str, first: Any, second: Any) -> Any:
    """Return a keyword value that satisfies both of two schemas."""
    if keyword == "properties":
        return {**first, **second}
    if keyword == "required":
        return list(dict.fromkeys([*first, *second]))
    if keyword == "enum":
        known = {json.dumps(value, sort_keys=True, default=str) for value in first}
        return [value for value in second if json.dumps(value, sort_keys=True, default=str) in known]
    return second


def _write_enum(values: list[Any], kind: Any) -> dict[str, Any]:
    """Write allowed values; values of several types as one option for each type."""
    by_type: dict[str, dict[str, Any]] = {}
    for value in values:
        each = int(value) if kind == "integer" and isinstance(value, float) else value
        alike = by_type.setdefault(kind if isinstance(kind, str) else json_type(value), {})
        alike.setdefault(each if isinstance(each, str) else json.dumps(each, sort_keys=True, default=str), each)
    written = [_write_typed_enum(kind, list(each.values())) for kind, each in by_type.items()]
    return written[0] if len(written) == 1 else {"anyOf": written}


def _write_typed_enum(kind: str, values: list[Any]) -> dict[str, Any]:
    return {"type": "null"} if kind == "null" else {"type": kind, "enum": values}


def _describe(schema: Schema) -> str:
    """Return a short description of a schema."""
    if "enum" in schema:
        return problem.format_choices(schema["enum"])
    if "anyOf" in schema:
        return " or ".join(_describe(option) for option in schema["anyOf"])
    return str(schema.get("description") or schema.get("type", "anything"))


def _append_words(description: str, words: list[str]) -> str:
    """Return a description with words appended.

    >>> _append_words("The day.", ["a date, YYYY-MM-DD"])
    'The day. (a date, YYYY-MM-DD)'
    """
    added = "; ".join(words)
    return f"{description} ({added})" if description and added else description or added


def _order_keywords(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the keywords in a fixed order, so that the text is the same in every process."""
    return {keyword: schema[keyword] for keyword in _KEPT if keyword in schema}
