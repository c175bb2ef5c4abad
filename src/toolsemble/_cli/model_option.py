"""Find the model for the option ``--model``."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from toolsemble._cli.screen import Screen
from toolsemble._cli.targets import load_object
from toolsemble._runtime.text import escape_line
from toolsemble._vocabulary.errors import ToolConfigurationError
from toolsemble.agent._agent import Agent
from toolsemble.models._chat import ChatModel
from toolsemble.models._registry import find_module, model_of


def find_agent(name: str | None) -> Agent | None:
    """Return the agent at a module or a file; None if the name is that of something else.

    >>> find_agent("openai:gpt-5-mini") is None
    True
    """
    thing = load_object(name) if name is not None and _is_object_path(name) else None
    return thing if isinstance(thing, Agent) else None


def find_model(name: str | None, screen: Screen) -> ChatModel:
    """Return the model of a name, module or file; the default is the first that is available.

    Naming a module or a file runs its code.
    """
    thing: Any = load_object(name) if name is not None and _is_object_path(name) else None
    if isinstance(thing, ModuleType):
        place = f"{name}:NAME" if f"{name}".endswith(".py") else f"{name}.NAME"
        raise ToolConfigurationError(f"{name!r} is a module, not a model: write {place} for a model in it")
    if thing is not None:
        return model_of(thing)
    with _show_log(screen):
        return model_of(name)


def _is_object_path(name: str) -> bool:
    """Return whether it is ``module:attribute`` or ``path/to/file.py:attribute``, not a provider's model."""
    first, _, rest = name.partition(":")
    return (bool(rest) or first.endswith(".py")) and find_module(first) is None


@contextmanager
def _show_log(screen: Screen) -> Iterator[None]:
    """Show the log of ``toolsemble.models``, which says which model was chosen and why."""
    logger = logging.getLogger("toolsemble.models")
    handler, level = _ScreenHandler(screen), logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.setLevel(level)
        logger.removeHandler(handler)


class _ScreenHandler(logging.Handler):
    """A logging handler that writes to the screen."""

    def __init__(self, screen: Screen) -> None:
        super().__init__(logging.INFO)
        self._screen = screen

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record."""
        self._screen.report(self._screen.err.paint("dim", escape_line(record.getMessage())))
