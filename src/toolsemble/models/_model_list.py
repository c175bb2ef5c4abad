"""The list of models of a server, fetched with a short timeout."""

from __future__ import annotations

import http.client
import json
import time
from urllib.parse import urlsplit

from toolsemble._runtime.text import preview
from toolsemble._runtime.threads import ThreadPerJob

SECONDS = 1.0
"""The timeout in seconds; a server on the same machine needs about a hundredth of it."""

_MOST_BYTES = 1_000_000
_OK = 200
_LONGEST_NAME = 200
# Models without text output.
_NOT_CHAT = ("embed", "rerank", "whisper")


def fetch_models(address: str, key: str | None = None) -> list[str] | str:
    """Return the names of the chat models at a base URL, or a sentence (without a period) on why there are none.

    Any program may listen on that address, so the answer's time and size are limited.

    >>> fetch_models("http://127.0.0.1:9/v1")
    'nothing answers at http://127.0.0.1:9/v1'
    """
    deadline = time.monotonic() + SECONDS
    try:
        # In a thread that can be abandoned: neither a DNS lookup nor slowly arriving headers can be interrupted.
        status, body = ThreadPerJob(daemon=True).submit(_fetch, address, key, deadline).result(SECONDS)
    except (OSError, http.client.HTTPException, ValueError):
        return f"nothing answers at {address}"
    if status != _OK:
        return f"{address}/models answers {status}"
    names = _read_names(body)
    if names is None:
        return f"the program at {address} is not a model server"
    chat = [name for name in names if not any(word in name.lower() for word in _NOT_CHAT)]
    return chat or f"the server at {address} has no chat model"


def _fetch(address: str, key: str | None, deadline: float) -> tuple[int, bytes]:
    parts = urlsplit(address)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.hostname or "", parts.port, timeout=SECONDS)
    headers = {"Accept": "application/json", **({"Authorization": f"Bearer {key.strip()}"} if key else {})}
    try:
        connection.request("GET", f"{parts.path}/models", headers=headers)
        with connection.getresponse() as response:
            return response.status, _read_body(response, deadline)
    finally:
        connection.close()


def _read_body(response: http.client.HTTPResponse, deadline: float) -> bytes:
    """Return the body; raise ``TimeoutError`` if it is too late or too long."""
    body = b""
    while piece := response.read1(_MOST_BYTES):
        body += piece
        if len(body) > _MOST_BYTES or time.monotonic() > deadline:
            raise TimeoutError
    return body


def _read_names(body: bytes) -> list[str] | None:
    """Return the names in a list of models, or None if it is not one."""
    try:
        listed = json.loads(body)["data"]
        names = [model["id"] for model in listed]
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    return [name for name in names if isinstance(name, str) and name == preview(name, _LONGEST_NAME) and name]
