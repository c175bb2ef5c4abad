"""Runs of an agent: their start and the layers around their turns; agents as tools."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias, TypeVar

from toolsemble._engine.context import InvocationParameters, current_context
from toolsemble._engine.definition import Names, ToolDefinition
from toolsemble._engine.execution.edits import EditedArguments
from toolsemble._runtime.text import describe_with_class
from toolsemble._runtime.watchers import watchers
from toolsemble._tools.base import Tool
from toolsemble._tools.settings import ToolSettings
from toolsemble._vocabulary import errors
from toolsemble._vocabulary.call import new_id
from toolsemble._vocabulary.result import ToolResult
from toolsemble.agent._budget import Usage
from toolsemble.agent._deps import DepsMaker, DepsSource, LeaveDeps, find_deps_type, report_late_failure, use_deps
from toolsemble.agent._event import Channel, Final, RunStop, to_last_event
from toolsemble.agent._options import RunInput, RunSettings, RunView
from toolsemble.agent._result import AgentResult, PausedRun
from toolsemble.agent._run.events import (
    RunEvents,
    conversation_attributes,
    find_stop_reason,
    run_attributes,
    usage_attributes,
)
from toolsemble.agent._run.loop import Loop, read_resumption
from toolsemble.agent._run.state import Resumed, RunState, enter_agent_call, leave_agent_open
from toolsemble.agent._settings import RUN_ONLY, AgentConfig, check_keywords, override_config
from toolsemble.models._message import Message, to_messages

if TYPE_CHECKING:
    from toolsemble.agent._run.durable import JournalLayer

T = TypeVar("T")
Running: TypeAlias = Callable[[], Awaitable[AgentResult]]
"""Runs until there is an answer."""


def start_run(
    config: AgentConfig,
    prompt: RunInput,
    settings: Mapping[str, Any],
    stream: Channel | None = None,
    *,
    shows_pieces: bool = False,
) -> Run:
    """Create a run; raise if one of its settings is not valid.

    :param stream: receives the run's stream events; None: the run is not streamed
    :param shows_pieces: whether the model is asked to stream its replies
    """
    own: dict[str, Any] = {}
    if settings:
        check_keywords("A run", settings, ["output_type", *RunSettings.__annotations__])
        own = {name: settings[name] for name in RUN_ONLY & settings.keys()}
        config = override_config(config, settings)
        if isinstance(maker := own.get("deps"), DepsMaker):
            config = replace(config, deps=DepsSource(None, maker.function, config.deps.kind))
            del own["deps"]
    resumption = journaled = None
    if isinstance(prompt, PausedRun):
        messages: Sequence[Message] = ()
        resumption = read_resumption(prompt, own)
    elif own.pop("decisions", None) is not None:
        raise TypeError("Only a paused run takes decisions; pass result.paused in place of the prompt")
    else:
        messages = to_messages(prompt)
        if config.journal is not None and (current_context() is None or own.get("run_id") is not None):
            from toolsemble.agent._run.durable import JournalLayer

            if own.get("run_id") is None:
                own["run_id"] = new_id()
            journaled = JournalLayer(config.journal, config, own["run_id"], messages, own)
    state = RunState(config, messages, **own)
    events = RunEvents(config, state, stream, shows_pieces=shows_pieces)
    return Run(config, state, events, Loop(config, state, events, resumption), journaled)


class Run:
    """One run: its turns, and the layers around them."""

    def __init__(
        self, config: AgentConfig, state: RunState, events: RunEvents, loop: Loop, journaled: JournalLayer | None
    ) -> None:
        run: Running = loop.run
        if state.makes_deps:
            run = partial(_leave_deps_after, state, run)
        run = partial(_observe, config, state, events, run)
        run = partial(_prepare, config, state, run)
        self.run = run if journaled is None else partial(journaled.drive, state, run)
        """Runs until there is an answer, or returns a recorded one; every exception carries the partial result."""
        self._state = state
        self._is_journaled = journaled is not None

    async def run_as_event(self) -> Final | RunStop:
        """Run until there is an answer; return the last event: the answer, or why a journaled run stops here."""
        try:
            return Final(await self.run())
        except errors.RunError as stopped:
            last = to_last_event(stopped) if self._is_journaled else None
            if last is None:
                raise
            return last

    def partial(self) -> AgentResult:
        """Return the partial result of a cancelled run."""
        return self._state.result("cancelled")


async def _prepare(config: AgentConfig, state: RunState, run: Running) -> AgentResult:
    """Make the deps of a run if it has none, check its needs, and run; before that, nothing is sent or recorded."""
    try:
        if state.makes_deps:
            return await use_deps(config.deps, state.view(), partial(_run_with_deps, state, run))
        state.check_setup()
        return await run()
    except Exception as error:
        if getattr(error, "partial", None) is not None:
            raise
        _fail_setup(state, error)
    except BaseException as error:
        if not hasattr(error, "partial"):
            state.add_partial(error)
        raise


async def _run_with_deps(state: RunState, run: Running, deps: object, leave: LeaveDeps) -> AgentResult:
    state.enter_deps(deps, leave)
    state.check_setup()
    return await run()


def _fail_setup(state: RunState, error: Exception) -> NoReturn:
    """Raise the error of a run whose deps could not be entered or exited, or that lacks something."""
    if isinstance(error, errors.PassThroughError):
        state.add_partial(error)
        raise error
    text = f"make_deps failed: {describe_with_class(error)}"
    raise errors.AgentExecutionError(text, partial=state.result("error")) from error


async def _observe(config: AgentConfig, state: RunState, events: RunEvents, run: Running) -> AgentResult:
    """Run, and notify the watchers when the run ends."""
    if config.sinks is None:
        return await (_send_end(events, run) if watchers() else run())
    with config.sinks.enter("invoke_agent", run_attributes(config, state.context)) as attributes:
        messages, answer = state.messages, ""
        try:
            result = await config.sinks.ado(_send_end(events, run))
            answer = result.text
            attributes["toolsemble.stop_reason"] = result.stop_reason
        except BaseException as error:
            attributes["toolsemble.stop_reason"] = find_stop_reason(error)
            raise
        finally:
            attributes.update(usage_attributes(state.spending.usage()))
            attributes.update(conversation_attributes(config, messages, answer))
    return result


async def _send_end(events: RunEvents, run: Running) -> AgentResult:
    try:
        result = await run()
    except BaseException as error:
        events.fail(error)
        raise
    events.finish(result)
    return result


async def _leave_deps_after(state: RunState, run: Running) -> AgentResult:
    """Run, and exit the run's deps: a failed commit there, for example, fails the run."""
    result = await run()
    try:
        if state.leave_deps is not None:
            await state.leave_deps()
    except Exception as error:  # from any context manager
        if result.stop_reason != "paused":
            _fail_setup(state, error)
        report_late_failure(error)  # the run resumes later, like a parked one
    return result


