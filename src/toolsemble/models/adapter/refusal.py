"""What is said when there is no answer: by the server, by the connection, or by us about a stream that stopped."""

from __future__ import annotations

from collections.abc import Iterable

from toolsemble.errors import ModelError
from toolsemble.runtime.text import preview

_SHOWN = 500


def shown(text: str, secrets: Iterable[str | None] = ()) -> str:
    """Give what a server said, on one line, not too long, and without keys that it repeats.

    >>> shown("No such key: s3cret", ["s3cret", None])
    'No such key: ***'
    """
    return preview(masked(text, secrets), _SHOWN)


def masked(text: str, secrets: Iterable[str | None]) -> str:
    """Return a text with keys blotted out.

    >>> masked("No such key: s3cret", ["s3cret", None])
    'No such key: ***'
    """
    for secret in filter(None, secrets):
        text = text.replace(secret, "***")
    return text


def broken(provider: str, problem: BaseException, secrets: Iterable[str | None] = ()) -> ModelError:
    """Give the error for a connection that failed, timed out or broke in the middle: worth another try.

    >>> broken("Mistral", ConnectionError("no route"))
    ModelError('The connection to Mistral failed: no route (ConnectionError)')
    """
    # Some say nothing but their name, and of some the name says more than the words.
    said = shown(f"{problem} ({type(problem).__name__})".strip(), secrets)
    return ModelError(f"The connection to {provider} failed: {said}", retryable=True)


def cut_off(provider: str) -> ModelError:
    """Give the error for a stream without an end: worth another try.

    >>> cut_off("Mistral")
    ModelError("Mistral's answer was cut off before its end")
    """
    return ModelError(f"{provider}'s answer was cut off before its end", retryable=True)


def unreadable(provider: str, problem: BaseException) -> ModelError:
    """Give the error for an answer that makes no sense: a model that is asked again may write another.

    >>> unreadable("Mistral", ValueError("no JSON"))
    ModelError("Mistral's answer cannot be read: no JSON")
    """
    return ModelError(f"{provider}'s answer cannot be read: {shown(str(problem))}", retryable=True)
