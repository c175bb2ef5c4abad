"""``TypedTool``: a tool whose input is an object of a declared type."""

from __future__ import annotations

import sys
from abc import abstractmethod
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, ClassVar, Generic, TypeVar, get_args, get_origin

from toolsemble._engine.definition import ToolDefinition, typed_definition
from toolsemble._runtime.event_loops import is_async
from toolsemble._schema.decode import decode_arguments, json_text
from toolsemble._schema.docstring import collect_local_types
from toolsemble._schema.members import find_return_type, members_reader
from toolsemble._schema.repair import STEPS
from toolsemble._schema.typed_arguments import TypedArguments
from toolsemble._tools.base import MEMORY_ID_ONLY, Tool
from toolsemble._vocabulary.errors import ToolDefinitionError
from toolsemble._vocabulary.specification import METHOD, is_method

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
    """The input type; taken from the type argument, or set explicitly."""
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
        """Return the input decoder, created once per class."""
        kept: TypedArguments | None = vars(cls).get("_kept_arguments")
        if kept is None:
            kind = getattr(cls, "input_type", None)
            if kind is None:
                raise ToolDefinitionError(
                    f"{cls.__name__} has no input type; write class {cls.__name__}(TypedTool[SomeDataclass])"
                )
            kept = TypedArguments.of_type(_check_input_type(cls.__name__, kind), cls._names)
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


def schema_for(kind: Any) -> dict[str, Any]:
    """Return an input type's JSON Schema as models see it; raise ToolDefinitionError for any other type.

    :param kind: a dataclass, a pydantic model, a typed dict, a named tuple, an attrs class or a msgspec struct

    >>> from dataclasses import dataclass
    >>> @dataclass
    ... class City:
    ...     name: str
    ...     days: int = 3
    >>> schema_for(City)["properties"]
    {'name': {'type': 'string'}, 'days': {'type': 'integer', 'default': 3}}
    """
    from toolsemble._schema.provider_schema import make_portable

    return {"type": "object", **make_portable(_read_type(kind).schema)[0]}


def read_arguments(kind: type[T], arguments: str | Mapping[str, Any], *, repair: bool = True) -> T:
    """Return an object of an input type from JSON text or a dict, parsed like call arguments.

    Raise :class:`~toolsemble.ToolArgumentsError` with the message that a model would see.

    :param kind: as in :func:`schema_for`
    :param repair: whether arguments that almost fit are repaired

    >>> from dataclasses import dataclass
    >>> @dataclass
    ... class City:
    ...     name: str
    ...     days: int = 3
    >>> read_arguments(City, '{"name": "Rome", "days": "5"}')
    City(name='Rome', days=5)
    >>> read_arguments(City, "{}")
    Traceback (most recent call last):
    ...
    toolsemble.ToolArgumentsError: Missing required parameter(s) for 'City': name
    """
    given: Any = kind
    known = _read_type(given)
    text = arguments if isinstance(arguments, str) else json_text(dict(arguments), known.owner)
    made: T = decode_arguments(known, text, STEPS if repair else frozenset())[0]
    return made


@lru_cache(maxsize=256)
def _read_type(kind: Any) -> TypedArguments:
    owner = getattr(kind, "__name__", None) or str(kind)
    arguments = TypedArguments.of_type(_check_input_type(owner, kind), {})
    arguments.check()
    return arguments


def define_typed(
    name: object, description: object, execute: Callable[[Any], Any], kind: Any, settings: Mapping[str, Any]
) -> ToolDefinition:
    """Return the definition of an object that is not a :class:`Tool`, and has an ``input_type``."""
    if is_method(kind):
        raise ToolDefinitionError(f"Tool '{name}': {METHOD.format(name='input_type')}")
    arguments = TypedArguments.of_type(_check_input_type(f"Tool '{name}'", kind), {})
    arguments.check()
    return typed_definition(name, description, execute, arguments, awaits=is_async(execute), **settings)


def _check_input_type(owner: str, kind: Any) -> Any:
    origin = get_origin(kind) or kind
    if isinstance(origin, type) and (members_reader(origin) or hasattr(origin, "__pydantic_fields__")):
        return kind
    raise ToolDefinitionError(
        f"{owner}: input type {kind!r:.80} has no fields; use a dataclass, a pydantic model, a TypedDict, "
        "a NamedTuple, an attrs class or a msgspec struct"
    )
