"""What a tool declares about its calls: how long, where, how often, with what effects."""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Iterable
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeAlias

Isolation: TypeAlias = Literal["thread", "process"]
"""Where a blocking body runs: beside the program's own threads, or in a process that can be killed."""

Effects: TypeAlias = Literal["read", "write", "irreversible"]
"""What a call changes in the world: nothing, something that can be undone, something that cannot."""

Inner: TypeAlias = Callable[[Any], Generator[Any, Any, Any]]
"""Gives the path of what stands inside a layer, for the context of the call; each time it is called, once more."""


class Layer(Protocol):
    """Something around the body of a call: it can wait, answer in its place, or walk it again.

    It belongs to one tool and is shared by all calls of it, in any thread or event loop; so it keeps what they share.
    """

    def around(self, definition: Any, value: Any, context: Any, inner: Inner) -> Generator[Any, Any, Any]:
        """Walk one call of a definition with the input that its body gets; give what a body would return.

        It yields works, as the call path does. Every wait ends with ``context.deadline``.
        """
        ...

    def check(self, definition: Any) -> None:
        """Refuse a definition that it cannot be put around; most can be put around any."""
        _ = definition


@dataclass(frozen=True, slots=True)
class Policy:
    """What was declared about a tool's calls, checked; the call path looks nowhere else.

    >>> Policy(timeout=5, effects="read").hints
    {'readOnlyHint': True}
    """

    timeout: float | None = None
    """How many seconds a call may take after its approval; None for any number."""
    isolation: Isolation = "thread"
    """Where a blocking body runs."""
    max_memory: int | None = None
    """Bytes of memory that the worker process of a call may have; None: no limit."""
    effects: Effects | None = None
    """What a call changes in the world; None when nobody said."""
    idempotent: bool = False
    """Whether a second call with the same arguments changes nothing more."""
    retried: bool = False
    """Whether a call that failed is made again."""
    cached: bool = False
    """Whether results are kept and given again, or it was said that they never are."""
    polling: bool = False
    """Whether the same call is meant to be made again and again, until its result changes."""
    max_output: int | None = None
    """How many characters of a result the model gets; None for what the toolbox says."""
    needs: Callable[[Any], Iterable[Hashable]] | None = None
    """Gives the places and names that a call with an input holds while it runs; None for none."""
    rates: tuple[Any, ...] = ()
    """How many bodies may begin in some time: rate limits, the tool's own first."""
    layers: tuple[Layer, ...] = ()
    """What stands around the body and the wait for its place, innermost first."""
    nearest: tuple[Layer, ...] = ()
    """What stands next to the body, inside of all limits, innermost first; for tests."""
    limits: bool = field(init=False, compare=False)
    """Whether a call has to be held to anything; else it only says what the tool is like."""
    binds: bool = field(init=False, compare=False)
    """Whether keys, names of resources or retries are for one input, which must not change after they were made."""

    def __post_init__(self) -> None:
        held = self.timeout is not None or self.needs is not None or self.isolation != "thread" or bool(self.layers)
        object.__setattr__(self, "limits", held or bool(self.rates or self.nearest))
        # A layer says so that makes a key of the input, or walks what is inside again; others need not say anything.
        bound = any(getattr(each, "binds", False) for each in (*self.layers, self.needs))
        object.__setattr__(self, "binds", bound)

    @property
    def repeatable(self) -> bool:
        """Whether a call may be made again without asking what the first one did."""
        return self.effects == "read" or self.idempotent

    @property
    def hints(self) -> dict[str, bool]:
        """What the effects are called in the Model Context Protocol.

        >>> Policy(effects="irreversible").hints
        {'readOnlyHint': False, 'destructiveHint': True}
        """
        said: dict[str, bool] = {}
        if self.effects is not None:
            said["readOnlyHint"] = self.effects == "read"
        if self.effects in ("write", "irreversible"):
            said["destructiveHint"] = self.effects == "irreversible"
        if self.idempotent:
            said["idempotentHint"] = True
        return said
