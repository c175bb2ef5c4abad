"""A worker: takes the runs of a journal that are to be done, and does several of them at the same time."""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import sqlite3
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from difflib import get_close_matches
from functools import partial
from types import FrameType
from typing import Any, NamedTuple, Protocol

from toolsemble._engine.work.wait import RunInThread
from toolsemble._runtime.checks import check_count, check_seconds
from toolsemble._runtime.text import describe_error
from toolsemble._vocabulary.errors import JournalError, RunError, ToolDefinitionError, ToolsembleError
from toolsemble.agent._journal.questions import LOGGER
from toolsemble.agent._journal.records import RunRecord
from toolsemble.agent._journal.storage import RunRow
from toolsemble.models._message import messages_from_json
from toolsemble.review._request import Reviewer

_LONGEST_PAUSE = 300.0  # seconds between two attempts to begin a run


class RunQueue(Protocol):
    """A journal, as a worker sees it."""

    def find_work(self) -> Iterable[RunRow]:
        """Return the runs that nobody drives, and that have not ended."""
        ...

    def find(self, run_id: str) -> RunRecord | None:
        """Return a run as it is recorded now."""
        ...

    def find_reviewers(self, run_id: str) -> Mapping[str, Reviewer | None]:
        """Return the reviewers that a run was parked with in this process, by the ids of their requests."""
        ...

    def close_questions(self, agents: Mapping[str, Runner]) -> None:
        """Close the questions of cancelled runs of some agents."""
        ...

    def watch(self, changed: Callable[[], object]) -> Callable[[], None] | None:
        """Call a function, in another thread, when there may be runs to do."""
        ...

    def drain(self) -> None:
        """Let the runs stop before their next turn, and the workers end."""
        ...

    def watch_drain(self, stop: Callable[[], None]) -> Callable[[], object]:
        """Call a function when the runs are to stop, at once if they are already; return a function that ends this."""
        ...


class Runner(Protocol):
    """An agent, as a worker sees it."""

    def run_journaled(self, journal: Any, name: str, prompt: Any, settings: Mapping[str, Any]) -> Awaitable[Any]:
        """Do or continue a run of a journal."""
        ...

    def check_deps(self, deps: Any) -> None:
        """Raise if its runs would lack deps, or if these have another type than its own."""
        ...

    def list_reviewers(self) -> Sequence[Any]:
        """Return the reviewers that its calls can ask, as far as they are known in advance."""
        ...

    def find_open_requests(self, ids: Iterable[str]) -> set[str]:
        """Return which requests still wait for a person."""
        ...

    def watch_requests(self, changed: Callable[[], object]) -> Sequence[Callable[[], None]]:
        """Call a function, in another thread, when a person may have answered."""
        ...


def is_runner(thing: object) -> bool:
    """Return whether a thing is an agent.

    >>> is_runner("gpt-5")
    False
    """
    return callable(getattr(thing, "run_journaled", None)) and not isinstance(thing, type)


class _LeftRun(NamedTuple):
    """A run that could not begin, for example because its deps could not be made."""

    row: RunRow
    """The run as it was: a change may help."""
    pause: float
    """The seconds until it is tried again."""
    until: float
    """When it is tried again, on the clock of ``time.monotonic``."""


