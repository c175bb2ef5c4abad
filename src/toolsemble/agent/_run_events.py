"""The events of a run for its sinks: its start, the replies of its model, and its end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable

from toolsemble._engine.execution.outcome import get_class_name
from toolsemble._runtime.observers.watchers import tell, watchers
from toolsemble._runtime.text import describe_error
from toolsemble._tools.toolbox.toolbox import Toolbox
from toolsemble._vocabulary.errors import CallPausedError, RunError
from toolsemble._vocabulary.place import Place
from toolsemble.agent._redaction import hide_secrets
from toolsemble.agent._result import AgentResult
from toolsemble.agent._settings import AgentConfig
from toolsemble.agent._state import RunState
from toolsemble.events import ModelReplied, ModelRetried, RunFinished, RunStarted
from toolsemble.models._chat import ChatReply, TokenUsage
from toolsemble.models._message import AssistantMessage

_NORMAL = frozenset({"parked", "interrupted", "taken_over", "cancelled"})


def emit_start(config: AgentConfig, state: RunState) -> None:
    """Send the start of a run, if anybody watches it."""
    if watchers():
        box = config.tools if isinstance(config.tools, Toolbox) else None
        messages, tools = hide_secrets(state.messages, box), () if box is None else tuple(box.names)
        resumed = state.is_resumed or _has_turns(state.context.place)
        tell(RunStarted.of(state.context, model=config.model_name, messages=messages, tools=tools, resumed=resumed))


def _has_turns(place: Place | None) -> bool:
    """Return whether a journal has turns of an agent that runs inside a call."""
    return place is not None and any(place.run.find_reply(f"{place.path}/{turn}") is not None for turn in (0, 1))


def emit_reply(config: AgentConfig, state: RunState, box: Toolbox, reply: ChatReply, seconds: float) -> None:
    """Send a reply of the model, if anybody watches the run."""
    if watchers():
        tell(
            ModelReplied.of(
                state.context,
                message=hide_secrets([AssistantMessage(reply.text, reply.calls)], box)[0],
                turn=state.spending.turns,
                model=config.model_name,
                usage=reply.usage,
                stop_reason=reply.stop_reason,
                duration=seconds,
                cost=state.spending.price(reply.usage),
            )
        )


def emit_retry(state: RunState, event: ModelRetried) -> None:
    """Send a retry of a model request, if anybody watches the run."""
    if watchers():
        context = state.context
        tell(ModelRetried.of(context, reason=event.reason, seconds=event.seconds))


async def emit_end(state: RunState, running: Awaitable[AgentResult]) -> AgentResult:
    """Await a run, and send its end, if anybody watches it."""
    if not watchers():
        return await running
    try:
        result = await running
    except BaseException as error:
        reason = find_stop_reason(error)
        tell(_build_end(state, reason, error=None if reason in _NORMAL and _is_normal(error) else error))
        raise
    tell(_build_end(state, result.stop_reason, result.text))
    return result


def find_stop_reason(error: BaseException) -> str:
    """Return why a run has ended with an exception.

    >>> find_stop_reason(ValueError("broken"))
    'error'
    """
    partial = getattr(error, "partial", None)
    return partial.stop_reason if isinstance(partial, AgentResult) else "error"


def _is_normal(error: BaseException) -> bool:
    """Return whether an exception only says that a run does not go on here."""
    return isinstance(error, (CallPausedError, RunError, asyncio.CancelledError))


def _build_end(state: RunState, reason: str, text: str = "", error: BaseException | None = None) -> RunFinished:
    spending, usage = state.spending, state.spending.usage()
    return RunFinished.of(
        state.context,
        stop_reason=reason,
        text=text,
        turns=spending.turns,
        usage=TokenUsage(usage.input_tokens, usage.output_tokens, usage.cached_tokens),
        cost=None if spending.prices is None else usage.cost,
        duration=time.monotonic() - spending.started,
        error_type="" if error is None else get_class_name(error),
        error="" if error is None else describe_error(error),
    )
