"""The window of a long conversation: the messages that a model sees."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from toolsemble.models._message import AssistantMessage, Message, SystemMessage, ToolMessage, UserMessage

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
    """Return the last messages whose total weight is within the limit; a call and its replies stay together.

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
    """Return where the turns that fit begin, not before ``first``; the last turn always fits."""
    begin = turn = len(messages)
    while turn > first:
        turn, weight = _find_turn(messages, turn, weigh)
        left -= weight
        if left < 0 and begin < len(messages):
            break
        begin = turn
    return begin


def _find_turn(messages: Sequence[Message], end: int, weigh: Callable[[Message], int]) -> tuple[int, int]:
    """Return the start of the turn that ends there, and its weight: one message, or calls with their replies."""
    begin = end - 1
    weight = weigh(messages[begin])
    while isinstance(messages[begin], ToolMessage):
        begin -= 1
        weight += weigh(messages[begin])
    return begin, weight
