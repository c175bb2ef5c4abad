"""The driver of a run: reads its recorded steps and records new ones; stops when another driver has taken over."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any, NamedTuple, NoReturn

from toolsemble._engine.work.wait import RunInThread
from toolsemble._runtime.storage.database import repeat_if_lost
from toolsemble._vocabulary import errors
from toolsemble._vocabulary.call import new_id
from toolsemble._vocabulary.place import AskedQuestion
from toolsemble.agent._journal.questions import withdraw_question
from toolsemble.agent._journal.records import Step
from toolsemble.agent._journal.storage import (
    RunRow,
    Storage,
    Tables,
    describe_owner,
    end_owner,
    report_failures,
    to_json_object,
)
from toolsemble.review._request import Reviewer, digest

_START = "/0"  # the place of the stored conversation that a run starts with, before its first turn
_LOOK = 0.5  # seconds between two polls for the cancellation of a run that waits for a person


class DriverSettings(NamedTuple):
    """The settings that the drivers of a journal share."""

    park_after: float | None
    """Seconds of waiting for a person until a run is parked; None: never."""
    on_unknown: str
    """``"tell"`` the model that the outcome of a call is unknown, or ``"ask"`` a person first."""
    pin: bool
    """Whether a run is refused if its agent has changed."""
    draining: Callable[[], bool]
    """Returns whether the process should stop."""


class RunDriver:
    """A run that this process drives; methods that write are thread-safe."""

    def __init__(
        self, storage: Storage, row: RunRow, steps: list[Step], settings: DriverSettings, found: RunRow | None
    ) -> None:
        self._storage = storage
        self._found = found  # the row before this driver took the run; None: it is new
        self._settings = settings
        self._steps = {(step.place, step.kind): step for step in steps}
        self._earlier = [(step.place, step.kind) for step in steps]
        self._taken_over = tuple(steps)
        self._before = max((step.elapsed for step in steps), default=0.0)
        self._began = time.monotonic()
        self._owner = row.owner
        self._drained = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lock = threading.Lock()
        self._begun_with: Mapping[str, Any] = json.loads(row.settings)
        self._parameters: Mapping[str, Any] = self._begun_with["parameters"]
        self._spent: dict[str, Sequence[float]] = {}
        self._questions: dict[str, int] = {}  # the number of questions per call so far
        self._asked: dict[str, Reviewer] = {}  # the reviewers with pending requests, by request id
        self._parked_with = frozenset(json.loads(row.waiting))
        self.on_usage: Callable[[Sequence[float]], None] | None = None
        """Called with the usage inside a replayed call."""
        self.find_waited: Callable[[], float] = lambda: 0.0
        """Returns the seconds that the run has only waited for people since this driver claimed it."""
        self.row = row
        self.has_written = False
        """Whether this driver has recorded a reply or a call."""
        self._written: set[str] = set()  # the places that it has recorded
        self.is_new = not steps
        """Whether the run had no records before."""
        self.park_after = settings.park_after
        self.in_place = storage.in_place

    @property
    def run_id(self) -> str:
        """The id of the run."""
        return self.row.run

    @property
    def is_fork(self) -> bool:
        """Whether the run was forked from another run, whose conversation it must not change."""
        return "fork_of" in self._begun_with

    def start_clock(self) -> None:
        """Start the clock: until now, the run made its deps and waited for other runs of its conversation."""
        self._began = time.monotonic()

    @property
    def elapsed(self) -> float:
        """The seconds that the run has worked, without gaps between drivers and waits for people."""
        return self._before + time.monotonic() - self._began - self.find_waited()

    @property
    def earlier(self) -> float:
        """The seconds that the run had worked before this driver claimed it."""
        return self._before

    def find_worked(self, path: str) -> float:
        """Return the seconds that the nested agent at a place had worked before this driver claimed the run."""
        inside = [step for step in self._taken_over if step.place.startswith(f"{path}/")]
        if not inside:
            return 0.0
        # The first record is a reply, which the model had started before.
        return max(step.elapsed for step in inside) - min(_find_start(step) for step in inside)

    def find(self, path: str) -> Step | None:
        """Return the record of a call, or None."""
        return self._steps.get((path, "call"))

    def has_begun(self, path: str, *, asked: bool = True) -> bool:
        """Return whether an earlier driver started a call: asked about it, or started a body inside it.

        :param asked: whether a question about the call itself counts
        """
        return path in self._begun or (asked and path in self._asked_before)

    @cached_property
    def _begun(self) -> frozenset[str]:
        """The places that an earlier driver started, not only asked about, and all enclosing places."""
        places = [each if kind != "question" else _find_around(each) for each, kind in self._earlier]
        return frozenset(around for place in places for around in _list_around(place))

    @cached_property
    def _asked_before(self) -> frozenset[str]:
        """The places of the calls that an earlier driver asked about."""
        return frozenset(place.partition("?")[0] for place, kind in self._earlier if kind == "question")

    def has_written_inside(self, path: str) -> bool:
        """Return whether this driver has recorded steps of the agent at a place, so no earlier driver got that far."""
        with self._lock:
            return any(place.startswith(f"{path}/") for place in self._written)

    def find_reply(self, path: str) -> Any:
        """Return the recorded model reply of a turn as JSON values, or None."""
        found = self._steps.get((path, "reply"))
        return None if found is None else found.data

    def record_reply(self, path: str, data: Any) -> None:
        """Record a model reply."""
        self._write(Step(path, "reply", "done", "", "", data, self.elapsed))

    def begin(self, path: str, tool: str, arguments: str, *, repeatable: bool) -> None:
        """Record that a call's body is about to run; raise if this process must not continue."""
        state = "repeatable" if repeatable else "started"
        step = Step(path, "call", state, tool, arguments, None, self.elapsed)  # type: ignore[arg-type]  # a state
        self._write(step, synced=not repeatable)

    def end(self, path: str, tool: str, data: dict[str, Any]) -> None:
        """Record the result of a call; raise if this process must not continue."""
        if (usage := self._take_usage(path)) is not None:
            data["usage"] = usage
        known = self.find(path)
        if known is not None and known.state == "started" and _is_unknown(data):
            self._write(Step(path, "call", "unknown", known.tool, "", data, self.elapsed))
        else:
            self._write(Step(path, "call", "done", tool, "", data, self.elapsed))

    def note_usage(self, path: str, usage: Sequence[float]) -> None:
        """Keep the usage of an agent inside a call until the call ends."""
        with self._lock:
            self._spent[path] = usage

    def note_replay(self, data: Any) -> None:
        """Count the usage inside a replayed call."""
        if "usage" in data and self.on_usage is not None:
            self.on_usage(data["usage"])

    def find_changes(self, parameters: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the run's shared parameters as JSON values if a call has changed them; else None."""
        if not parameters and not self._parameters:
            return None
        values = to_json_object(parameters)
        with self._lock:
            changed, self._parameters = values != self._parameters, values
        return values if changed else None

    def handle_unknown(self, path: str, tool: str) -> None:
        """Raise if the run has to wait until a person settles a call of unknown outcome."""
        if self._settings.on_unknown == "ask":
            raise errors.RunParkedError(
                f"Run '{self.run_id}' waits: the outcome of '{tool}' is unknown; settle it with "
                f"RunJournal.resolve('{self.run_id}', '{path}', happened=...)",
                run_id=self.run_id,
            )

    def refuse_tool(self, path: str, recorded: str, tool: str) -> NoReturn:
        """Raise because another tool is recorded for a call: the enclosing pipeline has changed."""
        raise errors.RunChangedError(
            f"Run '{self.run_id}' recorded a call of '{recorded}' at {path}, where the current agent calls '{tool}'; "
            "continue it with the earlier agent, or fork it from the turn before",
            run_id=self.run_id,
        )

    def check_agent(self, path: str, recorded: str, mark: str) -> None:
        """Raise if a pinned run's turn was recorded with another model, other instructions or other tools."""
        if self._settings.pin and recorded != mark:
            raise errors.RunChangedError(
                f"Run '{self.run_id}' was recorded with another model, other instructions or other tools at turn "
                f"{path}; continue it with the earlier agent, or without pin",
                run_id=self.run_id,
            )

    def note_question(self, path: str, subject: str) -> AskedQuestion:
        """Return the next question of a call; record it if it is new.

        A question has the same id in every process, unique to its call, so that its answer can be found again.

        :param subject: a digest of what is asked
        """
        with self._lock:
            number = self._questions[path] = self._questions.get(path, 0) + 1
        place, ahead = path if number == 1 else f"{path}?{number}", self._storage.find_offset()
        known = self._steps.get((place, "question"))
        fresh: list[Any] = [time.time() + ahead, new_id(), ""]
        stored = known.data if known is not None and known.data[2] else fresh
        asked_at, token, before, *answers = stored
        id_ = digest([token, subject])[:32]
        if id_ != before:
            self._write(Step(place, "question", "done", "", "", [asked_at, token, id_], self.elapsed))
        is_same = id_ == before
        answer = answers[0] if is_same and answers else None
        return AskedQuestion(asked_at - ahead, id_, id_ in self._parked_with, "" if is_same else before, place, answer)

    def record_answer(self, question: AskedQuestion, answer: Any) -> None:
        """Record a decision that no store has, as JSON values; the same question is not asked again."""
        asked_at, token, id_ = self._steps[question.place, "question"].data[:3]
        data = [asked_at, token, id_, answer]
        self._write(Step(question.place, "question", "done", "", "", data, self.elapsed), synced=True)

    def note_asking(self, id: str, reviewer: Reviewer) -> None:
        """Keep the reviewer of a question, to close the question if the run ends before the answer."""
        self._asked[id] = reviewer

    def note_answer(self, id: str) -> None:
        """Forget an answered question."""
        self._asked.pop(id, None)

    @property
    def has_questions(self) -> bool:
        """Whether there are pending questions."""
        return bool(self._asked)

    def withdraw_questions(self) -> None:
        """Close the pending questions of a failed run; a retry asks again, with new ids."""
        steps = [step for step in self._steps.values() if step.kind == "question" and step.data[2] in self._asked]
        for step in steps:
            self._write(replace(step, data=[step.data[0], "", ""]))
        self.close_questions()

    def close_questions(self) -> None:
        """Close the questions that are still pending when the run ends."""
        for id_, reviewer in self._asked.items():
            withdraw_question([reviewer], id_)

    def check(self) -> None:
        """Raise if the process should stop, or if the run was cancelled or taken over; called between turns."""
        if self._settings.draining():
            raise errors.RunInterruptedError(
                f"Run '{self.run_id}' goes back to the queue: its worker is stopping", run_id=self.run_id
            )

    async def wait_for_drain(self) -> None:
        """Wait until this process should stop driving runs; raise if the run was cancelled or taken over."""
        self._loop = asyncio.get_running_loop()
        while not (self._settings.draining() or self._drained.is_set()):
            try:
                async with asyncio.timeout(_LOOK):
                    await self._drained.wait()
            except TimeoutError:
                await RunInThread(self._check_lost).ado()

    def drain(self) -> None:
        """Wake up the tasks that wait for this driver to stop; thread-safe."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._drained.set)

    def finish(self, state: str, *, result: str | None = None, error: str = "", waiting: str = "{}") -> None:
        """Record the run's outcome, or what it waits for, and release it; the first record wins."""

        def change(tables: Tables) -> None:
            tables.change_run(
                self.run_id, state=state, result=result, error=error, waiting=waiting, updated=tables.now()
            )

        is_end = state in ("done", "failed")
        self._change(change, synced=is_end, notify=not is_end)

    def withdraw(self) -> None:
        """Restore the run as it was before this driver claimed it; delete a new one."""
        found = self._found

        def change(tables: Tables) -> None:
            if found is None:
                tables.delete_run(self.run_id)
            else:
                as_before = {"state": found.state, "owner": found.owner, "error": found.error, "updated": found.updated}
                tables.change_run(self.run_id, **as_before)

        self._change(change, synced=True)

    def close(self) -> None:
        """Close this driver."""
        self._storage.forget(self)
        end_owner(self._owner)

    def beat(self) -> None:
        """Send a heartbeat; raise if this driver no longer owns the run."""
        self._change(lambda tables: tables.change_run(self.run_id, updated=tables.now()), synced=False)

    def _take_usage(self, path: str) -> list[float] | None:
        """Return the usage of agents inside a call, or None."""
        with self._lock:
            inside = [each for each in self._spent if each.startswith((f"{path}.", f"{path}/")) or each == path]
            spent = [self._spent.pop(each) for each in inside]
        return [sum(amounts) for amounts in zip(*spent, strict=True)] if spent else None

    def _write(self, step: Step, *, synced: bool = False) -> None:
        write = partial(self._storage.write_step, self.run_id, self.row.fence, step, synced=synced)
        with report_failures(self.run_id):
            while not repeat_if_lost(write):  # the write is idempotent
                self._check_lost()
        with self._lock:
            self._steps[step.place, step.kind] = step
            self.has_written |= step.place != _START
            self._written.add(step.place)

    def _change(self, change: Callable[[Tables], None], *, synced: bool, notify: bool = False) -> None:
        """Write to the tables if this driver still owns the run; idempotent."""

        def write() -> None:
            with self._storage.writing(self.run_id, synced=synced, notify=notify) as tables:
                if self._check_owner(tables) == "running":
                    change(tables)

        with report_failures(self.run_id):
            repeat_if_lost(write)

    def _check_lost(self) -> None:
        with report_failures(self.run_id), self._storage.reading() as tables:
            self._check_owner(tables)

    def _check_owner(self, tables: Tables) -> str:
        """Return the state of the run; raise if this is not its latest driver, or if it was cancelled."""
        state, owner, fence = tables.find_owner(self.run_id) or ("", "", 0)
        if fence != self.row.fence:
            by = f" by {describe_owner(owner)}" if owner else ""
            raise errors.RunBusyError(f"Run '{self.run_id}' was taken over{by}", run_id=self.run_id)
        if state == "cancelled":
            raise errors.RunCancelledError(f"Run '{self.run_id}' was cancelled", run_id=self.run_id)
        return state


def _list_around(place: str) -> Iterator[str]:
    """Return a place and its enclosing places, innermost first.

    >>> list(_list_around("/3.1/2.1"))
    ['/3.1/2.1', '/3.1/2', '/3.1', '/3']
    """
    while place:
        yield place
        place = _find_around(place)


def _find_start(step: Step) -> float:
    """Return the seconds that a run had worked when the model, or the call, of a step began."""
    took = step.data.get("seconds") if step.kind == "reply" and isinstance(step.data, dict) else None
    return step.elapsed - (took or 0.0)


def _find_around(place: str) -> str:
    """Return the enclosing place; empty for a turn of the outermost agent."""
    place = place.partition("?")[0]
    return place[: max(place.rfind("."), place.rfind("/"))]


def _is_unknown(data: Mapping[str, Any]) -> bool:
    """Return whether the outcome of a started body is unknown: it was lost or interrupted."""
    attributes = data.get("attributes", {})
    return "answered" in data or attributes.get("outcome") == "unknown"
