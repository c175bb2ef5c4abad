"""Asking a server which models it has, quickly."""

from __future__ import annotations

import http.client
import json
import time
from urllib.parse import urlsplit

from toolsemble.runtime.concurrency import ThreadPerJob
from toolsemble.runtime.text import preview

SECONDS = 1.0
"""How long a server may take; one on the same machine takes a hundredth of that."""

_MOST_BYTES = 1_000_000
_OK = 200
_LONGEST_NAME = 200
# Models that turn text into something else than an answer.
_NOT_CHAT = ("embed", "rerank", "whisper")


def models_at(address: str, key: str | None = None) -> list[str] | str:
    """Give the names of the chat models below a base URL, or why there are none: one sentence, without an end.

    A server may be anything that happens to listen there: it has little time, and little of what it says is read.

    >>> models_at("http://127.0.0.1:9/v1")
    'nothing answers at http://127.0.0.1:9/v1'
    """
    deadline = time.monotonic() + SECONDS
    try:
        # In a thread that nobody has to wait for: neither the search for a host's address nor headers that come letter
        # by letter can be ended otherwise.
        status, body = ThreadPerJob(daemon=True).submit(_fetched, address, key, deadline).result(SECONDS)
    except (OSError, http.client.HTTPException, ValueError):
        return f"nothing answers at {address}"
    if status != _OK:
        return f"{address}/models answers {status}"
    names = _names(body)
    if names is None:
        return f"what answers at {address} is no model server"
    chat = [name for name in names if not any(word in name.lower() for word in _NOT_CHAT)]
    return chat or f"the server at {address} has no model to chat with"


def _fetched(address: str, key: str | None, deadline: float) -> tuple[int, bytes]:
    parts = urlsplit(address)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.hostname or "", parts.port, timeout=SECONDS)
    headers = {"Accept": "application/json", **({"Authorization": f"Bearer {key.strip()}"} if key else {})}
    try:
        connection.request("GET", f"{parts.path}/models", headers=headers)
        with connection.getresponse() as response:
            return response.status, _body(response, deadline)
    finally:
        connection.close()


def _body(response: http.client.HTTPResponse, deadline: float) -> bytes:
    """Give the body, of a server that sends it in time and does not send too much."""
    body = b""
    while piece := response.read1(_MOST_BYTES):
        body += piece
        if len(body) > _MOST_BYTES or time.monotonic() > deadline:
            raise TimeoutError
    return body


def _names(body: bytes) -> list[str] | None:
    """Give the names in a list of models; None when it is none."""
    try:
        listed = json.loads(body)["data"]
        names = [model["id"] for model in listed]
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    return [name for name in names if isinstance(name, str) and name == preview(name, _LONGEST_NAME) and name]
