"""The lock table."""

import gc
import threading
from concurrent.futures import Future

import pytest

from toolsemble._runtime.locks import DeadlockError, Hold, Slots, Table, current_hold, keep_until_done


@pytest.fixture
def table(monkeypatch):
    made = Table()
    monkeypatch.setattr("toolsemble._runtime.locks.TABLE", made)
    return made


def acquire(table, *names, inside=None):
    claim = Hold(names, inside)
    table.acquire(claim)
    return claim


def are_granted(*claims):
    return [claim.wakeup is None or claim.wakeup.woken for claim in claims]


def test_slots_are_granted_first_come_first_served(table):
    slots = Slots(2)
    claims = [acquire(table, slots) for _ in range(5)]
    assert are_granted(*claims) == [True, True, False, False, False]
    table.release(claims[1])
    table.release(claims[0])
    assert are_granted(*claims) == [True, True, True, True, False]
    assert table.waiting == 1


def test_claim_gets_all_or_none_of_its_names(table):
    first = acquire(table, "a")
    both = acquire(table, "a", "b")
    other = acquire(table, "c")
    assert are_granted(first, both, other) == [True, False, True]
    late = acquire(table, "b")  # it is free, but an earlier claim waits for it
    assert are_granted(late) == [False]
    table.release(first)
    assert are_granted(both, late) == [True, False]
    table.release(both)
    assert are_granted(late) == [True]


def test_releasing_a_waiting_claim_lets_the_next_continue(table):
    first = acquire(table, "a")
    both = acquire(table, "a", "b")
    late = acquire(table, "b")
    table.release(both)
    assert are_granted(late) == [True]
    table.release(late)  # served already: it is given back
    assert are_granted(acquire(table, "b")) == [True]
    table.release(first)
    assert table.waiting == 0


def test_releasing_twice_or_without_acquiring_is_harmless(table):
    first, second, never = acquire(table, "a"), acquire(table, "a"), Hold(["a"])
    table.release(never)
    table.release(first)
    table.release(first)
    assert are_granted(second) == [True]
    assert are_granted(acquire(table, "a")) == [False]


def test_nested_calls_share_what_the_outer_call_holds_one_at_a_time(table):
    outer = acquire(table, "a")
    one = acquire(table, "a", inside=outer)
    two = acquire(table, "a", inside=outer)
    deep = acquire(table, "a", inside=one)
    assert are_granted(one, two, deep) == [True, False, True]
    table.release(deep)
    table.release(one)
    assert are_granted(two) == [True]
    table.release(outer)  # the outer call does not wait for one that outlives it
    assert are_granted(acquire(table, "a")) == [False]
    table.release(two)
    assert table.waiting == 0


def test_nested_calls_go_before_calls_that_hold_nothing(table):
    outer = acquire(table, "a")
    waiting = acquire(table, "a", "b")
    inner = acquire(table, "b", inside=outer)
    assert are_granted(waiting, inner) == [False, True]


def test_deadlock_of_two_calls_is_detected(table):
    first, second = acquire(table, "a"), acquire(table, "b")
    waits = acquire(table, "b", inside=first)
    assert are_granted(waits) == [False]
    with pytest.raises(DeadlockError):
        table.acquire(Hold(["a"], second))
    table.release(second)  # the refused one failed, and its call ended
    assert are_granted(waits) == [True]


def test_deadlock_of_several_calls_is_detected(table):
    holders = [acquire(table, name) for name in "abc"]
    acquire(table, "b", inside=holders[0])
    acquire(table, "c", inside=acquire(table, "x", inside=holders[1]))
    with pytest.raises(DeadlockError):
        table.acquire(Hold(["a"], acquire(table, "y", inside=holders[2])))


def test_no_deadlock_if_one_slot_will_be_released(table):
    slots = Slots(2)
    first, second, free = acquire(table, slots, "a"), acquire(table, "b"), acquire(table, slots)
    acquire(table, "b", inside=first)
    waits = acquire(table, slots, inside=second)  # the third one will end, whichever claims wait for the others
    assert are_granted(waits) == [False]
    table.release(free)
    assert are_granted(waits) == [True]


def test_deadlock_if_all_slots_are_held_by_waiting_calls(table):
    slots = Slots(2)
    first, second, third = acquire(table, slots), acquire(table, slots), acquire(table, "b")
    for outer in (first, second):
        acquire(table, "b", inside=outer)
    with pytest.raises(DeadlockError):
        table.acquire(Hold([slots], third))


