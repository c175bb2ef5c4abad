"""Text from models, tools and files, made safe to show: previews, escapes, exception messages."""

from __future__ import annotations

import re

SHOWN = 200
"""The default length of a preview."""

HIDDEN = "**********"
"""The text shown instead of a secret."""

# Unicode's Default_Ignorable_Code_Point, and letters and marks that render as nothing or as a blank. Control
# characters, other spaces, surrogates and unassigned code points are found by `str.isprintable`.
_IGNORABLE = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u2800\u2d7f\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffc\U0001107f\U00013441-\U00013446\U00016fe4\U0001bca0-\U0001bca3\U0001d159"
    "\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
_INVISIBLE = re.compile(f"[{_IGNORABLE}]")
# A joiner or an emoji variation selector that belongs to the preceding letter or symbol.
_LETTER = rf"[^\s\x00-\x9f\ud800-\uf8ff{_IGNORABLE}]"
_JOINED = (
    f"((?<={_LETTER})(?:[\ufe0e\ufe0f](?:\u200d(?={_LETTER}))?|[\u200c\u200d](?={_LETTER}))"
    "|(?<=[0-9#*])\ufe0f(?=\u20e3))"
)
_HIDDEN_CATEGORIES = {"Cc", "Cf", "Cs", "Zl", "Zp"}


def has_invisible(text: str) -> bool:
    r"""Return whether a text has invisible characters, including line breaks and tabs.

    >>> has_invisible("M\xfcller"), has_invisible("pass\u034fword"), has_invisible("a\nb")
    (False, True, True)
    """
    return (not text.isascii() and _INVISIBLE.search(text) is not None) or not text.isprintable()


def without_invisible(text: str, blank: str = "") -> str:
    r"""Return a text with its invisible characters removed or replaced; white space stays.

    >>> without_invisible("pass\u034fword\n"), without_invisible("rm\u3164-rf", " ")
    ('password\n', 'rm -rf')
    """
    if not has_invisible(text):
        return text
    text = _INVISIBLE.sub(blank, text)
    return "".join(each if each.isprintable() or each.isspace() else blank for each in text)


def escape_invisible(text: str) -> str:
    r"""Return a text on one line, with each invisible character written as an escape.

    >>> print(escape_invisible("free\xa0of\u3164\ncharge"))
    free\xa0of\u3164\ncharge
    """
    if not has_invisible(text):
        return text
    shown = _INVISIBLE.sub(lambda found: _escape(found[0]), text)
    return "".join(each if each.isprintable() else _escape(each) for each in shown)


def escape_lines(text: str) -> str:
    r"""Return a text with its line breaks, and other invisible characters escaped.

    >>> print(escape_lines("first\n\x1b[2Jsecond"))
    first
    \x1b[2Jsecond
    """
    return "\n".join(map(escape_invisible, text.split("\n")))


def escape_prose(text: str) -> str:
    r"""Return a text for readers, with invisible characters escaped, except the ones that scripts and emoji need.

    Line feeds, tabs and spaces stay, as do joiners and variation selectors within words and emoji.

    >>> print(escape_prose("caf\xe9\n\x1b[2Jfree\u202e\r"))
    café
    \x1b[2Jfree\u202e\r
    """
    if not has_invisible(text):
        return text
    parts = re.split(_JOINED, text.replace("\r\n", "\n"))
    return "".join(
        part if index % 2 else "".join(map(_escape_unless_visible, part)) for index, part in enumerate(parts)
    )


def escape_line(text: str, limit: int | None = None) -> str:
    r"""Return a text as :func:`escape_prose` does, on one line of at most ``limit`` characters.

    >>> escape_line("first\nsecond", 8)
    'first...'
    """
    cut = text if limit is None else text[:limit]
    line = escape_prose(cut).replace("\n", "\\n").replace("\t", "\\t")
    if limit is None or (len(line) <= limit and cut == text):
        return line
    return f"{line[: limit - 3]}..."


