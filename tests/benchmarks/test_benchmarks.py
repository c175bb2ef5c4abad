"""What the benchmarks measure, and what they make of it; the figures here are made up."""

import asyncio
import json
import re
from functools import partial
from itertools import count
from typing import get_type_hints

import cells
import findings
import plots
import pytest
import report
import run
import summary
import versus
from own import (
    agents,
    build,
    calls,
    definitions,
    growth,
    imports,
    job,
    journal,
    measure,
    parallel,
    pipelines,
    scale,
    telemetry,
    web,
)
from own.measure import Comparison, Subject, awaited, computed, once, pairs, settled
from own.steady_loop import SteadyLoop
from peers import task
from ratio import rounded, spread
from timing import Repeated

pytestmark = pytest.mark.slow

SMALL = {
    imports: {},
    definitions: {},
    calls: {},
    pipelines: {"items": 3, "places": 2},
    agents: {"turns": 2, "many": 2, "conversation": (2, 1)},
    journal: {"turns": 2, "replayed": 2},
    parallel: {"waiting": (1, 2), "blocking": 2},
    telemetry: {"turns": 2},
    web: {"paragraphs": 3},
}
SETTING = {"toolsemble": "1.2.3", "python": "3.11.7", "machine": "x86_64, 2 cores, some", "date": "2026-11-15"}


def make_row(**changes):
    subject = Subject("call", "a valid call", "`validate_json`", "< 4", "call")
    return subject.row([(8e-6, 2e-6), (9e-6, 3e-6), (7e-6, 2e-6)]) | changes


def make_results(*rows, growth=(("tools in a toolbox", (3e-3, 2e-3, 2e-3, 2e-3)),)):
    lines = [
        {"what": what, "points": [[10 ** (power + 1), each] for power, each in enumerate(taken)]}
        for what, taken in growth
    ]
    figures = [make_row(figure=figure) for figure in ("call", "agent", "import")]
    size = {"bytes": 25_100_000, "distributions": 9}
    return {**SETTING, "rows": [*figures, *rows], "growth": lines, "size": size}


def make_library(name, validates="yes", problem="", **ratios):
    figures = {
        figure: {"seconds": ratio * 1e-5, "ratio": ratio, "low": ratio, "high": ratio * 2, "pairs": 3}
        for figure, ratio in ratios.items()
    }
    facts = {"version": "1.0", "validates": validates, "bytes": 12_340_000, "distributions": 3}
    return {"name": name, **facts, "figures": figures, "problem": problem}


def make_peers(*libraries):
    ours = make_library("toolsemble", call=1, agent=1, **{"import": 1})
    return {**SETTING, "libraries": [ours, make_library("floor (pydantic-core)", call=0.3), *libraries]}


def test_comparison_is_median_of_paired_ratios():
    subject = Subject("call", "ours", "other", "< 4", "call")
    assert subject.row([(4.0, 1.0), (9.0, 3.0), (10.0, 5.0)]) == {
        "group": "call",
        "what": "ours",
        "against": "other",
        "figure": "call",
        "itself": False,
        "unit": "s",
        "ours": 9.0,
        "other": 3.0,
        "ratio": 3.0,
        "low": 2.0,
        "high": 4.0,
        "pairs": 3,
        "aim": "< 4",
    }


@pytest.mark.parametrize(
    ("values", "expected"),
    [([5], (5, 5)), ([3, 1, 2], (1, 3)), (range(1, 11), (2, 9)), (range(100, 0, -1), (11, 90))],
)
def test_spread_omits_outer_tenths(values, expected):
    assert spread(list(values)) == expected


@pytest.mark.parametrize(
    ("number", "expected"), [(0, 0.0), (1234.567, 1235), (1.23456, 1.235), (0.0000123456, 0.00001235), (-2.00049, -2.0)]
)
def test_figures_are_stored_with_four_digits(number, expected):
    assert rounded(number) == expected


def test_comparison_alternates_between_sides():
    went = []
    assert pairs(lambda: went.append("a") or 1.0, lambda: went.append("b") or 2.0, 0, 3) == [(1.0, 2.0)] * 3
    assert "".join(went) == "ababab"


