"""From what a tool says about its limits to the policy of its calls."""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict, get_args

from toolsemble.definition.definition import ToolDefinition, map_definition
from toolsemble.definition.policy import Effects, Isolation, Layer, Policy
from toolsemble.errors import ToolDefinitionError
from toolsemble.limits.cache import Cache, Caching, caching_layer
from toolsemble.limits.concurrency import needs_of
from toolsemble.limits.idempotency import Idempotency, Reserving, check_ledger, reserving_layer
from toolsemble.limits.rate import RateLimit
from toolsemble.limits.retries import Retrying, retrying_layer
from toolsemble.processes import memory_limit
from toolsemble.runtime.checks import check_count, check_seconds, is_seconds
from toolsemble.runtime.fork_locks import fork_safe_lock
from toolsemble.shape import describe_error

if TYPE_CHECKING:
    from toolsemble.limits.ledger import EffectLedger


class LimitSettings(TypedDict, total=False):
    """What can be said about the limits of any tool, by keyword or as an attribute of its class."""

    isolation: Isolation
    effects: Effects | None
    idempotent: bool
    resources: Callable[[Any], Any] | None
    rate_limit: RateLimit | None
    cache: Cache | float | bool | None
    idempotency: bool | Callable[..., Any] | Idempotency
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
    max_memory: Any = None


_MOST_KEPT = 8
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
    """The policies of one tool, each made once and kept for as long as the settings are the same.

    What the layers of a policy count and hold is shared by all calls of a tool; so it must not be made anew with each
    definition. Copies of a tool share it as long as they say the same; in another process it begins anew.
    """

    __slots__ = ("__weakref__", "_lock", "_made")

    def __init__(self) -> None:
        self._lock = fork_safe_lock(self)
        self._made: deque[tuple[tuple[Any, ...], Policy]] = deque(maxlen=_MOST_KEPT)

    def policy(self, owner: str, said: tuple[Any, ...], body: Callable[[Any], Any]) -> Policy:
        """Give the policy for what a tool says; refuse what is unclear, or what its body cannot do."""
        with self._lock:
            for before, policy in self._made:
                if before == said:
                    return policy
            policy = policy_of(owner, Limits(*said))
            if policy.isolation == "process":
                check_apart(owner, body)
            self._made.appendleft((said, policy))
            return policy

    def __reduce__(self) -> tuple[Any, ...]:
        return Kept, ()


def policy_of(owner: str, said: Limits) -> Policy:
    """Give the policy for what was said; refuse what is unclear or cannot be kept.

    >>> policy_of("Tool 'weather'", Limits(timeout=-1))
    Traceback (most recent call last):
    ...
    toolsemble.errors.ToolDefinitionError: Tool 'weather': timeout must be a number of seconds > 0, not -1
    """
    if said.timeout is not None:
        check_seconds(f"{owner}: timeout", said.timeout)
    _check_choice(owner, "isolation", said.isolation, get_args(Isolation))
    _check_choice(owner, "effects", said.effects, (*get_args(Effects), None))
    for flag in ("idempotent", "polling"):
        _check_choice(owner, flag, getattr(said, flag), (True, False))
    for setting, least in (("max_concurrency", 1), ("max_output", 0)):
        if getattr(said, setting) is not None:
            check_count(f"{owner}: {setting}", getattr(said, setting), least=least)
    layers = _layers(owner, said)
    return Policy(
        timeout=said.timeout,
        isolation=said.isolation,
        max_memory=_checked_memory(owner, said),
        effects=said.effects,
        idempotent=said.idempotent,
        retried=any(isinstance(each, Retrying) for each in layers),
        cached=said.cache is not None,
        polling=said.polling,
        max_output=said.max_output,
        needs=needs_of(owner, said.max_concurrency, said.resources, apart=said.isolation == "process"),
        rates=_checked_rates(owner, said.rate_limit),
        layers=layers,
    )


