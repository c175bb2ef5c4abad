"""The start of a run: its settings, and the loop for a new run or for one that is resumed."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from toolsemble._engine.context import InvocationParameters, current_context
from toolsemble._runtime.text import describe_with_class
from toolsemble._vocabulary.call import new_id
from toolsemble._vocabulary.errors import ToolConfigurationError, ToolsembleError
from toolsemble.agent._budget import Usage
from toolsemble.agent._channel import Channel
from toolsemble.agent._checks import RUN_ONLY, check_keywords
from toolsemble.agent._deps import DepsMaker, DepsSource, find_deps_type, use_deps
from toolsemble.agent._loop import Loop
from toolsemble.agent._options import RunInput, RunSettings, RunView
from toolsemble.agent._result import PausedRun
from toolsemble.agent._settings import AgentConfig, override_config
from toolsemble.agent._state import RunState
from toolsemble.models._prompt import to_messages

T = TypeVar("T")


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
        if isinstance(maker := own.get("deps"), DepsMaker):
            config = replace(config, deps=DepsSource(None, maker.function, config.deps.kind))
            del own["deps"]
    if isinstance(prompt, PausedRun):
        from toolsemble.agent._resume import read_resumption

        resumption = read_resumption(prompt, own)
        return Loop(config, RunState(config, (), **own), channel, streaming=streaming, resumption=resumption)
    if own.pop("decisions", None) is not None:
        raise TypeError("Only a paused run takes decisions; pass result.paused in place of the prompt")
    messages = to_messages(prompt)
    durable = None
    if config.journal is not None and (current_context() is None or own.get("run_id") is not None):
        from toolsemble.agent._durable_run import DurableRun

        if own.get("run_id") is None:
            own["run_id"] = new_id()
        durable = DurableRun(config.journal, config, own["run_id"], messages, own)
    return Loop(config, RunState(config, messages, **own), channel, streaming=streaming, durable=durable)


async def call_with_deps(deps: Any, run_id: str, memory_id: str, call: Callable[[Any], Awaitable[T]]) -> T:
    """Return what a function returns for the deps of a call outside of a run; made for it, if they are a DepsMaker."""
    if not isinstance(deps, DepsMaker):
        return await call(deps)
    source = DepsSource(None, deps.function, find_deps_type(deps.function))
    view = RunView(run_id, memory_id, InvocationParameters(), (), Usage(), 0)
    try:
        return await use_deps(source, view, lambda made, _leave: call(made))
    except ToolsembleError:
        raise
    except Exception as error:
        raise ToolConfigurationError(f"make_deps failed: {describe_with_class(error)}") from error


def follow_run(
    config: AgentConfig, prompt: RunInput, settings: Mapping[str, Any], *kinds: type, streaming: bool = False
) -> AsyncGenerator[Any, None]:
    """Return the events of a new run, all or those of some types, and its result."""
    channel = Channel(*kinds)
    loop = start_run(config, prompt, settings, channel, streaming=streaming)
    return channel.follow(loop.run_as_event, loop.partial)
