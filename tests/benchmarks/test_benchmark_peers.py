"""The comparison with peers: what its parts refuse, and what becomes of the file. No peer needs to be installed."""

import asyncio
import json
import re
import sys
from types import SimpleNamespace

import compare
import findings
import freeze
import pytest
from comparison import results, weight
from comparison.figure import FIGURES, FRESH, LEAST, ONCE, figure, number
from comparison.participant import Participant
from comparison.preparation import MissingError, Preparation
from peers import floor, task, toolsemble as ours
from peers.task import new_search

pytestmark = pytest.mark.slow

SLOW = {"async_2000"}
"""What takes long, and differs from others by a number only."""
TIMED = [what for what in FIGURES if what not in {"import", *FRESH, *SLOW}]


@pytest.fixture
def runner():
    with asyncio.Runner() as runner:
        yield runner


def make_peer(**functions):
    return SimpleNamespace(**{"VALIDATES": True} | functions)


class FakeParticipant(Participant):
    """Takes the given seconds, without a process."""

    def __init__(self, taken, name, *, ready):
        facts = {"name": name, "version": "1", "validates": "yes", "bytes": 1, "distributions": 1}
        super().__init__(name, sys.executable, facts=facts)
        self.taken, self.is_ready, self.interrupted = taken, ready, None

    def ready(self, what):
        return self.is_ready

    def seconds(self, what):
        if what == self.interrupted:
            raise KeyboardInterrupt
        return self.taken


def make_participant(taken, name="some", *, ready=True):
    return FakeParticipant(taken, name, ready=ready)


def make_row(name, ratio):
    found = {"seconds": 1.0, "ratio": ratio, "low": ratio, "high": ratio, "pairs": 3}
    facts = {"name": name, "version": "1", "validates": "yes", "bytes": 2_000_000, "distributions": 1}
    return facts | {"figures": {"call": found}, "problem": ""}


def test_figure_is_median_of_pairs_with_spread():
    pairs = [(float(number), 1.0) for number in range(1, 12)]
    assert figure(pairs) == {"seconds": 6.0, "ratio": 6.0, "low": 2.0, "high": 10.0, "pairs": 11}


@pytest.mark.parametrize("what", FIGURES)
def test_slow_figures_get_fewer_pairs(what):
    assert number(what, 40) >= (1 if what in ONCE else LEAST)
    assert number(what, 1) == 1


@pytest.mark.parametrize(
    ("taken", "pairs"), [(0.4, 5), (2.0, 3), (60.0, 3)], ids=["short", "longer than a second", "long"]
)
def test_slow_measurements_stop_after_fewer_pairs(taken, pairs):
    other, reference = make_participant(taken), make_participant(0.1)
    compare.measure([reference, other], "call", LEAST)
    assert (len(other.pairs["call"]), len(reference.pairs["call"])) == (pairs, pairs)


def test_reference_keeps_all_measurements():
    reference, *others = everyone = [make_participant(1e-3), make_participant(2e-3), make_participant(4e-3)]
    compare.measure(everyone, "call", 2)
    assert reference.pairs == {"call": [(1e-3, 1e-3)] * 4}
    assert [each.pairs for each in others] == [{"call": [(taken, 1e-3)] * 2} for taken in (2e-3, 4e-3)]


def test_reference_is_measured_alone_without_peers():
    reference = make_participant(1e-3)
    compare.measure([reference, make_participant(2e-3, ready=False)], "call", 2)
    assert reference.pairs == {"call": [(1e-3, 1e-3)] * 2}


def test_results_are_written_after_each_figure(tmp_path, monkeypatch):
    monkeypatch.setattr(findings, "PEERS", tmp_path / "peers.json")
    _, other = everyone = [make_participant(1e-3, "toolsemble"), make_participant(2e-3, "other")]
    other.interrupted = "refused"
    with pytest.raises(KeyboardInterrupt):
        compare.measured(everyone, 1)
    kept = findings.read(tmp_path / "peers.json")["libraries"]
    done = [*FIGURES][: [*FIGURES].index("refused")]
    assert [(each["name"], [*each["figures"]]) for each in kept] == [("toolsemble", done), ("other", done)]


@pytest.mark.parametrize("what", TIMED)
def test_toolsemble_has_every_figure(what, runner):
    work = getattr(Preparation(ours, runner), what)()
    assert work() > 0


@pytest.mark.parametrize("what", ["broken_json", "pipeline", "agent"])
def test_unsupported_figures_are_missing(what, runner):
    with pytest.raises(MissingError):
        getattr(Preparation(floor, runner), what)()


