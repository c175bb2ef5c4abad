"""The program of a case: ``python -m seams.program FOLDER`` does its run, or continues it.

It ends as a program of a user would: what a run raises is caught where the contract names it, SIGTERM lets the runs of
a journal stop and cancels others, and everything is closed. How it ended is a line in the log ``ends``.
"""

import asyncio
import faulthandler
import json
import logging
import signal
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

from seams.shop import AGENT, DECISIONS, PROMPT, RUN_ID, Opened, open_shop
from seams.world import POLL, World
from toolsemble import RunCancelledError, RunInterruptedError, RunParkedError
from toolsemble._schema.result_shape import to_json_value
from toolsemble.agent import PausedRun
from toolsemble.agent.streams import read_ag_ui, sse, to_ag_ui, to_vercel

ENDED = ("done", "failed", "cancelled")
NORMAL = {RunParkedError: "parked", RunInterruptedError: "interrupted", RunCancelledError: "cancelled"}
"""How a run can end without an answer, although nothing is wrong."""


class Program:
    """One process of a case."""

    def __init__(self, world: World, opened: Opened) -> None:
        self.world, self.case, self.opened = world, world.case, opened
        self.agent, self.journal = opened.agent, opened.journal

    def run(self) -> None:
        """Drive the run, and write how that ended."""
        try:
            if self.case.driver == "run_sync":
                (prompt,), settings = self.given()
                signal.signal(signal.SIGTERM, self.press_ctrl_c)
                with waking_regularly():
                    self.note_result(self.agent.run_sync(prompt, **settings))
            elif self.case.driver == "server":
                self.serve()
            else:
                asyncio.run(self.drive())
        except tuple(NORMAL) as error:
            self.note(NORMAL[type(error)])
        except (asyncio.CancelledError, KeyboardInterrupt):
            self.note("stopped")

    def press_ctrl_c(self, *_: Any) -> None:
        """Handle SIGTERM as Ctrl-C, which an event loop takes in order; an exception could come anywhere."""
        signal.raise_signal(signal.SIGINT)
        self.world.mark("told")

    def stop(self, task: asyncio.Task) -> None:
        """Handle SIGTERM: let the run of a journal stop, and cancel another one."""
        if self.journal is None:
            task.cancel()
        else:
            self.journal.drain()
        self.world.mark("told")

    def given(self) -> tuple[tuple[Any], dict[str, Any]]:
        """Return what a run is given: the prompt, or a paused run and the decisions."""
        file = self.world.folder / "paused.json"
        if not file.exists():
            return (PROMPT,), self.opened.run_settings
        paused = PausedRun.from_json(file.read_text())
        decisions = {each.id: DECISIONS[self.case.decision] for each in paused.pending}
        settings = {name: value for name, value in self.opened.run_settings.items() if name == "deps"}
        return (paused,), {**settings, "decisions": decisions}

    def note(self, end: str, **values: Any) -> None:
        self.world.log("ends", end=end, **values)

    def note_result(self, result: Any) -> None:
        """Write a result, and a paused run to its file."""
        usage = result.usage
        self.note(
            "paused" if result.paused is not None else "answered",
            text=result.text,
            output=to_json_value(result.output),
            stop_reason=result.stop_reason,
            calls=[[each.call.name, each.reply.text] for each in result.tool_calls],
            usage=[usage.input_tokens, usage.output_tokens, usage.model_calls],
        )
        if result.paused is not None:
            part = self.world.folder / "paused.part"
            part.write_text(result.paused.to_json())
            part.rename(self.world.folder / "paused.json")

    async def drive(self) -> None:
        """Drive the run in an event loop; SIGTERM, a cancellation and a client that leaves are handled."""
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        if self.case.driver == "worker":
            await self.work()
            return
        loop.add_signal_handler(signal.SIGTERM, self.stop, task)
        watching = asyncio.create_task(self.watch(task))
        try:
            if self.case.driver == "run":
                (prompt,), settings = self.given()
                self.note_result(await self.agent.run(prompt, **settings))
            else:
                await self.consume()
        finally:
            watching.cancel()

    async def watch(self, task: asyncio.Task) -> None:
        """Cancel the task when its caller is to cancel it, or its client is to leave."""
        mark = {"client_gone": "gone", "cancel": "cancel"}.get(self.case.interruption)
        if mark is not None:
            while not self.world.is_marked(mark):
                await asyncio.sleep(POLL)
            if not (mark == "gone" and self.world.is_marked("left")):  # only the first client leaves
                self.world.mark("left")
                task.cancel()

    async def consume(self) -> None:
        """Write each frame of a stream to a log."""
        (prompt,), settings = self.given()
        follow = self.agent.iterate if self.case.driver == "iterate" else self.agent.stream
        async with aclosing(self.encode(follow(prompt, **settings))) as frames:
            async for frame in frames:
                self.world.log("frames", frame=frame)

    async def encode(self, events: AsyncIterator[Any]) -> AsyncIterator[Any]:
        """Return a stream in the format of the driver; what it ended with is noted."""
        watched = self.watch_events(events)
        if self.case.driver in ("stream", "iterate"):
            encoded: Any = (event.kind async for event in watched)
        elif self.case.driver == "sse":
            encoded = sse(watched)
        elif self.case.driver == "vercel":
            encoded = to_vercel(watched)
        else:
            body = {"threadId": "t", "runId": RUN_ID, "messages": [{"id": "m", "role": "user", "content": PROMPT}]}
            blank = {"state": None, "tools": [], "context": [], "forwardedProps": None}
            encoded = to_ag_ui(watched, read_ag_ui(json.dumps({**body, **blank}).encode()))
        async with aclosing(encoded) as frames:
            async for frame in frames:
                yield frame

    async def watch_events(self, events: Any) -> AsyncIterator[Any]:
        """Pass events on, and note what the last one says."""
        last = None
        async with aclosing(events) as stream:
            async for event in stream:
                last = event
                yield event
        if last is not None and last.kind == "final":
            self.note_result(last.result)
        else:
            self.note("nothing" if last is None else last.kind)

    async def work(self) -> None:
        """Begin the run, and do the runs of the journal until it has ended."""
        self.journal.begin(RUN_ID, AGENT, PROMPT, memory_id=self.opened.run_settings.get("memory_id"))
        working = asyncio.create_task(self.journal.work({AGENT: self.agent}, poll=0.02, deps=self.opened.deps))
        ending = asyncio.create_task(self.wait_for_end())
        await asyncio.wait({working, ending}, return_when=asyncio.FIRST_COMPLETED)
        state = self.journal.find(RUN_ID).state
        for task in (working, ending):
            task.cancel()
        for outcome in await asyncio.gather(working, ending, return_exceptions=True):
            if isinstance(outcome, Exception):
                raise outcome
        self.note("answered" if state == "done" else state)

    async def wait_for_end(self) -> None:
        while self.journal.find(RUN_ID).state not in ENDED:
            await asyncio.sleep(0.02)

    def serve(self) -> None:
        """Serve the agent on a free port, with a worker in the lifespan, until SIGTERM."""
        import uvicorn

        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            server = uvicorn.Server(uvicorn.Config(self.make_app(), log_level="warning"))
            (self.world.folder / "port.part").write_text(str(listener.getsockname()[1]))
            (self.world.folder / "port.part").rename(self.world.folder / "port")
            server.run(sockets=[listener])
        self.note("served")

    def make_app(self) -> Any:
        """Return the web service: the agent behind one route, and a worker that continues what was left."""
        from fastapi import FastAPI
        from fastapi.responses import StreamingResponse

        @asynccontextmanager
        async def lifespan(_: FastAPI) -> AsyncIterator[None]:
            working = asyncio.create_task(self.journal.work({AGENT: self.agent}, poll=0.02, deps=self.opened.deps))
            yield
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)

        app = FastAPI(lifespan=lifespan)

        @app.post("/chat")
        async def chat() -> StreamingResponse:
            return StreamingResponse(sse(self.agent.stream(PROMPT, **self.opened.run_settings)))

        return app


@contextmanager
def waking_regularly() -> Iterator[None]:
    """Let the process notice signals: Python misses one that comes right before its event loop begins to wait."""
    signal.signal(signal.SIGALRM, lambda *_: None)
    signal.setitimer(signal.ITIMER_REAL, 0.1, 0.1)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def show_stacks(*_: Any) -> None:
    """Write the stacks of all threads and tasks, for a test in which this process does not end."""
    faulthandler.dump_traceback(all_threads=True)
    with suppress(RuntimeError):  # there is no event loop
        for task in asyncio.all_tasks(asyncio.get_running_loop()):
            task.print_stack()


def main(folder: str) -> None:
    signal.signal(signal.SIGUSR1, show_stacks)
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    world = World(Path(folder))
    with open_shop(world) as opened:
        Program(world, opened).run()


if __name__ == "__main__":
    main(*sys.argv[1:])
