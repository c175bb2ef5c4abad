"""Plays a case: starts its processes, interrupts them, answers for the person, and returns what can be observed."""

from __future__ import annotations

import http.client
import os
import signal
import subprocess
import sys
import threading
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from helpers.ui_client import Desk as Interface
from seams.case import Case
from seams.program import ENDED
from seams.shop import (
    AGENT,
    DECISIONS,
    PROMPT,
    RUN_ID,
    USER,
    open_journal,
    open_ledger,
    open_memory,
    open_store,
)
from seams.world import PATIENCE, World, until
from toolsemble.telemetry import RunHistory

TESTS = Path(__file__).parent.parent


@dataclass(frozen=True, slots=True)
class Exited:
    """A process that has ended."""

    pid: int
    code: int
    killed: bool
    """Whether it was killed by the case."""
    told: bool
    """Whether it was asked to stop, with SIGTERM or Ctrl-C."""
    log: str
    """What it wrote to standard error."""


@dataclass
class Observed:
    """What was seen of a case from outside."""

    case: Case
    world: World
    processes: list[Exited]
    streams: dict[int, list[str]]
    """The frames of the stream of each process, by its id."""
    ends: list[dict[str, Any]]
    """How each program said that its run ended."""
    effects: list[dict[str, Any]]
    unknown: list[Any] = field(default_factory=list)
    """The calls of unknown outcome in the journal, and in the ledger."""
    record: Any = None
    """The run in the journal."""
    steps: list[Any] = field(default_factory=list)
    questions: list[Any] = field(default_factory=list)
    """The requests in the review store."""
    audit: list[Any] = field(default_factory=list)
    history: dict[str, Any] = field(default_factory=dict)
    """The run in the history, its calls, turns, agents, reviews and events."""
    page: dict[str, Any] = field(default_factory=dict)
    """The run as the web interface shows it."""
    durable: dict[str, Any] = field(default_factory=dict)
    """The run on the page of durable runs."""
    memory: list[Any] = field(default_factory=list)


class Process:
    """A process of a case."""

    def __init__(self, world: World, number: int) -> None:
        self.world, self.number = world, number
        self.killed = self.told = False
        self._path = world.folder / f"process{number}.log"
        with self._path.open("wb") as log:
            self._process = subprocess.Popen(
                make_command(world),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, "PYTHONPATH": str(TESTS), "SEAMS_FOLDER": str(world.folder)},
            )

    def send(self, number: int) -> None:
        self.killed |= number == signal.SIGKILL
        self.told |= number != signal.SIGKILL
        self._process.send_signal(number)

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def wait(self) -> Exited:
        """Wait for its end; fail if that does not come."""
        try:
            code = self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            if self.world.case.driver != "work_command":
                self._process.send_signal(signal.SIGUSR1)  # it writes where it is
                with suppress(subprocess.TimeoutExpired):
                    self._process.wait(1)
            raise AssertionError(f"the process did not end:\n{self.read_log()}") from None
        return Exited(self._process.pid, code, self.killed, self.told, self.read_log())

    def stop(self) -> None:
        if self.is_running:
            self._process.kill()
            self._process.wait(PATIENCE)

    def read_log(self) -> str:
        return self._path.read_text(errors="replace")


def make_command(world: World) -> list[str]:
    """Return the command line of a process."""
    case = world.case
    if case.driver != "work_command":
        return [sys.executable, "-m", "seams.program", str(world.folder)]
    park = "0" if case.review == "parked" else "3600"
    command = [str(Path(sys.executable).with_name("toolsemble")), "work", "seams.target:agent"]
    deps = ["--deps", "seams.target:desk"] if case.deps == "run" else []
    return [*command, "--journal", world.journal_url, "--poll", "0.02", "--park-after", park, *deps]