def test_number_as_text_requires_coercion(runner):
    assert Preparation(floor, runner).number_as_text()() > 0
    careless = make_peer(make_call=lambda arguments: lambda: new_search()(**json.loads(arguments)))
    with pytest.raises(MissingError, match="'5' results for weather"):
        Preparation(careless, runner).number_as_text()


def test_library_without_validation_has_no_refusal_figure(runner):
    with pytest.raises(MissingError, match="not refused"):
        Preparation(make_peer(VALIDATES=False), runner).refused()


def test_agent_that_calls_no_tool_is_not_measured(runner):
    with pytest.raises(AssertionError, match=r"after \[\]"):
        Preparation(make_peer(make_agent=lambda turns: lambda: task.ANSWER), runner).agent()


def test_agent_without_coercion_is_not_measured(runner):
    def make_agent(turns):
        def run():
            task.RAN.extend(str(number) for number in range(1, task.TURNS + 1))
            return task.ANSWER

        return run

    with pytest.raises(AssertionError, match="'1', '2'"):
        Preparation(make_peer(make_agent=make_agent), runner).agent()


def test_sequential_blocking_calls_are_not_measured(runner):
    def make_blocking(search, count):
        return lambda: [search("weather in Rome", 5, 0.5, []) for _ in range(count)]

    with pytest.raises(AssertionError, match="200 bodies in 1 threads"):
        Preparation(make_peer(make_blocking=make_blocking), runner).blocking_200()


def test_sequential_async_calls_are_not_measured(runner, monkeypatch):
    monkeypatch.setattr("timing.PATIENCE", 0.05)

    def make_parallel(search, count):
        async def turn():
            for _ in range(count):
                await search("weather in Rome", 5, 0.5, [])

        return turn

    with pytest.raises(TimeoutError):
        Preparation(make_peer(make_parallel=make_parallel), runner).async_200()


def test_size_includes_dependencies():
    alone, whole = (weight.of_distribution(name) for name in ("pydantic-core", "toolsemble"))
    assert 0 < alone["bytes"] < whole["bytes"]
    assert 0 < alone["distributions"] < whole["distributions"] < 20  # what extras need does not count


def test_participant_is_measured_in_its_own_process():
    reference, other = Participant("toolsemble", sys.executable), Participant("floor", sys.executable)
    try:
        for each in (reference, other):
            each.introduce()
            assert each.ready("call")
        other.measure("call", reference)
        assert not other.ready("agent")
    finally:
        reference.close()
        other.close()
    written = other.row()
    assert written["figures"].keys() == {"call"}
    assert written["figures"]["call"].keys() == {"seconds", "ratio", "low", "high", "pairs"}
    assert written["problem"] == ""


def test_participant_that_cannot_start_reports_reason():
    lost = Participant("nowhere", sys.executable)
    lost.introduce()
    lost.close()
    assert lost.problems == {"introduction": "ModuleNotFoundError: No module named 'peers.nowhere'"}


def test_pinned_requirements_list_compared_library_first():
    found = [SimpleNamespace(name=name, version="1.0") for name in ("zlib-ng", "Rival", "anyio", "anyio")]
    expected = [freeze.COMMENT, "Rival==1.0", "anyio==1.0", "zlib-ng==1.0", ""]
    assert freeze.frozen("# old\nRival==0.9\nother==2\n", found) == "\n".join(expected)


@pytest.mark.parametrize("name", findings.known())
def test_all_requirements_of_peer_are_pinned(name):
    comment, first, *others = (findings.REQUIREMENTS / f"{name}.txt").read_text(encoding="utf-8").splitlines()
    assert (comment, others) == (freeze.COMMENT, sorted(others, key=str.lower))
    assert first.startswith(name)
    assert [line for line in (first, *others) if not re.fullmatch(r"[\w.-]+==[\w.+]+", line)] == []


def test_unmeasured_rows_are_kept(tmp_path):
    file = tmp_path / "results" / "peers.json"
    results.write([make_row("toolsemble", 1.0), make_row("slow", 9.0), make_row("fast", 2.0)], file)
    found = results.write([make_row("toolsemble", 1.0), make_row("fast", 3.0)], file)
    assert json.loads(file.read_text()) == found
    assert found["libraries"] == [make_row("toolsemble", 1.0), make_row("fast", 3.0), make_row("slow", 9.0)]


def test_rows_of_another_setting_are_dropped(tmp_path):
    file = tmp_path / "peers.json"
    before = results.write([make_row("toolsemble", 1.0), make_row("slow", 9.0)], file)
    file.write_text(json.dumps({**before, "date": "2020-01-01"}))
    assert results.write([make_row("toolsemble", 1.0)], file)["libraries"] == [make_row("toolsemble", 1.0)]
