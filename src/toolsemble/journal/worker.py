"""A worker: takes the runs of a journal that are to be done, and does several of them at the same time."""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from difflib import get_close_matches
from typing import Any, Protocol

from toolsemble.errors import RunInterruptedError, ToolDefinitionError
from toolsemble.journal.questions import LOGGER
from toolsemble.journal.tables import RunRow
from toolsemble.models.transcript import messages_from_json
from toolsemble.runtime.checks import check_count, check_seconds
from toolsemble.runtime.text import describe_error
from toolsemble.work.thread import RunInThread


class RunQueue(Protocol):
    """A journal, as a worker sees it."""

    def find_work(self) -> Iterable[RunRow]:
        """Return the runs that nobody drives, and that have not ended."""
        ...

    def find_reviewers(self, run_id: str) -> Mapping[str, Any]:
        """Return the reviewers that a run was parked with in this process, by the ids of their requests."""
        ...

    def close_questions(self, agents: Mapping[str, Runner]) -> None:
        """Close the questions of cancelled runs of some agents."""
        ...

    def watch(self, changed: Callable[[], object]) -> Callable[[], None] | None:
        """Call a function, in another thread, when there may be runs to do."""
        ...

    def drain(self) -> None:
        """Let the runs stop before their next turn."""
        ...


class Runner(Protocol):
    """An agent, as a worker sees it."""

    def run_journaled(self, journal: Any, name: str, prompt: Any, settings: Mapping[str, Any]) -> Awaitable[Any]:
        """Do or continue a run of a journal."""
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
        self._journal = journal
        self._agents = agents
        self._at_once = at_once
        self._until_idle = until_idle
        self._poll = poll
        self._grace = grace
        self._deps = deps
        self._signals = signals
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._unknown: set[str] = set()  # names of agents that runs wait for, and that this worker does not have
        self._ended = asyncio.Event()
        self._news = asyncio.Event()

    async def run(self) -> None:
        """Take and do runs until there are none, or until the process is to stop."""
        with _handle_signals(self._signals, self._drain), self._watching():
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
        self._ended.set()

    @contextmanager
    def _watching(self) -> Iterator[None]:
        """Look for runs as soon as there are any, where the database tells."""
        loop = asyncio.get_running_loop()

        def wake() -> None:
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(self._news.set)

        with ExitStack() as watched:
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
        except ConnectionError as error:
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
            elif row.run not in known and self._is_ready(row, agent):
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


def resume_run(journal: RunQueue, agent: Runner, row: RunRow, deps: Any) -> Awaitable[Any]:
    """Do or continue a run with what it was begun with, and the deps of this process."""
    values = json.loads(row.settings)
    parameters = values["parameters"] or None
    settings = {"run_id": row.run, "memory_id": values["memory_id"], "parameters": parameters, "deps": deps}
    if "history" in values:
        settings["history"] = messages_from_json(json.dumps(values["history"]))
    return agent.run_journaled(journal, row.agent, [*messages_from_json(row.prompt)], settings)


def _is_open(reviewer: Any, id_: str) -> bool:
    """Return whether a request waits; without a reviewer that can tell, the run is continued by hand."""
    find_open = getattr(reviewer, "find_open", None)
    return not callable(find_open) or id_ in find_open({id_})


@contextmanager
def _handle_signals(signals: Sequence[signal.Signals], stop: Callable[[], None]) -> Iterator[None]:
    """Call a function at the first of some signals, in the main thread of a system that has them.

    A second Ctrl-C ends the program; a second SIGTERM, which some supervisors send, changes nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop, handled = asyncio.get_running_loop(), set(signals)

    def release() -> None:
        while handled:
            with suppress(NotImplementedError):
                loop.remove_signal_handler(handled.pop())

    def handle() -> None:
        if signal.SIGINT in handled:
            loop.remove_signal_handler(signal.SIGINT)
            handled.discard(signal.SIGINT)
        stop()

    with suppress(NotImplementedError):
        for each in signals:
            loop.add_signal_handler(each, handle)
    try:
        yield
    finally:
        release()
