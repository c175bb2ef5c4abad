"""The arguments of combined tools: the union of several tools' parameters, or a list of one tool's arguments."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from toolsemble._engine.definition.definition import ToolDefinition
from toolsemble._schema.display import to_display
from toolsemble._schema.json_schema import SchemaArguments, hide_values
from toolsemble._schema.portable import make_portable
from toolsemble._schema.problem import MismatchError, Problem
from toolsemble._tools.pipeline.handoff import as_handoff, read_items, unwrap_input
from toolsemble._vocabulary.errors import ToolExecutionError


class LazyArguments(ABC):
    """Arguments whose JSON Schema is built on first use; inside a pipeline it is never needed."""

    ignored: frozenset[str] = frozenset()
    init_only = ""

    def __init__(self, owner: str) -> None:
        self.owner = owner

    @property
    def schema(self) -> Mapping[str, Any]:
        """The JSON Schema of the arguments."""
        return self._arguments.schema

    def validate(self, text: str) -> Any:
        """Return the values of a JSON text, or raise :class:`MismatchError`."""
        return self._arguments.validate(text)

    def holds(self, _: Any) -> bool:
        """Return False: a schema has no Python type."""
        return False

    def take(self, value: Any) -> Any:
        """Return the validated values of a Python object, or raise :class:`MismatchError`."""
        return self._arguments.take(value)

    def wrong_keys(self, mismatch: MismatchError) -> None:
        """Return None: the error does not say which keys are wrong."""
        return self._arguments.wrong_keys(mismatch)

    def is_settled(self, mismatch: MismatchError) -> bool:
        """Return False: the errors are not known."""
        return self._arguments.is_settled(mismatch)

    def problems(self, text: str, value: Any, mismatch: MismatchError) -> tuple[list[Problem], int]:
        """Return the problems of a value, and how many more there are."""
        return self._arguments.problems(text, value, mismatch)

    @property
    @abstractmethod
    def secret_keys(self) -> frozenset[str]:
        """The parameters that are secrets or contain secrets."""

    def present(self, value: Any, *, reveal: bool = False, best_effort: bool = False) -> Any:
        """Return the input as new JSON values, whether it comes from a model or from the previous step."""
        # No tool has read the input yet, so secrets are still plain text.
        return hide_values(display_input(value, reveal=reveal), frozenset() if reveal else self.secret_keys)

    @cached_property
    def _arguments(self) -> SchemaArguments:
        return SchemaArguments(self.owner, self._build_schema())

    @abstractmethod
    def _build_schema(self) -> dict[str, Any]:
        """Return the JSON Schema of the arguments."""


class CombinedArguments(LazyArguments):
    """The parameters of all branches; those that every possible run needs are required."""

    def __init__(self, owner: str, branches: Sequence[ToolDefinition], *, all_run: bool) -> None:
        super().__init__(owner)
        self._branches = branches
        self._all_run = all_run

    @property
    def secret_keys(self) -> frozenset[str]:
        """The parameters that are secrets in at least one branch."""
        return frozenset(key for each in self._branches for key in secret_parameters(each))

    def _build_schema(self) -> dict[str, Any]:
        schemas = [make_portable(each.schema())[0] for each in self._branches]
        properties: dict[str, Any] = {}
        for schema in schemas:
            for name, each in schema.get("properties", {}).items():
                known = properties.setdefault(name, each)
                # Each branch validates its own input; the model only needs to know what it can send.
                properties[name] = known if known == each else {"anyOf": [known, each]}
        required = [set(schema.get("required", ())) for schema in schemas]
        needed = set.union(*required) if self._all_run else set.intersection(*required)
        closed = all(schema.get("additionalProperties") is False for schema in schemas)
        made: dict[str, Any] = {"type": "object", "properties": properties}
        made["required"] = [name for name in properties if name in needed]
        return {**made, "additionalProperties": False} if closed else made


class ListArguments(LazyArguments):
    """A list of the arguments of one tool, named ``items``."""

    def __init__(self, owner: str, item: ToolDefinition) -> None:
        super().__init__(owner)
        self._item = item

    @property
    def secret_keys(self) -> frozenset[str]:
        """``items`` if the items contain secrets."""
        return frozenset({"items"} if secret_parameters(self._item) else ())

    def present(self, value: Any, *, reveal: bool = False, best_effort: bool = False) -> Any:
        """Return the list as a model would send it, so that a reviewer can edit it; another value as JSON values."""
        try:
            hidden = frozenset() if reveal else secret_parameters(self._item)
            return {
                "items": [
                    hide_values(to_display(each, reveal=reveal), hidden) for each in read_items(as_handoff(value))
                ]
            }
        except ToolExecutionError:
            return display_input(value, reveal=reveal)

    def _build_schema(self) -> dict[str, Any]:
        item = {"type": "string"} if self._item.arguments is None else make_portable(self._item.schema())[0]
        items = {"type": "array", "items": item, "description": "The items, in order"}
        return {"type": "object", "properties": {"items": items}, "required": ["items"], "additionalProperties": False}


def secret_parameters(definition: ToolDefinition) -> frozenset[str]:
    """Return the parameters of a tool that are secrets or contain secrets.

    >>> from toolsemble._engine.definition.build import string_definition
    >>> secret_parameters(string_definition("shout", "Says it louder", str.upper))
    frozenset()
    """
    return frozenset() if definition.arguments is None else definition.arguments.secret_keys


def display_text(value: Any, **_: bool) -> str:
    """Return the input of text tools as text, so that a reviewer can edit it.

    >>> from toolsemble._tools.pipeline.handoff import Handoff
    >>> display_text(Handoff("3 hits", {"hits": (1, 2, 3)}))
    '3 hits'
    """
    return as_handoff(value).as_text


def display_input(value: Any, *, reveal: bool = False) -> Any:
    """Return an input as new JSON values; secrets are masked unless ``reveal`` is true.

    >>> from toolsemble._tools.pipeline.handoff import Handoff
    >>> display_input(Handoff("3 hits", {"hits": (1, 2, 3)}))
    {'hits': [1, 2, 3]}
    """
    return to_display(unwrap_input(value), reveal=reveal)
