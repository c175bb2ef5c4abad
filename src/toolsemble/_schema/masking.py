"""The secrets known while a call runs, masked in texts, values, results, exceptions and log records."""

from __future__ import annotations

import base64
import binascii
import json
import logging
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar, Token
from dataclasses import replace
from functools import cache
from itertools import count
from types import MappingProxyType
from typing import Any, Protocol, TypeAlias

from toolsemble._runtime.text import HIDDEN, describe_error
from toolsemble._schema.decode import Arguments, Decoded, Repair
from toolsemble._schema.secret_values import parameters, property_names
from toolsemble._vocabulary.result import Content, FileContent, TextContent, ToolResult

_SHORT = 4  # a shorter secret is masked only as a whole word

Names: TypeAlias = Callable[[], Collection[str]]
"""Returns the field names, which are keys and not secrets; called only for values with keys."""

MaskingToken: TypeAlias = Token[list[str] | None]

# Grows while the arguments are read, longest secret first; nested calls see it in any thread.
_known: ContextVar[list[str] | None] = ContextVar("toolsemble.secrets", default=None)


secrets: Callable[[], list[str] | None] = _known.get
"""Return the secrets known in this context; None for most calls."""


restore_secrets: Callable[[list[str] | None], object] = _known.set
"""Replace the secrets known in this context; at the end of a call, by the previous ones."""


class TakesSecrets(Protocol):
    """The part of a tool definition that masking needs."""

    @property
    def present(self) -> Callable[..., Any]:
        """Convert the body's input to its display form."""
        ...

    @property
    def arguments(self) -> Arguments | None:
        """The parameters and their schema; None for a tool without named parameters."""
        ...


def start_masking() -> MaskingToken:
    """Start collecting secrets, in addition to the known ones, until :func:`stop_masking`.

    >>> token = start_masking()
    >>> add_secrets(["hunter2"])
    >>> mask_text("no user has the password hunter2")
    'no user has the password **********'
    >>> stop_masking(token)
    """
    return _known.set(list(_known.get() or ()))


def stop_masking(token: MaskingToken) -> None:
    """Forget the secrets collected since :func:`start_masking`."""
    try:  # noqa: SIM105 - suppress() costs more than the reset
        _known.reset(token)
    except ValueError:
        pass  # a generator closed by the garbage collector may run in another context, with nothing to undo


def add_secrets(texts: Iterable[str]) -> None:
    """Add texts that must be masked; do nothing outside :func:`start_masking`."""
    known = _known.get()
    if known is not None:
        forms = {form for text in texts if text for form in _forms(text)}
        known[:] = sorted({*known, *forms}, key=len, reverse=True)  # one secret may contain another


def known_secrets() -> tuple[str, ...]:
    """Return the texts that are masked in this context.

    >>> known_secrets()
    ()
    """
    return tuple(_known.get() or ())


def mask_text(text: str) -> str:
    """Return a text with all known secrets masked."""
    for form in _known.get() or ():
        # Not a regular expression: re caches patterns, and the secret with them.
        if form in text:
            text = text.replace(form, HIDDEN) if len(form) >= _SHORT else _mask_word(text, form)
    return text


def mask_value(value: Any) -> Any:
    """Return a JSON value with all known secrets masked, also in keys.

    Masked keys that become equal are numbered, so that no entry is lost.

    >>> mask_value({"user": "ada", "keys": ["k1"]})
    {'user': 'ada', 'keys': ['k1']}
    """
    if not _known.get():
        return value
    if isinstance(value, str):
        return mask_text(value)
    if isinstance(value, Mapping):
        return {key: mask_value(each) for key, each in zip(_mask_keys(value), value.values(), strict=True)}
    if isinstance(value, (list, tuple)):
        return [mask_value(each) for each in value]
    if isinstance(value, (int, float)) and mask_text(str(value)) == HIDDEN:
        return HIDDEN
    return value


def mask_result(result: ToolResult) -> ToolResult:
    """Return a result with all known secrets masked; the same object when there are none.

    >>> mask_result(ToolResult.success("sunny"))
    ToolResult.success('sunny')
    """
    if not _known.get():
        return result
    return replace(
        result,
        output=mask_text(result.output),
        error_message=result.error_message and mask_text(result.error_message),
        structured_output=mask_object(result.structured_output),
        contents=tuple(map(_mask_content, result.contents)),
        attributes=MappingProxyType(
            dict(zip(_mask_keys(result.attributes), map(mask_object, result.attributes.values()), strict=True))
        ),
    )


