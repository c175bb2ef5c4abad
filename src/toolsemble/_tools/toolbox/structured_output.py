"""Output schemas from declared return types, and structured content of results."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, get_args, get_origin

from toolsemble._engine.definition import ToolDefinition
from toolsemble._schema.result_shape import is_opaque, to_exact_json
from toolsemble._tools.toolbox.registry import Registered
from toolsemble._vocabulary.errors import ToolDefinitionError
from toolsemble._vocabulary.result import ToolResult

_WRAPPER = "result"
_ALWAYS_WRAPPED = ("integer", "number", "boolean", "array")


class UnfitResultError(Exception):
    """Signals a result that does not fit its tool's declared return type."""


@dataclass(frozen=True, slots=True)
class OutputSchema:
    """The JSON Schema of a tool's structured content: always an object, as required by the protocol."""

    schema: dict[str, Any]
    """The schema."""
    is_wrapped: bool
    """Whether the value is the field ``result`` of the object."""
    fits: Any
    """A function that returns whether a JSON value fits."""

    @classmethod
    def of(cls, definition: ToolDefinition) -> OutputSchema | None:
        """Return the schema for a tool's declared return type; None if there is none.

        A str is already the result's text. A composite tool has no type of its own.
        """
        kind = None if definition.flow is not None else definition.returns()
        if kind in (None, type(None), Any, object, str) or is_opaque(kind) or _may_hold_contents(kind):
            return None
        written = _write_schema(kind)
        return None if written is None else cls.of_schema(*_make_object(written))

    @classmethod
    def of_schema(cls, schema: dict[str, Any], is_wrapped: bool = False) -> OutputSchema | None:  # noqa: FBT001, FBT002 - the parts of a pair
        """Return the output schema for an object's JSON Schema; None if it cannot be checked."""
        import jsonschema_rs

        try:
            return cls(schema, is_wrapped, jsonschema_rs.validator_for(schema).is_valid)
        except ValueError:
            return None

    @property
    def is_read_alone(self) -> bool:
        """Whether a reply can find the structured content without the schema.

        This is true for an object, and for a value that is always wrapped.

        A text has no structured form, and an object does not show whether it is wrapped.
        """
        return not self.is_wrapped or self.schema["properties"][_WRAPPER].get("type") in _ALWAYS_WRAPPED

    def read(self, result: ToolResult) -> dict[str, Any]:
        """Return a result's structured content; raise UnfitResultError if it does not fit."""
        for value in _candidates(result):
            content = {_WRAPPER: value} if self.is_wrapped else value
            if self.fits(content):
                return dict(content)
        raise UnfitResultError


def find_output(entry: Registered) -> OutputSchema | None:
    """Return a tool's output schema; None if it declares no type, or its text is limited.

    Another server's output schema is forwarded.
    """
    if entry.limit is not None:
        return None  # the full value next to a limited text would defeat the limit
    passed_on = getattr(entry.tool, "listed_output", None)
    return OutputSchema.of(entry.definition) if passed_on is None else OutputSchema.of_schema(passed_on)


def _candidates(result: ToolResult) -> Iterator[Any]:
    try:
        yield to_exact_json(result.structured_output)
    except (TypeError, ValueError):
        return
    if result.structured_output is None:
        yield result.output  # a value that is a str has no structured form


def _may_hold_contents(kind: Any) -> bool:
    """Return whether a type is an untyped list, which may contain images and files."""
    origin = get_origin(kind) or kind
    if not isinstance(origin, type) or not issubclass(origin, list | tuple) or hasattr(origin, "_fields"):
        return False
    items = get_args(kind)
    return not items or any(item in (Any, object) for item in items)


def _write_schema(kind: Any) -> dict[str, Any] | None:
    """Return the JSON Schema of a type's serialized form; None if there is none."""
    from pydantic import TypeAdapter

    from toolsemble._schema.typed_arguments import TypedArguments

    try:
        return TypeAdapter(kind).json_schema(mode="serialization", schema_generator=_make_generator())
    except Exception:  # types unknown to pydantic are read by our own rules
        try:
            return TypedArguments.of_type(kind, {}).schema
        except (ToolDefinitionError, TypeError, AttributeError):
            return None


@cache
def _make_generator() -> Any:
    """Return pydantic's generator, adapted to the encoding of bytes."""
    from pydantic.json_schema import GenerateJsonSchema

    class Generator(GenerateJsonSchema):
        in_model = False

        def model_schema(self, schema: Any) -> dict[str, Any]:
            return self._inside(super().model_schema, schema)

        def dataclass_schema(self, schema: Any) -> dict[str, Any]:
            write = super().dataclass_schema
            return self._inside(write, schema) if hasattr(schema["cls"], "__pydantic_serializer__") else write(schema)

        def _inside(self, write: Any, schema: Any) -> dict[str, Any]:
            outer, self.in_model = self.in_model, True
            try:
                written: dict[str, Any] = write(schema)
            finally:
                self.in_model = outer
            return written

        def bytes_schema(self, schema: Any) -> dict[str, Any]:
            written = super().bytes_schema(schema)
            # A pydantic model defines its own encoding of bytes.
            return written if self.in_model else {**written, "format": "base64url", "contentEncoding": "base64url"}

    return Generator


def _make_object(schema: Mapping[str, Any]) -> tuple[dict[str, Any], bool]:
    """Return a schema whose root is an object, and whether the value was wrapped."""
    definitions = {"$defs": schema["$defs"]} if "$defs" in schema else {}
    root = {key: value for key, value in schema.items() if key != "$defs"}
    reference = str(root.get("$ref", ""))
    if reference.startswith("#/$defs/"):
        root = {**definitions["$defs"][reference.removeprefix("#/$defs/")]}
    if root.get("type") == "object":
        return {**root, **definitions}, False
    wrapped = {"type": "object", "properties": {_WRAPPER: root}, "required": [_WRAPPER]}
    return {**wrapped, **definitions}, True
