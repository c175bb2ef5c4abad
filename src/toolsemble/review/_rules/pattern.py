"""Text patterns of rules, matched against every reading of a value, so that no spelling bypasses them."""

from __future__ import annotations

import posixpath
import re
import unicodedata
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from functools import lru_cache
from urllib.parse import unquote

from toolsemble._runtime.text import has_invisible, without_invisible

_LEVELS = 8  # a text with more layers of percent-encoding is an attack
# Unchanged by NFKC, but read as ASCII by people, browsers or older character sets.
_SIGNS = str.maketrans(
    {
        **dict.fromkeys("\u2044\u2215\u2571\u27cb\u29f8\u3033", "/"),
        **dict.fromkeys("\u2216\u27cd\u29f5\u29f9\u00a5\u20a9", "\\"),
        **dict.fromkeys("\u3002\u0701\u0702\u06d4\ua4f8", "."),
        **dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2015\u2043\u2212", "-"),
        **dict.fromkeys("\u0589\u05c3\u2236\ua789", ":"),
        **dict.fromkeys("\u061b\u204f", ";"),
        **dict.fromkeys("\u01c0\u2223\u2502\u2758", "|"),
    }
)
_LETTERS = str.maketrans(
    "\u0430\u0435\u043e\u0440\u0441\u0443\u0445\u0456\u0458\u0455\u04bb\u0501\u051b\u051d\u04cf"
    "\u03b1\u03b5\u03b9\u03ba\u03bd\u03bf\u03c1\u03c4\u03c5\u03c7\u0131\u0261\u0251",
    "aeopcyxijshdqwlaeikvoptuxiga",
)
# Capitals that look alike, although their lowercase letters do not.
_CAPITALS = str.maketrans("\u0412\u041a\u041c\u041d\u0422\u0392\u0396\u0397\u039c\u03a5", "BKMHTBZHMY")
_OVERLONG = re.compile(
    r"%c[01]%[89ab][0-9a-f]|%e0%[89][0-9a-f]%[89ab][0-9a-f]|%f0%8[0-9a-f](?:%[89ab][0-9a-f]){2}", re.IGNORECASE
)
_WIDE = re.compile(r"%u([0-9a-f]{4})", re.IGNORECASE)
_PARAMETERS = re.compile(r";[^/]*")
_DOTS = re.compile(r"(?:^|(?<=/))[. ]+(?=/|$)")
_TRAILING = re.compile(r"(?<=[^/. ])[. ]+(?=/|$)")
_URL = re.compile(r"([a-z][a-z0-9+.-]+):/*([^/?#]*)(.*)", re.IGNORECASE | re.DOTALL)
_PORT = re.compile(r":[0-9]*$")


def decode_percent(text: str, *, wide: bool = False) -> list[str] | None:
    """Return a text and its repeated percent-decodings; None if there are too many.

    :param wide: whether to decode escapes that only lenient systems decode: ``%c0%ae`` and ``%u002e``

    >>> decode_percent("%252e"), decode_percent("%c0%ae", wide=True)
    (['%252e', '%2e', '.'], ['%c0%ae', '.'])
    """
    found = [text]
    while (inner := unquote(_decode_lenient(text) if wide else text)) != text:
        if len(found) > _LEVELS:
            return None
        found.append(inner)
        text = inner
    return found


def has_odd_escapes(text: str) -> bool:
    """Return whether a text contains escapes that only lenient systems decode.

    >>> has_odd_escapes("%c0%ae"), has_odd_escapes("%e4"), has_odd_escapes("100%")
    (True, False, False)
    """
    return "%" in text and (_OVERLONG.search(text) is not None or _WIDE.search(text) is not None)


def to_ascii_signs(text: str) -> str:
    r"""Return a text with look-alike signs replaced by ASCII ones, and backslashes by slashes.

    >>> to_ascii_signs("\uff0e\u3002\\etc\uff1b")
    '../etc;'
    """
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text).translate(_SIGNS)
    return text.replace("\\", "/")


def to_latin(text: str) -> str:
    r"""Return a text in lower case, without accents, with look-alike letters replaced by Latin ones.

    >>> to_latin("P\u0430ssw\u00f6rd")
    'password'
    """
    if text.isascii():
        return text.casefold()
    folded = unicodedata.normalize("NFD", text.translate(_CAPITALS).casefold())
    return "".join(each for each in folded if unicodedata.category(each) != "Mn").translate(_LETTERS)


def readings(text: str, tidy: Callable[[str], str]) -> Iterator[str]:
    """Yield the readings of a text by POSIX, a person, servers that strip path parameters, and Windows."""
    yield tidy(text)
    shown = to_ascii_signs(text)
    yield tidy(shown)
    yield tidy(_PARAMETERS.sub("", shown))
    yield tidy(_DOTS.sub(lambda found: "." * min(found[0].count("."), 2), shown))


