"""Gates: which calls need approval, and on which terms."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from toolsemble._vocabulary.errors import ToolDefinitionError
from toolsemble.review._audit import LOGGER
from toolsemble.review._pattern import matches_name
from toolsemble.review._request import ReviewHandler
from toolsemble.review._terms import TIMEOUT, OnTimeout, check_terms

Predicate: TypeAlias = Callable[[Any, Any], Any]
"""Takes the arguments as a reviewer would see them, and the context; returns whether approval is required."""


@dataclass(frozen=True, slots=True)
class Gate:
    """The conditions and terms under which calls need approval.

    >>> Gate().predicates, Gate(timeout=60).timeout
    ((), 60)
    """

    predicates: tuple[Predicate, ...] = ()
    """Approval is required if any of these returns true; without predicates, always."""
    timeout: float | None = TIMEOUT
    """Seconds to wait for the reviewer; 0 or None waits forever."""
    on_timeout: OnTimeout = OnTimeout.EXIT_EARLY
    """What happens to the call on a timeout."""
    role: str | None = None
    """The required role of the reviewer; None: any."""
    review: ReviewHandler | None = None
    """The reviewer; None: that of the call."""
    further: tuple[Gate, ...] = ()
    """Gates with other reviewers, who must approve as well."""


def build_gate(
    owner: str,
    requires_approval: object,
    timeout: object = TIMEOUT,
    on_timeout: object = OnTimeout.EXIT_EARLY,
    role: object = None,
) -> Gate:
    """Return the gate for the settings of a tool or a toolbox that requires approval; raise if they are not valid.

    >>> build_gate("Tool 'delete'", requires_approval="no")
    Traceback (most recent call last):
    ...
    toolsemble.ToolDefinitionError: Tool 'delete': requires_approval must be True, False or a predicate, not 'no'
    """
    check_terms(f"{owner}: approval_", timeout, on_timeout, role)
    return Gate(_predicates(owner, requires_approval), timeout, on_timeout, role)  # type: ignore[arg-type]  # checked


def build_outer_gate(approve: object, timeout: object, on_timeout: object, role: object) -> OuterGate:
    """Return the gate for the settings of a toolbox; raise if they are not valid."""
    patterns = None if callable(approve) else _patterns(approve)
    gate = build_gate("Toolbox", approve if patterns is None else True, timeout, on_timeout, role)
    return OuterGate(gate, patterns)


def _patterns(approve: object) -> tuple[str, ...]:
    given = [approve] if isinstance(approve, str) else approve
    patterns = tuple(given) if isinstance(given, Iterable) else (None,)
    if not all(isinstance(pattern, str) for pattern in patterns):
        raise ToolDefinitionError(f"Toolbox: approve must be tool names, patterns or a predicate, not {approve!r:.80}")
    return patterns


@dataclass(frozen=True, slots=True)
class OuterGate:
    """A gate for the tools of a toolbox that match its patterns."""

    gate: Gate
    patterns: tuple[str, ...] | None
    """Names and patterns of names; None: every tool."""

    def check(self, names: Sequence[str], *, all_known: bool = True) -> None:
        """Raise ToolDefinitionError for a name that no tool has: a typo would leave a tool without its gate.

        :param all_known: whether these are all tools; otherwise a name may be that of a tool which is added later
        """
        for pattern in self.patterns or ():
            if any(matches_name(pattern, name) for name in names):
                continue
            if all_known and not _WILD.intersection(pattern):
                raise ToolDefinitionError(f"Toolbox: approve names {pattern!r}, but the tools are {', '.join(names)}")
            LOGGER.warning("approve: the pattern %r matches none of the tools %s", pattern, ", ".join(names))

    def around(self, names: Sequence[str], own: Gate | None) -> Gate | None:
        """Return the gate of a tool, combined with its own: approval if either requires it, on the stricter terms.

        :param names: all names of the tool
        """
        if not self._matches(names):
            return own
        if own is None:
            return self.gate
        return Gate(
            own.predicates + self.gate.predicates if own.predicates and self.gate.predicates else (),
            own.timeout,
            self.gate.on_timeout if own.on_timeout is OnTimeout.CONTINUE else own.on_timeout,
            self.gate.role or own.role,
            own.review,
            own.further,
        )

    def _matches(self, names: Sequence[str]) -> bool:
        return self.patterns is None or any(matches_name(each, name) for each in self.patterns for name in names)


_WILD = frozenset("*?[")


def _predicates(owner: str, requires_approval: object) -> tuple[Predicate, ...]:
    if requires_approval is True:
        return ()
    if not callable(requires_approval):
        raise ToolDefinitionError(
            f"{owner}: requires_approval must be True, False or a predicate, not {requires_approval!r:.80}"
        )
    return (check_predicate(owner, requires_approval),)


def check_predicate(owner: str, predicate: Callable[..., Any]) -> Predicate:
    """Return the predicate; raise ToolDefinitionError if it does not take the arguments and the context."""
    try:
        inspect.signature(predicate).bind(None, None)
    except TypeError as problem:
        raise ToolDefinitionError(
            f"{owner}: an approval predicate takes (arguments, context); in a class it is a method, or a staticmethod: "
            f"{problem}"
        ) from None
    except ValueError:
        pass  # a C function without a signature
    return predicate
