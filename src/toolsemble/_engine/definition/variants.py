"""Other forms of a definition: with each part changed, with a further layer, or for a dry run."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from toolsemble._engine.definition.definition import ToolDefinition
from toolsemble._engine.definition.policy import Layer, Policy
from toolsemble._vocabulary.result import ToolResult


def map_definition(definition: ToolDefinition, change: Callable[[ToolDefinition], ToolDefinition]) -> ToolDefinition:
    """Apply a function to a definition and to the parts of its flow at every depth; return the new definition.

    >>> from toolsemble._engine.definition.build import string_definition
    >>> shout = string_definition("shout", "Says it louder", str.upper)
    >>> map_definition(shout, lambda each: replace(each, name=each.name.upper())).name
    'SHOUT'
    """
    changed = change(definition)
    if changed.flow is None:
        return changed
    return replace(changed, flow=changed.flow.map(lambda part: map_definition(part, change)))


def always_gated_in(parts: Iterable[ToolDefinition]) -> tuple[ToolDefinition, ...]:
    """Return the parts, at every depth, that need approval whenever they run.

    >>> from toolsemble._engine.definition.build import string_definition
    >>> from toolsemble.review._gate import Gate
    >>> shout = string_definition("shout", "Says it louder", str.upper)
    >>> [each.name for each in always_gated_in([shout, replace(shout, gate=Gate())])]
    ['shout']
    """
    found: list[ToolDefinition] = []
    for part in parts:
        if part.gate is not None and not part.gate.predicates:
            found.append(part)
        if part.flow is not None:
            found += part.flow.always_gated
    return tuple(found)


def to_dry_run(definition: ToolDefinition) -> ToolDefinition:
    """Return the definition for a dry run: calls are decoded, reviewed and recorded, but the body does not run.

    >>> from toolsemble._engine.definition.build import string_definition
    >>> to_dry_run(string_definition("shout", "Says it louder", str.upper)).body("hello").output
    "Dry run: 'shout' was not run"
    """
    result = dry_result(definition.name)
    return replace(
        definition,
        body=lambda _: result,
        awaits=False,
        inline=True,
        policy=None,
        needs={},
        reviewed_as=f"Dry run, nothing will be done: {definition.reviewed_as or definition.description}",
        flow=None if definition.flow is None else definition.flow.to_dry_run(),
    )


def dry_result(name: str) -> ToolResult:
    """Return the result of a tool in a dry run.

    >>> dry_result("save").attributes["dry_run"]
    True
    """
    return ToolResult.success(f"Dry run: '{name}' was not run", attributes={"dry_run": True})


def add_layer(definition: ToolDefinition, layer: Layer | None) -> ToolDefinition:
    """Return the definition with a layer next to its body, inside of all limits; None adds nothing."""
    if layer is None:
        return definition
    policy = definition.policy or Policy()
    return replace(definition, policy=replace(policy, nearest=(*policy.nearest, layer)))
