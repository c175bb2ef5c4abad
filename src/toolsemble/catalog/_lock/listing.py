"""The tools of a source, with the faults of those that cannot be pinned."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from toolsemble._engine.definition.definition import ToolDefinition
from toolsemble._tools.collection import collect_tools
from toolsemble._vocabulary.errors import ToolDefinitionError
from toolsemble._vocabulary.specification import ToolSpecification
from toolsemble.catalog._lock.pins import PinnedTool, is_pinned, pin_tool


@dataclass(frozen=True, slots=True)
class Listing:
    """The tools of a source."""

    pins: dict[str, PinnedTool] = field(default_factory=dict)
    """The tools by name."""
    faults: dict[str, str] = field(default_factory=dict)
    """Why other tools cannot be pinned, by name."""

    def add(self, shown: object) -> None:
        """Add a tool; one that cannot be pinned, or whose name is there already, is a fault."""
        name = _find_name(shown)
        try:
            pin = pin_tool(shown)
        except ToolDefinitionError as problem:
            self.pins.pop(name, None)
            self.faults[name] = str(problem)
            return
        if pin.name in self.pins or pin.name in self.faults:
            self.pins.pop(pin.name, None)
            self.faults[pin.name] = f"Duplicate tool name: {pin.name!r:.80}"
        else:
            self.pins[pin.name] = pin


def list_tools(shown: Iterable[object]) -> Listing:
    """Return the pins of tools, of their specifications, or of the list of a server.

    >>> list(list_tools([ToolSpecification("now", "The time")]).pins)
    ['now']
    """
    listing = Listing()
    for each in shown:
        for part in [each] if _is_shown(each) else [definition for _, definition in list_definitions([each])]:
            listing.add(part)
    return listing


def list_valid_tools(source: str, shown: Iterable[object]) -> dict[str, PinnedTool]:
    """Return the pins of tools by name; raise ToolDefinitionError if one of them cannot be pinned."""
    listing = list_tools(shown)
    for fault in listing.faults.values():
        raise ToolDefinitionError(f"{source}: {fault}")
    return listing.pins


def list_definitions(tools: Iterable[object]) -> list[tuple[object, ToolDefinition]]:
    """Return tools with their definitions; raise ToolDefinitionError for what is not a tool."""
    if hasattr(tools, "specifications"):
        raise ToolDefinitionError(
            "A lock takes a list of tools, not a Toolbox, whose gates and limits would be lost; write "
            "Toolbox(lock.checked([...], source=...))"
        )
    found: list[tuple[object, ToolDefinition]] = []
    for each in tools:
        defined = collect_tools(each)
        if not defined:
            raise ToolDefinitionError(f"A lock takes tools; {type(each).__name__} is not one")
        found += defined
    return found


def _is_shown(each: object) -> bool:
    return isinstance(each, (PinnedTool, ToolSpecification, ToolDefinition, Mapping)) or is_pinned(each)


def _find_name(shown: object) -> str:
    name = shown.get("name") if isinstance(shown, Mapping) else getattr(shown, "name", None)
    return name if isinstance(name, str) else repr(name)[:80]
