"""The handoff between two steps: converts one step's output to the next step's input, as text or values."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any, NamedTuple

from toolsemble._engine.definition import ToolDefinition
from toolsemble._schema.argument_problems import MismatchError, resolve_schema
from toolsemble._schema.decode import Arguments, CautiousReader, Decoded, Read, plain_input
from toolsemble._schema.display import to_display
from toolsemble._schema.members import names_of
from toolsemble._schema.result_shape import to_result
from toolsemble._vocabulary.errors import ToolExecutionError
from toolsemble._vocabulary.result import ToolResult

_FAILURES_SHOWN = 3


class Handoff(NamedTuple):
    """The input of a step: text, values, or both forms of the same data.

    >>> Handoff.from_result(ToolResult.success("21 °C", {"celsius": 21}))
    Handoff(text='21 °C', payload={'celsius': 21}, exact=False)
    """

    text: str | None
    """The text; None if there are only values."""
    payload: Any = None
    """The values; None if there is only text."""
    exact: bool = False
    """Whether the values were made for exactly this step, so that none may be dropped."""

    @classmethod
    def from_result(cls, result: ToolResult) -> Handoff:
        """Return the handoff of a successful step."""
        payload = result.structured_output
        return cls(result.output) if payload is None else cls(result.output, unwrap_results(payload))

    @classmethod
    def from_value(cls, value: Any, *, exact: bool = False) -> Handoff:
        """Return the handoff of an adapter's return value or a list item; None becomes an empty text."""
        if value is None or isinstance(value, str):
            return cls(value or "")
        return cls(None, unwrap_results(value), exact)

    @property
    def as_text(self) -> str:
        """The text for a tool that takes a text."""
        return self.text if self.text is not None else to_result(self.payload).output

    @property
    def as_value(self) -> Any:
        """The values if there are any, else the text."""
        return self.text if self.payload is None else self.payload

    def __str__(self) -> str:
        return self.as_text


def unwrap_results(payload: Any) -> Any:
    """Return a payload with nested results, such as from parallel branches, replaced by their payloads.

    >>> unwrap_results({"a": ToolResult.success("x"), "b": ToolResult.success("2", 2)})
    {'a': 'x', 'b': 2}
    """
    if isinstance(payload, Mapping) and any(isinstance(value, ToolResult) for value in payload.values()):
        return {key: _unwrap(value) for key, value in payload.items()}
    if isinstance(payload, (list, tuple)) and any(isinstance(value, ToolResult) for value in payload):
        return [_unwrap(value) for value in payload]
    return payload


def _unwrap(value: Any) -> Any:
    if not isinstance(value, ToolResult):
        return value
    return value.text if value.structured_output is None else unwrap_results(value.structured_output)


def describe_failures(payload: Any) -> str:
    """Return the paths and messages of failed results in a payload; "" if there are none.

    A failed result has no value: its error message must never be passed to a step instead.

    >>> describe_failures([ToolResult.success("x"), ToolResult.failure("no such city")])
    'items[1]: no such city'
    """
    found = list(_find_failures(payload, ""))
    more = f"; and {len(found) - _FAILURES_SHOWN} more" if len(found) > _FAILURES_SHOWN else ""
    return "; ".join(found[:_FAILURES_SHOWN]) + more


def _find_failures(payload: Any, place: str) -> Iterator[str]:
    named = isinstance(payload, Mapping)
    if not named and not isinstance(payload, (list, tuple)):
        return
    for key, each in payload.items() if named else enumerate(payload):
        if isinstance(each, ToolResult):
            where = (f"{place}.{key}" if place else str(key)) if named else f"{place or 'items'}[{key}]"
            if each.error_message is not None:
                yield f"{where}: {each.error_message}"
            else:
                yield from _find_failures(each.structured_output, where)


def as_handoff(given: Any) -> Handoff:
    """Return the handoff of a step's result or of any value.

    >>> as_handoff(ToolResult.success("21")), as_handoff([1])
    (Handoff(text='21', payload=None, exact=False), Handoff(text=None, payload=[1], exact=False))
    """
    if isinstance(given, Handoff):
        return given
    return Handoff.from_result(given) if isinstance(given, ToolResult) else Handoff.from_value(given)


def unwrap_input(given: Any) -> Any:
    """Return the plain value of a body's input, unwrapping handoffs and results.

    >>> unwrap_input(Handoff("21"))
    '21'
    """
    return as_handoff(given).as_value if isinstance(given, (Handoff, ToolResult)) else given


