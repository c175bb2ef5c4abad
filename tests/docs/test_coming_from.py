"""The pages for people who come from other libraries name only what toolsemble has."""

import re
from importlib import import_module
from pathlib import Path

import pytest

from toolsemble import Agent, Toolbox

FOLDER = Path(__file__).parents[2] / "docs" / "coming-from"
PAGES = sorted(set(FOLDER.glob("*.md")) - {FOLDER / "index.md"})
MODULES = [
    import_module(name)
    for name in (
        "toolsemble",
        "toolsemble.agent",
        "toolsemble.builtin",
        "toolsemble.models",
        "toolsemble.review",
        "toolsemble.telemetry",
        "toolsemble.testing",
    )
]
NOT_OURS = {"Annotated", "Field", "None", "Schema", "True", "TypedDict"}


def list_sections(page):
    return re.findall(r"^## (.+)$", page.read_text("utf-8"), re.MULTILINE)


def list_our_names(page):
    """Return the code in the second column of the table of names."""
    table = page.read_text("utf-8").split("## Names")[1].split("\n## ")[0]
    rows = [re.split(r"(?<!\\)\|", line)[1:-1] for line in table.splitlines() if line.startswith("| ")]
    return [code for row in rows[2:] for code in re.findall(r"`([^`]+)`", row[1])]


def test_index_links_every_page():
    linked = set(re.findall(r"\]\(([\w-]+\.md)\)", (FOLDER / "index.md").read_text("utf-8")))
    assert linked == {page.name for page in PAGES}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_pages_have_same_sections(page):
    names, twice, differences, moving, missing = list_sections(page)
    assert (names, differences, moving) == ("Names", "Differences that matter", "Move one tool at a time")
    assert twice in {"The same tool, twice", "The same tools, twice", "The same agent, twice"}
    assert re.fullmatch(r"What .+ has and toolsemble does not", missing)
    assert 50 <= len(page.read_text("utf-8").splitlines()) <= 140


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_names_in_tables_exist(page):
    codes = list_our_names(page)
    assert len(codes) > 10
    names = {name for code in codes for name in re.findall(r"(?<![\w.\"])[A-Z][a-z]\w+", code)} - NOT_OURS
    assert {name for name in names if not any(hasattr(module, name) for module in MODULES)} == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_methods_in_pages_exist(page):
    text = page.read_text("utf-8").split("## Names")[1]
    ours = "\n".join([*list_our_names(page), *re.findall(r"```python\n(.*?)```", text, re.DOTALL)])
    for name, owner in (("agent", Agent), ("box", Toolbox)):
        assert {method for method in re.findall(rf"\b{name}\.(\w+)", ours) if not hasattr(owner, method)} == set()
