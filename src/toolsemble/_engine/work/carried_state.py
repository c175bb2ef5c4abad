"""State that is sent to a worker process with a job, because context variables cannot be pickled."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, TypeAlias

from toolsemble._engine.context import LOGGER
from toolsemble._runtime.observers.watchers import ScopedWatcher, watchers
from toolsemble._schema.masking.secrets import add_secrets, known_secrets, start_masking

Carried: TypeAlias = tuple[Callable[[], Any], ...]
"""Picklable functions that the worker process calls before the body runs."""


def capture_state() -> Carried:
    """Return the state of this context for another process: secrets to mask, and the state of companion watchers.

    >>> capture_state()
    ()
    """
    secrets = known_secrets()
    state: list[Callable[[], Any] | None] = [partial(_restore_secrets, secrets)] if secrets else []
    state += [each.pack() for each in watchers() if isinstance(each, ScopedWatcher)]
    return tuple(each for each in state if each is not None)


def restore_state(state: Iterable[Callable[[], Any]]) -> None:
    """Restore captured state in the context of a body; errors are logged, not raised.

    >>> restore_state([partial(print, "here")])
    here
    """
    for each in state:
        try:
            each()
        except Exception:  # an incomplete trace is better than a failed call
            LOGGER.warning("State could not be restored in a worker process", exc_info=True)


def _restore_secrets(secrets: tuple[str, ...]) -> None:
    start_masking()
    add_secrets(secrets)