def mask_object(value: Any) -> Any:
    """Return an object unchanged, or its JSON form with secrets masked if that or its repr contains any.

    >>> mask_object({"at": (1, 2)})
    {'at': (1, 2)}
    """
    if not _known.get():
        return value
    from toolsemble._schema.display import to_display

    try:
        shown = to_display(value)
        hidden = mask_value(shown)
        quoted = repr(value)
    except Exception:  # an object that cannot be inspected is not shown at all
        return HIDDEN
    # A sink may print the object itself, and its repr can contain more than its JSON form.
    return value if hidden == shown and mask_text(quoted) == quoted else hidden


def mask_error(error: BaseException | None) -> BaseException | None:
    """Return an exception to be logged with its traceback; the same object if it contains no secret.

    >>> mask_error(None) is None
    True
    """
    if error is None or not _known.get() or not _contains_secret(error):
        return error
    kind = type(error)
    masked: BaseException = type(kind.__name__, (Exception,), {"__module__": kind.__module__})(
        mask_text(describe_error(error))
    )
    masked.with_traceback(error.__traceback__)
    return masked.with_traceback(None) if _contains_secret(masked) else masked  # the source lines may contain it


def read_with_secrets(
    definition: TakesSecrets, read: Callable[[Any, frozenset[str]], Decoded], given: Any, steps: frozenset[str]
) -> Decoded:
    """Return the decoded input of a tool that takes secrets; add its secrets, even when decoding fails."""
    from toolsemble._schema.display import DisplayError

    try:
        value, repairs = read(given, steps)
    except Exception:
        add_secrets(_find_sent_texts(definition, given))
        raise
    try:
        shown, exact = definition.present(value), definition.present(value, reveal=True)
        add_secrets(find_hidden_texts(shown, exact, _field_names(definition)))
    except DisplayError:  # it is never shown, but the body may return its secrets
        add_secrets(_find_sent_texts(definition, given))
    return value, _mask_repairs(definition, repairs)


def add_sent_secrets(definition: TakesSecrets, sent: Any) -> None:
    """Add the possible secrets in undecoded arguments of a tool that takes secrets."""
    add_secrets(_find_sent_texts(definition, sent))


def find_hidden_texts(shown: Any, exact: Any, names: Names = frozenset) -> Iterator[str]:
    """Yield the texts of a value that are missing in its shown form, except keys that are field names.

    >>> list(find_hidden_texts({"user": "ada", "key": "*"}, {"user": "ada", "key": "k1"}))
    ['k1']
    """
    if isinstance(shown, dict) and isinstance(exact, dict):
        yield from _find_hidden_entries(shown, exact, names)
    elif isinstance(shown, list) and isinstance(exact, list) and len(shown) == len(exact):
        for one, other in zip(shown, exact, strict=True):
            yield from find_hidden_texts(one, other, names)
    elif shown != exact:
        yield from _iter_texts(exact, names)


def _find_hidden_entries(shown: dict[str, Any], exact: dict[str, Any], names: Names) -> Iterator[str]:
    """Yield the texts of entries, keys included, that are missing in the shown entries, in order."""
    if len(shown) != len(exact):
        yield from _iter_texts(exact, names)
        return
    for (key, each), (name, its) in zip(shown.items(), exact.items(), strict=True):
        if key != name:
            yield from _iter_texts(name)
        yield from find_hidden_texts(each, its, names)


def _mask_keys(values: Mapping[Any, Any]) -> list[Any]:
    """Return the keys of a mapping with secrets masked; keys that become equal are numbered."""
    keys = {key: _mask_key(key) for key in values}
    taken = {key for key, shown in keys.items() if key == shown}
    numbers: dict[str, Iterator[int]] = {}
    for key, shown in keys.items():
        if key != shown:
            free = shown
            while free in taken:
                free = f"{shown} ({next(numbers.setdefault(shown, count(2)))})"
            taken.add(free)
            keys[key] = free
    return list(keys.values())


def _mask_key(key: Any) -> Any:
    if isinstance(key, str):
        return mask_text(key)
    written = str(key)
    hidden = mask_text(written)
    partly = isinstance(key, (int, float)) and hidden != HIDDEN  # a number that merely contains the digits of a secret
    return key if hidden == written or partly else hidden


def _mask_content(content: Content) -> Content:
    """Return a content with secrets masked; bytes that contain one are replaced as a whole."""
    if isinstance(content, TextContent):
        return TextContent(mask_text(content.text))
    held = content.url.encode() or content.data
    contains_secret = any(len(form) >= _SHORT and form.encode(errors="replace") in held for form in known_secrets())
    shown = replace(content, data=HIDDEN.encode(), url="") if contains_secret else content
    return replace(shown, name=mask_text(shown.name)) if isinstance(shown, FileContent) else shown


