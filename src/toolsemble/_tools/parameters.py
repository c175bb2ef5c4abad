"""The parameters of a function: what the model sets, and what is injected from the call.

Loaded when the first tool is used: it needs the schemas of types, which a program that only imports tools does without.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, NewType, Union, get_args, get_origin

from toolsemble._engine.context import InvocationParameters, ToolContext
from toolsemble._runtime.text import describe_type
from toolsemble._schema.members import Field, accepts_none, function_fields, is_memory_id
from toolsemble._schema.typed_arguments import TypedArguments
from toolsemble._vocabulary.errors import ToolDefinitionError


@dataclass(frozen=True, slots=True)
class Parameters:
    """The parameters of a function, by the source of their values."""

    arguments: TypedArguments
    """The parameters that the model sets."""
    positional: tuple[str, ...]
    """The names of positional-only parameters."""
    injected: Mapping[str, Callable[[ToolContext], Any]]
    """The injected parameters, each with a function that reads the value from the context."""
    needs: Mapping[str, str]
    """The required context fields (memory id and dependencies), each with the declared type."""

    @property
    def sees(self) -> frozenset[str]:
        """The context fields that are injected."""
        names: Mapping[Any, str] = {_run_parameters: "parameters", _context_with_deps: "deps"}
        found = {names.get(get, "memory_id") for get in self.injected.values()}
        return frozenset(found | {"memory_id"} if "deps" in found else found)


def read_parameters(
    tool: str, function: Callable[..., Any], names: Mapping[str, Any], bound: int, owner: type | None
) -> Parameters:
    """Return a function's parameters; raise ToolDefinitionError if one is unsupported.

    :param names: local types that its annotations may refer to
    :param bound: the number of already bound first parameters: self or cls
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
    _warn_untyped(tool, function, visible)
    positional = tuple(each.name for each in signature.parameters.values() if each.kind is each.POSITIONAL_ONLY)
    return Parameters(arguments, positional[bound:], injected, _find_needs(fields, injected))


def _warn_untyped(tool: str, function: Any, fields: Sequence[Field]) -> None:
    """Warn about parameters without a type, except in lambdas and C functions."""
    if getattr(function, "__name__", "") == "<lambda>" or not hasattr(function, "__annotations__"):
        return
    names = [field.name for field in fields if field.annotation is Any and field.name not in function.__annotations__]
    if names:
        from toolsemble._runtime.checks import warn_user

        listed = ", ".join(f"'{name}'" for name in names)
        warn_user(
            f"Tool '{tool}' takes {listed} without a type, so models may send anything; write {names[0]}: str, or "
            f"{names[0]}: Any"
        )


def _find_needs(fields: Sequence[Field], injected: Mapping[str, Callable[[ToolContext], Any]]) -> dict[str, str]:
    """Return the context fields that the function requires, with their declared types."""
    taken = {field.name: field for field in fields if field.name in injected}
    needs = {}
    for name, field in taken.items():
        if injected[name] is _memory_id:
            needs["memory_id"] = "MemoryId"
        elif injected[name] is _context_with_deps and (declared := _find_deps_type(field)):
            needs["deps"] = declared
    return needs


def _find_deps_type(field: Field) -> str:
    """Return the declared type of a context whose dependencies cannot be None; empty if they can."""
    contexts = [each for each in _options(field.annotation) if get_origin(each) is ToolContext]
    if any(accepts_none(get_args(each)[0]) for each in contexts):
        return ""
    return f"ToolContext[{describe_type(get_args(contexts[0])[0])}]"


def _find_injection(field: Field) -> Callable[[ToolContext], Any] | None:
    """Return the function that reads an injected parameter from the context; None for others."""
    if is_memory_id(field.annotation):
        if not _admits_text(field.annotation):
            raise ToolDefinitionError(f"parameter '{field.name}': a MemoryId is a str; write Annotated[str, MemoryId]")
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


def _admits_text(annotation: Any) -> bool:
    """Return whether a str is a value of a type."""
    if get_origin(annotation) is Annotated:
        return _admits_text(get_args(annotation)[0])
    if isinstance(annotation, NewType):
        return _admits_text(annotation.__supertype__)
    if get_origin(annotation) in (Union, types.UnionType):
        return any(map(_admits_text, get_args(annotation)))
    if isinstance(annotation, type) or get_origin(annotation) is not None:
        return annotation in (Any, object) or (isinstance(annotation, type) and issubclass(annotation, str))
    return True  # a type variable, a name


def _contains(annotation: object, kind: type) -> bool:
    """Return whether a type contains another one in its arguments, at any depth."""
    return any(each is kind or get_origin(each) is kind or _contains(each, kind) for each in get_args(annotation))


def _memory_id(context: ToolContext) -> str:
    return context.memory_id


def _whole_context(context: ToolContext) -> ToolContext:
    return context


def _context_with_deps(context: ToolContext) -> ToolContext:
    return context


def _run_parameters(context: ToolContext) -> InvocationParameters:
    return context.parameters
