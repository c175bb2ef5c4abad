"""The limit settings of tools and toolboxes, and the policies built from them."""

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
from toolsemble.limits.cache import Cache, CacheLayer, cache_layer
from toolsemble.limits.concurrency import build_needs
from toolsemble.limits.idempotency import Idempotency, IdempotencyLayer, check_ledger, idempotency_layer
from toolsemble.limits.rate import RateLimit
from toolsemble.limits.retries import RetryLayer, retry_layer
from toolsemble.processes import memory_limit
from toolsemble.runtime.checks import check_count, check_seconds, is_seconds
from toolsemble.runtime.fork_locks import fork_safe_lock
from toolsemble.runtime.text import describe_error

if TYPE_CHECKING:
    from toolsemble.limits.ledger import EffectLedger


class LimitSettings(TypedDict, total=False):
    """The limit settings of any tool, by keyword or as attributes of its class."""

    isolation: Isolation
    effects: Effects | None
    idempotent: bool
    resources: Callable[[Any], Any] | None
    rate_limit: RateLimit | None
    cache: Cache | float | bool | None
    idempotency: bool | Callable[..., Any] | Idempotency
    polling: bool


class Limits(NamedTuple):
    """All limit settings of one tool, with their defaults."""

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


_MAX_POLICIES = 8
NO_LIMITS = Limits()
"""The defaults."""

read_limits: Callable[[object], tuple[Any, ...]] = attrgetter(*Limits._fields)
"""Return the limit attributes of a tool, in the order of :class:`Limits`."""


def find_limits(source: object) -> dict[str, Any]:
    """Return the limits declared by an object that is not a Tool: the attributes whose meaning is unambiguous.

    A ``timeout`` that is not a number of seconds, for example, is ignored.

    >>> class Search:
    ...     timeout = 5
    ...     effects = "side"
    >>> find_limits(Search())
    {'timeout': 5}
    """
    found = {name: getattr(source, name, None) for name in _UNAMBIGUOUS}
    return {name: value for name, value in found.items() if value is not None and _UNAMBIGUOUS[name](value)}


class PolicyCache:
    """The policies of one tool, by its settings; each is built once.

    The state of the layers (counters, caches) is shared by all calls of a tool, so a policy must not be rebuilt with
    each definition. Copies of a tool with the same settings share it; another process starts with an empty cache.
    """

    __slots__ = ("__weakref__", "_lock", "_policies")

    def __init__(self) -> None:
        self._lock = fork_safe_lock(self)
        self._policies: deque[tuple[tuple[Any, ...], Policy]] = deque(maxlen=_MAX_POLICIES)

    def policy(self, owner: str, settings: tuple[Any, ...], body: Callable[[Any], Any]) -> Policy:
        """Return the policy for settings; raise ToolDefinitionError if they are not valid or do not fit the body."""
        with self._lock:
            for known, policy in self._policies:
                if known == settings:
                    return policy
            policy = build_policy(owner, Limits(*settings))
            if policy.isolation == "process":
                check_picklable(owner, body)
            self._policies.appendleft((settings, policy))
            return policy

    def __reduce__(self) -> tuple[Any, ...]:
        return PolicyCache, ()


def build_policy(owner: str, limits: Limits) -> Policy:
    """Return the policy for limits; raise ToolDefinitionError if they are not valid.

    >>> build_policy("Tool 'weather'", Limits(timeout=-1))
    Traceback (most recent call last):
    ...
    toolsemble.errors.ToolDefinitionError: Tool 'weather': timeout must be a number of seconds > 0, not -1
    """
    if limits.timeout is not None:
        check_seconds(f"{owner}: timeout", limits.timeout)
    _check_choice(owner, "isolation", limits.isolation, get_args(Isolation))
    _check_choice(owner, "effects", limits.effects, (*get_args(Effects), None))
    for flag in ("idempotent", "polling"):
        _check_choice(owner, flag, getattr(limits, flag), (True, False))
    for setting, least in (("max_concurrency", 1), ("max_output", 0)):
        if getattr(limits, setting) is not None:
            check_count(f"{owner}: {setting}", getattr(limits, setting), least=least)
    layers = _build_layers(owner, limits)
    return Policy(
        timeout=limits.timeout,
        isolation=limits.isolation,
        max_memory=_check_memory(owner, limits),
        effects=limits.effects,
        idempotent=limits.idempotent,
        retried=any(isinstance(each, RetryLayer) for each in layers),
        cached=limits.cache is not None,
        polling=limits.polling,
        max_output=limits.max_output,
        needs=build_needs(owner, limits.max_concurrency, limits.resources, in_process=limits.isolation == "process"),
        rates=_check_rates(owner, limits.rate_limit),
        layers=layers,
    )


