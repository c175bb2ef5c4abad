"""``ToolSpecification``: a tool's name, description and JSON Schema; ``Note``: a change of it for a provider."""

from __future__ import annotations

import copy
import json
import re
import types
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from toolsemble._vocabulary.errors import ToolDefinitionError
from toolsemble._vocabulary.provider_list import PROVIDERS, RESERVED_KEYS
from toolsemble._vocabulary.serialization import compact_json

LONGEST_NAME = 64
"""Maximum characters of a tool's name."""
METHOD = "{name} is a method; make it an attribute or a @property"
"""The explanation for a member that returns its value when it is called, as is usual in Java."""
_NAME = re.compile(rf"[a-zA-Z0-9_-]{{1,{LONGEST_NAME}}}")
_FIELDS = ("name", "description", "parameters", "metadata", "strict")


def is_name(name: object) -> bool:
    """Return whether this is a valid name for a tool.

    >>> is_name("web_search"), is_name("web search")
    (True, False)
    """
    return isinstance(name, str) and _NAME.fullmatch(name) is not None


def check_name(name: object) -> str:
    """Return the name if it is valid; raise otherwise.

    >>> check_name("web search")
    Traceback (most recent call last):
    ...
    toolsemble.ToolDefinitionError: Invalid tool name 'web search': use 1 to 64 letters, digits, '_' or '-'
    """
    if is_name(name):
        return str(name)
    if name is None:
        raise ToolDefinitionError("The tool has no name; add an attribute or property 'name' to its class")
    if is_method(name):
        raise ToolDefinitionError(METHOD.format(name="name"))
    if isinstance(name, str) and not name.strip():
        raise ToolDefinitionError("Invalid tool name: it is blank; use 1 to 64 letters, digits, '_' or '-'")
    if name == "<lambda>":
        raise ToolDefinitionError("A lambda has no name; pass one: tool('name', 'what it does')(lambda ...)")
    raise ToolDefinitionError(f"Invalid tool name {name!r:.80}: use 1 to 64 letters, digits, '_' or '-'")


def is_method(value: object) -> bool:
    """Return whether a value is a method or a function, where a str or another plain value is expected.

    >>> is_method("shout".upper), is_method("shout")
    (True, False)
    """
    return isinstance(value, (types.MethodType, types.FunctionType, types.BuiltinFunctionType))


