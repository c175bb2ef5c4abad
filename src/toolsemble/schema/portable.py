"""Any JSON Schema to the portable subset that every provider accepts.

What the subset cannot say is moved into the description in short words; validation still enforces it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from toolsemble.note import Note
from toolsemble.schema.phrases import constraint, is_of, json_type, one_of, shown
from toolsemble.schema.pointer import pointed

DEPTH = 3
"""How often a type that contains itself is written out before the schema is open."""

_LARGEST = 5000
_DEEPEST = 100
_MOST_VALUES = 100
_KEPT = ("type", "description", "enum", "properties", "required", "items", "anyOf", "additionalProperties", "default")
_MOVED = (
    "format", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minLength", "maxLength",
    "pattern", "minItems", "maxItems", "uniqueItems", "minProperties", "maxProperties", "contentEncoding",
    "contentMediaType", "examples",
)  # fmt: skip
_STRUCTURE = {
    "$ref", "$defs", "definitions", "title", "$schema", "$id", "$comment", "const", "oneOf", "allOf", "prefixItems",
    "discriminator", "nullable",
}  # fmt: skip


def portable(schema: Mapping[str, Any]) -> tuple[dict[str, Any], list[Note]]:
    """Give the schema in the portable subset, and a note for every keyword that was moved, rewritten or dropped.

    >>> portable({"type": "integer", "minimum": 1, "maximum": 7})[0]
    {'type': 'integer', 'description': 'between 1 and 7'}
    """
    notes: list[Note] = []
    written = _Writer(schema, notes).write(schema, "$", ())
    return written, list(dict.fromkeys(notes))


class _Writer:
    """Writes one schema; holds what the whole walk needs."""

    def __init__(self, root: Mapping[str, Any], notes: list[Note]) -> None:
        self._root = root
        self._notes = notes
        self._left = _LARGEST
        self._depth = 0

    def write(self, schema: Any, path: str, above: tuple[str, ...]) -> dict[str, Any]:
        self._left -= 1
        if not isinstance(schema, Mapping) or self._left < -_LARGEST:
            return {}  # true, or false: nothing that a model could be told
        if self._depth >= _DEEPEST:
            self._note(path, "$ref" if "$ref" in schema else "properties", "dropped", f"more than {_DEEPEST} levels")
            return {}
        self._depth += 1
        written = self._write(schema, path, above)
        self._depth -= 1
        return written

    def _write(self, schema: Mapping[str, Any], path: str, above: tuple[str, ...]) -> dict[str, Any]:
        if "$ref" in schema:
            return self._referred(schema, path, above)
        if "allOf" in schema:
            refs = [part["$ref"] for part in schema["allOf"] if isinstance(part, Mapping) and "$ref" in part]
            deep = len(above) - len(set(above)) >= DEPTH - 1 and any(ref in above for ref in refs)
            return self.write(self._merged(schema, path, deep=deep), path, (*above, *refs))
        words: list[str] = []
        written = self._shape(schema, path, above, words)
        self._move(schema, path, words)
        description = _sentence(schema.get("description", ""), words)
        return _ordered({**written, **({"description": description} if description else {})})

    def _referred(self, schema: Mapping[str, Any], path: str, above: tuple[str, ...]) -> dict[str, Any]:
        """Write what a reference stands for, to a depth; below it, anything goes."""
        ref = schema["$ref"]
        target = pointed(self._root, ref)
        siblings = {key: value for key, value in schema.items() if key != "$ref"}
        repeated = len(above) - len(set(above))
        if self._left < 0 or (ref in above and repeated >= DEPTH - 1):
            self._note(path, "$ref", "dropped", f"nested more than {DEPTH} deep")
            kind = {"type": target["type"]} if isinstance(target.get("type"), str) else {}
            return _ordered(
                {**kind, "description": _sentence(siblings.get("description", ""), ["and so on, as above"])}
            )
        if ref in above:
            self._note(path, "$ref", "rewritten", "written out")
        return self.write({**target, **siblings}, path, (*above, ref))

    def _merged(self, schema: Mapping[str, Any], path: str, *, deep: bool) -> dict[str, Any]:
        """Give one schema that says what all of several say; without references where it is deep enough."""
        self._note(path, "allOf", "rewritten", "merged")
        merged: dict[str, Any] = {}
        parts = [part for part in schema["allOf"] if isinstance(part, Mapping) and not (deep and "$ref" in part)]
        for part in (*parts, {key: value for key, value in schema.items() if key != "allOf"}):
            target = {**pointed(self._root, part["$ref"]), **part} if "$ref" in part else dict(part)
            target.pop("$ref", None)
            merged.update(
                {key: _both(key, merged[key], each) if key in merged else each for key, each in target.items()}
            )
        return merged

    def _shape(self, schema: Mapping[str, Any], path: str, above: tuple[str, ...], words: list[str]) -> dict[str, Any]:
        """Write everything but the description."""
        options = schema.get("anyOf") or schema.get("oneOf")
        if options and "properties" in schema:
            self._alternatives(options, path, words)
        elif options:
            if "oneOf" in schema:
                self._note(path, "oneOf", "rewritten", "anyOf")
            return self._default(schema, {"anyOf": self._options(options, path, above)})
        kinds = schema.get("type")
        if isinstance(kinds, list):
            self._note(path, "type", "rewritten", "anyOf")
            options = self._options(self._by_type(kinds, schema, path), path, above)
            return self._default(schema, options[0] if len(options) == 1 else {"anyOf": options})
        if values := self._values(schema, path, words):
            items = {"items": self._items(schema, path, above, words)} if kinds == "array" and "items" in schema else {}
            return self._default(schema, _choice(values, kinds) | items)
        written: dict[str, Any] = {"type": kinds} if kinds else {}
        if kinds == "array" or (not kinds and schema.keys() & {"items", "prefixItems"}):
            written |= {"type": "array", "items": self._items(schema, path, above, words)}
        if kinds == "object" or (not kinds and "properties" in schema):
            written |= {"type": "object"} | self._object(schema, path, above)
        return self._default(schema, written)

    def _alternatives(self, options: Iterable[Any], path: str, words: list[str]) -> None:
        """Put options that only ask for different parameters into words; others are enforced without being told."""
        asked = [", ".join(option.get("required", ())) for option in options if isinstance(option, Mapping)]
        said = f"give {' or '.join(filter(None, asked))}" if any(asked) else ""
        words += [said] if said else []
        self._note(path, "anyOf", "moved" if said else "dropped", said)

    def _options(self, options: Iterable[Any], path: str, above: tuple[str, ...]) -> list[dict[str, Any]]:
        written: dict[str, dict[str, Any]] = {}
        for option in options:
            each = self.write(option, path, above)
            for flat in each["anyOf"] if set(each) == {"anyOf"} else [each]:
                written.setdefault(json.dumps(flat, sort_keys=True, default=str), flat)
        return list(written.values())

    def _values(self, schema: Mapping[str, Any], path: str, words: list[str]) -> list[Any]:
        """Return the allowed values that are of the declared type; put them into words where none is."""
        if "const" in schema:
            self._note(path, "const", "rewritten", "enum")
        values, kind = _allowed(schema), schema.get("type")
        kinds = [kind] if isinstance(kind, str) else []
        fitting = self._fitting(values, kinds, path)
        if values and not fitting:
            words.append(f"one of {', '.join(map(shown, values[:_MOST_VALUES]))}")
            self._note(path, "enum", "moved", f"{words[-1]}; none is of type {kind}, so no value fits")
        return fitting

    def _fitting(self, values: list[Any], kinds: list[str], path: str) -> list[Any]:
        """Return the values that are of one of several types; all where there are no types."""
        fitting = [value for value in values if not kinds or any(is_of(value, kind) for kind in kinds)]
        if 0 < len(fitting) < len(values):
            others = [shown(value) for value in values if not any(is_of(value, kind) for kind in kinds)][:_MOST_VALUES]
            self._note(path, "enum", "rewritten", f"without {', '.join(others)}, not of type {' or '.join(kinds)}")
        return fitting

    def _by_type(self, kinds: list[str], schema: Mapping[str, Any], path: str) -> list[dict[str, Any]]:
        """Return a schema of several types as one of each type, with the allowed values that are of it."""
        shared = {key: value for key, value in schema.items() if key not in {"description", "default"}}
        fitting = self._fitting(_allowed(schema), kinds, path)
        if not fitting:
            return [shared | {"type": kind} for kind in kinds]
        shared.pop("const", None)
        by_type = {kind: [value for value in fitting if is_of(value, kind)] for kind in kinds}
        return [shared | {"type": kind, "enum": values} for kind, values in by_type.items() if values]

    def _items(self, schema: Mapping[str, Any], path: str, above: tuple[str, ...], words: list[str]) -> dict[str, Any]:
        parts, rest = schema.get("prefixItems"), schema.get("items", {})
        if isinstance(rest, list):  # as older drafts spell it
            parts, rest = rest, schema.get("additionalItems", {})
        if not parts:
            return self.write(rest, f"{path}[]", above)
        self._note(path, "prefixItems", "moved")
        rest = [rest] if isinstance(rest, Mapping) and rest else []
        written = self._options([*parts, *rest], f"{path}[]", above)
        words.append("in this order: " + ", ".join(_named(self.write(part, path, above)) for part in parts))
        return written[0] if len(written) == 1 else {"anyOf": written}

    def _object(self, schema: Mapping[str, Any], path: str, above: tuple[str, ...]) -> dict[str, Any]:
        written: dict[str, Any] = {}
        named, required = schema.get("properties", {}), schema.get("required", ())
        unnamed = [name for name in required if name not in named]
        if named or unnamed or "properties" in schema:
            written["properties"] = {name: self.write(each, f"{path}.{name}", above) for name, each in named.items()}
            written["properties"] |= {name: self._unnamed(name, schema, path, above) for name in unnamed}
            asked = set(required)
            if required := [name for name in written["properties"] if name in asked]:
                written["required"] = required
        extra = schema.get("additionalProperties")
        if isinstance(extra, Mapping):
            written["additionalProperties"] = self.write(extra, f"{path}.*", above)
        elif extra is not None:
            written["additionalProperties"] = extra
        return written

    def _unnamed(self, name: str, schema: Mapping[str, Any], path: str, above: tuple[str, ...]) -> dict[str, Any]:
        """Write a key that is required, and of which nothing else is said: a model has to know of it."""
        self._note(path, "required", "rewritten", f"{name} is a property")
        return self.write(schema.get("additionalProperties"), f"{path}.{name}", above)

    def _default(self, schema: Mapping[str, Any], written: dict[str, Any]) -> dict[str, Any]:
        return (
            {**written, "default": schema["default"]}
            if "default" in schema and _sendable(schema["default"])
            else written
        )

    def _move(self, schema: Mapping[str, Any], path: str, words: list[str]) -> None:
        for keyword in _MOVED:
            if keyword in schema:
                said = constraint(schema, keyword)
                words += [said] if said and said not in words else []
                self._note(path, keyword, "moved", said)
        for keyword in schema:
            if keyword not in _KEPT and keyword not in _MOVED and keyword not in _STRUCTURE:
                self._note(path, keyword, "dropped")

    def _note(self, path: str, keyword: str, action: Any, detail: str = "") -> None:
        self._notes.append(Note(path, keyword, action, detail))


def _sendable(value: object) -> bool:
    """Whether a provider can be told a default: JSON has no infinity, and UTF-8 no half characters."""
    try:
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except ValueError:
        return False
    return True


def _allowed(schema: Mapping[str, Any]) -> list[Any]:
    """Return the values that a schema lists; none when it lists none."""
    values: list[Any] = [schema["const"]] if "const" in schema else schema.get("enum", [])
    return values


def _both(keyword: str, first: Any, second: Any) -> Any:
    """Return what a keyword says that stands in two schemas which both have to fit."""
    if keyword == "properties":
        return {**first, **second}
    if keyword == "required":
        return list(dict.fromkeys([*first, *second]))
    if keyword == "enum":
        known = {json.dumps(value, sort_keys=True, default=str) for value in first}
        return [value for value in second if json.dumps(value, sort_keys=True, default=str) in known]
    return second


def _choice(values: list[Any], kind: Any) -> dict[str, Any]:
    """Write allowed values; of several types, as options of one type each."""
    by_type: dict[str, dict[str, Any]] = {}
    for value in values:
        each = int(value) if kind == "integer" and isinstance(value, float) else value
        alike = by_type.setdefault(kind if isinstance(kind, str) else json_type(value), {})
        alike.setdefault(each if isinstance(each, str) else json.dumps(each, sort_keys=True, default=str), each)
    written = [_typed_choice(kind, list(each.values())) for kind, each in by_type.items()]
    return written[0] if len(written) == 1 else {"anyOf": written}


def _typed_choice(kind: str, values: list[Any]) -> dict[str, Any]:
    return {"type": "null"} if kind == "null" else {"type": kind, "enum": values}


def _named(schema: Mapping[str, Any]) -> str:
    """Give a short name of what a schema asks for."""
    if "enum" in schema:
        return one_of(schema["enum"])
    if "anyOf" in schema:
        return " or ".join(_named(option) for option in schema["anyOf"])
    return str(schema.get("description") or schema.get("type", "anything"))


def _sentence(description: str, words: list[str]) -> str:
    """Give a description with words after it.

    >>> _sentence("The day.", ["a date, YYYY-MM-DD"])
    'The day. (a date, YYYY-MM-DD)'
    """
    said = "; ".join(words)
    return f"{description} ({said})" if description and said else description or said


def _ordered(schema: dict[str, Any]) -> dict[str, Any]:
    """Give the keywords in one order, so that the text is the same in every process."""
    return {keyword: schema[keyword] for keyword in _KEPT if keyword in schema}
