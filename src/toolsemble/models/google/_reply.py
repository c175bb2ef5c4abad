"""The reader of Gemini's replies, whole or streamed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from toolsemble._vocabulary.call import ToolCall
from toolsemble._vocabulary.errors import ModelError
from toolsemble.models._adapter.reply_details import Block, append_text, has_text, make_details
from toolsemble.models._adapter.stop_reasons import StopReasons
from toolsemble.models._adapter.wire import base64_text
from toolsemble.models._chat import (
    NO_TOKENS,
    ArgumentsDelta,
    CallDelta,
    Chunk,
    StreamEnd,
    TextDelta,
    ThoughtDelta,
    TokenUsage,
)

_REFUSALS = (
    "SAFETY", "RECITATION", "LANGUAGE", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "IMAGE_SAFETY",
    "IMAGE_PROHIBITED_CONTENT", "IMAGE_RECITATION",
)  # fmt: skip
_STOP_REASONS = StopReasons(
    "Gemini",
    {"STOP": "stop", "MAX_TOKENS": "length", "CONTINUATION": "length", **dict.fromkeys(_REFUSALS, "refusal")},
    {"MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "MALFORMED_RESPONSE"},
)


class ReplyReader:
    """A reader of one reply, from a whole response or the responses of a stream.

    >>> from types import SimpleNamespace as Sent
    >>> part = Sent(text="Rome", thought=None, thought_signature=None, function_call=None)
    >>> candidate = Sent(content=Sent(parts=[part]), finish_reason=Sent(value="STOP"))
    >>> reader = ReplyReader("gemini-3-flash")
    >>> list(reader.read_response(Sent(candidates=[candidate], usage_metadata=None, prompt_feedback=None)))
    [TextDelta(text='Rome')]
    >>> reader.finish().stop_reason
    'stop'
    """

    def __init__(self, model: str) -> None:
        self._model = model
        self._blocks: list[Block] = []
        self._calls = 0
        self._usage = NO_TOKENS
        self._reason = ""
        self._feedback: Any = None

    def read_response(self, response: Any) -> Iterator[Chunk]:
        """Yield the chunks of a response."""
        if response.usage_metadata is not None:
            self._usage = _usage(response.usage_metadata)
        self._feedback = response.prompt_feedback or self._feedback
        for candidate in (response.candidates or ())[:1]:
            for part in (candidate.content and candidate.content.parts) or ():
                yield from self._read_part(part)
            if candidate.finish_reason is not None:
                self._reason = candidate.finish_reason.value

    def finish(self) -> StreamEnd:
        """Return the end of the reply; raise a ``ModelError`` if it is blocked, incomplete or empty."""
        if self._feedback is not None and self._feedback.block_reason is not None:
            raise _blocked_error(self._feedback)
        stop = _STOP_REASONS.read(self._reason, has_calls=self._calls > 0, has_text=has_text(self._blocks))
        return StreamEnd(self._usage, stop, make_details(f"google:{self._model}", self._blocks))

    def _read_part(self, part: Any) -> Iterator[Chunk]:
        signed = {"signature": base64_text(part.thought_signature)} if part.thought_signature else {}
        if part.thought and part.text:
            yield ThoughtDelta(part.text)
        if part.function_call is not None:
            yield from self._read_call(part, signed)
        elif part.text is not None and not part.thought:
            yield from self._read_text(part.text, signed)
        elif not part.thought or signed:
            # Code that Google executed, or an image: not part of the text, but needed back.
            self._blocks.append({"type": "part", "part": part.to_json_dict()})

    def _read_text(self, text: str, signed: Mapping[str, str]) -> Iterator[Chunk]:
        last = self._blocks[-1] if self._blocks else {}
        if signed or last.keys() != {"type", "text"}:
            self._blocks.append({"type": "text", "text": text, **signed})
        else:
            append_text(last, "text", text)
        if text:
            yield TextDelta(text)

    def _read_call(self, part: Any, signed: Mapping[str, str]) -> Iterator[Chunk]:
        if part.function_call.partial_args or part.function_call.will_continue:
            raise ModelError(
                "Gemini streamed arguments of a call, which is not supported; turn off stream_function_call_arguments"
            )
        self._blocks.append({"type": "tool_use", **signed})
        call = ToolCall.from_google(part)
        yield CallDelta(self._calls, call.name, call.id)
        yield ArgumentsDelta(self._calls, call.json)
        self._calls += 1


def _blocked_error(feedback: Any) -> ModelError:
    reason = f": {feedback.block_reason_message}" if feedback.block_reason_message else ""
    return ModelError(f"Gemini blocked the prompt ({feedback.block_reason.value}){reason}")


def _usage(usage: Any) -> TokenUsage:
    given = (usage.prompt_token_count or 0) + (usage.tool_use_prompt_token_count or 0)
    thoughts = usage.thoughts_token_count or 0
    output = (usage.candidates_token_count or 0) + thoughts
    return TokenUsage(given, output, usage.cached_content_token_count or 0, thoughts)
