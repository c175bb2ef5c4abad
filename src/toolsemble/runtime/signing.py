"""Seals: what shows that a text was written by somebody who has the secret, and was not changed since."""

from __future__ import annotations

import hashlib
import hmac
import json
from typing import Any

from toolsemble.errors import ToolDefinitionError


def canonical_json(value: Any) -> str:
    """Give a JSON value as the one text that stands for it, in ASCII.

    >>> canonical_json({"b": "x", "a": 1.5})
    '{"a":1.5,"b":"x"}'
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def sign(secret: str | bytes, kind: str, value: Any) -> str:
    """Give the seal of a JSON value; one of another kind, or under another secret, has another seal.

    >>> sign(b"secret", "receipt", {"a": 1}) == sign(b"secret", "request", {"a": 1})
    False
    """
    return hmac.digest(secret_bytes(secret), canonical_json([kind, value]).encode(), hashlib.sha256).hex()


def is_signed(given: str, secret: str | bytes, kind: str, value: Any) -> bool:
    """Whether a seal is the one of the value; tells nothing by how long it takes.

    >>> is_signed(sign(b"secret", "request", "text"), b"secret", "request", "text")
    True
    """
    return hmac.compare_digest(given.encode(errors="replace"), sign(secret, kind, value).encode())


def secret_bytes(secret: Any) -> bytes:
    """Give a secret as bytes; refuse one that anybody could guess because it is empty.

    >>> secret_bytes("secret")
    b'secret'
    """
    if not isinstance(secret, (str, bytes)) or not secret:
        raise ToolDefinitionError("A review secret must be a str or bytes that is not empty; os.urandom(32) makes one")
    return secret.encode() if isinstance(secret, str) else secret
