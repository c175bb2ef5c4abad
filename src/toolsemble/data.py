"""Frozen data: what :func:`dataclasses.dataclass` makes of a class, made in a third of the time.

That one compiles six functions for each class, which was a third of what the modules of an agent took to import. Here
only ``__init__`` is compiled; it fills the slots directly, in two thirds of the time that frozen data takes otherwise.
The other methods are the same for all classes.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass  # noqa: PLC0414 - which is what type checkers know
else:

    def dataclass(*, frozen: bool, slots: bool, init: bool = True, repr: bool = True, eq: bool = True) -> Any:
        """Give a decorator that makes a class frozen data with slots; what the class defines itself stays.

        >>> @dataclass(frozen=True, slots=True)
        ... class Place:
        ...     city: str
        ...     country: str = "Italy"
        >>> Place("Rome"), Place("Rome") == Place("Rome", "Italy")
        (Place(city='Rome', country='Italy'), True)
        >>> Place("Rome").city = "Bonn"
        Traceback (most recent call last):
        ...
        dataclasses.FrozenInstanceError: cannot assign to field 'city'
        """
        if not (frozen and slots):
            raise TypeError("Data is frozen and has slots; for anything else there is dataclasses.dataclass")
        return lambda cls: _made(cls, init=init, repr=repr, eq=eq)


class _Factory:
    """Stands for a default that is made each time."""

    def __repr__(self) -> str:
        return "<factory>"


_FACTORY = _Factory()


def _made(cls: type, *, init: bool, repr: bool, eq: bool) -> type:
    own = set(vars(cls))
    if "__eq__" in own and vars(cls)["__hash__"] is None:
        own.remove("__hash__")  # which Python says of every class that compares
    with _thawed(cls):
        made: Any = dataclasses.dataclass(cls, init=False, repr=False, eq=False, slots=True)
    fields = dataclasses.fields(made)
    names = [field.name for field in fields]
    methods: dict[str, Any] = {**_guards(made, names), **_states()}
    if init:
        methods["__init__"] = _init(made, fields)
    if repr:
        methods["__repr__"] = _repr([field.name for field in fields if field.repr])
    if eq:
        methods["__eq__"] = _eq([field.name for field in fields if field.compare])
        counted = [field.name for field in fields if (field.compare if field.hash is None else field.hash)]
        methods["__hash__"] = _hash(counted)
    for name in methods.keys() - own:
        method = methods[name]
        method.__name__, method.__qualname__, method.__module__ = name, f"{cls.__qualname__}.{name}", cls.__module__
        setattr(made, name, method)
    for name, value in {"init": init, "repr": repr, "eq": eq, "frozen": True}.items():
        setattr(made.__dataclass_params__, name, value)
    return made  # type: ignore[no-any-return]  # a class, which dataclass() types as what it makes


@contextmanager
def _thawed(cls: type) -> Iterator[None]:
    """Let a class inherit from frozen data, which a class that is not frozen must not, and this one is not yet."""
    inherited = [vars(base).get("__dataclass_params__") for base in cls.__mro__[1:]]
    frozen = [params for params in inherited if params is not None and params.frozen]
    for params in frozen:
        params.frozen = False
    try:
        yield
    finally:
        for params in frozen:
            params.frozen = True


def _init(cls: type, fields: Sequence[dataclasses.Field[Any]]) -> Callable[..., None]:
    given = [field for field in fields if field.init]
    places, names = ([_parameter(field) for field in given if bool(field.kw_only) is named] for named in (False, True))
    parameters = ["self", *places, *(["*", *names] if names else [])]
    body = [line for field in fields if (line := _line(field))]
    if hasattr(cls, "__post_init__"):
        body.append("self.__post_init__()")
    values: dict[str, Any] = {"_factory": _FACTORY}
    for field in fields:
        values[f"_set_{field.name}"] = getattr(cls, field.name).__set__
        values[f"_default_{field.name}"] = field.default
        values[f"_make_{field.name}"] = field.default_factory
    text = f"def create({', '.join(values)}):\n def init({', '.join(parameters)}):\n  "
    text += "\n  ".join(body or ["pass"]) + "\n return init"
    made: dict[str, Any] = {}
    exec(text, vars(sys.modules[cls.__module__]), made)  # noqa: S102 - as dataclasses do; it is made of names of fields
    init: Callable[..., None] = made["create"](**values)
    init.__annotations__ = {**{field.name: field.type for field in given}, "return": None}
    return init


def _parameter(field: dataclasses.Field[Any]) -> str:
    if field.default is not dataclasses.MISSING:
        return f"{field.name}=_default_{field.name}"
    return field.name if field.default_factory is dataclasses.MISSING else f"{field.name}=_factory"


def _line(field: dataclasses.Field[Any]) -> str:
    """Give the statement that fills a slot; nothing for one that is left to ``__post_init__``."""
    name, makes = field.name, field.default_factory is not dataclasses.MISSING
    if field.init:
        value = f"_make_{name}() if {name} is _factory else {name}" if makes else name
    elif makes:
        value = f"_make_{name}()"
    elif field.default is not dataclasses.MISSING:
        value = f"_default_{name}"
    else:
        return ""
    return f"_set_{name}(self, {value})"


def _repr(names: Sequence[str]) -> Callable[[Any], str]:
    def shown(self: Any) -> str:
        return f"{type(self).__qualname__}({', '.join([f'{name}={getattr(self, name)!r}' for name in names])})"

    return recursive_repr()(shown)


def _eq(names: Sequence[str]) -> Callable[[Any, object], Any]:
    values = _values(names)

    def equal(self: Any, other: object) -> Any:
        return values(self) == values(other) if type(other) is type(self) else NotImplemented

    return equal


def _hash(names: Sequence[str]) -> Callable[[Any], int]:
    values = _values(names)
    return lambda self: hash(values(self))


def _values(names: Sequence[str]) -> Callable[[Any], Any]:
    """Give what reads some attributes at once, as a tuple."""
    read = attrgetter(*names) if names else lambda _: ()
    return read if len(names) != 1 else lambda each: (read(each),)


def _guards(cls: Any, names: Sequence[str]) -> dict[str, Callable[..., None]]:
    """Give what refuses changes; a class that inherits from this one may have attributes of another kind."""

    def assigned(self: Any, name: str, value: Any) -> None:
        if type(self) is cls or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
        super(cls, self).__setattr__(name, value)

    def deleted(self: Any, name: str) -> None:
        if type(self) is cls or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
        super(cls, self).__delattr__(name)

    return {"__setattr__": assigned, "__delattr__": deleted}


def _states() -> dict[str, Callable[..., Any]]:
    """Give how objects are copied and pickled: the usual way would have to change them.

    The fields are those of the object: a class that inherits from this one may have more.
    """

    def given(self: Any) -> list[Any]:
        return [getattr(self, field.name) for field in dataclasses.fields(self)]

    def taken(self: Any, state: Sequence[Any]) -> None:
        for field, value in zip(dataclasses.fields(self), state, strict=True):
            object.__setattr__(self, field.name, value)

    return {"__getstate__": given, "__setstate__": taken}
