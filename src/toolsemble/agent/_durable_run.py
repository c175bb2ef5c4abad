"""A run with a journal: it is claimed, continued from what is recorded, and given back when it ends or waits."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar

from toolsemble._engine.work.wait import RunInThread
from toolsemble._runtime.text import describe_error, preview
from toolsemble._schema.shape import to_json_value
from toolsemble._tools.toolbox.toolbox import Toolbox
from toolsemble._vocabulary.errors import (
    AgentExecutionError,
    CallPausedError,
    JournalError,
    RunBusyError,
    RunCancelledError,
    RunChangedError,
    RunError,
    RunInterruptedError,
    RunParkedError,
    ToolArgumentsError,
    ToolConfigurationError,
)
from toolsemble._vocabulary.place import Place
from toolsemble.agent._budget import Stop, StopReason, Usage
from toolsemble.agent._event import RunCancelled, RunInterrupted, RunParked, RunStop
from toolsemble.agent._output import Output
from toolsemble.agent._result import AgentResult, ToolCallRecord, TraceStep
from toolsemble.agent._settings import AgentConfig
from toolsemble.agent._spending import current_spending
from toolsemble.models._chat import ChatReply, TokenUsage
from toolsemble.models._message import Message, read_call, write_call
from toolsemble.models._transcript import Transcript
from toolsemble.review._request import ReviewRequest

if TYPE_CHECKING:
    from toolsemble._engine.event_codec import EventCodec
    from toolsemble.agent._journal.driver import RunDriver
    from toolsemble.agent._journal.journal import RunJournal
    from toolsemble.agent._journal.tables import RunRow

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class StoredResult:
    """The result of a run, as a journal keeps it."""

    text: str
    output: Any
    """The answer as JSON values, if the run had no output type."""
    tool_calls: tuple[ToolCallRecord, ...]
    messages: Transcript
    usage: Usage
    stop_reason: str
    trace: tuple[TraceStep, ...]
    kind: ClassVar[Literal["stored_result"]] = "stored_result"


class DurableRun:
    """The journal of one run, from its claim to its end."""

    def __init__(
        self,
        journal: RunJournal,
        config: AgentConfig,
        run_id: str,
        prompt: Sequence[Message],
        settings: Mapping[str, Any],
    ) -> None:
        self._config = config
        self._journal = journal
        self._run_id = run_id
        self._is_prepared = False
        begun = {name: settings.get(name) for name in ("memory_id", "history", "parameters")}
        self._claim = partial(journal.claim, run_id, config.name, prompt, **begun)

    async def drive(self, run: Callable[[Place, float], Awaitable[AgentResult]]) -> AgentResult:
        """Return the result of the run: the recorded one, or that of a run from what is recorded so far.

        :param run: runs it, for the place of its turns and the seconds that it has worked before
        """
        try:
            return await self._drive(run)
        except JournalError as error:
            raise AgentExecutionError(str(error), partial=error.partial) from error

    async def _drive(self, run: Callable[[Place, float], Awaitable[AgentResult]]) -> AgentResult:
        claimed = await self._become_driver()
        if isinstance(claimed, tuple):
            return read_result(str(claimed.result), self._run_id, self._config.output)
        driver = claimed
        driver.on_usage = _add_usage
        try:
            result = await run(Place(driver, "", is_scope=True), driver.earlier)
            await _run_in_thread(lambda: driver.finish("done", result=write_result(result)))
            if driver.has_questions:
                await _run_in_thread(driver.close_questions)
        except BaseException as error:
            await self._give_back(driver, error)
            raise
        finally:
            driver.close()
        return result

    async def _become_driver(self) -> RunDriver | RunRow:
        """Return what the journal returns; if the task is cancelled meanwhile, the run is free again."""
        claimed: list[RunDriver | RunRow] = []
        try:
            await _run_in_thread(lambda: claimed.append(self._claim()))
        except BaseException:
            for each in claimed:
                if not isinstance(each, tuple):
                    each.close()
            raise
        return claimed[0]

    async def _give_back(self, driver: RunDriver, error: BaseException) -> None:
        """Record why the run does not go on here; raise the error that says so, if it is another one."""
        if isinstance(error, RunCancelledError):
            await _run_in_thread(driver.close_questions)
        elif isinstance(error, CallPausedError):
            await self._park(driver, (error, *error.others))
            parked = RunParkedError(f"Run '{self._run_id}' waits for approval: {error}", run_id=self._run_id)
            parked.partial, parked.pending = error.partial, tuple(each.request for each in (error, *error.others))
            raise parked from error
        elif isinstance(error, RunBusyError):
            return  # nothing may be written
        elif isinstance(error, RunParkedError):
            await _run_in_thread(partial(driver.finish, "waiting"))
        elif isinstance(error, RunInterruptedError):
            await _run_in_thread(partial(driver.finish, "queued"))
        elif isinstance(error, (JournalError, asyncio.CancelledError)):
            with suppress(Exception):  # it ends here in any case; other processes then wait until this one has ended
                await _run_in_thread(partial(driver.finish, "queued"))
        elif isinstance(error, Exception) and not self._has_begun(driver, error):
            with suppress(JournalError, RunError):  # why it failed says more; another process may have taken the run
                await _run_in_thread(driver.withdraw)
        elif isinstance(error, Exception):
            with suppress(JournalError):  # as above; it counts as left behind
                if driver.has_questions:
                    await _run_in_thread(driver.withdraw_questions)
                await _run_in_thread(partial(driver.finish, "failed", error=describe_error(error)))
        # Anything else ends the program: the run stays as it is, for the next driver.

    def _has_begun(self, driver: RunDriver, error: Exception) -> bool:
        """Return whether a run that failed has done anything; one that lacks deps or a prompt, for example, has not."""
        is_setup = isinstance(error, ToolConfigurationError) and not isinstance(error, RunChangedError)
        return driver.has_written or (self._is_prepared and not is_setup)

    def note_prepared(self) -> None:
        """Note that the run has its deps: from here on, it is the run that fails, and not its setup."""
        self._is_prepared = True

    async def _park(self, driver: RunDriver, paused: Sequence[CallPausedError]) -> None:
        """Record what the run waits for, and give it back."""
        self._journal.note_parked(self._run_id, {each.request.id: each.reviewer for each in paused})
        waiting = {each.request.id: _describe_request(each.request) for each in paused}
        await _run_in_thread(partial(driver.finish, "waiting", waiting=json.dumps(waiting)))


def to_last_event(stopped: RunError) -> RunStop | None:
    """Return the last event of a run that does not go on here, and has not failed; None if another process has it.

    >>> to_last_event(RunParkedError("It waits", run_id="order-7"))
    RunParked(run_id='order-7', pending=())
    """
    if isinstance(stopped, RunParkedError):
        return RunParked(stopped.run_id, tuple(stopped.pending))
    if isinstance(stopped, RunInterruptedError):
        return RunInterrupted(stopped.run_id)
    return RunCancelled(stopped.run_id) if isinstance(stopped, RunCancelledError) else None


def _describe_request(request: ReviewRequest) -> str:
    """Return a call that waits for approval in words."""
    arguments = request.arguments
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False, default=str)
    return f"{request.tool_name}({preview(text)})"


def _add_usage(amounts: Sequence[float]) -> None:
    """Count what was spent inside of a call that is answered with its record; calls run inside of a spending run."""
    current_spending.get().add_inner(amounts)  # type: ignore[union-attr]  # set around all calls of a turn


async def _run_in_thread(function: Callable[[], T]) -> T:
    """Return the result of a function that writes to a disk, also if the task is cancelled meanwhile."""
    return await RunInThread(function).ado()  # type: ignore[no-any-return]  # what the function returns


def write_reply(reply: ChatReply, seconds: float, stop: Stop | None) -> dict[str, Any]:
    """Return a reply as JSON values for a journal."""
    usage = reply.usage
    written: dict[str, Any] = {"text": reply.text, "stop_reason": reply.stop_reason, "seconds": round(seconds, 6)}
    if reply.calls:
        written["calls"] = [write_call(call) for call in reply.calls]
    if usage.total:
        written["usage"] = [usage.input, usage.output, usage.cached, usage.reasoning, usage.cache_write]
    if reply.details is not None:
        written["details"] = dict(reply.details)
    if stop is not None:
        written["stop"] = [stop.name, stop.summary]
    return written


async def record_reply(turn: Place, reply: ChatReply, seconds: float, stop: Stop | None, mark: str) -> None:
    """Record a reply of a model in the journal of a run.

    :param mark: what :func:`mark_agent` returned
    """
    record = partial(turn.run.record_reply, turn.path, {**write_reply(reply, seconds, stop), "agent": mark})
    await RunInThread(record, in_place=turn.run.in_place).ado()


def mark_agent(config: AgentConfig, box: Toolbox) -> str:
    """Return a digest of the model, the instructions and the tools of a turn, by which a changed agent is recognized.

    Functions that write instructions, or that return the tools, count by their names; behind a slash comes a digest of
    the tools that such a function has returned for this turn.
    """
    instructions = [part if isinstance(part, str) else part.name for part in config.instructions]
    source = config.tools
    if isinstance(source, Toolbox) or getattr(source, "lists_all", False):
        return _digest([config.model_name, instructions, _list_tools(box)])
    name = getattr(source, "__name__", type(source).__name__)
    return f"{_digest([config.model_name, instructions, name])}/{_digest(_list_tools(box))}"


def _list_tools(box: Toolbox) -> list[Any]:
    """Return what counts of the tools, also of those that the model is not shown in this turn."""
    return sorted(([each.name, each.description, each.schema()] for each in box.definitions()), key=itemgetter(0))


def _digest(values: Any) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True, default=str).encode()).hexdigest()[:12]


def read_reply(data: Mapping[str, Any]) -> ChatReply:
    """Return the reply that :func:`write_reply` wrote.

    >>> from toolsemble import ToolCall
    >>> read_reply(write_reply(ChatReply("Rome", (ToolCall("now"),)), 0.5, None)).calls
    (ToolCall('now', '{}', id=None),)
    """
    calls, usage = tuple(map(read_call, data.get("calls", ()))), TokenUsage(*data.get("usage", ()))
    return ChatReply(data["text"], calls, usage, data["stop_reason"], data.get("details"))


def read_stop(data: Mapping[str, Any]) -> Stop | None:
    """Return the budget that was used up when a model was asked; None if there was none."""
    return Stop(*data["stop"]) if "stop" in data else None


def write_result(result: AgentResult) -> str:
    """Return a result as JSON text for a journal."""
    stored = StoredResult(
        result.text,
        to_json_value(result.output),
        tuple(result.tool_calls),
        result.messages,
        result.usage,
        result.stop_reason,
        result.trace,
    )
    return json.dumps(_make_codec().write(stored), separators=(",", ":"))


def read_result(text: str, run_id: str, output: Output | None) -> AgentResult:
    """Return the result that :func:`write_result` wrote; the answer is read again with the output type."""
    stored: StoredResult = _make_codec().read(json.loads(text))
    answer = stored.output if output is None else _read_answer(stored, run_id, output)
    reason: StopReason = stored.stop_reason  # type: ignore[assignment]  # as it was written
    calls = list(stored.tool_calls)
    return AgentResult(stored.text, answer, calls, stored.messages, stored.usage, reason, stored.trace, run_id)


def _read_answer(stored: StoredResult, run_id: str, output: Output) -> Any:
    with suppress(ToolArgumentsError):
        return output.read_text(stored.text)
    try:
        return output.read(json.dumps(stored.output))
    except ToolArgumentsError as problem:
        raise ToolConfigurationError(
            f"The recorded answer of run '{run_id}' does not fit the output type of today: {problem}"
        ) from problem


@cache
def _make_codec() -> EventCodec:
    from toolsemble._engine.event_codec import EventCodec

    return EventCodec([StoredResult], to_json_value)
