"""What is known to be secret while a call is executed, and how texts and values are shown without it."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar, Token
from dataclasses import replace
from functools import cache
from itertools import count
from types import MappingProxyType
from typing import Any, Protocol, TypeAlias

from toolsemble.result import Content, FileContent, TextContent, ToolResult
from toolsemble.schema.decode import Arguments, Decoded, Repair
from toolsemble.schema.display import HIDDEN, UnreadableError, presented
from toolsemble.schema.secret import parameters, property_names
from toolsemble.shape import describe_error

_SHORT = 4  # a text of fewer characters is hidden only where it stands alone

Names: TypeAlias = Callable[[], Collection[str]]
"""Gives the names of fields, which are keys and no secrets; asked only where there are keys."""

Veil: TypeAlias = Token[list[str] | None]

# Grows while the call is read, and has the longest first; calls inside the call see it, in whatever thread they run.
_known: ContextVar[list[str] | None] = ContextVar("toolsemble.secrets", default=None)


secrets: Callable[[], list[str] | None] = _known.get
"""Gives what is known to be secret here; nothing for most calls."""


reveal: Callable[[list[str] | None], object] = _known.set
"""Has only that known to be secret here which is given: that of before, for a call that has ended."""


class Secretive(Protocol):
    """The definition of a tool that takes secrets."""

    @property
    def present(self) -> Callable[..., Any]:
        """From the body's input to what people are shown."""
        ...

    @property
    def arguments(self) -> Arguments | None:
        """How named parameters are checked."""
        ...


def veil() -> Veil:
    """Begin to take down what is secret, beside what is known already, until :func:`unveil`.

    >>> token = veil()
    >>> know(["hunter2"])
    >>> masked("no user has the password hunter2")
    'no user has the password **********'
    >>> unveil(token)
    """
    return _known.set(list(_known.get() or ()))


def unveil(token: Veil) -> None:
    """Forget what was taken down."""
    try:  # noqa: SIM105 - as where contexts are left: suppress() costs more than the rest
        _known.reset(token)
    except ValueError:
        pass  # closed by the collector, it may stand in another context, where there is nothing to undo


def know(texts: Iterable[str]) -> None:
    """Take down texts that must not be shown; without a veil nobody needs to know."""
    known = _known.get()
    if known is not None:
        forms = {form for text in texts if text for form in _forms(text)}
        known[:] = sorted({*known, *forms}, key=len, reverse=True)  # one may be a part of another


def known() -> tuple[str, ...]:
    """Give the texts that must not be shown here.

    >>> known()
    ()
    """
    return tuple(_known.get() or ())


def masked(text: str) -> str:
    """Give a text in which everything that is known to be secret is hidden."""
    for form in _known.get() or ():
        # Not by a regular expression: those are kept for later, with the secret in them.
        if form in text:
            text = text.replace(form, HIDDEN) if len(form) >= _SHORT else _without_word(text, form)
    return text


def masked_value(value: Any) -> Any:
    """Return a JSON value in which everything that is known to be secret is hidden, keys among it.

    Keys that would be the same when they are masked are numbered, so that every entry is shown.

    >>> masked_value({"user": "ada", "keys": ["k1"]})
    {'user': 'ada', 'keys': ['k1']}
    """
    if not _known.get():
        return value
    if isinstance(value, str):
        return masked(value)
    if isinstance(value, Mapping):
        return {key: masked_value(each) for key, each in zip(_masked_keys(value), value.values(), strict=True)}
    if isinstance(value, (list, tuple)):
        return [masked_value(each) for each in value]
    if isinstance(value, (int, float)) and masked(str(value)) == HIDDEN:
        return HIDDEN
    return value


def masked_result(result: ToolResult) -> ToolResult:
    """Give a result that can be shown; the same one where nothing is to be hidden.

    >>> masked_result(ToolResult.success("sunny"))
    ToolResult.success('sunny')
    """
    if not _known.get():
        return result
    return replace(
        result,
        output=masked(result.output),
        error_message=result.error_message and masked(result.error_message),
        structured_output=masked_object(result.structured_output),
        contents=tuple(map(_masked_content, result.contents)),
        attributes=MappingProxyType(
            dict(zip(_masked_keys(result.attributes), map(masked_object, result.attributes.values()), strict=True))
        ),
    )


