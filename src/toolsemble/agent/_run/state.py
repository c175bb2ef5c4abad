"""The state of a run: its messages, calls, trace and spending so far, and where it can be paused."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import replace
from functools import partial
from typing import Any, Literal, NamedTuple, NoReturn, Protocol

from toolsemble._engine.context import InvocationParameters, ToolContext, current_context, enter, leave
from toolsemble._engine.definition import Need
from toolsemble._engine.work.body import TimedOutError
from toolsemble._engine.work.wait import Acquire, RunInThread
from toolsemble._runtime.locks import TABLE, DeadlockError, Hold, current_hold
from toolsemble._vocabulary import errors
from toolsemble._vocabulary.call import new_run_id
from toolsemble._vocabulary.place import Place
from toolsemble.agent import _conversation as conversation
from toolsemble.agent._budget import Stop, StopReason
from toolsemble.agent._deps import LeaveDeps
from toolsemble.agent._options import RunView
from toolsemble.agent._result import AgentResult, InnerRun, PausedRun, ToolCallRecord, TraceStep
from toolsemble.agent._run.spending import Spending, current_spending
from toolsemble.agent._settings import AgentConfig, check_run
from toolsemble.models._message import Message, SystemMessage, Transcript, UserMessage, check_question, message_to_json
from toolsemble.review._request import ReviewDecision

_NO_MEMORY_ID = (
    "The run of this agent has no memory_id, but {who} one: users without an id would share their data. Pass "
    "run(..., memory_id=...), or Agent(..., memory_id=...) if there is only one"
)
_NO_DEPS = (
    "The run of this agent has no deps, but {who}; pass run(..., deps=...), or Agent(..., deps=...) or make_deps=..."
)
# Why a journaled run does not go on here.
_JOURNALED: tuple[tuple[type[errors.PassThroughError], StopReason], ...] = (
    (errors.CallPausedError, "parked"),
    (errors.RunParkedError, "parked"),
    (errors.RunInterruptedError, "interrupted"),
    (errors.RunBusyError, "taken_over"),
    (errors.RunCancelledError, "cancelled"),
)


class RunState:
    """The growing conversation of a run, in which every call has its reply at all times, and the run's spending."""

    def __init__(
        self,
        config: AgentConfig,
        prompt: Sequence[Message],
        *,
        history: Sequence[Message] | None = None,
        memory_id: str | None = None,
        parameters: MutableMapping[str, Any] | None = None,
        deps: Any = None,
        run_id: str | None = None,
        paused: PausedRun | None = None,
    ) -> None:
        """Check the settings of the run; raise if one has the wrong type, or if a call in the history has no reply.

        :param paused: the run that is resumed, with its history, ``memory_id`` and ``run_id``; None: a new run
        """
        check_run(history, memory_id, parameters, run_id)
        outer = current_spending.get()
        self.spending = Spending(config.limits, config.prices, outer)
        self.context = _derive_context(config, memory_id, parameters, deps, run_id)
        self.is_timed = self.spending.has_deadline or self.context.place is not None
        """Whether the time in which the run works counts, for a limit or for a journal."""
        self.makes_deps = deps is None and config.deps.make is not None
        """Whether the deps are made for this run."""
        self.leave_deps: LeaveDeps | None = None
        """Leaves the deps that were made for this run, once they are there."""
        # Inside another call, a run has the id of the run around it.
        named = config.memory_id if memory_id is None else memory_id
        self.can_pause = can_pause()
        self._has_memory_id = bool(named and named.strip()) or current_context() is not None
        self._paused = paused
        self._earlier = 0.0
        self.is_resumed = paused is not None
        """Whether the run began earlier, and continues."""
        self.is_prepared = False
        """Whether the run has its deps and all that it needs: what fails from here on is not its setup."""
        self.stop: Stop | None = None
        self._last_deadline: float | None = None
        self.records: list[ToolCallRecord] = []
        self._config = config
        self._trace: list[TraceStep] = []
        # The conversation of a nested agent is stored separately, also if it shares the memory of the outer agent.
        inside = outer is not None and memory_id is None
        own_id = self.context.memory_id
        self._conversation_id = f"{own_id}/{self.context.tool_name}" if inside else own_id
        self._lock: Hold | None = None
        self._continues = history is None
        self._stored: Transcript | None = None
        self._saved = 0
        self._later: Sequence[Message] = ()  # what was stored of the conversation after a journaled run had begun
        self._writes_memory = True
        earlier = history if isinstance(history, Transcript) else Transcript(history or ())
        self._prompt, self._system, self._system_texts = prompt, config.system, conversation.NO_SYSTEM_TEXTS
        if earlier or (prompt and isinstance(prompt[0], SystemMessage)):
            self._system_texts = conversation.collect_system_texts(earlier, prompt)
            self._system = self._build_system("" if config.system is None else config.system.generated)
            self._prompt = prompt[conversation.count_system_messages(prompt) :]
        self.messages = earlier.under(self._system).plus(*self._prompt)
        self._question = _find_question(self.messages)

    def _build_system(self, instructions: str) -> SystemMessage | None:
        """Return the system message; an agent without instructions keeps those of the agent before it."""
        generated, kept = self._system_texts
        return conversation.build_system_message(instructions or generated, kept)

    def set_instructions(self, instructions: str) -> None:
        """Replace the instructions in the system message, which may have changed since the last request."""
        self._system, before = self._build_system(instructions), len(self.messages)
        self.messages = self.messages.under(self._system)
        shift = len(self.messages) - before
        self._saved += shift
        self._question += shift if self._question >= 0 else 0

    @contextmanager
    def enter(self) -> Iterator[None]:
        """Make this the current run: agents that run inside count for its budgets, and inherit its context."""
        inside, spending = enter(self.context), current_spending.set(self.spending)
        try:
            yield
        finally:
            current_spending.reset(spending)
            leave(inside)

    def check_needs(self, needs: Mapping[str, Need]) -> None:
        """Raise :class:`ToolConfigurationError` if the run lacks what its memory or a tool needs."""
        if "memory_id" in needs and not self._has_memory_id:
            raise errors.ToolConfigurationError(_NO_MEMORY_ID.format(who=_describe_user(needs["memory_id"].tool)))
        if "deps" in needs and self.context.deps is None:
            raise errors.ToolConfigurationError(_NO_DEPS.format(who=_describe_deps_user(needs["deps"])))

    def enter_deps(self, deps: object, leave: LeaveDeps) -> None:
        """Set the deps that were made for this run, and what leaves them."""
        self.context, self.leave_deps = self.context.derive({"deps": deps}), leave

    def check_setup(self) -> None:
        """Raise :class:`ToolConfigurationError` if the run lacks what it needs, or if its deps have another type."""
        self.check_needs(self._config.needs)
        if self.context.deps is not None:
            self._config.deps.check(self.context.deps)
        self.is_prepared = True

    def enter_journal(self, place: Place, earlier: float, *, is_new: bool) -> None:
        """Record the run at a place of a journal; ``earlier`` are the seconds that it has worked before."""
        self.context, self._earlier = self.context.derive({"place": place}), earlier
        self.is_resumed, self.is_timed = not is_new, True

    def find_reason(self, error: BaseException) -> StopReason:
        """Return why a run has ended that passes an exception on."""
        place = self.context.place
        if not isinstance(
            error, errors.PassThroughError
        ):  # its task was cancelled: a journal keeps it for the next driver
            return "cancelled" if place is None or place.path else "interrupted"
        if isinstance(error, errors.ExitEarlyError):
            return "exit_early"
        if isinstance(error, errors.JournalError):
            return "error"
        kinds = _JOURNALED if place is not None else ()
        return next((reason for kind, reason in kinds if isinstance(error, kind)), "configuration_error")

    def add_partial(self, error: BaseException) -> None:
        """Add the work so far to an exception that ends the run."""
        with suppress(Exception):  # a foreign exception may not accept attributes; it is raised all the same
            error.partial = self.result(self.find_reason(error))  # type: ignore[attr-defined]  # any exception

    async def begin(self) -> None:
        """Wait for other runs of the same conversation, start the clock, and load what is stored of it."""
        if self._config.memory is not None:
            self._lock = await lock_conversation(self._config.memory, self._conversation_id, self.context)
        self.spending.begin()
        self.spending.advance(self._earlier)
        if (place := self.context.place) is not None and not place.path:
            place.run.start_clock()
        if self._paused is not None:
            self._restore(self._paused)
        ends = [each for each in (self.context.deadline, self.spending.deadline) if each is not None]
        self.context = self.context.derive({"deadline": min(ends, default=None)})
        if self._config.memory is not None:
            load = partial(self._config.memory.load, self._conversation_id)
            self._load_conversation(await RunInThread(load, in_place=self._config.memory.in_place).ado())
            if self._paused is not None:
                self._saved = self._paused.stored + self._count_system()
        self._question = _find_question(self.messages)
        self.context = self.context.derive({"user_message": self._find_message()})
        has_earlier = any(message.role != "system" for message in self.messages)
        check_question(self._prompt, has_earlier=has_earlier)

    def _restore(self, paused: PausedRun) -> None:
        """Continue with the records and the spending of a run that was paused."""
        self.records, self._trace = list(paused.tool_calls), list(paused.trace)
        self.spending.restore(paused.usage, paused.turns, paused.seconds)
        if paused.stop is not None:
            self.stop, self._last_deadline = Stop(paused.stop, paused.stop_summary), self.spending.last_deadline()

    def _count_system(self) -> int:
        return int(bool(self.messages) and isinstance(self.messages[0], SystemMessage))

    def pause(self, paused: Mapping[str, Any], shown: Sequence[ToolCallRecord], *, invalid_answers: int) -> AgentResult:
        """Return the result of a run whose calls wait for approval.

        :param paused: the turn that has not ended, as fields of :class:`PausedRun`
        :param shown: its calls that have ended
        """
        result = self.result("paused")
        run = PausedRun(
            result.run_id,
            self.context.memory_id if self._has_memory_id else None,
            result.messages,
            **paused,
            tool_calls=tuple(result.tool_calls),
            usage=result.usage,
            trace=result.trace,
            turns=self.spending.turns,
            seconds=self.spending.worked,
            stored=max(self._saved - self._count_system(), 0),
            invalid_answers=invalid_answers,
            stop=None if self.stop is None else self.stop.name,
            stop_summary="" if self.stop is None else self.stop.summary,
        )
        return replace(result, paused=run, tool_calls=[*result.tool_calls, *shown])

    def _load_conversation(self, stored: Transcript) -> None:
        """Continue the stored conversation; a journaled run that continues has stored a part of its turns already."""
        place = self.context.place
        if place is None:
            self._load(stored)
            return
        turns, before = stored.under(None), place.run.find_reply(f"{place.path}/0")
        if before is None:
            place.run.record_reply(f"{place.path}/0", {"stored": len(turns)})
        count = len(turns) if before is None else min(before["stored"], len(turns))
        kept = stored[: len(stored) - len(turns)]
        self._load(Transcript([*kept, *turns[:count]]))
        self._later = turns[count:]
        self._stored = None if self._later else self._stored
        self._writes_memory = not place.run.is_fork

    def _load(self, stored: Transcript) -> None:
        """Continue the stored conversation, unless a history was given."""
        if not self._continues:
            self._saved = _count_saved(stored, self.messages, len(self.messages) - len(self._prompt))
            return
        kept = conversation.read_kept_text(stored)
        if kept:
            generated, own = self._system_texts
            self._system_texts = conversation.SystemTexts(generated, conversation.merge_texts(kept, own))
            self._system = self._build_system("" if self._config.system is None else self._config.system.generated)
        said = stored.under(self._system)
        self._stored, self._saved, self.messages = stored, len(said), said.plus(*self._prompt)

    def end(self) -> None:
        """Let the next run of the same conversation begin."""
        if self._lock is not None:
            self._lock.leave()

    @property
    def deadline(self) -> float | None:
        """The deadline of the model, on the clock of ``time.monotonic``; None: no deadline."""
        return self.spending.deadline if self.stop is None else self._last_deadline

    @property
    def turn_place(self) -> Place | None:
        """The place of the current turn in a journal; None: it is not recorded."""
        place = self.context.place
        return None if place is None else place.turn(self.spending.turns + 1)

    def window(self) -> Sequence[Message]:
        """Return the part of the conversation that the model sees."""
        memory = self._config.memory
        return self.messages if memory is None else memory.window(self.messages, self._question)

    def _find_message(self) -> UserMessage | None:
        asked = self.messages[self._question] if self._question >= 0 else None
        return asked if isinstance(asked, UserMessage) else None

    def view(self) -> RunView:
        """Return the view of the run for a function that returns tools."""
        context, spending = self.context, self.spending
        return RunView(
            context.run_id,
            context.memory_id,
            context.parameters,
            self.messages,
            spending.usage(),
            spending.turns,
            context.deps,
            self._find_message(),
            self._config.role,
        )

    async def add(self, *messages: Message) -> None:
        """Add messages to the conversation and to the memory; each call comes with its reply."""
        self.messages = self.messages.plus(*messages)
        memory = self._config.memory
        if memory is not None:
            new = len(self.messages) - self._saved
            if new <= 0 or not self._writes_memory:
                return
            if not self._is_stored(self.messages[-new:]):
                extend = partial(memory.extend, self._conversation_id, self._stored, self.messages, new)
                await RunInThread(extend, in_place=memory.in_place).ado()
            self._saved = len(self.messages)
            self._stored = None if self._stored is None else self.messages

    def _is_stored(self, own: Sequence[Message]) -> bool:
        """Return whether an earlier driver of this run has stored these messages, which are stored as a whole.

        Before and behind them may be messages of other runs of the conversation, which went on in the meantime. What
        follows anything that this driver has recorded is not stored, although another run may have stored the same.
        """
        place = self.context.place
        if not self._later or place is None or place.run.has_written_inside(place.path):
            return False
        for first in range(len(self._later) - len(own) + 1):
            if all(_is_same(message, self._later[first + index]) for index, message in enumerate(own)):
                self._later = self._later[first + len(own) :]
                return True
        return False

    def add_correction(self, text: str) -> None:
        """Add a correction for the model as a user message; it is stored together with the answer to it."""
        self.messages = self.messages.plus(UserMessage(text))

    def set_stop(self, stop: Stop | None) -> None:
        """Record that a budget is used up, if one is; only the first one counts."""
        if stop is not None and self.stop is None:
            self.stop = stop
            self._last_deadline = self.spending.last_deadline()
            self.add_trace("stop", stop.name, time.monotonic(), 0.0, stop.summary)

    def add_trace(
        self, kind: Literal["model", "tool", "retry", "stop"], name: str, started: float, seconds: float, detail: str
    ) -> None:
        """Add a step to the trace."""
        self._trace.append(TraceStep(kind, name, started - self.spending.started, seconds, detail))

    def result(self, stop_reason: StopReason, text: str = "", output: Any = None) -> AgentResult:
        """Return the result of the run, or the work so far."""
        return AgentResult(
            text,
            output,
            list(self.records),
            self.messages,
            self.spending.usage(),
            stop_reason,
            tuple(self._trace),
            # A plain str: a program that passes it on chooses it.
            str(self.context.run_id),
        )


