"""Rewrite choices between objects with different constants, so that the constant selects the option.

A validator that tries every option validates the content once for each. If options contain each other, as in search
expressions, that doubles with every level, and a few hundred characters can take forever.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from toolsemble._schema.core_schema import rewrite
from toolsemble._schema.pointer import find_ref_target

Tags: TypeAlias = Mapping[str, list[str]]
"""The constants that an option requires, by field name."""

_DEEPEST = 20
_UNTOUCHED = {"type", "choices", "ref", "metadata", "serialization"}
_NO_SCHEMAS = {"enum", "const", "default", "examples", "example"}


def tag_core(core: Any) -> Any:
    """Return a core schema in which constants select the options of choices."""
    known: dict[str, Any] = {}

    def note(node: dict[str, Any]) -> dict[str, Any]:
        known.update({node["ref"]: node} if "ref" in node else {})
        return node

    rewrite(core, note)
    return rewrite(core, lambda node: tag_choice(node, known))


def tag_choice(node: dict[str, Any], known: Mapping[str, Any]) -> dict[str, Any]:
    """Return one node of a core schema as a tagged union, if constants tell its options apart."""
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
    """Return an equivalent JSON Schema in which constants select the options of choices.

    >>> cat, dog = ({"type": "object", "properties": {"kind": {"const": name}}, "required": ["kind"]} for name in "cd")
    >>> tag_schema({"anyOf": [cat, dog]})["allOf"][0]["properties"]
    {'kind': {'enum': ['c', 'd']}}
    """
    tagged: dict[str, Any] = _schema_node(root, root)
    return tagged


def _core_tags(node: Any, known: Mapping[str, Any]) -> Tags:
    """Return the constants that a core schema of an object requires."""
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
        is_typed_dict = each["type"] == "typed-dict-field"  # a model may also accept the name beside the alias
        alias = each.get("validation_alias", name) if is_typed_dict or "validation_alias" not in each else None
        if alias and each.get("required", not is_typed_dict) and each["schema"]["type"] == "literal":
            found[alias] = list(each["schema"]["expected"])
    return found


def _schema_node(node: Any, root: Mapping[str, Any]) -> Any:
    if isinstance(node, list):
        return [_schema_node(each, root) for each in node]
    if not isinstance(node, Mapping):
        return node
    tagged = {key: value if key in _NO_SCHEMAS else _schema_node(value, root) for key, value in node.items()}
    for keyword in ("anyOf", "oneOf"):
        if isinstance(options := node.get(keyword), list):
            grouped = _group(tagged[keyword], [_schema_tags(each, root) for each in options], _conditions)
            tagged[keyword] = grouped or tagged[keyword]
            if len(grouped) == 1:
                del tagged[keyword]
                tagged["allOf"] = [*tagged.get("allOf", ()), *grouped]
    return tagged


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
    """Return a schema in which the constant selects the schema to apply."""
    return {
        "type": "object",
        "properties": {key: {"enum": list(options)}},
        "required": [key],
        "allOf": [
            {"if": {"properties": {key: {"const": tag}}, "required": [key]}, "then": each}
            for tag, each in options.items()
        ],
    }


def _group(options: Sequence[Any], tags: Sequence[Tags], make: Callable[[str, Mapping[str, Any]], Any]) -> list[Any]:
    """Return the options with those that a constant tells apart merged into one; empty if there are none."""
    for key in dict.fromkeys(name for each in tags for name in each):
        tagged = [index for index, each in enumerate(tags) if key in each]
        values = [value for index in tagged for value in tags[index][key]]
        plain = all(type(value) is str for value in values)
        if len(tagged) > 1 and plain and len(set(values)) == len(values):
            group = make(key, {value: options[index] for index in tagged for value in tags[index][key]})
            return [group, *(each for index, each in enumerate(options) if index not in tagged)]
    return []
