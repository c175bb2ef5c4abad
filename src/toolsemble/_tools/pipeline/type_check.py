"""Check that the declared return type of a step can fit the parameters of the next one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

from toolsemble._engine.definition.definition import ToolDefinition
from toolsemble._schema.decode import Arguments
from toolsemble._schema.field import Field
from toolsemble._schema.pointer import resolve_schema
from toolsemble._schema.shape import is_opaque
from toolsemble._schema.typed import TypedArguments
from toolsemble._tools.pipeline.flows import ForEach
from toolsemble._tools.pipeline.handoff import ParameterReader
from toolsemble._tools.pipeline.sequence import StepSequence
from toolsemble._vocabulary.errors import ToolDefinitionError

_MAX_DEPTH = 5
_NUMBERS = {"integer", "number"}


def check_fit(source: ToolDefinition, target: ToolDefinition) -> None:
    """Raise :class:`ToolDefinitionError` if no output of a step can fit the next one; unknown types always pass."""
    given = source.returns()
    if (root := _schema_of(given)) is None:
        return
    if (found := _find_mismatch(root, root["properties"]["value"], target)) is not None:
        part, problem = found
        raise ToolDefinitionError(
            f"Step '{source.name}' returns {_type_name(given)}, but step '{part.name}' takes {_signature(part)}: "
            f"{problem}; put an adapter between them: Step({source.name}, adapter=...)"
        )


def _find_mismatch(root: Mapping[str, Any], given: Any, target: ToolDefinition) -> tuple[ToolDefinition, str] | None:
    """Return the part of the target that the declared type cannot fit, and why; None if it may fit all parts."""
    flow = target.flow
    if target.hand is None or flow is None:
        problem = None if target.arguments is None else _find_parameter_mismatch(root, given, target, target.arguments)
        return None if problem is None else (target, problem)
    if isinstance(flow, ForEach):
        return _find_list_mismatch(root, given, target, flow.branch.definition)
    parts = flow.parts()[:1] if isinstance(flow, StepSequence) else flow.parts()
    return next((found for part in parts if (found := _find_mismatch(root, given, part)) is not None), None)


def _find_list_mismatch(
    root: Mapping[str, Any], given: Any, target: ToolDefinition, item: ToolDefinition
) -> tuple[ToolDefinition, str] | None:
    kinds = _kinds(root, given)
    if kinds is None or "string" in kinds:
        return None
    whole = resolve_schema(root, given)
    if kinds == {"array"}:
        return _find_mismatch(root, whole.get("items"), item)
    listed = "object" in kinds and ("items" in whole.get("properties", ()) or not _is_closed(whole))
    return None if listed or "array" in kinds else (target, f"it is {_join_kinds(kinds)}, not array")


def _find_parameter_mismatch(
    root: Mapping[str, Any], given: Any, target: ToolDefinition, arguments: Arguments
) -> str | None:
    """Return why the declared type cannot fit a step's parameters; None if it may."""
    schema = arguments.schema
    whole = {"type": "object", **resolve_schema(schema, schema)}
    if not whole.get("properties") and _is_closed(whole):
        return None
    kinds = _kinds(root, given)
    if kinds is None or "string" in kinds:  # any text may be JSON
        return None
    if "null" in kinds and not whole.get("required"):  # nothing is passed, and nothing is required
        return None
    unfit = _compare(root, given, schema, whole, _MAX_DEPTH)
    single = ParameterReader(target, arguments).single
    if unfit is None or not single:
        return unfit
    inner = _compare(root, given, schema, whole["properties"][single], _MAX_DEPTH, single)
    return unfit if inner is not None and "object" in kinds else inner


def _schema_of(kind: Any) -> Mapping[str, Any] | None:
    """Return the JSON Schema of an object whose ``value`` has the type; None if the type says nothing."""
    if kind is Any or kind is object or is_opaque(kind):
        return None
    try:
        return TypedArguments.of_fields("value", [Field("value", kind)], {}, frozenset()).schema
    except Exception:  # a value that JSON cannot hold may still be handed over as an object
        return None


