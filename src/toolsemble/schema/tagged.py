"""Choices between objects that a constant tells apart: read by that constant alone.

A validator that tries every option reads what is inside once for each of them. Where options contain each other, as
the expressions of a search do, that doubles with every level, and a few hundred characters would keep it busy for ever.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from toolsemble.schema.core import rewrite
from toolsemble.schema.pointer import find_ref_target

Tags: TypeAlias = Mapping[str, list[str]]
"""The constants that an option insists on, by the names of their fields."""

_DEEPEST = 20
_UNTOUCHED = {"type", "choices", "ref", "metadata", "serialization"}
_NO_SCHEMAS = {"enum", "const", "default", "examples", "example"}


def tag_core(core: Any) -> Any:
    """Give a core schema of pydantic in which such choices go by their constants."""
    known: dict[str, Any] = {}

    def note(node: dict[str, Any]) -> dict[str, Any]:
        known.update({node["ref"]: node} if "ref" in node else {})
        return node

    rewrite(core, note)
    return rewrite(core, lambda node: tag_choice(node, known))


def tag_choice(node: dict[str, Any], known: Mapping[str, Any]) -> dict[str, Any]:
    """Give one node of a core schema, going by constants if it is such a choice; references are to what is known."""
    choices = node.get("choices")
    if node.get("type") != "union" or not isinstance(choices, list) or not node.keys() <= _UNTOUCHED:
        return node

    def by(key: str, options: Mapping[str, Any]) -> Any:
        return {"type": "tagged-union", "discriminator": key, "choices": dict(options)}

    options = [each[0] if isinstance(each, tuple) else each for each in choices]  # without their labels
    grouped = _group(options, [_core_tags(each, known) for each in options], by)
    if not grouped:
        return node
    return {**node, **grouped[0]} if len(grouped) == 1 else {**node, "choices": grouped}


def tag_schema(root: Mapping[str, Any]) -> dict[str, Any]:
    """Give a JSON Schema that admits the same, in which such choices go by their constants.

    >>> cat, dog = ({"type": "object", "properties": {"kind": {"const": name}}, "required": ["kind"]} for name in "cd")
    >>> tag_schema({"anyOf": [cat, dog]})["allOf"][0]["properties"]
    {'kind': {'enum': ['c', 'd']}}
    """
    made: dict[str, Any] = _schema_node(root, root)
    return made


def _core_tags(node: Any, known: Mapping[str, Any]) -> Tags:
    """Give the constants of what is, in the end, an object with fields."""
    kind = node["type"]
    if kind == "definition-ref":
        return _core_tags(known[node["schema_ref"]], known)
    if kind == "json-or-python":
        return _core_tags(node["json_schema"], known)
    if kind in {"function-after", "model", "dataclass"}:
        return _core_tags(node["schema"], known)
    return _core_constants(node["fields"]) if kind in {"typed-dict", "model-fields", "dataclass-args"} else {}


def _core_constants(fields: Any) -> Tags:
    named = fields.items() if isinstance(fields, dict) else ((each["name"], each) for each in fields)
    found = {}
    for name, each in named:
        ours = each["type"] == "typed-dict-field"  # a model may take a field by another name than its alias
        alias = each.get("validation_alias", name) if ours or "validation_alias" not in each else None
        if alias and each.get("required", not ours) and each["schema"]["type"] == "literal":
            found[alias] = list(each["schema"]["expected"])
    return found


def _schema_node(node: Any, root: Mapping[str, Any]) -> Any:
    if isinstance(node, list):
        return [_schema_node(each, root) for each in node]
    if not isinstance(node, Mapping):
        return node
    made = {key: value if key in _NO_SCHEMAS else _schema_node(value, root) for key, value in node.items()}
    for keyword in ("anyOf", "oneOf"):
        if isinstance(options := node.get(keyword), list):
            grouped = _group(made[keyword], [_schema_tags(each, root) for each in options], _conditions)
            made[keyword] = grouped or made[keyword]
            if len(grouped) == 1:
                del made[keyword]
                made["allOf"] = [*made.get("allOf", ()), *grouped]
    return made


def _schema_tags(node: Any, root: Mapping[str, Any]) -> Tags:
    for _ in range(_DEEPEST):
        if not isinstance(node, Mapping) or "$ref" not in node:
            break
        node = find_ref_target(root, str(node["$ref"]))
    if not isinstance(node, Mapping) or node.get("type") != "object":
        return {}
    properties, required = node.get("properties", {}), set(node.get("required", ()))
    constants = {name: each for name, each in properties.items() if isinstance(each, Mapping) and name in required}
    return {
        name: [each["const"]] if "const" in each else each["enum"]
        for name, each in constants.items()
        if "const" in each or "enum" in each
    }


def _conditions(key: str, options: Mapping[str, Any]) -> Any:
    """Give a schema by which the constant says what else is to fit."""
    return {
        "type": "object",
        "properties": {key: {"enum": list(options)}},
        "required": [key],
        "allOf": [
            {"if": {"properties": {key: {"const": tag}}, "required": [key]}, "then": each}
            for tag, each in options.items()
        ],
    }


def _group(options: Sequence[Any], tags: Sequence[Tags], made: Callable[[str, Mapping[str, Any]], Any]) -> list[Any]:
    """Give the options with those that a constant tells apart made into one; none when nothing is to be done."""
    for key in dict.fromkeys(name for each in tags for name in each):
        having = [index for index, each in enumerate(tags) if key in each]
        values = [value for index in having for value in tags[index][key]]
        plain = all(type(value) is str for value in values)
        if len(having) > 1 and plain and len(set(values)) == len(values):
            group = made(key, {value: options[index] for index in having for value in tags[index][key]})
            return [group, *(each for index, each in enumerate(options) if index not in having)]
    return []
