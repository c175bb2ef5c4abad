"""Gates that a toolbox passes on to nested calls of other toolboxes, such as those of agents."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from toolsemble.review._gate import Gate, OuterGate
from toolsemble.review._request import ReviewHandler


@dataclass(frozen=True, slots=True)
class InheritedGate:
    """A gate of a toolbox and its reviewer."""

    outer: OuterGate
    """The gate and the patterns of its tools."""
    review: ReviewHandler | None
    """The reviewer; None: that of the call."""

    def detach(self, review: ReviewHandler) -> InheritedGate:
        """Return a copy that can be pickled: without predicates, and with another reviewer."""
        gate = replace(self.outer.gate, predicates=())
        return InheritedGate(OuterGate(gate, self.outer.patterns), review)


def extend_gates(
    around: tuple[InheritedGate, ...], own: Iterable[InheritedGate], review: ReviewHandler | None
) -> tuple[InheritedGate, ...]:
    """Return the gates of the enclosing calls and those of the toolbox that makes the call, each once.

    :param review: the reviewer of gates that have none
    """
    known = {id(each.outer) for each in around}
    named = [InheritedGate(each.outer, review if each.review is None else each.review) for each in own]
    return (*around, *(each for each in named if id(each.outer) not in known))


def combine_gates(
    gates: Iterable[InheritedGate], names: Sequence[str], own: Gate | None, review: ReviewHandler | None
) -> Gate | None:
    """Return the gate of a tool that is called inside of calls of other toolboxes.

    Gates with the same reviewer are merged, so that nobody is asked twice about one call. Gates with other reviewers
    stay separate, and all of them must approve.

    :param names: all names of the tool
    :param own: the gate of the tool in its own toolbox
    :param review: the reviewer of that gate
    """
    merged: list[Gate] = [] if own is None else [own]
    decided = own is not None and getattr(own.review, "decides", False)
    for each in gates:
        if decided and getattr(each.review or review, "pauses", False):
            continue  # the decision of a person is in place of its question
        asks = None if each.review is review else each.review
        place = next((place for place, gate in enumerate(merged) if gate.review is asks), None)
        gate = each.outer.around(names, None if place is None else merged[place])
        if place is not None and gate is not None:
            merged[place] = gate
        elif gate is not None:
            merged.append(replace(gate, review=asks))
    return replace(merged[0], further=tuple(merged[1:])) if merged else None