def _compare(
    given_root: Mapping[str, Any], given: Any, taken_root: Mapping[str, Any], taken: Any, depth: int, place: str = ""
) -> str | None:
    """Return where no value of the first schema fits the second; None if one may."""
    kinds, accepted = _kinds(given_root, given), _kinds(taken_root, taken)
    if kinds is None or accepted is None or depth == 0:
        return None
    both = kinds & accepted
    if not both and not (kinds & _NUMBERS and accepted & _NUMBERS):
        return _compare_kinds(given_root, given, taken_root, taken, depth, place)
    if both == {"array"}:
        items = resolve_schema(given_root, given).get("items"), resolve_schema(taken_root, taken).get("items")
        return _compare(given_root, items[0], taken_root, items[1], depth - 1, f"{place}[]")
    if both == {"object"}:
        return _compare_fields(given_root, given, taken_root, taken, depth, place)
    return None


def _compare_kinds(
    given_root: Mapping[str, Any], given: Any, taken_root: Mapping[str, Any], taken: Any, depth: int, place: str
) -> str | None:
    """Return how the types of two schemas differ; None if an argument repair may convert one into the other."""
    kinds, accepted = _kinds(given_root, given) or set(), _kinds(taken_root, taken) or set()
    if "string" in kinds or ("string" in accepted and kinds != {"null"}):
        return None
    if accepted == {"array"} and kinds != {"null"}:  # a repair makes a list of a single value
        items = resolve_schema(taken_root, taken).get("items")
        return _compare(given_root, given, taken_root, items, depth - 1, f"{place}[]")
    return f"{place or 'it'} is {_join_kinds(kinds)}, not {_join_kinds(accepted)}"


def _compare_fields(
    given_root: Mapping[str, Any], given: Any, taken_root: Mapping[str, Any], taken: Any, depth: int, place: str
) -> str | None:
    given, taken = resolve_schema(given_root, given), resolve_schema(taken_root, taken)
    fields, wanted = given.get("properties", {}), taken.get("properties", {})
    for name in taken.get("required", ()):
        inner = f"{place}.{name}" if place else name
        if name not in fields:
            if _is_closed(given):
                return f"{inner} is missing"
        elif (found := _compare(given_root, fields[name], taken_root, wanted.get(name), depth - 1, inner)) is not None:
            return found
    return None


def _kinds(root: Mapping[str, Any], schema: Any) -> set[str] | None:
    """Return the JSON types that a schema allows; None if it does not state them directly."""
    if not isinstance(schema, Mapping):
        return None
    schema = resolve_schema(root, schema)
    if options := schema.get("anyOf") or schema.get("oneOf"):
        each = [_kinds(root, option) for option in options]
        return None if any(kinds is None for kinds in each) else set().union(*each)  # type: ignore[arg-type]  # no None here
    kind = schema.get("type")
    if isinstance(kind, list):
        return set(kind)
    return {kind} if isinstance(kind, str) else None


def _is_closed(schema: Mapping[str, Any]) -> bool:
    return schema.get("additionalProperties") is False


def _join_kinds(kinds: set[str]) -> str:
    return " or ".join(sorted(kinds))


def _type_name(kind: Any) -> str:
    return kind.__name__ if isinstance(kind, type) and not get_args(kind) else str(kind).replace("typing.", "")


def _signature(target: ToolDefinition) -> str:
    """Return the parameters of a step with their types, as text."""
    assert target.arguments is not None  # noqa: S101 - only a step with parameters can mismatch
    root = target.arguments.schema
    properties = resolve_schema(root, root).get("properties", {})
    kinds = {name: _kinds(root, each) for name, each in properties.items()}
    written = ", ".join(f"{name}: {_join_kinds(each) if each else 'any'}" for name, each in kinds.items())
    return f"{target.arguments.owner}({written})"
