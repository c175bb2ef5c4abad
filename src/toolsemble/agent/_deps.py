"""The dependencies of runs: their source, their type, and the context managers that live as long as a run."""

from __future__ import annotations

import inspect
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, contextmanager
from contextvars import copy_context
from functools import partial
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    NamedTuple,
    TypeAlias,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from toolsemble._engine.work.wait import RunInThread
from toolsemble._runtime.event_loops import is_async, is_awaitable
from toolsemble._runtime.text import describe_error, describe_type, with_article
from toolsemble._vocabulary import errors

LOGGER = logging.getLogger("toolsemble.agent")
T = TypeVar("T")
LeaveDeps: TypeAlias = Callable[[], Awaitable[None]]
"""Exits the context manager of a run's deps, as at the end of the run; idempotent."""


@contextmanager
def _manage() -> Iterator[None]:
    yield


@asynccontextmanager
async def _manage_async() -> AsyncIterator[None]:
    yield


_Manager, _AsyncManager = type(_manage()), type(_manage_async())
_DECORATED = {_manage.__code__, _manage_async.__code__}  # shared by all functions that contextlib has decorated


class DepsSource(NamedTuple):
    """The source of the deps for runs without their own.

    >>> DepsSource(3, None, int).check("three")
    Traceback (most recent call last):
    ...
    toolsemble.ToolConfigurationError: The deps of this agent must be an int, not a str
    """

    value: Any = None
    """The deps of all runs; None: no deps, or made per run."""
    make: Callable[[Any], Any] | None = None
    """Makes the deps of one run from its view; None: nothing is made."""
    kind: Any = None
    """The type of the deps; None: unknown."""

    @property
    def is_empty(self) -> bool:
        """Whether the agent has no deps of its own."""
        return self.value is None and self.make is None

    def check(self, deps: object) -> None:
        """Raise :class:`ToolConfigurationError` if deps have the wrong type; the message does not show their value."""
        if self.kind is not None and is_instance(deps, self.kind) is False:
            given = "None" if deps is None else with_article(type(deps).__name__)
            raise errors.ToolConfigurationError(
                f"The deps of this agent must be {with_article(describe_type(self.kind))}, not {given}"
            )


