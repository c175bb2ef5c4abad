"""The reference of the site: every public name is in it, once."""

import re
from collections import Counter
from importlib import import_module
from pathlib import Path

import pytest

PAGES = sorted((Path(__file__).parents[2] / "docs" / "reference").glob("*.md"))
PACKAGES = [
    "", ".agent", ".agent.streams", ".builtin", ".catalog", ".events", ".mcp", ".models", ".review", ".telemetry",
    ".testing", ".weights",
]  # fmt: skip
ENTRY = re.compile(
    r"^\.\. (?:currentmodule:: (?P<module>\S+)|(?:auto(?!module)|py:)\w+:: (?P<name>[\w.]+))", re.MULTILINE
)


def find_entries():
    """Return the full name of each entry."""
    for page in PAGES:
        module = ""
        for found in ENTRY.finditer(page.read_text(encoding="utf-8")):
            module = found["module"] or module
            if found["name"]:
                yield found["name"] if found["name"].startswith("toolsemble.") else f"{module}.{found['name']}"


def import_entry(entry):
    module, _, name = entry.rpartition(".")
    return getattr(import_module(module), name)


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_name_has_an_entry(package):
    described = [import_entry(entry) for entry in find_entries()]
    module = import_module(f"toolsemble{package}")
    names = module.__getattr__.names if hasattr(module, "__getattr__") else module.__all__
    missing = [f"toolsemble{package}.{name}" for name in names if getattr(module, name) not in described]
    assert missing == [], "add an entry, such as `.. autoclass:: Name`, to a page of docs/reference"


def test_no_name_has_two_entries():
    twice = [entry for entry, count in Counter(find_entries()).items() if count > 1]
    assert twice == [], "keep one entry of each in docs/reference"


def test_index_links_every_page():
    index = (PAGES[0].parent / "index.md").read_text(encoding="utf-8")
    assert {f"{name}.md" for name in re.findall(r"\]\((\w+)\.md\)", index)} == {page.name for page in PAGES} - {
        "index.md"
    }
