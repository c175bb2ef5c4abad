"""The tools of one toolbox: collected, checked, and known by their names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NoReturn, TypeAlias

from toolsemble.context import ToolContext
from toolsemble.definition.definition import Names, ToolDefinition, map_definition
from toolsemble.errors import ToolArgumentsError, ToolDefinitionError
from toolsemble.limits.declared import BoxLimits
from toolsemble.review.gate import OuterGate
from toolsemble.runtime.text import preview
from toolsemble.shape import describe_error
from toolsemble.tools.collection import collect_tools

_NAMES_SHOWN = 50
LONGEST_NAME = 64
"""How many characters of the name of an unknown tool are shown."""
_MOST_COMPARED = 200
_UNKNOWN = "(unknown)"  # no tool can have this name, and a model cannot fill the metrics with names of its own

Defined: TypeAlias = tuple[object, ToolDefinition]
"""A tool and its definition."""


@dataclass(frozen=True, slots=True)
class Registered:
    """One tool of the box, with what can be known of its calls."""

    tool: object
    """The tool as it was given."""
    definition: ToolDefinition
    """What the call path works with."""
    context: ToolContext
    """What is known beforehand of the contexts of its calls."""
    limit: int | None
    """How many characters of a result the model gets; None for all."""


def register_tools(
    tools: Iterable[object], outer: OuterGate | None, limits: BoxLimits, context: ToolContext, max_output: int | None
) -> dict[str, Registered]:
    """Return the tools of a toolbox by name, with its gate and limits; report all bad definitions in one error.

    :param context: the context fields that all calls of the toolbox share
    :param max_output: characters of a result that the model gets, unless the tool sets less; None: no limit

    >>> register_tools([None, 5], None, BoxLimits.of(None, 0, None), ToolContext(), None)
    Traceback (most recent call last):
    ...
    toolsemble.errors.ToolDefinitionError: Tool at index 0 is None; pass a tool object
    Tool at index 1 (int) is neither an AgentTool nor has @tool methods
    """
    found = _collect(tools)
    definitions = limits.given_to(_add_gate([definition for _, definition in found], outer))
    pairs = zip((tool for tool, _ in found), definitions, strict=True)
    return {each.name: register_tool(tool, each, context, max_output) for tool, each in pairs}


def register_tool(tool: object, definition: ToolDefinition, context: ToolContext, max_output: int | None) -> Registered:
    """Return a tool with the parts of its calls that are known in advance; parameters as in :func:`register_tools`."""
    # The fewer context fields are set at the call, the faster it is.
    known = context.derive({"tool_name": definition.name, "logger": definition.logger})
    own = None if definition.policy is None else definition.policy.max_output
    limits = [limit for limit in (own, max_output) if limit is not None]
    return Registered(tool, definition, known, min(limits, default=None))


def unknown_tool(name: str, known: Sequence[str]) -> ToolDefinition:
    """Give a tool that stands in for an unknown one: it refuses every call with the names that exist.

    >>> unknown_tool("wether", ["weather"]).decode("{}", frozenset())
    Traceback (most recent call last):
    ...
    toolsemble.errors.ToolArgumentsError: Unknown tool 'wether'. Available tools: weather. Did you mean 'weather'?
    """

    def refuse(*_: object) -> NoReturn:
        raise ToolArgumentsError(unknown_tool_message(name, known))

    return ToolDefinition(_UNKNOWN, "", body=refuse, decode=refuse, accept=refuse)


def _collect(tools: Iterable[object]) -> list[Defined]:
    if isinstance(tools, (str, bytes, Mapping)) or not isinstance(tools, Iterable):
        raise ToolDefinitionError(f"A toolbox takes a list of tools, not {type(tools).__name__}: write Toolbox([...])")
    found: dict[str, Defined] = {}
    problems: list[str] = []
    for index, source in enumerate(tools):
        try:
            defined = _defined(index, source)
        except ToolDefinitionError as problem:
            problems.append(str(problem))
            continue
        for tool, definition in defined:
            if definition.name in found:
                problems.append(f"Duplicate tool name: '{definition.name}'")
            found[definition.name] = tool, definition
    if problems:
        raise ToolDefinitionError("\n".join(dict.fromkeys(problems)))
    return list(found.values())


def _defined(index: int, source: object) -> list[Defined]:
    if source is None:
        raise ToolDefinitionError(f"Tool at index {index} is None; pass a tool object")
    if isinstance(source, type):
        name = source.__name__
        raise ToolDefinitionError(f"Tool at index {index} ({name}) is a class; pass an instance: {name}(...)")
    place = f"Tool at index {index} ({type(source).__name__})"
    try:
        defined = collect_tools(source)
    except Exception as problem:
        # A property of somebody else's object can raise anything.
        raise ToolDefinitionError(f"{place}: {describe_error(problem)}") from problem
    if not defined:
        raise ToolDefinitionError(f"{place} is neither an AgentTool nor has @tool methods")
    return defined


def _add_gate(definitions: list[ToolDefinition], outer: OuterGate | None) -> list[ToolDefinition]:
    """Give the tools with the gate that the box puts before them."""
    if outer is None:
        return definitions
    names = names_in(definitions)
    outer.check(names.found, all_known=names.all_known)
    # Also before the steps of a pipeline: a tool that needs approval must not get around it by standing in one.
    return [
        map_definition(each, lambda part: replace(part, gate=outer.around(part.name, part.gate)))
        for each in definitions
    ]


def names_in(definitions: Iterable[ToolDefinition]) -> Names:
    """Return the names of tools, of those that they are made of, and of those that agents among them can call.

    >>> names_in([unknown_tool("wether", [])])
    Names(found=('(unknown)',), all_known=True)
    """
    found: list[str] = []
    all_known = True
    for definition in definitions:
        found.append(definition.name)
        deeper = () if definition.flow is None else (names_in(definition.flow.tools()),)
        for names in deeper if definition.inside is None else (*deeper, definition.inside()):
            found += names.found
            all_known = all_known and names.all_known
    return Names(tuple(found), all_known)


def unknown_tool_message(name: str, known: Sequence[str]) -> str:
    """Return what a model is told that calls a tool which is not there.

    >>> unknown_tool_message("now", [])
    "Unknown tool 'now'. Available tools: none"
    """
    import difflib  # noqa: PLC0415 - only a model's mistake comes here

    shown = ", ".join(known[:_NAMES_SHOWN]) or "none"
    more = f" and {len(known) - _NAMES_SHOWN} more" if len(known) > _NAMES_SHOWN else ""
    # Comparing is quadratic in the length, and a name longer than any tool's is near to none.
    folded = {each.casefold(): each for each in reversed(known)} if len(name) <= LONGEST_NAME else {}
    near = difflib.get_close_matches(name.casefold(), _likely(name.casefold(), folded), n=1)
    hint = f". Did you mean '{folded[near[0]]}'?" if near else ""
    return f"Unknown tool '{preview(name, LONGEST_NAME)}'. Available tools: {shown}{more}{hint}"


def _likely(name: str, known: Iterable[str]) -> list[str]:
    """Give the names whose pairs of letters are most like those of one, out of many: comparing with all takes long."""
    pairs, found = set(pairwise(name)), list(known)
    if len(found) > _MOST_COMPARED:
        found.sort(key=lambda each: len(pairs.intersection(pairwise(each))) / (len(name) + len(each)), reverse=True)
    return found[:_MOST_COMPARED]
