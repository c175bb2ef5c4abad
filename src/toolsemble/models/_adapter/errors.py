"""Conversion of provider errors: rejected, cut off or incomplete replies; keys are masked."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Set as AbstractSet
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from toolsemble._runtime.text import describe_error, preview
from toolsemble._vocabulary.errors import ModelError, ToolConfigurationError, ToolsembleError
from toolsemble.models._adapter.retry import parse_retry_after
from toolsemble.models._adapter.wire import field
from toolsemble.models._chat import StopReason, find_too_long

_SHOWN = 500
_SERVER_ERROR = re.compile(r"5\d\d\b")  # some codes have a name after the number
_BEFORE_KEY = r"(?:(?<=[\"'`:=])|(?<=[:=] )|(?<=[Bb]earer ))"
_SHORT = 8  # shorter keys occur by chance inside words


def quote(text: str, secrets: Iterable[str | None] = ()) -> str:
    """Return a server's message on one line, truncated, with keys masked.

    >>> quote("No such key: s3cret", ["s3cret", None])
    'No such key: ***'
    """
    return preview(mask_keys(text, secrets), _SHOWN)


def mask_keys(text: str, secrets: Iterable[str | None]) -> str:
    """Return a text with keys replaced by asterisks.

    A short key, such as a dummy for a local server, is replaced only as a word; a letters-only key may be a word in the
    message, and is replaced only in quotes, after a colon or an equals sign, and after "Bearer".

    >>> mask_keys("No such key: s3cret", ["s3cret", None]), mask_keys("No such key: k", ["k"])
    ('No such key: ***', 'No such key: ***')
    >>> mask_keys("Incorrect API key provided: 'key'", ["key"])
    "Incorrect API key provided: '***'"
    """
    for secret in filter(None, secrets):
        text = re.sub(_find_pattern(secret), "***", text)
    return text


def _find_pattern(secret: str) -> str:
    found = re.escape(secret)
    if len(secret) >= _SHORT:
        return found
    before = _BEFORE_KEY if secret.isalpha() else ""
    return rf"{before}(?<!\w){found}(?!\w)"


def read_reason(body: object) -> str:
    """Return the message in an error body, in any common format; empty if there is none.

    >>> read_reason({"error": {"message": "Overloaded"}}), read_reason({"detail": [{"msg": "bad"}]}), read_reason(None)
    ('Overloaded', '[{"msg": "bad"}]', '')
    """
    reason = body
    while (inner := field(reason, "message", "detail", "error")) is not None:
        reason = inner
    return reason if isinstance(reason, str) else json.dumps(reason, default=str) if reason else ""


def status_error(
    provider: str, code: object, reason: str, headers: Mapping[str, str], *, retryable: bool
) -> ModelError:
    """Return the error for a request that was rejected or failed.

    :param reason: the provider's message, quoted

    >>> status_error("Mistral", 429, "Slow down", {"retry-after": "7"}, retryable=True)
    ModelError('Mistral refused the request (429): Slow down')
    """
    verb = "failed to answer" if _SERVER_ERROR.match(str(code)) else "refused the request"
    message = f"{provider} {verb} ({code}): {reason}"
    return ModelError(message, retryable=retryable, retry_after=parse_retry_after(headers))


def connection_error(provider: str, problem: BaseException, secrets: Iterable[str | None] = ()) -> ModelError:
    """Return the retryable error for a connection that failed, timed out or broke.

    >>> connection_error("Mistral", ConnectionError("no route"))
    ModelError('The connection to Mistral failed: no route (ConnectionError)')
    """
    # Some exceptions have no message, and for some the class name says more than the message.
    message = quote(f"{problem} ({type(problem).__name__})".strip(), secrets)
    return ModelError(f"The connection to {provider} failed: {message}", retryable=True)


def cut_off_error(provider: str) -> ModelError:
    """Return the retryable error for a truncated stream.

    >>> cut_off_error("Mistral")
    ModelError("Mistral's answer was cut off before its end")
    """
    return ModelError(f"{provider}'s answer was cut off before its end", retryable=True)


def unreadable_error(provider: str, problem: BaseException) -> ModelError:
    """Return the retryable error for an answer that cannot be parsed.

    >>> unreadable_error("Mistral", ValueError("not JSON"))
    ModelError("Mistral's answer cannot be read: not JSON")
    """
    return ModelError(f"{provider}'s answer cannot be read: {quote(str(problem))}", retryable=True)


_SECRET_HEADER = re.compile("auth|key|token|secret|cookie", re.IGNORECASE)
_SCHEME = re.compile(r"(?:bearer|basic)\s+", re.IGNORECASE)


@contextmanager
def mask_keys_in_errors(keys: Callable[[], Iterable[Any]]) -> Iterator[None]:
    """Mask keys in exceptions raised inside, and drop an exception's cause and context if they contain one.

    A provider may repeat a key anywhere: in an error, in an answer, in place of a number.

    :param keys: returns the keys; called when an exception is raised; values that are not a str, or empty, are ignored

    >>> with mask_keys_in_errors(lambda: ["s3cret"]):
    ...     raise ModelError("No such key: s3cret")
    Traceback (most recent call last):
    ...
    toolsemble.ModelError: No such key: ***
    """
    try:
        yield
    except Exception as error:
        found = [key for key in keys() if isinstance(key, str) and key]
        if not _contains_key(error, found):
            raise
        safe = _mask(error, found)
        try:
            raise safe from None
        finally:
            safe.__context__ = None  # set by the raise statement, and contains the key


def find_keys(headers: Mapping[str, Any]) -> Iterator[str]:
    """Yield the values of headers that carry keys, without an authentication scheme.

    >>> list(find_keys({"Authorization": "Bearer s3cret", "Accept": "text/html"}))
    ['s3cret']
    """
    for name, value in headers.items():
        if isinstance(value, str) and _SECRET_HEADER.search(name):
            yield _SCHEME.sub("", value)


def _contains_key(error: BaseException, keys: list[str]) -> bool:
    """Return whether an exception, or its causes and contexts (also suppressed ones), contain a key."""
    waiting, seen = [error], set[int]()
    while waiting:
        each = waiting.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        text = f"{each!s} {each!r} {getattr(each, '__notes__', '')}"
        if mask_keys(text, keys) != text:
            return True
        waiting += [inner for inner in (each.__cause__, each.__context__) if inner is not None]
    return False


def _mask(error: Exception, keys: list[str]) -> Exception:
    message = mask_keys(describe_error(error), keys)
    if isinstance(error, ToolConfigurationError):
        return ToolConfigurationError(message)
    if isinstance(error, ModelError):
        return ModelError(message, retryable=error.retryable, retry_after=error.retry_after)
    return ModelError(f"{message} ({type(error).__name__})")


@dataclass(frozen=True, slots=True)
class StopReasons:
    """The stop reasons of a provider.

    >>> reasons = StopReasons("Gemini", {"STOP": "stop", "SAFETY": "refusal"}, {"MALFORMED_FUNCTION_CALL"})
    >>> reasons.read("STOP", has_calls=True, has_text=False)
    'calls'
    >>> reasons.read("SAFETY", has_calls=False, has_text=False)
    Traceback (most recent call last):
    ...
    toolsemble.ModelError: Gemini refused to answer (SAFETY)
    """

    provider: str
    """The name in errors."""
    stops: Mapping[str, StopReason]
    """The meaning of each reason; unknown ones mean "other"."""
    malformed: AbstractSet[str] = frozenset()
    """Reasons for a call that the service could not parse."""
    may_be_empty: bool = False
    """Whether an empty answer is valid; otherwise it is an error."""

    def read(self, reason: str, *, has_calls: bool, has_text: bool, why: str = "") -> StopReason:
        """Return why an answer ended; raise a :class:`~toolsemble.ModelError` if it is incomplete or empty.

        :param why: the provider's explanation of a refusal
        """
        if not reason:
            raise cut_off_error(self.provider)
        stop = self.stops.get(reason, "other")
        if has_calls:
            return stop if stop == "length" else "calls"
        if reason in self.malformed:
            # The text next to a lost call is not an answer.
            raise ModelError(f"{self.provider} wrote a call that cannot be read ({reason})", retryable=True)
        if not has_text:
            self._check_empty(f"({reason}): {why}" if why else f"({reason})", stop)
        return stop

    def _check_empty(self, reason: str, stop: StopReason) -> None:
        if stop == "refusal":
            raise ModelError(f"{self.provider} refused to answer {reason}")
        if stop == "length":
            raise ModelError(
                f"{self.provider} reached the token limit before it answered {reason}; raise the limit, or send less"
            )
        if not self.may_be_empty:
            raise ModelError(f"{self.provider} sent an empty answer {reason}", retryable=True)


@contextmanager
def translate_errors(
    provider: str, keys: Callable[[], Iterable[Any]], translate: Callable[[Any, list[str]], Exception | None]
) -> Iterator[None]:
    """Convert a package's errors to errors of this library, with keys masked.

    :param keys: returns the keys; called when an exception is raised
    :param translate: returns the error for an exception and the keys; None if it is not the package's

    >>> with translate_errors("Toy", lambda: ["s3cret"], lambda error, keys: None):
    ...     json.loads("s3cret")
    Traceback (most recent call last):
    ...
    toolsemble.ModelError: Toy's answer cannot be read: Expecting value: line 1 column 1 (char 0)
    """
    with mask_keys_in_errors(keys):
        try:
            yield
        except ToolsembleError:
            raise
        except Exception as error:
            translated = find_too_long(error) or translate(error, [key for key in keys() if isinstance(key, str)])
            if translated is None and isinstance(error, (json.JSONDecodeError, UnicodeDecodeError, RecursionError)):
                translated = unreadable_error(provider, error)
            if translated is None:
                raise
            raise translated from error