def _find_sent_texts(definition: TakesSecrets, sent: Any) -> Iterator[str]:
    """Yield every text except the values of parameters without secrets: a model may misspell names."""
    if isinstance(sent, str):
        try:
            sent = json.loads(sent)
        except (ValueError, RecursionError):
            yield sent  # not JSON: all of it may be secret
            return
    from toolsemble._schema.display import to_display

    values = sent if isinstance(sent, dict) else {"": to_display(sent, reveal=True)}
    arguments = definition.arguments
    harmless = parameters(arguments.schema).keys() - arguments.secret_keys if arguments is not None else ()
    names = _field_names(definition)
    for key, each in values.items():
        if key not in harmless:
            yield from _iter_texts(each, names)


def _field_names(definition: TakesSecrets) -> Names:
    arguments = definition.arguments
    return frozenset if arguments is None else cache(lambda: property_names(arguments.schema))


def _mask_repairs(definition: TakesSecrets, repairs: Sequence[Repair]) -> Sequence[Repair]:
    for repair in repairs:
        if repair["step"] == "keys":
            continue  # only parameter names, no values
        top = re.split(r"[.\[]", str(repair["path"]))[0]
        for each in (repair["from"], repair["to"]):
            add_sent_secrets(definition, each if top == "$" else {top: each})
    return [mask_value(repair) for repair in repairs]


def find_texts(value: Any) -> Iterator[str]:
    """Yield every text in a JSON value, including the keys of objects.

    >>> list(find_texts({"user": ["ada", 17]}))
    ['user', '17', 'ada']
    """
    left = [value]  # not recursive: a model controls the depth
    while left:
        each = left.pop()
        if isinstance(each, dict):
            yield from each
            left += each.values()
        elif isinstance(each, list):
            left += each
        else:
            yield from _iter_texts(each)


def _iter_texts(value: Any, names: Names = frozenset) -> Iterator[str]:
    """Yield the texts in a JSON value and its keys, except keys that are field names."""
    if isinstance(value, dict):
        for key, each in value.items():
            yield from () if key in names() else _iter_texts(key)
            yield from _iter_texts(each, names)
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from _iter_texts(each, names)
    elif isinstance(value, str):
        yield value
        yield from _decode_base64(value)
    elif value is not None and not isinstance(value, bool):
        yield str(value)


_STANDARD, _URL_SAFE = str.maketrans("-_", "+/"), str.maketrans("+/", "-_")


def _decode_base64(text: str) -> Iterator[str]:
    """Yield the decoded text of base64, the form in which bytes are shown."""
    try:
        inner = base64.b64decode(text.translate(_STANDARD), validate=True).decode()
    except (binascii.Error, ValueError):
        return
    if len(inner) >= _SHORT and inner.isprintable():
        yield inner


def _mask_word(text: str, word: str) -> str:
    """Return a text in which a secret is masked where it is a whole word."""
    shown, *rest = text.split(word)
    for part in rest:
        alone = not (_is_word_character(shown[-1:]) or _is_word_character(part[:1]))
        shown += (HIDDEN if alone else word) + part
    return shown


def _is_word_character(character: str) -> bool:
    return character.isalnum() or character == "_"


def _forms(text: str) -> Iterator[str]:
    """Yield the forms of a text that a message may quote."""
    from urllib.parse import quote, quote_plus

    yield text
    yield repr(text)[1:-1]
    yield json.dumps(text)[1:-1]
    yield json.dumps(text, ensure_ascii=False)[1:-1]
    yield quote(text, safe="", errors="replace")
    yield quote(text, errors="replace")
    yield quote_plus(text, errors="replace")
    if len(text) >= _SHORT:
        encoded = base64.b64encode(text.encode(errors="replace")).decode()  # bytes are shown as base64
        yield encoded
        yield encoded.translate(_URL_SAFE)


def _contains_secret(error: BaseException) -> bool:
    import traceback

    try:
        text = "".join([*traceback.format_exception(error), repr(error)])
    except Exception:  # an exception that cannot be formatted may contain anything
        return True
    return mask_text(text) != text


class Redaction(logging.Filter):
    """A filter that masks the known secrets of the current context in log records; it drops no records."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Mask the message, the traceback and the stack of a record, if a secret is known; always return True."""
        if secrets():
            record.msg, record.args = mask_text(_format_message(record)), ()
            if record.exc_info and (error := mask_error(record.exc_info[1])) is not None:
                record.exc_info = type(error), error, error.__traceback__
            record.stack_info = record.stack_info and mask_text(record.stack_info)
        return True


REDACTION = Redaction()
"""The filter of the loggers of all tools."""


def _format_message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except Exception:  # wrong format arguments must not fail a call
        return f"{record.msg} {record.args!r}"
