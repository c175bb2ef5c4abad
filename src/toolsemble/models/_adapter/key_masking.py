"""Masking of API keys in the errors of a provider."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from toolsemble._runtime.text import describe_error
from toolsemble._vocabulary.errors import ModelError, ToolConfigurationError
from toolsemble.models._adapter.errors import mask_keys

_SECRET_HEADER = re.compile("auth|key|token|secret|cookie", re.IGNORECASE)
_SCHEME = re.compile(r"(?:bearer|basic)\s+", re.IGNORECASE)


@contextmanager
def mask_keys_in_errors(keys: Callable[[], Iterable[Any]]) -> Iterator[None]:
    """Mask keys in exceptions raised inside, and drop the cause and context of an exception if they contain one.

    A provider may repeat a key anywhere: in an error, in an answer, in place of a number.

    :param keys: returns the keys; called when an exception is raised; values that are not a str, or empty, are ignored

    >>> with mask_keys_in_errors(lambda: ["s3cret"]):
    ...     raise ModelError("No such key: s3cret")
    Traceback (most recent call last):
    ...
    toolsemble.ModelError: No such key: ***
    """
    try:
        yield
    except Exception as error:
        found = [key for key in keys() if isinstance(key, str) and key]
        if not _contains_key(error, found):
            raise
        safe = _mask(error, found)
        try:
            raise safe from None
        finally:
            safe.__context__ = None  # set by the raise statement, and contains the key


def find_keys(headers: Mapping[str, Any]) -> Iterator[str]:
    """Yield the values of headers that carry keys, without an authentication scheme.

    >>> list(find_keys({"Authorization": "Bearer s3cret", "Accept": "text/html"}))
    ['s3cret']
    """
    for name, value in headers.items():
        if isinstance(value, str) and _SECRET_HEADER.search(name):
            yield _SCHEME.sub("", value)


def _contains_key(error: BaseException, keys: list[str]) -> bool:
    """Return whether an exception, or its causes and contexts (also suppressed ones), contain a key."""
    waiting, seen = [error], set[int]()
    while waiting:
        each = waiting.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        text = f"{each!s} {each!r} {getattr(each, '__notes__', '')}"
        if mask_keys(text, keys) != text:
            return True
        waiting += [inner for inner in (each.__cause__, each.__context__) if inner is not None]
    return False


def _mask(error: Exception, keys: list[str]) -> Exception:
    message = mask_keys(describe_error(error), keys)
    if isinstance(error, ToolConfigurationError):
        return ToolConfigurationError(message)
    if isinstance(error, ModelError):
        return ModelError(message, retryable=error.retryable, retry_after=error.retry_after)
    return ModelError(f"{message} ({type(error).__name__})")
