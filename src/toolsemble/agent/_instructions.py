"""The instructions of an agent: texts and functions of the run, joined in the system message."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, TypeAlias

from toolsemble._runtime.concurrency import is_awaitable
from toolsemble._runtime.text import describe_error, escape_surrogates
from toolsemble._vocabulary.errors import ToolDefinitionError
from toolsemble.models._message import Message, SystemMessage

_BREAK = "\n\n"


class RunFunction(NamedTuple):
    """A function of the user that may take the run as its last parameter."""

    function: Callable[..., Any]
    """The function, sync or async."""
    takes_run: bool
    """Whether it takes the run."""
    what: str
    """The kind of the function, for messages."""

    async def call(self, *values: object, view: Callable[[], object]) -> Any:
        """Return its result for these values, and for the run if it takes it; an error names the function."""
        try:
            result = self.function(*values, view()) if self.takes_run else self.function(*values)
            return await result if is_awaitable(result) else result
        except Exception as error:
            if type(error).__module__.partition(".")[0] == __name__.partition(".")[0]:
                raise  # the errors of this package have a meaning for the run, such as that it ends early
            raise RuntimeError(f"The {self.what} {self.name} failed: {describe_error(error)}") from error

    @property
    def name(self) -> str:
        """The function's name, for messages."""
        return str(getattr(self.function, "__name__", type(self.function).__name__))


Part: TypeAlias = str | RunFunction
"""A part of the instructions."""


def read_function(what: str, kind: str, function: object, *values: str) -> RunFunction:
    """Return a function of the user; raise :class:`ToolDefinitionError` if it cannot be called.

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
    """Return whether a function can be called with this many values; True if its signature is unknown.

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
    """Return instructions as parts; raise :class:`ToolDefinitionError` for anything but texts and functions.

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
    """Return the instructions of a run as one text, after calling the functions among them."""
    return join_texts([part if isinstance(part, str) else await _call(part, view) for part in parts])


async def _call(part: RunFunction, view: Callable[[], object]) -> str:
    text = await part.call(view=view)
    if text is not None and not isinstance(text, str):
        raise TypeError(f"The instructions function {part.name} must return a str or None, not {text!r:.80}")
    return escape_surrogates(text or "")


def join_texts(texts: Iterable[str]) -> str:
    r"""Return texts as one, separated by blank lines; blank ones are omitted.

    >>> join_texts(["Be brief.", " ", "Be kind."])
    'Be brief.\n\nBe kind.'
    """
    return _BREAK.join(text for text in texts if text.strip())


def build_system_message(generated: str, kept: str) -> SystemMessage | None:
    """Return the system message of a run; None if there is no text.

    :param generated: the agent's instructions, which another run replaces by its own
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
    """What another agent wrote from its own instructions."""
    kept: str
    """What a person wrote; it stays in the conversation."""


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
        kept = merge_texts(kept, message.text)  # a prompt may repeat what is in the history already
    return SystemTexts(generated, kept)


def merge_texts(first: str, second: str) -> str:
    r"""Return two texts as one; one that is a part of the other is not repeated.

    >>> merge_texts("Be brief.", "Be kind."), merge_texts("Be brief.", "Be brief.")
    ('Be brief.\n\nBe kind.', 'Be brief.')
    """
    if _is_part(second, first):
        return first
    return second if _is_part(first, second) else join_texts([first, second])


def _is_part(text: str, whole: str) -> bool:
    return f"{_BREAK}{text}{_BREAK}" in f"{_BREAK}{whole}{_BREAK}"


def count_system_messages(messages: Sequence[Message]) -> int:
    """Return how many messages at the start are system messages.

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
