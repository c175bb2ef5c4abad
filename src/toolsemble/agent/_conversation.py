"""What a model sees of a conversation: the instructions and a window of the messages; storage in memory."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, TypeAlias

from toolsemble._runtime.event_loops import is_awaitable
from toolsemble._runtime.text import describe_error, escape_surrogates
from toolsemble._runtime.threads import fork_safe_lock
from toolsemble._vocabulary.errors import ToolDefinitionError
from toolsemble.models._message import AssistantMessage, Message, SystemMessage, ToolMessage, Transcript, UserMessage

_BREAK = "\n\n"


class RunFunction(NamedTuple):
    """A user function that may take the run as its last parameter."""

    function: Callable[..., Any]
    """The function, sync or async."""
    takes_run: bool
    """Whether it takes the run."""
    what: str
    """The kind of the function, for messages."""

    async def call(self, *values: object, view: Callable[[], object]) -> Any:
        """Call the function with these values, and with the run if it takes one; errors name the function."""
        try:
            result = self.function(*values, view()) if self.takes_run else self.function(*values)
            return await result if is_awaitable(result) else result
        except Exception as error:
            if type(error).__module__.partition(".")[0] == __name__.partition(".")[0]:
                raise  # the errors of this package have a meaning for the run, such as an early exit
            raise RuntimeError(f"The {self.what} {self.name} failed: {describe_error(error)}") from error

    @property
    def name(self) -> str:
        """The function's name, for messages."""
        return str(getattr(self.function, "__name__", type(self.function).__name__))


Part: TypeAlias = str | RunFunction
"""A part of the instructions."""


def read_function(what: str, kind: str, function: object, *values: str) -> RunFunction:
    """Check a user function and return it; raise :class:`ToolDefinitionError` if it cannot be called.

    :param what: the setting, for the message
    :param kind: the kind of the function, for messages
    :param values: the names of its parameters before the run

    >>> read_function("Agent instructions", "instructions function", lambda: "Be brief.").takes_run
    False
    """
    if not callable(function) or isinstance(function, type):
        raise ToolDefinitionError(f"{what} must be functions, not {function!r:.80}")
    for takes_run in (False, True):
        if takes(function, len(values) + takes_run):
            return RunFunction(function, takes_run, kind)
    alone = f"({', '.join(values)})" if values else "no parameters"
    raise ToolDefinitionError(f"{what}: {function!r:.80} must take {alone}, or ({', '.join([*values, 'run'])})")


def takes(function: Callable[..., Any], count: int) -> bool:
    """Return whether a function accepts this many arguments; True if its signature is unknown.

    >>> takes(len, 1), takes(len, 2)
    (True, False)
    """
    try:
        inspect.signature(function).bind(*[None] * count)
    except TypeError:
        return False
    except ValueError:
        return True  # its signature is unknown
    return True


def read_instructions(given: object) -> tuple[Part, ...]:
    """Return instructions as parts; raise :class:`ToolDefinitionError` for anything but strings and functions.

    >>> read_instructions(["Be brief.", ""])
    ('Be brief.',)
    """
    if given is None:
        return ()
    parts = list(given) if isinstance(given, Sequence) and not isinstance(given, str) else [given]
    return tuple(_read_part(part) for part in parts if not (isinstance(part, str) and not part.strip()))


def _read_part(part: object) -> Part:
    if isinstance(part, str):
        return escape_surrogates(part)
    if not callable(part):
        raise ToolDefinitionError(f"Agent instructions must be a str, a function, or a list of them, not {part!r:.80}")
    return read_function("Agent instructions", "instructions function", part)


async def write_instructions(parts: Iterable[Part], view: Callable[[], object]) -> str:
    """Call the functions among a run's instructions, and return the instructions as one text."""
    return join_texts([part if isinstance(part, str) else await _call(part, view) for part in parts])


async def _call(part: RunFunction, view: Callable[[], object]) -> str:
    text = await part.call(view=view)
    if text is not None and not isinstance(text, str):
        raise TypeError(f"The instructions function {part.name} must return a str or None, not {text!r:.80}")
    return escape_surrogates(text or "")


