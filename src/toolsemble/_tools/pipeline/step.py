"""A step of a pipeline: a tool, with its adapter, its compensation and its error strategy."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeAlias

from toolsemble._engine.definition import ToolDefinition
from toolsemble._runtime.text import describe_error
from toolsemble._schema.decode import Read
from toolsemble._tools.base import Tool, define, pipeline_class
from toolsemble._tools.collection import collect_tools
from toolsemble._tools.pipeline.handoff import make_reader
from toolsemble._tools.pipeline.undo import Compensation, build_compensation
from toolsemble._vocabulary.errors import ToolDefinitionError
from toolsemble._vocabulary.result import ToolResult
from toolsemble._vocabulary.specification import LONGEST_NAME

if TYPE_CHECKING:
    from toolsemble._tools.pipeline.pipeline import ToolPipeline


class ErrorStrategy(Enum):
    """The ways to handle the failure of a step, a branch or an item.

    >>> ErrorStrategy.FAIL_FAST.name
    'FAIL_FAST'
    """

    FAIL_FAST = "fail_fast"
    """Stop: the failed step's result is the result of the pipeline."""
    CONTINUE_ON_FAILURE = "continue_on_failure"
    """Continue: the next step gets the error message."""


def check_strategy(owner: str, value: Any) -> ErrorStrategy:
    """Return the strategy, or raise :class:`ToolDefinitionError` if it is not an :class:`ErrorStrategy`.

    >>> check_strategy("Pipeline 'p'", "stop")
    Traceback (most recent call last):
    ...
    toolsemble.ToolDefinitionError: Pipeline 'p': the error strategy must be an ErrorStrategy, not 'stop'
    """
    if isinstance(value, ErrorStrategy):
        return value
    raise ToolDefinitionError(f"{owner}: the error strategy must be an ErrorStrategy, not {value!r:.80}")


_HASH = 8

Adapter: TypeAlias = Callable[[ToolResult], Any]
"""Converts a step's result to the next step's input: a str, a dict of arguments or a list; None is the empty text."""


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
    """Converts this step's result to the next step's input; runs if this step succeeded and is not the last."""
    _: KW_ONLY
    compensate: object = None
    """A function ``(input, result)`` that undoes the step; or a tool that takes an object with these two."""
    on_error: ErrorStrategy | None = None
    """What to do when this step fails; None: the pipeline's ``error_strategy``."""

    def __or__(self, other: object) -> ToolPipeline:
        return pipeline_class().of(self, other)

    def __ror__(self, other: object) -> ToolPipeline:
        return pipeline_class().of(other, self)


@dataclass(frozen=True, slots=True)
class Part:
    """A checked step, as a pipeline runs it."""

    definition: ToolDefinition
    read: Read
    adapter: Adapter | None
    compensation: Compensation | None
    strategy: ErrorStrategy

    def map_definition(self, change: Callable[[ToolDefinition], ToolDefinition]) -> Part:
        """Return a copy with its tool and undo tool replaced by ``change(tool)``."""
        undo = None if self.compensation is None else self.compensation.map_definition(change)
        return replace(self, definition=change(self.definition), compensation=undo)


def build_part(place: str, source: object, strategy: ErrorStrategy) -> Part:
    """Return a checked step; raise :class:`ToolDefinitionError` if it is not a tool or a setting is wrong."""
    step = source if isinstance(source, Step) else Step(source)
    definition = get_definition(place, step.tool)
    owner = f"Step '{definition.name}'"
    if step.adapter is not None and not callable(step.adapter):
        raise ToolDefinitionError(f"{owner}: the adapter must be a function of the result, not {step.adapter!r:.80}")
    own = strategy if step.on_error is None else check_strategy(owner, step.on_error)
    return Part(definition, make_reader(definition), step.adapter, build_compensation(owner, step.compensate), own)


def get_definition(place: str, source: object) -> ToolDefinition:
    """Return the definition of a single tool; raise :class:`ToolDefinitionError` with the place otherwise.

    >>> get_definition("Step 2 of 'a_then_b'", None)
    Traceback (most recent call last):
    ...
    toolsemble.ToolDefinitionError: Step 2 of 'a_then_b' is None; pass a tool
    """
    if source is None:
        raise ToolDefinitionError(f"{place} is None; pass a tool")
    if isinstance(source, type):
        raise ToolDefinitionError(f"{place} is the class {source.__name__}; pass an instance: {source.__name__}(...)")
    if isinstance(source, Step):
        raise ToolDefinitionError(f"{place} is a Step, which only a pipeline takes; pass its tool")
    try:
        # A Tool that also has @tool methods counts as one tool.
        found = [define(source)] if isinstance(source, Tool) else [each for _, each in collect_tools(source)]
    except ToolDefinitionError as problem:
        raise ToolDefinitionError(f"{place}: {problem}") from None
    except Exception as problem:
        # A property of a foreign object can raise anything.
        raise ToolDefinitionError(f"{place} ({type(source).__name__}): {describe_error(problem)}") from problem
    if len(found) != 1 or found[0] is None:
        raise ToolDefinitionError(f"{place} {_explain(source, len(found))}")
    return found[0]


def _explain(source: object, tools: int) -> str:
    from toolsemble._tools.mistakes import explain_mistake

    kind = f"({type(source).__name__})"
    if tools:
        return f"{kind} has {tools} tools; pass one of its methods"
    explained = explain_mistake(source)
    return f"{kind}: {explained}" if explained else f"{kind} is not a tool"


def shorten_name(name: str) -> str:
    """Return a name composed of several tool names; if it is too long, its beginning and a hash.

    >>> shorten_name("search_then_save")
    'search_then_save'
    >>> shorten_name("_then_".join(["fetch_customer_orders", "filter_open_orders", "summarize_orders"]))
    'fetch_customer_orders_then_filter_open_orders_then_summ_010b04cb'
    """
    if len(name) <= LONGEST_NAME:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:_HASH]
    return f"{name[: LONGEST_NAME - _HASH - 1].rstrip('_-')}_{digest}"
