import ast
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "release"))
import smoke  # noqa: E402 - the folder is not a package

FOR_CONTRIBUTORS = {"bench", "browser", "dev", "dist", "docs"}


def test_every_extra_for_users_is_tried_after_its_installation():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    assert set(smoke.PROGRAMS) == {"base", *extras} - FOR_CONTRIBUTORS


@pytest.mark.parametrize("extra", sorted(smoke.PROGRAMS))
def test_program_of_an_extra_uses_the_package(extra):
    tree = ast.parse(smoke.write_program(extra))
    assert any(isinstance(node, ast.ImportFrom) and node.module.startswith("toolsemble") for node in ast.walk(tree))
