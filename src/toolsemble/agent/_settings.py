"""The checked settings of agents and runs, and the tools that an agent offers to its model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from toolsemble._engine.definition import Names, Need
from toolsemble._runtime.checks import check_setting, warn_deprecated
from toolsemble._runtime.event_loops import is_awaitable
from toolsemble._runtime.sinks import Sinks, build_sinks
from toolsemble._runtime.text import describe_type
from toolsemble._schema.members import accepts_none
from toolsemble._tools.base import Tool
from toolsemble._tools.toolbox.formats import names_inside
from toolsemble._tools.toolbox.toolbox import Toolbox
from toolsemble._vocabulary.errors import ToolConfigurationError, ToolDefinitionError
from toolsemble.agent import _conversation as conversation
from toolsemble.agent._budget import LIMITS, Limits, Prices
from toolsemble.agent._deps import DepsSource
from toolsemble.agent._history_processors import read_processors
from toolsemble.agent._memory import ConversationMemory
from toolsemble.agent._options import AgentSettings, DynamicTools, LoopGuard, Retry, RunView, ToolFunction
from toolsemble.agent._output import FINAL_ANSWER, Output
from toolsemble.models._chat import ChatModel, Reasoning
from toolsemble.models._message import SystemMessage
from toolsemble.models._registry import model_of
from toolsemble.review import ReviewHandler
from toolsemble.review._request import is_reviewer

if TYPE_CHECKING:
    from toolsemble.agent._journal.journal import RunJournal


def check_types(**settings: object) -> None:
    """Raise :class:`ToolDefinitionError` if a setting of an agent has the wrong type.

    >>> check_types(role="a librarian", retry=3)
    Traceback (most recent call last):
    ...
    toolsemble.ToolDefinitionError: Agent retry must be a Retry, such as Retry(attempts=3), not 3
    """
    for name, value in settings.items():
        expected, fits = _SETTINGS[name]
        if not fits(value):
            hint = f"; pass {value.__name__}()" if isinstance(value, type) and name in _INSTANCES else ""
            raise ToolDefinitionError(f"Agent {name} must be {expected}, not {value!r:.80}{hint}")


def check_order(model: object, tools: object) -> None:
    """Raise :class:`ToolDefinitionError` if there are tools in the place of the model.

    >>> check_order([], "openai:gpt-5")
    Traceback (most recent call last):
    ...
    toolsemble.ToolDefinitionError: Agent takes the model first, then the tools: Agent('openai:gpt-5', [...])
    """
    if isinstance(model, (list, tuple, Toolbox, Tool)):
        meant = repr(tools) if isinstance(tools, str) else "model"
        raise ToolDefinitionError(f"Agent takes the model first, then the tools: Agent({meant:.80}, [...])")


_OLD_NAMES = {"max_iterations": "max_tool_calls"}
_INSTRUCTIONS = {"system_prompt", "system", "system_message", "prompt", "instruction"}


def check_keywords(owner: str, given: Iterable[str], known: Sequence[str]) -> None:
    """Raise TypeError if a setting is unknown.

    >>> check_keywords("A run", ["memory"], ["history", "memory_id"])
    Traceback (most recent call last):
    ...
    TypeError: A run has no setting 'memory'; did you mean memory_id?
    """
    for name in [name for name in given if name not in known]:
        if name in _INSTRUCTIONS and "instructions" in known:
            raise TypeError(f"{owner} has no setting '{name}'; did you mean instructions?")
        check_setting(owner, name, known, _OLD_NAMES)


def replace_old_names(owner: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings by their current names; warn of each old name, and raise TypeError if both are given.

    >>> replace_old_names("Agent", {"max_tool_calls": 3})
    {'max_tool_calls': 3}
    """
    settings = dict(given)
    for old, new in _OLD_NAMES.items():
        if old in settings:
            if new in settings:
                raise TypeError(f"{owner} takes {new}, or its old name {old}, not both")
            settings[new] = settings.pop(old)
            warn_deprecated(f"{owner}({old}=…)", f"{owner}({new}=…)", removed_in="0.5")
    return settings


_HISTORY = "a list of messages, such as result.messages"


