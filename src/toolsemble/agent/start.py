"""The start of a run: its settings, and the loop for a new run or for one that is resumed."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from typing import Any

from toolsemble.agent.channel import Channel
from toolsemble.agent.checks import RUN_ONLY, check_keywords
from toolsemble.agent.loop import Loop
from toolsemble.agent.options import RunInput, RunSettings
from toolsemble.agent.result import PausedRun
from toolsemble.agent.settings import AgentConfig, override_config
from toolsemble.agent.state import RunState
from toolsemble.call import new_id
from toolsemble.context import current_context
from toolsemble.models.prompt import to_messages


def start_run(
    config: AgentConfig,
    prompt: RunInput,
    settings: Mapping[str, Any],
    channel: Channel | None = None,
    *,
    streaming: bool = False,
) -> Loop:
    """Return the loop of a new run; raise if a setting of the run is not valid.

    :param channel: receives the events of the run; None: nobody does
    :param streaming: whether the model is asked to stream its replies
    """
    own: dict[str, Any] = {}
    if settings:
        check_keywords("A run", settings, ["output_type", *RunSettings.__annotations__])
        own = {name: settings[name] for name in RUN_ONLY & settings.keys()}
        config = override_config(config, settings)
    if isinstance(prompt, PausedRun):
        from toolsemble.agent.resume import read_resumption  # noqa: PLC0415 - most runs are not resumed

        resumption = read_resumption(prompt, own)
        return Loop(config, RunState(config, (), **own), channel, streaming=streaming, resumption=resumption)
    if own.pop("decisions", None) is not None:
        raise TypeError("Only a paused run takes decisions; pass result.paused in place of the prompt")
    messages = to_messages(prompt)
    durable = None
    if config.journal is not None and (current_context() is None or own.get("run_id") is not None):
        from toolsemble.agent.durable_run import DurableRun  # noqa: PLC0415 - most runs have no journal

        if own.get("run_id") is None:
            own["run_id"] = new_id()
        durable = DurableRun(config.journal, config, own["run_id"], messages, own)
    return Loop(config, RunState(config, messages, **own), channel, streaming=streaming, durable=durable)


def follow_run(
    config: AgentConfig, prompt: RunInput, settings: Mapping[str, Any], *kinds: type, streaming: bool = False
) -> AsyncGenerator[Any, None]:
    """Return the events of a new run, all or those of some types, and its result."""
    channel = Channel(*kinds)
    loop = start_run(config, prompt, settings, channel, streaming=streaming)
    return channel.follow(loop.run_as_event, loop.partial)
