"""History processors: functions that change the messages sent to a model, not the stored messages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from toolsemble._runtime.checks import check_count
from toolsemble._vocabulary.errors import ToolConfigurationError, ToolDefinitionError
from toolsemble.agent import _conversation as conversation
from toolsemble.agent._options import RunView
from toolsemble.models._message import AssistantMessage, Message, SystemMessage, Transcript, UserMessage


def read_processors(given: Iterable[object]) -> tuple[conversation.RunFunction, ...]:
    """Return the history processors of an agent; raise :class:`ToolDefinitionError` if one cannot be called."""
    return tuple(
        conversation.read_function("Agent history_processors", "history processor", each, "messages") for each in given
    )


async def process_history(
    processors: Iterable[conversation.RunFunction], messages: Sequence[Message], view: Callable[[], RunView]
) -> Sequence[Message]:
    """Apply the processors in order, and return the messages to send, after the system message.

    A leading system message from a processor is joined with the conversation's system message.
    """
    own = [messages[0]] if messages and isinstance(messages[0], SystemMessage) else []
    rest: Sequence[Message] = messages[len(own) :]
    for processor in processors:
        rest = _check_messages(processor, await processor.call(rest, view=view), rest)
    number = conversation.count_system_messages(rest)
    if number:
        own = [SystemMessage(conversation.join_texts(message.text for message in (*own, *rest[:number])))]
    return [*own, *rest[number:]]


def _check_messages(processor: conversation.RunFunction, found: object, before: Sequence[Message]) -> Sequence[Message]:
    if isinstance(found, str) or not isinstance(found, Iterable):
        raise ToolConfigurationError(f"The history processor {processor.name} must return messages, not {found!r:.80}")
    try:
        checked = list(Transcript(found))
    except ToolConfigurationError as problem:
        raise ToolConfigurationError(
            f"The history processor {processor.name} returned an invalid conversation: {problem}"
        ) from problem
    if conversation.count_system_messages(checked) == len(checked):
        raise ToolConfigurationError(
            f"The history processor {processor.name} removed every message; keep at least the question"
        )
    if isinstance(checked[-1], AssistantMessage) and not isinstance(before[-1], AssistantMessage):
        raise ToolConfigurationError(
            f"The history processor {processor.name} removed the last message, so there is nothing to answer; "
            "keep the question and what follows it"
        )
    return checked


def keep_last_turns(number: int) -> Callable[[Sequence[Message], RunView], Sequence[Message]]:
    """Return a history processor that keeps the last user messages and everything after the first of them.

    Calls are never separated from their replies.

    :param number: how many user messages to keep, an int >= 1

    >>> from toolsemble import Agent
    >>> from toolsemble.models import AssistantMessage, ScriptedModel
    >>> model = ScriptedModel(["Fine."])
    >>> earlier = [UserMessage("Hello"), AssistantMessage("Hi")]
    >>> agent = Agent(model, history_processors=[keep_last_turns(1)])
    >>> len(agent.run_sync("How are you?", history=earlier).messages), len(model.requests[0])
    (4, 1)
    """
    check_count("keep_last_turns number", number, least=1)

    def keep(messages: Sequence[Message], run: RunView) -> Sequence[Message]:
        return _trim(messages, number, _count_user_message, run)

    return keep


def trim_to_tokens(
    limit: int, count: Callable[[Message], int] = conversation.estimate_tokens
) -> Callable[[Sequence[Message], RunView], Sequence[Message]]:
    """Return a history processor that keeps the last messages within a token limit.

    The question always stays, with the last turn after it. Calls are never separated from their replies.

    :param limit: maximum tokens, an int >= 1
    :param count: returns the number of tokens of a message; an estimate by default

    >>> from toolsemble import Agent
    >>> from toolsemble.models import ScriptedModel
    >>> model = ScriptedModel(["Fine."])
    >>> agent = Agent(model, history_processors=[trim_to_tokens(8_000)])
    >>> agent.run_sync("How are you?").text
    'Fine.'
    """
    check_count("trim_to_tokens limit", limit, least=1)
    if not callable(count):
        raise ToolDefinitionError(f"trim_to_tokens count must be a function of a message, not {count!r:.80}")

    def trim(messages: Sequence[Message], run: RunView) -> Sequence[Message]:
        return _trim(messages, limit, count, run)

    return trim


def _count_user_message(message: Message) -> int:
    return 1 if isinstance(message, UserMessage) else 0


def _trim(messages: Sequence[Message], limit: int, weigh: Callable[[Message], int], run: RunView) -> Sequence[Message]:
    return conversation.trim_messages(messages, limit, weigh, find_question(messages, run))


def find_question(messages: Sequence[Message], run: RunView) -> int:
    """Return the index of a run's question in its messages, or of the last user message; -1 if there is none."""
    last = -1
    for index in range(len(messages) - 1, -1, -1):
        if messages[index] is run.question:
            return index
        if last < 0 and isinstance(messages[index], UserMessage):
            last = index
    return last