class Client:
    """A client of the web server, which reads a stream in a thread until it ends, or until it leaves."""

    def __init__(self, world: World) -> None:
        self.frames: list[str] = []
        until((world.folder / "port").exists, "the server listens")
        port = int((world.folder / "port").read_text())
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
        until(self._has_connected, "the server accepts connections")
        self._socket = self._connection.sock
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def leave(self) -> None:
        with suppress(OSError):
            self._socket.shutdown(2)
        self.finish()

    def finish(self) -> None:
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive(), f"the stream did not end: {self.frames}"
        self._connection.close()

    def _has_connected(self) -> bool:
        try:
            self._connection.connect()
        except ConnectionError:
            return False
        return True

    def _read(self) -> None:
        with suppress(OSError, http.client.HTTPException):  # the server was killed, or the client has left
            self._connection.request("POST", "/chat")
            response = self._connection.getresponse()
            for line in response:
                if line.strip():
                    self.frames.append(line.decode())


class Stage:
    """One case while it is played."""

    def __init__(self, case: Case, folder: Path, postgres: str) -> None:
        self.case = case
        self.world = World.create(folder, case, postgres)
        self._open = ExitStack()
        self.runs = self._open.enter_context(open_journal(self.world)) if case.is_durable else None
        has_store = case.review in ("queue", "parked")
        self.store = self._open.enter_context(open_store(self.world)) if has_store else None
        self.exited: list[Exited] = []
        self.clients: list[Client] = []
        self.process: Process | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process is not None:
            self.process.stop()
        self._open.close()

    def play(self) -> Observed:
        """Play the case to its end, and return what can be observed."""
        case = self.case
        if case.driver == "work_command":
            self.runs.begin(RUN_ID, AGENT, PROMPT, memory_id=USER if case.memory != "none" else None)
        self.start()
        if case.review == "pause":
            self.end_process()
            self.start()
        if case.moment:
            self.interrupt()
        elif case.review in ("queue", "parked"):
            self.let_park()
            self.answer()
        if case.ends == "answered" and self.process is None:
            self.start()
        self.finish()
        return self.observe()

    def start(self) -> None:
        """Start a process; the client of a server asks only the first one, which its worker continues."""
        (self.world.folder / "port").unlink(missing_ok=True)
        self.process = Process(self.world, len(self.exited) + 1)
        if self.case.driver == "server" and not self.clients:
            self.clients.append(Client(self.world))

    def end_process(self) -> None:
        """Wait for the end of the process."""
        self.exited.append(self.process.wait())
        self.process = None

    def let_park(self) -> None:
        """Wait until a run is parked; its process then ends, unless it is to wait for other runs."""
        if self.case.review == "parked":
            self.wait_for_state("waiting")
            if not self.case.lasts:
                self.end_process()

    def wait_for_state(self, *states: str) -> None:
        def has_reached() -> bool:
            self.check_alive()
            run = self.runs.find(RUN_ID)
            return run is not None and run.state in states

        until(has_reached, f"the run is {' or '.join(states)}")

    def check_alive(self) -> None:
        """Fail at once if the process has ended although the case goes on."""
        if self.process is not None and self.process.is_running is False and self.case.lasts:
            raise AssertionError(f"the process has ended:\n{self.process.read_log()}")

    def answer(self) -> None:
        """Answer the question as the person does."""
        until(self.store.pending, "the person is asked")
        for request in self.store.pending():
            self.store.answer(request, DECISIONS[self.case.decision], person="grace")

    def interrupt(self) -> None:
        """Interrupt the run at its moment, and leave the case ready to continue."""
        case = self.case
        if case.moment == "body" and self.store is not None:
            self.let_park()
            self.answer()
            if self.process is None:
                self.start()
        self.reach_moment()
        getattr(self, f"do_{case.interruption}")()
        if case.moment == "question" and self.store is not None and case.ends == "answered":
            self.answer()

    def reach_moment(self) -> None:
        """Wait until the body runs, or the person is asked."""
        if self.case.moment == "body":
            self.wait_for(lambda: self.world.is_marked("in_body"), "the body runs")
        elif self.store is None:
            self.wait_for(lambda: self.world.is_marked("asked"), "the reviewer is asked")
        else:
            self.let_park()
            self.wait_for(self.store.pending, "the person is asked")
        if self.case.has_history and self.case.interruption.startswith("kill"):
            self.wait_for(self.is_in_history, "the history has it")

    def is_in_history(self) -> bool:
        """Return whether the history has caught up: it is written by a thread, which a kill also ends."""
        before_body = "call_started" if self.case.review == "none" else "review_decided"
        kind = before_body if self.case.moment == "body" else "review_requested"
        with RunHistory(self.world.data / "history.db") as history:
            found = history.events(run=RUN_ID, limit=5000, kinds=[kind])
        return any(each.tool_name == "refund" for each in found)

    def wait_for(self, happened, what: str) -> None:
        def has_happened() -> bool:
            if self.process is not None and not self.process.is_running and not happened():
                raise AssertionError(f"the process has ended before {what}:\n{self.process.read_log()}")
            return happened()

        until(has_happened, what)

    def do_kill_in_body(self) -> None:
        self.process.send(signal.SIGKILL)
        self.end_process()
        self.world.mark("go")

    do_kill_while_waiting = do_kill_in_body

    def do_sigterm(self) -> None:
        self.tell_to_end()
        self.world.mark("go")
        self.end_process()

    def tell_to_end(self) -> None:
        """Send SIGTERM; return when it is handled, if the handler is one of the case: a worker has its own."""
        self.process.send(signal.SIGTERM)
        if not self.case.lasts:
            self.wait_for(lambda: self.world.is_marked("told"), "SIGTERM is handled")

    def do_cancel(self) -> None:
        if self.runs is not None:
            self.runs.cancel(RUN_ID, store=self.store)
        elif self.case.driver == "run_sync":
            self.tell_to_end()  # which is Ctrl-C there
        else:
            self.world.mark("cancel")
            self.world.wait("left")
        self.world.mark("go")

    def do_client_gone(self) -> None:
        if self.case.driver == "server":
            self.clients[0].leave()
            self.world.mark("go")
            return
        self.world.mark("gone")
        self.world.wait("left")
        self.world.mark("go")
        self.end_process()

    def finish(self) -> None:
        """Wait for the end of the run, and end a process that waits for further ones."""
        if self.process is not None:
            if self.case.driver in ("work_command", "server"):
                self.wait_for_state(*ENDED)
                self.process.send(signal.SIGTERM)
            self.end_process()
        for client in self.clients:
            client.finish()

    def observe(self) -> Observed:
        """Return what all stores, files, streams and processes say."""
        world = self.world
        streams = {self.exited[0].pid: self.clients[0].frames} if self.clients else read_streams(world)
        seen = Observed(self.case, world, self.exited, streams, world.read("ends"), world.read("effects"))
        if self.runs is not None:
            seen.record, seen.steps = self.runs.find(RUN_ID), [*self.runs.steps(RUN_ID)]
            seen.unknown = [*self.runs.unknown()]
        if self.case.tool == "ledger" and self.runs is None:
            with open_ledger(world) as ledger:
                seen.unknown = [*ledger.unknown()]
        if self.store is not None:
            seen.questions, seen.audit = self.store.requests(), self.store.audit()
        if self.case.memory != "none":
            memory = open_memory(world)
            seen.memory = [*memory.load(USER)]
            memory.close()
        if self.case.has_history:
            self.observe_history(seen)
        return seen

    def observe_history(self, seen: Observed) -> None:
        """Add what the run history and the web interface say."""
        with RunHistory(self.world.data / "history.db") as history:
            known = {"journal": self.runs}  # which knows of a run that was cancelled while no process had it
            seen.history = {name: getattr(history, name)(RUN_ID, **known) for name in ("run", "agents")}
            seen.history |= {name: getattr(history, name)(RUN_ID) for name in ("calls", "turns", "reviews")}
            seen.history["events"] = history.events(run=RUN_ID, limit=5000)
        with Interface(self.world.data) as interface:
            seen.page = interface.get("/api/run", id=RUN_ID)
            if self.case.journal == "sqlite":
                seen.durable = interface.get("/api/durable/run", id=RUN_ID)


def read_streams(world: World) -> dict[int, list[str]]:
    """Return the frames of each process that streamed, by its id."""
    streams: dict[int, list[str]] = {}
    for line in world.read("frames"):
        streams.setdefault(line["pid"], []).append(line["frame"])
    return streams
