"""What ARCHITECTURE.md says of the tree: its paths exist, and its walks are what the script measures."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
AIMS = {
    "a plain call": (12, 0),
    "a refused call": (18, 0),
    "an agent's run with a call that is approved in a store": (60, 8),
    "a parked durable run that continues": (60, 10),
}


@pytest.mark.parametrize("path", sorted(set(re.findall(r"`((?:\w+/)+\w+\.py)`", PAGE)) - {"scripts/walks.py"}))
def test_a_path_exists(path):
    wanted = path.replace("NAME", "openai")
    assert (ROOT / "src/toolsemble" / wanted).is_file(), f"ARCHITECTURE.md: {path} is not there any more"


def test_the_walks_are_measured():
    script = ROOT / "scripts/walks.py"
    shown = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True, timeout=100).stdout
    table = shown.partition("\n\n")[0]
    assert table in PAGE, f"the walks have changed: run {script} --write"
    rows = re.findall(r"^\| (.+?) \| (\d+) \| (\d+) \|$", table, re.MULTILINE)
    assert {name for name, _, _ in rows} == AIMS.keys()
    for name, modules, re_entries in rows:
        most_modules, most_re_entries = AIMS[name]
        assert int(modules) <= most_modules, f"{name} goes through more modules: see {script}"
        assert int(re_entries) <= most_re_entries, f"{name} comes back to more modules: see {script}"
