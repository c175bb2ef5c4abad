"""Packages that only some tools and models need."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from toolsemble.errors import ToolDefinitionError


def import_extra(module: str, *, extra: str, user: str) -> ModuleType:
    """Give a module of an optional package; refuse, naming the extra that installs it, when it is not there.

    Constructors call it, so that a program learns of it while it is built, not in the middle of a call.

    >>> import_extra("json", extra="web", user="WebScraperTool").__name__
    'json'
    >>> import_extra("missing", extra="web", user="WebScraperTool")
    Traceback (most recent call last):
    ...
    toolsemble.errors.ToolDefinitionError: WebScraperTool needs the package 'missing': pip install 'toolsemble[web]'
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as problem:
        # What is missing may be something that the package itself needs.
        missing = problem.name or module
        raise ToolDefinitionError(
            f"{user} needs the package {missing!r}: pip install 'toolsemble[{extra}]'"
        ) from problem