def test_call_holds_its_resources_until_its_bodies_have_ended(table):
    outer = acquire(table, "a")
    outer.enter()
    inner = acquire(table, "b", inside=current_hold())
    inner.enter()
    body = Future()
    keep_until_done(body)
    inner.leave()
    outer.leave()
    assert current_hold() is None
    waiting = [acquire(table, name) for name in "ab"]
    assert are_granted(*waiting) == [False, False]
    body.set_result(None)
    assert are_granted(*waiting) == [True, True]


def test_nothing_is_held_outside_of_calls(table):
    keep_until_done(Future())
    assert current_hold() is None


def test_claim_left_in_another_context_is_released(table):
    claim = acquire(table, "a")
    claim.enter()
    thread = threading.Thread(target=claim.leave)
    thread.start()
    thread.join(30)
    assert current_hold() is None  # the name is there, but it no longer holds anything
    assert are_granted(acquire(table, "a")) == [True]


def test_release_by_the_garbage_collector_during_acquire_is_deferred(table):
    class Dropped:
        """Names of calls may be anybody's objects, and the collector runs anywhere."""

        def __init__(self):
            self.given_back = False

        def __hash__(self):
            if not self.given_back:
                self.given_back = True
                table.release(one)
                assert are_granted(waiting) == [False]
            return 1

    one = acquire(table, "a")
    waiting = acquire(table, "a")
    acquire(table, Dropped())
    assert are_granted(waiting) == [True]


def test_unused_table_is_empty(table):
    for _ in range(100):
        outer = acquire(table, "a", Slots(1))
        table.release(acquire(table, "a", "b", inside=outer))
        table.release(acquire(table, "a"))
        table.release(outer)
    gc.collect()
    assert not any([table._claims, table._held, table._queues, table._nested, table._loops, table._released])


def test_claim_waiting_for_a_name_takes_no_slot(table):
    box = Slots(2)
    first = acquire(table, box, "a")
    second = acquire(table, box, "a")
    assert are_granted(acquire(table, box)) == [True]
    late = acquire(table, box)
    table.release(first)  # the second has its name now, and came before the last one
    assert are_granted(second, late) == [True, False]
    table.release(second)
    assert are_granted(late) == [True]


def test_claim_waiting_for_one_slot_takes_no_other(table):
    box, tool = Slots(2), Slots(1)
    first, other = acquire(table, tool, box), acquire(table, box)
    second, third, plain = acquire(table, tool, box), acquire(table, tool, box), acquire(table, box)
    table.release(first)  # the second waits for the box no more, and holds the tool's place
    assert are_granted(second, third, plain) == [True, False, False]
    table.release(other)
    assert are_granted(third, plain) == [False, True]
    table.release(second)
    assert are_granted(third) == [True]


def test_claim_can_wait_for_the_tool_again_after_the_toolbox(table):
    box, tool = Slots(1), Slots(1)
    full = acquire(table, box)
    second, third, plain = acquire(table, tool, box), acquire(table, tool, box), acquire(table, box)
    inner = acquire(table, tool, inside=full)  # served before the others, who hold nothing
    assert are_granted(inner) == [True]
    table.release(full)
    assert are_granted(second, third, plain) == [False, False, True]
    table.release(plain)
    table.release(inner)
    assert are_granted(second, third) == [True, False]
    table.release(second)
    assert are_granted(third) == [True]


def test_claim_with_one_free_name_waits_for_the_other(table):
    first, second = acquire(table, "a"), acquire(table, "b")
    both, late = acquire(table, "a", "b"), acquire(table, "a")
    table.release(first)
    assert are_granted(both, late) == [False, False]
    table.release(second)
    assert are_granted(both, late) == [True, False]
    table.release(both)
    assert are_granted(late) == [True]


def test_released_waiters_are_removed_from_the_queue(table):
    slots = Slots(1)
    first, second = acquire(table, slots), acquire(table, slots)
    for _ in range(1000):
        table.release(acquire(table, slots))
    assert len(table._queues[slots]._heap) < 200
    third = acquire(table, slots)
    table.release(first)
    table.release(second)
    assert are_granted(second, third) == [True, True]
