"""Texts and schemas of a server, cleaned: without invisible characters, bounded, and checkable."""

from __future__ import annotations

import re
from typing import Any

from toolsemble._runtime.text import quote_text, without_invisible
from toolsemble._schema.secret import PASSWORD
from toolsemble._schema.wellformed import DRAFTS, FORMATS, KEYWORDS, NAMED_SCHEMAS, ONE_SCHEMA, SCHEMA_LISTS
from toolsemble._vocabulary.errors import ToolDefinitionError

MAX_DESCRIPTION = 4000
"""Characters of the description of a tool."""
MAX_TITLE = 200
"""Characters of a title."""
_MAX_PARAMETER = 1000
_MAX_FIXED = 4000
_DEEPEST = 50
_ODD_SPACE = re.compile(r"[^\S\n\t ]")
_CONTROL_SPACE = re.compile("[\r\v\f\x1c-\x1f\x85\u2028\u2029]")
_SAMPLES = ("default", "examples", "example")
_TEXTS = {"title": MAX_TITLE, "description": _MAX_PARAMETER}


def clean_text(text: object, limit: int) -> str:
    r"""Return a text without invisible characters, of at most ``limit`` characters; "" if it is not a str.

    >>> clean_text("Reads\u200b a file\x1b[2J", 100), clean_text("abcdef", 4)
    ('Reads a file[2J', 'abc…')
    """
    if not isinstance(text, str):
        return ""
    # A bound before cleaning as well: a server may send megabytes.
    cleaned = _ODD_SPACE.sub(" ", without_invisible(text[: 4 * limit])).strip()
    return cleaned if len(cleaned) <= limit else f"{cleaned[: limit - 1]}…"


def clean_line(text: object, limit: int) -> str:
    r"""Return a cleaned text on one line.

    >>> clean_line("notes\n\nof  Monday", 100)
    'notes of Monday'
    """
    return " ".join(clean_text(text, limit).split())


def clean_schema(schema: Any) -> dict[str, Any]:
    """Return a copy of a server's schema with cleaned texts, without what cannot be checked here.

    The server checks its keywords itself; a format that is not checked here moves into the description. Raise
    ToolDefinitionError for a schema that is too deep, or that has invisible characters, or very long texts, where
    cleaning would change its meaning: in names, patterns, and values that a model must repeat.

    >>> clean_schema({"properties": {"id": {"type": "integer", "format": "int64"}}})
    {'properties': {'id': {'type': 'integer', 'description': 'Format: int64'}}}
    """
    if not isinstance(schema, dict):
        raise ToolDefinitionError(f"the schema must be an object, not {type(schema).__name__}")
    cleaned: dict[str, Any] = _clean_node(schema, 0)
    _check_visible(cleaned)
    return cleaned


def _clean_node(node: Any, depth: int) -> Any:
    if depth > _DEEPEST:
        raise ToolDefinitionError(f"the schema is nested deeper than {_DEEPEST} levels")
    if not isinstance(node, dict):
        return node
    cleaned: dict[str, Any] = {}
    for key, value in node.items():
        if key == "$comment" or (key not in KEYWORDS and not key.startswith("x-")):
            continue
        cleaned[key] = _clean_value(key, value, depth + 1)
    if cleaned.get("$schema") is not None and str(cleaned["$schema"]).rstrip("#") not in DRAFTS:
        del cleaned["$schema"]
    return _move_format(cleaned)


def _clean_value(key: str, value: Any, depth: int) -> Any:
    if key in _TEXTS:
        return clean_text(value, _TEXTS[key])
    if key in _SAMPLES or key.startswith("x-"):
        return _clean_sample(value)
    if key in NAMED_SCHEMAS and isinstance(value, dict):
        return {name: _clean_node(each, depth) for name, each in value.items()}
    if key in SCHEMA_LISTS and isinstance(value, list):
        return [_clean_node(each, depth) for each in value]
    return _clean_node(value, depth) if key in ONE_SCHEMA else value


def _move_format(node: dict[str, Any]) -> dict[str, Any]:
    """Return a schema with a format that is not checked here in its description."""
    form = node.get("format")
    if form is None or form == PASSWORD or form in FORMATS:
        return node
    rest = {key: value for key, value in node.items() if key != "format"}
    texts = (rest.get("description"), f"Format: {clean_text(form, MAX_TITLE)}")
    return {**rest, "description": ". ".join(filter(None, texts))}


def _clean_sample(value: Any) -> Any:
    """Return an example or a default with cleaned texts; these are not part of what is checked."""
    if isinstance(value, str):
        return clean_text(value, _MAX_PARAMETER)
    if isinstance(value, list):
        return [_clean_sample(each) for each in value]
    if isinstance(value, dict):
        return {clean_text(key, MAX_TITLE): _clean_sample(each) for key, each in value.items()}
    return value


def _check_visible(value: Any) -> None:
    """Raise for a text, at any place, that a model would be shown with invisible characters, or at any length."""
    waiting = [value]
    while waiting:
        part = waiting.pop()
        if isinstance(part, dict):
            waiting += (*part, *part.values())
        elif isinstance(part, list):
            waiting += part
        elif isinstance(part, str):
            _check_text(part)


def _check_text(text: str) -> None:
    if len(text) > _MAX_FIXED:
        raise ToolDefinitionError(f"{quote_text(text, 80)} has more than {_MAX_FIXED} characters")
    if without_invisible(text) != text or _CONTROL_SPACE.search(text):
        raise ToolDefinitionError(f"{quote_text(text, 80)} has invisible characters")
