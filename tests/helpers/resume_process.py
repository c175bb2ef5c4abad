"""A process with an agent that asks for approval; a model with new call ids each time stands for a real provider."""

import sys

from toolsemble import Agent, ToolCall, tool
from toolsemble._vocabulary.call import new_id
from toolsemble.review import QueueReview, ReviewStore
from toolsemble.testing import ScriptedModel


def run(path, run_id, orders):
    """Pay the orders one after the other, and print what was paid."""

    @tool(requires_approval=True, approval_timeout=None)
    def pay(order: int) -> str:
        sys.stdout.write(f"paid {order}\n")
        sys.stdout.flush()
        return f"paid {order}"

    turns = [ToolCall("pay", {"order": int(order)}, id=f"call_{new_id()}") for order in orders]
    with ReviewStore(path) as store:
        agent = Agent(ScriptedModel([*turns, "done"]), [pay], review=QueueReview(store, poll=0.01))
        sys.stdout.write(agent.run_sync("pay", run_id=run_id or None).text + "\n")


if __name__ == "__main__":
    run(sys.argv[1], sys.argv[2], sys.argv[3:])
