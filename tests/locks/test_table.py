"""The lock table."""

import gc
import threading
from concurrent.futures import Future

import pytest

from toolsemble.locks.claims import Slots
from toolsemble.locks.holds import Hold, current_hold, keep_until_done
from toolsemble.locks.table import DeadlockError, Table


@pytest.fixture
def table(monkeypatch):
    made = Table()
    monkeypatch.setattr("toolsemble.locks.holds.TABLE", made)
    return made


def acquire(table, *names, inside=None):
    claim = Hold(names, inside)
    table.acquire(claim)
    return claim


def granted(*claims):
    return [claim.wakeup is None or claim.wakeup.woken for claim in claims]


def test_slots_are_granted_first_come_first_served(table):
    slots = Slots(2)
    claims = [acquire(table, slots) for _ in range(5)]
    assert granted(*claims) == [True, True, False, False, False]
    table.release(claims[1])
    table.release(claims[0])
    assert granted(*claims) == [True, True, True, True, False]
    assert table.waiting == 1


def test_a_claim_gets_all_of_its_names_or_none(table):
    first = acquire(table, "a")
    both = acquire(table, "a", "b")
    other = acquire(table, "c")
    assert granted(first, both, other) == [True, False, True]
    late = acquire(table, "b")  # nobody holds it, but somebody who came before wants it
    assert granted(late) == [False]
    table.release(first)
    assert granted(both, late) == [True, False]
    table.release(both)
    assert granted(late) == [True]


def test_a_waiting_claim_that_is_released_lets_the_next_ones_continue(table):
    first = acquire(table, "a")
    both = acquire(table, "a", "b")
    late = acquire(table, "b")
    table.release(both)
    assert granted(late) == [True]
    table.release(late)  # served already: it is given back
    assert granted(acquire(table, "b")) == [True]
    table.release(first)
    assert table.waiting == 0


def test_releasing_twice_or_without_acquiring_is_harmless(table):
    first, second, never = acquire(table, "a"), acquire(table, "a"), Hold(["a"])
    table.release(never)
    table.release(first)
    table.release(first)
    assert granted(second) == [True]
    assert granted(acquire(table, "a")) == [False]


def test_nested_calls_share_what_the_outer_call_holds_one_at_a_time(table):
    outer = acquire(table, "a")
    one = acquire(table, "a", inside=outer)
    two = acquire(table, "a", inside=outer)
    deep = acquire(table, "a", inside=one)
    assert granted(one, two, deep) == [True, False, True]
    table.release(deep)
    table.release(one)
    assert granted(two) == [True]
    table.release(outer)  # the outer call does not wait for one that outlives it
    assert granted(acquire(table, "a")) == [False]
    table.release(two)
    assert table.waiting == 0


def test_nested_calls_go_before_calls_that_hold_nothing(table):
    outer = acquire(table, "a")
    waiting = acquire(table, "a", "b")
    inner = acquire(table, "b", inside=outer)
    assert granted(waiting, inner) == [False, True]


def test_a_deadlock_of_two_calls_is_refused(table):
    first, second = acquire(table, "a"), acquire(table, "b")
    waits = acquire(table, "b", inside=first)
    assert granted(waits) == [False]
    with pytest.raises(DeadlockError):
        table.acquire(Hold(["a"], second))
    table.release(second)  # the refused one failed, and its call ended
    assert granted(waits) == [True]


def test_a_deadlock_of_several_calls_is_refused(table):
    holders = [acquire(table, name) for name in "abc"]
    acquire(table, "b", inside=holders[0])
    acquire(table, "c", inside=acquire(table, "x", inside=holders[1]))
    with pytest.raises(DeadlockError):
        table.acquire(Hold(["a"], acquire(table, "y", inside=holders[2])))


def test_it_is_no_deadlock_if_one_of_several_slots_will_be_free(table):
    slots = Slots(2)
    first, second, free = acquire(table, slots, "a"), acquire(table, "b"), acquire(table, slots)
    acquire(table, "b", inside=first)
    waits = acquire(table, slots, inside=second)  # the third one will end, whoever waits for the others
    assert granted(waits) == [False]
    table.release(free)
    assert granted(waits) == [True]


