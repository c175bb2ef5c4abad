"""Errors of a provider's package, raised as errors of this library."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from toolsemble._vocabulary.errors import ToolsembleError
from toolsemble.models._adapter.errors import unreadable_error
from toolsemble.models._adapter.key_masking import mask_keys_in_errors
from toolsemble.models._reply_limit import find_too_long


@contextmanager
def translate_errors(
    provider: str, keys: Callable[[], Iterable[Any]], translate: Callable[[Any, list[str]], Exception | None]
) -> Iterator[None]:
    """Raise the errors of a package as errors of this library, with keys masked.

    :param keys: returns the keys; called when an exception is raised
    :param translate: returns the error for an exception and the keys; None if it is not one of the package

    >>> with translate_errors("Toy", lambda: ["s3cret"], lambda error, keys: None):
    ...     json.loads("s3cret")
    Traceback (most recent call last):
    ...
    toolsemble.ModelError: Toy's answer cannot be read: Expecting value: line 1 column 1 (char 0)
    """
    with mask_keys_in_errors(keys):
        try:
            yield
        except ToolsembleError:
            raise
        except Exception as error:
            translated = find_too_long(error) or translate(error, [key for key in keys() if isinstance(key, str)])
            if translated is None and isinstance(error, (json.JSONDecodeError, UnicodeDecodeError, RecursionError)):
                translated = unreadable_error(provider, error)
            if translated is None:
                raise
            raise translated from error
