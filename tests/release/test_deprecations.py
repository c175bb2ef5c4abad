"""The policy for deprecated names: each warns, says what to use instead, and goes when its version has come."""

import ast
import dataclasses
from importlib import import_module
from pathlib import Path

import pytest

import toolsemble
from toolsemble import Agent, BudgetExceededError, ImageContent, ToolCall, tool
from toolsemble.agent import Limits
from toolsemble.models import FunctionModel, UserMessage
from toolsemble.review import ReviewStore

SOURCES = sorted(Path(toolsemble.__file__).parent.rglob("*.py"))
IMAGE = ImageContent(b"png", "image/png")


def read_version(text):
    return tuple(int(part) for part in text.split(".")[:2])


def find_deprecations():
    """Yield where a name is deprecated, and the version that removes it."""
    for path in SOURCES:
        text = path.read_text(encoding="utf-8")
        if "warn_deprecated(" not in text and "renamed={" not in text:
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "warn_deprecated":
                removed = next(each.value for each in node.keywords if each.arg == "removed_in")
                if isinstance(removed, ast.Constant):
                    yield f"{path.name}:{node.lineno}", removed.value
            elif isinstance(node, ast.keyword) and node.arg == "renamed" and isinstance(node.value, ast.Dict):
                for new in node.value.values:
                    yield f"{path.parent.name}:{new.lineno}", ast.literal_eval(new)[1]


def test_no_deprecated_name_outlives_the_version_that_it_names():
    now = read_version(toolsemble.__version__)
    left = [place for place, removed in find_deprecations() if read_version(removed) <= now]
    assert left == [], "remove the deprecated name, and add a line to the section [Unreleased] of CHANGELOG.md"


def test_deprecated_names_are_found_in_the_sources():
    assert {"_message.py", "_settings.py", "toolsemble", "review"} <= {
        place.partition(":")[0] for place, _ in find_deprecations()
    }


def test_images_of_a_user_message_still_work_with_a_warning_at_the_caller():
    with pytest.warns(DeprecationWarning, match=r"removed in toolsemble 0\.4; use UserMessage\(contents=…\)") as found:
        message = UserMessage("What is this?", images=(IMAGE,))
    assert message == UserMessage("What is this?", (IMAGE,))
    assert found[0].filename == __file__


@pytest.mark.parametrize(
    ("module", "old", "new"),
    [
        ("toolsemble", "MaxIterationsExceededError", "BudgetExceededError"),
        ("toolsemble.review", "SQLiteStore", "ReviewStore"),
    ],
)
def test_old_name_of_a_class_loads_the_same_class_and_warns_at_each_import(module, old, new):
    for _ in range(2):
        with pytest.warns(
            DeprecationWarning, match=rf"{module}\.{old} .* toolsemble 0\.5; use {module}\.{new}"
        ) as found:
            loaded = getattr(import_module(module), old)
        assert loaded is getattr(import_module(module), new)
        assert found[0].filename == __file__
    assert old not in dir(import_module(module))


def test_import_statement_of_an_old_name_warns_at_its_line():
    with pytest.warns(DeprecationWarning, match="use toolsemble.BudgetExceededError") as found:
        from toolsemble import MaxIterationsExceededError
    assert {each.filename for each in found} == {__file__}
    with pytest.raises(MaxIterationsExceededError):
        raise BudgetExceededError("Maximum turns (1) reached")


def make_agent(**settings):
    """Return an agent whose model calls tools as long as it may."""

    def reply(request):
        return "the best answer" if request.tool_choice == "none" else ToolCall("add", {"a": len(request.messages)})

    return Agent(FunctionModel(reply), [add], **settings)


@tool
def add(a: int) -> int:
    """Add one."""
    return a + 1


def count_calls(result):
    return result.usage.tool_calls, result.stop_reason


def test_max_iterations_of_an_agent_limits_tool_calls_with_a_warning_at_the_caller():
    with pytest.warns(DeprecationWarning, match=r"toolsemble 0\.5; use Agent\(max_tool_calls=…\)") as found:
        agent = make_agent(max_iterations=2)
    assert found[0].filename == __file__
    assert count_calls(agent.run_sync("go")) == (2, "max_iterations")
    assert count_calls(make_agent(max_tool_calls=2).run_sync("go")) == (2, "max_iterations")


async def test_max_iterations_of_a_run_limits_its_tool_calls_with_a_warning_at_the_caller():
    with pytest.warns(DeprecationWarning, match=r"use run\(max_tool_calls=…\)") as found:
        result = await make_agent(max_tool_calls=3).run("go", max_iterations=1)
    assert found[0].filename == __file__
    assert count_calls(result) == (1, "max_iterations")


@pytest.mark.parametrize("value", [2, None])
def test_old_and_new_name_of_a_setting_are_not_taken_together(value):
    with pytest.raises(TypeError, match="Agent takes max_tool_calls, or its old name max_iterations, not both"):
        make_agent(max_tool_calls=2, max_iterations=value)


def test_old_and_new_name_of_a_run_setting_are_not_taken_together():
    with pytest.raises(TypeError, match="run takes max_tool_calls, or its old name max_iterations, not both"):
        make_agent().run_sync("go", max_tool_calls=2, max_iterations=2)


def test_none_for_the_old_name_of_a_run_setting_means_the_agents_setting():
    assert count_calls(make_agent(max_tool_calls=1).run_sync("go", max_iterations=None)) == (1, "max_iterations")


def test_limits_have_the_old_name_of_a_budget():
    with pytest.warns(DeprecationWarning, match=r"use Limits\.max_tool_calls"):
        assert Limits(max_tool_calls=7).max_iterations == 7


def test_path_of_a_sqlite_store_is_the_url_of_a_review_store(tmp_path):
    with pytest.warns(DeprecationWarning, match=r"use ReviewStore\(url=…\)") as found:
        store = ReviewStore(path=tmp_path / "reviews.db")
    assert found[0].filename == __file__
    store.close()
    with pytest.raises(TypeError, match="ReviewStore takes url, or its old name path, not both"):
        ReviewStore("a.db", path="b.db")


def test_user_message_is_copied_and_compared_as_data():
    message = UserMessage("a", (IMAGE,))
    assert dataclasses.replace(message, text="b") == UserMessage("b", (IMAGE,))
    assert repr(UserMessage("a")) == "UserMessage(text='a', contents=())"
    assert {UserMessage("a"), UserMessage("a")} == {UserMessage("a")}