def masked_object(value: Any) -> Any:
    """Return an object as it is, or as JSON with its secrets hidden when its JSON form or its repr has some.

    >>> masked_object({"at": (1, 2)})
    {'at': (1, 2)}
    """
    if not _known.get():
        return value
    try:
        shown = presented(value)
        hidden = masked_value(shown)
        quoted = repr(value)
    except Exception:  # noqa: BLE001 - an object of somebody's own that cannot be looked into is not shown at all
        return HIDDEN
    # A sink may print the object itself, and its repr can tell more than its JSON form.
    return value if hidden == shown and masked(quoted) == quoted else hidden


def masked_error(error: BaseException | None) -> BaseException | None:
    """Give an exception that can be logged with its traceback; the same one where nothing is to be hidden.

    >>> masked_error(None) is None
    True
    """
    if error is None or not _known.get() or not _tells(error):
        return error
    kind = type(error)
    double: BaseException = type(kind.__name__, (Exception,), {"__module__": kind.__module__})(
        masked(describe_error(error))
    )
    double.with_traceback(error.__traceback__)
    return double.with_traceback(None) if _tells(double) else double  # the code itself may spell it out


def read_secretly(
    definition: Secretive, read: Callable[[Any, frozenset[str]], Decoded], given: Any, steps: frozenset[str]
) -> Decoded:
    """Give what a tool that takes secrets gets; take down what of it is secret, also when it does not fit."""
    try:
        value, repairs = read(given, steps)
    except Exception:
        know(_texts_sent(definition, given))
        raise
    try:
        shown, exact = definition.present(value), definition.present(value, reveal=True)
        know(differing(shown, exact, _names(definition)))
    except UnreadableError:  # nobody is shown it, but its secrets may be in what the body tells
        know(_texts_sent(definition, given))
    return value, _masked_repairs(definition, repairs)


def know_sent(definition: Secretive, sent: Any) -> None:
    """Take down what may be secret in arguments that somebody wrote for a tool that takes secrets."""
    know(_texts_sent(definition, sent))


def differing(shown: Any, exact: Any, names: Names = frozenset) -> Iterator[str]:
    """Give the texts that are in a value and not in what is shown of it, but for keys that are names of fields.

    >>> list(differing({"user": "ada", "key": "*"}, {"user": "ada", "key": "k1"}))
    ['k1']
    """
    if isinstance(shown, dict) and isinstance(exact, dict):
        yield from _differing_entries(shown, exact, names)
    elif isinstance(shown, list) and isinstance(exact, list) and len(shown) == len(exact):
        for one, other in zip(shown, exact, strict=True):
            yield from differing(one, other, names)
    elif shown != exact:
        yield from _texts(exact, names)


def _differing_entries(shown: dict[str, Any], exact: dict[str, Any], names: Names) -> Iterator[str]:
    """Return the texts that are in some entries, keys among them, and not in those that are shown, in their order."""
    if len(shown) != len(exact):
        yield from _texts(exact, names)
        return
    for (key, each), (name, its) in zip(shown.items(), exact.items(), strict=True):
        if key != name:
            yield from _texts(name)
        yield from differing(each, its, names)


def _masked_keys(values: Mapping[Any, Any]) -> list[Any]:
    """Return the keys of a mapping with secrets hidden; a number tells those apart that would be the same."""
    keys = {key: _masked_key(key) for key in values}
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


def _masked_key(key: Any) -> Any:
    if isinstance(key, str):
        return masked(key)
    written = str(key)
    hidden = masked(written)
    partly = isinstance(key, (int, float)) and hidden != HIDDEN  # a number that only has the digits of a secret in it
    return key if hidden == written or partly else hidden