class Worker:
    """The runs that one call of ``work`` does."""

    def __init__(
        self,
        journal: RunQueue,
        agents: Mapping[str, Runner],
        *,
        at_once: int,
        until_idle: bool,
        poll: float,
        grace: float | None,
        deps: Any = None,
        signals: Sequence[signal.Signals] = (signal.SIGTERM,),
    ) -> None:
        check_count("RunJournal.work at_once", at_once, least=1)
        check_seconds("RunJournal.work poll", poll)
        if grace is not None:
            check_seconds("RunJournal.work grace", grace, zero=True)
        given: object = agents
        if not isinstance(given, Mapping):
            raise ToolDefinitionError(
                f"RunJournal.work takes agents by name, such as {{'clerk': agent}}, not {given!r:.80}"
            )
        for name, agent in agents.items():
            if not is_runner(agent):
                raise ToolDefinitionError(f"RunJournal.work takes agents by name; '{name:.80}' is {agent!r:.80}")
        for agent in agents.values():
            agent.check_deps(deps)  # before any run is touched
        self._journal = journal
        self._agents = agents
        self._at_once = at_once
        self._until_idle = until_idle
        self._poll = poll
        self._grace = grace
        self._deps = deps
        self._signals = signals
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._left: dict[str, _LeftRun] = {}  # runs that could not begin, and stay as they are
        self._unknown: set[str] = set()  # names of agents that runs wait for, and that this worker does not have
        self._ended = asyncio.Event()
        self._news = asyncio.Event()

    async def run(self) -> None:
        """Take and do runs until there are none, or until the process is to stop."""
        with self._watching(), _handle_signals(self._signals, self._drain):
            try:
                while not self._ended.is_set():
                    self._news.clear()
                    if await self._take() and self._until_idle:
                        return
                    await self._wait()
                await self._finish()
            finally:
                await self._cancel()

    def _drain(self) -> None:
        self._journal.drain()

    @contextmanager
    def _watching(self) -> Iterator[None]:
        """Look for runs as soon as there are any, where the database tells; end when the journal is drained."""
        loop = asyncio.get_running_loop()

        def set_soon(event: asyncio.Event) -> None:
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(event.set)

        wake = partial(set_soon, self._news)
        with ExitStack() as watched:
            watched.callback(self._journal.watch_drain(partial(set_soon, self._ended)))
            if (end := self._journal.watch(wake)) is not None:
                watched.callback(end)
            for agent in self._agents.values():
                for end in agent.watch_requests(wake):
                    watched.callback(end)
            yield

    async def _take(self) -> bool:
        """Start the runs that can be done now; return whether there are none, and none is being done."""
        known = set(self._tasks)
        try:
            ready = await RunInThread(lambda: self._find_ready(known)).ado()
        except (OSError, sqlite3.OperationalError) as error:
            LOGGER.warning("%s; the worker looks again in %g s", error, self._poll)
            return False
        for agent, row in ready:
            self._tasks[row.run] = asyncio.create_task(self._do(agent, row))
        return not known and not ready  # those that ended meanwhile made room

    def _find_ready(self, known: set[str]) -> list[tuple[Runner, RunRow]]:
        """Return the runs that can be done now, as many as there is room for."""
        self._journal.close_questions(self._agents)
        ready: list[tuple[Runner, RunRow]] = []
        for row in self._journal.find_work():
            if len(known) + len(ready) >= self._at_once:
                break
            agent = self._agents.get(row.agent)
            if agent is None:
                self._report_unknown(row)
            elif row.run not in known and not self._is_left(row) and self._is_ready(row, agent):
                ready.append((agent, row))
        return ready

    def _report_unknown(self, row: RunRow) -> None:
        """Say once for each name that there are runs of an agent that this worker does not have."""
        if row.agent in self._unknown:
            return
        self._unknown.add(row.agent)
        folded = {name.casefold(): name for name in self._agents}
        near = get_close_matches(row.agent.casefold(), folded, n=1)
        hint = f"; did you mean '{folded[near[0]]}'?" if near else ""
        text = "Run '%s' stays %s: this worker has no agent '%s', only %s%s"
        LOGGER.log(
            logging.WARNING if near else logging.INFO,
            text,
            row.run,
            row.state,
            row.agent,
            ", ".join(self._agents) or "none",
            hint,
        )

    def _is_ready(self, row: RunRow, agent: Runner) -> bool:
        """Return whether a run can go on: one that waits, when a person has answered.

        Which reviewers an agent inside or a changing set of tools asks is known only after the run was parked here.
        """
        if row.state != "waiting":
            return True
        ids = set(json.loads(row.waiting))
        asked = {id_: each for id_, each in self._journal.find_reviewers(row.run).items() if id_ in ids}
        left = agent.find_open_requests(ids) | {id_ for id_, each in asked.items() if _is_open(each, id_)}
        return left != ids

    def _is_left(self, row: RunRow) -> bool:
        """Return whether a run could not begin here, and is not to be tried again yet."""
        left = self._left.get(row.run)
        return left is not None and left.row == _identify(row) and time.monotonic() < left.until

    async def _leave(self, row: RunRow, error: Exception) -> None:
        """Report a run that failed; one that could not begin is tried again after a pause, which grows."""
        record = None
        with suppress(OSError, ToolsembleError, sqlite3.Error):  # the next look for runs reports it
            record = await RunInThread(partial(self._journal.find, row.run)).ado()
        if record is None or record.state == "failed":
            LOGGER.warning("Run '%s' failed: %s", row.run, describe_error(error))
            return
        before, identity = self._left.get(row.run), _identify(row)
        is_known = before is not None and before.row == identity
        pause = min(before.pause * 2, _LONGEST_PAUSE) if before is not None and is_known else max(self._poll, 1.0)
        self._left[row.run] = _LeftRun(identity, pause, time.monotonic() + pause)
        if not is_known:
            LOGGER.warning("Run '%s' stays %s: %s", row.run, record.state, describe_error(error))

    async def _do(self, agent: Runner, row: RunRow) -> None:
        try:
            await resume_run(self._journal, agent, row, self._deps)
            self._left.pop(row.run, None)
            LOGGER.info("Run '%s' is done", row.run)
        except RunError as stopped:
            LOGGER.info("%s", stopped)  # parked, cancelled, or another worker was faster
        except Exception as error:  # recorded with the run; the worker goes on
            if isinstance(error.__cause__, JournalError):
                LOGGER.warning("%s; the worker tries again in %g s", error, self._poll)
                return
            await self._leave(row, error)
        finally:
            self._tasks.pop(row.run, None)
        self._news.set()  # there is room, and a person may have answered meanwhile

    async def _wait(self) -> None:
        """Wait until a run has ended, the process is to stop, there is news, or it is time to look again."""
        events = [asyncio.ensure_future(event.wait()) for event in (self._ended, self._news)]
        try:
            await asyncio.wait(events, timeout=self._poll, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for event in events:
                event.cancel()

    async def _finish(self) -> None:
        """Let the calls in flight end; if there is a limit, report the runs that it interrupts."""
        if self._tasks:
            await asyncio.wait(list(self._tasks.values()), timeout=self._grace)
        for run in self._tasks:
            text = "Run '%s' is interrupted: a call did not end within %g s, and nobody knows whether it took effect"
            LOGGER.warning(text, run, self._grace)

    async def _cancel(self) -> None:
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)


