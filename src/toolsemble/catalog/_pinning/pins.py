"""Tool pins: digests of canonical definitions."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeGuard

from toolsemble._engine.definition import ToolDefinition
from toolsemble._runtime.signing import canonical_json
from toolsemble._vocabulary.errors import ToolDefinitionError
from toolsemble._vocabulary.result import AudioContent, FileContent, ImageContent, TextContent, ToolResult
from toolsemble._vocabulary.specification import ToolSpecification

NAMED = {"$defs", "definitions", "dependentSchemas", "patternProperties", "properties"}
"""The keywords with schemas by name."""
LISTED = {"allOf", "anyOf", "oneOf", "prefixItems"}
"""The keywords with a list of schemas."""
SINGLE = {
    "additionalItems", "additionalProperties", "contains", "else", "if", "items", "not", "propertyNames", "then",
    "unevaluatedItems", "unevaluatedProperties",
}  # fmt: skip
"""The keywords with one schema."""
UNORDERED = {"allOf", "anyOf", "enum", "oneOf", "required", "type"}
"""The keywords with an unordered list."""
_EXACT = 2**53
_MAX_DEPTH = 100


def check_depth(value: Any) -> None:
    """Raise ValueError for JSON values that are nested too deeply to be compared.

    >>> check_depth([[1]])
    """
    level = [value]
    for _ in range(_MAX_DEPTH):
        level = [inner for each in level for inner in _list_inner(each)]
    if level:
        raise ValueError(f"it is nested more than {_MAX_DEPTH} levels deep")


def _list_inner(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []


def normalize(value: Any) -> Any:
    """Return JSON values with whole floats as ints.

    >>> normalize({"a": [1.0, 1.5, -0.0]})
    {'a': [1, 1.5, 0]}
    """
    if isinstance(value, dict):
        return {key: normalize(each) for key, each in value.items()}
    if isinstance(value, list):
        return [normalize(each) for each in value]
    if isinstance(value, float) and value.is_integer() and abs(value) < _EXACT:
        return int(value)
    return value


def normalize_schema(schema: Any) -> Any:
    """Return a schema with sorted sets at every depth, and normalized numbers.

    >>> normalize_schema({"required": ["b", "a"], "properties": {"a": {"enum": [2.0, 1]}}})
    {'required': ['a', 'b'], 'properties': {'a': {'enum': [1, 2]}}}
    """
    if not isinstance(schema, dict):
        return normalize(schema)
    return {key: _normalize_keyword(key, value) for key, value in schema.items()}


def _normalize_keyword(key: str, value: Any) -> Any:
    if key in NAMED and isinstance(value, dict):
        return {name: normalize_schema(each) for name, each in value.items()}
    if isinstance(value, list):
        schemas = key in LISTED or key in SINGLE
        values = [normalize_schema(each) if schemas else normalize(each) for each in value]
        return sorted(values, key=canonical_json) if key in UNORDERED else values
    return normalize_schema(value) if key in SINGLE else normalize(value)


HINTS = ("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint")
"""The hints of the Model Context Protocol."""
_NO_SCHEMA = (Any, object, str, None, type(None), ToolResult, TextContent, ImageContent, AudioContent, FileContent)
_NO_PARAMETERS = {"type": "object", "properties": {}}


@dataclass(frozen=True, slots=True)
class PinnedTool:
    """The model-visible parts of a tool; raises ToolDefinitionError for values that are not JSON-serializable.

    Two are equal if a model sees no difference: the order of keys, required parameters and enum values is ignored, and
    so is ``1.0`` instead of ``1``.

    >>> first = PinnedTool("add", input_schema={"required": ["a", "b"], "type": "object"})
    >>> first == PinnedTool("add", input_schema={"type": "object", "required": ["b", "a"]})
    True
    """

    name: str
    """The name at its source, without the prefix of a client."""
    title: str = ""
    """The title for people; "" if there is none."""
    description: str = ""
    """The description."""
    input_schema: Mapping[str, Any] | None = field(default=None, hash=False)
    """The JSON Schema of the arguments; None: no parameters."""
    output_schema: Mapping[str, Any] | None = field(default=None, hash=False)
    """The JSON Schema of the results; None if there is none."""
    annotations: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """The hints, such as ``readOnlyHint``."""

    def __post_init__(self) -> None:
        for name in ("name", "title", "description"):
            if not isinstance(getattr(self, name), str):
                raise ToolDefinitionError(f"Tool {self.name!r:.80}: {name} must be a str")
        for name, change in (
            ("input_schema", normalize_schema),
            ("output_schema", normalize_schema),
            ("annotations", normalize),
        ):
            object.__setattr__(self, name, _convert(self.name, name, getattr(self, name), change))
        if _takes_nothing(self.input_schema):  # a server must send a schema, also for a tool without parameters
            object.__setattr__(self, "input_schema", None)

    @property
    def digest(self) -> str:
        """A digest of all fields."""
        values = [self.name, self.title, self.description, self.input_schema, self.output_schema, self.annotations]
        return f"sha256:{hashlib.sha256(canonical_json(values).encode()).hexdigest()}"


class Pinned(Protocol):
    """A tool that knows its source, such as a server's tool; its pin is the source's."""

    lock_source: str
    """The identity of the source."""
    pin: PinnedTool
    """The tool's definition at the source."""


