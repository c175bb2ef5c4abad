"""One question, from the agent's first event to the exit code."""

from __future__ import annotations

import asyncio
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import Any

from toolsemble.agent.agent import Agent
from toolsemble.agent.event import Final
from toolsemble.agent.memory import ConversationMemory
from toolsemble.agent.result import AgentResult
from toolsemble.cli.exit_codes import Exit
from toolsemble.cli.redirect import aside
from toolsemble.cli.text_output import Listener
from toolsemble.context import ToolContext
from toolsemble.models.message import AssistantMessage, SystemMessage
from toolsemble.models.transcript import Transcript

TOPIC = ToolContext.memory_id
"""Under which id a conversation of the command line is remembered."""

_TICK = 0.1
_WELL = {"answer", "immediate"}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a question.

    >>> Outcome(Exit.DONE).said
    ''
    """

    code: Exit
    """How it ended."""
    partial: AgentResult | None = None
    """What was done until a person interrupted it."""
    said: str = ""
    """Text that is in none of its messages, as the model was interrupted in it."""


def followed(agent: Agent, question: str, listener: Listener) -> Outcome:
    """Ask, and have somebody told of everything; Ctrl-C ends the run, not the program. What fails is raised."""
    run = _Run(agent, question, listener)
    try:
        # With a factory the runner leaves the thread's own event loop setting alone.
        with aside(), asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
            result = runner.run(run.result())
    except KeyboardInterrupt:
        return Outcome(Exit.INTERRUPTED, run.partial, listener.end(None, run.partial or AgentResult()))
    except BaseException as error:
        listener.end(error, getattr(error, "partial", None) or AgentResult())
        raise
    return Outcome(Exit.DONE if result.stop_reason in _WELL else Exit.STOPPED)


def remember(memory: ConversationMemory, outcome: Outcome) -> None:
    """Add to a conversation what an answer was interrupted in, so that the next question can refer to it."""
    if outcome.partial is None:
        return
    kept = len(memory.load(TOPIC))
    spoken = [each for each in outcome.partial.messages if not isinstance(each, SystemMessage)]
    after = Transcript([*spoken, AssistantMessage(f"{outcome.said} (interrupted)".lstrip())])
    memory.extend(TOPIC, None, after, len(after) - kept)


class _Run:
    """A run that is being followed."""

    def __init__(self, agent: Agent, question: str, listener: Listener) -> None:
        self._agent = agent
        self._question = question
        self._listener = listener
        self.partial: AgentResult | None = None

    async def result(self) -> AgentResult:
        """Give the result."""
        clock = asyncio.create_task(self._ticking())
        try:
            return await self._followed()
        except asyncio.CancelledError as error:
            self.partial = getattr(error, "partial", None)
            raise
        finally:
            clock.cancel()
            with suppress(asyncio.CancelledError):
                await clock

    async def _followed(self) -> AgentResult:
        event: Any = None
        async with aclosing(self._agent.stream(self._question)) as events:
            async for event in events:
                self._listener.take(event)
        assert isinstance(event, Final)  # noqa: S101 - always the last one
        return event.result

    async def _ticking(self) -> None:
        while True:
            self._listener.tick()
            await asyncio.sleep(_TICK)
