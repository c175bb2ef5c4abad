import re
from pathlib import Path

import pytest

import toolsemble
from toolsemble import (
    ExitEarlyError,
    ToolArgumentsError,
    ToolConfigurationError,
    ToolDefinitionError,
    ToolExecutionError,
    ToolsembleError,
)
from toolsemble._vocabulary import errors

TOP = "ToolsembleError"


@pytest.mark.parametrize("name", [name for name in toolsemble.__all__ if name.endswith("Error")])
def test_all_errors_have_a_common_base(name):
    assert issubclass(getattr(toolsemble, name), ToolsembleError)


TREE = re.compile(r"^ *(?P<branch>[│├└─ ]*)(?P<name>\w+Error)\b", re.MULTILINE)
DRAWN = {
    "page": (Path(__file__).parents[1] / "docs" / "errors.md").read_text(encoding="utf-8").partition("```text\n")[2],
    "docstring": errors.__doc__,
}


def read_tree(text):
    """Return the parent of each error of a drawn tree."""
    path, parents = ["ToolsembleError"], {}
    for found in TREE.finditer(text.partition("ToolsembleError\n")[2].split("\n\n")[0].partition("```")[0]):
        depth = len(found["branch"]) // 4
        path[depth:] = [found["name"]]
        parents[found["name"]] = path[depth - 1]
    return parents


@pytest.mark.parametrize("drawing", DRAWN)
def test_tree_of_errors_is_as_drawn(drawing):
    parents = read_tree(DRAWN[drawing])
    assert {
        name: next(base.__name__ for base in getattr(errors, name).__mro__[1:] if base.__name__ in {*parents, TOP})
        for name in parents
    } == parents


@pytest.mark.parametrize("drawing", DRAWN)
def test_drawn_tree_has_every_public_error(drawing):
    public = {name for name in toolsemble.__getattr__.names if name.endswith("Error")}
    assert public - {TOP} <= read_tree(DRAWN[drawing]).keys()


@pytest.mark.parametrize("name", ["RunParkedError", "RunBusyError", "RunCancelledError", "RunInterruptedError"])
def test_run_that_ended_without_an_answer_is_no_setup_error(name):
    assert not issubclass(getattr(toolsemble, name), ToolConfigurationError)
    assert getattr(toolsemble, name)("stopped", run_id="r1").run_id == "r1"


def test_definition_error_is_a_value_error():
    assert issubclass(ToolDefinitionError, ValueError)


@pytest.mark.parametrize("kind", [ToolArgumentsError, ToolExecutionError])
def test_call_errors_can_have_a_code(kind):
    assert kind("no").error_code is None
    error = kind("no", error_code=404)
    assert (str(error), error.error_code) == ("no", 404)


def test_exit_early_has_timed_out():
    assert not ExitEarlyError().timed_out
    assert ExitEarlyError("late", timed_out=True).timed_out


@pytest.mark.parametrize("error", [ExitEarlyError(), ToolConfigurationError()])
def test_raised_errors_have_replies(error):
    assert list(error.replies) == []
