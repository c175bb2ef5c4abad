"""A conversation as the steps that the model would have written, and the remaining plan."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from toolsemble._vocabulary.call import ToolCall
from toolsemble._vocabulary.errors import ModelError
from toolsemble._vocabulary.result import Media
from toolsemble.models._adapter.wire import describe_omitted, write_as_text
from toolsemble.models._local.grammar import dump_json, format_opening
from toolsemble.models._message import AssistantMessage, Message, ToolMessage, UserMessage

PLAN = "local_plan"
"""The key of the plan in the details of a message."""
NOTE = "local_note"
"""The key of the note."""
SEARCH = "find_tools"
"""The name of the tool with which a model finds and loads others, see :class:`~toolsemble.Catalog`."""

_FOUND = f"Result of {SEARCH}: "
# A tool's full line: a truncated one does not describe it.
_LOADED = re.compile(r"^- ([\w-]+)\(.*\)(?=:|$)", re.MULTILINE)
_MAX_TRIES = 2
_MAX_REPEATED = 300  # characters


@dataclass(frozen=True, slots=True)
class PromptMessage:
    """One message of the prompt."""

    role: str
    """The role: system, user or assistant."""
    text: str
    is_result: bool = False
    """Whether it is the result of a tool."""


Turn = tuple[PromptMessage, ...]
"""Messages that belong together: a user message, an answer, or calls with their results."""


def _read_file(content: Media) -> str:
    """Return a text file as text; raise ``ModelError`` for any other content."""
    text = write_as_text(content)
    if text is None:
        raise ModelError(
            f"The local model reads text and text files only, not {describe_omitted(content)}; use another model"
        )
    return text


class History:
    """The conversation so far, as steps.

    :param final: the name of the call that answers
    :param structured: whether answers are JSON
    :param plain: whether the conversation is plain text, without steps
    """

    def __init__(self, messages: Sequence[Message], final: str, *, structured: bool, plain: bool) -> None:
        self.turns: list[Turn] = []
        self.left: list[str] = []
        """The tools of the plan that were not used yet."""
        self.made: set[str] = set()
        """The calls for the current question, as the model would write them."""
        self.failed: ToolCall | None = None
        """The last call, if it failed."""
        self.is_new = True
        """Whether no call was made for the current question, so that the next step begins with a plan."""
        self._final, self._structured, self._plain = final, structured, plain
        self._tried: Counter[str] = Counter()
        self._plan: list[str] | None = None
        self._note: str | None = None
        self._question = ""
        for index, message in enumerate(messages):
            if isinstance(message, UserMessage):
                self._add_question(message)
            elif isinstance(message, AssistantMessage):
                self._add_reply(message, messages[index + 1 :] if message.calls and self.is_new else ())
            elif isinstance(message, ToolMessage):
                self._add_result(message)

    def _add_question(self, message: UserMessage) -> None:
        text = "\n\n".join(filter(None, (message.text, *map(_read_file, message.contents))))
        self.turns.append((PromptMessage("user", text),))
        self._question = message.text
        self.left, self.made, self.is_new, self.failed = [], set(), True, None
        self._tried.clear()

    def _add_reply(self, message: AssistantMessage, following: Sequence[Message]) -> None:
        if message.calls:
            # Text next to a call is dropped, because steps have no place for it.
            self.turns.append(())
            if self.is_new:
                self._plan = _read_plan(message.details) or _list_used_tools(following)
                self.left = list(self._plan)
            note = (message.details or {}).get(NOTE)
            self._note = note if isinstance(note, str) and not self.is_new else None
            return
        if self._plain:
            text = message.text
        else:
            arguments = parse_json(message.text) if self._structured else {"text": message.text}
            text = f"{format_opening(self._final, [self._final] if self.is_new else None)}{dump_json(arguments)}}}"
        self.turns.append((PromptMessage("assistant", text),))
        self.is_new = False

    def _add_result(self, message: ToolMessage) -> None:
        call, arguments = message.call, dump_json(parse_json(message.call.json))
        self.made.add(f"{format_opening(call.name)}{arguments}}}")
        plan = None if self._plan is None else [*self._plan, self._final]
        step = f"{format_opening(call.name, plan, self._note)}{arguments}}}"
        self._note = None
        self._plan, self.is_new, self.failed = None, False, call if message.reply.is_error else None
        self._update_plan(call, is_error=message.reply.is_error)
        unseen = [f"[{type(content).__name__}: cannot be shown]" for content in message.reply.result.contents]
        result = "\n".join([message.text, *unseen])
        found = bool(_LOADED.search(message.text)) if call.name == SEARCH else None
        following = format_next_step(self._question, self.left, is_error=message.reply.is_error, found=found)
        self.turns[-1] += make_call_turn(step, call.name, result, following)

    def _update_plan(self, call: ToolCall, *, is_error: bool) -> None:
        """Remove a tool from the plan after its use, or after repeated failures."""
        self._tried[call.name] += is_error
        if call.name in self.left and (not is_error or self._tried[call.name] >= _MAX_TRIES):
            self.left.remove(call.name)


def find_described(turns: Iterable[Turn]) -> frozenset[str]:
    r"""Return the names of the tools that the results of searches in these turns describe.

    >>> result = "Result of find_tools: 1 tool is loaded now; call it by name:\n- now(): The time."
    >>> find_described([(PromptMessage("user", result, is_result=True),)])
    frozenset({'now'})
    """
    results = (message.text for message in chain(*turns) if message.is_result)
    return frozenset(name for text in results if text.startswith(_FOUND) for name in _LOADED.findall(text))


def format_next_step(question: str, left: Sequence[str], *, is_error: bool = False, found: bool | None = None) -> str:
    """Return the instruction after the result of a call, with the tools of the plan that were not used yet.

    :param found: whether a search has found tools; None: it was not a search
    """
    # A short question is repeated, because a small model forgets it in a long prompt.
    task = f"Task: {question} " if len(question) <= _MAX_REPEATED else ""
    if is_error:
        return f"({task}Call the tool again with values in place of names, or go on with another tool.)"
    if found:
        return f"({task}Next: the loaded tool that fits, or {SEARCH} with other words.)"
    if found is False:
        return f"({task}Next: {SEARCH} with other words.)"
    if left:
        return f"({task}Next: {', '.join(left)}.)"
    return f"({task}If nothing is left to do, call final_answer with what the results say.)"


def make_call_turn(step: str, name: str, result: str, following: str) -> Turn:
    """Return a call with its result and the next instruction."""
    text = f"Result of {name}: {result}\n{following}"
    return PromptMessage("assistant", step), PromptMessage("user", text, is_result=True)


def _read_plan(details: Mapping[str, Any] | None) -> list[str]:
    plan = (details or {}).get(PLAN)
    return [name for name in plan if isinstance(name, str)] if isinstance(plan, list) else []


def _list_used_tools(messages: Sequence[Message]) -> list[str]:
    """Return the tools that were used for a question, if the model wrote no plan."""
    names: list[str] = []
    for message in messages:
        if isinstance(message, UserMessage):
            break
        if isinstance(message, ToolMessage):
            names.append(message.call.name)
    return names


def parse_json(text: str) -> Any:
    """Return the value of a JSON text; any other text unchanged."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
