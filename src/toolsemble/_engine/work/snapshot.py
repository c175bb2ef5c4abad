"""Copies of a call's input, so that it cannot change after it was approved or its keys were computed."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from toolsemble._engine.definition import ToolDefinition
from toolsemble._runtime.text import describe_error
from toolsemble._schema.display import DisplayError
from toolsemble._vocabulary.errors import ToolExecutionError
from toolsemble.review._request import digest

_ATOMIC = frozenset((str, int, float, bool, bytes, type(None)))
_OTHER = object()


class UncopyableError(ToolExecutionError):
    """The input of a call cannot be copied, so it could be changed."""


def is_bound(definition: ToolDefinition) -> bool:
    """Return whether an approval, a key or a lock of a call depends on its input, which must not change afterwards.

    >>> is_bound(ToolDefinition("shout", "", body=str.upper, decode=None, accept=None))
    False
    """
    return definition.gate is not None or (definition.policy is not None and definition.policy.binds)


def copy_input(definition: ToolDefinition, value: Any) -> Any:
    """Return a copy of a body's input; raise :class:`UncopyableError` if it cannot be copied.

    Raise :class:`DisplayError` for an object with hidden state: a copy might lose that.
    """
    if (plain := _plain(value)) is not _OTHER:
        return plain
    definition.present(value, reveal=True)
    return _deep(definition, value)


def exact_digest(definition: ToolDefinition, value: Any) -> str:
    """Return the digest of an input, including its secrets."""
    return digest(definition.present(value, reveal=True))


def _deep(definition: ToolDefinition, value: Any) -> Any:
    try:
        return deepcopy(value)
    except Exception as problem:  # a foreign object can raise anything
        raise UncopyableError(
            f"The input of '{definition.name}' cannot be copied ({describe_error(problem)}), so it could "
            "be changed before it is used; pass values that can be copied"
        ) from problem


def _plain(value: Any) -> Any:
    """Return a copy of an input that is atomic, or a dict of atomic values and lists of them; _OTHER for other inputs.

    ``deepcopy`` does the same, but takes ten times as long.
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
    """The input of a call when it was approved and its keys were computed; each run of the body gets a copy.

    The digest of an input that cannot be copied is compared immediately before the body runs.
    """

    __slots__ = ("_definition", "_digest", "_shared", "value")

    def __init__(self, definition: ToolDefinition, value: Any) -> None:
        """Copy the input; an approved call's input is already a copy."""
        self._definition = definition
        self._digest: str | None = None
        self.value = value
        """The input, for the record of the call."""
        self._shared = False
        compare = definition.gate is not None
        if not compare:
            try:
                self.value = copy_input(definition, value)
            except UncopyableError:
                compare = self._shared = True
            except DisplayError:
                self._shared = True  # cannot be compared; computing a key of it fails as well
        if compare:
            self._digest = exact_digest(definition, self.value)

    def take(self) -> Any:
        """Return the input for one run of the body or a layer; raise if it was changed."""
        if self._digest is not None and self._digest != exact_digest(self._definition, self.value):
            raise ToolExecutionError(
                f"The arguments of '{self._definition.name}' were changed before it could run; nothing was done"
            )
        if (plain := _plain(self.value)) is not _OTHER:
            return plain
        try:
            return self.value if self._shared else _deep(self._definition, self.value)
        except UncopyableError:  # its digest was compared above
            return self.value
