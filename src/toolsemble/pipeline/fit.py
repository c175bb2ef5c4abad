"""Whether what one step declares to give can ever fit what the next one takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

from toolsemble.definition import ToolDefinition
from toolsemble.errors import ToolDefinitionError
from toolsemble.pipeline.handoff import Intake
from toolsemble.result import AudioContent, FileContent, ImageContent, TextContent, ToolResult
from toolsemble.schema.field import Field
from toolsemble.schema.pointer import pointed
from toolsemble.schema.typed import TypedArguments

_OPAQUE = (ToolResult, TextContent, ImageContent, AudioContent, FileContent)
_DEEPEST = 5
_NUMBERS = {"integer", "number"}


def check_fit(giver: ToolDefinition, taker: ToolDefinition) -> None:
    """Refuse two steps of which the first can never give what the second takes; what is not known is let through."""
    if taker.arguments is None or taker.hand is not None:
        return
    given = giver.returns()
    if (problem := _misfit(given, taker)) is not None:
        raise ToolDefinitionError(
            f"Step '{giver.name}' gives {_named(given)}, but step '{taker.name}' takes {_taken(taker)}: {problem}; "
            f"put an adapter between them: Step({giver.name}, adapter=...)"
        )


def _misfit(given: Any, taker: ToolDefinition) -> str | None:
    """Give why the declared type does not fit, or None when it may."""
    if (root := _schema_of(given)) is None:
        return None
    arguments = taker.arguments
    assert arguments is not None  # noqa: S101 - asked for by the caller
    schema = arguments.schema
    whole = {"type": "object", **_resolved(schema, schema)}
    if not whole.get("properties") and whole.get("additionalProperties") is False:
        return None
    value = root["properties"]["value"]
    kinds = _kinds(root, value)
    if kinds is None or "string" in kinds:  # any text may be JSON
        return None
    unfit = _differ(root, value, schema, whole, _DEEPEST)
    if unfit is None:
        return None
    single = Intake(taker, arguments).single
    if not single:
        return unfit
    wanted = whole["properties"][single]
    accepted = _kinds(schema, wanted)
    if accepted is None or "string" in accepted:
        return None  # as text it can be taken
    return None if _differ(root, value, schema, wanted, _DEEPEST) is None else unfit


def _schema_of(kind: Any) -> Mapping[str, Any] | None:
    """Give the JSON Schema of an object whose ``value`` is of the type; None where the type tells nothing."""
    if kind is Any or kind is object or _opaque(kind):
        return None
    try:
        return TypedArguments.of_fields("value", [Field("value", kind)], {}, frozenset()).schema
    except Exception:  # noqa: BLE001 - a type that JSON cannot hold may still be handed over as it is
        return None


def _opaque(kind: Any) -> bool:
    """Whether a type tells nothing of what is handed on: results, and contents, which travel beside the text."""
    return any(kind is each for each in _OPAQUE) or any(map(_opaque, get_args(kind)))


def _differ(
    given_root: Mapping[str, Any], given: Any, taken_root: Mapping[str, Any], taken: Any, depth: int, place: str = ""
) -> str | None:
    """Give where no value of the first schema fits the second, or None when one may."""
    kinds, accepted = _kinds(given_root, given), _kinds(taken_root, taken)
    if kinds is None or accepted is None or depth == 0:
        return None
    both = kinds & accepted
    if not both and not (kinds & _NUMBERS and accepted & _NUMBERS):
        return f"{place or 'it'} is {_listed(kinds)}, not {_listed(accepted)}"
    if both == {"array"}:
        items = _resolved(given_root, given).get("items"), _resolved(taken_root, taken).get("items")
        return _differ(given_root, items[0], taken_root, items[1], depth - 1, f"{place}[]")
    if both == {"object"}:
        return _fields_differ(given_root, given, taken_root, taken, depth, place)
    return None


def _fields_differ(
    given_root: Mapping[str, Any], given: Any, taken_root: Mapping[str, Any], taken: Any, depth: int, place: str
) -> str | None:
    given, taken = _resolved(given_root, given), _resolved(taken_root, taken)
    fields, wanted = given.get("properties", {}), taken.get("properties", {})
    for name in taken.get("required", ()):
        inner = f"{place}.{name}" if place else name
        if name not in fields:
            if given.get("additionalProperties") is False:
                return f"{inner} is missing"
        elif (found := _differ(given_root, fields[name], taken_root, wanted.get(name), depth - 1, inner)) is not None:
            return found
    return None


def _kinds(root: Mapping[str, Any], schema: Any) -> set[str] | None:
    """Give the JSON types that a schema admits; None when that cannot be told at a glance."""
    if not isinstance(schema, Mapping):
        return None
    schema = _resolved(root, schema)
    if options := schema.get("anyOf") or schema.get("oneOf"):
        each = [_kinds(root, option) for option in options]
        return None if any(kinds is None for kinds in each) else set().union(*each)  # type: ignore[arg-type]  # none is None
    kind = schema.get("type")
    if isinstance(kind, list):
        return set(kind)
    return {kind} if isinstance(kind, str) else None


def _resolved(root: Mapping[str, Any], schema: Mapping[str, Any]) -> Mapping[str, Any]:
    return {**pointed(root, schema["$ref"]), **schema} if "$ref" in schema else schema


def _listed(kinds: set[str]) -> str:
    return " or ".join(sorted(kinds))


def _named(kind: Any) -> str:
    return kind.__name__ if isinstance(kind, type) and not get_args(kind) else str(kind).replace("typing.", "")


def _taken(taker: ToolDefinition) -> str:
    """Give what a step takes, as its parameters with their types."""
    assert taker.arguments is not None  # noqa: S101 - asked for by the caller
    root = taker.arguments.schema
    properties = _resolved(root, root).get("properties", {})
    told = {name: _kinds(root, each) for name, each in properties.items()}
    written = ", ".join(f"{name}: {_listed(kinds) if kinds else 'any'}" for name, kinds in told.items())
    return f"{taker.arguments.owner}({written})"
