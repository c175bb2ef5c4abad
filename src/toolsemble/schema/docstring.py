"""What a docstring says: the description, and each parameter."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field
from functools import lru_cache


@dataclass(frozen=True, slots=True)
class Docstring:
    """The parts of a docstring that a model is told."""

    summary: str = ""
    """What stands before the first section."""
    parameters: dict[str, str] = field(default_factory=dict)
    """What is said of each parameter."""


# The same text is asked for its summary and for its parameters, at different times.
@lru_cache(maxsize=64)
def parse_docstring(docstring: str | None) -> Docstring:
    r"""Give the parts of a docstring in Google's, NumPy's or Sphinx's style.

    >>> told = parse_docstring('''Search the web.
    ...
    ... Finds pages by words.
    ...
    ... Args:
    ...     query: What to search for.
    ... ''')
    >>> told.summary
    'Search the web.\n\nFinds pages by words.'
    >>> told.parameters
    {'query': 'What to search for.'}
    """
    text = inspect.cleandoc(docstring or "")
    if "\n" not in text:
        return Docstring(text)
    import docstring_parser  # noqa: PLC0415 - tools with a line or none never pay for it

    try:
        parsed = docstring_parser.parse(text)
    except docstring_parser.ParseError:
        return Docstring(text)
    parts = [parsed.short_description, parsed.long_description]
    told: dict[str, str] = {}
    for param in parsed.params:
        for name in param.arg_name.split(","):
            told[name.strip().lstrip("*")] = " ".join((param.description or "").split())
    return Docstring("\n\n".join(part.strip() for part in parts if part), told)
