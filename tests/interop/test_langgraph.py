"""Approval by LangGraph: what was shown is what runs, and a resumed run repeats nothing."""

import asyncio
from collections import Counter

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from interop.cases import Shop
from interop.drivers.langchain import ASK, graph, read
from toolsemble import Continue, Edit, Reject, Toolbox, ToolCall, ToolConfigurationError, ToolContext, tool
from toolsemble.interop import langchain

THREAD = {"configurable": {"thread_id": "talk_1"}}
TEA = ToolCall("order", {"item": "tea", "count": 3}, id="call_1")
CAKE = ToolCall("order", {"item": "cake", "count": 1}, id="call_2")
BESIDE = ToolCall("aorder", {"item": "milk", "count": 1}, id="call_3")


def exported(shop, **settings):
    return langchain.export(shop.box(approve=["order"], **settings), approval="theirs")


def shown(state):
    [asked] = state["__interrupt__"]
    return asked.value


def answer(built, decision):
    return built.invoke(Command(resume=decision), THREAD)


def test_a_run_without_an_event_loop_is_interrupted_and_resumed():
    shop = Shop()
    built = graph(exported(shop), [TEA, BESIDE], checkpointer=InMemorySaver())
    state = built.invoke(ASK, THREAD)
    assert shown(state)["arguments"] == {"item": "tea", "count": 3, "price": 1.0}
    state = answer(built, Continue())
    assert [each.text for each in read(state["messages"])] == ["3 tea for 3", '{"item":"milk","count":1}']
    assert Counter(map(str, shop.ran)) == {"('tea', 3, 1.0)": 1, "('milk', 1)": 1}


def test_each_answer_goes_to_the_question_that_was_shown():
    shop = Shop()
    built = graph(exported(shop), [TEA, CAKE], checkpointer=InMemorySaver())
    state = built.invoke(ASK, THREAD)
    while "__interrupt__" in state:
        wants = shown(state)["arguments"]["item"] == "cake"
        state = answer(built, Continue() if wants else Reject("no tea"))
    assert [each.text for each in read(state["messages"])] == ["Error: Rejected by reviewer: no tea", "1 cake for 1"]
    assert shop.ran == [("cake", 1, 1.0)]


async def test_each_answer_goes_to_the_question_that_was_shown_on_an_event_loop():
    shop = Shop()
    built = graph(exported(shop), [TEA, CAKE, BESIDE], checkpointer=InMemorySaver())
    state = await built.ainvoke(ASK, THREAD)
    while "__interrupt__" in state:
        wants = shown(state)["arguments"]["item"] == "cake"
        state = await built.ainvoke(Command(resume=Continue() if wants else Reject("no tea")), THREAD)
    assert [each.is_error for each in read(state["messages"])] == [True, False, False]
    assert sorted(shop.ran) == [("cake", 1, 1.0), ("milk", 1)]


@pytest.mark.parametrize(
    ("decision", "text"),
    [
        ({"decision": "continue"}, "3 tea for 3"),
        ({"decision": "edit", "revised": '{"item": "tea", "count": 1}'}, "1 tea for 1"),
        ({"decision": "edit", "revised": {"item": "tea", "count": 1}}, "1 tea for 1"),
        ({"decision": "reject", "reason": "no tea"}, "Error: Rejected by reviewer: no tea"),
        ({"decision": "exit_early"}, 'Error: Rejected by reviewer: order({"item": "tea", "count": 3, "price": 1.0})'),
        (True, "Error: Rejected by reviewer: the answer True is not a decision"),
        ({"decision": "edit"}, "Error: Rejected by reviewer: the answer {'decision': 'edit'} is not a decision"),
    ],
)
def test_decisions_have_a_json_form(decision, text):
    built = graph(exported(Shop()), [TEA], checkpointer=InMemorySaver())
    built.invoke(ASK, THREAD)
    [seen] = read(answer(built, decision)["messages"])
    assert seen.text.startswith(text)


def test_an_edit_that_does_not_fit_is_asked_again_with_the_reason():
    shop = Shop()
    built = graph(exported(shop), [TEA], checkpointer=InMemorySaver())
    built.invoke(ASK, THREAD)
    state = answer(built, Edit('{"count": "many"}'))
    assert "The edit does not fit" in shown(state)["prompt"]
    [seen] = read(answer(built, Edit('{"item": "tea", "count": 2}'))["messages"])
    assert seen.text.startswith("2 tea for 2")
    assert shop.ran == [("tea", 2, 1.0)]


@pytest.mark.parametrize("blocking", [True, False])
async def test_another_process_resumes_with_what_the_checkpoint_says_was_shown(blocking):
    saver, shops = InMemorySaver(), [Shop(), Shop()]
    first, second = (graph(exported(shop), [TEA], checkpointer=saver) for shop in shops)
    await first.ainvoke(ASK, THREAD)
    again = Command(resume={"decision": "continue"})
    state = await (asyncio.to_thread(second.invoke, again, THREAD) if blocking else second.ainvoke(again, THREAD))
    assert "3 tea for 3" in [message.content for message in state["messages"]]
    assert (shops[0].ran, shops[1].ran) == ([], [("tea", 3, 1.0)])


