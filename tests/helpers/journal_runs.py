"""Models and agents for the tests of journals: replies depend on the conversation, so that any process gives them."""

from __future__ import annotations

import pytest

from toolsemble import Agent, RunJournal, RunParkedError, ToolCall, ToolContext, tool
from toolsemble.models import AssistantMessage, FunctionModel, TokenUsage
from toolsemble.review import Continue

USAGE = TokenUsage(10, 5)


class Killed(BaseException):
    """Stands for the end of a process: nothing of the run handles it, and nothing is written after it."""


def script(*replies, asked=None, usage=USAGE):
    """Return a model that gives the n-th reply to a conversation with n replies so far, and counts its requests.

    A reply that is a class of exceptions is raised.
    """
    asked = [] if asked is None else asked

    def reply(request):
        turn = sum(isinstance(message, AssistantMessage) for message in request.messages)
        asked.append(turn)
        given = replies[turn]
        if isinstance(given, type):
            raise given
        return given

    return FunctionModel(reply, usage=usage)


def clerk(journal, tools, *replies, asked=None, **settings):
    """Return an agent named clerk with a journal."""
    return Agent(script(*replies, asked=asked), tools, journal=journal, name="clerk", **settings)


class Shop:
    """Tools that record what they do, and can be killed."""

    def __init__(self, kill=()):
        self.done = []
        self.kill = {*kill}
        self.keys = []

    def do(self, what):
        self.done.append(what)
        if what in self.kill:
            self.kill.discard(what)
            raise Killed

    @tool(effects="read")
    def look(self, order: int, context: ToolContext) -> dict:
        """Look up an order."""
        self.keys.append(context.idempotency_key)
        self.do(f"look {order}")
        return {"order": order, "price": 5}

    @tool(effects="irreversible")
    def refund(self, order: int) -> str:
        """Refund an order."""
        self.do(f"refund {order}")
        return f"refunded {order}"

    @tool(effects="write", idempotent=True)
    def note(self, text: str, context: ToolContext) -> str:
        """Note a text."""
        self.keys.append(context.idempotency_key)
        self.do(f"note {text}")
        return "noted"


LOOK, REFUND, PAY = (ToolCall(name, {"order": 7}) for name in ("look", "refund", "pay"))


def kill(agent, prompt="Refund order 7", **settings):
    """Do a run that is killed."""
    with pytest.raises(Killed):
        agent.run_sync(prompt, **{"run_id": "r1", **settings})


def park(folder, **settings):
    """Return a journal whose runs are parked as soon as they wait for a person."""
    return RunJournal(folder / "runs.db", **{"park_after": 0, **settings})


def do_until_parked(agent, run_id="r1"):
    """Do a run until it waits for a person; return the error that says so."""
    with pytest.raises(RunParkedError, match=f"Run '{run_id}' waits for approval") as parked:
        agent.run_sync("Pay order 7", run_id=run_id)
    return parked.value


def answer(store, decision=None):
    """Answer everything that is asked."""
    for request in store.pending():
        store.answer(request, decision or Continue(), person="ada")