def check_run(history: object, memory_id: object, parameters: object, run_id: object) -> None:
    """Raise TypeError if a setting of a run has the wrong type; None is always allowed."""
    if isinstance(history, (str, bytes)):
        raise TypeError(f"The history of a run must be {_HISTORY}, not {history!r:.80}")
    for name, value, kind, expected in (
        ("history", history, Iterable, _HISTORY),
        ("memory_id", memory_id, str, "a str"),
        ("run_id", run_id, str, "a str"),
        ("parameters", parameters, MutableMapping, "a mutable mapping, such as {'user': 'ada'}"),
    ):
        if value is not None and not isinstance(value, kind):
            raise TypeError(f"The {name} of a run must be {expected}, not {value!r:.80}")
    if isinstance(run_id, str) and not run_id.strip():
        raise ToolConfigurationError("The run_id of a run is empty; choose one, or leave it out for a new id")


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_instructions(value: object) -> bool:
    if isinstance(value, (bytes, bytearray)):
        return False
    return value is None or isinstance(value, Sequence) or (callable(value) and not isinstance(value, type))


def _is_reviewer(value: object) -> bool:
    return value is None or is_reviewer(value)


def _is_reasoning(value: object) -> bool:
    return value in (None, "low", "medium", "high") or (type(value) is int and value >= 1)


_SETTINGS: Mapping[str, tuple[str, Callable[[object], bool]]] = {
    "instructions": ("a str, a function, or a list of them", _is_instructions),
    "role": ("a str", _is_text),
    "goal": ("a str", _is_text),
    "background": ("a str", _is_text),
    "memory_id": ("a str", lambda value: value is None or isinstance(value, str)),
    "prices": ("Prices, such as Prices(2, 8)", lambda value: value is None or isinstance(value, Prices)),
    "review": (
        "a ReviewHandler: an object with a method review(request), such as CallbackReview(function)",
        _is_reviewer,
    ),
    "memory": (
        "a ConversationMemory, such as ConversationMemory('talks.db')",
        lambda value: value is None or isinstance(value, ConversationMemory),
    ),
    "retry": ("a Retry, such as Retry(attempts=3)", lambda value: isinstance(value, Retry)),
    "settings": (
        "a mapping, such as {'temperature': 0}",
        lambda value: value is None or isinstance(value, Mapping),
    ),
    "history_processors": (
        "a list of functions of messages",
        lambda value: isinstance(value, Iterable) and not isinstance(value, str),
    ),
    "sinks": ("a list of sinks", lambda _: True),  # checked where they are built
    "reasoning": ("'low', 'medium', 'high', or a number of tokens >= 1", _is_reasoning),
    "journal": (
        "a RunJournal, such as RunJournal('runs.db')",
        lambda value: value is None or (not isinstance(value, type) and callable(getattr(value, "claim", None))),
    ),
    "name": ("a str", _is_text),
    "loop_guard": ("a LoopGuard or None", lambda value: value is None or isinstance(value, LoopGuard)),
}

_INSTANCES = {"review", "memory", "retry", "loop_guard"}
CHECKED = frozenset(_SETTINGS)
"""The settings that :func:`check_types` checks."""

RUN_ONLY = frozenset({"history", "memory_id", "parameters", "deps", "run_id", "decisions"})
"""The settings of a run that do not replace one of its agent."""


_PARAMETERS = ("model", "tools", "output_type", "deps", "make_deps", "deps_type")
_AS_A_TOOL = "To use a function as a tool, decorate it with @tool and pass [it]"
_DEFAULTS: Mapping[str, Any] = {
    "instructions": None,
    "role": "",
    "goal": "",
    "background": "",
    "prices": None,
    "review": None,
    "memory": None,
    "memory_id": None,
    "retry": Retry(),
    "settings": None,
    "reasoning": None,
    "history_processors": (),
    "sinks": (),
    "loop_guard": LoopGuard(),
    "journal": None,
    "name": "",
}


