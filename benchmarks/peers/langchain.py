"""langchain: what langchain-core has, with agents, whose tools run in a `ToolNode`."""

import json
from collections.abc import Sequence

from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import BaseTool, tool
from langgraph.graph import MessagesState, StateGraph
from langgraph.prebuilt import ToolNode

from peers.langchain_core import VALIDATES, define, make_call, make_pipeline, many
from peers.task import (
    ANSWER,
    ARGUMENTS,
    PROMPT,
    Asked,
    AsyncSearch,
    Call,
    Search,
    Turn,
    all_at_once,
    new_async_search,
    script,
)

__all__ = ["VALIDATES", "define", "make_call", "make_pipeline", "many"]

NAME = "langchain"
DISTRIBUTION = "langchain"
IMPORT = "from langchain.agents import create_agent; from langchain.tools import tool"


def make_look_up(count: int) -> Call:
    """Let a node with many tools run the call."""
    kit, _ = many(count)
    return _node(kit.get_tools(), f"search_{count - 1}", [Asked("call_1", ARGUMENTS)])


def make_agent(turns: Sequence[Turn]) -> Call:
    """Run an agent."""
    model = Scripted()
    model._lines = script(turns)  # noqa: SLF001 - the constructor is the library's
    agent = create_agent(model, [tool(new_async_search(), parse_docstring=True)])
    config = {"recursion_limit": 3 * len(turns)}

    async def run() -> str:
        return (await agent.ainvoke({"messages": [HumanMessage(PROMPT)]}, config))["messages"][-1].text

    return run


def make_parallel(search: AsyncSearch, count: int) -> Call:
    """Let a node run all calls of a message."""
    return _node([tool(search, parse_docstring=True)], "search", *all_at_once(count))


def make_blocking(search: Search, count: int) -> Call:
    """Let a node run all calls of a message."""
    return _node([tool(search, parse_docstring=True)], "search", *all_at_once(count))


class Scripted(BaseChatModel):
    """A model with scripted replies."""

    _lines: object = None

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, *_: object, **__: object) -> BaseChatModel:
        """Take any tools."""
        return self

    def _generate(self, *_: object, **__: object) -> ChatResult:
        turn = next(self._lines)
        message = _said("search", turn) if turn else AIMessage(ANSWER)
        return ChatResult(generations=[ChatGeneration(message=message)])

    async def _agenerate(self, *_: object, **__: object) -> ChatResult:
        return self._generate()


def _said(name: str, turn: Turn) -> AIMessage:
    calls = [{"name": name, "args": json.loads(asked.arguments), "id": asked.id} for asked in turn]
    return AIMessage("", tool_calls=calls)


def _node(tools: list[BaseTool], name: str, turn: Turn) -> Call:
    """Return the replies to the calls of a message, through a graph of one node, which no node runs without."""
    graph = StateGraph(MessagesState).add_node("tools", ToolNode(tools)).set_entry_point("tools").compile()

    async def run() -> list[str]:
        state = await graph.ainvoke({"messages": [_said(name, turn)]})
        return [message.text for message in state["messages"][1:]]

    return run
