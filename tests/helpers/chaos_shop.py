"""The agent of the chaos tests: parallel calls, a pipeline with an approval in it, agents inside, and a log of effects.

The log is a file that every body and every model appends a line to. A process that is killed does not take it along.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
from dataclasses import dataclass, field
from pathlib import Path

from toolsemble import Agent, RunJournal, ToolCall, ToolContext, ToolPipeline, tool
from toolsemble._tools.pipeline.step import Step
from toolsemble.models import AssistantMessage, FunctionModel, TokenUsage
from toolsemble.models._message import visible_to_json
from toolsemble.review import QueueReview, ReviewStore

PROMPT = "Settle everything"
_APPROVED = {"effects": "irreversible", "requires_approval": True, "approval_timeout": None}


@dataclass
class Shop:
    """Tools that append to the log, and kill or stop their own process at a chosen event."""

    log: Path
    run_id: str
    die: int = 0
    """At which event the process ends; 0: at none. Each effect is two events: before it and after it."""
    number: int = signal.SIGKILL
    """The signal that the process sends itself then."""
    events: int = field(default=0, init=False)

    def reach(self):
        self.events += 1
        if self.events == self.die:
            os.kill(os.getpid(), self.number)

    def take_effect(self, key):
        self.reach()
        with self.log.open("ab", buffering=0) as log:
            log.write(f"{key}\n".encode())
        self.reach()

    @tool(effects="read")
    async def look(self, order: int, context: ToolContext) -> str:
        """Look up an order."""
        await asyncio.sleep(0.002)
        self.take_effect(context.idempotency_key)
        return f"order {order} costs {order * 5}"

    @tool(effects="write", idempotent=True)
    def note(self, order: int, context: ToolContext) -> str:
        """Note an order."""
        self.take_effect(context.idempotency_key)
        return f"noted {order}"

    @tool(effects="write")
    async def change(self, order: int, context: ToolContext) -> str:
        """Change an order."""
        self.take_effect(context.idempotency_key)
        await asyncio.sleep(0.002)
        return f"changed {order}"

    @tool(effects="irreversible")
    def refund(self, order: int, context: ToolContext) -> str:
        """Refund an order."""
        self.take_effect(context.idempotency_key)
        return f"refunded {order}"

    @tool(**_APPROVED)
    def pay(self, order: int, context: ToolContext) -> str:
        """Pay an order."""
        self.take_effect(context.idempotency_key)
        return f"paid {order}"

    def model(self, place, *replies):
        """Return a model whose reply depends only on how many it gave before; its requests are in the log as well."""

        def reply(request):
            turn = sum(isinstance(message, AssistantMessage) for message in request.messages)
            self.take_effect(f"{self.run_id}{place}/{turn + 1}")
            return replies[turn]

        return FunctionModel(reply, usage=TokenUsage(10, 5))

    def agent(self, journal, review, name="clerk"):
        """Return the agent that does the runs."""
        settle = ToolPipeline("settle", "Settles an order", [Step(self.look, lambda _: {"order": 2}), self.pay])
        helpers = [
            Agent(
                self.model(f"/3.{number}", [call("look", number), call("note", number)], call("refund", number), "Ok."),
                [self.look, self.note, self.refund],
            ).as_tool(f"helper_{number}", "Helps with an order")
            for number in (1, 2)
        ]
        model = self.model(
            "",
            [call("look", 7), call("change", 7), call("refund", 7)],
            call("settle", 3),
            [ToolCall("helper_1", {"input": "one"}), ToolCall("helper_2", {"input": "two"})],
            [call("pay", 8), call("pay", 9)],
            "Settled.",
        )
        tools = [self.look, self.change, self.refund, self.pay, settle, *helpers]
        return Agent(model, tools, journal=journal, name=name, review=review)


def call(name, order):
    return ToolCall(name, {"order": order})


def open_journal(folder, url="", **settings):
    return RunJournal(url or Path(folder, "runs.db"), **settings)


def open_store(folder, url=""):
    return ReviewStore(url or Path(folder, "reviews.db"), "a secret of the tests, which is long enough")


def describe(result):
    """Return what has to be the same, however often the run was killed."""
    usage = result.usage
    return {
        "text": result.text,
        "calls": [[each.call.name, each.arguments, each.reply.text] for each in result.tool_calls],
        "messages": [json.loads(visible_to_json(each)) for each in result.messages],
        "usage": [usage.input_tokens, usage.output_tokens, usage.model_calls, usage.tool_calls],
        "trace": [[step.kind, step.name] for step in result.trace if step.kind != "tool"],
    }


async def drive(folder, run_id, *, park=None, die=0, number=signal.SIGKILL, url=""):
    """Do or continue a run, and write its result to a file."""
    folder = Path(folder)
    with open_journal(folder, url, park_after=park) as runs, open_store(folder, url) as store:
        shop = Shop(folder / "effects.log", run_id, die, number)
        result = await shop.agent(runs, QueueReview(store, poll=0.01)).run(PROMPT, run_id=run_id)
    written = folder / f"{run_id}.part"
    written.write_text(json.dumps(describe(result)), encoding="utf-8")
    written.rename(folder / f"{run_id}.json")
