import asyncio
import socket
import threading
from dataclasses import dataclass
from typing import Any

import pytest

from toolsemble.models.bedrock._http import Exchange, current_exchange, run_blocking, stream_blocking


@dataclass
class Connection:
    sock: Any
    user: Exchange | None = None


@pytest.fixture
def pair():
    near, far = socket.socketpair()
    with near, far:
        far.settimeout(30)
        yield Connection(near), far


def is_shut(far):
    """Whether the other end has hung up."""
    far.setblocking(False)
    try:
        return far.recv(1) == b""
    except BlockingIOError:
        return False


def make_job(exchange, *connections):
    def job():
        for connection in connections:
            exchange.use(connection)
        return current_exchange()

    return job


def test_job_can_read_current_exchange():
    exchange = Exchange()
    assert asyncio.run(run_blocking(lambda: exchange.run(make_job(exchange)))) is exchange
    assert current_exchange() is None


def test_cancelling_shuts_down_the_connection_of_a_running_job(pair):
    connection, far = pair
    exchange, used = Exchange(), threading.Event()

    def job():
        exchange.use(connection)
        used.set()
        return connection.sock.recv(1)

    got = []
    thread = threading.Thread(target=lambda: got.append(exchange.run(job)))
    thread.start()
    assert used.wait(30)
    exchange.cancel()
    thread.join(30)
    assert (got, far.recv(1)) == ([b""], b"")


def test_cancelled_exchange_rejects_connection(pair):
    connection, far = pair
    exchange = Exchange()
    exchange.cancel()
    with pytest.raises(ConnectionAbortedError, match="the request was cancelled"):
        exchange.use(connection)
    assert not is_shut(far)


def test_connection_reused_by_another_exchange_stays_open(pair):
    connection, far = pair
    first, second = Exchange(), Exchange()
    first.use(connection)
    second.use(connection)
    first.cancel()
    assert not is_shut(far)
    second.cancel()
    assert is_shut(far)


def test_connection_stays_open_after_job(pair):
    connection, far = pair
    exchange = Exchange()
    exchange.run(make_job(exchange, connection))
    exchange.cancel()
    assert not is_shut(far)


@pytest.mark.parametrize("sock", [None, object()])
def test_object_that_is_not_a_socket_is_not_shut_down(sock):
    exchange = Exchange()
    exchange.use(Connection(sock))
    exchange.cancel()


async def test_cancelling_does_not_wait_for_the_job():
    began, go_on, over = threading.Event(), threading.Event(), threading.Event()

    def job():
        began.set()
        go_on.wait(30)
        over.set()

    task = asyncio.create_task(run_blocking(job))
    await asyncio.to_thread(began.wait, 30)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, 30)
    assert not over.is_set()
    go_on.set()
    assert await asyncio.to_thread(over.wait, 30)


def yield_then_fail():
    yield 1
    raise ValueError("no more")


async def test_exception_of_job_is_raised():
    with pytest.raises(ValueError, match="no more"):
        await run_blocking(lambda: list(yield_then_fail()))
    items = stream_blocking(yield_then_fail)
    assert await anext(items) == 1
    with pytest.raises(ValueError, match="no more"):
        await anext(items)


class Endless:
    """Yields numbers, each on request, and records when it is closed."""

    def __init__(self):
        self.go_on, self.closed = threading.Semaphore(1), threading.Event()

    def __call__(self):
        try:
            number = 0
            while self.go_on.acquire(timeout=30):
                yield number
                number += 1
        finally:
            self.closed.set()


async def test_closing_early_stops_generator_without_waiting():
    endless = Endless()
    items = stream_blocking(endless)
    assert await anext(items) == 0
    await asyncio.wait_for(items.aclose(), 30)
    assert not endless.closed.is_set()
    endless.go_on.release()
    assert await asyncio.to_thread(endless.closed.wait, 30)


def test_items_after_loop_end_are_dropped():
    endless = Endless()

    async def first():
        items = stream_blocking(endless)
        return await anext(items), items

    number, items = asyncio.run(first())
    assert (number, items.ag_running) == (0, False)
    endless.go_on.release()
    assert endless.closed.wait(30)
