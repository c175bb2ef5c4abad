"""Errors of a provider, without the keys that it repeats."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from toolsemble.errors import ModelError, ToolConfigurationError
from toolsemble.models.adapter.refusal import masked
from toolsemble.shape import describe_error

_SECRET_HEADER = re.compile("auth|key|token|secret|cookie", re.IGNORECASE)
_SCHEME = re.compile(r"(?:bearer|basic)\s+", re.IGNORECASE)


@contextmanager
def without_keys(keys: Callable[[], Iterable[Any]]) -> Iterator[None]:
    """Raise what goes wrong inside without the keys that it shows, and without what it was made of if that shows one.

    A provider may repeat a key anywhere: beside an error, inside of an answer, where a number was expected.

    :param keys: gives the keys; asked when something goes wrong, and what is no text or empty is none

    >>> with without_keys(lambda: ["s3cret"]):
    ...     raise ModelError("No such key: s3cret")
    Traceback (most recent call last):
    ...
    toolsemble.errors.ModelError: No such key: ***
    """
    try:
        yield
    except Exception as error:
        found = [key for key in keys() if isinstance(key, str) and key]
        if not _shows(error, found):
            raise
        safe = _masked(error, found)
        try:
            raise safe from None
        finally:
            safe.__context__ = None  # which has just been set, and shows the key to whoever looks


def keys_in(headers: Mapping[str, Any]) -> Iterator[str]:
    """Yield what stands in headers that carry keys, without the word in front of a key.

    >>> list(keys_in({"Authorization": "Bearer s3cret", "Accept": "text/html"}))
    ['s3cret']
    """
    for name, value in headers.items():
        if isinstance(value, str) and _SECRET_HEADER.search(name):
            yield _SCHEME.sub("", value)


def _shows(error: BaseException, keys: list[str]) -> bool:
    """Whether an exception, or one that it was made of, shows a key; also one that a traceback would leave out."""
    waiting, seen = [error], set[int]()
    while waiting:
        each = waiting.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        text = f"{each!s} {each!r} {getattr(each, '__notes__', '')}"
        if any(key in text for key in keys):
            return True
        waiting += [inner for inner in (each.__cause__, each.__context__) if inner is not None]
    return False


def _masked(error: Exception, keys: list[str]) -> Exception:
    said = masked(describe_error(error), keys)
    if isinstance(error, ToolConfigurationError):
        return ToolConfigurationError(said)
    if isinstance(error, ModelError):
        return ModelError(said, retryable=error.retryable, retry_after=error.retry_after)
    return ModelError(f"{said} ({type(error).__name__})")
