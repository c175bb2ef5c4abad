"""What the model is shown: the tools as lines, three examples, and the conversation as steps.

Made for models so small that they are lost in the JSON Schemas that larger ones are given.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from toolsemble.call import ToolCall
from toolsemble.errors import ModelError
from toolsemble.models.chat import ChatRequest
from toolsemble.models.local.grammar import opening, step_grammar, written
from toolsemble.models.message import AssistantMessage, Message, SystemMessage, ToolMessage, UserMessage

FINAL = "final_answer"
"""The name by which the model answers, in place of calling a tool."""

_LONGEST_DESCRIPTION = 2000
_TEXT: dict[str, Any] = {
    "type": "object",
    "properties": {"text": {"type": "string", "minLength": 1}},
    "required": ["text"],
}


@dataclass(frozen=True, slots=True)
class Said:
    """A part of what the model is shown."""

    role: str
    """Who said it: system, user or assistant."""
    text: str
    """The words."""
    is_result: bool = False
    """Whether a tool said it."""


Turn = tuple[Said, ...]
"""What belongs together: something that a person said, an answer, or calls with their results."""


class Offer:
    """What a model can do in one request."""

    def __init__(self, request: ChatRequest) -> None:
        self._request = request
        self._specifications = request.specifications
        taken = {specification.name for specification in self._specifications}
        self.final = FINAL
        while self.final in taken:
            self.final += "_"
        used = any(isinstance(message, ToolMessage) for message in request.messages)
        self.is_chat = not (self._specifications or request.output_schema or used)
        self.structured = request.output_schema is not None

    @property
    def names(self) -> list[str]:
        """The names of the tools that may be called."""
        return [] if self._request.tool_choice == "none" else [each.name for each in self._specifications]

    @property
    def can_answer(self) -> bool:
        """Whether the model may answer in place of a call."""
        return self._request.tool_choice != "required" or not self._specifications

    def grammar(self, *, answer_only: bool = False) -> str:
        """Give the grammar of a step."""
        arguments: dict[str, Mapping[str, Any] | None] = {}
        if self.names and not answer_only:
            arguments |= {each.name: each.parameters for each in self._specifications}
        if self.can_answer:
            arguments[self.final] = self._answer_schema
        return step_grammar(arguments)

    def opening(self) -> list[Turn]:
        """Give what the model is shown before the conversation."""
        own = "\n".join(message.text for message in self._request.messages if isinstance(message, SystemMessage))
        if self.is_chat:
            return [(Said("system", own or "You are a helpful assistant."),)]
        return [(Said("system", self._system(own)),), *_demonstrations(self.final)]

    def conversation(self) -> list[Turn]:
        """Give the conversation as turns."""
        return list(_turns(self._request.messages, self))

    def step(self, name: str, arguments: Any) -> str:
        """Give a step as the model writes it."""
        return f"{opening(name)}{written(arguments)}}}"

    def answer(self, text: str) -> str:
        """Give an answer as the model writes it."""
        if self.is_chat:
            return text
        return self.step(self.final, _read(text) if self.structured else {"text": text})

    def made(self) -> set[str]:
        """Give the calls that were made for the current question, as the model would write them."""
        steps: set[str] = set()
        for message in reversed(self._request.messages):
            if isinstance(message, UserMessage):
                break
            if isinstance(message, ToolMessage):
                steps.add(self.call(message.call))
        return steps

    def call(self, call: ToolCall) -> str:
        """Give a call as the model writes it."""
        return self.step(call.name, _read(call.json))

    @property
    def _answer_schema(self) -> Mapping[str, Any]:
        return self._request.output_schema or _TEXT

    def _system(self, own: str) -> str:
        tools = [_line(each.name, each.description, each.parameters) for each in self._specifications]
        answer = _line(self.final, _ANSWERS, self._answer_schema if self.structured else _SHOWN_TEXT)
        return "\n".join(filter(None, [own, _RULES, "Tools:", *tools, answer]))


_SHOWN_TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
_ANSWERS = "Answers the user. Use it as soon as you know the answer, and when no tool is needed."
_RULES = (
    "Solve the user's task step by step. In each step write one JSON object that calls one tool: "
    '{"name": ..., "arguments": ...}. You then get its result. Never compute or guess what a tool can tell you. '
    "When a task needs several steps, use the result of one step in the next. "
    "When nothing is left to do, call final_answer with the whole answer."
)


_AFTER_ERROR = "(Call the tool again with other arguments, or go on with another tool.)"


def _demonstrations(final: str) -> list[Turn]:
    """Give three examples: no tool, one, and two of which the second uses the result of the first."""

    def call(name: str, arguments: dict[str, Any], result: str) -> Turn:
        return _call_turn(f"{opening(name)}{written(arguments)}}}", name, result)

    def answer(text: str) -> Turn:
        return (Said("assistant", f"{opening(final)}{written({'text': text})}}}"),)

    return [
        (Said("user", "Hello!"),),
        answer("Hello! How can I help you?"),
        (Said("user", "How warm is it in Oslo?"),),
        call("weather", {"city": "Oslo"}, "4 degrees, light rain"),
        answer("It is 4 degrees in Oslo, with light rain."),
        (Said("user", "Who is on call this week? Send them a mail that the server is down."),),
        call("on_call", {"week": "this"}, '{"name": "Emma Berg", "mail": "emma@example.org"}'),
        call("send_mail", {"to": "emma@example.org", "text": "The server is down."}, "Sent"),
        answer("Emma Berg is on call this week, and I sent her a mail that the server is down."),
    ]


def _turns(messages: Sequence[Message], offer: Offer) -> Iterator[Turn]:
    replies: list[Said] = []
    for message in messages:
        if isinstance(message, ToolMessage):
            replies += _call_turn(offer.call(message.call), message.call.name, _result(message))
            continue
        if replies:
            yield tuple(replies)
            replies = []
        if isinstance(message, UserMessage):
            if message.images:
                raise ModelError("The local model reads text only, and a message has images; use another model")
            yield (Said("user", message.text),)
        elif isinstance(message, AssistantMessage) and not message.calls:
            # Words beside a call are left out: this model has no way to say any.
            yield (Said("assistant", offer.answer(message.text)),)
    if replies:
        yield tuple(replies)


def _call_turn(step: str, name: str, result: str) -> Turn:
    return Said("assistant", step), Said("user", f"Result of {name}: {result}", is_result=True)


def _result(message: ToolMessage) -> str:
    unseen = [f"[{type(content).__name__}: cannot be shown]" for content in message.reply.result.contents]
    return "\n".join([message.text, *unseen, *([_AFTER_ERROR] if message.reply.is_error else ())])


def _read(text: str) -> Any:
    """Give the value of JSON text; whatever else a model wrote stays a text."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _line(name: str, description: str, schema: Mapping[str, Any] | None) -> str:
    said = re.sub(r"\s+", " ", description).strip()[:_LONGEST_DESCRIPTION]
    return f"- {name}({_parameters(schema or {})}): {said}"


def _parameters(schema: Mapping[str, Any]) -> str:
    required = schema.get("required", ())
    properties = schema.get("properties") or {}
    ordered = sorted(properties, key=lambda name: name not in required)
    return ", ".join(f"{name}{'' if name in required else '?'}: {_kind(properties[name])}" for name in ordered)


def _kind(schema: Any) -> str:
    """Give a type in a word or two."""
    if not isinstance(schema, Mapping):
        return "any"
    if "enum" in schema:
        return "|".join(written(value) for value in schema["enum"])[:200]
    for several in ("anyOf", "oneOf"):
        if several in schema:
            return "|".join(_kind(part) for part in schema[several])
    kind = schema.get("type", "any")
    if kind == "array":
        return f"{_kind(schema.get('items', {}))}[]"
    return "|".join(kind) if isinstance(kind, list) else str(kind)
