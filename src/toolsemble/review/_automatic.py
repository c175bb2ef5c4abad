"""Reviewers without a person: approve all, reject all, or call a function."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from toolsemble._runtime.checks import check_seconds
from toolsemble.review._request import Continue, Edit, ExitEarly, ReviewDecision, Reviewer, ReviewRequest

MAX_BYTES = 1_000_000
"""The maximum size of an answer in bytes."""
_KEYS = {"request_id", "decision", "arguments_digest", "revised", "reason", "always", "person", "role"}


@dataclass(frozen=True, slots=True)
class Callback:
    """A parsed answer.

    >>> Callback.read(b'{"request_id": "4f1c", "decision": "continue", "arguments_digest": "9e0a", "person": "ada"}')
    Callback(request_id='4f1c', arguments_digest='9e0a', decision=Continue(always=None), person='ada', role='')
    """

    request_id: str
    """The id of the request."""
    arguments_digest: str
    """The digest of the arguments that the person saw."""
    decision: ReviewDecision
    person: str
    """Who decided."""
    role: str
    """The role of the person."""

    @classmethod
    def read(cls, body: bytes) -> Callback:
        """Return the answer in a body; raise ``ValueError`` for anything else."""
        values = _read(body)
        if not isinstance(values, dict):
            raise ValueError("the body is not a JSON object")
        if unknown := sorted(values.keys() - _KEYS):
            raise ValueError(f"unknown key: {unknown[0]!a}")
        return cls(
            _text(values, "request_id"),
            _text(values, "arguments_digest"),
            _decision(values),
            _text(values, "person", ""),
            _text(values, "role", ""),
        )


def _decision(values: dict[str, Any]) -> ReviewDecision:
    kind = _text(values, "decision")
    extra = {"continue": "always", "edit": "revised", "exit_early": "reason"}.get(kind)
    if extra is None:
        raise ValueError('decision must be "continue", "edit" or "exit_early"')
    for key in ("always", "revised", "reason"):
        if key != extra and key in values:
            raise ValueError(f'"{key}" does not go with the decision "{kind}"')
    if kind == "continue":
        always = values.get("always")
        if always not in (None, "tool", "arguments"):
            raise ValueError('always must be "tool", "arguments" or null')
        return Continue(always)
    return Edit(_text(values, "revised")) if kind == "edit" else ExitEarly(_text(values, "reason", ""))


def _text(values: dict[str, Any], key: str, default: str | None = None) -> str:
    value = values.get(key, default)
    if not isinstance(value, str):
        raise ValueError(f"{key} must be a string")
    return value


def _read(body: bytes) -> Any:
    """Return the value of a JSON text; raise ``ValueError`` if it is ambiguous."""
    try:
        return json.loads(body.decode(), object_pairs_hook=_unique, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"the body is not JSON: {error}") from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) != len(pairs):
        raise ValueError("duplicate key")
    return values


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a number")


@dataclass(frozen=True, slots=True)
class AutoApprove(Reviewer):
    """A reviewer that approves every call, optionally after a delay; for tests and sandboxes.

    >>> from toolsemble._runtime.event_loops import finish
    >>> finish(AutoApprove().review(ReviewRequest("Deletes a file", "delete", "old.log")))
    Continue(always=None)
    """

    delay: float | None = None
    """Seconds before the answer; None: no delay."""

    def __post_init__(self) -> None:
        if self.delay is not None:
            check_seconds("AutoApprove: delay", self.delay, zero=True)

    async def review(self, request: ReviewRequest) -> ReviewDecision:
        """Return the approval; the delay blocks no thread."""
        if self.delay:
            import asyncio

            await asyncio.sleep(self.delay)
        return Continue()


@dataclass(frozen=True, slots=True)
class AutoReject(Reviewer):
    """A reviewer that rejects every call.

    >>> from toolsemble._runtime.event_loops import finish
    >>> finish(AutoReject("read only").review(ReviewRequest("Deletes a file", "delete", "old.log")))
    ExitEarly(reason='read only', timed_out=False)
    """

    reason: str = ""
    """The reason, for the model."""

    async def review(self, request: ReviewRequest) -> ReviewDecision:
        """Return the rejection."""
        return ExitEarly(self.reason)


@dataclass(frozen=True, slots=True)
class CallbackReview(Reviewer):
    """A reviewer that calls a function, sync or async, with the request; it returns the decision.

    An exception, or a return value that is not a decision, rejects the call.

    >>> def decide(request):
    ...     return Continue() if request.arguments["amount"] < 10 else ExitEarly("too much")
    >>> CallbackReview(decide).review(ReviewRequest("Pays", "pay", {"amount": 50}))
    ExitEarly(reason='too much', timed_out=False)
    """

    function: Callable[[ReviewRequest], ReviewDecision | Awaitable[ReviewDecision]]
    """The function that decides."""

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise TypeError(f"CallbackReview needs a function, not {type(self.function).__name__}")

    # Not async: a blocking function then runs in a thread, and its return value is awaited if necessary.
    def review(self, request: ReviewRequest) -> ReviewDecision | Awaitable[ReviewDecision]:
        """Return what the function returns."""
        return self.function(request)
