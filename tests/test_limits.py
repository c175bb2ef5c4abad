import threading
from concurrent.futures import Future

import pytest

from toolsemble.limits import Slots


def test_a_waiter_interrupted_while_it_waits_leaves_the_queue():
    slots = Slots(1)
    slots.take()
    turn = Future()
    assert slots._queue(turn)
    slots._abandon(turn)
    assert not slots._waiting
    slots.release()
    slots.take()


def test_a_waiter_interrupted_after_it_was_served_gives_its_place_back():
    slots = Slots(1)
    slots.take()
    turn = Future()
    assert slots._queue(turn)
    slots.release()
    assert turn.done()
    slots._abandon(turn)
    slots.take()


def test_an_interrupt_of_a_waiting_thread_passes(monkeypatch):
    slots = Slots(1)
    slots.take()

    def interrupt(_self, _timeout=None):
        raise KeyboardInterrupt

    monkeypatch.setattr("concurrent.futures.Future.result", interrupt)
    with pytest.raises(KeyboardInterrupt):
        slots.take()
    monkeypatch.undo()
    slots.release()
    slots.take()


def test_places_are_given_first_come_first_served():
    slots = Slots(1)
    slots.take()
    order = []
    queued = [threading.Event() for _ in range(3)]

    def wait(number):
        queued[number].set()
        slots.take()
        order.append(number)
        slots.release()

    threads = []
    for number in range(3):
        threads.append(threading.Thread(target=wait, args=(number,)))
        threads[-1].start()
        queued[number].wait(30)
        while len(slots._waiting) <= number:  # the next one comes only when this one stands in the queue
            pass
    slots.release()
    for thread in threads:
        thread.join(30)
    assert order == [0, 1, 2]


def test_a_turn_that_was_given_up_between_two_looks_is_passed_over():
    slots = Slots(1)
    slots.take()
    given_up, next_one = Future(), Future()
    assert slots._queue(given_up)
    assert slots._queue(next_one)
    given_up.cancel()
    slots.release()
    assert next_one.done()
    slots._abandon(given_up)
