"""What the model is shown: the tools as lines, eight examples, and the conversation as steps.

Made for models so small that they are lost in the JSON Schemas that larger ones are given.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

from toolsemble.local.demonstration import Demonstrations
from toolsemble.local.grammar import begun_otherwise, holds_json, step_grammar, written
from toolsemble.local.history import History, Said, Turn, parsed
from toolsemble.local.reading import PlainReading, StepReading
from toolsemble.models.chat import ChatRequest
from toolsemble.models.message import SystemMessage, ToolMessage

FINAL = "final_answer"
"""The name by which the model answers, in place of calling a tool."""

Way: TypeAlias = Literal["as it likes", "begun otherwise", "otherwise", "answer"]
"""How a step is asked for."""

_UNSURE = {"temperature": 0.8, "seed": 7}  # the same each time
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
        return self.can_answer and not set(self.history.left).intersection(self.names)

    def ways(self) -> list[Way]:
        """Give how the next step is asked for, each in case that the one before gave a call that was made before.

        A small model that does not know how to go on says the same again, for ever. After a call that failed it finds
        another one when it must begin with another letter, or is less sure of itself; in the end it has to answer.
        """
        if self.is_chat or not self.can_answer:
            return ["as it likes"]
        if self.history.failed is None:
            return ["as it likes", "answer"]
        return ["as it likes", "begun otherwise", "otherwise", "answer"]

    def settings(self, way: Way) -> dict[str, Any]:
        """Give what llama.cpp is told."""
        if self.is_chat:
            return {}
        return {"grammar": self.grammar(way), **(_UNSURE if way == "otherwise" else {})}

    def reading(self, way: Way) -> PlainReading | StepReading:
        """Give how the step is read."""
        if self.is_chat:
            return PlainReading()
        made = self.history.made if self.can_answer and way != "answer" else ()
        return StepReading(self.names, self.final, structured=self.structured, made=made)

    def grammar(self, way: Way = "as it likes") -> str:
        """Give the grammar of the next step."""
        arguments: dict[str, Mapping[str, Any] | None] = {}
        if self.names and way != "answer":
            arguments |= {each.name: each.parameters for each in self._specifications}
        failed = self.history.failed
        if way == "begun otherwise" and failed is not None and failed.name in arguments:
            arguments[failed.name] = begun_otherwise(arguments[failed.name], parsed(failed.json))
        if way == "answer" or self.may_answer:
            arguments[self.final] = self._answer_schema
        return step_grammar(arguments, self.final, "plan" if self.plans else "note")

    def opening(self) -> list[Turn]:
        """Give what the model is shown before the conversation."""
        own = "\n".join(message.text for message in self._request.messages if isinstance(message, SystemMessage))
        if self.is_chat:
            return [(Said("system", own or "You are a helpful assistant."),)]
        needed = {each.name: _members(each.parameters)[1] for each in self._specifications}
        return [(Said("system", self._system(own)),), *Demonstrations(needed, self.final).turns()]

    @property
    def _answer_schema(self) -> Mapping[str, Any]:
        return self._request.output_schema or _TEXT

    def _system(self, own: str) -> str:
        """Give what the model is told: at length what each tool can do, and at the end, in short, what there is."""
        details = [_details(each.name, each.description, each.parameters) for each in self._specifications]
        tools = [_line(each.name, each.description, each.parameters) for each in self._specifications]
        answer = _line(self.final, _ANSWERS, self._answer_schema if self.structured else _SHOWN_TEXT)
        return "\n".join(filter(None, [own, *details, _RULES, "Tools:", *tools, answer]))


_SHOWN_TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
_ANSWERS = "Answers the user. Use it as soon as you know the answer, and when no tool is needed."
_RULES = (
    "Solve the user's task step by step. Each step is one JSON object that calls one tool, and you get its result. "
    "The first step begins with a plan: all tools that the task needs, in order, and final_answer at the end. "
    "A later step begins with a note: the values that it needs, copied from the results as they are. "
    "Small talk and what everybody knows need no tool. But you do not know today's date or what is in a file: look it "
    "up with a tool before you use it. Never compute or count days by yourself. "
    "When nothing is left to do, call final_answer with the whole answer."
)


def _details(name: str, description: str, schema: Mapping[str, Any] | None) -> str:
    """Give all that there is to say about a tool, beside the line that has the most important of it."""
    _, more = _sentences(description)
    properties, required = _members(schema)
    other = ", ".join(f"{key}: {_kind(part)}" for key, part in properties.items() if key not in required)
    said = " ".join(filter(None, [more, f"Optional: {other}." if other else ""]))
    return f"{name}: {said}" if said else ""


def _line(name: str, description: str, schema: Mapping[str, Any] | None) -> str:
    """Give a tool as a line, without what may be left out: small models fill in whatever they see."""
    properties, required = _members(schema)
    needed = ", ".join(f"{key}: {_kind(part)}" for key, part in properties.items() if key in required)
    return f"- {name}({needed}): {_sentences(description)[0]}"


def _members(schema: Mapping[str, Any] | None) -> tuple[Mapping[str, Any], Sequence[str]]:
    return (schema or {}).get("properties") or {}, (schema or {}).get("required") or ()


def _sentences(description: str) -> tuple[str, str]:
    """Give the first sentence, and the rest."""
    said = re.sub(r"\s+", " ", description).strip()[:_LONGEST_DESCRIPTION]
    end = _SENTENCE.search(said)
    return (said[: end.end()], said[end.end() :].strip()) if end else (said, "")


_SENTENCE = re.compile(r"[.!?](?= [A-Z])")


def _kind(schema: Any) -> str:
    """Give a type in a word or two."""
    if not isinstance(schema, Mapping):
        return "any"
    if "enum" in schema:
        return "|".join(written(value) for value in schema["enum"])[:200]
    for several in ("anyOf", "oneOf"):
        if several in schema:
            return "|".join(_kind(part) for part in schema[several])
    if holds_json(schema):
        return "JSON"
    kind = schema.get("type", "any")
    if kind == "array":
        return f"{_kind(schema.get('items', {}))}[]"
    return "|".join(kind) if isinstance(kind, list) else str(kind)
