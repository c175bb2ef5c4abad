"""Signatures of HTTP messages, as in the Standard Webhooks specification."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Mapping

from toolsemble._runtime.signing import secret_bytes
from toolsemble._vocabulary.errors import ReviewRefusedError, ToolDefinitionError
from toolsemble.review._receipt import MAX_CLOCK_SKEW

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
