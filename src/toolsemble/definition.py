"""A tool as the call path sees it: what to read, what to run, and how."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from importlib import import_module  # provider modules are loaded when they are used
from typing import Any

from toolsemble.context import LOGGER
from toolsemble.errors import ToolDefinitionError
from toolsemble.note import Note
from toolsemble.review.gate import Gate, gate_of
from toolsemble.review.request import TIMEOUT, OnTimeout
from toolsemble.schema.decode import Arguments, Decoded, decode_arguments, decode_input, json_text, plain_input
from toolsemble.schema.emit import portable
from toolsemble.specification import ToolSpecification
from toolsemble.workers import is_async

PROVIDERS = ("openai", "anthropic", "google", "bedrock", "mistral", "ollama", "mcp")
"""The providers whose wire formats are known."""

_STRICT = {"openai", "anthropic", "bedrock", "mistral"}


class ReturnBehavior(Enum):
    """Who gets a tool's result: the model, or the caller at once.

    >>> ReturnBehavior.IMMEDIATE.name
    'IMMEDIATE'
    """

    TO_LLM = "to_llm"
    """The model, which goes on with it."""
    IMMEDIATE = "immediate"
    """The caller, when every call of the turn is immediate."""
    IMMEDIATE_IF_LAST = "immediate_if_last"
    """The caller, also when only the last call of the turn says so."""


_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


@dataclass(frozen=True, slots=True)
class ToolDefinition:
    """What a call needs to know of a tool, taken down once; the call path knows no tool classes.

    >>> definition = ToolDefinition(
    ...     name="shout",
    ...     description="Says it louder",
    ...     body=str.upper,
    ...     decode=lambda text, steps: (text, ()),
    ...     accept=lambda value, steps: (value, ()),
    ... )
    >>> definition.logger.name
    'toolsemble.tool.shout'
    """

    name: str
    """The name by which it is called."""
    description: str
    """What it does, for the model."""
    body: Callable[[Any], Any]
    """The work itself; takes what reading gives."""
    decode: Callable[[str, frozenset[str]], Decoded]
    """From the JSON text that a model wrote to the body's input, with the steps of repair that are allowed."""
    accept: Callable[[Any, frozenset[str]], Decoded]
    """From what a program handed over to the body's input."""
    schema: Callable[[], Mapping[str, Any]] = dict
    """Gives the whole JSON Schema of the arguments; asked when a specification is needed."""
    awaits: bool = False
    """Whether the body is async."""
    inline: bool = False
    """Whether the body never blocks, so that async callers may run it without a thread."""
    gate: Gate | None = None
    """When a reviewer must agree before the body runs; None for never."""
    reviewed_as: str = ""
    """What a reviewer is told that the tool does; empty for the description."""
    editable: str = ""
    """The parameter whose plain text a reviewer may edit; empty when an edit replaces all arguments."""
    present: Callable[..., Any] = lambda value, **_: value
    """From the body's input to what a reviewer is shown: JSON values that nobody else holds, with secrets hidden unless
    ``reveal`` is true."""
    return_behavior: ReturnBehavior = ReturnBehavior.TO_LLM
    """Who gets the result."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """What else a provider may want to know."""
    strict: bool | None = None
    """Whether the provider's strict mode is asked for."""
    logger: logging.Logger = field(init=False)
    """The tool's own logger, called by its name."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "logger", LOGGER.getChild(self.name))
        if self.strict:
            self._check_strict()
        if self.editable:
            self._check_editable()

    def specification(self) -> ToolSpecification:
        """Give what a model is shown of the tool."""
        parameters = {"type": "object", **portable(self.schema())[0]}
        nothing = not parameters.get("properties") and parameters.get("additionalProperties") is False
        taken = None if nothing else parameters
        return ToolSpecification(self.name, self.description, taken, self.metadata, self.strict)

    def explain(self, provider: str) -> list[Note]:
        """Give a note for every keyword of the schema that a provider's model does not see as it was written."""
        if provider not in PROVIDERS:
            raise ValueError(f"Unknown provider {provider!r}; known are {', '.join(PROVIDERS)}")
        parameters, notes = portable(self.schema())
        strict = {"strict": True} if self.strict and provider in _STRICT else {}
        return [*notes, *import_module(f"toolsemble.providers.{provider}").adapt(parameters, **strict)[1]]

    def _check_editable(self) -> None:
        """Refuse an editable field that the tool does not have, or that is no text."""
        fields = self.specification().parameters or {}
        if fields.get("properties", {}).get(self.editable, {}).get("type") != "string":
            raise ToolDefinitionError(f"Tool '{self.name}': editable must name a text parameter, not {self.editable!r}")

    def _check_strict(self) -> None:
        """Refuse a strict tool whose schema strict mode cannot say."""
        try:
            self.explain("openai")
        except ValueError as problem:
            raise ToolDefinitionError(f"Tool '{self.name}' cannot be strict: {problem}") from None