@dataclass(frozen=True, slots=True)
class AgentConfig:
    """The settings of one agent, shared by its runs; immutable."""

    model: ChatModel
    tools: Toolbox | ToolFunction
    instructions: tuple[conversation.Part, ...]
    """The instructions for the model, beginning with its role, goal and background."""
    role: str
    """The agent's role, or its name if it has none, for the context of its calls."""
    limits: Limits
    prices: Prices | None
    review: ReviewHandler | None
    memory: ConversationMemory | None
    memory_id: str | None
    """The default id of the conversation of a run; None: each run must have its own, if it needs one."""
    output: Output | None
    retry: Retry
    settings: Mapping[str, Any]
    """Further settings of each model request."""
    history_processors: tuple[conversation.RunFunction, ...]
    """Functions that change the messages that the model is sent."""
    reasoning: Reasoning | None
    """How much the model reasons; None: the provider's default."""
    sinks: Sinks | None
    """The sinks of the events of its calls; None: no sinks."""
    loop_guard: LoopGuard | None
    """When a run counts as repeating itself; None: never."""
    journal: RunJournal | None
    """Records runs, so that they continue after a crash; None: they are not recorded."""
    name: str
    """The name of the agent in a journal."""
    deps: DepsSource
    """The source of the deps of runs that are given none."""

    needs: Mapping[str, Need] = field(init=False)
    """The context fields that a run must have, each with a tool that needs it; without its name for the memory."""

    model_name: str = field(init=False)
    """The name of the model, or its class if it has none."""

    is_dynamic: bool = field(init=False)
    """Whether a function writes a part of the instructions."""
    system: SystemMessage | None = field(init=False)
    """The system message of a run without functions for instructions, and without other system messages."""

    def __post_init__(self) -> None:
        fixed = [part for part in self.instructions if isinstance(part, str)]
        name = getattr(self.model, "name", None)
        object.__setattr__(self, "model_name", name if isinstance(name, str) and name else type(self.model).__name__)
        object.__setattr__(self, "needs", self._find_needs())
        object.__setattr__(self, "is_dynamic", len(fixed) < len(self.instructions))
        object.__setattr__(self, "system", conversation.build_system_message(conversation.join_texts(fixed), ""))

    @property
    def native_output(self) -> bool:
        """Whether the model supports structured output natively."""
        return bool(getattr(self.model, "native_output", False))

    def names_inside(self) -> Names:
        """Return the names of the tools that a run can call; dynamic tools are not known in advance."""
        return names_inside(self.tools) if isinstance(self.tools, Toolbox) else Names((), all_known=False)

    def list_reviewers(self) -> list[ReviewHandler]:
        """Return the reviewers that the calls of a run can ask, as far as they are known in advance."""
        reviewers = self.tools.list_reviewers() if isinstance(self.tools, Toolbox) else []
        return reviewers if self.review is None else [self.review, *reviewers]

    def _find_needs(self) -> dict[str, Need]:
        needs = self.tools.find_needs() if isinstance(self.tools, Toolbox) else {}
        if "deps" not in needs and self.deps.kind is not None and not accepts_none(self.deps.kind):
            needs["deps"] = Need("", f"ToolContext[{describe_type(self.deps.kind)}]")
        return needs if self.memory is None else {**needs, "memory_id": Need("", "MemoryId")}

    def needs_outside(self) -> dict[str, str]:
        """Return the context fields that a run around this agent must set, if the agent is a tool of it."""
        own = {"memory_id": self.memory_id is not None, "deps": not self.deps.is_empty}
        return {name: need.declared for name, need in self.needs.items() if not own[name]}

    def __str__(self) -> str:
        tools = ", ".join(self.tools.names) if isinstance(self.tools, Toolbox) else "a function of the run"
        return f"{type(self.model).__name__}, tools: {tools or 'none'}"


def build_config(
    model: ChatModel | str | None,
    tools: Iterable[object] | DynamicTools,
    output_type: Any,
    deps: DepsSource,
    given: AgentSettings,
) -> AgentConfig:
    """Return the settings of an agent; raise :class:`~toolsemble.ToolDefinitionError` if one is not valid."""
    check_order(model, tools)
    check_keywords("An Agent", given, [*_PARAMETERS, *AgentSettings.__annotations__])
    values: dict[str, Any] = {**_DEFAULTS, **replace_old_names("Agent", given)}
    limits = Limits(**{name: values.pop(name) for name in LIMITS if name in values})
    check_types(**values)
    output = None if output_type is None else Output(output_type)
    goal, background, role = values.pop("goal"), values.pop("background"), values["role"]
    values |= {
        "instructions": _own_instructions(conversation.describe_role(role, goal, background), values["instructions"]),
        "settings": MappingProxyType(dict(values["settings"] or {})),
        "history_processors": read_processors(values["history_processors"]),
        "sinks": build_sinks("Agent", values["sinks"]),
        "role": role or values["name"],
        "name": values["name"] or role or "agent",
    }
    box = build_tools(tools, values["role"], output)
    check_prices(limits, values["prices"])
    # The model comes last, because it may take long.
    return AgentConfig(tools=box, limits=limits, output=output, deps=deps, **values, model=model_of(model))


