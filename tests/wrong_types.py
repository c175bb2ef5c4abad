"""Mistakes that type checkers report: on each line that ends with ``# wrong``, and on no other. Never run.

mypy does not know what an async function or a context manager makes, without ``deps_type`` or an annotation.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from toolsemble import Agent, ChatModel
from toolsemble.agent import RunView


class Shop:
    stock: int = 3


class Route:
    start: str = ""


async def make_shop(run: RunView) -> Shop:
    return Shop()


@contextmanager
def open_shop(run: RunView) -> Iterator[Shop]:
    yield Shop()


def takes_shop(agent: Agent[str, Shop]) -> None: ...


async def check(model: ChatModel) -> None:
    Agent(model, deps=Shop()).run_sync("hello", deps=3)  # wrong
    Agent(model, deps_type=Shop).run_sync("hello", deps=3)  # wrong
    Agent(model, make_deps=make_shop).run_sync("hello", deps=3)  # wrong for pyright
    Agent(model, make_deps=make_shop, deps_type=Shop).run_sync("hello", deps=3)  # wrong
    await Agent(model, make_deps=open_shop).run("hello", deps="shop")  # wrong for pyright
    await Agent(model, make_deps=open_shop, deps_type=Shop).run("hello", deps="shop")  # wrong
    Agent(model, make_deps=open_shop).stream("hello", deps=Route())  # wrong for pyright
    Agent(model, make_deps=open_shop, deps_type=Shop).stream("hello", deps=Route())  # wrong
    Agent(model, make_deps=open_shop).iterate("hello", deps=Route())  # wrong for pyright
    Agent(model, make_deps=open_shop, deps_type=Shop).iterate("hello", deps=Route())  # wrong
    Agent(model, deps_type=Shop).run_sync("hello", output_type=Route, deps=3)  # wrong
    fixed: Agent[str, Shop] = Agent(model, deps=3)  # wrong
    made: Agent[str, int] = Agent(model, make_deps=open_shop)  # wrong
    typed: Agent[str, int] = Agent(model, deps_type=Shop)  # wrong
    takes_shop(Agent(model, deps_type=Route))  # wrong
    takes_shop(Agent(model, deps_type=Shop))
    await fixed.run(typed.name, run_id=made.name)
    Agent(model).run_sync("hello", max_turn=3)  # wrong