@dataclass(frozen=True, slots=True)
class BoxLimits:
    """The limits of a toolbox, for those of its tools that declare none themselves."""

    timeout: float | None
    """Seconds that a call may take; None: no limit."""
    retrying: Layer | None
    """The layer that retries calls; None for none."""
    rate: RateLimit | None
    """The rate limit of all tools together; None for none."""
    caching: CacheLayer | None = None
    """The layer that caches results of tools that only read; None for none."""
    ledger: EffectLedger | None = None
    """The ledger of idempotent calls; None for none."""

    @classmethod
    def of(
        cls,
        timeout: object,
        retries: object,
        rate_limit: object,
        cache: object = None,
        ledger: EffectLedger | None = None,
    ) -> BoxLimits:
        """Return the limits for settings; raise ToolDefinitionError if they are not valid.

        >>> BoxLimits.of(5, 0, None).timeout
        5
        """
        policy = build_policy(
            "Toolbox", Limits(timeout=timeout, retries=retries, rate_limit=rate_limit, effects="read")
        )
        rate = next(iter(policy.rates), None)
        retrying = next(iter(policy.layers), None)
        check_ledger("Toolbox ledger", ledger)
        return cls(policy.timeout, retrying, rate, cache_layer("Toolbox", cache, reads=True), ledger)

    def apply_to(self, tools: Sequence[ToolDefinition]) -> list[ToolDefinition]:
        """Return the tools, and those they are made of, with the limits of the toolbox added to their own."""
        # The names of a toolbox's tools are unique; those of the parts of pipelines are not.
        bodies = {each.name: each.body for each in tools if each.flow is None}
        return [self._with_timeout(map_definition(each, partial(self._with_layers, bodies))) for each in tools]

    def _with_timeout(self, definition: ToolDefinition) -> ToolDefinition:
        own = definition.policy or Policy()
        if self.timeout is None or own.timeout is not None or _cannot_be_stopped(definition):
            return definition
        return replace(definition, policy=replace(own, timeout=self.timeout))

    def _with_layers(self, bodies: dict[str, Any], definition: ToolDefinition) -> ToolDefinition:
        """Return a tool, or a part of one, with the layers of the toolbox; a flow leaves them to its parts."""
        if definition.flow is not None:
            return definition
        own = definition.policy or Policy()
        layers, rates, retried = own.layers, own.rates, own.retried
        if self.ledger is not None:
            layers = _with_ledger(self.ledger, layers)
        if self.retrying is not None and own.repeatable and not retried:
            layers, retried = (self.retrying, *layers), True
        if self.rate is not None and self.rate not in rates:
            rates = (*rates, self.rate)
        if self.caching is not None and _can_cache(self.caching, own, definition, bodies):
            layers = (*layers, self.caching)
        if layers == own.layers and rates == own.rates:
            return definition
        return replace(definition, policy=replace(own, retried=retried, rates=rates, layers=layers))


def _with_ledger(ledger: EffectLedger, layers: tuple[Layer, ...]) -> tuple[Layer, ...]:
    """Return the layers, with idempotency layers that use the ledger of a toolbox."""
    return tuple(each.with_ledger(ledger) if isinstance(each, IdempotencyLayer) else each for each in layers)


def _can_cache(caching: CacheLayer, own: Policy, definition: ToolDefinition, bodies: dict[str, Any]) -> bool:
    """Return whether a toolbox caches a tool: it only reads, declares no cache, and its calls have keys."""
    if own.effects != "read" or own.cached:
        return False
    try:
        caching.check(definition)
    except ToolDefinitionError:
        return False
    # Another tool of the same name would get its results.
    return bool(bodies.setdefault(definition.name, definition.body) == definition.body)


def _cannot_be_stopped(definition: ToolDefinition) -> bool:
    return definition.inline and not definition.awaits and definition.flow is None


def check_picklable(owner: str, body: Callable[[Any], Any]) -> None:
    """Raise ToolDefinitionError for a body that cannot be pickled, such as a nested function."""
    try:
        pickle.dumps(body)
    except Exception as problem:
        raise ToolDefinitionError(
            f"{owner}: isolation='process' needs a tool that can be pickled, such as a function of a module: "
            f"{describe_error(problem)}"
        ) from problem


def _build_layers(owner: str, limits: Limits) -> tuple[Layer, ...]:
    """Return the declared layers around the body, innermost first."""
    # In the order in which a call leaves them: a call that is answered by an outer layer does not wait for an inner
    # one.
    layers: tuple[Layer | None, ...] = (
        retry_layer(owner, limits.retries, repeatable=limits.effects == "read" or limits.idempotent),
        idempotency_layer(owner, limits.idempotency, reads=limits.effects == "read", idempotent=limits.idempotent),
        cache_layer(owner, limits.cache, reads=limits.effects == "read"),
    )
    return tuple(layer for layer in layers if layer is not None)


def _check_rates(owner: str, setting: Any) -> tuple[RateLimit, ...]:
    if setting is None:
        return ()
    if not isinstance(setting, RateLimit):
        raise ToolDefinitionError(f"{owner}: rate_limit must be a RateLimit, not {setting!r:.80}")
    return (setting,)


def _check_memory(owner: str, limits: Limits) -> int | None:
    most: int | None = limits.max_memory
    if most is not None:
        check_count(f"{owner}: max_memory", most, least=1)
        if limits.isolation != "process":
            raise ToolDefinitionError(f"{owner}: max_memory needs a worker process; declare isolation='process'")
        if not memory_limit.SUPPORTED:
            raise ToolDefinitionError(f"{owner}: max_memory is not supported on this system; remove it")
    return most


_UNAMBIGUOUS: dict[str, Callable[[Any], bool]] = {
    "timeout": is_seconds,
    "effects": lambda value: value in get_args(Effects),
    "idempotent": lambda value: value is True,
    "rate_limit": lambda value: isinstance(value, RateLimit),
}


def _check_choice(owner: str, setting: str, value: object, choices: tuple[Any, ...]) -> None:
    if not any(value is each or (isinstance(value, str) and value == each) for each in choices):
        known = ", ".join(map(repr, choices))
        raise ToolDefinitionError(f"{owner}: {setting} must be one of {known}, not {value!r:.80}")
