"""Describe problems in arguments, so that a model can correct them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from toolsemble._runtime.text import preview
from toolsemble._vocabulary.errors import ToolArgumentsError

Path: TypeAlias = tuple[str | int, ...]

_LONGEST = 990  # with its prefix, the message stays below 1,000 characters
_LONGEST_NAME = 100
_LONGEST_KEY = 300


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem in the arguments."""

    path: Path
    """The keys and indices to the value, outermost first."""
    message: str
    """The description, such as ``missing`` or ``expected a number``."""


class MismatchError(Exception):
    """Arguments do not validate; the problems are determined later, if repairs do not help.

    Its only argument is the exception of the validator, if that says more.
    """

    errors: list[Any] | None = None
    """The errors of the validator, once somebody has read them."""

    @property
    def cause(self) -> Any:
        """The exception of the validator."""
        return self.args[0]


def format_path(path: Path) -> str:
    """Return a path as text.

    >>> format_path(("items", 2, "price"))
    'items[2].price'
    >>> format_path(("", "price"))
    '[""].price'
    """
    text = ""
    for part in path:
        if isinstance(part, int) or not part:
            text += '[""]' if part == "" else f"[{part}]"  # an empty key would not be seen
        else:
            text += f".{format_key(part)}" if text else format_key(part)
    return text or "$"


def format_key(key: str) -> str:
    r"""Return a key from a model on one line, shortened, with invisible characters escaped.

    >>> format_key("price"), format_key("a\nb\u202ec\u3164")
    ('price', 'a\\nb\\u202ec\\u3164')
    """
    if key.isascii() and key.isprintable() and len(key) <= _LONGEST_KEY:
        return key
    return preview(key, _LONGEST_KEY)


def describe_variants(path: Path, variants: Iterable[Sequence[Problem]]) -> list[Problem]:
    """Return one problem for a value that fits none of several variants, with a line for each of them.

    >>> x, y = Problem(("v", "x"), "missing"), Problem(("v", "y"), "missing")
    >>> print(describe_variants(("v",), [[x], [y]])[0].message)
    expected
      either v.x: missing
      or v.y: missing
    """
    different = list(dict.fromkeys(map(tuple, variants)))
    if len(different) == 1:
        return list(different[0])
    lines = ("; ".join(f"{format_path(each.path)}: {each.message}" for each in problems) for problems in different)
    return [Problem(path, "expected\n  either " + "\n  or ".join(lines))]


def report(owner: str, problems: Sequence[Problem], more: int = 0, hint: str = "") -> ToolArgumentsError:
    """Return the error that lists every problem, in a text of limited length; ``more`` problems are only counted.

    :param hint: a remark after the problems, left out if the text would become too long

    >>> report("search", [Problem(("query",), "missing"), Problem(("limit",), "missing")])
    ToolArgumentsError("Missing required parameter(s) for 'search': query, limit")
    >>> report("search", [Problem(("query",), "missing"), Problem(("limit",), "expected an integer")])
    ToolArgumentsError("Invalid arguments for 'search': query: missing; limit: expected an integer")
    """
    owner = owner[:_LONGEST_NAME]
    if all(problem.message == "missing" and len(problem.path) == 1 for problem in problems):
        missing = [format_path(problem.path) for problem in problems]
        return _add_hint(_join(f"Missing required parameter(s) for '{owner}': ", missing, ", ", more), hint)
    described = [f"{format_path(problem.path)}: {problem.message}" for problem in problems]
    return _add_hint(_join(f"Invalid arguments for '{owner}': ", described, "; ", more), hint)


def _add_hint(text: str, hint: str) -> ToolArgumentsError:
    return ToolArgumentsError(text + hint if len(text) + len(hint) <= _LONGEST else text)


def _join(start: str, parts: Sequence[str], separator: str, more: int) -> str:
    """Return the parts joined, up to the maximum length, and the number of the others."""
    if not more and len(text := start + separator.join(parts)) <= _LONGEST // 3:
        return text  # far from any limit
    room = max(_LONGEST // 3, (_LONGEST - len(start) - 50) // max(1, len(parts)))
    parts = [part if len(part) <= room else f"{part[:room]}..." for part in parts]
    text = start
    for index, part in enumerate(parts):
        rest = f"{separator}and {len(parts) - index + more} more"
        if len(text) + len(part) + len(separator) + len(rest) > _LONGEST:
            return text + rest.removeprefix(separator) if index == 0 else text + rest
        text += (separator if index else "") + part
    return f"{text}{separator}and {more} more" if more else text
