"""Import of the frameworks, none of which is a dependency of this library."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from toolsemble._vocabulary.errors import ToolDefinitionError


def import_framework(module: str, *, install: str, user: str) -> Any:
    """Import a module of a framework; if it is missing, raise an error that says what to install.

    :param install: the distribution that has the module
    :param user: the module of this package that needs it

    >>> import_framework("missing.tools", install="missing-core", user="missing")
    Traceback (most recent call last):
    ...
    toolsemble.ToolDefinitionError: toolsemble.interop.missing needs the package 'missing': \
pip install missing-core
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as problem:
        missing = problem.name or module
        raise ToolDefinitionError(
            f"toolsemble.interop.{user} needs the package {missing!r}: pip install {install}"
        ) from problem