async def call_with_deps(deps: Any, run_id: str, memory_id: str, call: Callable[[Any], Awaitable[T]]) -> T:
    """Call a function with the deps of a call outside a run, made for it if they are a DepsMaker."""
    if not isinstance(deps, DepsMaker):
        return await call(deps)
    source = DepsSource(None, deps.function, find_deps_type(deps.function))
    view = RunView(run_id, memory_id, InvocationParameters(), (), Usage(), 0)
    try:
        return await use_deps(source, view, lambda made, _leave: call(made))
    except errors.ToolsembleError:
        raise
    except Exception as error:
        raise errors.ToolConfigurationError(f"make_deps failed: {describe_with_class(error)}") from error


def follow_run(
    config: AgentConfig, prompt: RunInput, settings: Mapping[str, Any], *kinds: type, shows_pieces: bool = False
) -> AsyncGenerator[Any, None]:
    """Start a run, and return its events, all or of some types, and its result."""
    stream = Channel(*kinds)
    run = start_run(config, prompt, settings, stream, shows_pieces=shows_pieces)
    return stream.follow(run.run_as_event, run.partial)


class AgentAsTool(Tool):
    """A tool that passes its input to an agent and returns the agent's answer.

    Its structured output is the answer's object; its attributes have the agent's result and stop reason.
    """

    def __init__(
        self,
        ask: Callable[..., Awaitable[AgentResult]],
        name: str,
        description: str,
        settings: ToolSettings,
        inside: Callable[[], Names],
        needs: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.name = name
        self.description = description
        self._apply(settings)
        self._ask = ask
        self._inside = inside
        self._needs = needs

    def _define(self) -> ToolDefinition:
        return replace(super()._define(), inside=self._inside, needs=self._needs, delegates=True)

    async def run(self, input: str) -> ToolResult:
        """Run the agent on the input, inside the context of this call."""
        with enter_agent_call() as resumed:
            if resumed is not None:
                result = await self._ask(resumed.inner.run, decisions=resumed.decisions)
            elif input.strip():
                result = await self._ask(input)
            else:
                return ToolResult.failure("The input is blank; describe the task")
        if result.paused is not None:
            leave_agent_open(result.paused, resumed)
        return ToolResult.success(result.text, result.output, attributes=_describe(result, resumed))


def _describe(result: AgentResult, resumed: Resumed | None) -> dict[str, Any]:
    """Return the attributes of the result; a resumed call keeps the edit made before the pause."""
    known = {"stop_reason": result.stop_reason, "result": result}
    if resumed is None or resumed.inner.edited is None:
        return known
    return {**known, "edited": EditedArguments(resumed.inner.name, resumed.inner.edited)}
