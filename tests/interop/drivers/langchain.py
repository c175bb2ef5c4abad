"""LangChain: an agent of `create_agent`, whose tools run in LangGraph's `ToolNode`."""

from __future__ import annotations

from base64 import b64decode
from typing import Annotated, Any

from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import InjectedState, InjectedStore, ToolNode, ToolRuntime
from langgraph.types import Command

from interop.kit import Seen
from interop.natives import write_functions

MODULE = "langchain"
DISTRIBUTIONS = ("langchain-core", "langgraph")


def graph(exported, calls, **settings):
    requests = [{"type": "tool_call", "name": each.name, "args": each.arguments, "id": each.id} for each in calls]
    model = GenericFakeChatModel(messages=iter([AIMessage("", tool_calls=requests), AIMessage("Done.")]))
    built = StateGraph(MessagesState)
    built.add_node("model", lambda state: {"messages": [model.invoke(state["messages"])]})
    built.add_node("tools", ToolNode(exported))
    built.add_edge(START, "model")
    built.add_conditional_edges("model", lambda state: "tools" if state["messages"][-1].tool_calls else END)
    built.add_edge("tools", "model")
    return built.compile(**settings)


ASK = {"messages": [HumanMessage("Buy tea.")]}


async def run(exported, calls):
    return read((await graph(exported, calls).ainvoke(ASK))["messages"])


def run_sync(exported, calls):
    return read(graph(exported, calls).invoke(ASK)["messages"])


async def pause(exported, calls, decide):
    thread = {"configurable": {"thread_id": "talk_1"}}
    built = graph(exported, calls, checkpointer=InMemorySaver())
    state = await built.ainvoke(ASK, thread)
    while "__interrupt__" in state:
        [asked] = state["__interrupt__"]
        state = await built.ainvoke(Command(resume=decide(asked.value["arguments"])), thread)
    return read(state["messages"])


def read(messages):
    assert messages[-1].content == "Done."
    return [read_message(each) for each in messages if isinstance(each, ToolMessage)]


def read_message(message):
    blocks = [{"type": "text", "text": message.content}] if isinstance(message.content, str) else message.content
    media = [(each["mime_type"], b64decode(each["base64"])) for each in blocks if each["type"] != "text"]
    return Seen(blocks[0]["text"], message.status == "error", media, message.artifact)


def offer(function):
    return [tool(function)]


def native(log):
    return [tool(each) for each in write_functions(log)]


def refused():
    @tool
    def state(state: Annotated[dict[str, Any], InjectedState]) -> str:
        """Read the state."""
        return str(state)

    @tool
    def store(store: Annotated[Any, InjectedStore()]) -> str:
        """Read the store."""
        return str(store)

    @tool
    def runtime(city: str, runtime: ToolRuntime) -> str:
        """Read the runtime."""
        return str(runtime)

    return [(state, "state"), (store, "store"), (runtime, "runtime")]
