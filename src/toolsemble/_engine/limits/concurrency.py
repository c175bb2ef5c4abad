"""The slots and resources of a tool: which of its calls may run at the same time."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Iterable
from types import SimpleNamespace
from typing import Any

from toolsemble._runtime.concurrency import is_async
from toolsemble._runtime.locks.claims import Slots
from toolsemble._runtime.text import describe_error
from toolsemble._vocabulary.errors import ToolDefinitionError, ToolExecutionError, UnclearError

PROCESSES = Slots(32)
"""The slots for bodies that run in worker processes."""


class Needs:
    """The slots and resources that each call of one tool holds while it runs.

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
        in_process: bool = False,
    ) -> None:
        if resources is not None and not callable(resources):
            raise ToolDefinitionError(f"{owner}: resources must be a function of the arguments, not {resources!r:.80}")
        if is_async(resources):
            raise ToolDefinitionError(f"{owner}: resources must be a sync function; it is called before each call")
        if resources is not None:
            _check_signature(owner, resources)
        self._resources = resources
        self._always: tuple[Hashable, ...] = () if max_concurrency is None else (Slots(max_concurrency),)
        if in_process:
            self._always += (PROCESSES,)

    @property
    def binds(self) -> bool:
        """Whether the names depend on the input, which must not change afterwards."""
        return self._resources is not None

    def __call__(self, value: Any) -> Iterable[Hashable]:
        """Return the slots and resource names for an input; raise ToolExecutionError if a name is not a str."""
        return self._always if self._resources is None else (*self._always, *self._read_names(self._resources, value))

    def _read_names(self, resources: Callable[[Any], Any], value: Any) -> set[str]:
        given = SimpleNamespace(**value) if isinstance(value, dict) else value
        try:
            found = resources(given)
            names = {found} if isinstance(found, str) else set(found)
        except Exception as error:
            raise UnclearError(f"Its resources cannot be computed: {describe_error(error)}") from error
        if wrong := [name for name in names if not isinstance(name, str)]:
            raise ToolExecutionError(f"Its resources must be strings, not {type(wrong[0]).__name__}")
        return names


def _check_signature(owner: str, resources: Callable[[Any], Any]) -> None:
    """Raise ToolDefinitionError for a function that cannot be called with the arguments alone."""
    try:
        inspect.signature(resources).bind(None)
    except TypeError as problem:
        raise ToolDefinitionError(
            f"{owner}: resources must take the arguments; in a class it is a method, or a staticmethod: {problem}"
        ) from None
    except ValueError:
        pass  # a C function without a signature
