"""Clients that are bound to an event loop."""

import asyncio
import gc

import pytest

from toolsemble._runtime.event_loops import finish
from toolsemble.models._adapter.per_loop import PerLoop


class Client:
    """Notes what becomes of it."""

    def __init__(self, notes, problem=None):
        self._notes = notes
        self._problem = problem

    async def __aenter__(self):
        if self._problem is not None:
            raise self._problem
        self._notes.append("opened")
        return self

    async def __aexit__(self, *_):
        await asyncio.sleep(0)
        self._notes.append("closed")


async def test_tasks_of_one_loop_share_a_client():
    clients = PerLoop(lambda: Client([]))
    first, *others = await asyncio.gather(*(clients.get() for _ in range(5)))
    assert all(client is first for client in others)


def test_each_loop_has_its_own_client():
    notes = []
    clients = PerLoop(lambda: Client(notes))
    first, second = finish(clients.get()), finish(clients.get())
    assert first is not second
    assert notes == ["opened", "closed"] * 2


def test_failed_client_is_opened_again():
    notes, problems = [], [OSError("no certificates"), None]
    clients = PerLoop(lambda: Client(notes, problems.pop(0)))

    async def twice():
        with pytest.raises(OSError, match="no certificates"):
            await clients.get()
        await clients.get()

    finish(twice())
    assert notes == ["opened", "closed"]


def test_client_is_closed_when_its_owner_is_garbage_collected():
    notes = []

    async def dropped():
        clients = PerLoop(lambda: Client(notes))
        clients.itself = clients
        await clients.get()
        del clients
        gc.collect()
        async with asyncio.timeout(60):
            while notes != ["opened", "closed"]:
                await asyncio.sleep(0)

    finish(dropped())


def test_client_dropped_at_loop_end_is_closed():
    notes = []

    async def dropped():
        await PerLoop(lambda: Client(notes)).get()

    finish(dropped())
    gc.collect()
    assert notes == ["opened", "closed"]


def test_closed_loop_is_forgotten():
    notes = []
    clients = PerLoop(lambda: Client(notes))
    loop = asyncio.new_event_loop()
    first = loop.run_until_complete(clients.get())
    loop.close()
    assert finish(clients.get()) is not first
    assert notes == ["opened", "opened", "closed"]
