"""The prompt of the local model: tools as lines, example dialogues, and the conversation as steps.

Made for small models, which cannot follow the JSON Schemas that larger models get.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal, TypeAlias

from toolsemble._vocabulary.specification import ToolSpecification
from toolsemble.models._chat import ChatRequest
from toolsemble.models._local.demonstration import make_demonstrations
from toolsemble.models._local.grammar import dump_json, forbid_same_start, holds_json, step_grammar
from toolsemble.models._local.history import History, PromptMessage, Turn, find_described, parse_json
from toolsemble.models._local.reply_reader import PlainReader, StepReader
from toolsemble.models._message import SystemMessage, ToolMessage

FINAL = "final_answer"
"""The name of the call with which the model answers."""

Attempt: TypeAlias = Literal["first", "other start", "sampled", "answer"]
"""The way a step is requested; see :meth:`LocalRequest.attempts`."""

_SAMPLING = {"temperature": 0.8, "seed": 7}  # a fixed seed, for reproducible replies
_MAX_DESCRIPTION = 2000
_TEXT: dict[str, Any] = {
    "type": "object",
    "properties": {"text": {"type": "string", "minLength": 1}},
    "required": ["text"],
}


class LocalRequest:
    """A request to the local model: its prompt, and the grammar and the reader of the next step."""

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
        """The names of the tools that can be called."""
        return [] if self._request.tool_choice == "none" else [each.name for each in self._specifications]

    @property
    def can_answer(self) -> bool:
        """Whether the model may answer without a call."""
        return self._request.tool_choice != "required" or not self._specifications

    def attempts(self) -> list[Attempt]:
        """Return the attempts for the next step; each is used if the one before repeated an earlier call.

        A small model that cannot continue repeats itself forever. After a failed call it finds another one if the first
        character must differ, or if tokens are sampled; at last it has to answer.
        """
        if self.is_chat or not self.can_answer:
            return ["first"]
        if self.history.failed is None:
            return ["first", "answer"]
        return ["first", "other start", "sampled", "answer"]

    def settings(self, attempt: Attempt) -> dict[str, Any]:
        """Return the settings for llama.cpp."""
        if self.is_chat:
            return {}
        return {"grammar": self.grammar(attempt), **(_SAMPLING if attempt == "sampled" else {})}

    def make_reader(self, attempt: Attempt) -> PlainReader | StepReader:
        """Return the reader of the step."""
        if self.is_chat:
            return PlainReader()
        made = self.history.made if self.can_answer and attempt != "answer" else ()
        return StepReader(self.names, self.final, structured=self.structured, made=made)

    def grammar(self, attempt: Attempt = "first") -> str:
        """Return the grammar of the next step."""
        arguments: dict[str, Mapping[str, Any] | None] = {}
        if self.names and attempt != "answer":
            arguments |= {each.name: each.parameters for each in self._specifications}
        failed = self.history.failed
        if attempt == "other start" and failed is not None and failed.name in arguments:
            arguments[failed.name] = forbid_same_start(arguments[failed.name], parse_json(failed.json))
        # The model may not answer before all planned tools were used.
        if attempt == "answer" or (self.can_answer and not set(self.history.left).intersection(self.names)):
            arguments[self.final] = self._answer_schema
        return step_grammar(arguments, self.final, "plan" if self.history.is_new else "note")

    def opening_turns(self, described: Collection[str] = ()) -> list[Turn]:
        """Return the turns before the conversation: the system message and the examples.

        :param described: the names of the tools that the conversation describes where they were found: the tools before
            it stay the same when one is found, and are not read again
        """
        own = "\n".join(message.text for message in self._request.messages if isinstance(message, SystemMessage))
        if self.is_chat:
            return [(PromptMessage("system", own or _CHAT),)]
        found = find_described(self.history.turns)
        needed = {each.name: _parameters(each.parameters)[1] for each in self._specifications if each.name not in found}
        tools = [each for each in self._specifications if each.name not in described]
        return [(PromptMessage("system", self._describe(own, tools)),), *make_demonstrations(needed, self.final)]

    @property
    def _answer_schema(self) -> Mapping[str, Any]:
        return self._request.output_schema or _TEXT

    def _describe(self, own: str, tools: Sequence[ToolSpecification]) -> str:
        """Return the system message: the details of each tool, the rules, and a line for each tool at the end."""
        details = [_format_details(each.name, each.description, each.parameters) for each in tools]
        lines = [_format_line(each.name, each.description, each.parameters) for each in tools]
        answer = _format_line(self.final, _ANSWERS, self._answer_schema)
        return "\n".join(filter(None, [own, *details, _RULES, "Tools:", *lines, answer]))


# Without it, small models claim to be made by whoever made the texts that they were trained on.
_CHAT = "You are a helpful assistant, a small open model that runs locally in toolsemble."
_ANSWERS = "Answers the user. Use it as soon as you know the answer, and when no tool is needed."
_RULES = (
    "Solve the user's task step by step. Each step is one JSON object that calls one tool, and you get its result. "
    "The first step begins with a plan: all tools that the task needs, in order, and final_answer at the end. "
    "A later step begins with a note: the values that it needs, copied from the results as they are. "
    "Small talk and what everybody knows need no tool. But you do not know today's date or what is in a file: look it "
    "up with a tool before you use it. Never compute or count days by yourself. "
    "When nothing is left to do, call final_answer with the whole answer."
)


def _format_details(name: str, description: str, schema: Mapping[str, Any] | None) -> str:
    """Return the rest of a tool's description and its optional parameters, which are not in its line."""
    _, more = _split_first_sentence(description)
    properties, required = _parameters(schema)
    other = ", ".join(f"{key}: {_type_name(part)}" for key, part in properties.items() if key not in required)
    text = " ".join(filter(None, [more, f"Optional: {other}." if other else ""]))
    return f"{name}: {text}" if text else ""


def _format_line(name: str, description: str, schema: Mapping[str, Any] | None) -> str:
    """Return a tool as one line, without optional parameters: small models fill in whatever they see."""
    properties, required = _parameters(schema)
    needed = ", ".join(f"{key}: {_type_name(part)}" for key, part in properties.items() if key in required)
    return f"- {name}({needed}): {_split_first_sentence(description)[0]}"


def _parameters(schema: Mapping[str, Any] | None) -> tuple[Mapping[str, Any], Sequence[str]]:
    return (schema or {}).get("properties") or {}, (schema or {}).get("required") or ()


def _split_first_sentence(description: str) -> tuple[str, str]:
    """Return the first sentence, and the rest."""
    text = re.sub(r"\s+", " ", description).strip()[:_MAX_DESCRIPTION]
    end = _SENTENCE.search(text)
    return (text[: end.end()], text[end.end() :].strip()) if end else (text, "")


_SENTENCE = re.compile(r"[.!?](?= [A-Z])")


def _type_name(schema: Any) -> str:
    """Return a short name of a schema's type."""
    if not isinstance(schema, Mapping):
        return "any"
    if "enum" in schema:
        return "|".join(dump_json(value) for value in schema["enum"])[:200]
    for several in ("anyOf", "oneOf"):
        if several in schema:
            return "|".join(_type_name(part) for part in schema[several])
    if holds_json(schema):
        return "JSON"
    kind = schema.get("type", "any")
    if kind == "array":
        return f"{_type_name(schema.get('items', {}))}[]"
    return "|".join(kind) if isinstance(kind, list) else str(kind)