class DepsMaker:
    """A function, or a context manager, that makes the deps of a run, passed in place of the deps themselves."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        _check_function("deps", function)
        self.function = function


def read_deps(deps: Any, make_deps: Any, deps_type: Any) -> DepsSource:
    """Return the source of an agent's deps; raise if the settings are not valid.

    >>> read_deps(None, None, None).is_empty
    True
    """
    if deps_type is not None:
        _check_type(deps_type)
    if make_deps is None:
        source = DepsSource(deps, None, deps_type)
        if deps is not None:
            source.check(deps)
        return source
    if deps is not None:
        raise errors.ToolDefinitionError("An Agent takes deps or make_deps, not both")
    _check_function("Agent make_deps", make_deps)
    return DepsSource(None, make_deps, find_deps_type(make_deps) if deps_type is None else deps_type)


def _check_type(kind: object) -> None:
    """Raise unless this is a class or a ``typing`` type; a value is not shown, since it may be the deps."""
    if not isinstance(kind, type) and type(kind).__module__ not in ("types", "typing", "typing_extensions"):
        raise errors.ToolDefinitionError(f"Agent deps_type must be a type, not {with_article(type(kind).__name__)}")


def _check_function(what: str, function: object) -> None:
    if isinstance(function, (_Manager, _AsyncManager)):  # callable, as contextlib's context managers are decorators
        raise errors.ToolDefinitionError(
            f"{what} must be a function of a RunView, not the context manager that it returns"
        )
    if not callable(function):
        raise errors.ToolDefinitionError(f"{what} must be a function of a RunView, not {function!r:.80}")
    try:
        inspect.signature(function).bind(None)
    except TypeError:
        raise errors.ToolDefinitionError(
            f"{what}: {function!r:.80} must take one argument, the RunView of its run"
        ) from None
    except ValueError:
        return  # unknown signature


def find_deps_type(make: Any) -> Any:
    """Return the type of the deps that a function makes, from its return annotation; None if unknown.

    >>> def make(run) -> int: ...
    >>> find_deps_type(make)
    <class 'int'>
    """
    if isinstance(make, partial):
        return find_deps_type(make.func)
    if isinstance(make, type):
        return make
    try:
        found = get_type_hints(make if inspect.isroutine(make) else type(make).__call__).get("return")
    except Exception:  # names in annotations that only type checkers know
        return None
    if getattr(make, "__code__", None) in _DECORATED:
        return get_args(found)[0] if get_args(found) else None  # what its generator yields
    if get_origin(found) in (Awaitable, Coroutine):
        return get_args(found)[-1]
    managers = (AbstractContextManager, AbstractAsyncContextManager)
    return None if (get_origin(found) or found) in managers else found


def is_instance(value: object, kind: Any) -> bool | None:
    """Return whether a value is of a type; None if it cannot be checked, or if every value is.

    >>> is_instance(3, int | None), is_instance({}, dict[str, int]), is_instance(3, str), is_instance(3, object)
    (True, True, False, None)
    """
    if kind in (Any, object):
        return None
    if get_origin(kind) in (Union, UnionType):
        found = [is_instance(value, each) for each in get_args(kind)]
        return True if True in found else None if None in found else False
    if get_origin(kind) is Annotated or hasattr(kind, "__supertype__"):
        return is_instance(value, getattr(kind, "__supertype__", None) or get_args(kind)[0])
    base: Any = Mapping if is_typeddict(kind) else NoneType if kind is None else get_origin(kind) or kind
    try:
        return isinstance(value, base)
    except TypeError:
        return None  # a protocol, for example


async def use_deps(source: DepsSource, view: object, use: Callable[[Any, LeaveDeps], Awaitable[T]]) -> T:
    """Make the deps of a run, and return the result of ``use`` with them.

    The context manager is exited at the end, or earlier by ``use``, with the exception that ends the run. A parked or
    interrupted run resumes later, so its context manager exits without an exception. If both fail, the run's exception
    is raised.
    """
    made = _MadeDeps(source)
    try:
        result = await use(await made.enter(view), partial(made.leave, None))
    except BaseException as error:
        goes_on = isinstance(error, (errors.CallPausedError, errors.RunParkedError, errors.RunInterruptedError))
        try:
            await made.leave(None if goes_on else error)
        except Exception as problem:  # the error of the run says more
            report_late_failure(problem)
        raise
    await made.leave(None)
    return result


def report_late_failure(problem: Exception) -> None:
    """Log that exiting the deps failed at the end of a run that failed, or that resumes later."""
    LOGGER.warning("make_deps failed at the end of a run: %s", describe_error(problem))


class _MadeDeps:
    """The deps of one run.

    Sync code runs in worker threads, so the event loop is not blocked. A context manager is entered and exited in one
    context, so that its context variables can be reset; the run does not see them.
    """

    def __init__(self, source: DepsSource) -> None:
        self._source = source
        self._context = copy_context()
        self._entered: Any = None

    async def enter(self, view: object) -> Any:
        """Return the deps; raise :class:`ToolConfigurationError` if they have the wrong type."""
        make: Any = self._source.make
        is_quick = is_async(make) or getattr(make, "__code__", None) in _DECORATED
        made = make(view) if is_quick else await self._call(partial(make, view))
        if not self._is_value(made) and is_awaitable(made):
            made = await made
        if not self._is_value(made):
            made = await self._enter(made)
        self._source.check(made)
        return made

    async def leave(self, error: BaseException | None) -> None:
        """Exit the context manager, if one was entered and not exited."""
        manager, self._entered = self._entered, None
        raised = (None, None, None) if error is None else (type(error), error, error.__traceback__)
        if isinstance(manager, _AsyncManager):
            await manager.__aexit__(*raised)
        elif manager is not None:
            await self._call(partial(manager.__exit__, *raised))

    async def _enter(self, made: Any) -> Any:
        if isinstance(made, _AsyncManager):
            value: Any = await made.__aenter__()  # type: ignore[func-returns-value]  # any type; this function made one
            self._entered = made
            return value
        return await self._call(partial(self._enter_sync, made)) if isinstance(made, _Manager) else made

    def _enter_sync(self, manager: Any) -> Any:
        value = manager.__enter__()
        self._entered = manager  # here: the task may be cancelled before it gets the value
        return value

    async def _call(self, function: Callable[[], Any]) -> Any:
        return await RunInThread(partial(self._context.run, function)).ado()

    def _is_value(self, made: object) -> bool:
        """Return whether the returned object has the deps type, and is used as it is."""
        return self._source.kind is not None and is_instance(made, self._source.kind) is True
