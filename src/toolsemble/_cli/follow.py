"""Run an agent for one question, and report its events to a listener."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from toolsemble._cli.options import Exit
from toolsemble._cli.screen import redirect_prints
from toolsemble._cli.text_output import Listener
from toolsemble._engine.context import ToolContext
from toolsemble._vocabulary.errors import RunError, RunParkedError
from toolsemble.agent._agent import Agent
from toolsemble.agent._event import Final, RunParked
from toolsemble.agent._memory import ConversationMemory
from toolsemble.agent._result import AgentResult
from toolsemble.models._message import AssistantMessage, Prompt, SystemMessage
from toolsemble.models._transcript import Transcript

MEMORY_ID = ToolContext.memory_id
"""The memory id of conversations of the command line."""

NO_SETTINGS: Mapping[str, Any] = MappingProxyType({"memory_id": MEMORY_ID})
"""The settings of a run that is given no others."""

_TICK_SECONDS = 0.1
_SUCCESS = {"answer", "immediate"}


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a question.

    >>> Outcome(Exit.DONE).unfinished
    ''
    """

    code: Exit
    partial: AgentResult | None = None
    """The result until the person interrupted the run; None if it was not interrupted."""
    unfinished: str = ""
    """The text of an interrupted model reply, which is not in the messages of ``partial``."""


def run_agent(agent: Agent, question: Prompt, listener: Listener, settings: Mapping[str, Any] = NO_SETTINGS) -> Outcome:
    """Run an agent and pass its events to a listener; Ctrl-C ends the run, not the program; errors are raised.

    :param settings: the settings of the run
    """
    run = _Run(agent, question, listener, settings)
    try:
        # With a factory, the runner does not change the thread's event loop policy.
        with redirect_prints(), asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
            result = runner.run(run.run())
    except KeyboardInterrupt:
        return Outcome(Exit.INTERRUPTED, run.partial, listener.end(None, run.partial or AgentResult()))
    except BaseException as error:
        listener.end(error, getattr(error, "partial", None) or AgentResult())
        raise
    return Outcome(Exit.DONE if result.stop_reason in _SUCCESS else Exit.STOPPED)


def save_interrupted(memory: ConversationMemory, outcome: Outcome, memory_id: str = MEMORY_ID) -> None:
    """Add an interrupted answer to the conversation, so that the next question can refer to it."""
    if outcome.partial is None:
        return
    kept = len(memory.load(memory_id))
    messages = [each for each in outcome.partial.messages if not isinstance(each, SystemMessage)]
    after = Transcript([*messages, AssistantMessage(f"{outcome.unfinished} (interrupted)".lstrip())])
    memory.extend(memory_id, None, after, len(after) - kept)


class _Run:
    """A run whose events are passed to a listener."""

    def __init__(self, agent: Agent, question: Prompt, listener: Listener, settings: Mapping[str, Any]) -> None:
        self._agent = agent
        self._settings = settings
        self._question = question
        self._listener = listener
        self.partial: AgentResult | None = None

    async def run(self) -> AgentResult:
        """Run to the end and return the result."""
        clock = asyncio.create_task(self._tick_regularly())
        event: Any = None
        try:
            async with aclosing(self._agent.stream(self._question, **self._settings)) as events:
                async for event in events:
                    self._listener.take(event)
        except asyncio.CancelledError as error:
            self.partial = getattr(error, "partial", None)
            raise
        finally:
            clock.cancel()
            with suppress(asyncio.CancelledError):
                await clock
        if isinstance(event, RunParked):
            raise RunParkedError(f"Run '{event.run_id}' waits for approval", run_id=event.run_id)
        if not isinstance(event, Final):
            raise RunError(f"Run '{event.run_id}' was {event.kind}", run_id=event.run_id)
        result: AgentResult = event.result
        return result

    async def _tick_regularly(self) -> None:
        while True:
            self._listener.tick()
            await asyncio.sleep(_TICK_SECONDS)