def test_comparison_warms_up_first():
    ours, other = iter([9.0, 2.0, 4.0]), iter([9.0, 1.0, 1.0])
    found = Comparison(Subject("call", "ours", "other"), ours.__next__, other.__next__).measured(0, 2)
    assert (found["ratio"], found["pairs"]) == (3.0, 2)


def test_growth_sizes_alternate():
    went, taken = [], iter([3.0, 30.0, 1.0, 10.0, 2.0, 20.0])
    goes = {size: lambda size=size: went.append(size) or next(taken) for size in (1, 10)}
    assert growth.by_turns(goes, 0) == [[1, 2.0], [10, 20.0]]
    assert went == [1, 10] * growth.ROUNDS


def test_imports_have_aims():
    aims = [(each.subject.what, each.subject.aim) for each in imports.comparisons()]
    assert aims[:2] == [("`import toolsemble`", "< 0.2"), (f"`{imports.NEEDED}`", "< 1.5")]


def test_measurement_without_time_runs_once():
    goes = iter([3.0, 1.0])
    assert settled(goes.__next__, 0) == 3.0


def test_short_work_is_repeated_until_measurable():
    now, done = iter(range(1000)), []
    assert Repeated(lambda: done.append(1), lambda: next(now) * 0.002)() == 0.002
    assert len(done) == 3  # to warm up, to find out that one is enough, and to measure


def test_computing_and_waiting_use_different_clocks(monkeypatch):
    processor, wall = count(0, 2), count(0, 3)
    monkeypatch.setattr(measure, "PROCESSOR", lambda: next(processor))
    monkeypatch.setattr(measure, "WALL", lambda: next(wall))
    with asyncio.Runner() as runner:
        assert computed(runner, partial(asyncio.sleep, 0), 4)() == 0.5
    assert once(list)() == 3


def test_waits_of_steady_loop_are_counted_and_not_made():
    async def wait():
        await asyncio.gather(asyncio.sleep(3600), asyncio.sleep(7200))

    with asyncio.Runner(loop_factory=SteadyLoop) as runner:
        assert 7200 <= awaited(runner, wait)() < 7260


def test_steady_loop_is_woken_by_other_threads():
    async def ask():
        return await asyncio.get_running_loop().run_in_executor(None, lambda: 42)

    with asyncio.Runner(loop_factory=SteadyLoop) as runner:
        assert runner.run(ask()) == 42


@pytest.mark.parametrize("part", SMALL, ids=lambda part: part.__name__)
def test_every_comparison_runs(part):
    found = [each.subject.row([(each.ours(), each.other())]) for each in part.comparisons(**SMALL[part])]
    assert found
    for each in found:
        assert min(each["ours"], each["other"], each["ratio"], each["low"], each["high"]) > 0
        assert each["group"] in report.GROUPS
        cells.is_met(each)


def test_every_part_runs():
    assert set(run.PARTS) == set(SMALL)


def test_rows_are_measured_and_printed(monkeypatch, capsys):
    class Part:
        @staticmethod
        def comparisons():
            yield Comparison(Subject("call", "ours", "other", "< 4"), lambda: 3e-6, lambda: 1e-6)

    monkeypatch.setattr(run, "PARTS", (Part, Part))
    found = [run.told(each) for each in run.rows(0, 1)]
    assert [each["ratio"] for each in found] == [3.0, 3.0]
    words = "3.00 3.00 µs / 1.00 µs < 4, met ours / other"
    assert capsys.readouterr().out.split() == f"{words} {words}".split(" ")


@pytest.mark.parametrize(("arguments", "ran"), [(task.COERCED, True), (job.FENCED, True), (task.WRONG_TYPE, False)])
def test_sample_calls_are_repaired_or_rejected(arguments, ran):
    reply = build.toolbox(1).execute(build.ToolCall("search_0", arguments))
    assert ("results for weather in Rome" in reply.text) == ran
    assert bool(reply.result.attributes.get("repairs")) == ran


