"""Waking of waiting threads and tasks."""

import asyncio
import threading

from helpers.wait import LONG
from toolsemble._runtime.threads import Wakeup, running_loop


def test_waiting_thread_is_woken():
    wakeup, woken = Wakeup(), []
    thread = threading.Thread(target=lambda: woken.append(wakeup.wait(LONG)))
    thread.start()
    wakeup.wake()
    wakeup.wake()
    thread.join(LONG)
    assert (woken, wakeup.wait(None), wakeup.woken) == ([True], True, True)


def test_main_thread_handles_signals_while_waiting(monkeypatch):
    monkeypatch.setattr("toolsemble._runtime.threads._ROUND", 0.001)
    assert not Wakeup().wait(0.003)


async def test_waiting_task_is_woken_from_another_thread():
    wakeup = Wakeup()
    waiting = asyncio.create_task(wakeup.wait_async(LONG))
    await asyncio.sleep(0)
    await asyncio.to_thread(wakeup.wake)
    wakeup.wake()
    assert await waiting
    assert await wakeup.wait_async(None)
    assert running_loop() is asyncio.get_running_loop()


async def test_waiting_task_times_out():
    assert not await Wakeup().wait_async(0)


def test_waiter_in_a_closed_loop_is_not_woken():
    loop, wakeup = asyncio.new_event_loop(), Wakeup()
    assert not loop.run_until_complete(wakeup.wait_async(0))
    loop.close()
    wakeup.wake()
    assert wakeup.woken
