"""Approve calls from another process: a call waits in a SQLite file until a person decides about it.

Run ``python examples/human_elsewhere.py ask --model scripted`` in one terminal and, minutes or hours later,
``python examples/human_elsewhere.py answer`` in another.
"""

import argparse
import getpass

from toolsemble import Agent, ChatModel, Continue, Reject, ToolCall, tool
from toolsemble.review import QueueReview, ReviewStore
from toolsemble.telemetry import ConsoleSink
from toolsemble.testing import ScriptedModel

PAY = ToolCall("pay", {"to": "Tea House", "euros": "57.60"})
SCRIPTED = ScriptedModel([PAY, lambda messages: f"The bill: {messages[-1].text}"])


@tool(requires_approval=True, approval_timeout=24 * 3600, effects="irreversible")
def pay(to: str, euros: float) -> str:
    """Pay a bill."""
    return f"paid {euros:.2f} euros to {to}"


def ask(store: ReviewStore, model: ChatModel | str | None = None) -> None:
    """Run the agent; a call that requires approval waits for it."""
    agent = Agent(model, [pay], review=QueueReview(store), sinks=[ConsoleSink()])
    print(agent.run_sync("Pay 57.60 euros to the Tea House.").text)


def answer(store: ReviewStore) -> None:
    """Decide about all pending requests; the store records who answered what."""
    for request in store.pending():
        print(request.tool_name, request.arguments)
        said = input("yes, or why not? ")
        store.answer(request, Continue() if said == "yes" else Reject(said), person=getpass.getuser())
    for event in store.audit():
        print(event.kind, event.tool_name, event.person)


def main() -> None:
    """Run one of the two commands on the same file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("command", choices=["ask", "answer"])
    parser.add_argument("--store", default="reviews.db", help="the file that holds the requests; default: reviews.db")
    parser.add_argument("--model", help="openai:gpt-5-mini, local, scripted, ...; default: the first one available")
    given = parser.parse_args()
    with ReviewStore(given.store) as store:
        if given.command == "answer":
            answer(store)
        else:
            ask(store, SCRIPTED if given.model == "scripted" else given.model)


if __name__ == "__main__":
    main()
