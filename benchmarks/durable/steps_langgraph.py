"""LangGraph: steps of a graph with a checkpointer in SQLite, in its fastest mode that keeps every step."""

import sqlite3
from itertools import count as ids
from typing import TypedDict

from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph
from steps import answer


class Numbers(TypedDict):
    """The state of the graph."""

    number: int
    most: int


def make(path: str | None):
    """Return a function that runs a graph of some steps."""
    graph = StateGraph(Numbers)
    graph.add_node("add", lambda state: {"number": state["number"] + 1})
    graph.add_edge(START, "add")
    graph.add_conditional_edges("add", lambda state: "add" if state["number"] < state["most"] else END)
    saver = None if path is None else SqliteSaver(sqlite3.connect(path, check_same_thread=False))
    app, threads = graph.compile(checkpointer=saver), ids()

    def run(count: int) -> None:
        config = {"configurable": {"thread_id": f"{next(threads)}"}, "recursion_limit": count + 10}
        app.invoke({"number": 0, "most": count}, config, **({} if saver is None else {"durability": "sync"}))

    return run


if __name__ == "__main__":
    answer("langgraph", "a checkpoint", make)
