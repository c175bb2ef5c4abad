"""The other side of a webhook: reading posted requests, and signing the answers to them."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from toolsemble._vocabulary.call import new_id
from toolsemble._vocabulary.errors import ReviewRefusedError
from toolsemble.review._decision import Continue, Edit, ReviewDecision
from toolsemble.review._receipt import split_decision
from toolsemble.review._request import ReviewRequest
from toolsemble.review._signature import check_signature, sign_headers, webhook_key

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