def test_many_tools_are_measured_in_fresh_processes():
    found = scale.Scale(sizes=(1, 2, 4), rounds=1)
    assert [each["ratio"] > 0 for each in found.rows()] == [True] * 5
    assert [each["what"] for each in found.rows()][::2] == [
        "2 tools in a toolbox",
        "4 tools in a toolbox",
        "a call of one of 4 tools in a toolbox",
    ]
    assert [[size for size, _ in each["points"]] for each in found.growth()] == [[1, 2, 4]] * 2


def test_growth_has_one_point_per_size():
    found = growth.growths(sizes=(1, 2), seconds=0)
    assert [each["what"] for each in found] == ["turns of a conversation", "turns of one run", "concurrent calls"]
    assert all([size for size, _ in each["points"]] == [1, 2] for each in found)
    assert all(taken > 0 for each in found for _, taken in each["points"])


@pytest.mark.parametrize(
    ("taken", "expected"),
    [
        (4e-10, "0.40 ns"),
        (1.234e-6, "1.23 µs"),
        (99.96e-6, "100 µs"),
        (0.99999e-3, "1.00 ms"),
        (0.0123, "12.3 ms"),
        (61, "61.0 s"),
    ],
)
def test_times_have_three_digits(taken, expected):
    assert cells.seconds(taken) == expected


@pytest.mark.parametrize(
    ("ratio", "expected"), [(0.3, "0.30 times"), (2.345, "2.3 times"), (9.96, "10 times"), (1234.5, "1,234 times")]
)
def test_ratios_have_significant_digits(ratio, expected):
    assert cells.times(ratio) == expected


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, "< 4, met"),
        ({"ratio": 4}, "< 4, **missed**"),
        ({"aim": ""}, ""),
        ({"aim": "< 8 µs more"}, "< 8 µs more, met"),
        ({"aim": "< 6 µs more"}, "< 6 µs more, **missed**"),
        ({"aim": "< 9 µs"}, "< 9 µs, met"),
        ({"aim": "< 8 µs"}, "< 8 µs, **missed**"),
    ],
)
def test_aim_cell_shows_whether_aim_is_met(changes, expected):
    assert cells.aim_of(make_row(**changes)) == expected


def test_invalid_aim_is_rejected():
    with pytest.raises(ValueError, match="not 'fast': a valid call"):
        cells.is_met(make_row(aim="fast"))


@pytest.mark.parametrize(
    ("taken", "expected"),
    [((9, 2, 2, 2), True), ((1, 2, 2, 2.9), True), ((1, 2, 2, 3), False), ((1, 1, 10, 100), False)],
)
def test_growth_is_linear_when_cost_per_item_is_stable(taken, expected):
    assert report.is_linear(make_results(growth=[("tools", taken)])["growth"][0]) == expected


def test_page_without_peers_names_make_target():
    page = report.page(make_results(), None)
    assert "toolsemble 1.2.3, Python 3.11.7, x86_64, 2 cores, some, 2026-11-15." in page
    assert "| a valid call | `validate_json` | **3.50** (3.00 to 4.00) | 8.00 µs / 2.00 µs | < 4, met |" in page
    assert "| tools in a toolbox | 3.00 ms | 2.00 ms | 2.00 ms | 2.00 ms | yes |" in page
    assert "takes 25.1 MB in 9 distributions." in page
    assert "Not measured yet; run `make bench-peers`" in page
    assert page.endswith("Every aim is met, and no measured library is faster.\n")


def test_page_lists_figures_where_toolsemble_is_behind():
    slow, large = make_row(ratio=5, what="a slow call"), make_row(ratio=2, what="a large call", aim="")
    itself = make_row(ratio=2, what="a limited call", aim="", itself=True)
    found = make_results(slow, large, itself, make_row(ratio=0.9, aim=""), growth=[("turns", (1, 1, 2, 4))])
    rival = make_library("rival", call=0.8, agent=12, **{"import": 6})
    page = report.page(found, make_peers(rival, make_library("loose", validates="no", call=0.5)))
    listed, _, reasons = page.partition("## Where toolsemble is not ahead\n\n")[2].partition("\n### Why\n")
    assert reasons
    assert listed.splitlines() == [
        "- a slow call / `validate_json`: 5.0 times, 8.00 µs / 2.00 µs; the aim is < 4",
        "- a large call / `validate_json`: 2.0 times, 8.00 µs / 2.00 µs; no aim",
        "- turns: not linear",
        "- valid call: rival takes 0.80 times toolsemble's time",
        "- valid call: loose takes 0.50 times toolsemble's time",
        "- valid call: rival takes 0.80 times toolsemble's time, the aim is 5 times",
        "- cold import: rival takes 6.0 times toolsemble's time, the aim is 20 times",
    ]


