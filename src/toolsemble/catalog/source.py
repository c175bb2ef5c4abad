"""``Source``: tools that depend on the run, looked up before each turn and cached with their own age."""

from __future__ import annotations

import inspect
import time
from collections.abc import Awaitable, Callable, Generator, Hashable, Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

from toolsemble.catalog.recent import Recent
from toolsemble.errors import ToolDefinitionError
from toolsemble.runtime.checks import check_seconds
from toolsemble.runtime.concurrency import is_awaitable
from toolsemble.toolbox.formats import ToolSet

FindTools: TypeAlias = Callable[[Any], Iterable[object] | Awaitable[Iterable[object]]]
"""Returns the tools for a :class:`~toolsemble.agent.RunView`; sync or async."""
Looking: TypeAlias = Generator[Awaitable[Any], Any, tuple[object, ...]]
"""A lookup: yields what has to be awaited, and returns tools."""

_MOST_KEYS = 1_000


@dataclass(frozen=True, slots=True)
class Source:
    """Tools that depend on the run, for a :class:`~toolsemble.Catalog`.

    >>> def find_tools_of(run):
    ...     return []
    >>> Source(find_tools_of, max_age=300, by=lambda run: run.deps.tenant, group="crm").max_age
    300

    :param find: a function from a :class:`~toolsemble.agent.RunView` to tools or a toolbox, sync or async; called
        before each turn
    :param max_age: seconds for which its tools are kept; 0: it is called before each turn
    :param by: returns the key under which they are kept, such as the tenant of the run: runs with equal keys share
        them; None: each run has its own
    :param group: the name of the group of these tools; "": by their names
    """

    find: FindTools
    max_age: float = 0.0
    by: Callable[[Any], Hashable] | None = None
    group: str = ""

    def __post_init__(self) -> None:
        check_seconds("Source max_age", self.max_age, zero=True)
        if self.by is not None and not callable(self.by):
            raise ToolDefinitionError(f"Source by must be a function of the run, not {self.by!r:.80}")
        if not isinstance(self.group, str):
            raise ToolDefinitionError(f"Source group must be a str, not {self.group!r:.80}")
        _check_function(self.find)


class Lookup:
    """The lookups of one source, and what they have returned lately."""

    __slots__ = ("_recent", "source")

    def __init__(self, source: Source) -> None:
        self.source = source
        self._recent: Recent[tuple[float, tuple[object, ...]]] = Recent(_MOST_KEYS)

    def find(self, run: Any) -> Looking:
        """Return the tools for a run; those of an earlier lookup if they are not too old."""
        source = self.source
        if not source.max_age:
            return (yield from self._ask(run))
        key = ("run", run.run_id) if source.by is None else ("key", source.by(run))
        known = self._recent.get(key) if key != ("run", "") else None
        now = time.monotonic()
        if known is not None and now - known[0] < source.max_age:
            return known[1]
        return self._recent.keep(key, (now, (yield from self._ask(run))))[1]

    def _ask(self, run: Any) -> Looking:
        given: Any = self.source.find(run)
        found: Any = (yield given) if is_awaitable(given) else given
        if isinstance(found, ToolSet):
            return (found,)
        if isinstance(found, (str, bytes)) or not isinstance(found, Iterable):
            raise TypeError(f"The function for a catalog's tools must return a list of tools, not {found!r:.80}")
        return tuple(found)


def _check_function(find: Any) -> None:
    """Raise if this is not a function of the run, such as one that was meant as a tool."""
    if isinstance(find, type) or not callable(find):
        raise ToolDefinitionError(f"A Source takes a function of the run that returns tools, not {find!r:.80}")
    try:
        inspect.signature(find).bind(None)
    except TypeError:
        raise ToolDefinitionError(
            f"A function in a Catalog takes a RunView and returns tools; {find!r:.80} takes something else. To use it "
            "as a tool, decorate it with @tool"
        ) from None
    except ValueError:
        return  # its signature is unknown
