"""The limits of a toolbox, added to those of its tools."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from toolsemble._engine.definition.definition import ToolDefinition
from toolsemble._engine.definition.policy import Layer, Policy
from toolsemble._engine.definition.variants import map_definition
from toolsemble._engine.limits.cache import CacheLayer, cache_layer
from toolsemble._engine.limits.idempotency import IdempotencyLayer, check_ledger
from toolsemble._engine.limits.policy import build_policy
from toolsemble._engine.limits.rate import RateLimit
from toolsemble._engine.limits.settings import Limits
from toolsemble._vocabulary.errors import ToolDefinitionError

if TYPE_CHECKING:
    from toolsemble._engine.limits.effect_ledger import EffectLedger


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
