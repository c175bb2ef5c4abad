"""The table of what calls hold."""

import gc
import threading
from concurrent.futures import Future

import pytest

from toolsemble.locks.claims import Seats
from toolsemble.locks.holds import Hold, held, kept_for
from toolsemble.locks.table import EndlessWaitError, Table


@pytest.fixture
def table(monkeypatch):
    made = Table()
    monkeypatch.setattr("toolsemble.locks.holds.TABLE", made)
    return made


def asked(table, *names, inside=None):
    claim = Hold(names, inside)
    table.ask(claim)
    return claim


def served(*claims):
    return [claim.turn is None or claim.turn.woken for claim in claims]


def test_the_places_are_given_first_come_first_served(table):
    seats = Seats(2)
    claims = [asked(table, seats) for _ in range(5)]
    assert served(*claims) == [True, True, False, False, False]
    table.give_back(claims[1])
    table.give_back(claims[0])
    assert served(*claims) == [True, True, True, True, False]
    assert table.waiting == 1


def test_a_claim_gets_all_it_names_or_nothing(table):
    first = asked(table, "a")
    both = asked(table, "a", "b")
    other = asked(table, "c")
    assert served(first, both, other) == [True, False, True]
    late = asked(table, "b")  # nobody holds it, but somebody who came before wants it
    assert served(late) == [False]
    table.give_back(first)
    assert served(both, late) == [True, False]
    table.give_back(both)
    assert served(late) == [True]


def test_one_who_goes_away_lets_those_behind_it_go_on(table):
    first = asked(table, "a")
    both = asked(table, "a", "b")
    late = asked(table, "b")
    table.give_back(both)
    assert served(late) == [True]
    table.give_back(late)  # served already: it is given back
    assert served(asked(table, "b")) == [True]
    table.give_back(first)
    assert table.waiting == 0


def test_what_is_given_back_twice_or_was_never_asked_for_does_no_harm(table):
    first, second, never = asked(table, "a"), asked(table, "a"), Hold(["a"])
    table.give_back(never)
    table.give_back(first)
    table.give_back(first)
    assert served(second) == [True]
    assert served(asked(table, "a")) == [False]


def test_a_call_inside_a_call_uses_what_that_holds_but_not_beside_its_sibling(table):
    outer = asked(table, "a")
    one = asked(table, "a", inside=outer)
    two = asked(table, "a", inside=outer)
    deep = asked(table, "a", inside=one)
    assert served(one, two, deep) == [True, False, True]
    table.give_back(deep)
    table.give_back(one)
    assert served(two) == [True]
    table.give_back(outer)  # the outer call does not wait for one that outlives it
    assert served(asked(table, "a")) == [False]
    table.give_back(two)
    assert table.waiting == 0


def test_a_call_inside_a_call_is_served_before_those_who_hold_nothing(table):
    outer = asked(table, "a")
    waiting = asked(table, "a", "b")
    inner = asked(table, "b", inside=outer)
    assert served(waiting, inner) == [False, True]


def test_calls_that_would_wait_for_each_other_are_refused(table):
    first, second = asked(table, "a"), asked(table, "b")
    waits = asked(table, "b", inside=first)
    assert served(waits) == [False]
    with pytest.raises(EndlessWaitError):
        table.ask(Hold(["a"], second))
    table.give_back(second)  # the refused one failed, and its call ended
    assert served(waits) == [True]


def test_a_circle_over_several_corners_is_refused(table):
    holders = [asked(table, name) for name in "abc"]
    asked(table, "b", inside=holders[0])
    asked(table, "c", inside=asked(table, "x", inside=holders[1]))
    with pytest.raises(EndlessWaitError):
        table.ask(Hold(["a"], asked(table, "y", inside=holders[2])))


def test_where_one_of_several_places_will_be_free_nobody_is_refused(table):
    seats = Seats(2)
    first, second, free = asked(table, seats, "a"), asked(table, "b"), asked(table, seats)
    asked(table, "b", inside=first)
    waits = asked(table, seats, inside=second)  # the third one will end, whoever waits for the others
    assert served(waits) == [False]
    table.give_back(free)
    assert served(waits) == [True]


def test_places_that_are_all_held_by_those_who_wait_are_refused(table):
    seats = Seats(2)
    first, second, third = asked(table, seats), asked(table, seats), asked(table, "b")
    for outer in (first, second):
        asked(table, "b", inside=outer)
    with pytest.raises(EndlessWaitError):
        table.ask(Hold([seats], third))