def _derive_context(
    config: AgentConfig,
    memory_id: str | None,
    parameters: MutableMapping[str, Any] | None,
    deps: object,
    run_id: str | None,
) -> ToolContext:
    """Return the context that the calls of the run inherit; a nested run inherits that of its call."""
    base = current_context() or ToolContext()
    shared = base.parameters if parameters is None else parameters
    changes: dict[str, Any] = {
        "run_id": run_id or base.run_id or new_run_id(),
        "parameters": shared if isinstance(shared, InvocationParameters) else InvocationParameters(shared),
    }
    if memory_id is not None:
        changes["memory_id"] = memory_id
    elif config.memory_id is not None:
        changes["memory_id"] = config.memory_id
    if deps is not None or config.deps.value is not None:
        changes["deps"] = config.deps.value if deps is None else deps
    if config.role:
        changes["agent_role"] = config.role
    if config.review is not None:
        changes["review"] = config.review
    if base.place is not None and not base.place.is_scope:
        changes["place"] = None  # a body runs the agent by itself: the body is what is recorded
    return base.derive(changes)


def _describe_deps_user(need: Need) -> str:
    return f"its tool '{need.tool}' needs them" if need.tool else "its deps_type says that it needs them"


def _describe_user(tool: str) -> str:
    return f"its tool '{tool}' needs" if tool else "its memory needs"


