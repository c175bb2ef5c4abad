"""A strict parser for answers that are posted to a webhook."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from toolsemble.review._decision import Continue, Edit, ExitEarly, ReviewDecision

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
