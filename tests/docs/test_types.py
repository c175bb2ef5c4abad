"""The programs of the pages, as type checkers see them: each page is one module."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md"))]
BLOCK = re.compile(r"^(?:```python|<!-- invisible-code-block: python)\n(.*?)^(?:```|-->)", re.DOTALL | re.MULTILINE)

# The same name stands for another tool, model or result in the next program of a page.
RENAMED = ("no-redef", "assignment")

# Pages show the heads of programs, not the packages around them.
pytestmark = pytest.mark.slow


def write_modules(folder):
    """Write the programs of each page as a module whose lines have the numbers of the page; return the files."""
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        lines = [""] * (text.count("\n") + 1)
        for block in BLOCK.finditer(text):
            start = text.count("\n", 0, block.start(1))
            for number, line in enumerate(block[1].splitlines()):
                lines[start + number] = line
        name = re.sub(r"\W", "_", str(page.relative_to(ROOT).with_suffix("")))
        if any(lines):
            (folder / f"page_{name}.py").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return sorted(folder.glob("page_*.py"))


def run(*command, folder):
    return subprocess.run([*command], cwd=folder, capture_output=True, text=True, check=False, timeout=110)


def test_mypy_accepts_the_programs_of_the_pages_in_strict_mode(tmp_path):
    files = write_modules(tmp_path)
    options = [
        "--strict",
        "--allow-redefinition",
        "--config-file=",
        "--no-error-summary",
        "--cache-dir",
        str(ROOT / ".mypy_cache"),
    ]
    checked = run(sys.executable, "-m", "mypy", *options, *[file.name for file in files], folder=tmp_path)
    assert checked.stdout.splitlines() == []


def test_pyright_accepts_the_programs_of_the_pages(tmp_path):
    write_modules(tmp_path)
    settings = {"typeCheckingMode": "standard", "pythonVersion": "3.11"}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings), encoding="utf-8")
    checked = run(sys.executable, "-m", "basedpyright", "--pythonpath", sys.executable, "--outputjson", folder=tmp_path)
    found = json.loads(checked.stdout)["generalDiagnostics"]
    problems = [
        f"{Path(each['file']).name}:{each['range']['start']['line'] + 1}: {each['message']}"
        for each in found
        if each["severity"] == "error"
    ]
    assert problems == []
