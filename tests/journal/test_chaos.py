"""Runs whose processes are killed, stopped, and started several times at once; ``make chaos`` does more of it."""

import signal

import pytest

from helpers.chaos import Chaos
from helpers.driver_process import BUSY, DONE
from helpers.wait import state_of, until

pytestmark = pytest.mark.slow

KILLS = 20


@pytest.fixture(scope="module")
def chaos(tmp_path_factory):
    with Chaos(tmp_path_factory.mktemp("chaos"), seed=7) as chaos:
        yield chaos


def is_stopped(driver):
    return state_of(driver.pid) == "T"


def wake(chaos, stopped):
    """Let a stopped driver continue after another one has finished its run; it must do nothing more."""
    before = chaos.log.read_text(encoding="utf-8")
    stopped.send(signal.SIGCONT)
    assert chaos.drivers.wait(stopped) == BUSY
    return chaos.log.read_text(encoding="utf-8").removeprefix(before).splitlines()


def test_runs_that_are_killed_at_random_moments_come_to_the_same_end(chaos):
    expected = chaos.do_undisturbed("undisturbed")
    while chaos.tally.kills < KILLS:
        chaos.do(f"r{chaos.tally.runs}", expected)


def test_of_four_drivers_at_once_one_drives(chaos):
    drivers = [chaos.drivers.start(run_id="four") for _ in range(4)]
    until(lambda: any(driver.ends_within(0) for driver in drivers))
    statuses = [chaos.let_end(driver) for driver in drivers]
    assert sorted(statuses) == [DONE, BUSY, BUSY, BUSY]
    assert set(chaos.count("four").values()) == {1}


def test_a_driver_that_is_stopped_while_it_waits_does_nothing_more(chaos):
    stopped = chaos.drivers.start(run_id="waiting")
    until(chaos.store.pending)
    stopped.send(signal.SIGSTOP)
    chaos.runs.take_over("waiting")
    assert chaos.let_end(chaos.drivers.start(run_id="waiting")) == DONE
    assert wake(chaos, stopped) == []
    assert set(chaos.count("waiting").values()) == {1}


# Events of the second turn: its calls run one after the other, so that no other thread is in a transaction then.
@pytest.mark.parametrize(("event", "twice"), [(11, "look"), (12, "look"), (13, ""), (14, "")])
def test_a_driver_that_is_stopped_in_a_call_ends_that_call_and_does_nothing_more(chaos, event, twice):
    run_id = f"stopped-{event}"
    stopped = chaos.drivers.start(run_id=run_id, die=event, number=signal.SIGSTOP)
    until(lambda: chaos.answer_one() or is_stopped(stopped))
    chaos.runs.take_over(run_id)
    assert chaos.let_end(chaos.drivers.start(run_id=run_id)) == DONE
    # A body that was stopped before its effect goes on: that cannot be prevented.
    assert set(wake(chaos, stopped)) <= {f"{run_id}/2.1.{1 if twice else 2}"}
    steps = {f"{run_id}{step.place}": step for step in chaos.runs.steps(run_id) if step.kind == "call"}
    assert [steps[key].tool for key, count in chaos.count(run_id).items() if count > 1] == ([twice] if twice else [])
    assert [call.tool for call in chaos.runs.unknown() if call.run_id == run_id] == ([] if twice else ["pay"])
