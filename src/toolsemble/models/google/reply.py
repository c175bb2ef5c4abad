"""An answer of Gemini's, whole or response by response: the same pieces come out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from toolsemble.call import ToolCall
from toolsemble.errors import ModelError
from toolsemble.models.adapter.ending import Endings
from toolsemble.models.adapter.kept import Block, grow, kept, settle
from toolsemble.models.chat import NO_TOKENS, ArgumentsDelta, CallDelta, Chunk, StreamEnd, TextDelta, TokenUsage
from toolsemble.models.google.messages import owner
from toolsemble.providers.wire import base64_text

_REFUSALS = (
    "SAFETY", "RECITATION", "LANGUAGE", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "IMAGE_SAFETY",
    "IMAGE_PROHIBITED_CONTENT", "IMAGE_RECITATION",
)  # fmt: skip
_ENDINGS = Endings(
    "Gemini",
    {"STOP": "stop", "MAX_TOKENS": "length", "CONTINUATION": "length", **dict.fromkeys(_REFUSALS, "refusal")},
    {"MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "MALFORMED_RESPONSE"},
)


class Reading:
    """Reads one answer, from one response or from those of a stream.

    >>> from types import SimpleNamespace as Sent
    >>> part = Sent(text="Rome", thought=None, thought_signature=None, function_call=None)
    >>> candidate = Sent(content=Sent(parts=[part]), finish_reason=Sent(value="STOP"))
    >>> reading = Reading("gemini-3-flash")
    >>> list(reading.response(Sent(candidates=[candidate], usage_metadata=None, prompt_feedback=None)))
    [TextDelta(text='Rome')]
    >>> reading.end().stop_reason
    'stop'
    """

    def __init__(self, model: str) -> None:
        self._model = model
        self._blocks: list[Block] = []
        self._calls = 0
        self._usage = NO_TOKENS
        self._reason = ""
        self._feedback: Any = None

    def response(self, response: Any) -> Iterator[Chunk]:
        """Give what a response adds."""
        if response.usage_metadata is not None:
            self._usage = _usage(response.usage_metadata)
        self._feedback = response.prompt_feedback or self._feedback
        for candidate in (response.candidates or ())[:1]:
            for part in (candidate.content and candidate.content.parts) or ():
                yield from self._part(part)
            if candidate.finish_reason is not None:
                self._reason = candidate.finish_reason.value

    def end(self) -> StreamEnd:
        """Give the end of the answer, or say why there is none."""
        if self._feedback is not None and self._feedback.block_reason is not None:
            raise _blocked(self._feedback)
        settle(self._blocks)
        has_text = any(block.get("text", "").strip() for block in self._blocks)
        stop = _ENDINGS.stop(self._reason, has_calls=self._calls > 0, has_text=has_text)
        return StreamEnd(self._usage, stop, kept(owner(self._model), self._blocks))

    def _part(self, part: Any) -> Iterator[Chunk]:
        signed = {"signature": base64_text(part.thought_signature)} if part.thought_signature else {}
        if part.function_call is not None:
            yield from self._called(part, signed)
        elif part.text is not None and not part.thought:
            yield from self._said(part.text, signed)
        elif not part.thought or signed:
            # Code that ran on Google's side, an image: nothing that can be told here, and wanted back.
            self._blocks.append({"type": "part", "part": part.to_json_dict()})

    def _said(self, text: str, signed: Mapping[str, str]) -> Iterator[Chunk]:
        last = self._blocks[-1] if self._blocks else {}
        if signed or last.keys() != {"type", "text"}:
            self._blocks.append({"type": "text", "text": text, **signed})
        else:
            grow(last, "text", text)
        if text:
            yield TextDelta(text)

    def _called(self, part: Any, signed: Mapping[str, str]) -> Iterator[Chunk]:
        if part.function_call.partial_args or part.function_call.will_continue:
            raise ModelError(
                "Gemini sent a call in pieces, which cannot be read here; leave stream_function_call_arguments off"
            )
        self._blocks.append({"type": "tool_use", **signed})
        call = ToolCall.from_google(part)
        yield CallDelta(self._calls, call.name, call.id)
        yield ArgumentsDelta(self._calls, call.json)
        self._calls += 1


def _blocked(feedback: Any) -> ModelError:
    said = f": {feedback.block_reason_message}" if feedback.block_reason_message else ""
    return ModelError(f"Gemini blocked the prompt ({feedback.block_reason.value}){said}")


def _usage(counted: Any) -> TokenUsage:
    given = (counted.prompt_token_count or 0) + (counted.tool_use_prompt_token_count or 0)
    made = (counted.candidates_token_count or 0) + (counted.thoughts_token_count or 0)
    return TokenUsage(given, made, counted.cached_content_token_count or 0)
