"""A worker: takes the runs of a journal that are to be done, and does several of them at the same time."""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Protocol

from toolsemble.errors import RunInterruptedError, ToolDefinitionError
from toolsemble.journal.tables import RunRow
from toolsemble.models.transcript import messages_from_json
from toolsemble.runtime.checks import check_count, check_seconds
from toolsemble.runtime.text import describe_error

LOGGER = logging.getLogger("toolsemble.journal")
LOGGER.addHandler(logging.NullHandler())  # a program without logging prints nothing


class RunQueue(Protocol):
    """A journal, as a worker sees it."""

    def find_work(self) -> Iterable[RunRow]:
        """Return the runs that nobody drives, and that have not ended."""
        ...

    def drain(self) -> None:
        """Let the runs stop before their next turn."""
        ...


class Runner(Protocol):
    """An agent, as a worker sees it."""

    def run_journaled(self, journal: Any, name: str, prompt: Any, settings: Mapping[str, Any]) -> Awaitable[Any]:
        """Do or continue a run of a journal."""
        ...

    def find_open_requests(self, ids: Iterable[str]) -> set[str]:
        """Return which requests still wait for a person."""
        ...


def is_runner(thing: object) -> bool:
    """Return whether a thing is an agent.

    >>> is_runner("gpt-5")
    False
    """
    return callable(getattr(thing, "run_journaled", None)) and not isinstance(thing, type)


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
        grace: float,
        deps: Any = None,
        signals: Sequence[signal.Signals] = (signal.SIGTERM,),
    ) -> None:
        check_count("RunJournal.work at_once", at_once, least=1)
        check_seconds("RunJournal.work poll", poll)
        check_seconds("RunJournal.work grace", grace, zero=True)
        for name, agent in agents.items():
            if not is_runner(agent):
                raise ToolDefinitionError(f"RunJournal.work takes agents by name; '{name:.80}' is {agent!r:.80}")
        self._journal = journal
        self._agents = agents
        self._at_once = at_once
        self._until_idle = until_idle
        self._poll = poll
        self._grace = grace
        self._deps = deps
        self._signals = signals
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._ended = asyncio.Event()

    async def run(self) -> None:
        """Take and do runs until there are none, or until the process is to stop."""
        with _handle_signals(self._signals, self._drain):
            try:
                while not self._ended.is_set():
                    taken = self._take()
                    if self._until_idle and not taken and not self._tasks:
                        return
                    await self._wait()
                await self._finish()
            finally:
                await self._cancel()

    def _drain(self) -> None:
        self._journal.drain()
        self._ended.set()

    def _take(self) -> int:
        """Start the runs that can be done now; return how many."""
        taken = 0
        for row in self._journal.find_work():
            if len(self._tasks) >= self._at_once:
                break
            agent = self._agents.get(row.agent)
            if agent is None or row.run in self._tasks or not _is_ready(row, agent):
                continue
            taken += 1
            self._tasks[row.run] = asyncio.create_task(self._do(agent, row))
        return taken

    async def _do(self, agent: Runner, row: RunRow) -> None:
        try:
            await resume_run(self._journal, agent, row, self._deps)
            LOGGER.info("Run '%s' is done", row.run)
        except RunInterruptedError as stopped:
            LOGGER.info("%s", stopped)  # parked, cancelled, or another worker was faster
        except Exception as error:  # noqa: BLE001 - recorded with the run; the worker goes on
            LOGGER.warning("Run '%s' failed: %s", row.run, describe_error(error))
        finally:
            self._tasks.pop(row.run, None)

    async def _wait(self) -> None:
        """Wait until a run has ended, the process is to stop, or it is time to look again."""
        ending = asyncio.ensure_future(self._ended.wait())
        try:
            waiting = {ending, *self._tasks.values()}
            await asyncio.wait(waiting, timeout=self._poll, return_when=asyncio.FIRST_COMPLETED)
        finally:
            ending.cancel()

    async def _finish(self) -> None:
        """Let the runs stop by themselves, for some time."""
        if self._tasks:
            await asyncio.wait(list(self._tasks.values()), timeout=self._grace)

    async def _cancel(self) -> None:
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)


def resume_run(journal: RunQueue, agent: Runner, row: RunRow, deps: Any) -> Awaitable[Any]:
    """Do or continue a run with what it was begun with, and the deps of this process."""
    values = json.loads(row.settings)
    parameters = values["parameters"] or None
    settings = {"run_id": row.run, "memory_id": values["memory_id"], "parameters": parameters, "deps": deps}
    if "history" in values:
        settings["history"] = messages_from_json(json.dumps(values["history"]))
    return agent.run_journaled(journal, row.agent, [*messages_from_json(row.prompt)], settings)


def _is_ready(row: RunRow, agent: Runner) -> bool:
    """Return whether a run can go on: one that waits, when a person has answered."""
    if row.state != "waiting":
        return True
    ids = json.loads(row.waiting)
    return bool(ids) and agent.find_open_requests(ids) != set(ids)


@contextmanager
def _handle_signals(signals: Sequence[signal.Signals], stop: Callable[[], None]) -> Iterator[None]:
    """Call a function at the first of some signals, in the main thread of a system that has them."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop, handled = asyncio.get_running_loop(), set(signals)

    def release() -> None:
        while handled:
            with suppress(NotImplementedError):
                loop.remove_signal_handler(handled.pop())

    def handle() -> None:
        release()  # a second one ends the process
        stop()

    with suppress(NotImplementedError):
        for each in signals:
            loop.add_signal_handler(each, handle)
    try:
        yield
    finally:
        release()
