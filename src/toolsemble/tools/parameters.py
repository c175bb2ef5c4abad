"""The parameters of a function that becomes a tool: set by the model, or injected from the context."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Union, get_args, get_origin

from toolsemble.context import InvocationParameters, ToolContext
from toolsemble.errors import ToolDefinitionError
from toolsemble.schema.field import Field, is_memory_id
from toolsemble.schema.members import function_fields
from toolsemble.schema.typed import TypedArguments


@dataclass(frozen=True, slots=True)
class Parameters:
    """The parameters of a function, by where their values come from."""

    arguments: TypedArguments
    """The parameters that the model sets."""
    positional: tuple[str, ...]
    """The names of positional-only parameters."""
    injected: Mapping[str, Callable[[ToolContext], Any]]
    """The injected parameters, each with a function that takes the value from the context."""

    @property
    def sees(self) -> frozenset[str]:
        """The context fields that are injected."""
        return frozenset("parameters" if get is _run_parameters else "memory_id" for get in self.injected.values())


def read_parameters(
    tool: str, function: Callable[..., Any], names: Mapping[str, Any], bound: int, owner: type | None
) -> Parameters:
    """Return the parameters of a function; raise ToolDefinitionError if one of them cannot be used.

    :param names: local types that its annotations may refer to
    :param bound: how many of its first parameters are bound already: self or cls
    :param owner: the class that ``Self`` means
    """
    try:
        signature = inspect.signature(function)
        fields = function_fields(function, signature, names)[bound:]
        injected = {field.name: get for field in fields if (get := _find_injection(field)) is not None}
        visible = [field for field in fields if field.name not in injected]
        arguments = TypedArguments.of_fields(tool, visible, names, frozenset(injected), owner)
        arguments.check()
    except ToolDefinitionError as problem:
        raise ToolDefinitionError(f"Tool '{tool}', {problem}") from None
    positional = tuple(each.name for each in signature.parameters.values() if each.kind is each.POSITIONAL_ONLY)
    return Parameters(arguments, positional[bound:], injected)


def _find_injection(field: Field) -> Callable[[ToolContext], Any] | None:
    """Return the function that takes the value of an injected parameter from the context; None for others."""
    if is_memory_id(field.annotation):
        return lambda context: context.memory_id
    kind, union = field.annotation, (Union, types.UnionType, Annotated)
    options = get_args(kind) if get_origin(kind) in union else (kind,)
    if any(option is ToolContext for option in options):
        return lambda context: context
    if any(option is InvocationParameters for option in options):
        return _run_parameters
    for injected in (ToolContext, InvocationParameters):
        if _contains(kind, injected):
            name = injected.__name__
            raise ToolDefinitionError(
                f"parameter '{field.name}': a {name} cannot be part of another type; add a parameter of type {name}"
            )
    return None


def _contains(annotation: object, kind: type) -> bool:
    """Return whether a type has another one among its arguments, at any depth."""
    return any(each is kind or _contains(each, kind) for each in get_args(annotation))


def _run_parameters(context: ToolContext) -> InvocationParameters:
    return context.parameters
