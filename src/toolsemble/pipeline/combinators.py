"""Tools made of tools that do not stand in one line: all of them, one of them, or one for each item."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias, Unpack, final

from toolsemble.definition.definition import (
    ToolDefinition,
    check_description,
    check_name,
    string_definition,
    typed_definition,
)
from toolsemble.errors import ToolDefinitionError
from toolsemble.pipeline.branch import Branch
from toolsemble.pipeline.combined_arguments import ListArguments, UnitedArguments, shown_text
from toolsemble.pipeline.flows import Choice, Each, Fan
from toolsemble.pipeline.handoff import as_it_is
from toolsemble.pipeline.step import definition_of
from toolsemble.pipeline.strategy import ErrorStrategy, checked_strategy
from toolsemble.result import ToolResult
from toolsemble.schema.decode import Arguments
from toolsemble.tools.base import Tool
from toolsemble.tools.settings import BareSettings, ToolSettings

Merge: TypeAlias = Callable[[dict[str, ToolResult]], Any]
"""Makes one result of those of all branches; it may be async."""

_AT_ONCE = 16


class EachSettings(BareSettings, total=False):
    """What can be said about a tool that is mapped over a list: its ``max_concurrency`` counts items, not calls."""

    timeout: float | None
    max_output: int | None


class Branches(Tool):
    """A tool that is made of tools; see :func:`fan_out`, :func:`map_over` and :func:`choose`."""

    def __init__(
        self,
        name: str,
        description: str,
        flow: Fan | Each | Choice,
        arguments: Callable[[str], Arguments] | None,
        settings: BareSettings,
        recipe: Callable[[], Tool],
    ) -> None:
        self.name = _checked(name)
        self.description = check_description(self.name, description)
        self._flow = flow
        self._arguments = None if arguments is None else arguments(self.name)
        self._recipe = recipe
        self._apply(settings)

    def __reduce__(self) -> tuple[Any, ...]:
        made = {"_flow", "_arguments", "_recipe"}
        return self._recipe, (), {name: value for name, value in vars(self).items() if name not in made}

    @final
    def run(self, input: Any) -> Any:
        """Give the result for one input, as :meth:`execute` does."""
        return self.execute(input)

    def _define(self) -> ToolDefinition:
        shared: dict[str, Any] = {
            **self._declared(),
            "flow": self._flow,
            "hand": as_it_is,
            "returns": self._flow.returns,
        }
        if self._arguments is None:
            return string_definition(self.name, self.description, self.run, present=shown_text, **shared)
        return typed_definition(self.name, self.description, self.run, self._arguments, **shared)


def fan_out(
    *tools: object,
    merge: Merge | None = None,
    error_strategy: ErrorStrategy = ErrorStrategy.CONTINUE_ON_FAILURE,
    name: str | None = None,
    description: str | None = None,
    **settings: Unpack[ToolSettings],
) -> Tool:
    """Give a tool that runs several tools side by side on the same input.

    Its structured output is a dict of each tool's name and result, its text the same as JSON. It fails when all of
    them fail; with ``FAIL_FAST``, when one does: then the others are cancelled, and that one's result is the result.
    Branches share the input: an object that one of them changes is changed for all. Only branches that are gated,
    cached, made once or retried take a copy, and so do all branches of what a reviewer has approved as a whole.

    :param tools: the branches; a model that calls the tool is asked for what all of them take together
    :param merge: makes one result of the dict of results; whatever it returns is shaped as a tool's own
    :param error_strategy: what becomes of the others when one fails
    :param name: what a model calls it; by default ``a_and_b``
    :param description: what it does, for the model to choose by
    :param settings: what any tool can say of itself, see :class:`Tool`

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
    parts = tuple(definition_of(f"Branch {number} of fan_out", each) for number, each in enumerate(tools, 1))
    if not parts:
        raise ToolDefinitionError("fan_out has no branches; give it at least one tool")
    names = [part.name for part in parts]
    for each in names:
        if names.count(each) > 1:
            raise ToolDefinitionError(f"Duplicate branch name: '{each}'")
    if merge is not None and not callable(merge):
        raise ToolDefinitionError(f"fan_out: merge must be a function of the results, not {merge!r:.80}")
    fail_fast = checked_strategy("fan_out", error_strategy) is ErrorStrategy.FAIL_FAST
    told = f"Side by side: {', '.join(names)}" if description is None else description
    flow = Fan(tuple(map(Branch.of, parts)), merge, fail_fast=fail_fast)
    again = partial(fan_out, *tools, merge=merge, error_strategy=error_strategy, name=name)
    return Branches(name or "_and_".join(names), told, flow, _united(parts, all_run=True), settings, again)