def is_pinned(tool: object) -> TypeGuard[Pinned]:
    """Return whether a tool knows its source, even if renamed.

    >>> is_pinned("no tool")
    False
    """
    # Not by isinstance: from Python 3.12 on, it does not see attributes that a renamed tool delegates.
    return hasattr(tool, "lock_source") and hasattr(tool, "pin")


def pin_tool(shown: object) -> PinnedTool:
    """Return the pin of a specification, a definition, or an MCP server's listed tool.

    >>> pin_tool({"name": "now", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}}).annotations
    {'readOnlyHint': True}
    """
    if isinstance(shown, PinnedTool):
        return shown
    if is_pinned(shown):
        return shown.pin
    if isinstance(shown, ToolSpecification):
        return _pin_specification(shown, None)
    if isinstance(shown, ToolDefinition):
        return _pin_specification(shown.specification(bounds=True), _find_output_schema(shown))
    if isinstance(shown, Mapping):
        return _pin_listed(shown)
    raise ToolDefinitionError(
        f"A lock pins specifications, or tools as an MCP server lists them, not {type(shown).__name__}"
    )


def _pin_specification(shown: ToolSpecification, output: Mapping[str, Any] | None) -> PinnedTool:
    metadata = shown.metadata
    title = metadata.get("title")
    return PinnedTool(
        shown.name,
        title if isinstance(title, str) else "",
        shown.description,
        shown.parameters,
        output,
        {hint: metadata[hint] for hint in HINTS if hint in metadata},
    )


def _pin_listed(shown: Mapping[str, Any]) -> PinnedTool:
    title, description = (shown.get(key) for key in ("title", "description"))
    return PinnedTool(
        shown.get("name", ""),
        "" if title is None else title,
        "" if description is None else description,
        shown.get("inputSchema"),
        shown.get("outputSchema"),
        shown.get("annotations") or {},
    )


def _find_output_schema(definition: ToolDefinition) -> Mapping[str, Any] | None:
    """Return the JSON Schema of the declared return type; None for text, and for types without a schema."""
    from toolsemble._schema.type_schema import generate_schemas

    kind = definition.returns()
    if any(kind is each for each in _NO_SCHEMA):
        return None
    try:
        return generate_schemas(kind)[1]
    except Exception:  # pydantic raises various errors for unknown types
        return None


def _takes_nothing(schema: Mapping[str, Any] | None) -> bool:
    """Return whether a schema declares nothing at all."""
    return schema is not None and {**_NO_PARAMETERS, **schema} == _NO_PARAMETERS


def _convert(tool: str, name: str, value: Any, change: Any) -> Any:
    """Return a copy of a field in canonical form."""
    if value is None:
        return None
    if not isinstance(value, Mapping):
        raise ToolDefinitionError(f"Tool {tool!r:.80}: {name} must be an object, not {type(value).__name__}")
    try:
        copy = json.loads(json.dumps(dict(value), allow_nan=False))
        check_depth(copy)
        return change(copy)
    except (TypeError, ValueError, RecursionError) as problem:
        raise ToolDefinitionError(f"Tool {tool!r:.80}: {name} cannot be pinned: {problem}") from None
