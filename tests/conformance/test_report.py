"""The results of the conformance suite: compared with the baseline and with the documentation."""

from pathlib import Path

import pytest

from conformance.report import find_problems, read_baseline, read_results, write_table

DOCS = Path(__file__).parents[2] / "docs"
PASSES = {"required": {"tools-list": True}, "further": {}}
FAILS = {"required": {"tools-list": True}, "further": {"tasks-lifecycle": False}}


def build_results(server=PASSES, client=PASSES):
    return {"server": {"2026-07-28": server}, "client": {"2026-07-28": client}}


def test_the_documentation_shows_what_the_last_run_found():
    found = read_results()
    page = (DOCS / "mcp-server.md").read_text(encoding="utf-8")
    assert write_table(found["results"]) in page
    name, _, version = found["suite"].rpartition("@")
    assert f"`{name}` {version}" in page


def test_the_last_run_was_as_the_baseline_says():
    assert find_problems(read_results()["results"], read_baseline()) == []


def test_all_required_scenarios_pass():
    for revisions in read_results()["results"].values():
        for kinds in revisions.values():
            assert all(kinds["required"].values())


def test_the_table_counts_what_passes():
    rows = write_table(build_results(server=FAILS)).splitlines()
    assert rows[2:] == ["| server, 2026-07-28 | 1 of 1 | 0 of 1 |", "| client, 2026-07-28 | 1 of 1 | 0 of 0 |"]


@pytest.mark.parametrize(
    ("results", "baseline", "problems"),
    [
        (build_results(), {}, []),
        (build_results(server=FAILS), {"server": {"tasks-lifecycle": "not implemented"}}, []),
        (build_results(server=FAILS), {}, ["server 2026-07-28: tasks-lifecycle fails"]),
        (
            build_results(server=FAILS),
            {"client": {"tasks-lifecycle": "not implemented"}},
            [
                "server 2026-07-28: tasks-lifecycle fails",
                "client: tasks-lifecycle is in the baseline, but does not exist",
            ],
        ),
        (
            build_results(client={"required": {}, "further": {"auth/dpop": True}}),
            {"client": {"auth/dpop": "a draft"}},
            ["client 2026-07-28: auth/dpop passes, but is in the baseline; remove it there"],
        ),
        (
            build_results(client={"required": {"auth/dpop": False}, "further": {}}),
            {"client": {"auth/dpop": "a draft"}},
            ["client 2026-07-28: auth/dpop is required, and may not be in the baseline"],
        ),
        (
            build_results(server=FAILS),
            {"server": {"tasks-lifecycle": " "}},
            ["server: tasks-lifecycle is in the baseline without a reason"],
        ),
    ],
)
def test_a_result_that_is_not_as_the_baseline_says_is_a_problem(results, baseline, problems):
    assert find_problems(results, baseline) == problems
