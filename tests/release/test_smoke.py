import ast
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "release"))
import smoke  # noqa: E402 - the folder is not a package

FOR_CONTRIBUTORS = {"bench", "dev", "docs", "dist"}


def test_every_extra_for_users_is_tried_after_its_installation():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    assert set(smoke.PROGRAMS) == {"base", *extras} - FOR_CONTRIBUTORS


@pytest.mark.parametrize("extra", sorted(smoke.PROGRAMS))
def test_program_of_an_extra_uses_the_package(extra):
    tree = ast.parse(smoke.write_program(extra))
    assert any(isinstance(node, ast.ImportFrom) and node.module.startswith("toolsemble") for node in ast.walk(tree))


@pytest.mark.parametrize("extra", sorted(set(smoke.PROGRAMS) - {"base"}))
def test_program_of_an_extra_runs_where_everything_is_installed(extra, tmp_path):
    (tmp_path / "smoke.py").write_text(smoke.write_program(extra), encoding="utf-8")
    subprocess.run([sys.executable, "-P", "smoke.py"], cwd=tmp_path, check=True, timeout=100)
