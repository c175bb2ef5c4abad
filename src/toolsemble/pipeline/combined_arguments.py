"""The parameters that several tools take together, or a list of one tool's: what a model is shown of branches."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from toolsemble.definition.definition import ToolDefinition
from toolsemble.errors import ToolExecutionError
from toolsemble.pipeline.handoff import as_handed, items_of, shown_input
from toolsemble.schema.display import to_display
from toolsemble.schema.json_schema import SchemaArguments, hide_values
from toolsemble.schema.portable import make_portable
from toolsemble.schema.problem import MismatchError, Problem


class LaterArguments(ABC):
    """Arguments by a schema that is made when it is first needed: in the middle of a pipeline it never is."""

    ignored: frozenset[str] = frozenset()
    init_only = ""

    def __init__(self, owner: str) -> None:
        self.owner = owner

    @property
    def schema(self) -> Mapping[str, Any]:
        """The JSON Schema that the arguments fit."""
        return self._given.schema

    def validate(self, text: str) -> Any:
        """Give the values that JSON text holds, or raise :class:`MismatchError`."""
        return self._given.validate(text)

    def holds(self, _: Any) -> bool:
        """Give False: a schema makes no type of its own."""
        return False

    def take(self, value: Any) -> Any:
        """Give the values that a Python object holds, or raise :class:`MismatchError`."""
        return self._given.take(value)

    def wrong_keys(self, mismatch: MismatchError) -> None:
        """Give None: whatever does not fit, any key may be to blame."""
        return self._given.wrong_keys(mismatch)

    def problems(self, text: str, value: Any, mismatch: MismatchError) -> tuple[list[Problem], int]:
        """Give what is wrong with a value, in words, and how many problems there are beyond."""
        return self._given.problems(text, value, mismatch)

    @property
    @abstractmethod
    def secret_keys(self) -> frozenset[str]:
        """The parameters that are secrets or have some inside."""

    def present(self, value: Any, *, reveal: bool = False, best_effort: bool = False) -> Any:  # noqa: ARG002 - as it is handed
        """Give the input as JSON values that nobody else holds, whether a model gave it or a step before."""
        # No tool has read it yet: what will be a secret is plain text here.
        return hide_values(shown(value, reveal=reveal), frozenset() if reveal else self.secret_keys)

    @cached_property
    def _given(self) -> SchemaArguments:
        return SchemaArguments(self.owner, self._made())

    @abstractmethod
    def _made(self) -> dict[str, Any]:
        """Make the schema."""


class UnitedArguments(LaterArguments):
    """The parameters of all branches; required is what every one of those that run needs."""

    def __init__(self, owner: str, branches: Sequence[ToolDefinition], *, all_run: bool) -> None:
        super().__init__(owner)
        self._branches = branches
        self._all_run = all_run

    @property
    def secret_keys(self) -> frozenset[str]:
        """The parameters that are secrets for one of the branches."""
        return frozenset(key for each in self._branches for key in secrets_of(each))

    def _made(self) -> dict[str, Any]:
        schemas = [make_portable(each.schema())[0] for each in self._branches]
        properties: dict[str, Any] = {}
        for schema in schemas:
            for name, each in schema.get("properties", {}).items():
                known = properties.setdefault(name, each)
                # Each branch checks for itself; the model only has to know what can be sent.
                properties[name] = known if known == each else {"anyOf": [known, each]}
        required = [set(schema.get("required", ())) for schema in schemas]
        needed = set.union(*required) if self._all_run else set.intersection(*required)
        closed = all(schema.get("additionalProperties") is False for schema in schemas)
        made: dict[str, Any] = {"type": "object", "properties": properties}
        made["required"] = [name for name in properties if name in needed]
        return {**made, "additionalProperties": False} if closed else made


class ListArguments(LaterArguments):
    """A list of what one tool takes, under the name ``items``."""

    def __init__(self, owner: str, item: ToolDefinition) -> None:
        super().__init__(owner)
        self._item = item

    @property
    def secret_keys(self) -> frozenset[str]:
        """The list, when its items have secrets inside."""
        return frozenset({"items"} if secrets_of(self._item) else ())

    def present(self, value: Any, *, reveal: bool = False, best_effort: bool = False) -> Any:  # noqa: ARG002 - as it is handed
        """Give the list as a model would send it, so that a reviewer can edit it; what is none, as it is."""
        try:
            hidden = frozenset() if reveal else secrets_of(self._item)
            return {
                "items": [hide_values(to_display(each, reveal=reveal), hidden) for each in items_of(as_handed(value))]
            }
        except ToolExecutionError:
            return shown(value, reveal=reveal)

    def _made(self) -> dict[str, Any]:
        item = {"type": "string"} if self._item.arguments is None else make_portable(self._item.schema())[0]
        items = {"type": "array", "items": item, "description": "The items, in order"}
        return {"type": "object", "properties": {"items": items}, "required": ["items"], "additionalProperties": False}


def secrets_of(definition: ToolDefinition) -> frozenset[str]:
    """Give the parameters of a tool that are secrets or have some inside.

    >>> from toolsemble.definition.definition import string_definition
    >>> secrets_of(string_definition("shout", "Says it louder", str.upper))
    frozenset()
    """
    return frozenset() if definition.arguments is None else definition.arguments.secret_keys


def shown_text(value: Any, **_: bool) -> str:
    """Give an input of text tools as the text that they get, so that a reviewer can edit it.

    >>> from toolsemble.pipeline.handoff import Handed
    >>> shown_text(Handed("3 hits", {"hits": (1, 2, 3)}))
    '3 hits'
    """
    return as_handed(value).written


def shown(value: Any, *, reveal: bool = False) -> Any:
    """Give an input as JSON values that nobody else holds, with secrets hidden unless they are to be revealed.

    >>> from toolsemble.pipeline.handoff import Handed
    >>> shown(Handed("3 hits", {"hits": (1, 2, 3)}))
    {'hits': [1, 2, 3]}
    """
    return to_display(shown_input(value), reveal=reveal)
