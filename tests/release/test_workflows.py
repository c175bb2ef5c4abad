"""Workflows run targets that exist, and publish nothing without a tag; commit hooks run what `make lint` runs."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def read_workflow(path):
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def find_steps(workflow):
    return [step for job in workflow["jobs"].values() for step in job["steps"]]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_every_target_that_a_workflow_runs_is_in_the_makefile(path):
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    run = [step["run"] for step in find_steps(read_workflow(path)) if "run" in step]
    lines = [line.split() for each in run for line in each.splitlines() if line.startswith("make ")]
    used = {word for line in lines for word in line[1:] if "=" not in word}
    assert used
    assert used <= targets


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_jobs_are_bounded_and_may_only_read_unless_they_publish(path):
    workflow = read_workflow(path)
    assert workflow["permissions"] == {"contents": "read"}
    for name, job in workflow["jobs"].items():
        assert job["timeout-minutes"] <= 40
        assert job.get("permissions") == ({"id-token": "write"} if name == "publish" else None)


def test_tests_run_on_three_systems_and_on_every_supported_python():
    matrix = read_workflow(ROOT / ".github" / "workflows" / "ci.yml")["jobs"]["test"]["strategy"]["matrix"]
    assert len(matrix["os"]) == 3
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert matrix["python"] == ["3.11", "3.12", "3.13", "3.14"]
    assert set(re.findall(r"Python :: (3\.\d+)\"", text)) <= set(matrix["python"])


def test_only_a_tag_publishes():
    # YAML 1.1 reads the key `on` as true.
    assert read_workflow(ROOT / ".github" / "workflows" / "release.yml")[True] == {"push": {"tags": ["v*"]}}


def test_commit_hooks_run_the_checks_of_make_lint_in_their_pinned_versions():
    (repository,) = read_workflow(ROOT / ".pre-commit-config.yaml")["repos"]
    assert repository["repo"] == "local"  # works offline, and has no versions of its own
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    pinned = {each.partition("==")[0] for each in project["optional-dependencies"]["dev"] if "==" in each}
    packages = {"ruff": "ruff", "lint-imports": "import-linter"}
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    linted = re.search(r"^lint:.*\n((?:\t.*\n)+)", makefile, re.MULTILINE)[1]
    linted = linted.replace("$(LINT_IMPORTS)", re.search(r"^LINT_IMPORTS := (.*)$", makefile, re.MULTILINE)[1])
    for hook in repository["hooks"]:
        folder, _, command = hook["entry"].partition("/bin/")
        program, *words = command.split()
        assert folder == ".venv", hook["id"]
        assert packages[program] in pinned, hook["id"]
        assert f"$(BIN)/{' '.join([program, *words[:1]])}" in linted, hook["id"]
