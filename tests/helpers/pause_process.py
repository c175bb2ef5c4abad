"""A process that resumes the paused run in a file, with one decision for all its calls, and prints what it does."""

import sys
from pathlib import Path

from toolsemble import Agent, Continue, EffectLedger, ExitEarly, Idempotency, tool
from toolsemble.agent import PausedRun
from toolsemble.review import PauseReview
from toolsemble.testing import ScriptedModel

NESTED = "--nested"


def build_agent(model, ledger=None):
    """Return an agent that looks up and pays orders."""

    @tool(requires_approval=True, idempotency=None if ledger is None else Idempotency(ledger=EffectLedger(ledger)))
    def pay(order: int) -> str:
        sys.stdout.write(f"paid {order}\n")
        return f"paid {order}"

    @tool
    def look_up(order: int) -> str:
        sys.stdout.write(f"looked up {order}\n")
        return f"order {order}"

    return Agent(model, [pay, look_up], review=PauseReview())


def build_clerk(model, inner):
    """Return an agent with that agent as a tool."""
    return Agent(model, [build_agent(inner).as_tool("clerk", "Pays orders")], review=PauseReview())


def join_replies(messages):
    """Return the results of all calls as the answer."""
    return " / ".join(each.text for each in messages if each.role == "tool")


def resume(path, decision, ledger=None):
    """Resume the run."""
    paused = PausedRun.from_json(Path(path).read_text())
    decisions = {each.id: Continue() if decision == "continue" else ExitEarly("no") for each in paused.pending}
    model = ScriptedModel([join_replies])
    if ledger == NESTED:
        agent = build_clerk(ScriptedModel([lambda messages: f"clerk: {join_replies(messages)}"]), model)
    else:
        agent = build_agent(model, ledger)
    sys.stdout.write(agent.run_sync(paused, decisions=decisions).text + "\n")


if __name__ == "__main__":
    resume(*sys.argv[1:])
