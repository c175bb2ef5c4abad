"""Text patterns of rules, matched against every reading of a value so that no spelling bypasses them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from functools import lru_cache

from toolsemble._runtime.text import has_invisible, without_invisible
from toolsemble.review._text_readings import (
    decode_percent,
    has_odd_escapes,
    read_url,
    readings,
    resolve_path,
    to_ascii_signs,
    to_latin,
    trim_names,
)

_WILD = frozenset("*?[")
_OPEN = frozenset("*?")
_OPERATORS = frozenset(";|&<>$`")
_HOST = re.compile(r"[\w.-]+(:[0-9]*)?")


def surely_matches(pattern: str, text: str) -> bool:
    """Return whether a text matches in every way that a tool could read it.

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
    return all(_matches_parts(wanted, found) for level in _read_levels(pattern, levels) for wanted, found in level)


def possibly_matches(pattern: str, text: str) -> bool:
    """Return whether a text matches in any way that a tool or a person could read it, ignoring case.

    >>> possibly_matches("/etc/*", "/tmp/../etc/passwd"), possibly_matches("/etc/*", "/tmp/notes")
    (True, False)
    """
    if fnmatchcase(text, pattern):
        return True
    levels = decode_percent(text, wide=True)
    if levels is None:
        return True  # encoded too often: it could be anything
    return any(_looks_like(wanted, level) for level in levels for wanted in decode_percent(pattern) or [pattern])


def matches_name(pattern: str, name: str) -> bool:
    r"""Return whether a pattern could mean a tool's name, ignoring case, accents, and letters that look the same.

    A model reads a name as a person does, and a server can spell its names as it likes.

    >>> [matches_name("*delete*", name) for name in ("DeleteFile", "d\u0435lete_all", "read")]
    [True, True, False]
    """
    return fnmatchcase(name, pattern) or fnmatchcase(_fold_name(name), _fold_name(pattern))


@lru_cache(2048)
def _fold_name(name: str) -> str:
    return to_latin(to_ascii_signs(without_invisible(name)))


def _is_doubtful(text: str, *, is_command: bool) -> bool:
    """Return whether a text contains invisible characters, or something that a shell or a server reads differently."""
    if has_invisible(text) or has_odd_escapes(text):
        return True
    return is_command and bool(_OPERATORS.intersection(text) or _OPERATORS.intersection(to_ascii_signs(text)))


def _read_levels(pattern: str, texts: list[str]) -> Iterator[Iterator[tuple[str, str]]]:
    """Yield the readings of a pattern with those of a text, both decoded equally often."""
    patterns = decode_percent(pattern) or [pattern]
    for number, text in enumerate(texts):
        wanted = patterns[min(number, len(patterns) - 1)]
        yield zip(readings(wanted, _tidy), readings(text, resolve_path), strict=True)


def _looks_like(pattern: str, text: str) -> bool:
    """Return whether a text matches in one of its readings, ignoring invisible characters."""
    shown = {without_invisible(text), without_invisible(text, " "), text.partition("\0")[0]}
    lines = {" ".join(each.split()) for each in shown}
    lines |= {trim_names(to_ascii_signs(line)) for line in lines}
    wanted = list(readings(pattern, _tidy))
    # A set: most readings of most texts are the same.
    pairs = {pair for line in lines for pair in zip(wanted, readings(line, resolve_path), strict=True)}
    pairs |= {pair for line in lines for pair in _read_addresses(wanted[1], line)}
    return any(fnmatchcase(to_latin(found), to_latin(each)) for each, found in pairs)


def _read_addresses(pattern: str, text: str) -> Iterator[tuple[str, str]]:
    for url in read_url(to_ascii_signs(text.replace(" ", ""))):  # clients ignore white space
        yield pattern, url
        yield pattern, resolve_path(url)


def _tidy(pattern: str) -> str:
    """Return a pattern in the form of a resolved path, but with its ``..``: what comes before it is a pattern."""
    first, *rest = pattern.split("/")
    parts = [part for part in rest if part not in {"", "."}]
    return "/".join(parts if first == "." and parts else [first, *parts]) or pattern[:1]


def _matches_parts(pattern: str, text: str) -> bool:
    """Return whether a resolved text matches part by part; only a ``*`` as the last part matches several."""
    wanted, parts = pattern.split("/"), text.split("/")
    if parts.count("..") != wanted.count(".."):
        return False  # it leads out of the directory of the pattern
    if len(wanted) == 1:
        return fnmatchcase(text, pattern)
    is_url = wanted[0].endswith(":") and (len(wanted[0]) > len("C:") or wanted[0][0] in _OPEN)
    if is_url and len(parts) == 2 and len(wanted) == 3:  # noqa: PLR2004 - scheme and host; scheme, host and path
        parts.append("")  # resolving removed the slash, the whole path
    if wanted[-1] == "*" and len(parts) >= len(wanted):
        wanted.pop()
        parts = parts[: len(wanted)]
    if is_url and _OPEN.intersection("".join(wanted[1:2])) and not _HOST.fullmatch("".join(parts[1:2])):
        return False
    return len(parts) == len(wanted) and all(map(fnmatchcase, parts, wanted))
