"""One tool of a catalog: its specification, its token cost, and its shorter forms."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

from toolsemble._engine.context import ToolContext
from toolsemble._engine.definition import ToolDefinition
from toolsemble._runtime.text import escape_line
from toolsemble._tools.toolbox.registry import Registered
from toolsemble._vocabulary.errors import ToolDefinitionError
from toolsemble._vocabulary.provider_list import PROVIDERS, load_wire_format
from toolsemble._vocabulary.serialization import compact_json
from toolsemble._vocabulary.specification import ToolSpecification
from toolsemble.catalog._search import Document, describe_tool

Count: TypeAlias = Callable[[str], int]
"""Returns the number of tokens of a text."""

_CHARACTERS = 3.6  # characters per token of JSON with English words; a character in another script is one token


def estimate_tokens(text: str) -> int:
    """Return an estimate of a text's token count, without a tokenizer.

    >>> estimate_tokens('{"name":"weather"}'), estimate_tokens("天气")
    (5, 2)
    """
    ascii_only = len(text) if text.isascii() else sum(character.isascii() for character in text)
    return math.ceil(ascii_only / _CHARACTERS) + len(text) - ascii_only


class Meter:
    """Counts the tokens of tool definitions in the format of one provider.

    >>> Meter("openai", len).measure(ToolSpecification("now", "The time"))
    117
    """

    __slots__ = ("_count", "_write", "provider")

    def __init__(self, provider: object, count: Count) -> None:
        if not isinstance(provider, str) or provider not in PROVIDERS:
            raise ToolDefinitionError(f"Catalog provider must be one of {', '.join(PROVIDERS)}, not {provider!r:.80}")
        self.provider = provider
        self._write = load_wire_format(provider).write_tools
        self._count = count

    def to(self, provider: str) -> Meter:
        """Return a meter for another provider with the same counting function."""
        return Meter(provider, self._count)

    def measure(self, specification: ToolSpecification) -> int:
        """Return the number of tokens of one tool."""
        tokens: Any = self._count(compact_json(self._write([specification])[0]))
        if isinstance(tokens, bool) or not isinstance(tokens, int) or tokens < 0:
            raise ToolDefinitionError(f"Catalog count must return an int >= 0, not {tokens!r:.80}")
        return tokens


_LONGEST_SENTENCE = 240
_MOST_PARAMETERS = 30
_MOST_CHOICES = 12
_LONGEST_CHOICES = 200
_LONGEST_NAME = 64
_END = re.compile(r"(?<!\be\.g)(?<!\bi\.e)(?<!\betc)(?<!\bvs)[.!?](?=\s)|[\u3002\uff01\uff1f]|\n\s*\n")


def first_sentence(text: str) -> str:
    r"""Return the first sentence of a text on one line, truncated if very long.

    >>> first_sentence("Send mail, e.g. a reminder.\nNeeds an address. Takes files.")
    'Send mail, e.g. a reminder.'
    """
    whole = text.strip()
    end = _END.search(whole)
    sentence = " ".join(whole[: end.end()].split() if end else whole.split())
    if len(sentence) <= _LONGEST_SENTENCE:
        return sentence
    return f"{sentence[:_LONGEST_SENTENCE].rpartition(' ')[0] or sentence[:_LONGEST_SENTENCE]}…"


def format_parameters(specification: ToolSpecification) -> str:
    """Return the parameters in one line, optional ones in brackets.

    >>> schema = {"properties": {"city": {"type": "string"}, "days": {"type": "integer"}}, "required": ["city"]}
    >>> format_parameters(ToolSpecification("weather", "", schema))
    'city: string, [days: integer]'
    """
    schema = specification.parameters or {}
    needed = schema.get("required", ())
    properties = schema.get("properties", {})
    shown = [
        (name, f"{escape_line(name, _LONGEST_NAME)}: {_format_type(part)}")
        for name, part in list(properties.items())[:_MOST_PARAMETERS]
    ]
    more = ["…"] if len(properties) > _MOST_PARAMETERS else []
    return ", ".join([*(text if name in needed else f"[{text}]" for name, text in shown), *more])


def write_line(specification: ToolSpecification) -> str:
    """Return a tool in one line.

    >>> write_line(ToolSpecification("now", "The time. In UTC."))
    'now(): The time.'
    """
    sentence = escape_line(first_sentence(specification.description))
    return f"{specification.name}({format_parameters(specification)}){f': {sentence}' if sentence else ''}"


def _format_type(schema: dict[str, Any]) -> str:
    if "enum" in schema:
        values = [compact_json(value) for value in schema["enum"][:_MOST_CHOICES]]
        more = ["…"] if len(schema["enum"]) > _MOST_CHOICES else []
        return escape_line("|".join([*values, *more]), _LONGEST_CHOICES)
    if "anyOf" in schema:
        return "|".join(dict.fromkeys(map(_format_type, schema["anyOf"])))
    kind = str(schema.get("type", "any"))
    return f"{_format_type(schema.get('items', {}))}[]" if kind == "array" else kind


STEPS = (
    "descriptions of parameters cut to a sentence",
    "description cut to a sentence",
    "examples and defaults dropped",
)
"""The cuts, in order; each form includes the previous cuts."""
SHORTEST = len(STEPS)
"""The number of cuts in the shortest form."""

_DROPPED = frozenset(("default", "example", "examples"))
_MAPS = frozenset(("properties", "patternProperties", "$defs", "definitions", "dependentSchemas"))
_LISTS = frozenset(("anyOf", "oneOf", "allOf", "prefixItems"))
_SINGLE = frozenset(("items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames"))


def shorten(definition: ToolDefinition, cuts: int) -> ToolDefinition:
    """Return the definition with the first cuts of :data:`STEPS`, at least one; a reviewer sees the full description.

    >>> from toolsemble._engine.definition import string_definition
    >>> shorten(string_definition("shout", "Says it louder. Much louder.", str.upper), 2).description
    'Says it louder.'
    """
    described = definition.description
    return replace(
        definition,
        description=first_sentence(described) if cuts > 1 else described,
        schema=_ShortSchema(definition.schema, drops=cuts >= SHORTEST),
        reviewed_as=definition.reviewed_as or described,
    )


class _ShortSchema:
    """Returns the shortened schema of a tool, built on first use like the tool's own."""

    __slots__ = ("_drops", "_whole")

    def __init__(self, whole: Callable[[], Mapping[str, Any]], *, drops: bool) -> None:
        self._whole = whole
        self._drops = drops

    def __call__(self) -> Mapping[str, Any]:
        """Return the schema."""
        shortened: Mapping[str, Any] = _shorten_schema(self._whole(), drops=self._drops)
        return shortened


