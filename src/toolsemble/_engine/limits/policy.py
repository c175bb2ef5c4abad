"""The limits that a tool declares and a toolbox adds, as the policy of its calls."""

from __future__ import annotations

import inspect
import pickle
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, get_args

from toolsemble._engine.definition import Effects, Isolation, Layer, Policy, ToolDefinition, map_definition
from toolsemble._engine.limits.cache import CacheLayer, cache_layer
from toolsemble._engine.limits.idempotency import IdempotencyLayer, check_ledger, idempotency_layer
from toolsemble._engine.limits.rate import RateLimit
from toolsemble._engine.limits.retries import RetryLayer, retry_layer
from toolsemble._engine.limits.settings import Limits
from toolsemble._runtime.checks import check_amount, check_count, check_seconds
from toolsemble._runtime.event_loops import is_async
from toolsemble._runtime.locks import Slots
from toolsemble._runtime.processes import memory_limit
from toolsemble._runtime.text import describe_error
from toolsemble._vocabulary.errors import ToolDefinitionError, ToolExecutionError, UnclearError

if TYPE_CHECKING:
    from toolsemble._engine.limits.effect_ledger import EffectLedger


PROCESSES = Slots(32)
"""The slots for bodies that run in worker processes."""


class Needs:
    """The slots and resources that each call of one tool holds while it runs.

    >>> needs = Needs("Tool 'save'", None, lambda arguments: {f"file:{arguments.path}"})
    >>> list(needs({"path": "a.txt", "text": "hello"}))
    ['file:a.txt']
    """

    def __init__(
        self,
        owner: str,
        max_concurrency: int | None,
        resources: Callable[[Any], Any] | None,
        *,
        in_process: bool = False,
    ) -> None:
        if resources is not None and not callable(resources):
            raise ToolDefinitionError(f"{owner}: resources must be a function of the arguments, not {resources!r:.80}")
        if is_async(resources):
            raise ToolDefinitionError(f"{owner}: resources must be a sync function; it is called before each call")
        if resources is not None:
            _check_signature(owner, resources)
        self._resources = resources
        self._always: tuple[Hashable, ...] = () if max_concurrency is None else (Slots(max_concurrency),)
        if in_process:
            self._always += (PROCESSES,)

    @property
    def binds(self) -> bool:
        """Whether the names depend on the input, which must not change afterwards."""
        return self._resources is not None

    def __call__(self, value: Any) -> Iterable[Hashable]:
        """Return the slots and resource names for an input; raise ToolExecutionError if a name is not a str."""
        return self._always if self._resources is None else (*self._always, *self._read_names(self._resources, value))

    def _read_names(self, resources: Callable[[Any], Any], value: Any) -> set[str]:
        given = SimpleNamespace(**value) if isinstance(value, dict) else value
        try:
            found = resources(given)
            names = {found} if isinstance(found, str) else set(found)
        except Exception as error:
            raise UnclearError(f"Its resources cannot be computed: {describe_error(error)}") from error
        if wrong := [name for name in names if not isinstance(name, str)]:
            raise ToolExecutionError(f"Its resources must be strings, not {type(wrong[0]).__name__}")
        return names


def _check_signature(owner: str, resources: Callable[[Any], Any]) -> None:
    """Raise ToolDefinitionError for a function that cannot be called with only the arguments."""
    try:
        inspect.signature(resources).bind(None)
    except TypeError as problem:
        raise ToolDefinitionError(
            f"{owner}: resources must take the arguments; in a class it is a method, or a staticmethod: {problem}"
        ) from None
    except ValueError:
        pass  # a C function without a signature


def build_policy(owner: str, limits: Limits) -> Policy:
    """Return the policy for limits; raise ToolDefinitionError if they are not valid.

    >>> build_policy("Tool 'weather'", Limits(timeout=-1))
    Traceback (most recent call last):
    ...
    toolsemble.ToolDefinitionError: Tool 'weather': timeout must be a number of seconds > 0, not -1
    """
    if limits.timeout is not None:
        check_seconds(f"{owner}: timeout", limits.timeout)
    _check_choice(owner, "isolation", limits.isolation, get_args(Isolation))
    _check_choice(owner, "effects", limits.effects, (*get_args(Effects), None))
    for flag in ("idempotent", "polling"):
        _check_choice(owner, flag, getattr(limits, flag), (True, False))
    for setting in ("cpus", "gpus"):
        if getattr(limits, setting) is not None:
            check_amount(f"{owner}: {setting}", getattr(limits, setting))
    for setting, least in (("max_concurrency", 1), ("max_output", 0), ("memory", 1)):
        if getattr(limits, setting) is not None:
            check_count(f"{owner}: {setting}", getattr(limits, setting), least=least)
    layers, in_process = _build_layers(owner, limits), limits.isolation == "process"
    has_needs = in_process or limits.max_concurrency is not None or limits.resources is not None
    return Policy(
        timeout=limits.timeout,
        isolation=limits.isolation,
        max_memory=_check_memory(owner, limits),
        cpus=limits.cpus,
        gpus=limits.gpus,
        memory=limits.memory,
        effects=limits.effects,
        idempotent=limits.idempotent,
        retried=any(isinstance(each, RetryLayer) for each in layers),
        cached=limits.cache is not None,
        polling=limits.polling,
        max_output=limits.max_output,
        needs=Needs(owner, limits.max_concurrency, limits.resources, in_process=in_process) if has_needs else None,
        rates=_check_rates(owner, limits.rate_limit),
        layers=layers,
    )


def build_policy_for(owner: str, limits: Limits, body: Callable[[Any], Any]) -> Policy:
    """Return the policy for the limits of a tool; raise ToolDefinitionError also if they do not fit its body."""
    policy = build_policy(owner, limits)
    if policy.isolation == "process":
        _check_picklable(owner, body)
    return policy


def _check_picklable(owner: str, body: Callable[[Any], Any]) -> None:
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
    # In the order in which a call leaves them: a call that an outer layer answers does not wait for an inner
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


def _check_choice(owner: str, setting: str, value: object, choices: tuple[Any, ...]) -> None:
    if not any(value is each or (isinstance(value, str) and value == each) for each in choices):
        known = ", ".join(map(repr, choices))
        raise ToolDefinitionError(f"{owner}: {setting} must be one of {known}, not {value!r:.80}")


@dataclass(frozen=True, slots=True)
class BoxLimits:
    """The limits of a toolbox, for its tools that declare none."""

    timeout: float | None
    """Seconds that a call may take; None: no limit."""
    retrying: Layer | None
    """The layer that retries calls; None for none."""
    rate: RateLimit | None
    """The shared rate limit of all tools; None for none."""
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
        """Return the tools, and the parts of their flows, with the toolbox's limits added to their own."""
        # Tool names in a toolbox are unique; names of pipeline parts are not.
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
    """Return whether a toolbox caches a tool: it only reads, does not declare a cache, and its calls have keys."""
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
