"""``TypedTool``: a tool whose input is an object of a declared type."""

from __future__ import annotations

import sys
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Generic, TypeVar, get_args, get_origin

from toolsemble.definition.build import typed_definition
from toolsemble.definition.definition import ToolDefinition
from toolsemble.errors import ToolDefinitionError
from toolsemble.runtime.concurrency import is_async
from toolsemble.schema.local_types import collect_local_types
from toolsemble.schema.members import find_return_type, members_reader
from toolsemble.schema.typed import TypedArguments
from toolsemble.tools.base import MEMORY_ID_ONLY, Tool

T = TypeVar("T")


class TypedTool(Tool, Generic[T]):
    """A tool whose input is an object of a declared type; the model sees its fields as parameters.

    The type is a dataclass, a pydantic model, a typed dict, a named tuple, an attrs class or a msgspec struct, and
    :meth:`run` gets a validated object of it.

    >>> from dataclasses import dataclass
    >>> @dataclass
    ... class Route:
    ...     start: str
    ...     end: str
    ...     stops: int = 0
    >>> class Plan(TypedTool[Route]):
    ...     name = "plan"
    ...     description = "Plans a route"
    ...     def run(self, input: Route) -> str:
    ...         return f"{input.start} to {input.end}, {input.stops} stops"
    >>> Plan().execute('{"start": "Rome", "end": "Bonn"}').output
    'Rome to Bonn, 0 stops'
    """

    input_type: type[T]
    """The type of the input; taken from the type argument, or set by hand."""
    _names: ClassVar[Mapping[str, Any]]
    _kept_arguments: ClassVar[TypedArguments]

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "input_type" not in vars(cls) and (found := _type_argument(cls)) is not None:
            cls.input_type = found
        # Forward references in the input type may refer to local names of the enclosing function.
        cls._names = collect_local_types(sys._getframe(1))  # noqa: SLF001 - there is no public way to get the caller's names

    @abstractmethod
    def run(self, input: T) -> Any:
        """Execute the tool with a validated object."""

    def _define(self) -> ToolDefinition:
        return typed_definition(
            getattr(self, "name", None),
            getattr(self, "description", None),
            self.run,
            self._arguments(),
            awaits=is_async(self.run),
            returns=lambda: find_return_type(self.run, self._names),
            sees=MEMORY_ID_ONLY,
            holder=self,
            **self._declared(),
        )

    @classmethod
    def _arguments(cls) -> TypedArguments:
        """Return the decoder of the input, created once for each class."""
        kept: TypedArguments | None = vars(cls).get("_kept_arguments")
        if kept is None:
            kept = TypedArguments.of_type(_check_input_type(cls), cls._names)
            kept.check()
            cls._kept_arguments = kept  # two threads may create equal ones
        return kept


def _type_argument(cls: type) -> Any:
    """Return the type argument of ``TypedTool[T]``, resolved through generic base classes."""
    known: dict[Any, Any] = {}
    for base in cls.__mro__:
        for generic in vars(base).get("__orig_bases__", ()):
            origin, arguments = get_origin(generic), get_args(generic)
            if origin is TypedTool:
                found = known.get(arguments[0], arguments[0])
                inner = getattr(found, "__parameters__", ()) if get_origin(found) else ()
                if inner:
                    found = found[tuple(known.get(each, each) for each in inner)]
                return None if isinstance(found, TypeVar) else found
            known.update(zip(getattr(origin, "__parameters__", ()), (known.get(a, a) for a in arguments), strict=False))
    return None


def _check_input_type(cls: Any) -> Any:
    kind = getattr(cls, "input_type", None)
    if kind is None:
        raise ToolDefinitionError(
            f"{cls.__name__} has no input type; write class {cls.__name__}(TypedTool[SomeDataclass])"
        )
    origin = get_origin(kind) or kind
    if isinstance(origin, type) and (members_reader(origin) or hasattr(origin, "__pydantic_fields__")):
        return kind
    raise ToolDefinitionError(
        f"{cls.__name__}: input type {kind!r:.80} has no fields; use a dataclass, a pydantic model, a TypedDict, "
        "a NamedTuple, an attrs class or a msgspec struct"
    )