def test_what_a_call_holds_is_held_for_the_bodies_it_left_behind(table):
    outer = asked(table, "a")
    outer.enter()
    inner = asked(table, "b", inside=held())
    inner.enter()
    body = Future()
    kept_for(body)
    inner.leave()
    outer.leave()
    assert held() is None
    waiting = [asked(table, name) for name in "ab"]
    assert served(*waiting) == [False, False]
    body.set_result(None)
    assert served(*waiting) == [True, True]


def test_outside_of_calls_nothing_is_kept(table):
    kept_for(Future())
    assert held() is None


def test_a_claim_that_is_left_in_another_context_is_given_back_all_the_same(table):
    claim = asked(table, "a")
    claim.enter()
    thread = threading.Thread(target=claim.leave)
    thread.start()
    thread.join(30)
    assert held() is None  # the name is there, but it holds nothing any more
    assert served(asked(table, "a")) == [True]


def test_what_the_collector_gives_back_in_the_middle_of_a_claim_is_given_back_after_it(table):
    class Dropped:
        """Names of calls may be anybody's objects, and the collector runs anywhere."""

        def __init__(self):
            self.given_back = False

        def __hash__(self):
            if not self.given_back:
                self.given_back = True
                table.give_back(one)
                assert served(waiting) == [False]
            return 1

    one = asked(table, "a")
    waiting = asked(table, "a")
    asked(table, Dropped())
    assert served(waiting) == [True]


def test_nothing_is_left_in_a_table_that_nobody_uses(table):
    for _ in range(100):
        outer = asked(table, "a", Seats(1))
        table.give_back(asked(table, "a", "b", inside=outer))
        table.give_back(asked(table, "a"))
        table.give_back(outer)
    gc.collect()
    assert not any([table._claims, table._held, table._queues, table._inner, table._loops, table._returned])


def test_one_that_waits_for_a_name_lets_others_have_the_places(table):
    box = Seats(2)
    first = asked(table, box, "a")
    second = asked(table, box, "a")
    assert served(asked(table, box)) == [True]
    late = asked(table, box)
    table.give_back(first)  # the second has its name now, and came before the last one
    assert served(second, late) == [True, False]
    table.give_back(second)
    assert served(late) == [True]


def test_one_that_waits_for_another_place_lets_others_have_this_one(table):
    box, tool = Seats(2), Seats(1)
    first, other = asked(table, tool, box), asked(table, box)
    second, third, plain = asked(table, tool, box), asked(table, tool, box), asked(table, box)
    table.give_back(first)  # the second waits for the box no more, and holds the tool's place
    assert served(second, third, plain) == [True, False, False]
    table.give_back(other)
    assert served(third, plain) == [False, True]
    table.give_back(second)
    assert served(third) == [True]


def test_one_that_waited_for_a_place_of_a_box_may_have_to_wait_for_the_tool_again(table):
    box, tool = Seats(1), Seats(1)
    full = asked(table, box)
    second, third, plain = asked(table, tool, box), asked(table, tool, box), asked(table, box)
    inner = asked(table, tool, inside=full)  # served before the others, who hold nothing
    assert served(inner) == [True]
    table.give_back(full)
    assert served(second, third, plain) == [False, False, True]
    table.give_back(plain)
    table.give_back(inner)
    assert served(second, third) == [True, False]
    table.give_back(second)
    assert served(third) == [True]


def test_one_that_gets_one_name_waits_on_for_the_other(table):
    first, second = asked(table, "a"), asked(table, "b")
    both, late = asked(table, "a", "b"), asked(table, "a")
    table.give_back(first)
    assert served(both, late) == [False, False]
    table.give_back(second)
    assert served(both, late) == [True, False]
    table.give_back(both)
    assert served(late) == [True]


def test_those_who_go_away_leave_no_trace_in_a_queue_that_does_not_move(table):
    seats = Seats(1)
    first, second = asked(table, seats), asked(table, seats)
    for _ in range(1000):
        table.give_back(asked(table, seats))
    assert len(table._queues[seats]._heap) < 200
    third = asked(table, seats)
    table.give_back(first)
    table.give_back(second)
    assert served(second, third) == [True, True]