@dataclass(frozen=True, slots=True)
class BoxLimits:
    """What a toolbox says for those of its tools that say nothing themselves."""

    timeout: float | None
    """How many seconds a call may take."""
    retrying: Layer | None
    """Makes calls again that may be repeated."""
    rate: RateLimit | None
    """How many calls of all tools together there may be in some time."""
    caching: Caching | None = None
    """Gives results again, of tools that only read."""
    ledger: EffectLedger | None = None
    """Where calls are taken down that are made once."""

    @classmethod
    def of(
        cls,
        timeout: object,
        retries: object,
        rate_limit: object,
        cache: object = None,
        ledger: EffectLedger | None = None,
    ) -> BoxLimits:
        """Give what was said, or refuse what is unclear.

        >>> BoxLimits.of(5, 0, None).timeout
        5
        """
        said = policy_of("Toolbox", Limits(timeout=timeout, retries=retries, rate_limit=rate_limit, effects="read"))
        rate = next(iter(said.rates), None)
        again = next(iter(said.layers), None)
        check_ledger("Toolbox ledger", ledger)
        return cls(said.timeout, again, rate, caching_layer("Toolbox", cache, reads=True), ledger)

    def given_to(self, tools: Sequence[ToolDefinition]) -> list[ToolDefinition]:
        """Give the tools with what the box says added to what they say themselves, and so for what they are made of."""
        # A box knows its tools by their names; of the parts of pipelines, several may have the same one.
        bodies = {each.name: each.body for each in tools if each.flow is None}
        return [self._in_time(map_definition(each, partial(self._limited, bodies))) for each in tools]

    def _in_time(self, definition: ToolDefinition) -> ToolDefinition:
        own = definition.policy or Policy()
        if self.timeout is None or own.timeout is not None or _unstoppable(definition):
            return definition
        return replace(definition, policy=replace(own, timeout=self.timeout))

    def _limited(self, bodies: dict[str, Any], definition: ToolDefinition) -> ToolDefinition:
        """Give a tool, or the part of one, with the layers of the box; what is made of tools leaves them to those."""
        if definition.flow is not None:
            return definition
        own = definition.policy or Policy()
        layers, rates, retried = own.layers, own.rates, own.retried
        if self.ledger is not None:
            layers = _entered(self.ledger, layers)
        if self.retrying is not None and own.repeatable and not retried:
            layers, retried = (self.retrying, *layers), True
        if self.rate is not None and self.rate not in rates:
            rates = (*rates, self.rate)
        if self.caching is not None and _caches(self.caching, own, definition, bodies):
            layers = (*layers, self.caching)
        if layers == own.layers and rates == own.rates:
            return definition
        return replace(definition, policy=replace(own, retried=retried, rates=rates, layers=layers))


def _entered(ledger: EffectLedger, layers: tuple[Layer, ...]) -> tuple[Layer, ...]:
    """Give the layers with calls that are taken down in the ledger of a box."""
    return tuple(each.into(ledger) if isinstance(each, Reserving) else each for each in layers)


def _caches(caching: Caching, own: Policy, definition: ToolDefinition, bodies: dict[str, Any]) -> bool:
    """Whether a box's cache is for a tool: one that only reads, says nothing itself, and whose calls can be told."""
    if own.effects != "read" or own.cached:
        return False
    try:
        caching.check(definition)
    except ToolDefinitionError:
        return False
    # Another tool of the same name would be given its results.
    return bool(bodies.setdefault(definition.name, definition.body) == definition.body)


def _unstoppable(definition: ToolDefinition) -> bool:
    return definition.inline and not definition.awaits and definition.flow is None


def check_apart(owner: str, body: Callable[[Any], Any]) -> None:
    """Refuse a body that no other process can be given: a function inside a function, an object with live parts."""
    try:
        pickle.dumps(body)
    except Exception as problem:
        raise ToolDefinitionError(
            f"{owner}: isolation='process' needs a tool that can be pickled, such as a function of a module: "
            f"{describe_error(problem)}"
        ) from problem


def _layers(owner: str, said: Limits) -> tuple[Layer, ...]:
    """Give what stands around the body, innermost first; what was not asked for is not there."""
    # One line for each, in the order in which a call comes out of them: a call that is answered by an outer layer
    # does not wait for an inner one.
    made: tuple[Layer | None, ...] = (
        retrying_layer(owner, said.retries, repeatable=said.effects == "read" or said.idempotent),
        reserving_layer(owner, said.idempotency, reads=said.effects == "read", idempotent=said.idempotent),
        caching_layer(owner, said.cache, reads=said.effects == "read"),
    )
    return tuple(layer for layer in made if layer is not None)


def _checked_rates(owner: str, said: Any) -> tuple[RateLimit, ...]:
    if said is None:
        return ()
    if not isinstance(said, RateLimit):
        raise ToolDefinitionError(f"{owner}: rate_limit must be a RateLimit, not {said!r:.80}")
    return (said,)


def _checked_memory(owner: str, said: Limits) -> int | None:
    most: int | None = said.max_memory
    if most is not None:
        check_count(f"{owner}: max_memory", most, least=1)
        if said.isolation != "process":
            raise ToolDefinitionError(f"{owner}: max_memory is for a worker process; declare isolation='process', too")
        if not memory_limit.SUPPORTED:
            raise ToolDefinitionError(f"{owner}: max_memory needs a system that can limit processes; leave it out")
    return most


_CLEAR: dict[str, Callable[[Any], bool]] = {
    "timeout": is_seconds,
    "effects": lambda value: value in get_args(Effects),
    "idempotent": lambda value: value is True,
    "rate_limit": lambda value: isinstance(value, RateLimit),
}


def _check_choice(owner: str, setting: str, value: object, choices: tuple[Any, ...]) -> None:
    if not any(value is each or (isinstance(value, str) and value == each) for each in choices):
        known = ", ".join(map(repr, choices))
        raise ToolDefinitionError(f"{owner}: {setting} must be one of {known}, not {value!r:.80}")