def test_a_tool_that_changed_after_the_question_is_asked_about_again():
    saver, shop = InMemorySaver(), Shop()
    graph(exported(Shop()), [TEA], checkpointer=saver).invoke(ASK, THREAD)

    @tool
    def order(item: str, count: int) -> str:
        """Order something, and pay at once."""
        shop.ran.append(item)
        return "paid"

    tools = langchain.export(Toolbox([order], approve=["order"]), approval="theirs")
    changed = graph(tools, [TEA], checkpointer=saver)
    state = answer(changed, Continue())
    assert shown(state)["description"] == "Order something, and pay at once."
    assert shop.ran == []
    assert "paid" in [message.content for message in answer(changed, Continue())["messages"]]
    assert shop.ran == ["tea"]


def test_a_later_turn_with_the_same_call_id_runs_again():
    shop = Shop()
    saver = InMemorySaver()
    tools = exported(shop)
    for _ in range(2):
        graph(tools, [BESIDE], checkpointer=saver).invoke(ASK, THREAD)
    assert shop.ran == [("milk", 1), ("milk", 1)]


async def test_a_call_beside_the_question_is_waited_for_and_not_repeated():
    release, ran = asyncio.Event(), []

    @tool
    async def bake() -> str:
        """Bake a cake."""
        ran.append("bake")
        await release.wait()
        return "a cake"

    @tool(requires_approval=True)
    def pay(context: ToolContext) -> str:
        """Pay."""
        ran.append(context.run_id)
        return "paid"

    tools = langchain.export(Toolbox([pay, bake]), approval="theirs")
    calls = [ToolCall("pay", id="call_1"), ToolCall("bake", id="call_2")]
    built = graph(tools, calls, checkpointer=InMemorySaver())
    paused = asyncio.ensure_future(built.ainvoke(ASK, THREAD))
    while not ran:
        await asyncio.sleep(0)
    assert not paused.done()
    release.set()
    assert shown(await paused)["tool_name"] == "pay"
    state = await built.ainvoke(Command(resume=Continue()), THREAD)
    assert [each.text for each in read(state["messages"])] == ["paid", "a cake"]
    assert ran == ["bake", "talk_1"]


async def test_a_call_that_was_cancelled_in_the_middle_is_not_repeated():
    started, ran = asyncio.Event(), []

    @tool
    async def bake() -> str:
        """Bake a cake."""
        ran.append("bake")
        started.set()
        await asyncio.Event().wait()

    built = graph(
        langchain.export(Toolbox([bake]), approval="theirs"),
        [ToolCall("bake", id="call_1")],
        checkpointer=InMemorySaver(),
    )
    paused = asyncio.ensure_future(built.ainvoke(ASK, THREAD))
    await started.wait()
    paused.cancel()
    with pytest.raises(asyncio.CancelledError):
        await paused
    state = await built.ainvoke(None, THREAD)
    [seen] = read(state["messages"])
    assert seen.text.startswith("Error: Unknown outcome: the call was cancelled while it ran")
    assert ran == ["bake"]


def test_a_tool_that_asks_while_it_runs_fails_with_the_reason():
    @tool
    def pay(context: ToolContext) -> str:
        """Pay."""
        return str(context.request_approval("Pay?"))

    tools = langchain.export(Toolbox([pay]), approval="theirs")
    [seen] = read(
        graph(tools, [ToolCall("pay", id="call_1")], checkpointer=InMemorySaver()).invoke(ASK, THREAD)["messages"]
    )
    assert seen.is_error
    assert "asks for approval while it runs" in seen.text


def test_a_run_without_a_checkpointer_is_refused_before_a_body_runs():
    shop = Shop()
    with pytest.raises(ToolConfigurationError, match="needs a LangGraph run with a checkpointer"):
        graph(exported(shop), [BESIDE]).invoke(ASK)
    assert shop.ran == []


def test_refuses_steps_that_ask_inside_a_pipeline():
    @tool(requires_approval=True)
    def pay(input: str) -> str:
        """Pay."""
        return input

    @tool
    def check(input: str) -> str:
        """Check."""
        return input

    with pytest.raises(ToolConfigurationError, match="set requires_approval on 'check_then_pay' instead"):
        langchain.export(Toolbox([check | pay]), approval="theirs")


def test_forgets_the_least_recently_used_nodes(monkeypatch):
    monkeypatch.setattr("toolsemble.interop.langchain._MOST_NODES", 1)
    shop = Shop()
    tools, saver = exported(shop), InMemorySaver()
    for number in range(3):
        thread = {"configurable": {"thread_id": f"talk_{number}"}}
        graph(tools, [BESIDE], checkpointer=saver).invoke(ASK, thread)
    assert len(tools[0].caller._nodes) == 1


async def test_a_call_that_comes_twice_with_one_id_runs_once():
    shop = Shop()
    built = graph(exported(shop), [TEA, TEA, BESIDE, BESIDE], checkpointer=InMemorySaver())
    await built.ainvoke(ASK, THREAD)
    state = await built.ainvoke(Command(resume=Continue()), THREAD)
    milk = '{"item":"milk","count":1}'
    assert [each.text for each in read(state["messages"])] == ["3 tea for 3", "3 tea for 3", milk, milk]
    assert sorted(shop.ran) == [("milk", 1), ("tea", 3, 1.0)]


def test_an_answer_to_an_unknown_question_is_not_used(monkeypatch):
    saver, shop = InMemorySaver(), Shop()
    graph(exported(Shop()), [TEA], checkpointer=saver).invoke(ASK, THREAD)
    monkeypatch.setattr("toolsemble.interop.langchain.Place.find_shown", lambda place, checkpoint: [])
    built = graph(exported(shop), [TEA], checkpointer=saver)
    state = answer(built, Continue())
    assert (shown(state)["tool_name"], shop.ran) == ("order", [])
    answer(built, Continue())
    assert shop.ran == [("tea", 3, 1.0)]
