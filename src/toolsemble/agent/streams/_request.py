"""Requests of browsers: the conversation that a client sends with a new question."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from toolsemble.models._adapter.history import HistoryReader, describe, iterate_items
from toolsemble.models._message import UserMessage
from toolsemble.models._transcript import Transcript


@dataclass(frozen=True, slots=True)
class UiRequest:
    """A request of a browser; everything in it was chosen by the client, who may have written it by hand.

    >>> from toolsemble.agent.streams import read_vercel
    >>> parts = [{"type": "text", "text": "Where is Rome?"}]
    >>> request = read_vercel({"id": "chat_1", "messages": [{"id": "m1", "role": "user", "parts": parts}]})
    >>> request.thread_id, request.prompt.text, len(request.history)
    ('chat_1', 'Where is Rome?', 0)
    """

    thread_id: str
    """The id of the conversation. Put the user's id in front of it for a ``memory_id``: a client can send any id."""
    prompt: UserMessage
    """The new question: the last message."""
    history: Transcript = field(default_factory=Transcript)
    """The messages before it; do not use them where the server has a memory of its own."""
    run_id: str = ""
    """The id that an AG-UI client has given to the run; empty for the Vercel AI SDK."""
    messages: tuple[Mapping[str, Any], ...] = ()
    """All messages, in the format of the client."""
    body: Mapping[str, Any] = field(default_factory=dict)
    """The whole request."""


def load_body(body: object) -> dict[str, Any]:
    """Return the body of a request as a dict: from JSON text, a mapping, or an object of pydantic.

    >>> load_body(b'{"id": "chat_1"}')
    {'id': 'chat_1'}
    """
    if hasattr(body, "model_dump"):
        body = body.model_dump(mode="json", by_alias=True)
    if isinstance(body, (str, bytes, bytearray)):
        try:
            body = json.loads(body)
        except (ValueError, RecursionError) as problem:
            raise ValueError(f"The request is not JSON: {problem}") from None
    if not isinstance(body, Mapping):
        raise ValueError(f"The request: expected an object, got {describe(body)}")
    return dict(body)


def read_messages(body: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    """Return the messages of a request with their places."""
    items = list(iterate_items(body.get("messages"), "messages"))
    for place, message in items:
        if not isinstance(message, Mapping):
            raise ValueError(f"{place}: expected an object, got {describe(message)}")
    return items


def read_id(body: Mapping[str, Any], name: str) -> str:
    """Return an id of a request; raise if it is not a text, or empty."""
    value = body.get(name)
    if not isinstance(value, str) or not value:
        raise ValueError(f"{name}: expected a str that is not empty, got {describe(value)}")
    return value


def split_prompt(reader: HistoryReader) -> tuple[UserMessage, Transcript]:
    """Return the last message, which must be the user's and ask something, and the conversation before it."""
    messages = list(reader.finish())
    prompt = messages.pop() if messages else None
    if not isinstance(prompt, UserMessage):
        raise ValueError("messages: the last message must be one of the user, with the question")
    if not prompt.text.strip() and not prompt.contents:
        raise ValueError("messages: the last message is empty; it needs a text or a file")
    return prompt, Transcript(messages)
