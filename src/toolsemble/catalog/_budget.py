"""Decide which tools are shown in which form, so that all definitions together fit a budget of tokens."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from toolsemble._vocabulary.errors import ToolDefinitionError
from toolsemble.catalog._entry import SHORTEST, Entry, Meter

Offer: TypeAlias = tuple[tuple[str, int], ...]
"""The names of tools in the order in which a model sees them, each with the number of cuts."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The tools that a model sees before it has searched."""

    shown: Sequence[Entry]
    """The tools that are shown: all of them, or the search and those that are always shown."""
    cuts: int = 0
    """The number of cuts of their definitions."""
    hides: bool = False
    """Whether the others are hidden behind the search."""
    left: int = 0
    """The tokens that are left for tools that are found."""

    def offer(self, found: Iterable[Entry], meter: Meter) -> Offer:
        """Return what a model sees after it has found tools, in this order.

        The form of each depends only on those before it, so that a longer list begins with the shorter one. When the
        budget is used up, the shortest form is shown all the same: the model was told that it can call the tool.
        """
        offer = {each.name: self.cuts for each in self.shown}
        left = self.left
        for each in found:
            if each.name not in offer:
                offer[each.name] = cuts = _choose_cuts(each, left, meter)
                left -= each.cost(cuts, meter)
        return tuple(offer.items())


def make_plan(
    entries: Sequence[Entry], always: Sequence[Entry], search: Entry, budget: int | None, meter: Meter
) -> Plan:
    """Return what is shown: everything, everything in a shorter form, or what is always shown and the search."""
    if budget is None:
        return Plan(entries)
    for cuts in range(SHORTEST + 1):
        if _sum_up(entries, cuts, meter, budget) <= budget:
            return Plan(entries, cuts)
    shown = [*always, search]
    for cuts in range(SHORTEST + 1):
        tokens = _sum_up(shown, cuts, meter)
        if tokens <= budget:
            return Plan(shown, cuts, hides=True, left=budget - tokens)
    named = f"always ({', '.join(each.name for each in always):.300}) and find_tools" if always else "find_tools"
    raise ToolDefinitionError(
        f"Catalog budget {budget} cannot hold {named}: the shortest form takes {tokens} tokens; "
        f"pass budget={tokens} or more{', or fewer tools in always' if always else ''}"
    )


def _choose_cuts(entry: Entry, left: int, meter: Meter) -> int:
    """Return the fewest cuts with which a tool fits what is left of the budget, or all of them."""
    fitting = (cuts for cuts in range(SHORTEST) if entry.cost(cuts, meter) <= left)
    return next(fitting, SHORTEST)


def _sum_up(entries: Iterable[Entry], cuts: int, meter: Meter, most: int | None = None) -> int:
    """Return the tokens of definitions; those of thousands of tools are counted only until there are too many."""
    tokens = 0
    for each in entries:
        tokens += each.cost(cuts, meter)
        if most is not None and tokens > most:
            break
    return tokens
