"""Load an OpenAPI document: from a dict, JSON or YAML text, a file, or a URL."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from toolsemble._runtime.extras import import_extra
from toolsemble._runtime.text import describe_error
from toolsemble._vocabulary.errors import ToolDefinitionError

_URL = re.compile(r"https?://\S+", re.IGNORECASE)
_LONGEST_PATH = 4096


def load_document(source: Any, fetch: Callable[[str], str]) -> tuple[Mapping[str, Any], str]:
    """Return a document of version 3, and the URL that it came from, empty if it came from elsewhere.

    :param source: a dict, JSON or YAML text, the path of a file, or a URL
    :param fetch: returns the text at a URL

    >>> load_document('{"openapi": "3.1.0", "paths": {}}', str)
    ({'openapi': '3.1.0', 'paths': {}}, '')
    """
    url = source.strip() if isinstance(source, str) and _URL.fullmatch(source.strip()) else ""
    if url:
        parsed = _parse(fetch(url))
    elif isinstance(source, os.PathLike) or (isinstance(source, str) and _is_path(source)):
        parsed = _parse(_read_file(source))
    else:
        parsed = _parse(source) if isinstance(source, str) else source
    if not isinstance(parsed, Mapping) or not str(parsed.get("openapi", "")).startswith("3."):
        raise ToolDefinitionError("OpenAPI: the document must have version 3 ('openapi': '3.…')")
    if not isinstance(parsed.get("paths"), Mapping):
        raise ToolDefinitionError("OpenAPI: the document has no paths")
    return parsed, url


def _is_path(text: str) -> bool:
    """Return whether a text is the path of a file: one line that is neither JSON nor a YAML mapping."""
    plain = text.strip()
    return 0 < len(plain) <= _LONGEST_PATH and "\n" not in plain and plain[0] not in '{["' and ": " not in plain


def _read_file(path: str | os.PathLike[str]) -> str:
    try:
        return Path(path).read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as problem:
        raise ToolDefinitionError(
            f"OpenAPI: {os.fspath(path)!r:.200} is not JSON, YAML or a URL, and cannot be read as a file: "
            f"{describe_error(problem)}"
        ) from None


def _parse(text: str) -> Any:
    """Return the value of JSON text, or else of YAML text."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as problem:
        if text.lstrip()[:1] in {"{", "[", '"', ""}:
            raise ToolDefinitionError(f"OpenAPI: the document is not JSON: {problem}") from None
    return _parse_yaml(text)


def _parse_yaml(text: str) -> Any:
    yaml = import_extra("yaml", extra="yaml", user="An OpenAPI document in YAML")
    try:
        return yaml.load(text, _make_loader(yaml))
    except (yaml.YAMLError, ValueError, RecursionError) as problem:
        reason = " ".join(str(problem).split())[:300] or type(problem).__name__
        raise ToolDefinitionError(f"OpenAPI: the document is neither JSON nor YAML: {reason}") from None


def _make_loader(yaml: Any) -> Any:
    """Return a loader that reads YAML as JSON has it: NO is not false, and a date is a text."""

    class Loader(yaml.SafeLoader):  # type: ignore[misc]  # a module that is loaded when it is needed
        yaml_implicit_resolvers = {  # noqa: RUF012 - as in the base class
            first: [(tag, pattern) for tag, pattern in known if not tag.endswith((":timestamp", ":bool"))]
            for first, known in yaml.SafeLoader.yaml_implicit_resolvers.items()
        }

    Loader.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile(r"^(?:true|false)$"), list("tf"))
    return Loader
