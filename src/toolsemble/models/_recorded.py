"""A model for tests that records the replies of another model in a file and replays them."""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import astuple
from pathlib import Path
from typing import Any

from toolsemble._runtime.text import preview
from toolsemble._vocabulary.errors import ModelError, ToolConfigurationError
from toolsemble.models import _chat as chat
from toolsemble.models._message import read_call, visible_to_json, write_call

_SHOWN = 80
_CHUNKS = (
    chat.TextDelta,
    chat.ThoughtDelta,
    chat.PromptProgress,
    chat.CallDelta,
    chat.ArgumentsDelta,
    chat.StreamRestart,
    chat.StreamEnd,
)
_KINDS: dict[str, Any] = {kind.__name__: kind for kind in _CHUNKS}


class RecordedModel:
    """A model that replays the replies in a file; it asks another model for missing ones and records them.

    Requests are matched by their content; equal ones are answered in the order of the recording. Without another
    model, a request that was not recorded raises a :class:`~toolsemble.ModelError`. The model's errors are recorded
    too. To record again, delete the file.

    >>> import tempfile
    >>> from toolsemble import Agent
    >>> from toolsemble.models import ScriptedModel
    >>> path = Path(tempfile.mkdtemp()) / "hello.jsonl"
    >>> Agent(RecordedModel(path, ScriptedModel(["hi"]))).run_sync("hello").text
    'hi'
    >>> Agent(RecordedModel(path)).run_sync("hello").text
    'hi'
    """

    def __init__(self, path: str | os.PathLike[str], model: chat.ChatModel | None = None) -> None:
        """Read the file, which must exist unless a model is given.

        :param path: a file of JSON lines, one for each exchange
        :param model: the model to ask when the file has no reply
        """
        self._path = Path(path)
        self._model = model
        self.native_output = bool(getattr(model, "native_output", False))
        self._lock = threading.Lock()
        self._recorded: dict[str, deque[dict[str, Any]]] = {}
        if model is None or self._path.exists():
            for entry in _read_entries(self._path):
                self.native_output = entry["native_output"]
                self._recorded.setdefault(entry["request"], deque()).append(entry)

    async def reply(self, request: chat.ChatRequest) -> chat.ChatReply:
        """Return the recorded reply, or a new one."""
        entry = self._take(request)
        if entry is None:
            entry = await self._ask(request)
        if "chunks" not in entry:
            return _read_reply(entry)
        return chat.Assembly().assemble(map(_read_chunk, entry["chunks"]))

    async def stream(self, request: chat.ChatRequest) -> AsyncIterator[chat.Chunk]:
        """Yield the recorded chunks, or new ones as they arrive."""
        entry = self._take(request)
        if entry is None and self._model is not None:
            chunks: list[chat.Chunk] = []
            try:
                async with chat.closing(self._model.stream(request)) as stream:
                    async for chunk in stream:
                        chunks.append(chunk)
                        yield chunk
            except ModelError as error:
                self._add(request, _write_error(error))
                raise
            self._add(request, {"chunks": [_write_chunk(chunk) for chunk in chunks]})
            return
        if entry is None:
            raise self._missing_error(request)
        for chunk in map(_read_chunk, entry["chunks"]) if "chunks" in entry else chat.chunks_of(_read_reply(entry)):
            yield chunk

    def _take(self, request: chat.ChatRequest) -> dict[str, Any] | None:
        with self._lock:
            recorded = self._recorded.get(_digest(request))
            return recorded.popleft() if recorded else None

    async def _ask(self, request: chat.ChatRequest) -> dict[str, Any]:
        if self._model is None:
            raise self._missing_error(request)
        try:
            reply = await self._model.reply(request)
        except ModelError as error:
            self._add(request, _write_error(error))
            raise
        answer = {"reply": _write_reply(reply)}
        self._add(request, answer)
        return answer

    def _add(self, request: chat.ChatRequest, answer: dict[str, Any]) -> None:
        about = {"request": _digest(request), "asked": _preview_last(request), "native_output": self.native_output}
        line = json.dumps({**about, **answer}) + "\n"
        with self._lock, self._path.open("a", encoding="ascii") as file:
            file.write(line)  # in one write, so that a killed run leaves complete lines

    def _missing_error(self, request: chat.ChatRequest) -> ModelError:
        return ModelError(
            f"'{self._path}' has no recording of this request ({len(request.messages)} messages, the last: "
            f"{_preview_last(request)!r}); record it with RecordedModel(path, model)"
        )


def _read_entries(path: Path) -> list[dict[str, Any]]:
    try:
        entries = [json.loads(line) for line in path.read_text(encoding="ascii").splitlines()]
        for entry in entries:
            entry["request"], entry["native_output"]  # both are required
    except (OSError, ValueError, KeyError, TypeError) as problem:
        raise ToolConfigurationError(
            f"The recording '{path}' cannot be used ({type(problem).__name__}: {problem}); record it with "
            "RecordedModel(path, model)"
        ) from problem
    return entries


def _digest(request: chat.ChatRequest) -> str:
    """Return a digest of everything that can affect the reply."""
    content = {
        "messages": [visible_to_json(message) for message in request.messages],
        "specifications": [each.to_json() for each in request.specifications],
        "tool_choice": request.tool_choice,
        "output_schema": request.output_schema,
        "settings": dict(request.settings),
        **({} if request.reasoning is None else {"reasoning": request.reasoning}),
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()


def _preview_last(request: chat.ChatRequest) -> str:
    return preview(request.messages[-1].text, _SHOWN) if request.messages else ""


def _write_error(error: ModelError) -> dict[str, Any]:
    return {"error": {"message": str(error), "retryable": error.retryable, "retry_after": error.retry_after}}


def _write_reply(reply: chat.ChatReply) -> dict[str, Any]:
    return {
        "text": reply.text,
        "calls": [write_call(call) for call in reply.calls],
        "usage": astuple(reply.usage),
        "stop_reason": reply.stop_reason,
        "details": None if reply.details is None else dict(reply.details),
    }


def _read_reply(entry: dict[str, Any]) -> chat.ChatReply:
    """Return the reply of an entry, or raise the recorded error."""
    if "error" in entry:
        facts = entry["error"]
        raise ModelError(facts["message"], retryable=facts["retryable"], retry_after=facts["retry_after"])
    fields = {**entry["reply"], "usage": chat.TokenUsage(*entry["reply"]["usage"])}
    return chat.ChatReply(**{**fields, "calls": tuple(map(read_call, fields["calls"]))})


def _write_chunk(chunk: chat.Chunk) -> dict[str, Any]:
    fields: dict[str, Any] = {name: getattr(chunk, name) for name in chunk.__slots__}
    if isinstance(chunk, chat.StreamEnd):
        fields["usage"] = astuple(chunk.usage)
    return {"kind": type(chunk).__name__, **fields}


def _read_chunk(fields: dict[str, Any]) -> Any:
    values = {name: value for name, value in fields.items() if name != "kind"}
    if "usage" in values:
        values["usage"] = chat.TokenUsage(*values["usage"])
    return _KINDS[fields["kind"]](**values)
