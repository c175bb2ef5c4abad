"""Text patterns of rules, matched so that no spelling of a hostile value gets around them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from fnmatch import fnmatchcase

from toolsemble.review.reading import (
    decode_percent,
    has_odd_escapes,
    read_url,
    readings,
    resolve_path,
    to_ascii_signs,
    to_latin,
    trim_names,
)
from toolsemble.runtime.text import has_invisible, without_invisible

_WILD = frozenset("*?[")
_OPEN = frozenset("*?")
_OPERATORS = frozenset(";|&<>$`")
_HOST = re.compile(r"[\w.-]+(:[0-9]*)?")


def surely_matches(pattern: str, text: str) -> bool:
    """Whether a text matches in every way that a tool could read it.

    >>> surely_matches("/tmp/*", "/tmp/a/b"), surely_matches("/tmp/*", "/tmp/../etc/passwd")
    (True, False)
    """
    if not _WILD.intersection(pattern):
        return text == pattern
    if not pattern.strip("*"):
        return True
    if not fnmatchcase(text, pattern):
        return False
    levels = decode_percent(text)
    is_command = " " in pattern or "/" not in pattern
    if levels is None or any(_is_doubtful(level, is_command=is_command) for level in levels):
        return False
    return all(_inside(wanted, found) for level in _levels(pattern, levels) for wanted, found in level)


def possibly_matches(pattern: str, text: str) -> bool:
    """Whether a text matches in any way that a tool or a person could read it; upper and lower case are the same.

    >>> possibly_matches("/etc/*", "/tmp/../etc/passwd"), possibly_matches("/etc/*", "/tmp/notes")
    (True, False)
    """
    if fnmatchcase(text, pattern):
        return True
    levels = decode_percent(text, wide=True)
    if levels is None:
        return True  # nobody can say what it is
    return any(_looks_like(wanted, level) for level in levels for wanted in decode_percent(pattern) or [pattern])


def _is_doubtful(text: str, *, is_command: bool) -> bool:
    """Return whether a text has something in it that nobody sees, or that a shell or a server reads otherwise."""
    if has_invisible(text) or has_odd_escapes(text):
        return True
    return is_command and bool(_OPERATORS.intersection(text) or _OPERATORS.intersection(to_ascii_signs(text)))


def _levels(pattern: str, texts: list[str]) -> Iterator[Iterator[tuple[str, str]]]:
    """Return the readings of a pattern beside those of a text, both as often decoded."""
    patterns = decode_percent(pattern) or [pattern]
    for number, text in enumerate(texts):
        wanted = patterns[min(number, len(patterns) - 1)]
        yield zip(readings(wanted, _tidied), readings(text, resolve_path), strict=True)


def _looks_like(pattern: str, text: str) -> bool:
    """Return whether a text matches in one of its readings, whatever cannot be seen in it."""
    shown = {without_invisible(text), without_invisible(text, " "), text.partition("\0")[0]}
    lines = {" ".join(each.split()) for each in shown}
    lines |= {trim_names(to_ascii_signs(line)) for line in lines}
    wanted = list(readings(pattern, _tidied))
    # A set: most readings of most texts are the same.
    pairs = {pair for line in lines for pair in zip(wanted, readings(line, resolve_path), strict=True)}
    pairs |= {pair for line in lines for pair in _addresses(wanted[1], line)}
    return any(fnmatchcase(to_latin(found), to_latin(each)) for each, found in pairs)


def _addresses(pattern: str, text: str) -> Iterator[tuple[str, str]]:
    for url in read_url(to_ascii_signs(text.replace(" ", ""))):  # clients leave white space out
        yield pattern, url
        yield pattern, resolve_path(url)


def _tidied(pattern: str) -> str:
    """Give a pattern in the form that resolving gives a text, but with its ``..``: what stands before is a pattern."""
    first, *rest = pattern.split("/")
    parts = [part for part in rest if part not in {"", "."}]
    return "/".join(parts if first == "." and parts else [first, *parts]) or pattern[:1]


def _inside(pattern: str, text: str) -> bool:
    """Whether a resolved text matches part by part; only a ``*`` that is the last part stands for several."""
    wanted, parts = pattern.split("/"), text.split("/")
    if parts.count("..") != wanted.count(".."):
        return False  # it leads out of the folder that the pattern begins in
    if len(wanted) == 1:
        return fnmatchcase(text, pattern)
    is_url = wanted[0].endswith(":") and (len(wanted[0]) > len("C:") or wanted[0][0] in _OPEN)
    if is_url and len(parts) == 2 and len(wanted) == 3:  # noqa: PLR2004 - scheme and host; scheme, host and path
        parts.append("")  # resolving took away the slash, which is all of a path
    if wanted[-1] == "*" and len(parts) >= len(wanted):
        wanted.pop()
        parts = parts[: len(wanted)]
    if is_url and _OPEN.intersection("".join(wanted[1:2])) and not _HOST.fullmatch("".join(parts[1:2])):
        return False
    return len(parts) == len(wanted) and all(map(fnmatchcase, parts, wanted))
