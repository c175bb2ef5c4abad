"""Gates of a toolbox, for calls that other toolboxes make inside its calls, as those of agents do."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from toolsemble.review.gate import Gate, OuterGate
from toolsemble.review.request import ReviewHandler


@dataclass(frozen=True, slots=True)
class InheritedGate:
    """A gate of a toolbox, with the reviewer that it asks."""

    outer: OuterGate
    """The gate, and the tools that it stands before."""
    review: ReviewHandler | None
    """Who is asked; None for the reviewer of the call."""

    def detached(self, review: ReviewHandler) -> InheritedGate:
        """Return the gate as it can be sent to another process, where it asks another reviewer about every call."""
        gate = replace(self.outer.gate, predicates=())
        return InheritedGate(OuterGate(gate, self.outer.patterns), review)


def extend_gates(
    around: tuple[InheritedGate, ...], own: Iterable[InheritedGate], review: ReviewHandler | None
) -> tuple[InheritedGate, ...]:
    """Return the gates around a call with those of the toolbox that makes it, each of them once.

    :param review: who is asked by a gate of a toolbox that names nobody
    """
    known = {id(each.outer) for each in around}
    named = [InheritedGate(each.outer, review if each.review is None else each.review) for each in own]
    return (*around, *(each for each in named if id(each.outer) not in known))


def combine_gates(
    gates: Iterable[InheritedGate], name: str, own: Gate | None, review: ReviewHandler | None
) -> Gate | None:
    """Return the gate of a tool that is called inside calls of other toolboxes.

    Gates that ask the same reviewer become one gate, so nobody is asked twice about one call. One that asks another
    reviewer stays a gate of its own, and all of them must let the call pass.

    :param own: the gate that the tool has in its own toolbox
    :param review: who is asked by that one
    """
    merged: list[Gate] = [] if own is None else [own]
    for each in gates:
        asks = None if each.review is review else each.review
        place = next((place for place, gate in enumerate(merged) if gate.review is asks), None)
        gate = each.outer.around(name, None if place is None else merged[place])
        if place is not None and gate is not None:
            merged[place] = gate
        elif gate is not None:
            merged.append(replace(gate, review=asks))
    return replace(merged[0], further=tuple(merged[1:])) if merged else None