def _masked_content(content: Content) -> Content:
    """Return a content without secrets; bytes that hold one are not shown at all."""
    if isinstance(content, TextContent):
        return TextContent(masked(content.text))
    telling = any(len(form) >= _SHORT and form.encode(errors="replace") in content.data for form in known())
    shown = replace(content, data=HIDDEN.encode()) if telling else content
    return replace(shown, name=masked(shown.name)) if isinstance(shown, FileContent) else shown


def _texts_sent(definition: Secretive, sent: Any) -> Iterator[str]:
    """Give every text under a name that is not known to be harmless: a model may have misspelled it."""
    if isinstance(sent, str):
        try:
            sent = json.loads(sent)
        except (ValueError, RecursionError):
            yield sent  # nobody knows what is what in it
            return
    values = sent if isinstance(sent, dict) else {"": presented(sent, reveal=True)}
    arguments = definition.arguments
    harmless = parameters(arguments.schema).keys() - arguments.secret_keys if arguments is not None else ()
    names = _names(definition)
    for key, each in values.items():
        if key not in harmless:
            yield from _texts(each, names)


def _names(definition: Secretive) -> Names:
    arguments = definition.arguments
    return frozenset if arguments is None else cache(lambda: property_names(arguments.schema))


def _masked_repairs(definition: Secretive, repairs: Sequence[Repair]) -> Sequence[Repair]:
    for repair in repairs:
        if repair["step"] == "keys":
            continue  # the names of parameters, and nothing that was sent under them
        top = re.split(r"[.\[]", str(repair["path"]))[0]
        for each in (repair["from"], repair["to"]):
            know_sent(definition, each if top == "$" else {top: each})
    return [masked_value(repair) for repair in repairs]


def texts_in(value: Any) -> Iterator[str]:
    """Return every text in a JSON value, the keys of objects among them.

    >>> list(texts_in({"user": ["ada", 17]}))
    ['user', '17', 'ada']
    """
    left = [value]  # not by recursion: a model decides how deep it is
    while left:
        each = left.pop()
        if isinstance(each, dict):
            yield from each
            left += each.values()
        elif isinstance(each, list):
            left += each
        else:
            yield from _texts(each)


def _texts(value: Any, names: Names = frozenset) -> Iterator[str]:
    """Return the texts in a JSON value, and its keys but for those that are names of fields."""
    if isinstance(value, dict):
        for key, each in value.items():
            yield from () if key in names() else _texts(key)
            yield from _texts(each, names)
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from _texts(each, names)
    elif isinstance(value, str):
        yield value
        yield from _decoded(value)
    elif value is not None and not isinstance(value, bool):
        yield str(value)


def _decoded(text: str) -> Iterator[str]:
    """Give what a text stands for when it is bytes, which are shown as base64."""
    try:
        inner = base64.b64decode(text, validate=True).decode()
    except (binascii.Error, ValueError):
        return
    if len(inner) >= _SHORT and inner.isprintable():
        yield inner


def _without_word(text: str, word: str) -> str:
    """Give a text in which a word is hidden where it stands alone."""
    shown, *rest = text.split(word)
    for part in rest:
        alone = not (_in_word(shown[-1:]) or _in_word(part[:1]))
        shown += (HIDDEN if alone else word) + part
    return shown


def _in_word(character: str) -> bool:
    return character.isalnum() or character == "_"


def _forms(text: str) -> Iterator[str]:
    """Give a text in the forms in which a message may quote it."""
    from urllib.parse import quote, quote_plus  # noqa: PLC0415 - calls without secrets never pay for it

    yield text
    yield repr(text)[1:-1]
    yield json.dumps(text)[1:-1]
    yield json.dumps(text, ensure_ascii=False)[1:-1]
    yield quote(text, safe="", errors="replace")
    yield quote(text, errors="replace")
    yield quote_plus(text, errors="replace")
    if len(text) >= _SHORT:
        yield base64.b64encode(text.encode(errors="replace")).decode()  # bytes are shown as base64


def _tells(error: BaseException) -> bool:
    import traceback  # noqa: PLC0415 - as above

    try:
        told = "".join([*traceback.format_exception(error), repr(error)])
    except Exception:  # noqa: BLE001 - an exception of somebody's own that cannot be looked into
        return True
    return masked(told) != told