def string_definition(name: object, description: object, body: Callable[[str], Any], **settings: Any) -> ToolDefinition:
    """Give the definition of a tool that takes one string; refuse a bad name or description.

    >>> shout = string_definition("shout", "Says it louder", str.upper, inline=True)
    >>> shout.decode('{"input": "hello"}', frozenset())
    ('hello', [])
    """
    owner = checked_name(name)
    return ToolDefinition(
        name=owner,
        description=checked_description(owner, description),
        body=body,
        decode=lambda text, steps: decode_input(text, owner, steps),
        accept=lambda value, _: (plain_input(value, owner), ()),
        schema=_string_schema,
        awaits=is_async(body),
        **settings,
    )


def typed_definition(
    name: object, description: object, body: Callable[[Any], Any], arguments: Arguments, **settings: Any
) -> ToolDefinition:
    """Give the definition of a tool with named parameters; refuse a bad name or description."""
    owner = checked_name(name)

    # A strict model cannot leave a parameter out: null is how it says so.
    always = frozenset({"null"} if settings.get("strict") else ())

    def decode(text: str, steps: frozenset[str]) -> Decoded:
        return decode_arguments(text, arguments, steps | always if always else steps)

    def accept(value: Any, steps: frozenset[str]) -> Decoded:
        text = value if isinstance(value, str) else json_text({} if value is None else value, arguments.owner)
        return decode(text, steps)

    return ToolDefinition(
        name=owner,
        description=checked_description(owner, description),
        body=body,
        decode=decode,
        accept=accept,
        schema=lambda: arguments.schema,
        present=arguments.present,
        **settings,
    )


def review_settings(name: object, source: object) -> dict[str, Any]:
    """Give what an object says about its review, as settings of a definition; refuse what is unclear.

    >>> class Delete:
    ...     requires_approval = True
    ...     approval_timeout = 60
    >>> review_settings("delete", Delete())["gate"].timeout
    60
    """
    requires_approval, editable = getattr(source, "requires_approval", False), getattr(source, "editable", "")
    timeout = getattr(source, "approval_timeout", TIMEOUT)
    on_timeout = getattr(source, "approval_on_timeout", OnTimeout.EXIT_EARLY)
    gate = gate_of(f"Tool '{name}'", requires_approval, timeout, on_timeout, getattr(source, "approval_role", None))
    return {"gate": gate, "editable": editable, "reviewed_as": getattr(source, "approval_description", "")}


def _string_schema() -> dict[str, Any]:
    described = {"type": "string", "description": "The input to pass to the tool"}
    return {"type": "object", "properties": {"input": described}, "required": ["input"]}


def checked_name(name: object) -> str:
    """Give the name back, or refuse it with what is wrong.

    >>> checked_name("web search")
    Traceback (most recent call last):
    ...
    toolsemble.errors.ToolDefinitionError: Invalid tool name 'web search': use 1 to 64 letters, digits, '_' or '-'
    """
    if isinstance(name, str) and _NAME.fullmatch(name):
        return name
    if name is None:
        raise ToolDefinitionError("The tool has no name; give its class an attribute or property 'name'")
    if isinstance(name, str) and not name.strip():
        raise ToolDefinitionError("Invalid tool name: it is blank; use 1 to 64 letters, digits, '_' or '-'")
    raise ToolDefinitionError(f"Invalid tool name {name!r:.80}: use 1 to 64 letters, digits, '_' or '-'")


def checked_description(name: str, description: object) -> str:
    """Give the description back, or refuse it with what is wrong.

    >>> checked_description("clock", None)
    Traceback (most recent call last):
    ...
    toolsemble.errors.ToolDefinitionError: Tool 'clock': description must be a str, not NoneType
    """
    if not isinstance(description, str):
        raise ToolDefinitionError(f"Tool '{name}': description must be a str, not {type(description).__name__}")
    try:
        description.encode()
    except UnicodeEncodeError as problem:
        raise ToolDefinitionError(f"Tool '{name}': description is not valid text: {problem}") from None
    return description
