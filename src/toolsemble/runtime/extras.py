"""Import of optional packages (extras)."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from toolsemble.errors import ToolDefinitionError


def import_extra(module: str, *, extra: str, user: str) -> ModuleType:
    """Import a module of an optional package; if it is missing, raise an error that names the extra.

    Constructors call it, so that the error comes while the program is set up, not during a call.

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
        # The missing module may be a dependency of the package.
        missing = problem.name or module
        raise ToolDefinitionError(
            f"{user} needs the package {missing!r}: pip install 'toolsemble[{extra}]'"
        ) from problem