def override_config(config: AgentConfig, given: Mapping[str, Any]) -> AgentConfig:
    """Return the settings of a run: the agent's, except for those that the run sets to something else than None."""
    values = {name: value for name, value in given.items() if value is not None and name not in RUN_ONLY}
    if not values:
        return config
    values = replace_old_names("run", values)
    changed = {name: values.pop(name) for name in LIMITS if name in values}
    limits = replace(config.limits, **changed) if changed else config.limits
    check_types(**{name: value for name, value in values.items() if name in CHECKED})
    check_prices(limits, values.get("prices", config.prices))
    output = Output(values.pop("output_type")) if "output_type" in values else config.output
    if "instructions" in values:
        values["instructions"] = (*config.instructions, *conversation.read_instructions(values["instructions"]))
    if "settings" in values:
        values["settings"] = MappingProxyType({**config.settings, **values["settings"]})
    if "history_processors" in values:
        values["history_processors"] = read_processors(values["history_processors"])
    if "tools" in values:
        values["tools"] = build_tools(values["tools"], config.role, output)
    elif output is not config.output and isinstance(config.tools, Toolbox):
        check_reserved(config.tools, output)
    if "model" in values:
        values["model"] = model_of(values["model"])
    return replace(config, limits=limits, output=output, **values)


def check_prices(limits: Limits, prices: Prices | None) -> None:
    """Raise if there is a limit of the cost, and no prices."""
    if limits.max_cost is not None and prices is None:
        raise ToolDefinitionError(
            "Agent max_cost needs prices, such as prices=Prices(2, 8), or Prices.for_model('openai:gpt-4o')"
        )


def _own_instructions(described: str, given: object) -> tuple[conversation.Part, ...]:
    """Return the instructions of an agent: its role, goal and background, and what else was given."""
    return (described, *conversation.read_instructions(given)) if described else conversation.read_instructions(given)


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
        return build_toolbox(tools, self._config.role, self._config.output)


def build_tools(tools: Iterable[object] | DynamicTools, role: str, output: Output | None) -> Toolbox | ToolFunction:
    """Return the tools of an agent: a function as it is, anything else as a toolbox."""
    if isinstance(tools, type):
        raise ToolDefinitionError(f"Agent tools must be tools, not the class {tools.__name__}; pass an instance")
    if callable(tools) and not isinstance(tools, (Tool, Iterable)):
        return _read_function(tools)
    return build_toolbox(tools, role, output)


def build_toolbox(tools: Iterable[object], role: str, output: Output | None) -> Toolbox:
    """Return the toolbox of an agent, which may not have a tool with the name of the final-answer tool."""
    # Without a reviewer of its own, the box asks that of the run.
    box = tools if isinstance(tools, Toolbox) else Toolbox(tools, agent_role=role or "unknown")
    check_reserved(box, output)
    return box


def check_reserved(box: Toolbox, output: Output | None) -> None:
    """Raise if a tool has the name of the tool for the answer, and there is one."""
    if output is not None and FINAL_ANSWER in box:
        raise ToolDefinitionError(f"The name '{FINAL_ANSWER}' is reserved for output_type; rename the tool")


def _read_function(tools: Callable[..., Any]) -> ToolFunction:
    """Return a function of the view of a run; raise if it takes anything else, such as one that was meant as a tool."""
    if conversation.takes(tools, 1):
        return tools
    if conversation.takes(tools, 0):
        return lambda _: tools()
    raise ToolDefinitionError(
        "Agent tools must be tools, or a function that takes a RunView or nothing, and returns tools; "
        f"{tools!r:.80} takes something else. {_AS_A_TOOL}"
    )


def _check_list(found: object) -> tuple[object, ...]:
    if isinstance(found, (str, bytes)) or not isinstance(found, Iterable):
        raise TypeError(
            f"The function for an agent's tools must return a list of tools, not {found!r:.80}. {_AS_A_TOOL}"
        )
    return tuple(found)


def _are_same(one: tuple[object, ...], other: tuple[object, ...]) -> bool:
    return len(one) == len(other) and all(first is second for first, second in zip(one, other, strict=True))
