import ast
import subprocess
import sys
import tomllib
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

import pytest

import toolsemble


def loaded_after(code):
    """Return the modules that a new interpreter has loaded after running the code."""
    setting = f"import sys; sys.path[:] = {sys.path!r}; before = set(sys.modules)"
    program = f"{setting}; {code}; print(*(set(sys.modules) - before))"
    run = subprocess.run([sys.executable, "-I", "-S", "-c", program], capture_output=True, text=True, check=True)
    return set(run.stdout.split())


def test_importing_the_package_loads_nothing_else():
    assert {name.split(".")[0] for name in loaded_after("import toolsemble")} <= {"toolsemble", "__future__"}


def test_string_tools_load_neither_pydantic_nor_asyncio():
    code = (
        "from toolsemble import Tool, Toolbox, ToolCall; "
        "echo = type('Echo', (Tool,), dict(name='echo', description='', run=lambda self, input: input))(); "
        "box = Toolbox([echo]); box.execute(ToolCall('echo', dict(input='x'))); box.specifications"
    )
    assert not loaded_after(code) & {"pydantic", "pydantic_core", "asyncio", "multiprocessing"}


def test_every_public_name_loads_and_has_a_docstring():
    values = {name: getattr(toolsemble, name) for name in toolsemble.__getattr__.names}
    without = [
        name for name, value in values.items() if not value.__doc__ and name not in {"Content", "ReviewDecision"}
    ]
    assert without == [], "begin the definition of each with a docstring"


def test_dir_shows_the_everyday_names():
    shown = [name for name in dir(toolsemble) if not name.startswith("_")]
    assert len(toolsemble.__all__) == 28, "`everyday` of toolsemble/__init__.py changed: correct it, or the number"
    assert {"Agent", "Reject", "Toolbox", "tool"} <= set(toolsemble.__all__)
    assert shown == toolsemble.__all__
    assert toolsemble.ReviewTiming.__name__ == "ReviewTiming"
    assert "ReviewTiming" not in dir(toolsemble)


MODELS = [f".models.{name}" for name in ("anthropic", "bedrock", "google", "mistral", "openai")]


@pytest.mark.parametrize(
    "package", ["", ".agent", ".builtin", ".mcp", ".models", *MODELS, ".review", ".telemetry", ".weights"]
)
def test_type_checkers_see_exported_names(package):
    module = import_module(f"toolsemble{package}")
    block = next(node for node in ast.parse(Path(module.__file__).read_text()).body if isinstance(node, ast.If))
    seen = {
        alias.asname: f"{node.module}.{alias.name}"
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    once = set(seen) ^ set(module.__getattr__.names)
    assert once == set(), f"name them under TYPE_CHECKING and in export_lazily of {module.__file__}"
    for name, home in seen.items():
        assert getattr(module, name) is getattr(import_module(home.rpartition(".")[0]), name)


def test_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'toolsemble' has no attribute 'Nothing'"):
        toolsemble.Nothing  # noqa: B018 - the access is the test


def test_version_matches_the_project():
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
    assert toolsemble.__version__ == project["version"] == version("toolsemble")


def test_package_is_marked_as_typed():
    assert (Path(toolsemble.__file__).parent / "py.typed").exists()
