"""The settings of agents and runs, and the tools that an agent offers to its model."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeAlias, TypedDict

from toolsemble.agent.budget import Limits, Prices, Usage
from toolsemble.agent.checks import check_order, check_types
from toolsemble.agent.loop_guard import LoopGuard
from toolsemble.agent.memory import ConversationMemory
from toolsemble.agent.output import FINAL_ANSWER, Output
from toolsemble.agent.prompt import build_system_message
from toolsemble.agent.retry import Retry
from toolsemble.context import InvocationParameters
from toolsemble.definition.definition import Names
from toolsemble.errors import ToolDefinitionError
from toolsemble.models.chat import ChatModel
from toolsemble.models.message import Message, SystemMessage
from toolsemble.models.registry import model_of
from toolsemble.observers.sinks import Sink, Sinks, build_sinks
from toolsemble.review import ReviewHandler
from toolsemble.runtime.concurrency import is_awaitable
from toolsemble.toolbox.toolbox import Toolbox, names_inside
from toolsemble.tools.base import Tool


class RunSettings(TypedDict, total=False):
    """The keyword arguments of one run."""

    history: Sequence[Message] | None
    """Earlier messages, instead of the stored conversation."""
    memory_id: str | None
    """The id of the conversation or user; the agent's own by default."""
    parameters: MutableMapping[str, Any] | None
    """A mapping that the tools of the run share; the model never sees it."""
    run_id: str | None
    """The id of the run; reuse it after a crash to find earlier effects and approvals. A new one by default."""


@dataclass(frozen=True, slots=True)
class RunView:
    """The state of a run, as passed to a function that returns the agent's tools.

    >>> RunView("r1", "ada", InvocationParameters(), [], Usage(), 0).memory_id
    'ada'
    """

    run_id: str
    """The id that the calls of the run share."""
    memory_id: str
    """The id of the conversation or user."""
    parameters: InvocationParameters
    """The parameters that the tools of the run share."""
    messages: Sequence[Message]
    """The conversation so far."""
    usage: Usage
    """The usage so far."""
    turn: int
    """The number of the model's replies so far."""


DynamicTools: TypeAlias = Callable[[RunView], Iterable[object] | Awaitable[Iterable[object]]]
"""Returns the tools of a run; called before each model request."""


@dataclass(frozen=True, slots=True)
class AgentConfig:
    """The settings of one agent, shared by its runs; immutable."""

    model: ChatModel
    tools: Toolbox | DynamicTools
    system: SystemMessage | None
    role: str
    """The agent's role, for the context of its calls."""
    limits: Limits
    prices: Prices | None
    review: ReviewHandler | None
    memory: ConversationMemory | None
    memory_id: str
    """The default id of the conversation of a run."""
    output: Output | None
    retry: Retry
    settings: Mapping[str, Any]
    """Further settings of each model request."""
    sinks: Sinks | None
    """The sinks of the events of its calls; None: no sinks."""
    loop_guard: LoopGuard | None
    """When a run counts as repeating itself; None: never."""

    @property
    def native_output(self) -> bool:
        """Whether the model supports structured output natively."""
        return bool(getattr(self.model, "native_output", False))

    def names_inside(self) -> Names:
        """Return the names of the tools that a run can call; dynamic tools are not known in advance."""
        return names_inside(self.tools) if isinstance(self.tools, Toolbox) else Names((), all_known=False)

    def __str__(self) -> str:
        tools = ", ".join(self.tools.names) if isinstance(self.tools, Toolbox) else "a function of the run"
        return f"{type(self.model).__name__}, tools: {tools or 'none'}"


def build_config(
    model: ChatModel | str | None,
    tools: Iterable[object] | DynamicTools,
    *,
    limits: tuple[Any, ...],
    goal: str,
    background: str,
    output_type: Any,
    sinks: Iterable[Sink],
    **settings: Any,
) -> AgentConfig:
    """Return the settings of an agent; raise :class:`~toolsemble.ToolDefinitionError` if one is not valid.

    :param limits: the fields of :class:`Limits`
    :param settings: the other fields of :class:`AgentConfig`
    """
    check_order(model, tools)
    checked = Limits(*limits)
    check_types(goal=goal, background=background, **settings)
    if checked.max_cost is not None and settings["prices"] is None:
        raise ToolDefinitionError("Agent max_cost needs prices, such as prices=Prices(2, 8)")
    output = None if output_type is None else Output(output_type)
    role = settings["role"]
    return AgentConfig(
        tools=build_tools(tools, settings["review"], role, output),
        system=build_system_message(role, goal, background),
        limits=checked,
        output=output,
        sinks=build_sinks("Agent", sinks),
        **settings | {"settings": MappingProxyType(dict(settings["settings"] or {}))},
        model=model_of(model),  # last, because it may take long
    )


class ToolSource:
    """The tools of one run: always the same, or requested before each model request."""

    def __init__(self, config: AgentConfig) -> None:
        self._config = config
        self._last: tuple[tuple[object, ...], Toolbox] | None = None

    async def box(self, view: Callable[[], RunView]) -> Toolbox:
        """Return the current tools."""
        tools = self._config.tools
        if isinstance(tools, Toolbox):
            return tools
        given = tools(view())
        found = await given if is_awaitable(given) else given
        if isinstance(found, Toolbox):
            return self._build_toolbox(found)
        # Reused while the function returns the same tools: a new box would need new threads and new schemas.
        offered = _check_list(found)
        if self._last is None or not _are_same(self._last[0], offered):
            self._last = offered, self._build_toolbox(offered)
        return self._last[1]

    def _build_toolbox(self, tools: Iterable[object]) -> Toolbox:
        return build_toolbox(tools, self._config.review, self._config.role, self._config.output)


def build_tools(
    tools: Iterable[object] | DynamicTools, review: ReviewHandler | None, role: str, output: Output | None
) -> Toolbox | DynamicTools:
    """Return the tools of an agent: a function as it is, anything else as a toolbox."""
    if isinstance(tools, type):
        raise ToolDefinitionError(f"Agent tools must be tools, not the class {tools.__name__}; pass an instance")
    if callable(tools) and not isinstance(tools, (Tool, Iterable)):
        _check_function(tools)
        return tools
    return build_toolbox(tools, review, role, output)


def build_toolbox(tools: Iterable[object], review: ReviewHandler | None, role: str, output: Output | None) -> Toolbox:
    """Return the toolbox of an agent, which may not have a tool with the name of the final-answer tool."""
    box = tools if isinstance(tools, Toolbox) else Toolbox(tools, review=review, agent_role=role or "unknown")
    if output is not None and FINAL_ANSWER in box:
        raise ToolDefinitionError(f"The name '{FINAL_ANSWER}' is reserved for output_type; rename the tool")
    return box


def _check_function(tools: Callable[..., object]) -> None:
    """Raise if a function does not take a view of the run, such as one that was meant as a tool."""
    try:
        inspect.signature(tools).bind(None)
    except TypeError:
        raise ToolDefinitionError(
            f"Agent tools must be tools, or a function that takes a RunView and returns tools; {tools!r:.80} takes "
            "something else. To use it as a tool, decorate it with @tool and pass [it]"
        ) from None
    except ValueError:
        return  # its signature is unknown


def _check_list(found: object) -> tuple[object, ...]:
    if not isinstance(found, Iterable):
        raise TypeError(f"The function for an agent's tools must return a list of tools, not {found!r:.80}")
    return tuple(found)


def _are_same(one: tuple[object, ...], other: tuple[object, ...]) -> bool:
    return len(one) == len(other) and all(first is second for first, second in zip(one, other, strict=True))
