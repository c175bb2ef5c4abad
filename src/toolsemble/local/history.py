"""A conversation as the steps that the model would have written, with what is left of its plan."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from toolsemble.call import ToolCall
from toolsemble.errors import ModelError
from toolsemble.local.grammar import opening, written
from toolsemble.models.message import AssistantMessage, Message, ToolMessage, UserMessage

PLAN = "local_plan"
"""Where the plan stands in the details of a message."""
NOTE = "local_note"
"""Where the note stands."""

_MOST_TRIES = 2
_SHORT = 300  # letters


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


class History:
    """What was said until now, step by step.

    :param final: the name by which the model answers
    :param structured: whether answers are JSON
    :param plain: whether there are no steps at all, but text
    """

    def __init__(self, messages: Sequence[Message], final: str, *, structured: bool, plain: bool) -> None:
        self.turns: list[Turn] = []
        self.left: list[str] = []
        """The tools of the plan that were not used yet."""
        self.made: set[str] = set()
        """The calls that were made for the current question, as the model would write them."""
        self.failed: ToolCall | None = None
        """The last call, if it failed."""
        self.is_new = True
        """Whether nothing was done yet for the current question, so that a plan comes first."""
        self._final, self._structured, self._plain = final, structured, plain
        self._tried: Counter[str] = Counter()
        self._plan: list[str] | None = None
        self._note: str | None = None
        self._question = ""
        for index, message in enumerate(messages):
            if isinstance(message, UserMessage):
                self._ask(message)
            elif isinstance(message, AssistantMessage):
                self._say(message, messages[index + 1 :] if message.calls and self.is_new else ())
            elif isinstance(message, ToolMessage):
                self._reply(message)

    def _ask(self, message: UserMessage) -> None:
        if message.images:
            raise ModelError("The local model reads text only, and a message has images; use another model")
        self.turns.append((Said("user", message.text),))
        self._question = message.text
        self.left, self.made, self.is_new, self.failed = [], set(), True, None
        self._tried.clear()

    def _say(self, message: AssistantMessage, following: Sequence[Message]) -> None:
        if message.calls:
            # Words beside a call are left out: this model has no way to say any.
            self.turns.append(())
            if self.is_new:
                self._plan = _planned(message.details) or _done(following)
                self.left = list(self._plan)
            note = (message.details or {}).get(NOTE)
            self._note = note if isinstance(note, str) and not self.is_new else None
            return
        if self._plain:
            text = message.text
        else:
            arguments = parsed(message.text) if self._structured else {"text": message.text}
            text = f"{opening(self._final, [self._final] if self.is_new else None)}{written(arguments)}}}"
        self.turns.append((Said("assistant", text),))
        self.is_new = False

    def _reply(self, message: ToolMessage) -> None:
        call, arguments = message.call, written(parsed(message.call.json))
        self.made.add(f"{opening(call.name)}{arguments}}}")
        plan = None if self._plan is None else [*self._plan, self._final]
        step = f"{opening(call.name, plan, self._note)}{arguments}}}"
        self._note = None
        self._plan, self.is_new, self.failed = None, False, call if message.reply.is_error else None
        self._tick(call, is_error=message.reply.is_error)
        unseen = [f"[{type(content).__name__}: cannot be shown]" for content in message.reply.result.contents]
        result = "\n".join([message.text, *unseen])
        following = Next(self._question, tuple(self.left), message.reply.is_error)
        self.turns[-1] += call_turn(step, call.name, result, following)

    def _tick(self, call: ToolCall, *, is_error: bool) -> None:
        """Take a tool off the plan when it was used; one that fails again and again is given up."""
        self._tried[call.name] += is_error
        if call.name in self.left and (not is_error or self._tried[call.name] >= _MOST_TRIES):
            self.left.remove(call.name)


@dataclass(frozen=True, slots=True)
class Next:
    """What is to be done after a call."""

    question: str
    """What the user wants."""
    left: Sequence[str]
    """The tools that are still to be used."""
    is_error: bool = False
    """Whether the call failed."""

    def __str__(self) -> str:
        """Give it in words, with the question again if it is short: by now it is far away for a small model."""
        task = f"Task: {self.question} " if len(self.question) <= _SHORT else ""
        if self.is_error:
            return f"({task}Call the tool again with values in place of names, or go on with another tool.)"
        if self.left:
            return f"({task}Next: {', '.join(self.left)}.)"
        return f"({task}If nothing is left to do, call final_answer with what the results say.)"


def call_turn(step: str, name: str, result: str, following: Next) -> Turn:
    """Give a call with its result, and what is to be done next."""
    return Said("assistant", step), Said("user", f"Result of {name}: {result}\n{following}", is_result=True)


def _planned(details: Mapping[str, Any] | None) -> list[str]:
    plan = (details or {}).get(PLAN)
    return [name for name in plan if isinstance(name, str)] if isinstance(plan, list) else []


def _done(messages: Sequence[Message]) -> list[str]:
    """Give the tools that were used for a question by a model that did not say its plan."""
    names: list[str] = []
    for message in messages:
        if isinstance(message, UserMessage):
            break
        if isinstance(message, ToolMessage):
            names.append(message.call.name)
    return names


def parsed(text: str) -> Any:
    """Give the value of JSON text; whatever else a model wrote stays a text."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
