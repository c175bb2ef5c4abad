"""The policy of a tool, built from the limits that it declares."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any, get_args

from toolsemble._engine.definition.policy import Effects, Isolation, Layer, Policy
from toolsemble._engine.limits.cache import cache_layer
from toolsemble._engine.limits.concurrency import Needs
from toolsemble._engine.limits.idempotency import idempotency_layer
from toolsemble._engine.limits.rate import RateLimit
from toolsemble._engine.limits.retries import RetryLayer, retry_layer
from toolsemble._engine.limits.settings import Limits
from toolsemble._runtime.checks import check_amount, check_count, check_seconds
from toolsemble._runtime.processes import memory_limit
from toolsemble._runtime.text import describe_error
from toolsemble._vocabulary.errors import ToolDefinitionError


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


def _check_choice(owner: str, setting: str, value: object, choices: tuple[Any, ...]) -> None:
    if not any(value is each or (isinstance(value, str) and value == each) for each in choices):
        known = ", ".join(map(repr, choices))
        raise ToolDefinitionError(f"{owner}: {setting} must be one of {known}, not {value!r:.80}")
