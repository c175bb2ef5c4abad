"""Tools that run other tools: in parallel, once for each item of a list, or one of two."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias, Unpack, final

from toolsemble._engine.definition.build import check_description, string_definition, typed_definition
from toolsemble._engine.definition.definition import ToolDefinition
from toolsemble._runtime.checks import check_count
from toolsemble._schema.decode import Arguments
from toolsemble._tools.base import Tool
from toolsemble._tools.pipeline.branch import Branch
from toolsemble._tools.pipeline.combined_arguments import CombinedArguments, ListArguments, display_text
from toolsemble._tools.pipeline.flows import Choice, FanOut, ForEach
from toolsemble._tools.pipeline.handoff import pass_through
from toolsemble._tools.pipeline.step import get_definition, shorten_name
from toolsemble._tools.pipeline.strategy import ErrorStrategy, check_strategy
from toolsemble._tools.settings import BareSettings, ToolSettings
from toolsemble._vocabulary.errors import ToolDefinitionError
from toolsemble._vocabulary.result import ToolResult
from toolsemble._vocabulary.specification import check_name

Merge: TypeAlias = Callable[[dict[str, ToolResult]], Any]
"""Merges the results of all branches into one; may be async."""

_AT_ONCE = 16


class EachSettings(BareSettings, total=False):
    """The settings of a tool that is mapped over a list; its ``max_concurrency`` counts items, not calls."""

    timeout: float | None
    max_output: int | None


class CompositeTool(Tool):
    """A tool that runs other tools; created by :func:`fan_out`, :func:`map_over` and :func:`choose`."""

    def __init__(
        self,
        name: str,
        description: str,
        flow: FanOut | ForEach | Choice,
        arguments: Callable[[str], Arguments] | None,
        settings: BareSettings,
        recipe: Callable[[], Tool],
    ) -> None:
        self.name = check_name(name)
        self.description = check_description(self.name, description)
        self._flow = flow
        self._arguments = None if arguments is None else arguments(self.name)
        self._recipe = recipe
        self._apply(settings)

    def __reduce__(self) -> tuple[Any, ...]:
        built = {"_flow", "_arguments", "_recipe"}
        return self._recipe, (), {name: value for name, value in vars(self).items() if name not in built}

    @final
    def run(self, input: Any) -> Any:
        """Return the result for one input, as :meth:`execute` does."""
        return self.execute(input)

    def _define(self) -> ToolDefinition:
        shared: dict[str, Any] = {
            **self._declared(),
            "flow": self._flow,
            "hand": pass_through,
            "returns": self._flow.returns,
        }
        if self._arguments is None:
            return string_definition(self.name, self.description, self.run, present=display_text, **shared)
        return typed_definition(self.name, self.description, self.run, self._arguments, **shared)


def fan_out(
    *tools: object,
    merge: Merge | None = None,
    error_strategy: ErrorStrategy = ErrorStrategy.CONTINUE_ON_FAILURE,
    name: str | None = None,
    description: str | None = None,
    **settings: Unpack[ToolSettings],
) -> Tool:
    """Return a tool that runs several tools in parallel on the same input.

    Its structured output is a dict from each tool's name to its result; its text is the same as JSON. It fails when
    all branches fail. With ``FAIL_FAST`` it fails when one does: the others are cancelled, and the result is that of
    the failed branch. A failed branch is never a value for a next step: without ``merge``, the pipeline fails.
    Branches share the input: an object that one of them changes is changed for all. Branches that are gated, cached,
    idempotent or retried get a copy, and so do all branches of a plan that was approved as a whole.

    :param tools: the branches; the model sees the parameters of all of them combined
    :param merge: a function from the dict of results to one result; its return value is treated like a tool's
    :param error_strategy: whether the other branches continue when one fails
    :param name: the tool's name for the model; by default ``a_and_b``
    :param description: the tool's description for the model
    :param settings: the settings of any tool, see :class:`Tool`

    >>> from toolsemble import tool
    >>> @tool
    ... def upper(text: str) -> str:
    ...     return text.upper()
    >>> @tool
    ... def count(text: str) -> int:
    ...     return len(text)
    >>> fan_out(upper, count).execute('{"text": "rome"}').output
    '{"upper":"ROME","count":4}'
    """
    parts = tuple(get_definition(f"Branch {number} of fan_out", each) for number, each in enumerate(tools, 1))
    if not parts:
        raise ToolDefinitionError("fan_out has no branches; pass at least one tool")
    names = [part.name for part in parts]
    for each in names:
        if names.count(each) > 1:
            raise ToolDefinitionError(f"Duplicate branch name: '{each}'")
    if merge is not None and not callable(merge):
        raise ToolDefinitionError(f"fan_out: merge must be a function of the results, not {merge!r:.80}")
    fail_fast = check_strategy("fan_out", error_strategy) is ErrorStrategy.FAIL_FAST
    text = f"Side by side: {', '.join(names)}" if description is None else description
    flow = FanOut(tuple(map(Branch.of, parts)), merge, fail_fast=fail_fast)
    recipe = partial(fan_out, *tools, merge=merge, error_strategy=error_strategy, name=name)
    arguments = _combine_arguments(parts, all_run=True)
    return CompositeTool(name or shorten_name("_and_".join(names)), text, flow, arguments, settings, recipe)


def map_over(
    tool: object,
    max_concurrency: int | None = None,
    *,
    error_strategy: ErrorStrategy = ErrorStrategy.CONTINUE_ON_FAILURE,
    name: str | None = None,
    description: str | None = None,
    **settings: Unpack[EachSettings],
) -> Tool:
    """Return a tool that applies a tool to each item of a list, several items in parallel.

    Its structured output is the list of results in the order of the items; its text is the same as JSON. It fails when
    all items fail; with ``FAIL_FAST``, when one does. A failed item is never a value for a next step: the pipeline
    fails with its index and error. In a pipeline the list is the structured output of the previous step, or its text
    read as JSON; a model passes it as ``items``.

    :param tool: the tool to apply
    :param max_concurrency: the most items to process at the same time, an int >= 1; 16 by default
    :param error_strategy: whether the other items continue when one fails
    :param name: the tool's name for the model; by default ``each_`` and the name of the inner tool
    :param description: the tool's description for the model
    :param settings: the settings of any tool, see :class:`Tool`

    >>> from toolsemble import tool
    >>> @tool
    ... def upper(text: str) -> str:
    ...     return text.upper()
    >>> map_over(upper).execute('{"items": [{"text": "rome"}, {"text": "bonn"}]}').output
    '["ROME","BONN"]'
    """
    part = get_definition("The tool of map_over", tool)
    limit = _AT_ONCE if max_concurrency is None else max_concurrency
    check_count("map_over: max_concurrency", limit, least=1)
    fail_fast = check_strategy("map_over", error_strategy) is ErrorStrategy.FAIL_FAST
    text = f"For each item: {part.description}" if description is None else description
    flow = ForEach(Branch.of(part), limit, fail_fast=fail_fast)
    recipe = partial(map_over, tool, max_concurrency, error_strategy=error_strategy, name=name)
    arguments = partial(ListArguments, item=part)
    return CompositeTool(name or shorten_name(f"each_{part.name}"), text, flow, arguments, settings, recipe)


def choose(
    predicate: Callable[[Any], Any],
    then: object,
    otherwise: object,
    *,
    name: str | None = None,
    description: str | None = None,
    **settings: Unpack[ToolSettings],
) -> Tool:
    """Return a tool that runs one of two tools, chosen by a predicate of the input.

    :param predicate: a function of the input, which is the text if both tools take a text; else the values, or the
        text if there are no values. It may be async
    :param then: the tool to run when the predicate returns true
    :param otherwise: the tool to run when it returns false
    :param name: the tool's name for the model; by default ``a_or_b``
    :param description: the tool's description for the model
    :param settings: the settings of any tool, see :class:`Tool`

    >>> from toolsemble import Tool
    >>> class Upper(Tool):
    ...     name, description = "upper", "Says it louder"
    ...     def run(self, input: str) -> str:
    ...         return input.upper()
    >>> class Same(Tool):
    ...     name, description = "same", "Says it again"
    ...     def run(self, input: str) -> str:
    ...         return input
    >>> choose(lambda text: len(text) > 3, Upper(), Same()).execute("rome").output
    'ROME'
    """
    if not callable(predicate):
        raise ToolDefinitionError(f"choose: the predicate must be a function of the input, not {predicate!r:.80}")
    parts = get_definition("The first branch of choose", then), get_definition("The second branch of choose", otherwise)
    names = [part.name for part in parts]
    text = f"One of: {', '.join(names)}" if description is None else description
    flow = Choice(predicate, *map(Branch.of, parts))
    recipe = partial(choose, predicate, then, otherwise, name=name)
    arguments = _combine_arguments(parts, all_run=False)
    return CompositeTool(name or shorten_name("_or_".join(names)), text, flow, arguments, settings, recipe)


def _combine_arguments(parts: tuple[ToolDefinition, ...], *, all_run: bool) -> Callable[[str], Arguments] | None:
    """Return the factory of the combined arguments; None if all parts take a text."""
    if all(part.arguments is None for part in parts):
        return None
    return partial(CombinedArguments, branches=parts, all_run=all_run)
