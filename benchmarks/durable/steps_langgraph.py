"""LangGraph: turns of an agent as a graph of two nodes, with a checkpointer in SQLite that keeps every step."""

import sqlite3
from itertools import count as ids
from operator import add
from typing import Annotated, Any, TypedDict

from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph
from steps import Run, answer


class Talk(TypedDict):
    """The state of the graph."""

    messages: Annotated[list[dict[str, Any]], add]
    most: int


def reply(state: Talk) -> dict[str, Any]:
    """Ask for a call, as a model does."""
    call = {"name": "add", "arguments": {"a": len(state["messages"]), "b": 2}}
    return {"messages": [{"role": "assistant", "text": "", "calls": [call], "usage": [10, 5]}]}


def call(state: Talk) -> dict[str, Any]:
    """Make the call."""
    arguments = state["messages"][-1]["calls"][0]["arguments"]
    return {"messages": [{"role": "tool", "text": f"{arguments['a'] + arguments['b']}"}]}


def follow(state: Talk) -> str:
    """Return which node is next."""
    return "reply" if len(state["messages"]) < state["most"] else END


def make(path: str | None) -> Run:
    """Return a function that runs a graph of some turns."""
    graph = StateGraph(Talk)
    graph.add_node("reply", reply)
    graph.add_node("call", call)
    graph.add_edge(START, "reply")
    graph.add_edge("reply", "call")
    graph.add_conditional_edges("call", follow)
    saver = None if path is None else SqliteSaver(sqlite3.connect(path, check_same_thread=False))
    app, threads = graph.compile(checkpointer=saver), ids()

    def run(count: int) -> None:
        config = {"configurable": {"thread_id": f"{next(threads)}"}, "recursion_limit": 2 * count + 10}
        app.invoke({"messages": [], "most": 2 * count}, config, **({} if saver is None else {"durability": "sync"}))

    return run


if __name__ == "__main__":
    answer("langgraph", 2, "checkpoints", make)
