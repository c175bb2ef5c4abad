"""The decorator ``@tool``: tools from functions, methods, static and class methods."""

from __future__ import annotations

import functools
import inspect
import re
import sys
import types
from collections.abc import Callable, Mapping
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Generic,
    ParamSpec,
    TypeAlias,
    TypeVar,
    Unpack,
    overload,
)

from toolsemble._engine.context import ToolContext
from toolsemble._engine.definition import ToolDefinition, check_description, typed_definition
from toolsemble._engine.limits.settings import PolicyCache
from toolsemble._runtime.event_loops import is_async
from toolsemble._schema.docstring import collect_local_types, parse_docstring
from toolsemble._tools.base import Tool
from toolsemble._tools.settings import ToolSettings
from toolsemble._vocabulary.errors import ToolDefinitionError
from toolsemble._vocabulary.specification import check_name

if TYPE_CHECKING:
    from toolsemble._tools.parameters import Parameters

_OVERRIDES = "_toolsemble_tool"

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")
_Injection: TypeAlias = "tuple[tuple[str, ...], Mapping[str, Callable[[ToolContext], Any]]]"


class FunctionTool(Tool, Generic[P, R]):
    """A tool made from a function by ``@tool``; still callable like the function.

    >>> @tool
    ... def add(a: int, b: int = 1) -> int:
    ...     '''Add two numbers.'''
    ...     return a + b
    >>> add(2, 3), add.execute('{"a": 2}').output
    (5, '3')
    """

    def __init__(
        self,
        function: Any,
        names: Mapping[str, Any],
        name: str | None,
        description: str | None,
        settings: ToolSettings,
    ) -> None:
        """Wrap a function; use :func:`tool` instead."""
        if isinstance(function, type):
            raise ToolDefinitionError(
                f"@tool is for functions and methods, and {function.__name__} is a class; put @tool above its methods "
                f"and pass an object of it, or derive it from Tool"
            )
        self._kind = type(function) if isinstance(function, (staticmethod, classmethod)) else None
        self._function: Callable[..., Any] = function.__func__ if self._kind else function
        self._names = names
        self._in_class = False
        self._bound: tuple[Any, ...] = ()
        self._known: dict[type | None, Parameters] = {}  # shared by the bound forms of one tool
        self._by_name = False  # whether all parameters are known to be set by the model, by name
        self._limits = PolicyCache()  # shared as well
        self._original: FunctionTool[..., Any] | None = None  # the tool that was renamed
        self._received: _Injection | None = None  # for a tool pickled by value, whose types may be missing here
        self._overrides = False  # whether it was created for a method without @tool
        functools.update_wrapper(self, self._function)
        self.name = name or str(getattr(self._function, "__name__", ""))
        source = self._function.func if isinstance(self._function, functools.partial) else self._function
        self.description = parse_docstring(source.__doc__).summary if description is None else description
        self._apply(settings)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function itself, without validation, limits or recording."""
        result: R = self._function(*self._bound, *args, **kwargs)
        return result

    def run(self, input: Any) -> Any:
        """Call the function with validated arguments and injected values."""
        if self._by_name:
            return self._function(*self._bound, **input)
        positional, injected = self._received or self._find_injection()
        keywords = dict(input)
        for name, get in injected.items():
            keywords[name] = get(self.context)
        first = [keywords.pop(name) for name in positional if name in keywords]
        return self._function(*self._bound, *first, **keywords)

    def __set_name__(self, owner: type, name: str) -> None:
        # A module-level tool assigned to a class attribute is not a method.
        self._in_class = self.__qualname__ == f"{owner.__qualname__}.{name}"

    @overload
    def __get__(self, instance: None, owner: type) -> FunctionTool[P, R]: ...
    @overload
    def __get__(
        self: FunctionTool[Concatenate[Any, Q], R], instance: object, owner: type | None = None
    ) -> FunctionTool[Q, R]: ...
    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        """Return the tool bound to an object, like a method."""
        if self._kind is staticmethod or self._bound:
            return self
        if self._kind is classmethod:
            return self.bound_to(owner or type(instance))
        return self if instance is None else self.bound_to(instance)

    def bound_to(self, first: Any) -> FunctionTool[..., R]:
        """Return the tool with its first parameter, self or cls, bound."""
        bound: FunctionTool[..., R] = object.__new__(FunctionTool)
        original = None if self._original is None else self._original.bound_to(first)
        bound.__dict__.update(self.__dict__, _bound=(first,), _original=original)
        return bound

    def renamed(self, name: str, description: str | None = None) -> FunctionTool[P, R]:
        """Return the same tool under another name: see :meth:`Tool.renamed`; it is also callable like the function."""
        made: FunctionTool[P, R] = object.__new__(FunctionTool)
        # The parameters are read again, because their errors name the tool; the limits' state is shared.
        made.__dict__.update(self.__dict__, name=check_name(name), _known={}, _original=self)
        if description is not None:
            made.description = check_description(name, description)
        return made

    def override_with(self, method: Any) -> FunctionTool[..., Any]:
        """Return the tool for a method of a subclass that overrides this one without ``@tool``.

        It has this tool's name and settings, and the method's parameters and docstring.
        """
        function = method.__func__ if isinstance(method, (staticmethod, classmethod)) else method
        known = vars(function).get(_OVERRIDES)
        if known is None or known[0] is not self or known[1]._function is not function:  # noqa: SLF001 - a class of this module
            settings: Any = {name: value for name, value in vars(self).items() if name in ToolSettings.__annotations__}
            described = self.description == parse_docstring(self._function.__doc__).summary and function.__doc__
            made: FunctionTool[..., Any] = FunctionTool(
                method, self._names, self.name, None if described else self.description, settings
            )
            made._in_class = self._in_class
            made._overrides = True
            # Stored on the function, so that all objects of the class share its limits' state.
            known = vars(function)[_OVERRIDES] = self, made
        found: FunctionTool[..., Any] = known[1]
        return found

    def _define(self) -> ToolDefinition:
        parameters = self._parameters()
        self._by_name = not parameters.injected and not parameters.positional
        if self.isolation == "process":
            _check_process(self.name, parameters)
        return typed_definition(
            self.name,
            self.description,
            self.run,
            parameters.arguments,
            sees=parameters.sees,
            needs=parameters.needs,
            holder=self._bound[0] if self._bound else None,
            awaits=is_async(self._function),
            returns=lambda: self._find_return_type(self._function, self._names),
            **self._declared(),
        )

    def _parameters(self) -> Parameters:
        """Return the parameters; the function is inspected once per class."""
        if self._in_class and not self._bound and self._kind is not staticmethod:
            raise ToolDefinitionError(f"Tool '{self.name}' is a method; pass an object that has it, or its bound form")
        owner = self._owner()  # the class that ``Self`` means
        known = self._known.get(owner)
        if known is None:
            from toolsemble._tools.parameters import read_parameters  # most modules with tools are only imported

            found = read_parameters(
                _check_function_name(self.name), self._function, self._names, len(self._bound), owner
            )
            known = self._known.setdefault(owner, found)
        return known

    def _find_injection(self) -> _Injection:
        """Return the positional-only parameters, and the injected ones with the functions that read their values."""
        parameters = self._parameters()
        return parameters.positional, parameters.injected

    def _owner(self) -> type | None:
        """Return the class that ``Self`` means inside a method."""
        first = self._bound[0] if self._bound else None
        return first if first is None or isinstance(first, type) else type(first)

    def __reduce__(self) -> Any:
        if self._original is not None:
            return FunctionTool.renamed, (self._original, self.name, self.description)
        # Pickled by name, like a function.
        if self._overrides:
            return _find_method, (self._bound[0], self.__name__)
        if self._bound:
            return getattr, (self._bound[0], self.__name__)
        return self.__qualname__

    def reduce_by_value(self) -> Any:
        """Return how to pickle the tool for a machine that cannot import it; NotImplemented if it can."""
        if self._is_importable():
            return NotImplemented
        function = self._function if self._kind is None else self._kind(self._function)
        injection = None if self._in_class and not self._bound else self._find_injection()
        state = {"_bound": self._bound, "_in_class": self._in_class, "_received": injection}
        return _receive_tool, (function, self.name, self.description, state)

    def _is_importable(self) -> bool:
        """Return whether another program can import this object by module and name."""
        found: Any = sys.modules.get(self.__module__)
        for name in self.__qualname__.split("."):
            found = getattr(found, name, None)
        return found is self and self.__module__ != "__main__"

    __name__: str
    __qualname__: str


def _receive_tool(function: Any, name: str, description: str, state: Mapping[str, Any]) -> FunctionTool[..., Any]:
    """Return a tool pickled by value, without its settings."""
    received: FunctionTool[..., Any] = FunctionTool(function, {}, name, description, {})
    received.__dict__.update(state)
    return received


@overload
def tool(name: Callable[P, R], /) -> FunctionTool[P, R]: ...
@overload
def tool(
    name: str | None = None,
    description: str | None = None,
    **settings: Unpack[ToolSettings],
) -> Callable[[Callable[P, R]], FunctionTool[P, R]]: ...
def tool(
    name: Any = None,
    description: str | None = None,
    **settings: Unpack[ToolSettings],
) -> Any:
    """Make a tool from a function, a method, a static or a class method, sync or async.

    The schema comes from the parameter types, and arguments are validated against them. Docstrings and ``Annotated``
    describe the parameters.

    :param name: the tool's name; default: the function's name
    :param description: what the tool does; default: the summary of the docstring
    :param settings: the settings of a tool, such as ``requires_approval``, ``timeout``, ``retries``, ``effects``,
        ``inline`` or ``strict``: see the attributes of :class:`Tool`

    >>> @tool
    ... def search(query: str, limit: int = 10) -> list[str]:
    ...     '''Search the archive.
    ...
    ...     Args:
    ...         query: What to look for.
    ...         limit: How many hits at most.
    ...     '''
    ...     return [query] * limit
    >>> search.execute('{"query": "rome", "limit": "2"}').output
    '["rome","rome"]'
    """
    names = collect_local_types(sys._getframe(1))  # noqa: SLF001 - there is no public way to get the caller's names
    if callable(name) or isinstance(name, (staticmethod, classmethod)):
        return FunctionTool(name, names, None, None, settings)
    if name is not None and not isinstance(name, str):
        advice = "; a property cannot be a tool: remove @property" if isinstance(name, property) else ""
        raise ToolDefinitionError(f"@tool takes a function, or the name of the tool as a str, not {name!r:.80}{advice}")

    def decorate(function: Any) -> FunctionTool[..., Any]:
        made: FunctionTool[..., Any] = FunctionTool(function, names, name, description, settings)
        if name is not None and not made.description and _SENTENCE_WORD.fullmatch(name):
            _warn_of_description(name, made.__name__)
        return made

    return decorate


# A name that looks like a sentence: LangChain4j takes the description as the first argument.
_SENTENCE_WORD = re.compile("[A-Z][a-z]*")


def _warn_of_description(name: str, function: str) -> None:
    from toolsemble._runtime.checks import warn_user

    warn_user(
        f"@tool({name!r}) names the tool {name!r} instead of {function!r}; if it is the description, write "
        f"@tool(description={name!r}), else add a docstring"
    )


def _check_function_name(name: str) -> str:
    """Return a valid name; the error for a sentence says how to pass a description."""
    try:
        return check_name(name)
    except ToolDefinitionError as problem:
        if len(name.split()) > 1 or name.endswith("."):
            problem.args = (f"{problem}; if it is the description, write @tool(description=...)",)
        raise


def _check_process(name: str, parameters: Parameters) -> None:
    """Raise if a tool for worker processes takes something that cannot leave this process."""
    for field, problem in (
        ("parameters", "InvocationParameters: changes made in a worker process would be lost"),
        ("deps", "ToolContext[...]: the dependencies of a run are not sent to worker processes"),
    ):
        if field in parameters.sees:
            raise ToolDefinitionError(f"Tool '{name}': isolation='process' cannot be used with {problem}")


_WITHOUT_TOOLS = frozenset(Tool.__mro__)


def method_tools(source: object) -> list[FunctionTool[..., Any]]:
    """Return the ``@tool`` methods of an object or a class, in definition order, inherited ones first."""
    kind = source if isinstance(source, type) else type(source)
    # Most tools have no tool methods, and resolving every attribute takes a hundred times as long.
    attributes = [each for base in kind.__mro__ if base not in _WITHOUT_TOOLS for each in vars(base).values()]
    # Few types can be or contain a tool; checking each attribute, or an abstract class, is slow.
    holders = {FunctionTool, staticmethod, classmethod}
    kinds = {each for each in set(map(type, attributes)) if not holders.isdisjoint(each.__mro__)}
    if not any(_is_tool(each) for each in attributes if type(each) in kinds):
        return []
    names = dict.fromkeys(name for base in reversed(kind.__mro__) for name in vars(base))
    found = (_find_attribute(kind, name) for name in names)
    return [bound for each in found if (bound := _bind(each, source, kind)) is not None]


def _is_tool(attribute: object) -> bool:
    plain = attribute.__func__ if isinstance(attribute, (staticmethod, classmethod)) else attribute
    return isinstance(plain, FunctionTool)


def _find_method(source: object, name: str) -> FunctionTool[..., Any] | None:
    kind = source if isinstance(source, type) else type(source)
    return _bind(_find_attribute(kind, name), source, kind)


def _find_attribute(kind: type, name: str) -> Any:
    """Return a class attribute; for a plain method that overrides a tool, the tool with that method."""
    attribute = inspect.getattr_static(kind, name, None)
    plain = attribute.__func__ if isinstance(attribute, (staticmethod, classmethod)) else attribute
    if not isinstance(plain, types.FunctionType):
        return attribute
    above = (vars(base).get(name) for base in kind.__mro__)
    tools = (each.__func__ if isinstance(each, (staticmethod, classmethod)) else each for each in above)
    overridden = next((each for each in tools if isinstance(each, FunctionTool)), None)
    return attribute if overridden is None else overridden.override_with(attribute)


def _bind(attribute: Any, source: object, kind: type) -> FunctionTool[..., Any] | None:
    if isinstance(attribute, FunctionTool):
        return attribute.__get__(source, kind) if attribute._kind or source is not kind else attribute.bound_to(kind)  # noqa: SLF001 - a class of this module
    if isinstance(attribute, staticmethod) and isinstance(attribute.__func__, FunctionTool):
        return attribute.__func__
    if isinstance(attribute, classmethod) and isinstance(attribute.__func__, FunctionTool):
        return attribute.__func__.bound_to(kind)
    return None
