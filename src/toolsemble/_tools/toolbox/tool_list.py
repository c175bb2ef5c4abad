"""Collection of a toolbox's tools: nested lists and toolboxes are flattened, and mistakes are explained."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set as AbstractSet, ValuesView
from typing import Any

from toolsemble._runtime.text import describe_error
from toolsemble._tools.collection import collect_tools
from toolsemble._tools.toolbox.formats import ToolSet
from toolsemble._tools.toolbox.registry import Defined
from toolsemble._vocabulary.errors import ToolDefinitionError

_LISTS = (Sequence, AbstractSet, Iterator, ValuesView)
_NO_LISTS = (str, bytes, bytearray, memoryview)
_MAX_DEPTH = 20


def collect_members(tools: object, *, reviewed: bool = False) -> list[Defined]:
    """Return a list's tools with their definitions; report all invalid ones in one error.

    :param reviewed: whether tools of nested toolboxes keep their toolbox's reviewer

    >>> collect_members([None, 5])
    Traceback (most recent call last):
    ...
    toolsemble.ToolDefinitionError: Tool at index 0 is None; pass a tool object
    Tool at index 1 (int) is neither an AgentTool nor has @tool methods
    """
    if isinstance(tools, (str, bytes, Mapping)) or not isinstance(tools, Iterable):
        raise ToolDefinitionError(_explain_no_list(tools))
    found: dict[str, Defined] = {}
    problems: list[str] = []
    for member in _Collector(problems, reviewed=reviewed).flatten(tools, ""):
        name = member[1].name
        if name in found:
            advice = (
                "pass prefix= to one MCPClient"
                if "mcp" in member[1].metadata
                else "rename one of them: tool.renamed('other_name'), "
                "or box.prefixed('other_') for all tools of a toolbox"
            )
            problems.append(f"Duplicate tool name: '{name}'; {advice}")
        found[name] = member
    if problems:
        raise ToolDefinitionError("\n".join(dict.fromkeys(problems)))
    _warn_undescribed(found)
    return list(found.values())


class _Collector:
    """A walk through a list of tools, and the lists and toolboxes in it; collects the problems."""

    def __init__(self, problems: list[str], *, reviewed: bool) -> None:
        self._problems = problems
        self._reviewed = reviewed

    def flatten(self, tools: Iterable[object], place: str) -> Iterator[Defined]:
        """Yield the tools of a list.

        :param place: the list's index path: empty, or such as ``1[0]``
        """
        for index, source in enumerate(tools):
            where = f"{place}[{index}]" if place else str(index)
            try:
                yield from self._find(source, where)
            except ToolDefinitionError as problem:
                self._problems.append(str(problem))

    def _find(self, source: object, where: str) -> Iterable[Defined]:
        """Return the tools of one list member."""
        if isinstance(source, ToolSet):
            return self._take_over(source, where)
        if defined := _define(source, where):
            return defined
        if not isinstance(source, _LISTS) or isinstance(source, _NO_LISTS):
            raise ToolDefinitionError(_explain(source, where))
        if where.count("[") > _MAX_DEPTH:
            raise ToolDefinitionError(f"Tool at index {where.partition('[')[0]}: lists are nested too deeply")
        return self.flatten(source, where)

    def _take_over(self, box: ToolSet, where: str) -> list[Defined]:
        """Return a toolbox's tools with its gate and limits; raise if its hooks would be dropped silently."""
        settings = getattr(box, "_settings", None)
        if settings is not None and settings.hooks is not None:
            raise ToolDefinitionError(
                f"Tool at index {where} is a Toolbox with before_call or after_call, which its tools would lose; pass "
                "the hooks to the new toolbox, and its tools with *box"
            )
        return box.members(reviewed=self._reviewed)


def _define(source: object, where: str) -> list[Defined]:
    if source is None:
        raise ToolDefinitionError(f"Tool at index {where} is None; pass a tool object")
    if isinstance(source, type):
        name = source.__name__
        raise ToolDefinitionError(f"Tool at index {where} ({name}) is a class; pass an instance: {name}(...)")
    try:
        return collect_tools(source)
    except Exception as problem:
        # A property of a foreign object can raise anything.
        place = f"Tool at index {where} ({type(source).__name__})"
        raise ToolDefinitionError(f"{place}: {describe_error(problem)}") from problem


def _explain_no_list(tools: object) -> str:
    from toolsemble._tools.mistakes import explain_mistake

    plain = f"A toolbox takes a list of tools, not {type(tools).__name__}; write Toolbox([...])"
    explained = None if isinstance(tools, (str, Mapping)) else explain_mistake(tools)
    return f"{plain}; {explained}" if explained else plain


def _explain(source: Any, where: str) -> str:
    from toolsemble._tools.mistakes import explain_mistake

    place = f"Tool at index {where}"
    if explained := explain_mistake(source):
        return f"{place}: {explained}"
    return f"{place} ({type(source).__name__}) is neither an AgentTool nor has @tool methods"


def _warn_undescribed(found: Mapping[str, Defined]) -> None:
    """Warn about tools without a description, because models need one to choose."""
    for name, (_, definition) in found.items():
        if not definition.description.strip():
            from toolsemble._runtime.checks import warn_user

            warn_user(
                f"Tool '{name}' has no description, by which a model chooses tools; write a docstring, or pass "
                "description=..."
            )
