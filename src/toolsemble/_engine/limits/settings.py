"""The limits that a tool declares.

The modules that enforce them are loaded when a tool declares one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict, get_args

from toolsemble._engine.definition import Effects, Isolation, Policy
from toolsemble._runtime.checks import is_seconds
from toolsemble._runtime.threads import fork_safe_lock

if TYPE_CHECKING:
    from toolsemble._engine.limits.cache import Cache
    from toolsemble._engine.limits.idempotency import Idempotency
    from toolsemble._engine.limits.rate import RateLimit


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
    cpus: float | None
    gpus: float | None
    memory: int | None


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
    cpus: Any = None
    gpus: Any = None
    memory: Any = None


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

    def policy(self, settings: tuple[Any, ...], build: Callable[[], Policy]) -> Policy:
        """Return the policy for settings; build it if there is none yet."""
        with self._lock:
            for known, policy in self._policies:
                if known == settings:
                    return policy
            policy = build()
            self._policies.appendleft((settings, policy))
            return policy

    def __reduce__(self) -> tuple[Any, ...]:
        return PolicyCache, ()


def _is_rate_limit(value: object) -> bool:
    from toolsemble._engine.limits.rate import RateLimit

    return isinstance(value, RateLimit)


_UNAMBIGUOUS: dict[str, Callable[[Any], bool]] = {
    "timeout": is_seconds,
    "effects": lambda value: value in get_args(Effects),
    "idempotent": lambda value: value is True,
    "rate_limit": _is_rate_limit,
}
