"""What a docstring says: the description, and each parameter."""

from __future__ import annotations

import inspect


def documented(docstring: str) -> dict[str, str]:
    """Give the description of each parameter in a docstring of Google's, NumPy's or Sphinx's style.

    >>> documented('''Search the web.
    ...
    ... Args:
    ...     query: What to search for.
    ... ''')
    {'query': 'What to search for.'}
    """
    if not docstring or (":" not in docstring and "-" not in docstring):
        return {}
    import docstring_parser  # noqa: PLC0415 - tools without such docstrings never pay for it

    try:
        parsed = docstring_parser.parse(inspect.cleandoc(docstring))
    except docstring_parser.ParseError:
        return {}
    told: dict[str, str] = {}
    for param in parsed.params:
        for name in param.arg_name.split(","):
            told[name.strip().lstrip("*")] = " ".join((param.description or "").split())
    return told


def summary(docstring: str) -> str:
    r"""Give what a docstring says before its first section.

    >>> summary('''Search the web.
    ...
    ... Finds pages by words.
    ...
    ... Args:
    ...     query: What to search for.
    ... ''')
    'Search the web.\n\nFinds pages by words.'
    """
    if not docstring:
        return ""
    text = inspect.cleandoc(docstring)
    if ":" not in text and "-" not in text:
        return text
    import docstring_parser  # noqa: PLC0415 - as above

    try:
        parsed = docstring_parser.parse(text)
    except docstring_parser.ParseError:
        return text
    parts = [parsed.short_description, parsed.long_description]
    return "\n\n".join(part.strip() for part in parts if part)
