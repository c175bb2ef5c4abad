"""Find the tools of an object: the object itself, or its ``@tool`` methods."""

from __future__ import annotations

from toolsemble._engine.definition import ToolDefinition
from toolsemble._runtime.text import describe_error
from toolsemble._tools.base import Tool, define
from toolsemble._tools.function import FunctionTool, method_tools
from toolsemble._tools.protocols import ToolSpec
from toolsemble._vocabulary.errors import ToolDefinitionError
from toolsemble._vocabulary.specification import ToolSpecification


def collect_tools(source: object) -> list[tuple[object, ToolDefinition]]:
    """Return the tools of an object with their definitions; an empty list if it has none.

    >>> collect_tools(object())
    []
    """
    function = getattr(source, "__func__", None)
    if isinstance(function, FunctionTool):  # a class method, on Python versions that bind it like any callable
        source = function.bound_to(getattr(source, "__self__", None))
    if not isinstance(source, FunctionTool) and (methods := method_tools(source)):
        own = [(source, _definition_of(source))] if isinstance(source, Tool) else []
        return [*own, *((each, _definition_of(each)) for each in methods)]
    # The attribute first: checking an object against a protocol is slow.
    if hasattr(source, "parameters_schema") and isinstance(source, ToolSpec):
        from toolsemble._tools.schema import from_spec

        return [(source, _definition_of(from_spec(source)))]
    definition = define(source)
    return [] if definition is None else [(source, definition)]


def tool_specifications_from(source: object) -> list[ToolSpecification]:
    """Return the specifications of the tools of an object, or of a class without an instance.

    >>> from toolsemble import tool
    >>> class Clock:
    ...     @tool
    ...     def now(self) -> str:
    ...         '''The time.'''
    ...         return "noon"
    >>> [each.description for each in tool_specifications_from(Clock)]
    ['The time.']
    """
    if source is None:
        raise ToolDefinitionError("tool_specifications_from takes an object or a class, not None")
    found = _collect_from_class(source) if isinstance(source, type) else collect_tools(source)
    names = [definition.name for _, definition in found]
    for name in names:
        if names.count(name) > 1:
            raise ToolDefinitionError(f"Duplicate tool name: '{name}'")
    return [definition.specification() for _, definition in found]


def _collect_from_class(kind: type) -> list[tuple[object, ToolDefinition]]:
    """Return a class's tools from its attributes; raise if only an instance has them."""
    methods: list[tuple[object, ToolDefinition]] = [(each, _definition_of(each)) for each in method_tools(kind)]
    is_tool = issubclass(kind, Tool)
    if not is_tool and (methods or not all(hasattr(kind, name) for name in ("name", "description", "execute"))):
        return methods
    try:
        blank: object = object.__new__(kind)  # without __init__, whose arguments are unknown
        definition = define(blank)
    except Exception as problem:
        raise ToolDefinitionError(
            f"{kind.__name__} cannot be described without an object ({describe_error(problem)}); pass one: "
            f"{kind.__name__}(...)"
        ) from problem
    return methods if definition is None else [(blank, definition), *methods]


def _definition_of(tool: object) -> ToolDefinition:
    definition = define(tool)
    assert definition is not None  # noqa: S101 - a Tool always has one
    return definition
