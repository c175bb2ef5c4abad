"""Parse docstrings into a summary and parameter descriptions."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field
from functools import lru_cache


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