def _count_saved(stored: Transcript, messages: Transcript, history: int) -> int:
    """Return how many messages need not be stored again: those stored already, or else the whole history."""
    start = 1 if messages and isinstance(messages[0], SystemMessage) else 0
    said = stored.under(None)
    known = start + len(said)
    # A history that continues the stored messages may end with a question that was not answered, and not stored.
    return known if said == messages[start:known] else history


def _is_same(message: Message, stored: Message) -> bool:
    return message == stored or message_to_json(message) == message_to_json(stored)


def _find_question(messages: Transcript) -> int:
    """Return the index of the last user message; -1 if there is none."""
    for back, message in enumerate(reversed(messages), 1):
        if isinstance(message, UserMessage):
            return len(messages) - back
    return -1


class Resumed(NamedTuple):
    """The paused run of an agent inside of a call, and the decisions about its calls."""

    inner: InnerRun
    decisions: Mapping[str, ReviewDecision]


class PausePoint(Protocol):
    """The turn of a run that can be paused."""

    def can_leave_open(self, context: ToolContext) -> bool:
        """Return whether a call is one of the turn, and can be left open while the agent inside of it waits."""
        ...

    def take_resumed(self, call_id: str) -> Resumed | None:
        """Return the run to resume inside of a call, once; None if the call is new."""
        ...


