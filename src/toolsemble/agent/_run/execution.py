"""The execution of the tool calls of one model reply, with loop detection."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from hashlib import sha256
from itertools import chain, count
from typing import Any

from toolsemble._engine.context import ToolContext, enter, leave, resumed_calls
from toolsemble._engine.execution.journaled_call import read_recorded, write_recorded
from toolsemble._runtime.text import describe_error
from toolsemble._runtime.watchers import unwatch
from toolsemble._runtime.work_clock import current_clock
from toolsemble._tools.toolbox.toolbox import Toolbox
from toolsemble._vocabulary.call import NumberedCall, ToolCall, ToolReply, new_id, received_call
from toolsemble._vocabulary.errors import CallPausedError, ToolConfigurationError
from toolsemble._vocabulary.place import Place
from toolsemble._vocabulary.result import ToolResult
from toolsemble.agent._budget import Stop
from toolsemble.agent._event import CallReplied, CallRequested
from toolsemble.agent._options import LoopGuard
from toolsemble.agent._result import InnerRun, PausedRun, PendingCall, ToolCallRecord
from toolsemble.agent._run.events import RunEvents, show_arguments
from toolsemble.agent._run.spending import current_spending
from toolsemble.agent._run.state import Resumed, RunState, pause_point
from toolsemble.models._message import AssistantMessage
from toolsemble.review._request import ReviewDecision

_ROUNDS = 2  # how often a sequence of turns must occur to count as a pattern
_ADVICE = "try something else, or answer with what you know."


class _SameResult:
    """The calls of one turn with the same result, each with its counts so far.

    Comparing arguments is slow, so it is done only if another turn has the same result, which is rare.
    """

    __slots__ = ("_known", "_new")

    def __init__(self) -> None:
        self._new: list[tuple[ToolCall, list[int]]] = []
        self._known: dict[str, list[int]] = {}

    def add(self, call: ToolCall, canonical: str | None, counts: list[int]) -> None:
        """Add a call, with its canonical arguments if already known."""
        if canonical is None:
            self._new.append((call, counts))
        else:
            self._known[canonical] = counts

    def find(self, canonical: str) -> list[int] | None:
        """Return the counts of the call with these arguments, or None."""
        for call, counts in self._new:
            self._known[call.canonical] = counts
        self._new.clear()
        return self._known.get(canonical)

    def __iter__(self) -> Iterator[list[int]]:
        return chain(self._known.values(), (counts for _, counts in self._new))


class LoopDetector:
    """Detects repetition in the turns of one run; keeps the calls of the last turns, with counts.

    >>> from toolsemble import ToolCall, ToolResult
    >>> detector = LoopDetector(LoopGuard(repeats=2))
    >>> for turn in range(2):
    ...     detector.begin(1)
    ...     reply = detector.check(ToolReply(ToolCall("now"), ToolResult.success("noon")))
    >>> print(reply.text)
    noon
    <BLANKLINE>
    Note: this call has given the same result 2 turns in a row: try something else, or answer with what you know.
    """

    def __init__(self, guard: LoopGuard) -> None:
        self.stop: Stop | None = None
        """Why the run must end; None if it may continue."""
        self._guard = guard
        self._periods = range(2, guard.longest + 1)
        # Per turn, by tool and result: how often a call occurred every turn, every second turn, and so on.
        self._turns: deque[dict[int, _SameResult]] = deque(maxlen=guard.longest)
        self._turn: dict[int, _SameResult] = {}
        self._errors: dict[int, int] = {}
        self._errors_before: dict[int, int] = {}
        self._waiting = 0
        self._is_stale = False
        self._stale = 0
        self._unique_keys = count()

    def begin(self, calls: int) -> None:
        """Start a turn with this many calls."""
        self._turns.append(self._turn)
        self._turn = {}
        self._errors_before, self._errors = self._errors, {}
        self._waiting = calls
        self._is_stale = True

    def check(self, reply: ToolReply, *, exempt: bool = False) -> ToolReply:
        """Return the reply to a call of the turn, with a note if the run repeats itself."""
        note = "" if exempt else self._find_note(reply)
        self._waiting -= 1
        self._is_stale = self._is_stale and bool(note)
        if not self._waiting:
            self._stale = self._stale + 1 if self._is_stale else 0
            if self._stale > self._guard.patience:
                self.stop = Stop("loop", f"Maximum turns without progress ({self._guard.patience + 1})")
                note = self.stop.text
        return replace(reply, note=note) if note else reply

    def _find_note(self, reply: ToolReply) -> str:
        """Return the note to the model about a call; "" if the call is new."""
        failed = self._count_error(reply)
        counts = self._count(reply)
        if failed >= self._guard.repeats:
            return f"Note: '{reply.name:.64}' has failed with the same error {failed} turns in a row: {_ADVICE}"
        if counts[0] >= self._guard.repeats:
            return f"Note: this call has given the same result {counts[0]} turns in a row: {_ADVICE}"
        if max(counts) >= _ROUNDS and any(self._is_pattern(counts, period) for period in self._periods):
            return f"Note: the same calls come again and again, with the same results: {_ADVICE}"
        return ""

    def _count(self, reply: ToolReply) -> list[int]:
        """Return how often a call occurred with its result, for each distance in turns."""
        key, counts, canonical = self._key(reply), [1] * self._guard.longest, None
        for place, turn in enumerate(reversed(self._turns)):
            if key in turn:
                canonical = reply.call.canonical if canonical is None else canonical
                before = turn[key].find(canonical)
                counts[place] += 0 if before is None else before[place]
        if key not in self._turn:
            self._turn[key] = _SameResult()
        self._turn[key].add(reply.call, canonical, counts)
        return counts

    def _count_error(self, reply: ToolReply) -> int:
        if not reply.is_error:
            return 0
        error = hash((reply.name, _comparable_text(reply)))
        times = self._errors[error] = self._errors_before.get(error, 0) + 1
        return times

    def _is_pattern(self, counts: list[int], period: int) -> bool:
        """Return whether a call is part of a pattern of ``period`` turns; a call that never changes is not."""
        place = period - 1
        if counts[place] < _ROUNDS or counts[0] >= period:
            return False
        between = list(self._turns)[-place:]
        return all(any(each[place] >= _ROUNDS for same in turn.values() for each in same) for turn in between)

    def _key(self, reply: ToolReply) -> int:
        try:
            return hash((reply.name, _comparable_text(reply), reply.contents))
        except TypeError:
            return next(self._unique_keys)  # custom contents that cannot be hashed


def _comparable_text(reply: ToolReply) -> str:
    """Return the text of a result without its log reference, which always differs."""
    result = reply.result
    reference = result.attributes.get("reference") if result.attributes else None
    text = result.text
    return text.replace(reference, "") if isinstance(reference, str) and reference else text


_NOT_AN_AGENT = (
    "The paused run waits inside '{name}', which is no longer a tool of an agent that can be resumed; pass the tools "
    "that the run had"
)


class Execution:
    """The tool calls of one model reply; in the end each has exactly one record, or waits for approval."""

    def __init__(
        self,
        calls: Sequence[ToolCall],
        box: Toolbox,
        state: RunState,
        events: RunEvents,
        detector: LoopDetector | None = None,
        turn: Place | None = None,
    ) -> None:
        """Store the calls.

        :param turn: the place of the turn in a journal; None: it is not recorded
        """
        self._requested = calls
        # All events about a call have the same id, in every process; records and messages have the original calls.
        needs_ids = events.stream is not None or turn is not None
        self._calls = (
            [call if call.id else _add_id(call, turn, at) for at, call in enumerate(calls)] if needs_ids else [*calls]
        )
        self._turn = turn
        self._recorded = frozenset() if turn is None else self._find_recorded(turn)
        self._box = box
        self._state = state
        self._events = events
        self._detector = detector
        self._records: dict[int, ToolCallRecord] = {}
        self._begun = time.monotonic()
        self._resumed: dict[str, Resumed] = {}
        self._begun_calls: dict[tuple[str, str], bool] = {}
        self.waiting: dict[int, PendingCall | InnerRun] = {}
        """The calls that wait for approval, by index."""

    @property
    def is_recorded(self) -> bool:
        """Whether a journal has the results of all calls."""
        return len(self._recorded) == len(self._calls)

    def restore_answers(self) -> None:
        """Restore the journal's replies to calls that did not run because a budget was used up."""
        for index in self._recorded:
            data = self._find_step(index).data
            if data.get("answered"):
                self.answer(index, read_recorded(data))

    def pending(self) -> list[int]:
        """Return the indexes of the calls without a reply that do not wait for approval."""
        known = self._records.keys() | self.waiting.keys() if self.waiting else self._records
        return [index for index in range(len(self._calls)) if index not in known]

    def restore(self, paused: PausedRun, decisions: Mapping[str, ReviewDecision]) -> None:
        """Restore the calls of a paused run; decided calls are no longer pending."""
        self._records = dict(zip(paused.places, paused.done, strict=True))
        for index, each in paused.list_waiting():
            decided = {key: decisions[key] for key in (call.id for call in each.list_open()) if key in decisions}
            if not decided:
                self.waiting[index] = each
                continue
            self._begun_calls[self._state.context.call_id, each.call_id] = isinstance(each, InnerRun)
            if not self._requested[index].id:  # keep the id that the reviewer's request has
                self._calls[index] = _with_id(self._requested[index], each.call_id)
            if isinstance(each, InnerRun):
                if not self._box.can_pause_inside(each.name):
                    raise ToolConfigurationError(_NOT_AN_AGENT.format(name=each.name))
                self._resumed[each.call_id] = Resumed(each, decided)

    def describe_pause(self, message: AssistantMessage) -> dict[str, Any]:
        """Return the turn as fields of a :class:`PausedRun`."""
        places, waiting = sorted(self._records), [self.waiting[index] for index in sorted(self.waiting)]
        return {
            "message": message,
            "pending": tuple(call for each in waiting for call in each.list_open()),
            "inner": tuple(each for each in waiting if isinstance(each, InnerRun)),
            "places": tuple(places),
            "done": tuple(self._records[index] for index in places),
        }

    def records(self) -> list[ToolCallRecord]:
        """Return the records of the calls, in request order."""
        return [self._records[index] for index in range(len(self._calls))]

    def answer(self, index: int, result: ToolResult) -> ToolCallRecord:
        """Reply to a call without running it."""
        return self._record(index, ToolReply(self._calls[index], result), 0.0)

    async def run(self, box: Toolbox, due: Sequence[int]) -> BaseException | None:
        """Run calls in parallel, and record their replies as they arrive; gated calls may be left open.

        An exception is returned, not raised, so that the other calls get their replies first.
        """
        stream = self._events.stream
        if stream is not None:
            for index in [index for index in due if index not in self._recorded]:
                call = self._calls[index]
                stream.send(CallRequested(call, show_arguments(call, self._box)))
        try:
            if stream is not None:
                await stream.wait_ready()
            self._begun = time.monotonic()  # the consumer of the run may have been slow
            if not self._state.spending.has_deadline:
                await self._execute(box, due)
            else:
                async with asyncio.timeout(None) as bound:
                    with self._watch_time(bound):
                        await self._execute(box, due)
        except TimeoutError:
            stop = self._state.spending.out_of_time()
            self._state.set_stop(stop)
            self._record_answers([index for index in due if index not in self._records], stop.text)
            self._reply_unfinished(due, ToolResult.success(stop.text), "out of time")
        except CallPausedError as paused:
            if self._turn is not None:
                raise  # the journal has the results of the other calls
            return self._leave_open(due, paused)
        except BaseException as error:
            if self._turn is not None:
                raise  # the turn is not part of the conversation: the run may resume here
            # Raised again when every call has its reply.
            self._fail_unfinished(due, error)
            return error
        finally:
            replayed = max(map(self._find_seconds, self._recorded.intersection(due)), default=0.0)
            self._state.spending.tool_seconds += time.monotonic() - self._begun + replayed
        return None

    @contextmanager
    def _watch_time(self, bound: asyncio.Timeout) -> Iterator[None]:
        """Limit the calls to the run's remaining time; the clock stops while they only wait for people."""
        loop, spending = asyncio.get_running_loop(), self._state.spending
        is_over = False

        def adjust() -> None:
            if not is_over and not bound.expired():
                left = (spending.deadline or 0.0) - time.monotonic()
                bound.reschedule(None if spending.clock.is_stopped else loop.time() + left)

        def adjust_soon() -> None:
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(adjust)

        adjust()
        spending.clock.on_change = adjust_soon
        try:
            yield
        finally:
            is_over, spending.clock.on_change = True, None

    def stop(self) -> None:
        """Reply to each unfinished call that a budget is used up, if one is."""
        if self._state.stop is not None:
            result, pending = ToolResult.success(self._state.stop.text), self.pending()
            self._record_answers(pending, result.output)
            for index in pending:
                self._send(index, self.answer(index, result))

    def _record_answers(self, indexes: Iterable[int], text: str) -> None:
        """Record the replies to calls that did not run or did not finish in the journal."""
        if self._turn is not None:
            data = {**write_recorded(ToolResult.success(text)), "answered": True}
            for index in indexes:
                self._turn.run.end(f"{self._turn.path}.{index + 1}", self._calls[index].name, dict(data))

    def _find_recorded(self, turn: Place) -> frozenset[int]:
        steps = [turn.run.find(f"{turn.path}.{index + 1}") for index in range(len(self._calls))]
        return frozenset(index for index, step in enumerate(steps) if step is not None and step.is_done)

    def _find_step(self, index: int) -> Any:
        return None if self._turn is None else self._turn.run.find(f"{self._turn.path}.{index + 1}")

    def _find_seconds(self, index: int) -> float:
        """Return how long a recorded call took; 0 for a new one."""
        return float(self._find_step(index).data.get("seconds", 0.0)) if index in self._recorded else 0.0

    def _leave_open(self, due: Sequence[int], paused: CallPausedError) -> BaseException | None:
        """Keep the calls that wait for approval; return an error if the run could not be resumed."""
        for each in (paused, *paused.others):
            if not (self._state.can_pause and self._is_own(each.context)):
                self._fail_unfinished(due, each)
                return each
        for each in (paused, *paused.others):
            index = due[each.place]
            name = self._calls[index].name
            self.waiting[index] = (
                PendingCall(self._requested[index], each.request)
                if each.inner is None
                else InnerRun(index, name, each.context.call_id, each.inner, each.edited)
            )
            self._add_trace(name, "paused")
        self._state.spending.unclaim(len(self.waiting.keys() & set(due)))
        return None

    def _is_own(self, context: ToolContext | None) -> bool:
        """Return whether a call was made by the model, not inside another call."""
        run = self._state.context
        return context is not None and (context.parent_id, context.run_id) == (run.call_id, run.run_id)

    def can_leave_open(self, context: ToolContext) -> bool:
        """Return whether a model's call can be left open while the nested agent waits."""
        return self._is_own(context) and self._box.can_pause_inside(context.tool_name)

    def take_resumed(self, call_id: str) -> Resumed | None:
        """Return the nested run to resume in a call, once: a retry of the call starts over."""
        return self._resumed.pop(call_id, None)

    async def _execute(self, box: Toolbox, due: Sequence[int]) -> None:
        context, calls = self._state.context, [self._calls[index] for index in due]
        if self._detector is not None:
            self._detector.begin(len(due))
        if self._turn is not None:
            context = context.derive({"place": self._turn})
            calls = [NumberedCall(call, index + 1) for call, index in zip(calls, due, strict=True)]
        inside, spending = enter(context), current_spending.set(self._state.spending)
        clock = current_clock.set(self._state.spending.clock) if self._state.is_timed else None
        point = pause_point.set(self if self._state.can_pause else None)
        begun = resumed_calls.set(self._begun_calls) if self._begun_calls else None
        watching = self._events.watch_calls()
        try:
            await box.aexecute_all(
                calls,
                memory_id=context.memory_id,
                parameters=context.parameters,
                run_id=context.run_id,
                observe=partial(self._add_reply, due),
            )
        finally:
            if watching is not None:
                unwatch(watching)
            if begun is not None:
                resumed_calls.reset(begun)
            pause_point.reset(point)
            if clock is not None:
                current_clock.reset(clock)
            current_spending.reset(spending)
            leave(inside)

    def _add_reply(self, due: Sequence[int], place: int, reply: ToolReply) -> None:
        """Record the reply to a call, with a note for the model if the run repeats itself."""
        checked = reply
        if self._detector is not None:
            checked = self._detector.check(reply, exempt=self._box.is_polling(reply.name))
            self._state.set_stop(self._detector.stop)
        self._finish(due[place], checked.with_edits(), "error" if reply.is_error else "success")

    def _fail_unfinished(self, due: Sequence[int], error: BaseException) -> None:
        """Reply to all unfinished calls, including pending approvals, that the run has ended."""
        why = "it was cancelled" if isinstance(error, asyncio.CancelledError) else describe_error(error)
        unfinished = [*due, *self.waiting]
        self.waiting.clear()
        self._reply_unfinished(unfinished, ToolResult.failure(f"The run ended before this call did: {why}"), why)

    def _reply_unfinished(self, due: Sequence[int], result: ToolResult, why: str) -> None:
        """Reply to the unfinished calls."""
        for index in due:
            if index not in self._records:
                self._finish(index, ToolReply(self._calls[index], result), why)

    def _finish(self, index: int, reply: ToolReply, how: str) -> None:
        """Record the end of a call that was run."""
        seconds = self._add_trace(reply.call.name, how, self._find_seconds(index))
        self._send(index, self._record(index, reply, seconds))

    def _add_trace(self, name: str, how: str, earlier: float = 0.0) -> float:
        """Add a call to the trace, and return its duration; ``earlier`` is its duration in another process."""
        seconds = time.monotonic() - self._begun + earlier
        self._state.add_trace("tool", name, self._begun, seconds, how)
        return seconds

    def _record(self, index: int, reply: ToolReply, seconds: float) -> ToolCallRecord:
        if reply.call is not self._requested[index]:
            reply = replace(reply, call=self._requested[index])
        if reply.arguments is None and (shown := show_arguments(reply.call, self._box)) is not None:
            reply = replace(reply, arguments=shown)
        started = self._begun - self._state.spending.started
        record = self._records[index] = ToolCallRecord(reply.call, reply, seconds, started)
        return record

    def _send(self, index: int, record: ToolCallRecord) -> None:
        if self._events.stream is not None and index not in self._recorded:
            self._events.show(CallReplied(replace(record, call=self._calls[index])))


def _with_id(call: ToolCall, id: str) -> ToolCall:
    return received_call(call.name, call.original, id)


def _add_id(call: ToolCall, turn: Place | None, index: int) -> ToolCall:
    """Return a call with a new id; in a journaled run the id is derived from the call's place."""
    if turn is None:
        return _with_id(call, new_id())
    place = f"{turn.run.run_id}{turn.path}.{index + 1}"
    return _with_id(call, sha256(place.encode()).hexdigest()[:16])
