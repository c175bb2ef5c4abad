"""Checks of the settings of agents and runs, made when an agent is created, not during a run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from typing import Any

from toolsemble._runtime.checks import check_setting
from toolsemble._tools.base import Tool
from toolsemble._tools.toolbox.toolbox import Toolbox
from toolsemble._vocabulary.errors import ToolConfigurationError, ToolDefinitionError
from toolsemble.agent._budget import Prices
from toolsemble.agent._loop_guard import LoopGuard
from toolsemble.agent._memory import ConversationMemory
from toolsemble.agent._retry import Retry


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


_INSTRUCTIONS = {"system_prompt", "system", "system_message", "prompt", "instruction"}


def check_keywords(owner: str, given: Iterable[str], known: Sequence[str]) -> None:
    """Raise TypeError if a setting is unknown.

    >>> check_keywords("A run", ["memory"], ["history", "memory_id"])
    Traceback (most recent call last):
    ...
    TypeError: A run has no setting 'memory'; did you mean memory_id?
    """
    for name in given:
        if name in _INSTRUCTIONS and name not in known and "instructions" in known:
            raise TypeError(f"{owner} has no setting '{name}'; did you mean instructions?")
        check_setting(owner, name, known)


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


def _is_reviewer(value: Any) -> bool:
    return value is None or (not isinstance(value, type) and callable(getattr(value, "review", None)))


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
