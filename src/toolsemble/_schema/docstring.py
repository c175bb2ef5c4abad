"""Information from a definition's source: its docstring, and the local types in string annotations."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field
from functools import lru_cache
from types import FrameType
from typing import Any, NewType, TypeVar, get_origin


@dataclass(frozen=True, slots=True)
class Docstring:
    """The summary and the parameter descriptions of a docstring."""

    summary: str = ""
    """The text before the first section."""
    parameters: dict[str, str] = field(default_factory=dict)
    """The description of each parameter, by name."""


# The summary and the parameters of one docstring are read at different times.
@lru_cache(maxsize=64)
def parse_docstring(docstring: str | None) -> Docstring:
    r"""Return the parts of a docstring in Google, NumPy or Sphinx style.

    >>> parsed = parse_docstring('''Search the web.
    ...
    ... Finds pages by words.
    ...
    ... Args:
    ...     query: What to search for.
    ... ''')
    >>> parsed.summary
    'Search the web.\n\nFinds pages by words.'
    >>> parsed.parameters
    {'query': 'What to search for.'}
    """
    text = inspect.cleandoc(docstring or "")
    if "\n" not in text:
        return Docstring(text)
    import docstring_parser

    try:
        parsed = docstring_parser.parse(text)
    except docstring_parser.ParseError:
        return Docstring(text)
    parts = [parsed.short_description, parsed.long_description]
    descriptions: dict[str, str] = {}
    for param in parsed.params:
        for name in param.arg_name.split(","):
            descriptions[name.strip().lstrip("*")] = " ".join((param.description or "").split())
    return Docstring("\n\n".join(part.strip() for part in parts if part), descriptions)


def collect_local_types(frame: FrameType | None) -> dict[str, Any]:
    """Return the local types of a frame; for a class body, also the enclosing scope's types."""
    names: dict[str, Any] = {}
    while frame is not None and frame.f_globals.get("__name__") == "abc":
        frame = frame.f_back  # skip the metaclass that creates the class
    while frame is not None and frame.f_locals is not frame.f_globals:
        names = {**{name: value for name, value in frame.f_locals.items() if _is_type(value)}, **names}
        if frame.f_code.co_flags & inspect.CO_OPTIMIZED:
            break  # a function; only a class body sees the names of its enclosing scope
        frame = frame.f_back
    return names


def _is_type(value: object) -> bool:
    # Only types are kept: the locals of a function may be large.
    return isinstance(value, (type, TypeVar, NewType)) or hasattr(value, "__value__") or get_origin(value) is not None