pause_point: ContextVar[PausePoint | None] = ContextVar("toolsemble.pause_point", default=None)
"""The turn around the current call; None if the run of the turn cannot be paused."""

_agent_call: ContextVar[ToolContext | None] = ContextVar("toolsemble.agent_call", default=None)


def can_pause() -> bool:
    """Return whether a run that begins here can be paused: outside of all calls, or as an agent that is a tool.

    >>> can_pause()
    True
    """
    context = current_context()
    return context is None or _agent_call.get() is context


def is_inside_agent_tool() -> bool:
    """Return whether a run that begins here is that of an agent that is a tool, and can be paused."""
    return current_context() is not None and can_pause()


@contextmanager
def enter_agent_call() -> Iterator[Resumed | None]:
    """Let the run of the agent of the current call be paused, if the run around it can be; yield what is resumed."""
    context, point = current_context(), pause_point.get()
    if context is None or point is None or not point.can_leave_open(context):
        yield None
        return
    token = _agent_call.set(context)
    try:
        yield point.take_resumed(context.call_id)
    finally:
        _agent_call.reset(token)


def leave_agent_open(paused: PausedRun, resumed: Resumed | None) -> NoReturn:
    """Raise CallPausedError for the current call, because the run of its agent is paused."""
    error = errors.CallPausedError("The run of the agent inside of this call waits for approval")
    error.context, error.inner = current_context(), paused
    error.edited = None if resumed is None else resumed.inner.edited
    raise error


async def lock_conversation(memory: object, conversation_id: str, context: ToolContext) -> Hold:
    """Wait until no other run of this process uses a conversation; return the lock, to be released by ``leave``.

    Runs get it in the order in which they came. A run inside a call of the run that holds it shares it. Raise
    :class:`ToolExecutionError` at the deadline of the enclosing call, and if the wait would be a deadlock.
    """
    # Brief: a body that outlives its call, such as one in a thread after its timeout, does not block the next run.
    hold = Hold([(memory, conversation_id)], current_hold(), brief=True)
    try:
        if not TABLE.acquire(hold):
            await Acquire(hold, context).ado()
    except BaseException as error:
        hold.leave()
        if isinstance(error, (DeadlockError, TimedOutError)):
            raise errors.ToolExecutionError(_describe(conversation_id, error)) from None
        raise
    hold.enter()
    return hold


def _describe(conversation_id: str, error: Exception) -> str:
    busy = f"Another run uses the conversation '{conversation_id:.80}'"
    if isinstance(error, TimedOutError):
        return f"{busy}, and did not end before the deadline of this call"
    return f"Deadlock: {busy[0].lower()}{busy[1:]}, and waits for something that an enclosing call of this run holds"
