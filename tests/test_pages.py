"""The first page and the demo, as a newcomer meets them."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROBLEMS = "query: missing; limit: expected an integer; order: expected one of 'asc', 'desc'"


def output_of(*command):
    run = subprocess.run([sys.executable, *command], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60)
    assert run.stderr == ""
    return run.stdout


def test_the_first_code_of_the_readme_works_as_it_stands():
    code = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)[1]
    assert output_of("-c", code).splitlines() == [
        '["rome 0","rome 1"]',
        f"Error: Invalid arguments for 'search': {PROBLEMS}",
    ]


def test_the_demo_prints_one_reply_for_each_call():
    replies = output_of("examples/demo.py", "examples/calls.json").splitlines()[1::2]
    assert [reply.strip() for reply in replies] == [
        '-> {"words":9,"characters":43}',
        "-> AL",
        "-> Error: Unknown tool 'wordcount'. Available tools: word_count, initials. Did you mean 'word_count'?",
        "-> Error: Invalid JSON input for 'initials': the text is cut off; send all of it again",
        "-> Error: '42' is not a name; pass one such as 'Ada Lovelace'",
    ]


@pytest.mark.parametrize("page", sorted(ROOT.glob("*.md")), ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page):
    for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target


def test_the_architecture_page_names_every_module():
    listed = set(re.findall(r"^\| `(\w+)` \|", (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8"), re.MULTILINE))
    there = {
        path.stem for path in (ROOT / "src/toolsemble").iterdir() if path.suffix in {".py", ""} and path.stem[0] != "_"
    }
    assert listed == there