def join_texts(texts: Iterable[str]) -> str:
    r"""Join texts with blank lines; omit blank ones.

    >>> join_texts(["Be brief.", " ", "Be kind."])
    'Be brief.\n\nBe kind.'
    """
    return _BREAK.join(text for text in texts if text.strip())


def build_system_message(generated: str, kept: str) -> SystemMessage | None:
    """Return the system message of a run; None if there is no text.

    :param generated: the agent's instructions, which another run replaces with its own
    :param kept: the text of system messages in the prompt and the history
    """
    text = join_texts([generated, kept])
    return SystemMessage(text, generated) if text else None


def describe_role(role: str, goal: str, background: str) -> str:
    """Return the instructions of a role, a goal and a background.

    >>> print(describe_role("a librarian", "find the book", ""))
    You are a librarian.
    Your goal: find the book
    """
    # A role is often written as a sentence.
    name = re.sub(r"^you are\s+", "", role.strip(), flags=re.IGNORECASE).rstrip(".")
    lines = [
        f"You are {name}." if name else "",
        f"Your goal: {goal.strip()}" if goal.strip() else "",
        f"Background: {background.strip()}" if background.strip() else "",
    ]
    return "\n".join(filter(None, lines))


class SystemTexts(NamedTuple):
    """The texts of the system messages that a run starts with."""

    generated: str
    """Text generated from another agent's instructions."""
    kept: str
    """Text written by a person; it stays in the conversation."""


NO_SYSTEM_TEXTS = SystemTexts("", "")
"""The texts of a run that starts without system messages."""


def collect_system_texts(history: Sequence[Message], prompt: Sequence[Message]) -> SystemTexts:
    r"""Return the texts of the system messages at the start of a history and of a prompt.

    >>> collect_system_texts([SystemMessage("Be brief.")], [SystemMessage("Be kind.")]).kept
    'Be brief.\n\nBe kind.'
    """
    first = history[0] if history else None
    generated = first.generated if isinstance(first, SystemMessage) else ""
    kept = read_kept_text(history)
    for message in prompt[: count_system_messages(prompt)]:
        kept = merge_texts(kept, message.text)  # a prompt may repeat text from the history
    return SystemTexts(generated, kept)


def merge_texts(first: str, second: str) -> str:
    r"""Join two texts; one that is part of the other is not repeated.

    >>> merge_texts("Be brief.", "Be kind."), merge_texts("Be brief.", "Be brief.")
    ('Be brief.\n\nBe kind.', 'Be brief.')
    """
    if _is_part(second, first):
        return first
    return second if _is_part(first, second) else join_texts([first, second])


def _is_part(text: str, whole: str) -> bool:
    return f"{_BREAK}{text}{_BREAK}" in f"{_BREAK}{whole}{_BREAK}"


def count_system_messages(messages: Sequence[Message]) -> int:
    """Return the number of leading system messages.

    >>> count_system_messages([SystemMessage("Be brief.")])
    1
    """
    for index, message in enumerate(messages):
        if not isinstance(message, SystemMessage):
            return index
    return len(messages)


def read_kept_text(messages: Sequence[Message]) -> str:
    r"""Return the part of the first system message of a conversation that no agent generated.

    >>> read_kept_text([SystemMessage("You are a poet.\n\nBe brief.", "You are a poet.")])
    'Be brief.'
    """
    first = messages[0] if messages else None
    if not isinstance(first, SystemMessage):
        return ""
    return first.text.removeprefix(first.generated).removeprefix(_BREAK)


_CHARACTERS_PER_TOKEN = 4
_TOKENS_PER_IMAGE = 800
_TOKENS_PER_MESSAGE = 4


def estimate_tokens(message: Message) -> int:
    """Return the estimated number of tokens of a message, without a tokenizer.

    >>> estimate_tokens(UserMessage("All roads lead to Rome"))
    9
    """
    characters, images = len(message.text), 0
    if isinstance(message, AssistantMessage):
        characters += sum(len(call.name) + len(call.json) for call in message.calls)
    elif isinstance(message, UserMessage):
        texts = [content for content in message.contents if content.mime_type.startswith("text/")]
        characters += sum(len(content.data) for content in texts)
        images = len(message.contents) - len(texts)
    elif isinstance(message, ToolMessage):
        images = len(message.reply.contents)
    return characters // _CHARACTERS_PER_TOKEN + images * _TOKENS_PER_IMAGE + _TOKENS_PER_MESSAGE