def _identify(row: RunRow) -> RunRow:
    """Return a row without what a driver that could not begin changes."""
    return row._replace(fence=0)


def resume_run(journal: RunQueue, agent: Runner, row: RunRow, deps: Any) -> Awaitable[Any]:
    """Do or continue a run with what it was begun with, and the deps of this process."""
    values = json.loads(row.settings)
    parameters = values["parameters"] or None
    settings = {"run_id": row.run, "memory_id": values["memory_id"], "parameters": parameters, "deps": deps}
    if "history" in values:
        settings["history"] = messages_from_json(json.dumps(values["history"]))
    return agent.run_journaled(journal, row.agent, [*messages_from_json(row.prompt)], settings)


def _is_open(reviewer: Reviewer | None, id_: str) -> bool:
    """Return whether a request waits; without a reviewer that can tell, the run is continued by hand."""
    return reviewer is None or not reviewer.has_store or id_ in reviewer.find_open({id_})


@contextmanager
def _handle_signals(signals: Sequence[signal.Signals], stop: Callable[[], None]) -> Iterator[None]:
    """Call a function in the event loop at each of some signals; in a thread other than the main one, do nothing."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()

    def stop_soon() -> None:
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(stop)

    handlers = [_SignalHandler(number, stop_soon) for number in signals]
    try:
        yield
    finally:
        for handler in handlers:
            handler.release()


class _SignalHandler:
    """Stops a worker at a signal, and calls the handler that was installed before, such as a web server's.

    Handlers of ``loop.add_signal_handler`` are called as well: the event loop has its own way to learn of a signal.
    The first Ctrl-C only stops the worker, and a second one ends the program.
    """

    def __init__(self, number: signal.Signals, stop: Callable[[], None]) -> None:
        self._number = number
        self._stop = stop
        self.is_released = False
        self._previous: Any = signal.signal(number, self)

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if self.is_released:
            self._pass_on(number, frame)
            return
        self._stop()
        previous = self.find_previous()
        if number == signal.SIGINT:
            signal.signal(number, signal.default_int_handler)
        elif callable(previous):
            previous(number, frame)

    def _pass_on(self, number: int, frame: FrameType | None) -> None:
        """Do what would happen without this handler."""
        if callable(self._previous):
            self._previous(number, frame)
        elif self._previous is signal.SIG_DFL:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)

    def release(self) -> None:
        """Install the previous handler again; one that was installed meanwhile stays, and may call this one."""
        self.is_released = True
        current: object = signal.getsignal(self._number)
        if current is self:
            signal.signal(self._number, self.find_previous())

    def find_previous(self) -> Any:
        """Return the previous handler that is still in use."""
        previous = self._previous
        if isinstance(previous, _SignalHandler) and previous.is_released:
            return previous.find_previous()
        return signal.SIG_DFL if previous is None else previous  # None: it was not installed by Python
