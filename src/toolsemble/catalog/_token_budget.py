"""Decide which tools are shown in which form, so that all definitions fit a token budget."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from toolsemble._runtime.text import escape_line
from toolsemble._vocabulary.errors import ToolDefinitionError
from toolsemble.catalog._entry import SHORTEST, STEPS, Entry, Meter

Offer: TypeAlias = tuple[tuple[str, int], ...]
"""The names of tools in display order, each with its number of cuts."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The tools that a model sees before any search."""

    shown: Sequence[Entry]
    """The visible tools: all of them, or the search and the always visible ones."""
    cuts: int = 0
    """The number of cuts in their definitions."""
    hides: bool = False
    """Whether other tools are hidden behind the search."""
    left: int = 0
    """The tokens left for found tools."""

    def offer(self, found: Iterable[Entry], meter: Meter) -> Offer:
        """Return the offer after a model has found tools, in this order.

        Each tool's form depends only on the previous ones, so that a longer list starts with the shorter one. When the
        budget is exhausted, the shortest form is still shown, because the model was told that it can call the tool.
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
    """Return the plan: everything, everything in a shorter form, or the always visible tools and the search."""
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
    """Return the smallest number of cuts with which a tool fits the remaining budget, or all cuts."""
    fitting = (cuts for cuts in range(SHORTEST) if entry.cost(cuts, meter) <= left)
    return next(fitting, SHORTEST)


def _sum_up(entries: Iterable[Entry], cuts: int, meter: Meter, most: int | None = None) -> int:
    """Return the token count of definitions; stop counting above the limit."""
    tokens = 0
    for each in entries:
        tokens += each.cost(cuts, meter)
        if most is not None and tokens > most:
            break
    return tokens


OTHER = "other"
"""The group of unrelated tools."""
_MOST_SHOWN = 20
_LONGEST_NAME = 40
_PREFIX = re.compile(r"([a-zA-Z0-9]+?)(?:[_-]|(?<=[a-z])(?=[A-Z]))")
# Prefixes that name an action instead of a group.
_VERB_LIST = """
add ask book buy calc calculate cancel change check close compute convert copy count create delete describe
download edit estimate execute export fetch find generate get import initialize insert is list load locate log
lookup make modify move open order perform play predict process publish query read remove render reserve reset
resolve restore retrieve run save scan schedule search send set show solve start stop submit sum track train
translate update upload validate view write
"""
_VERBS = frozenset(_VERB_LIST.split())


def group_tools(entries: Iterable[Entry]) -> dict[str, list[str]]:
    """Return tool names by group, ordered by each group's first tool; others come last.

    >>> from toolsemble._engine.definition import string_definition
    >>> names = ["crm_find", "crm_close", "now", "get_a", "get_b"]
    >>> group_tools([Entry(None, string_definition(name, "", str.upper)) for name in names])
    {'crm': ['crm_find', 'crm_close'], 'other': ['now', 'get_a', 'get_b']}
    """
    listed = list(entries)
    shared = Counter(_find_prefix(each.name) for each in listed if not each.group)
    groups: dict[str, list[str]] = {}
    others: list[str] = []
    for each in listed:
        prefix = _find_prefix(each.name)
        group = each.group or (prefix if prefix and shared[prefix] > 1 else "")
        (groups.setdefault(group, []) if group else others).append(each.name)
    if others:
        groups.setdefault(OTHER, []).extend(others)
    return groups


def name_groups(groups: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the names of the largest groups, as shown to a model, without the group of other tools.

    >>> name_groups({"files": ["a", "b"], "crm": ["c", "d", "e"], "other": ["f"]})
    ['crm', 'files']
    """
    largest = sorted((name for name in groups if name != OTHER), key=lambda name: -len(groups[name]))
    return [escape_line(name, _LONGEST_NAME) for name in largest[:_MOST_SHOWN]]


def _find_prefix(name: str) -> str:
    found = _PREFIX.match(name)
    prefix = found[1].lower() if found else ""
    return "" if prefix in _VERBS else prefix


_MAX_SHOWN = 5


@dataclass(frozen=True, slots=True)
class ToolCost:
    """The token cost of one tool in a catalog."""

    name: str
    """Its name."""
    group: str
    """Its group."""
    state: Literal["shown", "shortened", "hidden"]
    """Its visibility before any search."""
    tokens: Mapping[str, int]
    """The tokens of its full definition, by provider."""
    shown: int
    """The tokens of its visible form; 0 if it is hidden."""