def preview(text: str, limit: int = SHOWN) -> str:
    r"""Return the start of a text on one line, escaped so that it cannot forge log lines or move a cursor.

    >>> preview("first\nsecond", 8)
    'first\\nse...'
    """
    shown = escape_invisible(text[:limit])
    return shown if len(text) <= limit else f"{shown}..."


def preview_lines(text: str, limit: int = SHOWN) -> str:
    r"""Return the start of a text with its line breaks, and other invisible characters escaped.

    >>> print(preview_lines("first\n\x1b[2Jsecond", 8))
    first
    \x1b[...
    """
    shown = escape_lines(text[:limit])
    return shown if len(text) <= limit else f"{shown}..."


def quote_text(text: str, limit: int = SHOWN) -> str:
    r"""Return the start of a text in quotes, as ``repr`` writes it, with invisible characters escaped.

    >>> print(quote_text("it's\u3164", 100))
    "it's\u3164"
    """
    return escape_invisible(repr(text if len(text) <= limit else f"{text[:limit]}..."))


def escape_surrogates(text: str) -> str:
    """Return the text with each lone surrogate written as an escape: it cannot be encoded as UTF-8."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode(errors="backslashreplace").decode()
    return text


def describe_error(error: BaseException | None) -> str:
    """Return an exception's message; with its class name as prefix for a bare repr, or alone if there is no message.

    >>> describe_error(ValueError("no such city")), describe_error(ValueError())
    ('no such city', 'ValueError')
    >>> describe_error(KeyError("rome"))
    "KeyError: 'rome'"
    """
    message = get_message(error)
    return f"{type(error).__name__}: {message}" if _is_bare_repr(message, error) else message


def describe_with_class(error: BaseException | None) -> str:
    """Return the class name of an exception and its message.

    >>> describe_with_class(ValueError("no such city")), describe_with_class(KeyError("rome"))
    ('ValueError: no such city', "KeyError: 'rome'")
    """
    return f"{type(error).__name__}: {get_message(error)}"


def get_message(error: BaseException | None) -> str:
    """Return the message of an exception, or its class name if it has none.

    >>> get_message(KeyError("rome")), get_message(KeyError())
    ("'rome'", 'KeyError')
    """
    try:
        message = str(error)
    except Exception:  # an exception without a working __str__ must not hide the failure
        message = ""
    return escape_surrogates(message or type(error).__name__)


def _is_bare_repr(message: str, error: BaseException | None) -> bool:
    """Return whether a message is only the repr of the exception's argument, such as a KeyError's key."""
    try:
        args = () if error is None else error.args
        if args and args[0] is message:
            return False  # the common case: no text is its own repr
        return len(args) > 0 and message == escape_surrogates(repr(args[0] if len(args) == 1 else args))
    except Exception:  # an argument without a working repr must not raise here
        return False


def _escape_unless_visible(character: str) -> str:
    import unicodedata

    if character in "\n\t" or not (
        _INVISIBLE.match(character) or unicodedata.category(character) in _HIDDEN_CATEGORIES
    ):
        return character
    return _escape(character)


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode()


def with_article(noun: str) -> str:
    """Return a noun, such as a type name, with its indefinite article.

    >>> with_article("int"), with_article("float")
    ('an int', 'a float')
    """
    return f"{'an' if noun[:1].lower() in {*'aeiou'} else 'a'} {noun}"


def describe_type(kind: object) -> str:
    """Return a type as it is written in code, without module names.

    >>> import decimal
    >>> describe_type(decimal.Decimal), describe_type(dict[str, decimal.Decimal]), describe_type("Shop | None")
    ('Decimal', 'dict[str, Decimal]', 'Shop | None')
    """
    if isinstance(kind, type) and not hasattr(kind, "__origin__"):
        return kind.__name__
    text = kind if isinstance(kind, str) else getattr(kind, "__forward_arg__", None) or repr(kind)
    return re.sub(r"(?:\w+\.|<locals>\.)+(?=\w)", "", text)
