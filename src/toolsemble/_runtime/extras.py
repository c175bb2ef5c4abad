"""Import of optional packages (extras), and the command that installs them."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import Any

from toolsemble._vocabulary.errors import ToolDefinitionError

_NAME = "toolsemble"


def import_extra(module: str, *, extra: str, user: str) -> ModuleType:
    """Import a module of an optional package; if it is missing, raise an error with the install command.

    Constructors call it, so that the error comes at startup, not during a call.

    >>> import_extra("missing", extra="web", user="WebScraperTool")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    toolsemble.ToolDefinitionError: WebScraperTool needs the package 'missing': pip install ...[web]...
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as problem:
        # The missing module may be a dependency of the package.
        missing = problem.name or module
        raise ToolDefinitionError(f"{user} needs the package {missing!r}: {install_command(extra)}") from problem


def install_command(extra: str) -> str:
    """Return the command that installs an extra from where this library was installed: a folder, a URL or the index.

    >>> print(install_command("web"))  # doctest: +ELLIPSIS
    pip install ...[web]...
    """
    source = _read_direct_url()
    url = source.get("url")
    if not isinstance(url, str):
        return f"pip install '{_NAME}[{extra}]'"
    if "dir_info" in source:
        return _install_folder(url, extra, editable=source["dir_info"].get("editable") is True)
    vcs = source.get("vcs_info", {})
    # Without the commit, because the latest commit's extras will do.
    revision = f"@{vcs['requested_revision']}" if vcs.get("requested_revision") else ""
    address = f"{vcs['vcs']}+{url}{revision}" if vcs.get("vcs") else url
    return f"pip install {_quote(f'{_NAME}[{extra}] @ {address}')}"


def _install_folder(url: str, extra: str, *, editable: bool) -> str:
    from urllib.parse import urlsplit
    from urllib.request import url2pathname

    folder = url2pathname(urlsplit(url).path)
    return f"pip install {'-e ' if editable else ''}{_quote(f'{folder}[{extra}]')}"


def _quote(requirement: str) -> str:
    """Return a requirement in quotes: brackets and blanks are special to a shell."""
    return f"'{requirement}'" if "'" not in requirement else f'"{requirement}"'


def _read_direct_url() -> dict[str, Any]:
    """Return pip's record of where the library was installed from; empty for an index, or if unknown."""
    import json
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        found = json.loads(distribution(_NAME).read_text("direct_url.json") or "{}")
    except (PackageNotFoundError, OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