def test_page_sorts_libraries_by_call_time():
    slow, quick = make_library("slow", call=20, agent=30), make_library("quick", call=6)
    broken = make_library("broken", problem="no wheel")
    quick["figures"]["call"]["bytes"] = 5_000_000
    page = report.page(make_results(), make_peers(slow, broken, quick))
    table = page.partition("### One tool\n\n")[2].partition("\n\n")[0].splitlines()[2:]
    assert [re.sub(r"\*", "", line).split(" | ")[0][2:] for line in table] == [
        "floor (pydantic-core)",
        "toolsemble",
        "quick",
        "slow",
        "broken",
    ]
    assert "| none | 60.0 µs, **6.00** (6.00 to 12.00), 5.00 MB |" in page
    assert "| quick | 1.0 | yes | 12.3 MB | 3 |" in page
    assert "broken is missing or incomplete: no wheel" in page


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ({"low": 1.0, "high": 2.0, "pairs": 3}, "(1.00 to 2.00)"),
        ({"low": 1.0, "high": 1.0, "pairs": 3}, ""),
        ({"low": 1.0, "high": 2.0, "pairs": 2}, "(1.00 to 2.00, two pairs)"),
        ({"low": 1.0, "high": 1.0, "pairs": 1}, "(one pair)"),
        ({"low": 1.0, "high": 2.0}, "(1.00 to 2.00)"),
    ],
)
def test_small_pair_counts_are_shown_with_ratio(found, expected):
    assert cells.spread_of(found) == expected


def test_page_omits_unmeasured_columns():
    page = report.page(make_results(), make_peers(make_library("rival", call=2)))
    assert "| library | cold import | valid call |" in page
    assert "### Many tools" not in page


def test_page_lists_libraries_that_use_less():
    light, heavy = make_library("light", call=9, thousand=9), make_library("heavy", call=9, thousand=9)
    light |= {"bytes": 1_000_000, "distributions": 1}
    compared = make_peers(light, heavy)
    sizes = (9_000_000, 4_000_000, 9_500_000)
    for each, held in zip((compared["libraries"][0], light, heavy), sizes, strict=True):
        each["figures"].setdefault("thousand", dict(each["figures"]["call"]))["bytes"] = held
    assert [*versus.behind(compared)] == [
        "memory of 1,000 tools: light takes 4.00 MB, toolsemble 9.00 MB",
        "installed: light takes 1.00 MB, toolsemble 12.3 MB",
        "distributions: light takes 1, toolsemble 3",
    ]


def test_page_lists_unmeasured_libraries(monkeypatch):
    monkeypatch.setattr(versus, "known", lambda: ["lost", "rival", "tired"])
    assert "Not measured this time: lost, tired." in report.page(
        make_results(), make_peers(make_library("rival", call=2))
    )


def test_aims_are_compared_with_nearest_library():
    unchecked = make_library("unchecked", validates="no", call=2)
    found = versus.verdicts(make_peers(unchecked, make_library("far", call=9), make_library("near", call=4, agent=11)))
    assert [(verdict.aim.figure, verdict.nearest, verdict.reached, verdict.is_met) for verdict in found] == [
        ("call", "near", 4, False),
        ("agent", "near", 11, True),
    ]


def test_page_table_rows_have_equal_cell_counts():
    page = report.page(make_results(), make_peers(make_library("rival", call=2, agent=3)))
    tables = re.findall(r"(?:^\|.*\n)+", page, re.MULTILINE)
    assert len(tables) == 7
    for lines in map(str.splitlines, tables):
        assert {line.count("|") for line in lines} == {lines[0].count("|")}


