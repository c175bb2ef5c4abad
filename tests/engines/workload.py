"""The agents that the engines run: parallel calls, a pipeline with an approval in it, and agents nested in an agent.

Each body writes to a file when it begins and when it ends, which is what the checks count: nothing of it is in the
memory of a process that is killed.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from pathlib import Path
from typing import Any

from toolsemble import Agent, RunJournal, ToolCall, ToolContext, ToolPipeline, tool
from toolsemble.models import AssistantMessage, FunctionModel, TokenUsage
from toolsemble.review import QueueReview, ReviewStore

REPEATABLE = ("look", "label")
"""The tools whose calls may be repeated if their outcome is unknown."""


LEASE = 2.0
"""Seconds after which a run on Postgres is taken over from a worker that was killed."""


class Places:
    """Where one check keeps its journal, its review store, and the log of the bodies.

    :param url: the URL of a Postgres database for the journal and the store; None: the one of an earlier object for the
        same folder, or files if it has none
    """

    def __init__(self, folder: str | Path, url: str | None = None) -> None:
        self.folder = Path(folder)
        self.log = self.folder / "effects.log"
        known = self.folder / "postgres.url"
        if url is not None:
            known.write_text(url)
        self._url = known.read_text() if known.exists() else None

    def journal(self, **settings: Any) -> RunJournal:
        return RunJournal(self._url or self.folder / "runs.db", lease=LEASE, **settings)

    def store(self) -> ReviewStore:
        return ReviewStore(self._url or self.folder / "reviews.db")

    def note(self, what: str, context: ToolContext) -> None:
        """Append a line in one write, so that the lines of several processes do not mix."""
        line = f"{what} {context.idempotency_key} {context.tool_name} {os.getpid()}\n"
        with self.log.open("ab", buffering=0) as file:
            file.write(line.encode())

    def lines(self) -> list[list[str]]:
        """Return what the bodies wrote: start or end, the key of the call, the tool, the process."""
        return [line.split() for line in self.log.read_text().splitlines()] if self.log.exists() else []

    def starts(self) -> Counter[str]:
        """Return how often each call was begun."""
        return Counter(key for what, key, *_ in self.lines() if what == "start")

    def repeated_effects(self) -> list[str]:
        """Return the calls of tools that do more than read, and were begun more than once."""
        tools = {key: name for _, key, name, _ in self.lines()}
        return [key for key, count in self.starts().items() if count > 1 and tools[key] not in REPEATABLE]


class FinishedCalls:
    """Counts the calls that were begun again after the journal had their result."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self._journal = places.journal()
        self._known: Counter[str] = Counter()
        self._repeated: set[str] = set()

    def check(self) -> int:
        """Return how many there were so far."""
        starts = self._places.starts()
        self._repeated |= {key for key, count in self._known.items() if starts[key] > count}
        runs = {record.run_id: self._journal.steps(record.run_id) for record in self._journal.list()}
        calls = [(run_id, step) for run_id, steps in runs.items() for step in steps if step.kind == "call"]
        done = {f"{run_id}{step.place}" for run_id, step in calls if step.state == "done"}
        starts = self._places.starts()  # read after the journal: whatever is begun later is begun again
        self._known = Counter({key: starts[key] for key in done})
        return len(self._repeated)


def make_tools(places: Places, pause: float = 0.03) -> dict[str, Any]:
    """Return the tools by name.

    :param pause: seconds that a body takes
    """

    def work(context: ToolContext, result: str) -> str:
        places.note("start", context)
        time.sleep(pause)
        places.note("end", context)
        return result

    @tool(effects="read")
    def look(order: int, context: ToolContext) -> str:
        """Look an order up."""
        return work(context, f"order {order}")

    @tool(effects="write", idempotent=True)
    def label(order: int, context: ToolContext) -> str:
        """Label an order."""
        return work(context, f"labelled {order}")

    @tool(effects="write")
    def reserve(order: int, context: ToolContext) -> str:
        """Reserve the goods of an order."""
        return work(context, f"reserved {order}")

    @tool(effects="irreversible")
    def charge(order: int, context: ToolContext) -> str:
        """Charge a card."""
        return work(context, f"charged {order}")

    @tool(effects="irreversible", requires_approval=True, approval_timeout=None)
    def refund(order: int, context: ToolContext) -> str:
        """Refund an order."""
        return work(context, f"refunded {order}")

    @tool
    def check(order: int, context: ToolContext) -> dict[str, int]:
        """Check an order."""
        work(context, "")
        return {"order": order}

    return {each.name: each for each in (look, label, reserve, charge, refund, check)}


def script(*replies: Any) -> FunctionModel:
    """Return a model that gives the n-th reply to a conversation with n replies so far, in any process."""

    def reply(request: Any) -> Any:
        return replies[sum(isinstance(message, AssistantMessage) for message in request.messages)]

    return FunctionModel(reply, usage=TokenUsage(10, 5))


def make_clerk(places: Places) -> Agent:
    """Return the agent: three calls side by side, a pipeline with an approval, two agents, and a call with approval."""
    tools = make_tools(places)
    pipeline = ToolPipeline("check_and_refund", "Check, then refund", [tools["check"], tools["refund"]])
    helper = script([ToolCall("look", {"order": 1}), ToolCall("charge", {"order": 1})], "helped")
    helpers = [Agent(helper, [tools["look"], tools["charge"]]).as_tool(f"helper_{n}", "Helps") for n in (1, 2)]
    model = script(
        [ToolCall(name, {"order": 7}) for name in ("look", "reserve", "charge")],
        [ToolCall("check_and_refund", {"order": 7})],
        [ToolCall(each.name, {"input": "help"}) for each in helpers],
        [ToolCall("refund", {"order": 8})],
        "All done.",
    )
    review = QueueReview(places.store())
    return Agent(model, [*tools.values(), pipeline, *helpers], name="clerk", review=review)


PROMPT = "Handle order 7"
