"""A toolbox's registry: collects tools, validates their definitions, and finds them by name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, NoReturn, TypeAlias

from toolsemble._engine.context import ToolContext
from toolsemble._engine.definition import Names, Need, ToolDefinition, map_definition
from toolsemble._runtime.text import preview
from toolsemble._vocabulary.errors import UnknownToolError

if TYPE_CHECKING:
    from toolsemble._engine.limits.policy import BoxLimits
    from toolsemble.review._gate import OuterGate

_NAMES_SHOWN = 50
LONGEST_NAME = 64
"""The maximum length of an unknown tool's name in error messages."""
_MOST_COMPARED = 200
_UNKNOWN = "(unknown)"  # not a valid tool name; keeps names invented by models out of the metrics

Defined: TypeAlias = tuple[object, ToolDefinition]
"""A tool and its definition."""


@dataclass(frozen=True, slots=True)
class Registered:
    """A toolbox tool with its precomputed call data."""

    tool: object
    """The tool object that was passed in."""
    definition: ToolDefinition
    """The definition that the call path uses."""
    context: ToolContext
    """The context of its calls, without per-call fields."""
    limit: int | None
    """The maximum length of a result for the model; None: no limit."""
    fixed: bool = False
    """Whether the tool belongs to the toolbox itself, like the paging tool, so that it keeps its name."""


def register_tools(
    found: Sequence[Defined],
    outer: OuterGate | None,
    limits: BoxLimits | None,
    context: ToolContext,
    max_output: int | None,
) -> dict[str, Registered]:
    """Return a toolbox's tools by name, with its gate and limits.

    :param found: the tools, with unique names
    :param context: the context fields that all calls of the toolbox share
    :param max_output: the maximum length of a result for the model, unless the tool sets less; None: no limit

    >>> register_tools([], None, None, ToolContext(), None)
    {}
    """
    definitions = add_gate([definition for _, definition in found], outer)
    if limits is not None:
        definitions = limits.apply_to(definitions)
    pairs = zip((tool for tool, _ in found), definitions, strict=True)
    return {each.name: register_tool(tool, each, context, max_output) for tool, each in pairs}


def register_tool(tool: object, definition: ToolDefinition, context: ToolContext, max_output: int | None) -> Registered:
    """Return a tool with its precomputed call data; parameters as in :func:`register_tools`."""
    # Setting fewer context fields per call is faster.
    known = context.derive({"tool_name": definition.name, "logger": definition.logger})
    own = None if definition.policy is None else definition.policy.max_output
    limits = [limit for limit in (own, max_output) if limit is not None]
    return Registered(tool, definition, known, min(limits, default=None))


def unknown_tool(name: str, known: Sequence[str], refusal: str = "") -> ToolDefinition:
    """Return the definition for calls of an unknown tool: every call fails with the available names.

    :param refusal: why a lock hides it; "" if none does

    >>> unknown_tool("wether", ["weather"]).decode("{}", frozenset())
    Traceback (most recent call last):
    ...
    toolsemble._vocabulary.errors.UnknownToolError: Unknown tool 'wether'. \
Available tools: weather. Did you mean 'weather'?
    """

    def refuse(*_: object) -> NoReturn:
        raise UnknownToolError(f"The lock hides '{name}': {refusal}" if refusal else unknown_tool_message(name, known))

    return ToolDefinition(_UNKNOWN, "", body=refuse, decode=refuse, accept=refuse)


def add_gate(definitions: list[ToolDefinition], outer: OuterGate | None) -> list[ToolDefinition]:
    """Return the definitions with the toolbox's approval gate added."""
    if outer is None:
        return definitions
    names = names_in(definitions)
    outer.check(names.found, all_known=names.all_known)
    # Pipeline steps are also gated: putting a tool into a pipeline must not skip its approval.
    return [
        map_definition(each, lambda part: replace(part, gate=outer.around(part.names, part.gate)))
        for each in definitions
    ]


def names_in(definitions: Iterable[ToolDefinition]) -> Names:
    """Return the names of tools, tools inside their flows, and tools that their agents can call.

    >>> names_in([unknown_tool("wether", [])])
    Names(found=('(unknown)',), all_known=True)
    """
    found: list[str] = []
    all_known = True
    for definition in definitions:
        found += definition.names
        deeper = () if definition.flow is None else (names_in(definition.flow.tools()),)
        for names in deeper if definition.inside is None else (*deeper, definition.inside()):
            found += names.found
            all_known = all_known and names.all_known
    return Names(tuple(found), all_known)


def find_needs(definitions: Iterable[ToolDefinition]) -> dict[str, Need]:
    """Return the context fields that a run must set for its tools, each with a tool that needs it.

    >>> find_needs([unknown_tool("wether", [])])
    {}
    """
    needs: dict[str, Need] = {}
    for definition in definitions:
        inside = {} if definition.flow is None else find_needs(definition.flow.tools())
        own = {name: Need(definition.name, declared) for name, declared in definition.needs.items()}
        needs = inside | own | needs
    return needs


def has_secret_parameters(tools: Iterable[ToolDefinition]) -> bool:
    """Return whether one of the tools, or a tool inside its flow, has a secret parameter.

    >>> has_secret_parameters([])
    False
    """
    return any(each.secret or (each.flow is not None and has_secret_parameters(each.flow.tools())) for each in tools)


def unknown_tool_message(name: str, known: Sequence[str]) -> str:
    """Return the error message for a call of an unknown tool.

    >>> unknown_tool_message("now", [])
    "Unknown tool 'now'. Available tools: none"
    """
    import difflib

    shown = ", ".join(known[:_NAMES_SHOWN]) or "none"
    more = f" and {len(known) - _NAMES_SHOWN} more" if len(known) > _NAMES_SHOWN else ""
    # Matching is quadratic in the length, and overlong names cannot be a close match.
    folded = {each.casefold(): each for each in reversed(known)} if len(name) <= LONGEST_NAME else {}
    near = difflib.get_close_matches(name.casefold(), _candidates(name.casefold(), folded), n=1)
    hint = f". Did you mean '{folded[near[0]]}'?" if near else ""
    return f"Unknown tool '{preview(name, LONGEST_NAME)}'. Available tools: {shown}{more}{hint}"


def _candidates(name: str, known: Iterable[str]) -> list[str]:
    """Return the names that share the most bigrams with a name: matching against all names takes too long."""
    pairs, found = set(pairwise(name)), list(known)
    if len(found) > _MOST_COMPARED:
        found.sort(key=lambda each: len(pairs.intersection(pairwise(each))) / (len(name) + len(each)), reverse=True)
    return found[:_MOST_COMPARED]
