"""Strands with a small fake of its classes; `make interop` runs the cases with the real ones."""

import gc
import sys
from types import ModuleType, SimpleNamespace

import pytest

from toolsemble import (
    FileContent,
    ImageContent,
    Reject,
    Toolbox,
    ToolCall,
    ToolConfigurationError,
    ToolContext,
    ToolDefinitionError,
    ToolResult,
    tool,
)
from toolsemble.interop import strands
from toolsemble.interop.strands import read_result


class FakeTool:
    pass


class FakeProvider:
    pass


class FakeResultEvent:
    def __init__(self, tool_result):
        self.tool_result = tool_result


class FakeInterruptEvent:
    pass


class AgentInterruptedError(Exception):
    pass


class FakeContext:
    def __init__(self, tool_use, agent, invocation_state):
        self.tool_use, self.agent, self.invocation_state = tool_use, agent, invocation_state

    def interrupt(self, name, reason):
        self.agent.shown[name] = reason
        if name not in self.agent.responses:
            raise AgentInterruptedError(name)
        return self.agent.responses[name]


class FakeAgent:
    def __init__(self, session_id=None):
        self._session_manager = SimpleNamespace(session_id=session_id)
        self.shown, self.responses = {}, {}

    def answer(self, decision):
        self.responses = dict.fromkeys(self.shown, decision)
        self.shown = {}


def module(name, **classes):
    made = ModuleType(name)
    vars(made).update(classes)
    return made


LIBRARY = [
    module("strands"),
    module("strands.types"),
    module("strands.types.tools", AgentTool=FakeTool, ToolContext=FakeContext),
    module("strands.types.events", ToolResultEvent=FakeResultEvent),
    module("strands.types._events", ToolInterruptEvent=FakeInterruptEvent),
    module("strands.tools"),
    module("strands.tools.tools", normalize_tool_spec=dict),
    module("strands.tools.tool_provider", ToolProvider=FakeProvider),
]


@pytest.fixture(autouse=True)
def _library(monkeypatch):
    for each in LIBRARY:
        monkeypatch.setitem(sys.modules, each.__name__, each)


RAN = []


@tool
def order(item: str, count: int = 1) -> str:
    """Order something."""
    RAN.append(item)
    if item == "rum":
        raise ValueError("not for sale")
    return f"{count} {item}"


@tool
def run_of(context: ToolContext) -> str:
    """Return the run."""
    return context.run_id


async def call(exported, arguments, agent=None, **settings):
    state = {} if agent is None else {"agent": agent}
    use = {"toolUseId": "call_1", "name": exported.tool_name, "input": arguments}
    [event] = [each async for each in exported.stream(use, state, **settings)]
    return event.tool_result


def export_one(*tools, approve=None, **settings):
    [exported] = strands.export(Toolbox(tools, approve=approve), **settings)
    return exported


def foreign(*events, **attributes):
    class Double(FakeTool):
        tool_name = "double"
        tool_spec = {  # noqa: RUF012 - as Strands has it
            "name": "double",
            "description": "Double a number.",
            "inputSchema": {"json": {"type": "object", "properties": {"number": {"type": "integer"}}}},
        }

        async def stream(self, tool_use, invocation_state):
            for each in events:
                yield each

    made = Double()
    vars(made).update(attributes)
    return made


def block(**content):
    return FakeResultEvent({"toolUseId": "call_1", "status": "success", "content": [content]})


def adopt_and_call(*events):
    box = Toolbox(strands.adopt(foreign(*events)))
    return box.execute(ToolCall("double", {"number": 1})).result


async def test_an_agent_is_answered_with_a_tool_result():
    exported = export_one(order)
    assert (exported.tool_name, exported.tool_type) == ("order", "toolsemble")
    assert exported.tool_spec["description"] == "Order something."
    assert exported.tool_spec["inputSchema"]["json"]["required"] == ["item"]
    result = {"toolUseId": "call_1", "status": "success", "content": [{"text": "3 tea"}]}
    assert await call(exported, {"item": "tea", "count": "3"}) == result
    failed = await call(exported, {"item": "rum"})
    assert (failed["status"], failed["content"]) == ("error", [{"text": "Error: not for sale"}])