def test_it_is_a_deadlock_if_all_slots_are_held_by_waiting_calls(table):
    slots = Slots(2)
    first, second, third = acquire(table, slots), acquire(table, slots), acquire(table, "b")
    for outer in (first, second):
        acquire(table, "b", inside=outer)
    with pytest.raises(DeadlockError):
        table.acquire(Hold([slots], third))


def test_a_call_holds_its_resources_until_its_bodies_have_ended(table):
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
    assert granted(*waiting) == [False, False]
    body.set_result(None)
    assert granted(*waiting) == [True, True]


def test_outside_of_calls_nothing_is_held(table):
    keep_until_done(Future())
    assert current_hold() is None


def test_a_claim_that_is_left_in_another_context_is_given_back_all_the_same(table):
    claim = acquire(table, "a")
    claim.enter()
    thread = threading.Thread(target=claim.leave)
    thread.start()
    thread.join(30)
    assert current_hold() is None  # the name is there, but it holds nothing any more
    assert granted(acquire(table, "a")) == [True]


def test_what_the_collector_gives_back_in_the_middle_of_a_claim_is_given_back_after_it(table):
    class Dropped:
        """Names of calls may be anybody's objects, and the collector runs anywhere."""

        def __init__(self):
            self.given_back = False

        def __hash__(self):
            if not self.given_back:
                self.given_back = True
                table.release(one)
                assert granted(waiting) == [False]
            return 1

    one = acquire(table, "a")
    waiting = acquire(table, "a")
    acquire(table, Dropped())
    assert granted(waiting) == [True]


def test_nothing_is_left_in_a_table_that_nobody_uses(table):
    for _ in range(100):
        outer = acquire(table, "a", Slots(1))
        table.release(acquire(table, "a", "b", inside=outer))
        table.release(acquire(table, "a"))
        table.release(outer)
    gc.collect()
    assert not any([table._claims, table._held, table._queues, table._nested, table._loops, table._released])


def test_one_that_waits_for_a_name_lets_others_have_the_places(table):
    box = Slots(2)
    first = acquire(table, box, "a")
    second = acquire(table, box, "a")
    assert granted(acquire(table, box)) == [True]
    late = acquire(table, box)
    table.release(first)  # the second has its name now, and came before the last one
    assert granted(second, late) == [True, False]
    table.release(second)
    assert granted(late) == [True]


def test_one_that_waits_for_another_place_lets_others_have_this_one(table):
    box, tool = Slots(2), Slots(1)
    first, other = acquire(table, tool, box), acquire(table, box)
    second, third, plain = acquire(table, tool, box), acquire(table, tool, box), acquire(table, box)
    table.release(first)  # the second waits for the box no more, and holds the tool's place
    assert granted(second, third, plain) == [True, False, False]
    table.release(other)
    assert granted(third, plain) == [False, True]
    table.release(second)
    assert granted(third) == [True]


def test_one_that_waited_for_a_place_of_a_box_may_have_to_wait_for_the_tool_again(table):
    box, tool = Slots(1), Slots(1)
    full = acquire(table, box)
    second, third, plain = acquire(table, tool, box), acquire(table, tool, box), acquire(table, box)
    inner = acquire(table, tool, inside=full)  # served before the others, who hold nothing
    assert granted(inner) == [True]
    table.release(full)
    assert granted(second, third, plain) == [False, False, True]
    table.release(plain)
    table.release(inner)
    assert granted(second, third) == [True, False]
    table.release(second)
    assert granted(third) == [True]


def test_one_that_gets_one_name_waits_on_for_the_other(table):
    first, second = acquire(table, "a"), acquire(table, "b")
    both, late = acquire(table, "a", "b"), acquire(table, "a")
    table.release(first)
    assert granted(both, late) == [False, False]
    table.release(second)
    assert granted(both, late) == [True, False]
    table.release(both)
    assert granted(late) == [True]


def test_those_who_go_away_leave_no_trace_in_a_queue_that_does_not_move(table):
    slots = Slots(1)
    first, second = acquire(table, slots), acquire(table, slots)
    for _ in range(1000):
        table.release(acquire(table, slots))
    assert len(table._queues[slots]._heap) < 200
    third = acquire(table, slots)
    table.release(first)
    table.release(second)
    assert granted(second, third) == [True, True]
