"""``LockedTool``: a tool whose calls fail as soon as a lock refuses it."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import replace
from typing import Any, TypeAlias

from toolsemble._engine.definition import Inner, Layer, Policy, ToolDefinition
from toolsemble._schema.decode import Decoded, Read
from toolsemble._tools.renamed import RenamedTool

Check: TypeAlias = Callable[[], None]
"""Raises if a tool may not be called."""


class LockedTool(RenamedTool):
    """A tool as it was when a lock has checked it; its calls fail as soon as the lock refuses it.

    Its other attributes are those of the original.
    """

    def __init__(
        self,
        source: object,
        definition: ToolDefinition,
        digest: str,
        check: Check,
        find_lock_refusal: Callable[[str], str],
    ) -> None:
        """Add the check to all calls.

        :param source: the tool
        :param definition: its definition, which has been checked
        :param digest: the digest of its pin
        :param check: raises if the tool may not be called
        :param find_lock_refusal: returns why the lock hides another tool of the source, by its name; "" if it does not
        """
        super().__init__(source, definition.name, None, add_check(definition, digest, check))
        vars(self)["find_lock_refusal"] = find_lock_refusal


def add_check(definition: ToolDefinition, digest: str, check: Check) -> ToolDefinition:
    """Return the definition of a tool whose calls fail if ``check`` raises, and whose approvals end with the digest."""
    policy = definition.policy or Policy()
    return replace(
        definition,
        decode=_CheckedReader(definition.decode, check),
        accept=_CheckedReader(definition.accept, check),
        policy=replace(policy, layers=(*policy.layers, _LockLayer(check))),
        pinned=digest,
    )


class _CheckedReader:
    """A reader of arguments that fails if the tool is refused: nobody is asked about such a call."""

    __slots__ = ("_check", "_read")

    def __init__(self, read: Read, check: Check) -> None:
        self._read = read
        self._check = check

    def __call__(self, value: Any, steps: frozenset[str]) -> Decoded:
        """Read arguments."""
        self._check()
        return self._read(value, steps)


class _LockLayer(Layer):
    """A layer that fails if the tool was refused after its arguments were read, such as during its approval."""

    __slots__ = ("_check",)

    def __init__(self, check: Check) -> None:
        self._check = check

    def around(self, definition: Any, value: Any, context: Any, inner: Inner) -> Generator[Any, Any, Any]:
        """Run one call."""
        _ = definition, value
        self._check()
        return (yield from inner(context))
