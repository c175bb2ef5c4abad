"""The cases with the frameworks that are installed here, and the table that the docs show of all of them."""

import re
from pathlib import Path

import pytest

from interop import table
from interop.cases import CASES, ways
from interop.kit import load
from toolsemble._tools.mistakes import FRAMEWORKS

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent
# Strands, CrewAI and Google ADK need older versions of packages that are used here; DSPy and LlamaIndex are heavy.
INSTALLED = ["agent_framework", "autogen", "haystack", "langchain", "openai_agents", "pydantic_ai", "smolagents"]


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("framework", INSTALLED)
async def test_frameworks_show_what_a_toolbox_answers(framework, case):
    driver, module = load(framework)
    for run in ways(driver, case):
        await CASES[case](driver, module, run)


def test_docs_show_the_table_of_the_last_run():
    assert table.BETWEEN.search(table.PAGE.read_text(encoding="utf-8"))[0] == table.render(table.read())


def test_every_framework_was_run_with_the_version_that_is_pinned():
    pinned = {file.stem: file.read_text(encoding="utf-8") for file in (HERE / "requirements").glob("*.txt")}
    found = table.read()
    assert found.keys() == pinned.keys()
    for name, each in found.items():
        for distribution, version in each["versions"].items():
            assert f"\n{distribution.lower()}=={version}\n" in pinned[name].lower().replace("_", "-")


def test_every_case_holds_with_every_framework():
    for name, each in table.read().items():
        assert {case for case, outcome in each["cases"].items() if outcome == "no"} == set(), name
        assert list(each["cases"]) == [*CASES, "page"]
        assert table.holds(each), (
            f"{name}: exported tools take {each['overhead']['ratio']} times as long as native ones"
        )


def test_every_module_is_described_and_recognized():
    source = HERE.parents[1] / "src" / "toolsemble" / "interop"
    modules = {file.stem for file in source.glob("*.py") if "def adopt(" in file.read_text(encoding="utf-8")}
    page = (HERE.parents[1] / "docs" / "reference" / "interop.md").read_text(encoding="utf-8")
    assert set(re.findall(r"currentmodule:: toolsemble\.interop\.(\w+)", page)) == modules
    assert modules <= {module for module, _ in FRAMEWORKS.values()}
