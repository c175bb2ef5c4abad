"""What the model is shown: the tools as lines, three examples, and the conversation as steps.

Made for models so small that they are lost in the JSON Schemas that larger ones are given.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from toolsemble.models.chat import ChatRequest
from toolsemble.models.local.grammar import opening, step_grammar, written
from toolsemble.models.local.history import History, Said, Turn, call_turn
from toolsemble.models.message import SystemMessage, ToolMessage

FINAL = "final_answer"
"""The name by which the model answers, in place of calling a tool."""

_LONGEST_DESCRIPTION = 2000
_TEXT: dict[str, Any] = {
    "type": "object",
    "properties": {"text": {"type": "string", "minLength": 1}},
    "required": ["text"],
}


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
        self.history = History(request.messages, self.final, structured=self.structured, plain=self.is_chat)

    @property
    def names(self) -> list[str]:
        """The names of the tools that may be called."""
        return [] if self._request.tool_choice == "none" else [each.name for each in self._specifications]

    @property
    def can_answer(self) -> bool:
        """Whether the model may answer at all."""
        return self._request.tool_choice != "required" or not self._specifications

    @property
    def plans(self) -> bool:
        """Whether the next step begins with a plan."""
        return self.history.is_new and not self.is_chat

    @property
    def may_answer(self) -> bool:
        """Whether the next step may be the answer: not while the model has planned to do more."""
        return self.can_answer and not (self.history.left and self.names)

    def grammar(self, *, answer_only: bool = False) -> str:
        """Give the grammar of the next step."""
        arguments: dict[str, Mapping[str, Any] | None] = {}
        if self.names and not answer_only:
            arguments |= {each.name: each.parameters for each in self._specifications}
        if answer_only or self.may_answer:
            arguments[self.final] = self._answer_schema
        return step_grammar(arguments, self.final, planned=self.plans)

    def opening(self) -> list[Turn]:
        """Give what the model is shown before the conversation."""
        own = "\n".join(message.text for message in self._request.messages if isinstance(message, SystemMessage))
        if self.is_chat:
            return [(Said("system", own or "You are a helpful assistant."),)]
        return [(Said("system", self._system(own)),), *_demonstrations(self.final)]

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
    "Solve the user's task step by step. Each step is one JSON object that calls one tool, and you get its result. "
    "The first step begins with a plan: all tools that the task needs, in order; it is empty for a chat. "
    "Never compute, count days or guess by yourself: read or look up what you do not know, then compute with it. "
    "Leave out optional arguments unless the task asks for them. "
    "When nothing is left to do, call final_answer with the whole answer."
)


def _demonstrations(final: str) -> list[Turn]:
    """Give three examples: no tool, one, and two of which the second uses the result of the first."""

    def call(name: str, arguments: dict[str, Any], result: str, plan: Sequence[str] = (), left: str = "") -> Turn:
        step = f"{opening(name, plan or None)}{written(arguments)}}}"
        return call_turn(step, name, result, [left] if left else [])

    def answer(text: str, plan: Sequence[str] | None = None) -> Turn:
        return (Said("assistant", f"{opening(final, plan)}{written({'text': text})}}}"),)

    return [
        (Said("user", "Hello!"),),
        answer("Hello! How can I help you?", []),
        (Said("user", "How warm is it in Oslo?"),),
        call("weather", {"city": "Oslo"}, "4 degrees, light rain", ["weather"]),
        answer("It is 4 degrees in Oslo, with light rain."),
        (Said("user", "Look into lamps.txt and tell me what 3 blue lamps cost."),),
        call("open_file", {"name": "lamps.txt"}, _LAMPS, ["open_file", "compute"], "compute"),
        call("compute", {"formula": "3 * 19.90"}, "59.7"),
        answer("Three blue lamps cost 59.70 euros."),
    ]


_LAMPS = "red lamp 24.50\nblue lamp 19.90"


def _line(name: str, description: str, schema: Mapping[str, Any] | None) -> str:
    """Give a tool as a line; what may be left out stands at its end, as small models fill in whatever they see."""
    properties, required = (schema or {}).get("properties") or {}, (schema or {}).get("required", ())
    shown = {key: f"{key}: {_kind(part)}" for key, part in properties.items()}
    needed = ", ".join(shown[key] for key in properties if key in required)
    other = ", ".join(shown[key] for key in properties if key not in required)
    said = re.sub(r"\s+", " ", description).strip()[:_LONGEST_DESCRIPTION]
    return f"- {name}({needed}): {said}" + (f" Optional: {other}." if other else "")


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