async def test_media_that_strands_knows_are_blocks_and_others_are_lines():
    @tool
    def draw() -> ToolResult:
        """Draw."""
        media = [
            ImageContent(b"png", "image/png"),
            FileContent(b"pdf", "application/pdf", "plan.pdf"),
            FileContent(b"mp4", "video/mp4", "tour.mp4"),
        ]
        return ToolResult.success("a map", {"size": (1, 2)}, contents=media)

    result = await call(export_one(draw), {})
    assert result["content"] == [
        {"text": "a map"},
        {"image": {"format": "png", "source": {"bytes": b"png"}}},
        {"document": {"format": "pdf", "name": "plan", "source": {"bytes": b"pdf"}}},
        {"text": "[tour.mp4, video/mp4, 3 bytes, not shown]"},
    ]
    assert result["structuredContent"] == {"size": [1, 2]}


async def test_the_run_is_the_session_or_lasts_as_long_as_the_agent():
    exported, agent = export_one(run_of), FakeAgent()
    [first, second] = [(await call(exported, {}, agent))["content"] for _ in range(2)]
    assert first == second
    assert (await call(exported, {}, FakeAgent()))["content"] != first
    assert (await call(exported, {}, FakeAgent("talk_1")))["content"] == [{"text": "talk_1"}]
    assert (await call(exported, {}))["content"] != first
    kept = len(strands._RUN_IDS)  # the number of agents is not visible otherwise
    del agent
    gc.collect()
    assert len(strands._RUN_IDS) < kept


async def test_the_invocation_state_chooses_and_is_the_dependencies():
    @tool
    def who(context: ToolContext) -> str:
        """Return the user."""
        return f"{context.memory_id} {context.deps['agent'].shown}"

    exported = export_one(who, memory_id=lambda state: f"user of {len(state)}")
    assert (await call(exported, {}, FakeAgent()))["content"] == [{"text": "user of 1 {}"}]


def test_names_that_differ_only_by_dashes_are_mapped_and_come_back():
    box = Toolbox([order.renamed("get-tea"), order.renamed("get_tea"), order.renamed("buy-tea")])
    exported = strands.export(box)
    assert [each.tool_name for each in exported] == ["get_tea_2", "get_tea", "buy_tea"]
    assert Toolbox(strands.adopt(exported)).names == ["get-tea", "get_tea", "buy-tea"]
    [kept] = strands.export(Toolbox([order.renamed("get-tea")]))
    assert kept.tool_name == "get-tea"


async def test_an_agent_is_interrupted_and_its_response_is_for_what_was_shown():
    RAN.clear()
    exported, agent = export_one(order, approve=["order"], approval="theirs"), FakeAgent()
    for _ in range(2):
        with pytest.raises(AgentInterruptedError):
            await call(exported, {"item": "tea", "count": "3"}, agent)
    [shown] = agent.shown.values()
    assert shown["arguments"] == {"item": "tea", "count": 3}
    agent.answer({"decision": "continue"})
    with pytest.raises(AgentInterruptedError):
        await call(exported, {"item": "wine", "count": "3"}, agent)
    assert RAN == []
    assert (await call(exported, {"item": "tea", "count": "3"}, agent))["content"] == [{"text": "3 tea"}]
    assert RAN == ["tea"]


@pytest.mark.parametrize(
    ("decision", "text"),
    [
        (Reject("too much"), "Error: Rejected by reviewer: too much"),
        (True, "Error: Rejected by reviewer: the answer True is not a decision"),
    ],
)
async def test_a_call_that_is_not_approved_fails(decision, text):
    exported, agent = export_one(order, approve=["order"], approval="theirs"), FakeAgent()
    with pytest.raises(AgentInterruptedError):
        await call(exported, {"item": "tea"}, agent)
    agent.answer(decision)
    assert (await call(exported, {"item": "tea"}, agent))["content"] == [{"text": text}]


