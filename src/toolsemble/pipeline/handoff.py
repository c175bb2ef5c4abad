"""From what one step gave to what the next one takes: as text, or as values without text in between."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

from toolsemble.definition.definition import ToolDefinition
from toolsemble.errors import ToolExecutionError
from toolsemble.result import ToolResult
from toolsemble.schema.attributes import names_of
from toolsemble.schema.decode import Arguments, Cautious, Decoded, plain_input
from toolsemble.schema.display import presented
from toolsemble.schema.pointer import resolved
from toolsemble.schema.problem import UnfitError
from toolsemble.shape import to_result

Read: TypeAlias = Callable[[Any, frozenset[str]], Decoded]
"""From what is handed over to a body's input, with the steps of repair that are allowed."""


class Handed(NamedTuple):
    """What is handed to a step: text, values, or both ways to say the same.

    >>> Handed.result(ToolResult.success("21 °C", {"celsius": 21}))
    Handed(text='21 °C', payload={'celsius': 21}, exact=False)
    """

    text: str | None
    """The text; None when there are only values."""
    payload: Any = None
    """The values; None when there is only text."""
    exact: bool = False
    """Whether somebody made the values for this very step, so that none of them is left out."""

    @classmethod
    def result(cls, result: ToolResult) -> Handed:
        """Give what a successful step hands over."""
        payload = result.structured_output
        return cls(result.output) if payload is None else cls(result.output, unwrapped(payload))

    @classmethod
    def value(cls, value: Any, *, exact: bool = False) -> Handed:
        """Give what an adapter made, or one item of a list; None is the empty text."""
        if value is None or isinstance(value, str):
            return cls(value or "")
        return cls(None, unwrapped(value), exact)

    @property
    def written(self) -> str:
        """What a tool that takes a text gets."""
        return self.text if self.text is not None else to_result(self.payload).output

    @property
    def shown(self) -> Any:
        """What it is for programs: the values where there are some, else the text."""
        return self.text if self.payload is None else self.payload

    def __str__(self) -> str:
        return self.written


def unwrapped(payload: Any) -> Any:
    """Give the payloads that results inside a mapping or a list hold: what several branches gave, as plain values.

    >>> unwrapped({"a": ToolResult.success("x"), "b": ToolResult.success("2", 2)})
    {'a': 'x', 'b': 2}
    """
    if isinstance(payload, Mapping) and any(isinstance(value, ToolResult) for value in payload.values()):
        return {key: _unwrapped(value) for key, value in payload.items()}
    if isinstance(payload, (list, tuple)) and any(isinstance(value, ToolResult) for value in payload):
        return [_unwrapped(value) for value in payload]
    return payload


def _unwrapped(value: Any) -> Any:
    if not isinstance(value, ToolResult):
        return value
    return value.text if value.structured_output is None else unwrapped(value.structured_output)


def as_handed(given: Any) -> Handed:
    """Give what is handed over, out of a step's result or of any value.

    >>> as_handed(ToolResult.success("21")), as_handed([1])
    (Handed(text='21', payload=None, exact=False), Handed(text=None, payload=[1], exact=False))
    """
    if isinstance(given, Handed):
        return given
    return Handed.result(given) if isinstance(given, ToolResult) else Handed.value(given)


def shown_input(given: Any) -> Any:
    """Give the input of a body for programs, also where it is what was handed over.

    >>> shown_input(Handed("21"))
    '21'
    """
    return as_handed(given).shown if isinstance(given, (Handed, ToolResult)) else given


def as_it_is(value: Any, _: frozenset[str]) -> Decoded:
    """Give the input that was read already."""
    return value, ()


