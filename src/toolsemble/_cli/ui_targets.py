"""Load the tools and agents that the web interface can call."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from types import ModuleType

from toolsemble._cli.targets import BUILT_INS, PREFIX, find_tools, load_deps, load_object, load_tools, split_targets
from toolsemble._tools.toolbox.toolbox import Toolbox
from toolsemble._ui.interface import Targets
from toolsemble._vocabulary.errors import ToolDefinitionError
from toolsemble.agent._agent import Agent


def load_targets(texts: Iterable[str], deps: str | None = None) -> Targets:
    """Return the targets' tools, agents and deps; a module may define any number of each.

    >>> load_targets(["calculator"]).names
    ['calculator']
    """
    agents: dict[str, Agent] = {}
    boxes: list[tuple[str, Toolbox]] = []
    loose: list[tuple[str, object]] = []
    for target in split_targets(texts):
        found = _load_agents(target)
        for agent in found:
            if agents.setdefault(agent.name, agent) is not agent:
                raise ToolDefinitionError(
                    f"Two agents are named '{agent.name}'; pass Agent(name=...) to tell them apart"
                )
        boxes += [(target, agent.toolbox) for agent in found if agent.toolbox is not None]
        for each in _load_tools(target, has_agents=bool(found)):
            if isinstance(each, Toolbox):
                boxes.insert(0, (target, each))  # with its own gates and reviewer: before the bare tools
            else:
                loose.append((target, each))
    boxes += [(target, Toolbox([tool])) for target, tool in loose]
    sources = dict(_name_sources(boxes))
    return Targets(tuple(box for _, box in boxes), agents, sources, load_deps(deps), deps or "")


def _load_agents(target: str) -> Sequence[Agent]:
    if target.startswith(PREFIX) or target.partition(":")[0] in BUILT_INS:
        return []
    thing = load_object(target)
    if isinstance(thing, ModuleType):
        return [each for name, each in vars(thing).items() if isinstance(each, Agent) and not name.startswith("_")]
    return [thing] if isinstance(thing, Agent) else []


def _load_tools(target: str, *, has_agents: bool) -> Iterable[object]:
    if not has_agents:
        return load_tools(target)
    thing = load_object(target)
    return find_tools(thing).values() if isinstance(thing, ModuleType) else ()


def _name_sources(boxes: Iterable[tuple[str, Toolbox]]) -> Iterator[tuple[str, str]]:
    """Return the tools with their targets, the first of each name last, so that it takes precedence."""
    for target, box in reversed([*boxes]):
        yield from ((name, target) for name in box.names)
