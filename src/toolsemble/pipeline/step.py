"""One step of a pipeline: a tool, and how its result is handed on, undone, or taken when it is a failure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from toolsemble.definition.definition import ToolDefinition
from toolsemble.errors import ToolDefinitionError
from toolsemble.pipeline.handoff import Read, reader
from toolsemble.pipeline.strategy import ErrorStrategy, checked_strategy
from toolsemble.pipeline.undo import Compensation, compensation
from toolsemble.result import ToolResult
from toolsemble.shape import describe_error
from toolsemble.tools.base import Tool, define, pipeline_class
from toolsemble.tools.collection import collect_tools

if TYPE_CHECKING:
    from toolsemble.pipeline.pipeline import ToolPipeline

Adapter: TypeAlias = Callable[[ToolResult], Any]
"""Makes the next step's input of a step's result: text, a dict of arguments, a list; None is the empty text."""


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """One step of a pipeline.

    >>> from toolsemble import tool
    >>> @tool
    ... def search(query: str) -> dict:
    ...     return {"hits": [f"{query} 1", f"{query} 2"]}
    >>> @tool
    ... def save(text: str) -> str:
    ...     return f"saved {text}"
    >>> (Step(search, lambda result: result.structured_output["hits"][0]) | save).execute('{"query": "rome"}').output
    'saved rome 1'
    """

    tool: object
    """The tool, of any kind."""
    adapter: Adapter | None = None
    """Makes the next step's input of this one's result; runs when this one succeeded and there is a next one."""
    _: KW_ONLY
    compensate: object = None
    """A function ``(input, result)`` that undoes the step; or a tool, which is given an object with these two."""
    on_error: ErrorStrategy | None = None
    """What becomes of the pipeline when this step fails; None for what the pipeline says."""

    def __or__(self, other: object) -> ToolPipeline:
        return pipeline_class().of(self, other)

    def __ror__(self, other: object) -> ToolPipeline:
        return pipeline_class().of(other, self)


@dataclass(frozen=True, slots=True)
class Part:
    """A step as a pipeline walks it, checked and taken down once."""

    definition: ToolDefinition
    """The tool."""
    read: Read
    """How it takes what is handed to it."""
    adapter: Adapter | None
    """Makes the next step's input."""
    compensation: Compensation | None
    """How it is undone."""
    strategy: ErrorStrategy
    """What becomes of the pipeline when it fails."""

    def changed(self, change: Callable[[ToolDefinition], ToolDefinition]) -> Part:
        """Give the same step with what a function makes of its tool, and of the tool that undoes it."""
        undo = None if self.compensation is None else self.compensation.changed(change)
        return replace(self, definition=change(self.definition), compensation=undo)


def part_of(place: str, source: object, strategy: ErrorStrategy) -> Part:
    """Give a step that can be walked; refuse what is none, and settings that are unclear."""
    step = source if isinstance(source, Step) else Step(source)
    definition = definition_of(place, step.tool)
    owner = f"Step '{definition.name}'"
    if step.adapter is not None and not callable(step.adapter):
        raise ToolDefinitionError(f"{owner}: the adapter must be a function of the result, not {step.adapter!r:.80}")
    own = strategy if step.on_error is None else checked_strategy(owner, step.on_error)
    return Part(definition, reader(definition), step.adapter, compensation(owner, step.compensate), own)


def definition_of(place: str, source: object) -> ToolDefinition:
    """Give the definition of the one tool that an object is; refuse anything else, naming the place.

    >>> definition_of("Step 2 of 'a_then_b'", None)
    Traceback (most recent call last):
    ...
    toolsemble.errors.ToolDefinitionError: Step 2 of 'a_then_b' is None; pass a tool
    """
    if source is None:
        raise ToolDefinitionError(f"{place} is None; pass a tool")
    if isinstance(source, type):
        raise ToolDefinitionError(f"{place} is the class {source.__name__}; pass an instance: {source.__name__}(...)")
    if isinstance(source, Step):
        raise ToolDefinitionError(f"{place} is a Step, which stands in the line of a pipeline only; pass its tool")
    try:
        # A tool that has tools among its methods is meant itself.
        found = [define(source)] if isinstance(source, Tool) else [each for _, each in collect_tools(source)]
    except ToolDefinitionError as problem:
        raise ToolDefinitionError(f"{place}: {problem}") from None
    except Exception as problem:
        # A property of somebody else's object can raise anything.
        raise ToolDefinitionError(f"{place} ({type(source).__name__}): {describe_error(problem)}") from problem
    if len(found) != 1 or found[0] is None:
        has = f"has {len(found)} tools; pass one of its methods" if found else "is no tool"
        raise ToolDefinitionError(f"{place} ({type(source).__name__}) {has}")
    return found[0]