def test_page_links_every_plot():
    linked = re.findall(r"!\[.+\]\(plots/(\w+)\.svg\)", report.page(make_results(), None))
    assert linked == list(plots.PLOTS)


def test_results_round_trip(tmp_path):
    path = tmp_path / "results" / "own.json"
    assert findings.read(path) is None
    findings.write(path, make_results())
    assert findings.read(path) == json.loads(json.dumps(make_results()))


def test_page_is_written_from_stored_results(tmp_path, monkeypatch):
    kept, page, first = (tmp_path / name for name in ("own.json", "README.md", "first.md"))
    monkeypatch.setattr(report, "OWN", kept)
    monkeypatch.setattr(report, "PEERS", tmp_path / "peers.json")
    with pytest.raises(SystemExit, match="run: make bench"):
        report.main(page, first)
    findings.write(kept, make_results())
    first.write_text(f"{summary.BEGIN}old\n{summary.END}")
    report.main(page, first)
    assert page.read_text(encoding="utf-8") == report.page(make_results(), None)
    assert first.read_text() == f"{summary.BEGIN}old\n{summary.END}"


def test_first_page_shows_main_figures():
    compared = make_peers(make_library("pydantic-ai", call=4), make_library("slow", call=20))
    written = summary.placed(f"Before\n{summary.BEGIN}old\n{summary.END}\nafter", compared)
    lines = written.splitlines()
    assert (lines[0], lines[-1]) == ("Before", "after")
    assert [cell.split()[0] for cell in lines[2].split("|")[2:-1]] == ["toolsemble", "pydantic-ai"]
    assert lines[4] == "| a call, from JSON text to reply text | 10.0 µs | 40.0 µs (4.0) |"
    assert lines[6].endswith("| 10.0 µs | none |")
    assert summary.placed("no marks", compared) == "no marks"


def test_committed_page_matches_committed_results():
    kept, compared = findings.read(findings.OWN), findings.read(findings.PEERS)
    assert set(kept) == set(get_type_hints(findings.Own))
    assert {frozenset(each) for each in kept["rows"]} == {frozenset(get_type_hints(findings.Row))}
    assert report.PAGE.read_text(encoding="utf-8") == report.page(kept, compared)
    first = report.FIRST.read_text(encoding="utf-8")
    assert first == summary.placed(first, compared)
    assert {path.stem for path in plots.FOLDER.iterdir()} == set(plots.PLOTS)


def test_bars_include_every_library_with_the_figure():
    compared = make_peers(make_library("slow", call=20), make_library("quick", call=6), make_library("without"))
    assert plots.bars(make_results(), compared, "call") == [
        plots.Bar("floor (pydantic-core)", 0.3 * 1e-5, 0.3),
        plots.Bar("toolsemble", 1e-5, 1),
        plots.Bar("quick", 6 * 1e-5, 6),
        plots.Bar("slow", 20 * 1e-5, 20),
    ]


def test_bars_show_floor_without_peers():
    assert plots.bars(make_results(), None, "call") == [
        plots.Bar("validate_json", 2e-6, 1 / 3.5),
        plots.Bar("toolsemble", 8e-6, 1),
    ]


@pytest.mark.parametrize(
    ("bar", "expected"),
    [(plots.Bar("toolsemble", 8e-6, 1), "8.00 µs"), (plots.Bar("other", 8e-5, 10), "80.0 µs  ·  10 times")],
)
def test_bars_are_labeled_with_time(bar, expected):
    assert bar.label == expected


def test_plots_are_deterministic(tmp_path):
    compared = make_peers(make_library("rival", call=20, agent=30, **{"import": 40}))
    first, second = (plots.draw(make_results(), compared, tmp_path / name) for name in "ab")
    assert [path.name for path in first] == ["call.svg", "agent.svg", "import.svg", "growth.svg"]
    for one, other in zip(first, second, strict=True):
        assert one.read_bytes() == other.read_bytes()
    text = first[0].read_text(encoding="utf-8")
    assert re.findall(r">([^<>\n]*rival[^<>\n]*)<", text) == ["rival"]
    assert "<dc:date>" not in text
