"""Two workers on two machines that share a Postgres; ``make chaos-postgres`` does more of it."""

import signal

import pytest

from helpers.machines import Machines
from helpers.wait import until

pytestmark = pytest.mark.slow


def test_a_killed_worker_is_replaced_within_the_lease_and_nothing_happens_twice(tmp_path, postgres_url):
    with Machines(tmp_path, postgres_url, seed=3, runs=2) as machines:
        machines.work_until_done(kills=2)
        texts = {result["text"] for result in machines.read_results()}
        assert (texts, machines.find_repeated()) == ({"Settled."}, [])
    assert machines.kills == 2


def test_a_stopped_worker_loses_its_runs_and_does_nothing_more_when_it_wakes_up(tmp_path, postgres_url):
    with Machines(tmp_path, postgres_url, seed=4, runs=2) as machines:
        stopped = machines.workers[0]
        until(machines.log.read_text)
        stopped.send_signal(signal.SIGSTOP)
        until(machines.is_done)  # the other worker waits until the lease is over
        stopped.send_signal(signal.SIGCONT)
        assert machines.find_repeated() == []
        assert {run.state for run in machines.runs.list()} == {"done"}
