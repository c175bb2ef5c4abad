"""Build definitions, and check the names, descriptions and review settings of tools."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import replace
from functools import partial
from typing import Any

from toolsemble._engine.definition.definition import ToolDefinition
from toolsemble._runtime.concurrency import is_async
from toolsemble._schema.decode import Arguments, Decoded, Read, decode_arguments, decode_input, json_text, plain_input
from toolsemble._vocabulary.errors import ToolArgumentsError, ToolDefinitionError
from toolsemble._vocabulary.specification import METHOD, check_name, is_method
from toolsemble.review._terms import TIMEOUT, OnTimeout


def string_definition(name: object, description: object, body: Callable[[str], Any], **settings: Any) -> ToolDefinition:
    """Return the definition of a tool that takes one string; raise if the name or description is not valid.

    >>> shout = string_definition("shout", "Says it louder", str.upper, inline=True)
    >>> shout.decode('{"input": "hello"}', frozenset())
    ('hello', ())
    """
    owner = check_name(name)
    return ToolDefinition(
        name=owner,
        description=check_description(owner, description),
        body=body,
        decode=lambda text, steps: decode_input(text, owner, steps),
        accept=lambda value, steps: _accept_input(value, owner, steps),
        schema=_string_schema,
        awaits=is_async(body),
        **settings,
    )


def _accept_input(value: object, owner: str, steps: frozenset[str]) -> Decoded:
    """Return the input that a program passes: a text as it is, and arguments as a model would send them."""
    if isinstance(value, Mapping):
        return decode_input(json_text(dict(value), owner), owner, steps)
    return plain_input(value, owner), ()


def typed_definition(
    name: object, description: object, body: Callable[[Any], Any], arguments: Arguments, **settings: Any
) -> ToolDefinition:
    """Return the definition of a tool with named parameters; raise if the name or description is not valid."""
    owner = check_name(name)

    decode = partial(_decode_strict if settings.get("strict") else decode_arguments, arguments)

    def accept(value: Any, steps: frozenset[str]) -> Decoded:
        return decode(value if isinstance(value, str) else _write_arguments(value, arguments.owner), steps)

    return ToolDefinition(
        name=owner,
        description=check_description(owner, description),
        body=body,
        decode=decode,
        accept=accept,
        schema=lambda: arguments.schema,
        arguments=arguments,
        secret=bool(arguments.secret_keys),
        **{"present": arguments.present, **settings},
    )


def _write_arguments(value: object, owner: str) -> str:
    """Return arguments that a program passes as JSON text; None as no arguments."""
    if isinstance(value, Mapping):
        return json_text(dict(value), owner)
    return json_text({} if value is None else value, owner)


def _decode_strict(arguments: Arguments, text: str, steps: frozenset[str]) -> Decoded:
    """Decode arguments with null for omitted parameters: strict mode has no other way to omit one."""
    return decode_arguments(arguments, text, steps | {"null"})


def rename_definition(definition: ToolDefinition, name: object, description: object = None) -> ToolDefinition:
    """Return the definition of the same tool under another name; raise if the name or description is not valid.

    :param description: another description for the model; None: that of the definition

    >>> shout = rename_definition(string_definition("shout", "Says it louder", str.upper), "crm_shout")
    >>> shout.decode("{}", frozenset())
    Traceback (most recent call last):
    ...
    toolsemble.ToolArgumentsError: Missing required parameter(s) for 'crm_shout': input
    """
    old, new = definition.name, check_name(name)
    arguments = definition.arguments
    if arguments is not None and arguments.owner == old:
        arguments = copy(arguments)
        arguments.owner = new
    return replace(
        definition,
        name=new,
        description=definition.description if description is None else check_description(new, description),
        decode=_RenamedReader(definition.decode, old, new),
        accept=_RenamedReader(definition.accept, old, new),
        arguments=arguments,
    )


class _RenamedReader:
    """A reader of arguments whose errors name a tool by its new name."""

    __slots__ = ("_new", "_old", "_read")

    def __init__(self, read: Read, old: str, new: str) -> None:
        self._read = read
        self._old = f" for '{old}'"
        self._new = f" for '{new}'"

    def __call__(self, value: Any, steps: frozenset[str]) -> Decoded:
        """Read arguments."""
        try:
            return self._read(value, steps)
        except ToolArgumentsError as problem:
            problem.args = (str(problem).replace(self._old, self._new, 1),)
            raise


def review_settings(name: object, source: object) -> dict[str, Any]:
    """Return the review settings of an object as fields of a definition; raise if one is not valid.

    >>> class Delete:
    ...     requires_approval = True
    ...     approval_timeout = 60
    >>> review_settings("delete", Delete())["gate"].timeout
    60
    """
    requires_approval, editable = getattr(source, "requires_approval", False), getattr(source, "editable", "")
    timeout = getattr(source, "approval_timeout", TIMEOUT)
    on_timeout = getattr(source, "approval_on_timeout", OnTimeout.EXIT_EARLY)
    described = getattr(source, "approval_description", "")
    if not isinstance(described, str):
        raise ToolDefinitionError(f"Tool '{name}': approval_description must be a str, not {described!r:.80}")
    settings = {"editable": editable, "reviewed_as": described}
    if requires_approval is False:
        return settings
    from toolsemble.review._gate import build_gate

    role = getattr(source, "approval_role", None)
    return settings | {"gate": build_gate(f"Tool '{name}'", requires_approval, timeout, on_timeout, role)}


def _string_schema() -> dict[str, Any]:
    described = {"type": "string", "description": "The input to pass to the tool"}
    return {"type": "object", "properties": {"input": described}, "required": ["input"]}


def check_description(name: str, description: object) -> str:
    """Return the description if it is valid; raise otherwise.

    >>> check_description("clock", None)
    Traceback (most recent call last):
    ...
    toolsemble.ToolDefinitionError: Tool 'clock': description must be a str, not NoneType
    """
    if is_method(description):
        raise ToolDefinitionError(f"Tool '{name}': {METHOD.format(name='description')}")
    if not isinstance(description, str):
        raise ToolDefinitionError(f"Tool '{name}': description must be a str, not {type(description).__name__}")
    try:
        description.encode()
    except UnicodeEncodeError as problem:
        raise ToolDefinitionError(f"Tool '{name}': description is not valid text: {problem}") from None
    return description