class ToolSpecification:
    """The specification of a tool, as a model sees it; immutable.

    >>> weather = ToolSpecification("weather", "The weather in a city")
    >>> ToolSpecification.from_json(weather.to_json()) == weather
    True
    """

    # Schema and metadata are stored as JSON text: callers get new dicts, and cannot change the specification.
    __slots__ = ("_description", "_metadata", "_name", "_parameters", "_strict")

    def __init__(
        self,
        name: str,
        description: str,
        parameters: dict[str, Any] | None = None,
        metadata: Mapping[str, Any] | str | None = None,
        strict: bool | None = None,  # noqa: FBT001 - the public order of the fields
    ) -> None:
        self._name: str = check_name(_check_type("name", name, str))
        self._description: str = _check_type("description", description, str)
        self._strict: bool | None = _check_type("strict", strict, bool, type(None))
        _check_type("parameters", parameters, dict, type(None))
        self._parameters = _dump("parameters", parameters)
        if parameters is not None:
            _check_schema(json.loads(self._parameters))
        self._metadata = _dump("metadata", read_metadata("Tool specification", metadata))

    @property
    def name(self) -> str:
        """The name of the tool."""
        return self._name

    @property
    def description(self) -> str:
        """What the tool does; the model uses it to choose tools."""
        return self._description

    @property
    def parameters(self) -> dict[str, Any] | None:
        """The JSON Schema of the arguments, as a new dict; None if the tool takes no parameters."""
        parameters: dict[str, Any] | None = json.loads(self._parameters)
        return parameters

    @property
    def metadata(self) -> Mapping[str, Any]:
        """Further data, as a new dict; the value under a provider's name is sent to that provider."""
        metadata: dict[str, Any] = json.loads(self._metadata)
        return metadata

    @property
    def strict(self) -> bool | None:
        """Whether to request the provider's strict mode; None: not set."""
        return self._strict

    def to_json(self) -> str:
        """Return the specification as one line of JSON, identical in every process.

        >>> ToolSpecification("now", "The time").to_json()
        '{"name":"now","description":"The time","parameters":null,"metadata":{},"strict":null}'
        """
        return (
            f'{{"name":{_dump("name", self._name)},"description":{_dump("description", self._description)},'
            f'"parameters":{self._parameters},"metadata":{self._metadata},"strict":{_dump("strict", self._strict)}}}'
        )

    @classmethod
    def from_json(cls, text: str) -> ToolSpecification:
        """Return the specification that :meth:`to_json` wrote; for other text, raise an error that names the field.

        >>> ToolSpecification.from_json('{"name": 7, "description": ""}')
        Traceback (most recent call last):
        ...
        toolsemble.ToolDefinitionError: Tool specification: 'name' must be str, not int
        """
        try:
            fields = json.loads(text)
        except (ValueError, RecursionError) as problem:
            raise ToolDefinitionError(f"Tool specification: not JSON: {problem}") from None
        if not isinstance(fields, dict):
            raise ToolDefinitionError(f"Tool specification: must be an object, not {type(fields).__name__}")
        if unknown := [field for field in fields if field not in _FIELDS]:
            raise ToolDefinitionError(
                f"Tool specification: unknown field {unknown[0]!r}; known are {', '.join(_FIELDS)}"
            )
        if missing := [field for field in _FIELDS[:2] if field not in fields]:
            raise ToolDefinitionError(f"Tool specification: {missing[0]!r} is missing")
        return cls(**fields)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ToolSpecification):
            return NotImplemented
        return self.to_json() == other.to_json()

    def __hash__(self) -> int:
        return hash(self.to_json())

    def __repr__(self) -> str:
        return (
            f"ToolSpecification(name={self._name!r}, description={self._description!r}, "
            f"parameters={self.parameters!r}, metadata={self.metadata!r}, strict={self._strict!r})"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return ToolSpecification.from_json, (self.to_json(),)


def read_metadata(owner: str, metadata: object) -> dict[str, Any]:
    """Return the metadata of a tool, which may be JSON text, as a dict; raise if it is not valid.

    :param owner: the tool, for error messages

    >>> read_metadata("Tool 'weather'", '{"anthropic": {"defer_loading": true}}')
    {'anthropic': {'defer_loading': True}}
    """
    if isinstance(metadata, str):
        try:
            metadata = json.loads(metadata)
        except (ValueError, RecursionError) as problem:
            raise ToolDefinitionError(f"{owner}: metadata is not JSON: {problem}") from None
    if not metadata and (metadata is None or isinstance(metadata, Mapping)):
        return {}
    if not isinstance(metadata, Mapping):
        raise ToolDefinitionError(
            f"{owner}: metadata must be a mapping or None, not {metadata!r:.80}; or the JSON text of an object"
        )
    for provider in PROVIDERS.keys() & metadata.keys():
        # A client stores a remote tool's origin under the same name.
        if not (provider == "mcp" and isinstance(metadata[provider], Mapping) and "server" in metadata[provider]):
            _check_provider_metadata(f"{owner}: metadata for {provider!r}", metadata[provider])
    return dict(metadata)


def _check_provider_metadata(what: str, settings: object) -> None:
    """Raise if the metadata for a provider is not an object, or would replace a part of the tool."""
    if not isinstance(settings, Mapping) or not all(isinstance(key, str) for key in settings):
        raise ToolDefinitionError(f"{what} must be a mapping with names as keys, not {settings!r:.80}")
    if replaced := sorted(RESERVED_KEYS & settings.keys()):
        raise ToolDefinitionError(f"{what} cannot replace {replaced[0]!r}; use the settings of the tool")


class ToolParameters:
    """A builder for the JSON Schema of a tool's parameters.

    >>> parameters = (
    ...     ToolParameters()
    ...     .add("city", "string", "Its English name", required=True)
    ...     .add("unit", "string", enum=["celsius", "kelvin"])
    ...     .add("days", "integer", default=3)
    ...     .build()
    ... )
    >>> parameters["required"], parameters["properties"]["city"]
    (['city'], {'type': 'string', 'description': 'Its English name'})
    """

    def __init__(self) -> None:
        self._properties: dict[str, dict[str, Any]] = {}
        self._required: list[str] = []

    def add(
        self, name: str, type: str | dict[str, Any], description: str = "", *, required: bool = False, **keywords: Any
    ) -> ToolParameters:
        """Add a property with a JSON type or a schema; further keywords are added to its schema."""
        given: object = name
        if not (isinstance(given, str) and given):
            raise ToolDefinitionError(f"Tool parameters: a name must be a str that is not empty, not {name!r:.80}")
        if name in self._properties:
            raise ToolDefinitionError(f"Tool parameters: {name!r} already exists")
        schema = dict(type) if isinstance(type, dict) else {"type": type}
        described = {"description": description} if description else {}
        self._properties[name] = {**schema, **described, **keywords}
        return self.require(name) if required else self

    def require(self, *names: str) -> ToolParameters:
        """Mark properties as required."""
        for name in names:
            if not isinstance(name, str):
                raise ToolDefinitionError(
                    f"Tool parameters: require takes names, such as require('city'), not {name!r:.80}"
                )
            if name not in self._properties:
                raise ToolDefinitionError(f"Tool parameters: {name!r} does not exist; add it first")
            if name not in self._required:
                self._required.append(name)
        return self

    def build(self) -> dict[str, Any]:
        """Return the schema, for a :class:`ToolSpecification` or a :class:`SchemaTool`."""
        ordered = [name for name in self._properties if name in self._required]
        schema: dict[str, Any] = {"type": "object", "properties": copy.deepcopy(self._properties)}
        return {**schema, **({"required": ordered} if ordered else {}), "additionalProperties": False}


def _check_type(field: str, value: Any, *types: type) -> Any:
    if isinstance(value, types):
        return value
    names = " or ".join("None" if kind is type(None) else kind.__name__ for kind in types)
    raise ToolDefinitionError(f"Tool specification: {field!r} must be {names}, not {type(value).__name__}")


def _dump(field: str, value: object) -> str:
    try:
        text = compact_json(value, allow_nan=False)
        text.encode()  # a lone surrogate could never be sent to a provider
    except (TypeError, ValueError, RecursionError) as problem:
        raise ToolDefinitionError(f"Tool specification: {field!r} is not JSON: {problem}") from None
    return text


def _check_schema(parameters: dict[str, Any]) -> None:
    """Raise if it is not the schema of an object, or has an invalid keyword; the message names the field."""
    if parameters.get("type", "object") != "object":
        raise ToolDefinitionError(
            f"Tool specification: 'parameters' must be a schema of type object, not {parameters['type']!r:.80}"
        )
    waiting: list[tuple[str, Any]] = [("parameters", parameters)]
    while waiting:
        place, node = waiting.pop()
        if isinstance(node, bool):
            continue
        if not isinstance(node, dict):
            raise _not_a_schema(place, "a schema", node)
        for keyword, (kind, wanted) in _FORMS.items():
            if keyword in node and not isinstance(node[keyword], kind):
                raise _not_a_schema(f"{place}.{keyword}", wanted, node[keyword])
        if not all(isinstance(name, str) for name in node.get("required", ())):
            raise _not_a_schema(f"{place}.required", "a list of names", node["required"])
        waiting += [(f"{place}.properties.{name}", each) for name, each in node.get("properties", {}).items()]
        waiting += [(f"{place}.anyOf[{index}]", each) for index, each in enumerate(node.get("anyOf", ()))]
        further = {key: node[key] for key in ("items", "additionalProperties") if isinstance(node.get(key), dict)}
        waiting += [(f"{place}.{key}", each) for key, each in further.items()]


_FORMS: dict[str, tuple[Any, str]] = {
    "type": ((str, list), "the name of a type"),
    "description": (str, "a str"),
    "properties": (dict, "an object"),
    "required": (list, "a list of names"),
    "items": ((dict, bool, list), "a schema"),
    "additionalProperties": ((dict, bool), "a schema"),
    "anyOf": (list, "a list of schemas"),
    "enum": (list, "a list of values"),
}


def _not_a_schema(place: str, wanted: str, value: object) -> ToolDefinitionError:
    return ToolDefinitionError(f"Tool specification: {place!r:.200} must be {wanted}, not {value!r:.80}")


@dataclass(frozen=True, slots=True)
class Note:
    """A keyword of a schema that a provider's format cannot express as declared.

    >>> print(Note("$.age", "minimum", "moved", "at least 18"))
    $.age: minimum moved into the description: at least 18
    """

    path: str
    """Where in the parameters, such as ``$.items[].price``."""
    keyword: str
    """The JSON Schema keyword."""
    action: Literal["moved", "dropped", "rewritten"]
    """Whether it was moved into the description, dropped, or rewritten as another keyword."""
    detail: str = ""
    """The text in the description, or the replacement."""

    def __str__(self) -> str:
        action = {"moved": "moved into the description", "dropped": "dropped", "rewritten": "rewritten"}[self.action]
        return f"{self.path}: {self.keyword} {action}" + (f": {self.detail}" if self.detail else "")