def map_over(
    tool: object,
    max_concurrency: int | None = None,
    *,
    error_strategy: ErrorStrategy = ErrorStrategy.CONTINUE_ON_FAILURE,
    name: str | None = None,
    description: str | None = None,
    **settings: Unpack[EachSettings],
) -> Tool:
    """Give a tool that applies a tool to each item of a list, several at the same time.

    Its structured output is the list of results in the order of the items, its text the same as JSON. It fails when
    all items fail; with ``FAIL_FAST``, when one does. In a pipeline the list is the structured output of the step
    before it, or its text as JSON; a model that calls the tool gives it as ``items``.

    :param tool: what is applied
    :param max_concurrency: how many items may be in work at the same time; 16 by default
    :param error_strategy: what becomes of the others when one fails
    :param name: what a model calls it; by default ``each_`` and the tool's name
    :param description: what it does, for the model to choose by
    :param settings: what any tool can say of itself, see :class:`Tool`

    >>> from toolsemble import tool
    >>> @tool
    ... def upper(text: str) -> str:
    ...     return text.upper()
    >>> map_over(upper).execute('{"items": [{"text": "rome"}, {"text": "bonn"}]}').output
    '["ROME","BONN"]'
    """
    part = definition_of("The tool of map_over", tool)
    limit: object = _AT_ONCE if max_concurrency is None else max_concurrency
    if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
        raise ToolDefinitionError(f"map_over: max_concurrency must be a whole number from 1 on, not {limit!r}")
    fail_fast = checked_strategy("map_over", error_strategy) is ErrorStrategy.FAIL_FAST
    told = f"For each item: {part.description}" if description is None else description
    flow = Each(Branch.of(part), limit, fail_fast=fail_fast)
    again = partial(map_over, tool, max_concurrency, error_strategy=error_strategy, name=name)
    return Branches(name or f"each_{part.name}", told, flow, lambda owner: ListArguments(owner, part), settings, again)


def choose(
    predicate: Callable[[Any], Any],
    then: object,
    otherwise: object,
    *,
    name: str | None = None,
    description: str | None = None,
    **settings: Unpack[ToolSettings],
) -> Tool:
    """Give a tool that runs one of two tools, as a predicate of the input says.

    :param predicate: gets the input: the text, where both tools take a text; else the values, where there are some.
        It may be async
    :param then: what runs when the predicate says so
    :param otherwise: what runs when it does not
    :param name: what a model calls it; by default ``a_or_b``
    :param description: what it does, for the model to choose by
    :param settings: what any tool can say of itself, see :class:`Tool`

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
    parts = definition_of("The first branch of choose", then), definition_of("The second branch of choose", otherwise)
    names = [part.name for part in parts]
    told = f"One of: {', '.join(names)}" if description is None else description
    flow = Choice(predicate, *map(Branch.of, parts))
    again = partial(choose, predicate, then, otherwise, name=name)
    return Branches(name or "_or_".join(names), told, flow, _united(parts, all_run=False), settings, again)


def _united(parts: tuple[ToolDefinition, ...], *, all_run: bool) -> Callable[[str], Arguments] | None:
    """Give what a model is asked for: one text where that is what all take, else all parameters together."""
    if all(part.arguments is None for part in parts):
        return None
    return lambda owner: UnitedArguments(owner, parts, all_run=all_run)


def _checked(name: str) -> str:
    try:
        return check_name(name)
    except ToolDefinitionError as problem:
        raise ToolDefinitionError(f"{problem}; give it another one with name=...") from None
