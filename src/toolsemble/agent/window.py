"""The part of a long conversation that a model is shown."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from toolsemble.models.message import AssistantMessage, Message, SystemMessage, ToolMessage, UserMessage
from toolsemble.models.transcript import Transcript

_TEXT_OF_A_TOKEN = 4
_IMAGE = 800
_AROUND = 4


def estimated_tokens(message: Message) -> int:
    """Give about how many tokens a message takes, without any model's tokenizer.

    >>> estimated_tokens(UserMessage("All roads lead to Rome"))
    9
    """
    letters, images = len(message.text), 0
    if isinstance(message, AssistantMessage):
        letters += sum(len(call.name) + len(call.json) for call in message.calls)
    elif isinstance(message, UserMessage):
        images = len(message.images)
    elif isinstance(message, ToolMessage):
        images = len(message.reply.contents)
    return letters // _TEXT_OF_A_TOKEN + images * _IMAGE + _AROUND


def windowed(messages: Transcript, limit: int, weigh: Callable[[Message], int], question: int) -> Sequence[Message]:
    """Give the end of a conversation that weighs no more than the limit; a call and its replies stay together.

    It begins with something that a person said. Where the current question and what came after it are too much by
    themselves, the question stays, with as many of the last turns as fit, at least one. A system message always
    stays, and is not weighed.

    :param question: where the current question stands; -1 when nobody has asked anything
    """
    system: list[Message] = [messages[0]] if messages and isinstance(messages[0], SystemMessage) else []
    begin, turn, left = len(messages), len(messages), limit
    while turn > len(system):
        turn, weight = _turn_before(messages, turn, weigh)
        left -= weight
        if left < 0:
            break
        if isinstance(messages[turn], UserMessage):
            begin = turn
    else:
        return messages  # all of it fits
    if begin <= question:
        return [*system, *messages[begin:]]
    asked = [messages[question]] if question >= 0 else []
    left = limit - sum(map(weigh, asked))
    return [*system, *asked, *messages[_last_turns(messages, left, weigh, max(question + 1, len(system))) :]]


def _last_turns(messages: Transcript, left: int, weigh: Callable[[Message], int], first: int) -> int:
    """Give where the turns begin that fit, of those from the first on; the last one always does."""
    begin = turn = len(messages)
    while turn > first:
        turn, weight = _turn_before(messages, turn, weigh)
        left -= weight
        if left < 0 and begin < len(messages):
            break
        begin = turn
    return begin


def _turn_before(messages: Transcript, end: int, weigh: Callable[[Message], int]) -> tuple[int, int]:
    """Give where the turn begins that ends there, and what it weighs: one message, or calls with their replies."""
    begin = end - 1
    weight = weigh(messages[begin])
    while isinstance(messages[begin], ToolMessage):
        begin -= 1
        weight += weigh(messages[begin])
    return begin, weight