def pass_through(value: Any, _: frozenset[str]) -> Decoded:
    """Return an already parsed input."""
    return value, ()


def make_reader(definition: ToolDefinition) -> Read:
    """Return the function that reads a step's input.

    >>> from toolsemble._engine.definition import string_definition
    >>> make_reader(string_definition("shout", "Says it louder", str.upper))(Handoff("hello"), frozenset())
    ('hello', ())
    """
    hand, arguments = definition.hand, definition.arguments
    if hand is not None:
        return lambda given, steps: hand(as_handoff(given), steps)
    if arguments is not None:
        return ParameterReader(definition, arguments).read
    # Most steps take the previous step's text, which is already sanitized.
    return lambda given, _: (
        given.output if type(given) is ToolResult else plain_input(as_handoff(given).as_text, definition.name),
        (),
    )


class ParameterReader:
    """A reader of the input of a step with named parameters."""

    def __init__(self, definition: ToolDefinition, arguments: Arguments) -> None:
        self._accept = accept = definition.accept
        # Another tool's output may have extra fields, even if this tool rejects extra keys.
        self._accept_values = accept.read if isinstance(accept, CautiousReader) else accept
        self._arguments = arguments

    def read(self, given: Any, steps: frozenset[str]) -> Decoded:
        """Return the step's input: the values if they fit, else the text, as the single parameter or as JSON."""
        handoff = as_handoff(given)
        if not self._properties and self._is_closed:
            return self._accept(None, steps)  # it takes no parameters
        for values in self._candidates(handoff):
            try:
                return self._arguments.take(values), ()
            except MismatchError:
                continue
        if handoff.exact and isinstance(handoff.payload, Mapping):
            return self._accept_values(to_display(handoff.payload, reveal=True), steps)
        text = handoff.as_text
        if not text and not self._schema.get("required") and not self._takes_empty:
            return self._accept(None, steps)  # nothing was passed, and nothing is required
        # Text is never parsed if a parameter can take it: it may be untrusted, such as a web page.
        return self._accept({self.single: text} if self.single else text, steps)

    @cached_property
    def single(self) -> str:
        """The parameter that takes a text: the only required one, or the only one; "" if there is none."""
        required = [name for name in self._schema.get("required", ()) if name in self._properties]
        names = required or list(self._properties)
        return names[0] if len(names) == 1 else ""

    @cached_property
    def _takes_empty(self) -> bool:
        """Whether the single parameter accepts an empty text."""
        try:
            self._arguments.take({self.single: ""})
        except MismatchError:
            return False
        return True

    def _candidates(self, handoff: Handoff) -> Iterator[Any]:
        payload = handoff.payload
        if payload is None:
            return
        if handoff.exact or self._arguments.holds(payload):
            yield payload
        elif fields := read_fields(payload):
            chosen = {key: value for key, value in fields.items() if key in self._properties or not self._is_closed}
            if chosen:
                yield chosen
        if self.single:
            yield {self.single: payload}

    @cached_property
    def _schema(self) -> Mapping[str, Any]:
        return resolve_schema(self._arguments.schema, self._arguments.schema)

    @cached_property
    def _properties(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self._schema.get("properties", {})
        return found

    @cached_property
    def _is_closed(self) -> bool:
        return self._schema.get("additionalProperties") is False


def read_items(handoff: Handoff) -> list[Any]:
    """Return an input's list: the input itself, its ``items``, or its JSON text; else raise.

    >>> read_items(Handoff("[1, 2]")), read_items(Handoff(None, {"items": (1, 2)}))
    ([1, 2], [1, 2])
    """
    found = handoff.payload
    if found is None:
        try:
            found = json.loads(handoff.as_text)
        except (ValueError, RecursionError):
            found = handoff.as_text
    if isinstance(found, dict) and isinstance(found.get("items"), (list, tuple)):
        found = found["items"]
    if isinstance(found, (list, tuple, set, frozenset)):
        return list(found)
    raise ToolExecutionError(f"map_over takes a list of items, not {type(found).__name__}")


def read_fields(value: Any) -> dict[str, Any]:
    """Return the fields of an object or a mapping by their names in the schema; {} if it has none.

    >>> read_fields({"city": "Rome"}), read_fields(3)
    ({'city': 'Rome'}, {})
    """
    if isinstance(value, Mapping):
        return {key: value[key] for key in value if isinstance(key, str)}
    names = names_of(type(value)) or {}
    return {key: getattr(value, name) for name, key in names.items() if hasattr(value, name)}
