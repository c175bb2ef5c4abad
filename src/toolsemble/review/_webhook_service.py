"""The other side of a webhook: reading posted requests, and signing the answers to them."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from toolsemble._runtime.signing import secret_bytes
from toolsemble._vocabulary.call import new_id
from toolsemble._vocabulary.errors import ReviewRefusedError, ToolDefinitionError
from toolsemble.review._request import Continue, Edit, ReviewDecision, ReviewRequest
from toolsemble.review._store.signed import MAX_CLOCK_SKEW, split_decision

_PREFIX = "whsec_"


def webhook_key(secret: str | bytes) -> bytes:
    """Return the key of a secret: base64 after ``whsec_``, as in the specification, else the text itself.

    >>> webhook_key("whsec_c2VjcmV0"), webhook_key("secret")
    (b'secret', b'secret')
    """
    if not isinstance(secret, str) or not secret.startswith(_PREFIX):
        return secret_bytes(secret)
    try:
        return secret_bytes(base64.b64decode(secret.removeprefix(_PREFIX), validate=True))
    except binascii.Error as error:
        raise ToolDefinitionError(f"A webhook secret must be base64 after '{_PREFIX}': {error}") from None


def sign_headers(key: bytes, id: str, body: bytes, now: float) -> dict[str, str]:
    """Return the headers with the id, the time and the signature of a message.

    >>> sign_headers(b"secret", "msg_1", b"{}", 1700000000.0)["webhook-timestamp"]
    '1700000000'
    """
    timestamp = f"{now:.0f}"
    return {
        "webhook-id": id,
        "webhook-timestamp": timestamp,
        "webhook-signature": _signature(key, id, timestamp, body).decode(),
    }


def check_signature(key: bytes, body: bytes, headers: Mapping[str, str], now: float) -> None:
    """Raise ReviewRefusedError for a message that is not signed with the key, or is too old or too new.

    >>> check_signature(b"secret", b"{}", sign_headers(b"secret", "msg_1", b"{}", 1700000000.0), 1700000000.0)
    """
    given = {f"{name}".lower(): f"{value}" for name, value in headers.items()}
    id_, timestamp = given.get("webhook-id", ""), given.get("webhook-timestamp", "")
    # With a dot, the end of an id could be read as a timestamp.
    if not re.fullmatch(r"[^.]+", id_) or not re.fullmatch(r"[0-9]{1,12}", timestamp):
        raise ReviewRefusedError("the message has no webhook-id or no webhook-timestamp")
    expected = _signature(key, id_, timestamp, body)
    signatures = given.get("webhook-signature", "").split(" ")
    if not any(hmac.compare_digest(expected, each.encode(errors="replace")) for each in signatures):
        raise ReviewRefusedError("the signature does not fit")
    if abs(now - int(timestamp)) > MAX_CLOCK_SKEW:
        raise ReviewRefusedError("the message is too old, or from the future; check the clock")


def _signature(key: bytes, id: str, timestamp: str, body: bytes) -> bytes:
    signed = f"{id}.{timestamp}.".encode(errors="replace") + body
    return b"v1," + base64.b64encode(hmac.digest(key, signed, hashlib.sha256))


_UNREADABLE = "the message is not one of WebhookReview"
_ADDED = ("deadline", "arguments_digest")  # computed by a request; posted for those who have no such class


@dataclass(frozen=True, slots=True)
class WebhookMessage:
    """The message that a WebhookReview posts: requests for approval, and where their answers go.

    >>> WebhookMessage((ReviewRequest("Pays", "pay", {"order": 7}),), "https://example.com/answers").requests[0].tool_name
    'pay'
    """

    requests: tuple[ReviewRequest, ...]
    """The requests; each gets an answer of its own."""
    callback_url: str
    """The URL to which answers are posted; "" if the reviewer was given none."""


def read_webhook(
    body: bytes, headers: Mapping[str, str], secret: str | bytes, *, now: float | None = None
) -> WebhookMessage:
    """Return the message in the body of a request; raise ReviewRefusedError if it is not signed with the secret.

    A message may arrive twice, because a WebhookReview posts it again if it gets no answer: requests have the same ids.

    :param body: the body, byte by byte as it was posted
    :param headers: the HTTP headers, in any case
    :param secret: the secret of the WebhookReview
    :param now: the time in seconds since the epoch; None: the clock

    >>> read_webhook(b"{}", {}, "secret")
    Traceback (most recent call last):
    ...
    toolsemble.ReviewRefusedError: the message has no webhook-id or no webhook-timestamp
    """
    check_signature(webhook_key(secret), body, headers, time.time() if now is None else now)
    try:
        values = json.loads(body)
        requests = tuple(_read_request(each) for each in values["requests"])
        return WebhookMessage(requests, str(values["callback_url"]))
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        raise ReviewRefusedError(_UNREADABLE) from None


def sign_answer(
    request: ReviewRequest,
    decision: ReviewDecision,
    secret: str | bytes,
    *,
    person: str = "",
    role: str = "",
    now: float | None = None,
) -> tuple[bytes, dict[str, str]]:
    """Return the body and the headers of an answer, to be posted to the callback URL of its message.

    The response says what became of it: 200 for success; 404 and 409 for a request that is unknown, or was answered or
    closed already. The text of the response has the reason.

    :param request: the request that the person saw
    :param decision: Continue, Edit or ExitEarly
    :param secret: the secret of the WebhookReview
    :param person: who decided
    :param role: the role of the person, if the request requires one
    :param now: the time in seconds since the epoch; None: the clock

    >>> request = ReviewRequest("Pays", "pay", {"order": 7}, id="4f1c")
    >>> body, headers = sign_answer(request, Continue(), "secret", person="ada")
    >>> json.loads(body)["decision"], sorted(headers)
    ('continue', ['content-type', 'webhook-id', 'webhook-signature', 'webhook-timestamp'])
    """
    answer: dict[str, Any] = {
        "request_id": request.id,
        "arguments_digest": request.arguments_digest,
        "person": person,
        "role": role,
        **_to_fields(decision),
    }
    body = json.dumps(answer).encode()
    signed = sign_headers(webhook_key(secret), f"msg_{new_id()}", body, time.time() if now is None else now)
    return body, {"content-type": "application/json", **signed}


def _to_fields(decision: ReviewDecision) -> dict[str, Any]:
    """Return a decision as the fields of an answer; raise ReviewRefusedError for anything else."""
    kind, text, always = split_decision(decision)
    if type(decision) is Continue:
        return {"decision": kind, "always": always}
    return {"decision": kind, "revised" if type(decision) is Edit else "reason": text}


def _read_request(values: dict[str, Any]) -> ReviewRequest:
    return ReviewRequest.from_json(json.dumps({name: value for name, value in values.items() if name not in _ADDED}))
