"""The parameters of a function that becomes a tool: set by the model, or injected from the context."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Union, get_args, get_origin

from toolsemble.context import InvocationParameters, ToolContext
from toolsemble.errors import ToolDefinitionError
from toolsemble.schema.field import Field, accepts_none, is_memory_id
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

    needs: frozenset[str] = frozenset()
    """The context fields that an agent's run must set: the memory id, or the dependencies."""

    @property
    def sees(self) -> frozenset[str]:
        """The context fields that are injected."""
        names: Mapping[Any, str] = {_run_parameters: "parameters", _context_with_deps: "deps"}
        found = {names.get(get, "memory_id") for get in self.injected.values()}
        return frozenset(found | {"memory_id"} if "deps" in found else found)


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
    return Parameters(arguments, positional[bound:], injected, _find_needs(fields, injected))


def _find_needs(fields: Sequence[Field], injected: Mapping[str, Callable[[ToolContext], Any]]) -> frozenset[str]:
    """Return the context fields without which a run of an agent could not call the function."""
    taken = {field.name: field for field in fields if field.name in injected}
    needs = {"memory_id" for name in taken if injected[name] is _memory_id}
    needs |= {"deps" for name, field in taken.items() if injected[name] is _context_with_deps and _has_deps(field)}
    return frozenset(needs)


def _has_deps(field: Field) -> bool:
    """Return whether a parameter is a context whose dependencies cannot be None."""
    contexts = [each for each in _options(field.annotation) if get_origin(each) is ToolContext]
    return not any(accepts_none(get_args(each)[0]) for each in contexts)


def _find_injection(field: Field) -> Callable[[ToolContext], Any] | None:
    """Return the function that takes the value of an injected parameter from the context; None for others."""
    if is_memory_id(field.annotation):
        return _memory_id
    options = _options(field.annotation)
    if any(option is ToolContext for option in options):
        return _whole_context
    if any(get_origin(option) is ToolContext for option in options):
        return _context_with_deps
    if any(option is InvocationParameters for option in options):
        return _run_parameters
    for injected in (ToolContext, InvocationParameters):
        if _contains(field.annotation, injected):
            name = injected.__name__
            raise ToolDefinitionError(
                f"parameter '{field.name}': a {name} cannot be part of another type; add a parameter of type {name}"
            )
    return None


def _options(annotation: Any) -> tuple[Any, ...]:
    """Return the members of a union, or the type itself."""
    union = (Union, types.UnionType, Annotated)
    return get_args(annotation) if get_origin(annotation) in union else (annotation,)


def _contains(annotation: object, kind: type) -> bool:
    """Return whether a type has another one among its arguments, at any depth."""
    return any(each is kind or get_origin(each) is kind or _contains(each, kind) for each in get_args(annotation))


def _memory_id(context: ToolContext) -> str:
    return context.memory_id


def _whole_context(context: ToolContext) -> ToolContext:
    return context


def _context_with_deps(context: ToolContext) -> ToolContext:
    return context


def _run_parameters(context: ToolContext) -> InvocationParameters:
    return context.parameters