def reader(definition: ToolDefinition) -> Read:
    """Give how a step takes what is handed to it.

    >>> from toolsemble.definition.definition import string_definition
    >>> reader(string_definition("shout", "Says it louder", str.upper))(Handed("hello"), frozenset())
    ('hello', ())
    """
    hand, arguments = definition.hand, definition.arguments
    if hand is not None:
        return lambda given, steps: hand(as_handed(given), steps)
    if arguments is not None:
        return Intake(definition, arguments).read
    # Most steps take the text of the step before, which was made fit to be sent already.
    return lambda given, _: (
        given.output if type(given) is ToolResult else plain_input(as_handed(given).written, definition.name),
        (),
    )


class Intake:
    """How a step with named parameters takes what is handed to it."""

    def __init__(self, definition: ToolDefinition, arguments: Arguments) -> None:
        self._accept = accept = definition.accept
        # What another tool returns may have more fields than this one takes, whatever this one does.
        self._accept_values = accept.read if isinstance(accept, Cautious) else accept
        self._arguments = arguments

    def read(self, given: Any, steps: frozenset[str]) -> Decoded:
        """Give the step's input: the values where they fit; else the text, as its one parameter or as JSON."""
        handed = as_handed(given)
        if not self._properties and self._closed:
            return self._accept(None, steps)  # it takes nothing, whatever came before
        for values in self._candidates(handed):
            try:
                return self._arguments.take(values), ()
            except UnfitError:
                continue
        if handed.exact and isinstance(handed.payload, Mapping):
            return self._accept_values(presented(handed.payload, reveal=True), steps)
        text = handed.written
        if not text and not self._schema.get("required") and not self._takes_empty:
            return self._accept(None, steps)  # nothing was given, and nothing is needed
        # Never read for arguments where a parameter can take it: the text may be somebody else's, such as a web page.
        return self._accept({self.single: text} if self.single else text, steps)

    @cached_property
    def single(self) -> str:
        """The one parameter that a text goes into: the only required one, or the only one; empty when there is none."""
        required = [name for name in self._schema.get("required", ()) if name in self._properties]
        names = required or list(self._properties)
        return names[0] if len(names) == 1 else ""

    @cached_property
    def _takes_empty(self) -> bool:
        """Whether the one parameter can be the empty text."""
        try:
            self._arguments.take({self.single: ""})
        except UnfitError:
            return False
        return True

    def _candidates(self, handed: Handed) -> Iterator[Any]:
        payload = handed.payload
        if payload is None:
            return
        if handed.exact or self._arguments.holds(payload):
            yield payload
        elif fields := fields_of(payload):
            chosen = {key: value for key, value in fields.items() if key in self._properties or not self._closed}
            if chosen:
                yield chosen
        if self.single:
            yield {self.single: payload}

    @cached_property
    def _schema(self) -> Mapping[str, Any]:
        return resolved(self._arguments.schema, self._arguments.schema)

    @cached_property
    def _properties(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self._schema.get("properties", {})
        return found

    @cached_property
    def _closed(self) -> bool:
        return self._schema.get("additionalProperties") is False


def items_of(handed: Handed) -> list[Any]:
    """Give the list that an input is, has as its ``items``, or is as JSON text; refuse what is none.

    >>> items_of(Handed("[1, 2]")), items_of(Handed(None, {"items": (1, 2)}))
    ([1, 2], [1, 2])
    """
    found = handed.payload
    if found is None:
        try:
            found = json.loads(handed.written)
        except (ValueError, RecursionError):
            found = handed.written
    if isinstance(found, dict) and isinstance(found.get("items"), (list, tuple)):
        found = found["items"]
    if isinstance(found, (list, tuple, set, frozenset)):
        return list(found)
    raise ToolExecutionError(f"map_over takes a list of items, not {type(found).__name__}")


def fields_of(value: Any) -> dict[str, Any]:
    """Give the fields of an object or a mapping, under the names that a model knows; none when it has no fields.

    >>> fields_of({"city": "Rome"}), fields_of(3)
    ({'city': 'Rome'}, {})
    """
    if isinstance(value, Mapping):
        return {key: value[key] for key in value if isinstance(key, str)}
    names = names_of(type(value)) or {}
    return {key: getattr(value, name) for name, key in names.items() if hasattr(value, name)}
