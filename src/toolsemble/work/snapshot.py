"""Copies of a call's input: what was approved, and what its keys were made of, is what the body gets."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from toolsemble.definition.definition import ToolDefinition
from toolsemble.errors import ToolExecutionError
from toolsemble.review.request import digest
from toolsemble.schema.display import UnreadableError
from toolsemble.shape import describe_error

_ATOMIC = frozenset((str, int, float, bool, bytes, type(None)))
_OTHER = object()


class UncopyableError(ToolExecutionError):
    """The input of a call cannot be copied, so somebody else could change it."""


def is_bound(definition: ToolDefinition) -> bool:
    """Return whether an answer, a key or a lock of a call is for its input, which must not change afterwards.

    >>> is_bound(ToolDefinition("shout", "", body=str.upper, decode=None, accept=None))
    False
    """
    return definition.gate is not None or (definition.policy is not None and definition.policy.binds)


def copy_input(definition: ToolDefinition, value: Any) -> Any:
    """Return a copy of a body's input that nobody else holds; raise :class:`UncopyableError` where there is none.

    An object that keeps something where nobody is shown it is an :class:`UnreadableError`: a copy may have lost that.

    >>> given = {"path": "a.log", "tags": ["old"]}
    >>> own = copy_input(ToolDefinition("delete", "", body=str, decode=None, accept=None), given)
    >>> own == given, own["tags"] is given["tags"]
    (True, False)
    """
    if (plain := _plain(value)) is not _OTHER:
        return plain
    definition.present(value, reveal=True)
    return _deep(definition, value)


def exact_digest(definition: ToolDefinition, value: Any) -> str:
    """Return what tells an input from every other, its secrets included."""
    return digest(definition.present(value, reveal=True))


def _deep(definition: ToolDefinition, value: Any) -> Any:
    try:
        return deepcopy(value)
    except Exception as problem:  # an object of somebody's own can raise anything
        raise UncopyableError(
            f"The input of '{definition.name}' cannot be copied ({describe_error(problem)}), so it could "
            "be changed before it is used; pass values that can be copied"
        ) from problem


def _plain(value: Any) -> Any:
    """Return a copy of an input that is atomic, or has atomic values or lists of such, as most have.

    ``deepcopy`` does the same, and takes ten times as long.
    """
    if type(value) in _ATOMIC:
        return value
    if type(value) is not dict:
        return _OTHER
    made = {}
    for key, each in value.items():
        if type(each) in _ATOMIC:
            made[key] = each
        elif type(each) is list and all(type(item) in _ATOMIC for item in each):
            made[key] = each.copy()
        else:
            return _OTHER
    return made


class Snapshot:
    """The input of a call as it was approved, and as its keys were made of it; each run of the body gets a copy.

    An input that cannot be copied is compared in place of that, as the last thing before the body.
    """

    __slots__ = ("_definition", "_seal", "_shared", "value")

    def __init__(self, definition: ToolDefinition, value: Any) -> None:
        """Take a copy of the input; that of an approved call is one already."""
        self._definition = definition
        self._seal: str | None = None
        self.value = value
        """The input, for what is recorded of the call."""
        self._shared = False
        sealed = definition.gate is not None
        if not sealed:
            try:
                self.value = copy_input(definition, value)
            except UncopyableError:
                sealed = self._shared = True
            except UnreadableError:
                self._shared = True  # nothing can be compared; whoever makes a key of it finds that out, too
        if sealed:
            self._seal = exact_digest(definition, self.value)

    def take(self) -> Any:
        """Return the input for one run of the body, or for what stands around it; raise when it was changed."""
        if self._seal is not None and self._seal != exact_digest(self._definition, self.value):
            raise ToolExecutionError(
                f"The arguments of '{self._definition.name}' were changed before it could run; nothing was done"
            )
        if (plain := _plain(self.value)) is not _OTHER:
            return plain
        try:
            return self.value if self._shared else _deep(self._definition, self.value)
        except UncopyableError:  # compared just now
            return self.value
