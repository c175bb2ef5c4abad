"""The pages and the demo, as a newcomer meets them."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import toolsemble.builtin
from toolsemble import Toolbox
from toolsemble.builtin import (
    CalculatorTool,
    DateTimeTool,
    FileReadTool,
    FileWriteTool,
    HumanInputTool,
    JsonParserTool,
    WebScraperTool,
    WebSearchTool,
)

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    page for place in ("*.md", "benchmarks/*.md", "docs/**/*.md", "examples/**/*.md") for page in ROOT.glob(place)
)
BUILTIN = ROOT / "docs" / "builtin"
NAMED = [
    CalculatorTool(),
    DateTimeTool(),
    FileReadTool(ROOT),
    FileWriteTool(ROOT),
    HumanInputTool(),
    JsonParserTool(),
    WebScraperTool(),
    WebSearchTool("duckduckgo"),
]
PROBLEMS = "query: missing; limit: expected an integer; order: expected one of 'asc', 'desc'"


def read_prose(page):
    return re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)


def list_anchors(page):
    """Return what the headings of a page are called in links."""
    headings = re.findall(r"^#+ (.+)$", read_prose(page), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def run_python(*command, folder=ROOT):
    run = subprocess.run([sys.executable, *command], cwd=folder, capture_output=True, text=True, check=True, timeout=60)
    assert run.stderr == ""
    return run.stdout


def test_first_readme_example_runs():
    code = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)[1]
    assert run_python("-c", code).splitlines() == [
        '["rome 0","rome 1"]',
        f"Error: Invalid arguments for 'search': {PROBLEMS}",
    ]


def test_quickstart_programs_run(tmp_path):
    page = (ROOT / "docs" / "quickstart.md").read_text(encoding="utf-8")
    shop, _, gated, assistant, _ = re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    written = re.findall(r"^```text\n(.*?)^```", page, re.DOTALL | re.MULTILINE)[-1]
    first = shop.index("@tool\ndef order")
    (tmp_path / "shop.py").write_text(shop[:first] + gated, encoding="utf-8")
    (tmp_path / "assistant.py").write_text(assistant, encoding="utf-8")
    assert run_python("assistant.py", folder=tmp_path) == written


def test_demo_prints_one_reply_for_each_call():
    replies = run_python("examples/demo.py", "examples/calls.json").splitlines()[1::2]
    assert [reply.strip() for reply in replies] == [
        '-> {"words":9,"characters":43}',
        "-> AL",
        "-> Error: Unknown tool 'wordcount'. Available tools: word_count, initials. Did you mean 'word_count'?",
        "-> Error: Invalid JSON input for 'initials': the text is cut off; send all of it again",
        "-> Error: '42' is not a name; pass one such as 'Ada Lovelace'",
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_between_pages_exist(page):
    for target, part in re.findall(r"\]\((?!https?:)([^)#]*)(?:#([^)]+))?\)", read_prose(page)):
        place = page.parent / target if target else page
        assert place.exists(), target
        assert not part or part in list_anchors(place), f"{target}#{part}"


@pytest.mark.parametrize("tool", NAMED, ids=lambda tool: tool.name)
def test_built_in_tool_page_shows_schema(tool):
    page = " ".join((BUILTIN / f"{tool.name}.md").read_text(encoding="utf-8").split())
    shown = Toolbox([tool]).to_openai()[0]["function"]
    assert " ".join(shown["description"].split()) in page, f"copy the description into docs/builtin/{tool.name}.md"
    for name, parameter in shown["parameters"]["properties"].items():
        row = rf"\| `{name}` \|[^|]*\| {re.escape(parameter['description'])}"
        assert re.search(row, page), f"add a row for {name}, with its description, to docs/builtin/{tool.name}.md"


def test_every_built_in_tool_has_a_page():
    pages = [page.read_text(encoding="utf-8") for page in BUILTIN.iterdir() if page.stem != "index"]
    tools = [name for name in toolsemble.builtin.__getattr__.names if name.endswith("Tool")]
    missing = [name for name in tools if not any(name in page for page in pages)]
    assert missing == [], "write its page in docs/builtin, as CONTRIBUTING.md says"


def test_built_in_tool_index_links_every_page():
    linked = set(re.findall(r"\]\((\w+\.md)\)", (BUILTIN / "index.md").read_text(encoding="utf-8")))
    pages = {page.name for page in BUILTIN.iterdir()} - {"index.md"}
    assert linked == pages, "add a row with a link to the table in docs/builtin/index.md"


@pytest.mark.parametrize("page", sorted(set(BUILTIN.glob("*.md")) - {BUILTIN / "index.md"}), ids=lambda page: page.stem)
def test_built_in_tool_pages_have_same_sections(page):
    parts = re.findall(r"^## (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    expected = ["What the model sees", "Examples", "Limits", "Security", "Settings"]
    assert parts == expected, f"write these sections, in this order, in docs/builtin/{page.name}: {expected}"


def test_architecture_page_names_every_module():
    listed = set(re.findall(r"^\| `(\w+)` \|", (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8"), re.MULTILINE))
    there = {
        path.stem
        for path in (ROOT / "src/toolsemble").iterdir()
        if path.suffix in {".py", ""} and path.stem[:2] != "__"
    }
    assert listed == there
