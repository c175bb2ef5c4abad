"""Parse JSON text that a model wrapped or misspelled; truncated text is rejected."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from toolsemble._schema.number import MOST_DIGITS, LongNumberError

# An unterminated string takes the rest: searching for its end from every quote would be quadratic.
_TOKEN = re.compile(r'"(?:\\.|[^"\\])*+(?:"|\\?\Z)|\'(?:\\.|[^\'\\])*+(?:\'|\\?\Z)|\b(?:True|False|None)\b', re.DOTALL)
_PYTHON = {"True": "true", "False": "false", "None": "null"}
_CONTROL = str.maketrans({"\n": "\\n", "\r": "\\r", "\t": "\\t"})
_LONG_NUMBER = re.compile(f"[0-9]{{{MOST_DIGITS + 1}}}")
_FENCED = re.compile(r"```[A-Za-z0-9]{0,20}\s(.*)```", re.DOTALL)
_DEEPEST = 200
_MOST_QUOTES = 50_000  # respelling more strings would take too long


class CutOffError(ValueError):
    """The text is truncated; the missing part cannot be guessed."""


def parse_lenient(text: str, read: Callable[[str], Any] | None = None, *, words: bool = True) -> Any:
    r"""Return the value of text that is nearly JSON; raise :class:`CutOffError` if its end is missing.

    The content of a Markdown fence, or the object inside other text, is passed to ``read`` first, if given. Without
    ``words``, only a fence may surround the JSON.

    A number that is too long raises :class:`LongNumberError`, any other error is a :class:`ValueError`.

    >>> parse_lenient("```json\n{'city': 'Rome', 'now': True,}\n```")
    {'city': 'Rome', 'now': True}
    """
    import pyjson5

    inner = _extract_object(text) if words else _strip_fence(text)
    if read is not None and inner != text:
        try:
            return read(inner)
        except (ValueError, RecursionError):
            pass
    respelled = inner.count('"') + inner.count("'") < _MOST_QUOTES
    if respelled:
        inner = _TOKEN.sub(_respell, inner)
    try:
        return pyjson5.decode(inner, _DEEPEST)
    except pyjson5.Json5EOF as problem:
        if "Numeric" in str(problem) and _LONG_NUMBER.search(inner):
            raise LongNumberError from None
        if not respelled and any(map(inner.__contains__, "\n\r")):
            raise ValueError("not JSON") from None  # a line break inside a string ends it, too
        raise CutOffError from None
    except pyjson5.Json5Exception:
        raise ValueError("not JSON") from None


def _extract_object(text: str) -> str:
    """Return the object inside a Markdown fence or other text; fences inside the object are kept."""
    stripped = text.strip()
    if stripped[:1] in {"[", '"', "'"}:
        return stripped
    start, end = stripped.find("{"), stripped.rfind("}")
    if start < 0:
        return stripped
    return stripped[start : end + 1] if end > start else stripped[start:]


def _strip_fence(text: str) -> str:
    """Return the content of a Markdown fence; raise ValueError if there is text around it."""
    inner = _FENCED.fullmatch(text.strip())
    inside = text.strip() if inner is None else inner[1].strip()
    if inside[:1] not in {"{", "[", '"', "'"}:
        raise ValueError("not JSON")
    return inside


def _respell(token: re.Match[str]) -> str:
    """Return a token in JSON spelling: Python's constants, and line breaks inside strings."""
    found = token[0]
    if found in _PYTHON:
        return _PYTHON[found]
    return found.translate(_CONTROL)
