"""``Explanation``: which tools of a catalog are shown, shortened or hidden, and what each of them costs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from toolsemble.catalog._budget import Plan
from toolsemble.catalog._entry import Entry
from toolsemble.catalog._groups import OTHER
from toolsemble.catalog._shorten import STEPS
from toolsemble.catalog._tokens import Meter

_MAX_SHOWN = 5


@dataclass(frozen=True, slots=True)
class ToolCost:
    """The tokens that one tool of a catalog costs."""

    name: str
    """Its name."""
    group: str
    """The group it belongs to."""
    state: Literal["shown", "shortened", "hidden"]
    """How a model sees it before it has searched."""
    tokens: Mapping[str, int]
    """The tokens of its whole definition, by provider."""
    shown: int
    """The tokens of the form that is shown; 0 if it is hidden."""


@dataclass(frozen=True, slots=True, repr=False)
class Explanation:
    """The result of :meth:`Catalog.explain`: what was shortened or hidden to fit the budget.

    ``print`` shows the first tools of each state; ``tools`` has all of them.
    """

    budget: int | None
    """The most tokens of all definitions together; None: any number."""
    total: int
    """The tokens of all whole definitions."""
    shown: int
    """The tokens of what a model sees before it has searched."""
    steps: tuple[str, ...]
    """What was cut of the definitions that are shown."""
    hides: bool
    """Whether the other tools are hidden behind ``find_tools``."""
    tools: tuple[ToolCost, ...]
    """The tools, in order."""

    @property
    def shortened(self) -> list[str]:
        """The names of the tools that are shown in a shorter form."""
        return [each.name for each in self.tools if each.state == "shortened"]

    @property
    def hidden(self) -> list[str]:
        """The names of the tools that are hidden."""
        return [each.name for each in self.tools if each.state == "hidden"]

    @property
    def summary(self) -> str:
        """All of it in one line."""
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
        """Return the summary, and a line for each tool: those that are shown first.

        :param most: the most tools of each state, how many there are is told; None: all of them
        """
        lines = [self.summary]
        for rows, more in self.first(most):
            lines += [f"{each.name}  {each.state}  {_join(each.tokens)}" for each in rows]
            lines += [f"... and {more:,} more {rows[0].state}"] if more else []
        return "\n".join(lines)

    def first(self, most: int | None) -> Iterator[tuple[list[ToolCost], int]]:
        """Yield, for each state that tools have, the first of these tools, and the number of the others."""
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
    """Return what a plan shows of some tools, and what each of them costs."""
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
    """Return whether the cuts change anything about a tool."""
    return entry.specification(cuts) != entry.specification()