def trim_messages(
    messages: Sequence[Message], limit: int, weigh: Callable[[Message], int], question: int
) -> Sequence[Message]:
    """Return the last messages whose total weight is within the limit; calls and their replies stay together.

    The window begins with a user message. If the current question and the messages after it exceed the limit, the
    question stays, with as many of the last turns as fit, at least one. A system message always stays, and is not
    counted.

    :param question: the index of the current question; -1 if there is none
    """
    system: list[Message] = [messages[0]] if messages and isinstance(messages[0], SystemMessage) else []
    begin, turn, left = len(messages), len(messages), limit
    while turn > len(system):
        turn, weight = _find_turn(messages, turn, weigh)
        left -= weight
        if left < 0:
            break
        if isinstance(messages[turn], UserMessage):
            begin = turn
    else:
        return messages  # all of it fits
    if begin <= question:
        return [*system, *messages[begin:]]
    kept = [*system, messages[question]] if question >= 0 else system
    left = limit - sum(map(weigh, kept[len(system) :]))
    return [*kept, *messages[_find_last_turns(messages, left, weigh, max(question + 1, len(system))) :]]


def _find_last_turns(messages: Sequence[Message], left: int, weigh: Callable[[Message], int], first: int) -> int:
    """Return the start index of the turns that fit, not before ``first``; the last turn always fits."""
    begin = turn = len(messages)
    while turn > first:
        turn, weight = _find_turn(messages, turn, weigh)
        left -= weight
        if left < 0 and begin < len(messages):
            break
        begin = turn
    return begin


def _find_turn(messages: Sequence[Message], end: int, weigh: Callable[[Message], int]) -> tuple[int, int]:
    """Return the start and weight of the turn that ends there: one message, or calls with their replies."""
    begin = end - 1
    weight = weigh(messages[begin])
    while isinstance(messages[begin], ToolMessage):
        begin -= 1
        weight += weigh(messages[begin])
    return begin, weight


def append_messages(kept: Transcript, before: Transcript | None, after: Transcript, count: int) -> Transcript:
    """Return a stored conversation extended by the new messages of another copy."""
    new, system = new_messages(after, count), merge_system(kept, after, count)
    # Usually there are no other writers, and the other copy already is the result.
    if before is not None and kept.is_same(before) and len(new) == count:
        return after.under(system)
    return kept.plus(*new).under(system)


def merge_system(kept: Transcript, after: Transcript, count: int) -> SystemMessage | None:
    """Return the system message to store: the text written by people, without the agent's instructions.

    >>> merge_system(Transcript(), Transcript([SystemMessage("You are a poet.", "You are a poet.")]), 0) is None
    True
    """
    text = merge_texts(read_kept_text(kept), read_kept_text(after))
    for message in after[max(len(after) - count, 1) :]:
        text = merge_texts(text, message.text) if isinstance(message, SystemMessage) else text
    return SystemMessage(text) if text else None


def new_messages(after: Transcript, count: int) -> list[Message]:
    """Return the last messages, without system messages, which are stored separately."""
    return [message for message in after[len(after) - count :] if not isinstance(message, SystemMessage)]


class InMemoryStore:
    """Conversations in a dict.

    >>> InMemoryStore().ids()
    []
    """

    in_place = True
    """Whether it is fast enough to run in the event loop."""

    def __init__(self) -> None:
        self._kept: dict[str, Transcript] = {}
        self._lock = fork_safe_lock(self)

    def load(self, memory_id: str) -> Transcript:
        """Return a conversation; an empty one if the id is unknown."""
        return self._kept.get(memory_id) or Transcript()

    def extend(self, memory_id: str, before: Transcript | None, after: Transcript, count: int) -> None:
        """Add messages to a conversation."""
        with self._lock:
            self._kept[memory_id] = append_messages(self.load(memory_id), before, after, count)

    def clear(self, memory_id: str) -> None:
        """Delete a conversation."""
        with self._lock:
            self._kept.pop(memory_id, None)

    def ids(self) -> list[str]:
        """Return the ids of the conversations, in the order of their creation."""
        return list(self._kept)

    def close(self) -> None:
        """Do nothing: there are no open resources."""
