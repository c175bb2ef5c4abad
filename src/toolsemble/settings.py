"""From what a tool says about its limits to the policy of its calls."""

from __future__ import annotations

import math
from collections.abc import Callable
from operator import attrgetter
from typing import Any, NamedTuple, TypedDict, get_args

from toolsemble.errors import ToolDefinitionError
from toolsemble.policy import Effects, Isolation, Layer, Policy


class LimitSettings(TypedDict, total=False):
    """What can be said about the limits of any tool, by keyword or as an attribute of its class."""

    isolation: Isolation
    effects: Effects | None
    idempotent: bool
    resources: Callable[[Any], Any] | None
    rate_limit: Any
    cache: Any
    idempotency: Any
    polling: bool


class Limits(NamedTuple):
    """Everything that one tool says about its limits; the defaults are those of a tool that says nothing."""

    timeout: Any = None
    isolation: Any = "thread"
    retries: Any = 0
    effects: Any = None
    idempotent: Any = False
    max_concurrency: Any = None
    resources: Any = None
    rate_limit: Any = None
    cache: Any = None
    max_output: Any = None
    idempotency: Any = False
    polling: Any = False


NO_LIMITS = Limits()
"""What a tool says that says nothing."""

limits_of: Callable[[object], tuple[Any, ...]] = attrgetter(*Limits._fields)
"""Gives what a tool's attributes say, in the order of :class:`Limits`."""


def limits_within(source: object) -> dict[str, Any]:
    """Give the limits that an object of somebody's own declares: those that cannot mean anything else.

    A ``timeout`` that is no number of seconds, say, belongs to the object, and is left alone.

    >>> class Search:
    ...     timeout = 5
    ...     effects = "side"
    >>> limits_within(Search())
    {'timeout': 5}
    """
    found = {name: getattr(source, name, None) for name in _CLEAR}
    return {name: value for name, value in found.items() if value is not None and _CLEAR[name](value)}


class Kept:
    """The policy of one tool, made once and kept for as long as its settings are the same.

    What the layers of a policy count and hold is shared by all calls of a tool; so it must not be made anew with each
    definition. In a copy of the tool, and in another process, it begins anew.
    """

    __slots__ = ("_made",)

    def __init__(self) -> None:
        self._made: tuple[tuple[Any, ...], Policy] | None = None

    def policy(self, owner: str, said: tuple[Any, ...]) -> Policy:
        """Give the policy for what a tool says; refuse what is unclear."""
        made = self._made
        if made is None or made[0] != said:
            made = self._made = said, policy_of(owner, Limits(*said))
        return made[1]

    def __reduce__(self) -> tuple[Any, ...]:
        return Kept, ()


def policy_of(owner: str, said: Limits) -> Policy:
    """Give the policy for what was said; refuse what is unclear or cannot be kept.

    >>> policy_of("Tool 'weather'", Limits(timeout=-1))
    Traceback (most recent call last):
    ...
    toolsemble.errors.ToolDefinitionError: Tool 'weather': timeout must be a number of seconds above 0, not -1
    """
    _check_timeout(owner, said.timeout)
    _check_choice(owner, "isolation", said.isolation, get_args(Isolation))
    _check_choice(owner, "effects", said.effects, (*get_args(Effects), None))
    for flag in ("idempotent", "polling"):
        _check_choice(owner, flag, getattr(said, flag), (True, False))
    _check_count(owner, "max_concurrency", said.max_concurrency, least=1)
    _check_count(owner, "max_output", said.max_output, least=0)
    return Policy(
        said.timeout,
        said.isolation,
        said.effects,
        said.idempotent,
        said.polling,
        said.max_output,
        _layers(owner, said),
    )


def _layers(owner: str, said: Limits) -> tuple[Layer, ...]:
    """Give what stands around the body, innermost first; what was not asked for is not there."""
    # One line for each, in the order in which a call comes out of them: a call that is answered by an outer layer
    # does not wait for an inner one.
    made: tuple[Layer | None, ...] = (
        # places, rate, retries
        _checked_kind(owner, "idempotency", said.idempotency),
        _checked_kind(owner, "cache", said.cache),
    )
    return tuple(layer for layer in made if layer is not None)


def _checked_kind(owner: str, setting: str, value: Any) -> Layer | None:
    """Refuse a value that cannot mean what the setting says."""
    known = value is None or isinstance(value, bool) or callable(value) or hasattr(value, "around")
    if not known and not (setting == "cache" and _is_seconds(value)):
        raise ToolDefinitionError(f"{owner}: {setting} cannot be {value!r:.80}")
    return None


def _is_seconds(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < math.inf


_CLEAR: dict[str, Callable[[Any], bool]] = {
    "timeout": _is_seconds,
    "effects": lambda value: value in get_args(Effects),
    "idempotent": lambda value: value is True,
}


def _check_timeout(owner: str, seconds: object) -> None:
    if seconds is not None and not _is_seconds(seconds):
        raise ToolDefinitionError(f"{owner}: timeout must be a number of seconds above 0, not {seconds!r:.80}")


def _check_choice(owner: str, setting: str, value: object, choices: tuple[Any, ...]) -> None:
    if not any(value is each or (isinstance(value, str) and value == each) for each in choices):
        known = ", ".join(map(repr, choices))
        raise ToolDefinitionError(f"{owner}: {setting} must be one of {known}, not {value!r:.80}")


def _check_count(owner: str, setting: str, value: object, *, least: int) -> None:
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < least):
        raise ToolDefinitionError(f"{owner}: {setting} must be a whole number from {least} on, not {value!r:.80}")