def _shorten_schema(schema: Any, *, drops: bool) -> Any:
    """Return a schema with short descriptions; parameter names are not mistaken for keywords.

    A tool's schema is checked when it is defined, so it is not too deep.
    """
    if not isinstance(schema, Mapping):
        return schema  # true or false
    short: dict[str, Any] = {}
    for key, value in schema.items():
        if drops and key in _DROPPED:
            continue
        if key == "description" and isinstance(value, str):
            short[key] = first_sentence(value)
        elif key in _MAPS and isinstance(value, Mapping):
            short[key] = {name: _shorten_schema(part, drops=drops) for name, part in value.items()}
        elif key in _LISTS and isinstance(value, list):
            short[key] = [_shorten_schema(part, drops=drops) for part in value]
        else:
            short[key] = _shorten_schema(value, drops=drops) if key in _SINGLE else value
    return short


_CONTEXT = ToolContext()


class Entry:
    """A tool of a catalog; derived values are computed on first use.

    >>> from toolsemble._engine.definition import string_definition
    >>> Entry(None, string_definition("shout", "Says it louder", str.upper)).name
    'shout'
    """

    __slots__ = ("_costs", "_forms", "_specifications", "definition", "group", "name", "tool")

    def __init__(self, tool: object, definition: ToolDefinition, group: str = "") -> None:
        self.tool = tool
        self.definition = definition
        self.name = definition.name
        self.group = group or _find_server(definition.metadata)
        """The name of its server or source; "" if it has none."""
        self._forms: dict[int, ToolDefinition] = {0: definition}
        self._specifications: dict[int, ToolSpecification] = {}
        self._costs: dict[tuple[int, str], int] = {}

    def form(self, cuts: int) -> ToolDefinition:
        """Return the definition with some cuts."""
        if cuts not in self._forms:
            self._forms[cuts] = shorten(self.definition, cuts)
        return self._forms[cuts]

    def specification(self, cuts: int = 0) -> ToolSpecification:
        """Return the model's view of the tool."""
        if cuts not in self._specifications:
            self._specifications[cuts] = self.form(cuts).specification()
        return self._specifications[cuts]

    def cost(self, cuts: int, meter: Meter) -> int:
        """Return the token count of a form, cached per provider."""
        key = cuts, meter.provider
        if key not in self._costs:
            self._costs[key] = meter.measure(self.specification(cuts))
        return self._costs[key]

    def register(self, cuts: int) -> Registered:
        """Return a form of the tool for a toolbox, with its original gate and limits."""
        definition = self.form(cuts)
        limit = None if definition.policy is None else definition.policy.max_output
        return Registered(self.tool, definition, _CONTEXT, limit)

    def document(self) -> Document:
        """Return the searchable texts."""
        definition = self.definition
        return describe_tool(self.name, _find_title(definition.metadata), definition.description, definition.schema())


def _find_server(metadata: Mapping[str, Any]) -> str:
    """Return the name of a tool's MCP server; "" for other tools."""
    remote = metadata.get("mcp")
    name = remote.get("server") if isinstance(remote, Mapping) else None
    return name if isinstance(name, str) else ""


def _find_title(metadata: Mapping[str, Any]) -> str:
    remote = metadata.get("mcp")
    title = remote.get("title") if isinstance(remote, Mapping) else metadata.get("title")
    return title if isinstance(title, str) else ""
