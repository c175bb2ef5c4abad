"""Catalogs in runs that are stored, loaded and continued: the same tools are offered, in the same order."""

import random

import pytest

from helpers.journal_runs import Killed, script
from toolsemble import Agent, Catalog, ConversationMemory, RunJournal, SchemaTool, ToolCall
from toolsemble.models import FunctionModel, messages_from_json, messages_to_json

VERBS = ("close", "open", "send", "pay", "print")
THINGS = ("ticket", "invoice", "letter", "parcel")
BUDGET = 200


def make(name, description):
    return SchemaTool(
        name, description, lambda given: f"{name} is done", {"properties": {"number": {"type": "integer"}}}
    )


TOOLS = [make(f"{thing}_{verb}", f"{verb} a {thing} of a customer") for thing in THINGS for verb in VERBS]


def find(query, limit=2):
    return ToolCall("find_tools", {"query": query, "limit": limit})


class Offers(FunctionModel):
    """A model that keeps what it was offered; the replies depend on the conversation alone."""

    def __init__(self, *replies):
        self.names = []
        scripted = script(*replies)

        async def reply(request):
            self.names.append([each.name for each in request.specifications])
            return await scripted.reply(request)

        super().__init__(reply)


def make_agent(model, **settings):
    """Return an agent with its own catalog, as another process would have it."""
    return Agent(model, Catalog(TOOLS, budget=BUDGET), **settings)


@pytest.mark.parametrize("killed", [1, 2, 3])
def test_a_run_that_was_killed_goes_on_with_the_tools_that_it_had_found(tmp_path, killed):
    replies = [find("close a ticket"), find("pay an invoice"), ToolCall("ticket_close", {"number": 7}), "Closed."]
    whole = Offers(*replies)
    make_agent(whole).run_sync("Close it")
    stopped = Offers(*replies[:killed], Killed)
    with RunJournal(tmp_path / "runs.db") as runs, pytest.raises(Killed):
        make_agent(stopped, journal=runs).run_sync("Close it", run_id="r1")
    resumed = Offers(*replies)
    with RunJournal(tmp_path / "runs.db") as runs:
        result = make_agent(resumed, journal=runs).run_sync("Close it", run_id="r1")
    assert resumed.names == whole.names[killed:]
    assert stopped.names == whole.names[: killed + 1]
    assert result.tool_calls[-1].reply.text == "ticket_close is done"


def test_a_conversation_in_json_goes_on_with_the_tools_that_it_had_found():
    first = Offers(find("close a ticket"), "Which one?")
    result = make_agent(first).run_sync("Close a ticket")
    stored = messages_to_json(result.messages)
    second = Offers("", "", ToolCall("ticket_close", {"number": 7}), "Closed.")
    answer = make_agent(second).run_sync("Number 7", history=messages_from_json(stored))
    assert second.names[0] == first.names[-1]
    assert answer.tool_calls[-1].reply.text == "ticket_close is done"


def test_a_conversation_in_memory_goes_on_with_the_tools_that_it_had_found():
    memory = ConversationMemory()
    model = Offers(find("close a ticket"), "Which one?", ToolCall("ticket_close", {"number": 7}), "Closed.")
    agent = make_agent(model, memory=memory)
    agent.run_sync("Close a ticket", memory_id="ada")
    agent.run_sync("Number 7", memory_id="ada")
    assert model.names[2] == model.names[1]
    agent.run_sync("Close a ticket", memory_id="bob")  # has found nothing yet
    assert model.names[4] == model.names[0]


@pytest.mark.slow
def test_every_reloaded_turn_offers_what_the_run_had_offered():
    dice = random.Random(11)  # noqa: S311 - the same runs each time
    for _ in range(50):
        turns = [find(f"{dice.choice(VERBS)} a {dice.choice(THINGS)}", dice.randint(1, 3)) for _ in range(4)]
        model = Offers(*turns, "Done.")
        result = Agent(model, Catalog(TOOLS, budget=BUDGET), loop_guard=None).run_sync("Go")
        for turn, names in enumerate(model.names):
            before = messages_from_json(messages_to_json(result.messages[: 1 + 2 * turn]))
            assert Catalog(TOOLS, budget=BUDGET).box(before).names == names
