"""``Policy``: the declared limits and effects of a tool, and the protocol ``Layer`` of what enforces them."""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Iterable
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeAlias

Isolation: TypeAlias = Literal["thread", "process"]
"""Where a blocking body runs: in a thread, or in a worker process, which can be killed."""

Effects: TypeAlias = Literal["read", "write", "irreversible"]
"""What a call changes: nothing, something that can be undone, or something that cannot."""

Inner: TypeAlias = Callable[[Any], Generator[Any, Any, Any]]
"""Returns the path of the inner layers and the body for a context; each call returns a new path."""


class Layer(Protocol):
    """A layer around the body of a call: it can wait, return a result instead, or run the body again.

    It belongs to one tool and is shared by all its calls, in any thread or event loop.
    """

    def around(self, definition: Any, value: Any, context: Any, inner: Inner) -> Generator[Any, Any, Any]:
        """Run one call of a definition with the input of its body; return what a body would return.

        It yields ``Work`` objects, as the call path does. Every wait ends at ``context.deadline``.
        """
        ...

    def check(self, definition: Any) -> None:
        """Raise if the layer cannot be used for a definition; by default it can."""
        _ = definition


@dataclass(frozen=True, slots=True)
class Policy:
    """The checked limits and effects of a tool, for the call path.

    >>> Policy(timeout=5, effects="read").hints
    {'readOnlyHint': True}
    """

    timeout: float | None = None
    """Seconds that a call may take after its approval; None: no limit."""
    isolation: Isolation = "thread"
    """Where a blocking body runs."""
    max_memory: int | None = None
    """Bytes of memory that the worker process may use; None: no limit."""
    cpus: float | None = None
    """CPUs that a cluster reserves for a call; None: its default."""
    gpus: float | None = None
    """GPUs that a cluster reserves for a call; None: none."""
    memory: int | None = None
    """Bytes of memory that a cluster reserves for a call; None: its default."""
    cluster: Any = field(default=None, compare=False)
    """The executor of the cluster that runs a blocking body; None: it runs on this machine."""
    effects: Effects | None = None
    """What a call changes; None: not declared."""
    idempotent: bool = False
    """Whether a second call with the same arguments has no further effect."""
    retried: bool = False
    """Whether failed calls are retried."""
    cached: bool = False
    """Whether caching is declared, on or off."""
    polling: bool = False
    """Whether repeated identical calls are expected, until the result changes."""
    max_output: int | None = None
    """Characters of a result that the model gets; None: the limit of the toolbox."""
    needs: Callable[[Any], Iterable[Hashable]] | None = None
    """Returns the slots and resource names that a call with an input holds while it runs; None: none."""
    rates: tuple[Any, ...] = ()
    """The rate limits, that of the tool first."""
    layers: tuple[Layer, ...] = ()
    """The layers around the body and the wait for its slots, innermost first."""
    nearest: tuple[Layer, ...] = ()
    """The layers next to the body, inside of all limits, innermost first; for tests."""
    limits: bool = field(init=False, compare=False)
    """Whether the policy limits calls; if not, it only describes the tool."""
    binds: bool = field(init=False, compare=False)
    """Whether a key, resource names or retries depend on the input, which must not change afterwards."""

    def __post_init__(self) -> None:
        held = self.timeout is not None or self.needs is not None or self.isolation != "thread" or bool(self.layers)
        object.__setattr__(self, "limits", held or self.cluster is not None or bool(self.rates or self.nearest))
        # Layers that compute a key of the input, or run the body again, set ``binds``; it is optional for others.
        bound = any(getattr(each, "binds", False) for each in (*self.layers, self.needs))
        object.__setattr__(self, "binds", bound)

    @property
    def repeatable(self) -> bool:
        """Whether a call may be repeated if the outcome of the first one is unknown."""
        return self.effects == "read" or self.idempotent

    @property
    def hints(self) -> dict[str, bool]:
        """The effects as annotations of the Model Context Protocol.

        >>> Policy(effects="irreversible").hints
        {'readOnlyHint': False, 'destructiveHint': True}
        """
        hints: dict[str, bool] = {}
        if self.effects is not None:
            hints["readOnlyHint"] = self.effects == "read"
        if self.effects in ("write", "irreversible"):
            hints["destructiveHint"] = self.effects == "irreversible"
        if self.idempotent:
            hints["idempotentHint"] = True
        return hints
