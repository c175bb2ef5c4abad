"""Which model is meant by what a person writes."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from toolsemble.cli.screen import Screen
from toolsemble.cli.targets import thing_at
from toolsemble.cli.visible import one_line
from toolsemble.errors import ToolConfigurationError
from toolsemble.models.chat import ChatModel
from toolsemble.models.registry import PROVIDERS, model_of


def model_named(name: str | None, screen: Screen) -> ChatModel:
    """Give the model of a name: a provider's, or one that a module or a file holds; without one, what is there.

    Naming a module or a file runs its code.
    """
    thing: Any = thing_at(name) if name is not None and _is_place(name) else None
    if isinstance(thing, ModuleType):
        place = f"{name}:NAME" if f"{name}".endswith(".py") else f"{name}.NAME"
        raise ToolConfigurationError(f"{name!r} is a module and no model: write {place} for a model in it")
    if thing is not None:
        return model_of(thing)
    with _heard(screen):
        return model_of(name)


def _is_place(name: str) -> bool:
    """Whether it is ``module:attribute`` or ``path/to/file.py:attribute``; the names of providers come first."""
    first, _, rest = name.partition(":")
    return first not in PROVIDERS and (bool(rest) or first.endswith(".py"))


@contextmanager
def _heard(screen: Screen) -> Iterator[None]:
    """Have the person told what the choice of a model says in the log: which one it took, and why."""
    logger = logging.getLogger("toolsemble.models")
    handler, level = _Told(screen), logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.setLevel(level)
        logger.removeHandler(handler)


class _Told(logging.Handler):
    """Tells what is logged to the person."""

    def __init__(self, screen: Screen) -> None:
        super().__init__(logging.INFO)
        self._screen = screen

    def emit(self, record: logging.LogRecord) -> None:
        """Tell one record."""
        self._screen.tell(self._screen.err.painted("dim", one_line(record.getMessage())))
