"""Which calls of a tool may run at the same time, as the tool says."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Iterable
from types import SimpleNamespace
from typing import Any

from toolsemble.errors import ToolDefinitionError, ToolExecutionError, UnclearError
from toolsemble.locks.claims import Seats
from toolsemble.runtime.concurrency import is_async
from toolsemble.shape import describe_error

PROCESSES = Seats(32)
"""How many bodies run in processes of their own at the same time."""


class Needs:
    """What each call of one tool holds while it runs.

    >>> needs = Needs("Tool 'save'", None, lambda arguments: {f"file:{arguments.path}"})
    >>> list(needs({"path": "a.txt", "text": "hello"}))
    ['file:a.txt']
    """

    def __init__(
        self,
        owner: str,
        max_concurrency: int | None,
        resources: Callable[[Any], Any] | None,
        *,
        apart: bool = False,
    ) -> None:
        if resources is not None and not callable(resources):
            raise ToolDefinitionError(f"{owner}: resources must be a function of the arguments, not {resources!r:.80}")
        if is_async(resources):
            raise ToolDefinitionError(f"{owner}: resources must be a sync function; it is asked before each call")
        if resources is not None:
            _check_signature(owner, resources)
        self._resources = resources
        self._always: tuple[Hashable, ...] = () if max_concurrency is None else (Seats(max_concurrency),)
        if apart:
            self._always += (PROCESSES,)

    @property
    def binds(self) -> bool:
        """Whether the names are made of the input, which must not change afterwards."""
        return self._resources is not None

    def __call__(self, value: Any) -> Iterable[Hashable]:
        """Give the places and names for a body's input; refuse names that are none, for this call alone."""
        return self._always if self._resources is None else (*self._always, *self._named(self._resources, value))

    def _named(self, resources: Callable[[Any], Any], value: Any) -> set[str]:
        given = SimpleNamespace(**value) if isinstance(value, dict) else value
        try:
            said = resources(given)
            names = {said} if isinstance(said, str) else set(said)
        except Exception as error:
            raise UnclearError(f"Its resources cannot be told: {describe_error(error)}") from error
        if wrong := [name for name in names if not isinstance(name, str)]:
            raise ToolExecutionError(f"Its resources must be names, not {type(wrong[0]).__name__}")
        return names


def needs_of(
    owner: str, max_concurrency: int | None, resources: Callable[[Any], Any] | None, *, apart: bool
) -> Needs | None:
    """Give what calls hold, where a tool says something of it."""
    if max_concurrency is None and resources is None and not apart:
        return None
    return Needs(owner, max_concurrency, resources, apart=apart)


def _check_signature(owner: str, resources: Callable[[Any], Any]) -> None:
    """Refuse a function that cannot be called with the arguments alone."""
    try:
        inspect.signature(resources).bind(None)
    except TypeError as problem:
        raise ToolDefinitionError(
            f"{owner}: resources must take the arguments; in a class it is a method, or a staticmethod: {problem}"
        ) from None
    except ValueError:
        pass  # a function in C that does not tell
