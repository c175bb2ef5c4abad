"""HMAC signatures of JSON values."""

from __future__ import annotations

import hashlib
import hmac
from typing import Any

from toolsemble._vocabulary.errors import ToolDefinitionError
from toolsemble._vocabulary.serialization import compact_json


def canonical_json(value: Any) -> str:
    """Return the canonical JSON text of a value: sorted keys, no spaces, ASCII.

    >>> canonical_json({"b": "x", "a": 1.5})
    '{"a":1.5,"b":"x"}'
    """
    return compact_json(value, sort_keys=True, ensure_ascii=True)


def sign(secret: str | bytes, kind: str, value: Any) -> str:
    """Return the signature of a JSON value of a kind; another kind or another secret gives another signature.

    >>> sign(b"secret", "receipt", {"a": 1}) == sign(b"secret", "request", {"a": 1})
    False
    """
    return hmac.digest(secret_bytes(secret), canonical_json([kind, value]).encode(), hashlib.sha256).hex()


def is_signed(signature: str, secret: str | bytes, kind: str, value: Any) -> bool:
    """Return whether a signature matches a value; compared in constant time.

    >>> is_signed(sign(b"secret", "request", "text"), b"secret", "request", "text")
    True
    """
    return hmac.compare_digest(signature.encode(errors="replace"), sign(secret, kind, value).encode())


def secret_bytes(secret: Any) -> bytes:
    """Return a secret as bytes; raise if it is empty.

    >>> secret_bytes("secret")
    b'secret'
    """
    if not isinstance(secret, (str, bytes)) or not secret:
        raise ToolDefinitionError("A review secret must be a non-empty str or bytes, such as os.urandom(32)")
    return secret.encode() if isinstance(secret, str) else secret
