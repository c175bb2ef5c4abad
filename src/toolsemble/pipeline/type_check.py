"""Whether what one step declares to give can ever fit what the next one takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

from toolsemble.definition.definition import ToolDefinition
from toolsemble.errors import ToolDefinitionError
from toolsemble.pipeline.flows import Each
from toolsemble.pipeline.handoff import Intake
from toolsemble.pipeline.return_types import opaque
from toolsemble.pipeline.sequence import Line
from toolsemble.schema.decode import Arguments
from toolsemble.schema.field import Field
from toolsemble.schema.pointer import resolve_schema
from toolsemble.schema.typed import TypedArguments

_DEEPEST = 5
_NUMBERS = {"integer", "number"}


def check_fit(giver: ToolDefinition, taker: ToolDefinition) -> None:
    """Refuse two steps of which the first can never give what the second takes; what is not known is let through."""
    given = giver.returns()
    if (root := _schema_of(given)) is None:
        return
    if (found := _misfit(root, root["properties"]["value"], taker)) is not None:
        part, problem = found
        raise ToolDefinitionError(
            f"Step '{giver.name}' gives {_named(given)}, but step '{part.name}' takes {_taken(part)}: {problem}; "
            f"put an adapter between them: Step({giver.name}, adapter=...)"
        )


def _misfit(root: Mapping[str, Any], given: Any, taker: ToolDefinition) -> tuple[ToolDefinition, str] | None:
    """Give the part of the taker that the declared type does not fit, and why; None when it may fit all."""
    flow = taker.flow
    if taker.hand is None or flow is None:
        problem = None if taker.arguments is None else _parameters_misfit(root, given, taker, taker.arguments)
        return None if problem is None else (taker, problem)
    if isinstance(flow, Each):
        return _list_misfit(root, given, taker, flow.branch.definition)
    parts = flow.parts()[:1] if isinstance(flow, Line) else flow.parts()
    return next((found for part in parts if (found := _misfit(root, given, part)) is not None), None)


def _list_misfit(
    root: Mapping[str, Any], given: Any, taker: ToolDefinition, item: ToolDefinition
) -> tuple[ToolDefinition, str] | None:
    kinds = _kinds(root, given)
    if kinds is None or "string" in kinds:
        return None
    whole = resolve_schema(root, given)
    if kinds == {"array"}:
        return _misfit(root, whole.get("items"), item)
    listed = "object" in kinds and ("items" in whole.get("properties", ()) or not _closed(whole))
    return None if listed or "array" in kinds else (taker, f"it is {_listed(kinds)}, not array")


def _parameters_misfit(root: Mapping[str, Any], given: Any, taker: ToolDefinition, arguments: Arguments) -> str | None:
    """Give why the declared type does not fit a step's parameters, or None when it may."""
    schema = arguments.schema
    whole = {"type": "object", **resolve_schema(schema, schema)}
    if not whole.get("properties") and _closed(whole):
        return None
    kinds = _kinds(root, given)
    if kinds is None or "string" in kinds:  # any text may be JSON
        return None
    if "null" in kinds and not whole.get("required"):  # nothing is given, and nothing is needed
        return None
    unfit = _differ(root, given, schema, whole, _DEEPEST)
    single = Intake(taker, arguments).single
    if unfit is None or not single:
        return unfit
    inner = _differ(root, given, schema, whole["properties"][single], _DEEPEST, single)
    return unfit if inner is not None and "object" in kinds else inner


def _schema_of(kind: Any) -> Mapping[str, Any] | None:
    """Give the JSON Schema of an object whose ``value`` is of the type; None where the type tells nothing."""
    if kind is Any or kind is object or opaque(kind):
        return None
    try:
        return TypedArguments.of_fields("value", [Field("value", kind)], {}, frozenset()).schema
    except Exception:  # noqa: BLE001 - a type that JSON cannot hold may still be handed over as it is
        return None


def _differ(
    given_root: Mapping[str, Any], given: Any, taken_root: Mapping[str, Any], taken: Any, depth: int, place: str = ""
) -> str | None:
    """Give where no value of the first schema fits the second, or None when one may."""
    kinds, accepted = _kinds(given_root, given), _kinds(taken_root, taken)
    if kinds is None or accepted is None or depth == 0:
        return None
    both = kinds & accepted
    if not both and not (kinds & _NUMBERS and accepted & _NUMBERS):
        return _unmended(given_root, given, taken_root, taken, depth, place)
    if both == {"array"}:
        items = resolve_schema(given_root, given).get("items"), resolve_schema(taken_root, taken).get("items")
        return _differ(given_root, items[0], taken_root, items[1], depth - 1, f"{place}[]")
    if both == {"object"}:
        return _fields_differ(given_root, given, taken_root, taken, depth, place)
    return None


def _unmended(
    given_root: Mapping[str, Any], given: Any, taken_root: Mapping[str, Any], taken: Any, depth: int, place: str
) -> str | None:
    """Give how the kinds of two schemas differ, or None where a repair of arguments may make one of the other."""
    kinds, accepted = _kinds(given_root, given) or set(), _kinds(taken_root, taken) or set()
    if "string" in kinds or ("string" in accepted and kinds != {"null"}):
        return None
    if accepted == {"array"} and kinds != {"null"}:  # one value may stand for a list of it
        items = resolve_schema(taken_root, taken).get("items")
        return _differ(given_root, given, taken_root, items, depth - 1, f"{place}[]")
    return f"{place or 'it'} is {_listed(kinds)}, not {_listed(accepted)}"


def _fields_differ(
    given_root: Mapping[str, Any], given: Any, taken_root: Mapping[str, Any], taken: Any, depth: int, place: str
) -> str | None:
    given, taken = resolve_schema(given_root, given), resolve_schema(taken_root, taken)
    fields, wanted = given.get("properties", {}), taken.get("properties", {})
    for name in taken.get("required", ()):
        inner = f"{place}.{name}" if place else name
        if name not in fields:
            if _closed(given):
                return f"{inner} is missing"
        elif (found := _differ(given_root, fields[name], taken_root, wanted.get(name), depth - 1, inner)) is not None:
            return found
    return None


def _kinds(root: Mapping[str, Any], schema: Any) -> set[str] | None:
    """Give the JSON types that a schema admits; None when that cannot be told at a glance."""
    if not isinstance(schema, Mapping):
        return None
    schema = resolve_schema(root, schema)
    if options := schema.get("anyOf") or schema.get("oneOf"):
        each = [_kinds(root, option) for option in options]
        return None if any(kinds is None for kinds in each) else set().union(*each)  # type: ignore[arg-type]  # none is None
    kind = schema.get("type")
    if isinstance(kind, list):
        return set(kind)
    return {kind} if isinstance(kind, str) else None


def _closed(schema: Mapping[str, Any]) -> bool:
    return schema.get("additionalProperties") is False


def _listed(kinds: set[str]) -> str:
    return " or ".join(sorted(kinds))


def _named(kind: Any) -> str:
    return kind.__name__ if isinstance(kind, type) and not get_args(kind) else str(kind).replace("typing.", "")


def _taken(taker: ToolDefinition) -> str:
    """Give what a step takes, as its parameters with their types."""
    assert taker.arguments is not None  # noqa: S101 - asked for by the caller
    root = taker.arguments.schema
    properties = resolve_schema(root, root).get("properties", {})
    told = {name: _kinds(root, each) for name, each in properties.items()}
    written = ", ".join(f"{name}: {_listed(kinds) if kinds else 'any'}" for name, kinds in told.items())
    return f"{taker.arguments.owner}({written})"
