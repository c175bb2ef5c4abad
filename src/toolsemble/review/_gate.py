"""Gates: which calls need approval, and on which terms; gates inherited by nested calls, and asking during a call."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, TypeAlias, Unpack

from toolsemble._schema.masking import mask_object
from toolsemble._vocabulary.call import GeneratedRunId
from toolsemble._vocabulary.errors import ToolDefinitionError
from toolsemble.review import _request as reviews
from toolsemble.review._asking.question import Question
from toolsemble.review._request import to_reviewer
from toolsemble.review._rules.pattern import matches_name
from toolsemble.review._terms import TIMEOUT, OnTimeout, ReviewTerms, ReviewTiming, check_terms

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
    review: reviews.ReviewHandler | None = None
    """The reviewer; None: the call's."""
    further: tuple[Gate, ...] = ()
    """Gates of other reviewers, which must approve as well."""


def build_gate(
    owner: str,
    requires_approval: object,
    timeout: object = TIMEOUT,
    on_timeout: object = OnTimeout.EXIT_EARLY,
    role: object = None,
) -> Gate:
    """Return the gate for a tool's or a toolbox's approval settings; raise if they are not valid.

    >>> build_gate("Tool 'delete'", requires_approval="no")
    Traceback (most recent call last):
    ...
    toolsemble.ToolDefinitionError: Tool 'delete': requires_approval must be True, False or a predicate, not 'no'
    """
    check_terms(f"{owner}: approval_", timeout, on_timeout, role)
    return Gate(_predicates(owner, requires_approval), timeout, on_timeout, role)  # type: ignore[arg-type]  # checked


def build_outer_gate(approve: object, timeout: object, on_timeout: object, role: object) -> OuterGate:
    """Return the gate for a toolbox's settings; raise if they are not valid."""
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
    """Names and name patterns; None: every tool."""

    def check(self, names: Sequence[str], *, all_known: bool = True) -> None:
        """Raise ToolDefinitionError for a name that no tool has: a typo would leave a tool without its gate.

        :param all_known: whether these are all tools; if not, a tool with this name may be added later
        """
        for pattern in self.patterns or ():
            if any(matches_name(pattern, name) for name in names):
                continue
            if all_known and not _WILD.intersection(pattern):
                raise ToolDefinitionError(f"Toolbox: approve names {pattern!r}, but the tools are {', '.join(names)}")
            reviews.LOGGER.warning("approve: the pattern %r matches none of the tools %s", pattern, ", ".join(names))

    def around(self, names: Sequence[str], own: Gate | None) -> Gate | None:
        """Combine the gate with a tool's own: approval if either requires it, on the stricter terms.

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


@dataclass(frozen=True, slots=True)
class InheritedGate:
    """A gate of a toolbox and its reviewer."""

    outer: OuterGate
    """The gate and the patterns of its tools."""
    review: reviews.ReviewHandler | None
    """The reviewer; None: the call's."""

    def detach(self, review: reviews.ReviewHandler) -> InheritedGate:
        """Return a picklable copy, without predicates and with another reviewer."""
        gate = replace(self.outer.gate, predicates=())
        return InheritedGate(OuterGate(gate, self.outer.patterns), review)


def extend_gates(
    around: tuple[InheritedGate, ...], own: Iterable[InheritedGate], review: reviews.ReviewHandler | None
) -> tuple[InheritedGate, ...]:
    """Return the gates of the enclosing calls and of the calling toolbox, each once.

    :param review: the reviewer of gates that have none
    """
    known = {id(each.outer) for each in around}
    named = [InheritedGate(each.outer, review if each.review is None else each.review) for each in own]
    return (*around, *(each for each in named if id(each.outer) not in known))


def combine_gates(
    gates: Iterable[InheritedGate], names: Sequence[str], own: Gate | None, review: reviews.ReviewHandler | None
) -> Gate | None:
    """Return the gate of a tool that is called inside calls of other toolboxes.

    Gates with the same reviewer are merged, so that no reviewer is asked twice about one call. Gates with different
    reviewers stay separate, and all of them must approve.

    :param names: all names of the tool
    :param own: the gate of the tool in its own toolbox
    :param review: the reviewer of the tool's own gate
    """
    merged: list[Gate] = [] if own is None else [own]
    decided = own is not None and own.review is not None and to_reviewer(own.review).decides
    for each in gates:
        asked = each.review or review
        if decided and asked is not None and to_reviewer(asked).pauses:
            continue  # a person has already decided
        asks = None if each.review is review else each.review
        place = next((place for place, gate in enumerate(merged) if gate.review is asks), None)
        gate = each.outer.around(names, None if place is None else merged[place])
        if place is not None and gate is not None:
            merged[place] = gate
        elif gate is not None:
            merged.append(replace(gate, review=asks))
    return replace(merged[0], further=tuple(merged[1:])) if merged else None


def ask_during_call(context: Any, description: str, **terms: Unpack[ReviewTerms]) -> reviews.ReviewDecision:
    """Ask the reviewer of a :class:`~toolsemble.ToolContext`, and wait in this thread; without one, continue."""
    return reviews.Continue() if context.review is None else _question(context, description, **terms).do()


async def aask_during_call(context: Any, description: str, **terms: Unpack[ReviewTerms]) -> reviews.ReviewDecision:
    """Ask the reviewer of a :class:`~toolsemble.ToolContext` without blocking the event loop; without one, continue."""
    return reviews.Continue() if context.review is None else await _question(context, description, **terms).ado()


def _question(
    context: Any,
    description: str,
    *,
    arguments: Any = MappingProxyType({}),
    timeout: float | None = TIMEOUT,
    on_timeout: OnTimeout = OnTimeout.EXIT_EARLY,
    required_role: str | None = None,
) -> Question:
    check_terms(f"Tool '{context.tool_name}': the ", timeout, on_timeout, required_role)
    exact = [description, dict(arguments) if isinstance(arguments, Mapping) else arguments]
    shown = [mask_object(each) for each in exact]
    request = reviews.ReviewRequest(
        shown[0],
        context.tool_name,
        shown[1],
        ReviewTiming.DURING_EXECUTION,
        required_role=required_role,
        call_id=context.call_id,
        run_id=context.run_id,
        agent_role=context.agent_role,
        memory_id=context.memory_id,
        chosen_run=not isinstance(context.run_id, GeneratedRunId),
        hidden_digest="" if shown == exact else reviews.digest([context.run_id, *exact]),
        **reviews.fit_to_deadline(context.deadline, timeout, on_timeout),
    )
    return Question(context.review, request)
