"""Measure through which modules of the library a call goes, and write the table of ARCHITECTURE.md.

A walk is measured the second time, when everything is loaded. A re-entry is a call from another module into one that
is already on the stack: where a reader has to jump back.

    .venv/bin/python scripts/walks.py           print the table, and the modules of each walk
    .venv/bin/python scripts/walks.py --write   write the table into ARCHITECTURE.md
"""

from __future__ import annotations

import asyncio
import re
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import Any, Self

import toolsemble
from toolsemble import Agent, RunJournal, RunParkedError, Toolbox, ToolCall, tool
from toolsemble.review import Continue, QueueReview, ReviewStore
from toolsemble.testing import ScriptedModel

PAGE = Path(__file__).parent.parent / "ARCHITECTURE.md"
BEGIN, END = "<!-- walks -->\n", "<!-- end of walks -->\n"


class Walk:
    """The functions of the library that are called while it is active, in all threads."""

    root = f"{Path(toolsemble.__file__).parent}/"

    def __init__(self) -> None:
        self.calls = 0
        self.modules: list[str] = []
        """The modules, in the order in which the walk comes to them."""
        self.re_entries: list[tuple[str, str]] = []
        """The caller and the function, for each re-entry."""

    def __enter__(self) -> Self:
        threading.setprofile(self._see)
        sys.setprofile(self._see)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        threading.setprofile(None)

    def _see(self, frame: FrameType, event: str, _: object) -> None:
        module = self._module(frame)
        if event != "call" or module is None or frame.f_code.co_name == "<module>":
            return
        self.calls += 1
        if module not in self.modules:
            self.modules.append(module)
        around = list(self._stack(frame.f_back))
        if around and around[0] != module and module in around:
            self.re_entries.append((around[0], f"{module}:{frame.f_code.co_qualname}"))

    def _stack(self, frame: FrameType | None) -> Iterator[str]:
        while frame is not None:
            module = self._module(frame)
            if module is not None:
                yield module
            frame = frame.f_back

    def _module(self, frame: FrameType) -> str | None:
        path = frame.f_code.co_filename
        return path.removeprefix(self.root).removesuffix(".py") if path.startswith(self.root) else None


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool(requires_approval=True)
async def refund(order: int) -> str:
    """Refund an order."""
    return f"refunded {order}"


BOX = Toolbox([add])
SCRIPT = [ToolCall("refund", {"order": 7}), "Done"]


def call(arguments: str) -> Walk:
    """Execute one call."""
    with Walk() as walk:
        BOX.execute(ToolCall("add", arguments))
    return walk


def run_agent(agent: Agent[Any], **settings: Any) -> Walk:
    """Run an agent; the event loop itself is not part of the walk."""

    async def run() -> Walk:
        with Walk() as walk:
            await agent.run("Refund order 7", **settings)
        return walk

    return asyncio.run(run())


def approve(store: ReviewStore) -> None:
    """Approve the next request, as a person does in another process."""
    asked = threading.Event()
    end = store.watch(asked.set)
    while not (waiting := store.pending()):
        asked.wait(1)
        asked.clear()
    store.answer(waiting[0], Continue(), person="ada")
    if end is not None:
        end()


def run_with_approval(folder: Path) -> Walk:
    """Run an agent whose call waits in a store until a person approves it."""
    with ReviewStore(folder / "reviews.db") as store, ReviewStore(folder / "reviews.db") as desk:
        person = threading.Thread(target=approve, args=[desk])
        person.start()  # before the walk: it is not a part of it
        walk = run_agent(Agent(ScriptedModel(SCRIPT), [refund], review=QueueReview(store)))
        person.join()
    return walk


def continue_run(folder: Path) -> Walk:
    """Continue a run of a journal that was parked with a call, after the call was approved."""
    settings = {"run_id": "order-7"}
    with RunJournal(folder / "runs.db", park_after=0) as runs, ReviewStore(folder / "reviews.db") as store:
        agent = Agent(ScriptedModel(SCRIPT), [refund], review=QueueReview(store), journal=runs)
        try:
            agent.run_sync("Refund order 7", **settings)
        except RunParkedError:
            approve(store)
        again = Agent(ScriptedModel(SCRIPT[1:]), [refund], review=QueueReview(store), journal=runs)
        return run_agent(again, **settings)


def in_folder(measure: Callable[[Path], Walk]) -> Walk:
    """Measure with an empty folder."""
    with TemporaryDirectory() as folder:
        return measure(Path(folder))


WALKS: dict[str, Callable[[], Walk]] = {
    "a plain call": lambda: call('{"a": 1, "b": 2}'),
    "a refused call": lambda: call('{"a": "x", "b": 2}'),
    "an agent's run with a call that is approved in a store": lambda: in_folder(run_with_approval),
    "a parked durable run that continues": lambda: in_folder(continue_run),
}


def measure() -> dict[str, Walk]:
    """Return each walk, once everything is loaded."""
    for walk in WALKS.values():
        walk()
    return {name: walk() for name, walk in WALKS.items()}


def to_table(walks: dict[str, Walk]) -> str:
    """Return the figures as a table."""
    rows = [f"| {name} | {len(walk.modules)} | {len(walk.re_entries)} |" for name, walk in walks.items()]
    return "\n".join(["| walk | modules | re-entries |", "| --- | --: | --: |", *rows, ""])


if __name__ == "__main__":
    found = measure()
    if sys.argv[1:] == ["--write"]:
        text = PAGE.read_text()
        PAGE.write_text(re.sub(f"(?<={BEGIN}).*?(?={END})", to_table(found), text, flags=re.DOTALL))
    else:
        print(to_table(found))
        for name, walk in found.items():
            print(f"{name}, {walk.calls} calls:\n  {' '.join(walk.modules)}")
            print(f"  re-entries: {sorted(set(walk.re_entries))}\n")
