"""Text patterns of rules, matched so that no spelling of a hostile value gets around them."""

from __future__ import annotations

import posixpath
import unicodedata
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from urllib.parse import unquote

_WILD = frozenset("*?[")
_OPERATORS = frozenset(";|&<>$`")
_ENDS_A_HOST = frozenset("?#@")
_LEVELS = 3  # text that was percent-encoded twice is decoded by some servers; more often by none


def surely_matches(pattern: str, text: str) -> bool:
    """Whether a text matches in every way that a tool could read it.

    >>> surely_matches("/tmp/*", "/tmp/a/b"), surely_matches("/tmp/*", "/tmp/../etc/passwd")
    (True, False)
    """
    if not _WILD.intersection(pattern):
        return text == pattern
    if not pattern.strip("*"):
        return True
    may_be_command = " " in pattern or "/" not in pattern
    if not fnmatchcase(text, pattern) or (may_be_command and _OPERATORS.intersection(text)):
        return False
    if not (text.isprintable() and unquote(unquote(text)).isprintable()):
        return False
    read = zip(_readings(pattern, _tidied), _readings(text, _resolved), strict=True)
    return all(_inside(wanted, found) for wanted, found in read)


def possibly_matches(pattern: str, text: str) -> bool:
    """Whether a text matches in any way that a tool could read it; upper and lower case are the same.

    >>> possibly_matches("/etc/*", "/tmp/../etc/passwd"), possibly_matches("/etc/*", "/tmp/notes")
    (True, False)
    """
    read = zip(_readings(pattern, _tidied), _readings(_cleaned(text), _resolved), strict=True)
    return fnmatchcase(text, pattern) or any(fnmatchcase(found.casefold(), wanted.casefold()) for wanted, found in read)


def _readings(text: str, tidy: Callable[[str], str]) -> Iterator[str]:
    """Give what different systems take a text for: POSIX, Windows and Unicode-aware ones, and those behind a URL."""
    for _ in range(_LEVELS):
        yield tidy(text)
        yield tidy(unicodedata.normalize("NFKC", text).replace("\\", "/"))
        text = unquote(text)


def _resolved(text: str) -> str:
    path = posixpath.normpath(text)
    return path[1:] if path.startswith("//") else path  # POSIX lets two slashes be special; no system of today does


def _tidied(pattern: str) -> str:
    """Give a pattern in the form that resolving gives a text, but with its ``..``: what stands before is a pattern."""
    first, *rest = pattern.split("/")
    parts = [part for part in rest if part not in {"", "."}]
    return "/".join(parts if first == "." and parts else [first, *parts]) or pattern[:1]


def _cleaned(text: str) -> str:
    """Give a text without characters that cannot be seen, and with single spaces."""
    if not text.isprintable():
        text = "".join(each for each in text if each.isprintable() or each.isspace())
    return " ".join(text.split())


def _inside(pattern: str, text: str) -> bool:
    """Whether a resolved text matches part by part; only a ``*`` that is the last part stands for several."""
    wanted, parts = pattern.split("/"), text.split("/")
    if parts.count("..") != wanted.count(".."):
        return False  # it leads out of the folder that the pattern begins in
    if len(wanted) == 1:
        return fnmatchcase(text, pattern)
    is_url = wanted[0].endswith(":") and len(wanted[0]) > len("C:")
    if is_url and len(parts) == 2 and len(wanted) == 3:  # noqa: PLR2004 - scheme and host; scheme, host and path
        parts.append("")  # resolving took away the slash, which is all of a path
    if wanted[-1] == "*" and len(parts) >= len(wanted):
        wanted.pop()
        parts = parts[: len(wanted)]
    if is_url and wanted[1:2] != parts[1:2] and _ENDS_A_HOST.intersection("".join(parts[1:2])):
        return False
    return len(parts) == len(wanted) and all(map(fnmatchcase, parts, wanted))
