"""A tool as the call path sees it: what to read, what to run, and how."""

from __future__ import annotations

import inspect
import logging
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from toolsemble.context import LOGGER
from toolsemble.errors import ToolDefinitionError
from toolsemble.schema.decode import decode_input, plain_input
from toolsemble.specification import ToolSpecification

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


@dataclass(frozen=True, slots=True)
class ToolDefinition:
    """What a call needs to know of a tool, taken down once; the call path knows no tool classes.

    >>> definition = ToolDefinition(
    ...     name="shout",
    ...     description="Says it louder",
    ...     body=str.upper,
    ...     decode=lambda text: text,
    ...     accept=lambda value: value,
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
    decode: Callable[[str], Any]
    """From the JSON text that a model wrote to the body's input."""
    accept: Callable[[Any], Any]
    """From what a program handed over to the body's input."""
    parameters: Callable[[], dict[str, Any] | None] = lambda: None
    """Gives the JSON Schema of the arguments; asked when a specification is needed."""
    awaits: bool = False
    """Whether the body is async."""
    inline: bool = False
    """Whether the body never blocks, so that async callers may run it without a thread."""
    requires_approval: bool = False
    """Whether a reviewer must agree before the body runs."""
    logger: logging.Logger = field(init=False)
    """The tool's own logger, called by its name."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "logger", LOGGER.getChild(self.name))

    def specification(self) -> ToolSpecification:
        """Give what a model is shown of the tool."""
        return ToolSpecification(self.name, self.description, self.parameters())


def string_definition(
    name: object, description: object, body: Callable[[str], Any], *, inline: bool, requires_approval: bool
) -> ToolDefinition:
    """Give the definition of a tool that takes one string; refuse a bad name or description.

    >>> shout = string_definition("shout", "Says it louder", str.upper, inline=True, requires_approval=False)
    >>> shout.body(shout.decode('{"input": "hello"}'))
    'HELLO'
    """
    owner = checked_name(name)
    return ToolDefinition(
        name=owner,
        description=checked_description(owner, description),
        body=body,
        decode=lambda text: decode_input(text, owner),
        accept=lambda value: plain_input(value, owner),
        parameters=_string_parameters,
        awaits=is_async(body),
        inline=inline,
        requires_approval=requires_approval,
    )


def _string_parameters() -> dict[str, Any]:
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


def is_async(function: object) -> bool:
    """Whether calling it gives a coroutine; also for objects that are called through ``__call__``."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004 - the method is looked at, not tested for
    )
