"""The programs of the pages, as type checkers see them: each page is one module."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# Not the page of other frameworks, most of which are not installed here; they have several things of one name.
PAGES = [ROOT / "README.md", *sorted({*(ROOT / "docs").glob("**/*.md")} - {ROOT / "docs" / "interop.md"})]
BLOCK = re.compile(r"^(?:```python|<!-- invisible-code-block: python)\n(.*?)^(?:```|-->)", re.DOTALL | re.MULTILINE)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


CHECKED = ("public_types.py", "wrong_types.py")


def write_modules(folder):
    """Write the programs of each page as a module whose lines have the numbers of the page."""
    (folder / "pages").mkdir()
    (folder / "pages" / "__init__.py").touch()
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        lines = [""] * (text.count("\n") + 1)
        for block in BLOCK.finditer(text):
            start = text.count("\n", 0, block.start(1))
            for number, line in enumerate(block[1].splitlines()):
                lines[start + number] = line
        name = re.sub(r"\W", "_", str(page.relative_to(ROOT).with_suffix("")))
        if any(lines):
            (folder / "pages" / f"{name}.py").write_text("\n".join(lines) + "\n", encoding="utf-8")
    # The first program of this page is a file that the next one imports.
    quickstart = (ROOT / "docs" / "quickstart.md").read_text(encoding="utf-8")
    (folder / "shop.py").write_text(BLOCK.search(quickstart)[1], encoding="utf-8")


def run(*command, folder, **settings):
    return subprocess.run([*command], cwd=folder, capture_output=True, text=True, check=False, timeout=590, **settings)


def test_programs_of_pages_pass_mypy_strict(tmp_path):
    write_modules(tmp_path)
    # From the root, with the settings of the project: so `make lint` has left a cache of the package.
    variables = {**os.environ, "MYPYPATH": f"src{os.pathsep}{tmp_path}"}
    mypy = [sys.executable, "-m", "mypy", "--no-error-summary"]
    checked = run(*mypy, "--package", "pages", folder=ROOT, env=variables)
    assert checked.stdout.splitlines() == []


@pytest.fixture(scope="module")
def pyright_errors(tmp_path_factory):
    """Return the errors that pyright finds, by file; one run, for most of its time goes into reading the package."""
    folder = tmp_path_factory.mktemp("pyright")
    write_modules(folder)
    for name in CHECKED:
        shutil.copy(ROOT / "tests" / name, folder)
    settings = {"typeCheckingMode": "standard", "pythonVersion": "3.11", "reportRedeclaration": "none"}
    (folder / "pyrightconfig.json").write_text(json.dumps(settings), encoding="utf-8")
    checked = run(sys.executable, "-m", "basedpyright", "--pythonpath", sys.executable, "--outputjson", folder=folder)
    report = json.loads(checked.stdout)
    assert report["summary"]["filesAnalyzed"] == len([*folder.rglob("*.py")])
    return [
        (Path(each["file"]).name, f"{each['range']['start']['line'] + 1}: {each['message']}")
        for each in report["generalDiagnostics"]
        if each["severity"] == "error"
    ]


def test_programs_of_pages_pass_pyright(pyright_errors):
    assert [each for each in pyright_errors if each[0] not in CHECKED] == []


def test_public_types_pass_pyright(pyright_errors):
    assert [each for each in pyright_errors if each[0] == "public_types.py"] == []


def find_wrong_lines(*marks):
    """Return the numbers of the lines that type checkers have to report."""
    lines = (ROOT / "tests" / "wrong_types.py").read_text(encoding="utf-8").splitlines()
    return {number for number, line in enumerate(lines, 1) if line.endswith(marks)}


def test_pyright_reports_mistakes_in_their_lines(pyright_errors):
    reported = {int(text.partition(":")[0]) for name, text in pyright_errors if name == "wrong_types.py"}
    assert reported == find_wrong_lines("# wrong", "# wrong for pyright")


def test_mypy_reports_mistakes_in_their_lines():
    mypy = [sys.executable, "-m", "mypy", "--no-error-summary"]
    checked = run(*mypy, "tests/wrong_types.py", folder=ROOT, env={**os.environ, "MYPYPATH": "src"})
    assert {int(line.split(":")[1]) for line in checked.stdout.splitlines()} == find_wrong_lines("# wrong")