async def test_an_edit_that_does_not_fit_is_asked_about_again():
    exported, agent = export_one(order, approve=["order"], approval="theirs"), FakeAgent()
    with pytest.raises(AgentInterruptedError):
        await call(exported, {"item": "tea"}, agent)
    agent.answer({"decision": "edit", "revised": {"item": "tea", "count": "many"}})
    with pytest.raises(AgentInterruptedError):
        await call(exported, {"item": "tea"}, agent)
    assert any("The edit does not fit" in each["prompt"] for each in agent.shown.values())


async def test_a_call_that_does_not_fit_is_not_shown():
    exported, agent = export_one(order, approve=["order"], approval="theirs"), FakeAgent()
    assert (await call(exported, {"count": 1}, agent))["status"] == "error"
    assert agent.shown == {}


async def test_a_call_in_the_background_interrupts_its_own_context():
    exported, agent, aside = export_one(order, approve=["order"], approval="theirs"), FakeAgent(), FakeAgent()
    context = FakeContext({"toolUseId": "call_1"}, aside, {})
    with pytest.raises(AgentInterruptedError):
        await call(exported, {"item": "tea"}, agent, _tool_context=context)
    assert (len(agent.shown), len(aside.shown)) == (0, 1)


async def test_a_call_outside_of_an_agent_cannot_be_approved():
    exported = export_one(order, approve=["order"], approval="theirs")
    result = await call(exported, {"item": "tea"})
    assert result["status"] == "error"


async def test_a_question_in_the_middle_of_a_body_fails():
    @tool
    async def pay(context: ToolContext) -> str:
        """Pay."""
        await context.arequest_approval("Really?")
        return "paid"

    exported = export_one(pay, approval="theirs")
    assert (await call(exported, {}, FakeAgent()))["status"] == "error"


def test_rejects_another_way_of_approval():
    with pytest.raises(ToolConfigurationError, match='approval must be "ours" or "theirs"'):
        export_one(order, approval="unknown")


def test_results_of_adopted_tools_are_read():
    assert adopt_and_call("working", block(text="2")).output == "2"
    assert adopt_and_call(block(text="2").tool_result).output == "2"
    assert adopt_and_call(block(json={"sum": 2})).output == '{"sum":2}'
    assert adopt_and_call(block(video={"format": "mp4"})).output == '{"video":{"format":"mp4"}}'
    image = {"format": "png", "source": {"bytes": b"png"}}
    assert adopt_and_call(block(image=image)).contents == (ImageContent(b"png", "image/png"),)
    document = {"format": "pdf", "name": "plan", "source": {"bytes": b"pdf"}}
    assert adopt_and_call(block(document=document)).contents == (FileContent(b"pdf", "application/pdf", "plan"),)
    failed = {"toolUseId": "call_1", "status": "error", "content": [{"text": "Error: too big"}]}
    assert adopt_and_call(FakeResultEvent(failed)).error_message == "too big"
    payload = {"status": "success", "content": [], "structuredContent": {"sum": 2}}
    assert read_result(payload).structured_output == {"sum": 2}


def test_streams_without_a_result_are_failures():
    assert "NoneType" in adopt_and_call().error_message
    assert "str" in adopt_and_call("working").error_message
    assert "interrupted its agent" in adopt_and_call(FakeInterruptEvent()).error_message


@pytest.mark.parametrize(
    ("name", "context_param", "needs"), [("agent", None, "agent"), ("tool_context", "tool_context", "tool_context")]
)
def test_refuses_tools_that_an_agent_injects_something_into(name, context_param, needs):
    metadata = SimpleNamespace(signature=SimpleNamespace(parameters={name: None}), _context_param=context_param)
    with pytest.raises(ToolDefinitionError, match=f"it needs the parameter {needs}, injected by an agent"):
        strands.adopt([foreign(_metadata=metadata)])


def test_refuses_a_provider_and_what_is_not_a_tool():
    with pytest.raises(ToolDefinitionError, match="'FakeProvider' cannot be adopted: it needs an agent"):
        strands.adopt(FakeProvider())
    with pytest.raises(ToolDefinitionError, match="adopt takes a Strands tool, or a list of them, not int: 7"):
        strands.adopt([7])


def test_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "strands.types.tools", None)
    with pytest.raises(ToolDefinitionError, match="pip install strands-agents"):
        strands.adopt([])