def trim_names(text: str) -> str:
    """Return a path without the dots and spaces at the end of its names, which Windows ignores.

    >>> trim_names("/etc. /passwd.")
    '/etc/passwd'
    """
    return _TRAILING.sub("", text)


def read_url(text: str) -> Iterator[str]:
    """Yield a URL as a client reads it: without user, and with and without its port; nothing for another text.

    >>> list(read_url("https://ada@evil.com.:443?x"))
    ['https:/evil.com:443/?x', 'https:/evil.com/?x']
    """
    found = _URL.fullmatch(text)
    if found is not None:
        scheme, place, rest = found.groups()
        host = place.rpartition("@")[2]
        bare = _PORT.sub("", host)
        path = rest if rest.startswith("/") else f"/{rest}"
        for each in dict.fromkeys((bare.rstrip(".") + host[len(bare) :], bare.rstrip("."))):
            yield f"{scheme}:/{each}{path}"


def resolve_path(text: str) -> str:
    """Return a path without ``.``, ``..`` and doubled slashes.

    >>> resolve_path("//etc/./a/../passwd")
    '/etc/passwd'
    """
    path = posixpath.normpath(text)
    # POSIX allows two slashes to be special; no current system does that.
    return path[1:] if path.startswith("//") else path


def _decode_lenient(text: str) -> str:
    """Return a text with overlong and wide escapes decoded."""
    text = _OVERLONG.sub(lambda found: _decode_overlong(found[0]), text)
    return _WIDE.sub(lambda found: chr(int(found[1], 16)), text)


def _decode_overlong(escapes: str) -> str:
    first, *others = bytes.fromhex(escapes.replace("%", ""))
    value = first & (0x1F if len(others) == 1 else 0x0F if len(others) == 2 else 0x07)  # noqa: PLR2004 - as in UTF-8
    for each in others:
        value = value << 6 | each & 0x3F
    return chr(value)


_WILD = frozenset("*?[")
_OPEN = frozenset("*?")
_OPERATORS = frozenset(";|&<>$`")
_HOST = re.compile(r"[\w.-]+(:[0-9]*)?")


def surely_matches(pattern: str, text: str) -> bool:
    """Return whether a text matches in every way in which a tool could read it.

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
    """Return whether a text matches in any way in which a tool or a person could read it, ignoring case.

    >>> possibly_matches("/etc/*", "/tmp/../etc/passwd"), possibly_matches("/etc/*", "/tmp/notes")
    (True, False)
    """
    if fnmatchcase(text, pattern):
        return True
    levels = decode_percent(text, wide=True)
    if levels is None:
        return True  # too many layers of encoding: it could be anything
    return any(_looks_like(wanted, level) for level in levels for wanted in decode_percent(pattern) or [pattern])


def matches_name(pattern: str, name: str) -> bool:
    r"""Return whether a pattern could mean a tool's name, ignoring case, accents, and letters that look the same.

    Models read names as people do, and a server can spell its names in any way.

    >>> [matches_name("*delete*", name) for name in ("DeleteFile", "d\u0435lete_all", "read")]
    [True, True, False]
    """
    return fnmatchcase(name, pattern) or fnmatchcase(_fold_name(name), _fold_name(pattern))


@lru_cache(2048)
def _fold_name(name: str) -> str:
    return to_latin(to_ascii_signs(without_invisible(name)))


def _is_doubtful(text: str, *, is_command: bool) -> bool:
    """Return whether a text contains invisible characters, or syntax that a shell or a server reads differently."""
    if has_invisible(text) or has_odd_escapes(text):
        return True
    return is_command and bool(_OPERATORS.intersection(text) or _OPERATORS.intersection(to_ascii_signs(text)))


def _read_levels(pattern: str, texts: list[str]) -> Iterator[Iterator[tuple[str, str]]]:
    """Yield pairs of readings of a pattern and a text, both decoded equally often."""
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
    """Return a pattern as a resolved path, but keep its ``..``: the part before it is a pattern."""
    first, *rest = pattern.split("/")
    parts = [part for part in rest if part not in {"", "."}]
    return "/".join(parts if first == "." and parts else [first, *parts]) or pattern[:1]


def _matches_parts(pattern: str, text: str) -> bool:
    """Return whether a resolved text matches part by part; only a ``*`` as the last part matches several."""
    wanted, parts = pattern.split("/"), text.split("/")
    if parts.count("..") != wanted.count(".."):
        return False  # it escapes the pattern's directory
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
