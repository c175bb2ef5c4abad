"""What is known to be secret while a call is executed, and how texts and values are shown without it."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar, Token
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Protocol, TypeAlias

from toolsemble.result import ToolResult
from toolsemble.schema.decode import Arguments, Decoded, Repair
from toolsemble.schema.present import HIDDEN, presented
from toolsemble.schema.secret import parameters
from toolsemble.shape import described

_SHORT = 4  # a text of fewer characters is hidden only where it stands alone

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
    """Give a JSON value in which everything that is known to be secret is hidden.

    >>> masked_value({"user": "ada", "keys": ["k1"]})
    {'user': 'ada', 'keys': ['k1']}
    """
    if not _known.get():
        return value
    if isinstance(value, str):
        return masked(value)
    if isinstance(value, Mapping):
        return {key: masked_value(each) for key, each in value.items()}
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
        attributes=MappingProxyType({key: masked_object(each) for key, each in result.attributes.items()}),
    )


def masked_object(value: Any) -> Any:
    """Give an object as it is, or as JSON with its secrets hidden when it has some.

    >>> masked_object({"at": (1, 2)})
    {'at': (1, 2)}
    """
    if not _known.get():
        return value
    try:
        shown = presented(value)
        hidden = masked_value(shown)
    except Exception:  # noqa: BLE001 - an object of somebody's own that cannot be looked into is not shown at all
        return HIDDEN
    return value if hidden == shown else hidden


def masked_error(error: BaseException | None) -> BaseException | None:
    """Give an exception that can be logged with its traceback; the same one where nothing is to be hidden.

    >>> masked_error(None) is None
    True
    """
    if error is None or not _known.get() or not _tells(error):
        return error
    kind = type(error)
    double: BaseException = type(kind.__name__, (Exception,), {"__module__": kind.__module__})(masked(described(error)))
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
    know(differing(definition.present(value), definition.present(value, reveal=True)))
    return value, _masked_repairs(definition, repairs)


def know_sent(definition: Secretive, sent: Any) -> None:
    """Take down what may be secret in arguments that somebody wrote for a tool that takes secrets."""
    know(_texts_sent(definition, sent))


def differing(shown: Any, exact: Any) -> Iterator[str]:
    """Give the texts that are in a value and not in what is shown of it.

    >>> list(differing({"user": "ada", "key": "*"}, {"user": "ada", "key": "k1"}))
    ['k1']
    """
    if isinstance(shown, dict) and isinstance(exact, dict):
        for key, each in exact.items():
            yield from differing(shown.get(key), each)
    elif isinstance(shown, list) and isinstance(exact, list) and len(shown) == len(exact):
        for one, other in zip(shown, exact, strict=True):
            yield from differing(one, other)
    elif shown != exact:
        yield from _texts(exact)


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
    for key, each in values.items():
        if key not in harmless:
            yield from _texts(each)


def _masked_repairs(definition: Secretive, repairs: Sequence[Repair]) -> Sequence[Repair]:
    for repair in repairs:
        if repair["step"] == "keys":
            continue  # the names of parameters, and nothing that was sent under them
        top = re.split(r"[.\[]", str(repair["path"]))[0]
        for each in (repair["from"], repair["to"]):
            know_sent(definition, each if top == "$" else {top: each})
    return [masked_value(repair) for repair in repairs]


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for each in value.values():
            yield from _texts(each)
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from _texts(each)
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


def _tells(error: BaseException) -> bool:
    import traceback  # noqa: PLC0415 - as above

    told = "".join(traceback.format_exception(error))
    return masked(told) != told
