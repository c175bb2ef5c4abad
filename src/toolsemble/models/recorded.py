"""Real exchanges with a model, kept in a file and played again."""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections import deque
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from toolsemble.errors import ModelError, ToolConfigurationError
from toolsemble.models.chat import (
    ArgumentsDelta,
    Assembly,
    CallDelta,
    ChatModel,
    ChatReply,
    ChatRequest,
    Chunk,
    StreamEnd,
    TextDelta,
    TokenUsage,
    chunks_of,
    closing,
)
from toolsemble.models.message import message_to_json, read_call, written_call
from toolsemble.runtime.text import preview

_SHOWN = 80
_KINDS: dict[str, Any] = {kind.__name__: kind for kind in (TextDelta, CallDelta, ArgumentsDelta, StreamEnd)}


class RecordedModel:
    """Plays the exchanges in a file; asks the model behind it for those that are missing, and adds them.

    A request is found by its content, and equal ones are answered in the order of the recording. Without a model
    behind it, a request that was never recorded is a :class:`~toolsemble.ModelError`. Errors of the model's are
    recorded, too. To record afresh, delete the file.

    >>> import tempfile
    >>> from toolsemble import Agent
    >>> from toolsemble.models import ScriptedModel
    >>> path = Path(tempfile.mkdtemp()) / "hello.jsonl"
    >>> Agent(RecordedModel(path, ScriptedModel(["hi"]))).run_sync("hello").text
    'hi'
    >>> Agent(RecordedModel(path)).run_sync("hello").text
    'hi'
    """

    def __init__(self, path: str | os.PathLike[str], model: ChatModel | None = None) -> None:
        """Read the file; without a model it must be there.

        :param path: a file of JSON lines, one for each exchange
        :param model: who is asked when the file has no answer
        """
        self._path = Path(path)
        self._model = model
        self.native_output = bool(getattr(model, "native_output", False))
        self._lock = threading.Lock()
        self._kept: dict[str, deque[dict[str, Any]]] = {}
        if model is None or self._path.exists():
            for entry in _entries(self._path):
                self.native_output = entry["native_output"]
                self._kept.setdefault(entry["request"], deque()).append(entry)

    async def reply(self, request: ChatRequest) -> ChatReply:
        """Give the reply that was recorded, or a new one."""
        entry = self._found(request)
        if entry is None:
            entry = await self._asked(request)
        if "chunks" not in entry:
            return _reply(entry)
        assembly = Assembly()
        for chunk in map(_read_chunk, entry["chunks"]):
            assembly.add(chunk)
        return assembly.reply()

    async def stream(self, request: ChatRequest) -> AsyncIterator[Chunk]:
        """Give the pieces that were recorded, or new ones as they come."""
        entry = self._found(request)
        if entry is None and self._model is not None:
            chunks: list[Chunk] = []
            try:
                async with closing(self._model.stream(request)) as stream:
                    async for chunk in stream:
                        chunks.append(chunk)
                        yield chunk
            except ModelError as error:
                self._add(request, _written_error(error))
                raise
            self._add(request, {"chunks": [_written_chunk(chunk) for chunk in chunks]})
            return
        if entry is None:
            raise self._missing(request)
        for chunk in map(_read_chunk, entry["chunks"]) if "chunks" in entry else chunks_of(_reply(entry)):
            yield chunk

    def _found(self, request: ChatRequest) -> dict[str, Any] | None:
        with self._lock:
            kept = self._kept.get(_digest(request))
            return kept.popleft() if kept else None

    async def _asked(self, request: ChatRequest) -> dict[str, Any]:
        if self._model is None:
            raise self._missing(request)
        try:
            reply = await self._model.reply(request)
        except ModelError as error:
            self._add(request, _written_error(error))
            raise
        answer = {"reply": _written_reply(reply)}
        self._add(request, answer)
        return answer

    def _add(self, request: ChatRequest, answer: dict[str, Any]) -> None:
        about = {"request": _digest(request), "asked": _last(request), "native_output": self.native_output}
        line = json.dumps({**about, **answer}) + "\n"
        with self._lock, self._path.open("a", encoding="ascii") as file:
            file.write(line)  # at once, so that a run that is killed leaves whole lines

    def _missing(self, request: ChatRequest) -> ModelError:
        return ModelError(
            f"'{self._path}' has no recording of this request ({len(request.messages)} messages, the last: "
            f"{_last(request)!r}); record it with RecordedModel(path, model)"
        )


def _entries(path: Path) -> list[dict[str, Any]]:
    try:
        entries = [json.loads(line) for line in path.read_text(encoding="ascii").splitlines()]
        for entry in entries:
            entry["request"], entry["native_output"]  # both must be there
    except (OSError, ValueError, KeyError, TypeError) as problem:
        raise ToolConfigurationError(
            f"The recording '{path}' cannot be used ({type(problem).__name__}: {problem}); record it with "
            "RecordedModel(path, model)"
        ) from problem
    return entries


def _digest(request: ChatRequest) -> str:
    """Give a digest of everything that a model could answer by."""
    content = {
        "messages": [message_to_json(message) for message in request.messages],
        "specifications": [each.to_json() for each in request.specifications],
        "tool_choice": request.tool_choice,
        "output_schema": request.output_schema,
        "settings": dict(request.settings),
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()


def _last(request: ChatRequest) -> str:
    return preview(request.messages[-1].text, _SHOWN) if request.messages else ""


def _written_error(error: ModelError) -> dict[str, Any]:
    facts = {"message": str(error), "retryable": error.retryable, "retry_after": error.retry_after}
    return {"error": facts}


def _written_reply(reply: ChatReply) -> dict[str, Any]:
    return {
        "text": reply.text,
        "calls": [written_call(call) for call in reply.calls],
        "usage": _numbers(reply.usage),
        "stop_reason": reply.stop_reason,
        "details": None if reply.details is None else dict(reply.details),
    }


def _reply(entry: dict[str, Any]) -> ChatReply:
    """Give the reply of an entry, or raise the error that was recorded in its place."""
    if "error" in entry:
        facts = entry["error"]
        raise ModelError(facts["message"], retryable=facts["retryable"], retry_after=facts["retry_after"])
    fields = {**entry["reply"], "usage": TokenUsage(*entry["reply"]["usage"])}
    return ChatReply(**{**fields, "calls": tuple(map(read_call, fields["calls"]))})


def _written_chunk(chunk: Chunk) -> dict[str, Any]:
    fields: dict[str, Any] = {name: getattr(chunk, name) for name in chunk.__slots__}
    if isinstance(chunk, StreamEnd):
        fields["usage"] = _numbers(chunk.usage)
    return {"kind": type(chunk).__name__, **fields}


def _read_chunk(fields: dict[str, Any]) -> Any:
    values = {name: value for name, value in fields.items() if name != "kind"}
    if "usage" in values:
        values["usage"] = TokenUsage(*values["usage"])
    return _KINDS[fields["kind"]](**values)


def _numbers(usage: TokenUsage) -> list[int]:
    return [usage.input, usage.output, usage.cached]
