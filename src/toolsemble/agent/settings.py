"""What an agent is, as its runs see it; and what a run is, as dynamic tools see it."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypedDict

from toolsemble.agent.budget import Limits, Prices, Usage
from toolsemble.agent.loop_guard import LoopGuard
from toolsemble.agent.memory import ConversationMemory
from toolsemble.agent.output import FINAL_ANSWER, Output
from toolsemble.agent.retry import Retry
from toolsemble.context import InvocationParameters
from toolsemble.errors import ToolDefinitionError
from toolsemble.models.chat import ChatModel
from toolsemble.models.message import Message, SystemMessage
from toolsemble.observers.sinks import Sinks
from toolsemble.review import ReviewHandler
from toolsemble.runtime.concurrency import is_awaitable
from toolsemble.toolbox.toolbox import Toolbox
from toolsemble.tools.base import Tool


class RunSettings(TypedDict, total=False):
    """What can be said about one run, by keyword."""

    history: Sequence[Message] | None
    """What was said before, in place of what is remembered."""
    memory_id: str | None
    """The conversation or user that the run belongs to; the agent's own by default."""
    parameters: MutableMapping[str, Any] | None
    """What the tools of the run share; the model never sees it."""
    run_id: str | None
    """The name of the run: the same again after a crash finds what was done and approved; a new one by default."""


@dataclass(frozen=True, slots=True)
class RunView:
    """What a function that gives an agent's tools can know of the run.

    >>> RunView("r1", "ada", InvocationParameters(), [], Usage(), 0).memory_id
    'ada'
    """

    run_id: str
    """The id that the calls of the run share."""
    memory_id: str
    """The conversation or user that the run belongs to."""
    parameters: InvocationParameters
    """What the tools of the run share."""
    messages: Sequence[Message]
    """The conversation so far."""
    usage: Usage
    """What was spent so far."""
    turn: int
    """How many times the model has answered."""


DynamicTools: TypeAlias = Callable[[RunView], Iterable[object] | Awaitable[Iterable[object]]]
"""Gives the tools that a run offers, before each time that the model is asked."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that the runs of one agent share; none of it changes."""

    model: ChatModel
    """Who is asked."""
    tools: Toolbox | DynamicTools
    """What is offered."""
    system: SystemMessage | None
    """What the model is told of itself."""
    role: str
    """The agent's role, for its tools."""
    limits: Limits
    """What a run may spend."""
    prices: Prices | None
    """What tokens cost."""
    review: ReviewHandler | None
    """Who approves calls."""
    memory: ConversationMemory | None
    """Where conversations are kept."""
    memory_id: str
    """The conversation that a run belongs to, unless it says otherwise."""
    output: Output | None
    """What answers must be."""
    retry: Retry
    """When a model that failed is asked again."""
    settings: Mapping[str, Any]
    """What else the model is told with each request."""
    sinks: Sinks | None
    """Who is told of the events of its calls; None for nobody."""
    loop_guard: LoopGuard | None
    """When a run counts as going in circles; None for never."""

    @property
    def native_output(self) -> bool:
        """Whether the model can hold its answers to a schema by itself."""
        return bool(getattr(self.model, "native_output", False))


class Offer:
    """The tools of one run: always the same, or asked for before each time that the model is asked."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._last: tuple[tuple[object, ...], Toolbox] | None = None

    async def box(self, view: Callable[[], RunView]) -> Toolbox:
        """Give the tools that are offered now."""
        tools = self._plan.tools
        if isinstance(tools, Toolbox):
            return tools
        given = tools(view())
        found = await given if is_awaitable(given) else given
        if isinstance(found, Toolbox):
            return self._box_of(found)
        # Kept as long as the very same tools are given: a new box would mean new threads and new schemas.
        offered = _listed(found)
        if self._last is None or not _same(self._last[0], offered):
            self._last = offered, self._box_of(offered)
        return self._last[1]

    def _box_of(self, tools: Iterable[object]) -> Toolbox:
        return box_of(tools, self._plan.review, self._plan.role, self._plan.output)


def offered(
    tools: Iterable[object] | DynamicTools, review: ReviewHandler | None, role: str, output: Output | None
) -> Toolbox | DynamicTools:
    """Give what an agent offers: a function of the run as it is, anything else as a toolbox."""
    if isinstance(tools, type):
        raise ToolDefinitionError(f"Agent tools must be tools, not the class {tools.__name__}; give an object of it")
    if callable(tools) and not isinstance(tools, (Tool, Iterable)):
        _check_function(tools)
        return tools
    return box_of(tools, review, role, output)


def box_of(tools: Iterable[object], review: ReviewHandler | None, role: str, output: Output | None) -> Toolbox:
    """Give the toolbox of an agent: one that was given stays as it is, unless it takes the name of the answer."""
    if not isinstance(tools, Toolbox):
        _check_each(tools)
    box = tools if isinstance(tools, Toolbox) else Toolbox(tools, review=review, agent_role=role or "unknown")
    if output is not None and FINAL_ANSWER in box:
        raise ToolDefinitionError(f"The name '{FINAL_ANSWER}' is needed for answers of output_type; rename the tool")
    return box


def _check_function(tools: Callable[..., object]) -> None:
    """Refuse a function that cannot be given a view of the run, such as one that was meant as a tool."""
    try:
        inspect.signature(tools).bind(None)
    except TypeError:
        raise ToolDefinitionError(
            f"Agent tools must be tools, or a function with one parameter, the view of the run, that gives some; "
            f"{tools!r:.80} takes something else. To make a tool of it, decorate it with @tool and give [it]"
        ) from None
    except ValueError:
        return  # nobody knows what it takes


def _check_each(tools: object) -> None:
    """Say what to write in place of agents and boxes that stand where tools have to."""
    for each in tools if isinstance(tools, (list, tuple)) else [tools]:
        if callable(getattr(each, "as_tool", None)):
            raise ToolDefinitionError("An Agent is no tool: give agent.as_tool(name, description) in its place")
        if isinstance(each, Toolbox):
            raise ToolDefinitionError("A Toolbox is no tool: give the box itself, Agent(model, box), not a list of it")


def _listed(found: object) -> tuple[object, ...]:
    if not isinstance(found, Iterable):
        raise TypeError(f"The function for an agent's tools must give a list of tools, not {found!r:.80}")
    return tuple(found)


def _same(one: tuple[object, ...], other: tuple[object, ...]) -> bool:
    return len(one) == len(other) and all(first is second for first, second in zip(one, other, strict=True))
