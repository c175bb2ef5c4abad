"""The programs of the pages, as type checkers see them: each page is one module."""

import json
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md"))]
BLOCK = re.compile(r"^(?:```python|<!-- invisible-code-block: python)\n(.*?)^(?:```|-->)", re.DOTALL | re.MULTILINE)
SKIPPED = re.compile(r'^<!--- skip: next if\(find_spec\("(\w+)"\) is None, [^\n]*-->\n\n\Z', re.MULTILINE)

# Two seconds with the caches of an earlier run, a minute without.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

# The next program of a page may define a tool again, with another decorator.
REDEFINITION = {"mypy": "no-redef", "pyright": "reportRedeclaration"}


def write_modules(folder):
    """Write the programs of each page as a module whose lines have the numbers of the page; return the files."""
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        lines = [""] * (text.count("\n") + 1)
        for block in filter(is_checked, BLOCK.finditer(text)):
            start = text.count("\n", 0, block.start(1))
            for number, line in enumerate(block[1].splitlines()):
                lines[start + number] = line
        name = re.sub(r"\W", "_", str(page.relative_to(ROOT).with_suffix("")))
        if any(lines):
            (folder / f"page_{name}.py").write_text("\n".join(lines) + "\n", encoding="utf-8")
    # The first program of this page is a file that the next one imports.
    quickstart = (ROOT / "docs" / "quickstart.md").read_text(encoding="utf-8")
    (folder / "shop.py").write_text(BLOCK.search(quickstart)[1], encoding="utf-8")
    return sorted(folder.glob("page_*.py"))


def is_checked(block):
    """Return whether a program needs no package that is missing here."""
    skipped = SKIPPED.search(block.string[: block.start()])
    return skipped is None or find_spec(skipped[1]) is not None


def run(*command, folder):
    return subprocess.run([*command], cwd=folder, capture_output=True, text=True, check=False, timeout=590)


def test_programs_of_pages_pass_mypy_strict(tmp_path):
    files = write_modules(tmp_path)
    options = ["--strict", "--allow-redefinition", "--disable-error-code", REDEFINITION["mypy"], "--config-file="]
    cache = ["--no-error-summary", "--cache-dir", str(ROOT / ".mypy_cache" / "pages")]
    names = [file.name for file in files]
    checked = run(sys.executable, "-m", "mypy", *options, *cache, *names, folder=tmp_path)
    assert checked.stdout.splitlines() == []


def check_with_pyright(folder):
    """Return the errors that pyright finds in a folder."""
    settings = {"typeCheckingMode": "standard", "pythonVersion": "3.11", REDEFINITION["pyright"]: "none"}
    (folder / "pyrightconfig.json").write_text(json.dumps(settings), encoding="utf-8")
    checked = run(sys.executable, "-m", "basedpyright", "--pythonpath", sys.executable, "--outputjson", folder=folder)
    return [
        f"{Path(each['file']).name}:{each['range']['start']['line'] + 1}: {each['message']}"
        for each in json.loads(checked.stdout)["generalDiagnostics"]
        if each["severity"] == "error"
    ]


def test_programs_of_pages_pass_pyright(tmp_path):
    write_modules(tmp_path)
    assert check_with_pyright(tmp_path) == []


def test_public_types_pass_pyright(tmp_path):
    (tmp_path / "public_types.py").write_text((ROOT / "tests" / "public_types.py").read_text(encoding="utf-8"))
    assert check_with_pyright(tmp_path) == []