@dataclass(frozen=True, slots=True, repr=False)
class Explanation:
    """The result of :meth:`Catalog.explain`: what was shortened or hidden to fit the budget.

    ``print`` shows the first tools of each state; ``tools`` has all of them.
    """

    budget: int | None
    """The maximum tokens of all definitions together; None: no limit."""
    total: int
    """The tokens of all full definitions."""
    shown: int
    """The tokens visible before any search."""
    steps: tuple[str, ...]
    """The cuts in the visible definitions."""
    hides: bool
    """Whether the other tools are hidden behind ``find_tools``."""
    tools: tuple[ToolCost, ...]
    """The tools, in order."""

    @property
    def shortened(self) -> list[str]:
        """The names of shortened tools."""
        return [each.name for each in self.tools if each.state == "shortened"]

    @property
    def hidden(self) -> list[str]:
        """The names of hidden tools."""
        return [each.name for each in self.tools if each.state == "hidden"]

    @property
    def summary(self) -> str:
        """The explanation in one line."""
        number = len(self.tools)
        limit = "" if self.budget is None else f", the budget is {self.budget:,}"
        done = "everything is shown"
        if self.hides:
            hidden = len(self.hidden)
            kept = number - hidden
            also = f" and {kept} tool{'s' if kept != 1 else ''}" if kept else ""
            done = f"{hidden} {'is' if hidden == 1 else 'are'} hidden; find_tools{also} take{'' if kept else 's'} "
            done += f"{self.shown:,} tokens"
        elif self.steps:
            done = f"everything is shown in a shorter form, which takes {self.shown:,} tokens"
        cut = f" ({'; '.join(self.steps)})" if self.steps else ""
        return f"{number} tool{' has' if number == 1 else 's have'} {self.total:,} tokens{limit}: {done}{cut}"

    def text(self, most: int | None = _MAX_SHOWN) -> str:
        """Return the summary, and a line for each tool, visible ones first.

        :param most: the maximum number of listed tools per state, plus a count of the rest; None: all
        """
        lines = [self.summary]
        for rows, more in self.first(most):
            lines += [f"{each.name}  {each.state}  {_join(each.tokens)}" for each in rows]
            lines += [f"... and {more:,} more {rows[0].state}"] if more else []
        return "\n".join(lines)

    def first(self, most: int | None) -> Iterator[tuple[list[ToolCost], int]]:
        """Yield, for each state, its first tools and the number of the rest."""
        for state in ("shown", "shortened", "hidden"):
            found = [each for each in self.tools if each.state == state]
            if found:
                yield found[:most], len(found[:0] if most is None else found[most:])

    def __str__(self) -> str:
        return self.text()

    def __repr__(self) -> str:
        return f"<Explanation: {self.summary}>"

    def _repr_html_(self) -> str:
        from toolsemble._runtime.notebook import format_note, format_table

        cells: list[Sequence[str]] = []
        for rows, more in self.first(_MAX_SHOWN):
            cells += [(each.name, each.state, each.group, *map(str, each.tokens.values())) for each in rows]
            cells += [(f"… and {more:,} more", rows[0].state)] if more else []
        providers = self.tools[0].tokens if self.tools else ()
        return format_note(self.summary) + format_table(cells, ("tool", "state", "group", *providers))


def _join(tokens: Mapping[str, int]) -> str:
    return ", ".join(f"{provider} {number}" for provider, number in tokens.items())


def explain_plan(
    plan: Plan,
    entries: Mapping[str, Entry],
    groups: Mapping[str, Sequence[str]],
    budget: int | None,
    meter: Meter,
    providers: Sequence[str],
) -> Explanation:
    """Return the explanation of a plan, with each tool's cost."""
    meters = [meter.to(provider) for provider in providers]
    shown = {each.name for each in plan.shown}
    group_of = {name: group for group, names in groups.items() for name in names}
    state: Literal["shown", "shortened"] = "shortened" if plan.cuts else "shown"
    costs = [
        ToolCost(
            name,
            group_of.get(name, OTHER),
            state if name in shown and _is_cut(each, plan.cuts) else "shown" if name in shown else "hidden",
            {other.provider: each.cost(0, other) for other in meters},
            each.cost(plan.cuts, meter) if name in shown else 0,
        )
        for name, each in entries.items()
    ]
    return Explanation(
        budget,
        sum(each.cost(0, meter) for each in entries.values()),
        sum(each.cost(plan.cuts, meter) for each in plan.shown),
        STEPS[: plan.cuts],
        plan.hides,
        tuple(costs),
    )


def _is_cut(entry: Entry, cuts: int) -> bool:
    """Return whether the cuts change a tool."""
    return entry.specification(cuts) != entry.specification()
