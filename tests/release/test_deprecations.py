"""The policy for deprecated names: each warns, says what to use instead, and goes when its version has come."""

import ast
import dataclasses
from pathlib import Path

import pytest

import toolsemble
from toolsemble import ImageContent
from toolsemble.models import UserMessage

SOURCES = sorted(Path(toolsemble.__file__).parent.rglob("*.py"))
IMAGE = ImageContent(b"png", "image/png")


def read_version(text):
    return tuple(int(part) for part in text.split(".")[:2])


def find_deprecations():
    """Yield where a name is deprecated, and the version that does not have it any more."""
    for path in SOURCES:
        text = path.read_text(encoding="utf-8")
        if "warn_deprecated(" not in text:
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "warn_deprecated":
                removed = next(each.value.value for each in node.keywords if each.arg == "removed_in")
                yield f"{path.name}:{node.lineno}", removed


def test_no_deprecated_name_outlives_the_version_that_it_names():
    now = read_version(toolsemble.__version__)
    left = [place for place, removed in find_deprecations() if read_version(removed) <= now]
    assert left == [], "remove the deprecated name, and add a line to the section [Unreleased] of CHANGELOG.md"


def test_deprecated_names_are_found_in_the_sources():
    assert "_message.py" in {place.partition(":")[0] for place, _ in find_deprecations()}


def test_images_of_a_user_message_still_work_with_a_warning_at_the_caller():
    with pytest.warns(DeprecationWarning, match=r"removed in toolsemble 0\.4; use UserMessage\(contents=…\)") as found:
        message = UserMessage("What is this?", images=(IMAGE,))
    assert message == UserMessage("What is this?", (IMAGE,))
    assert found[0].filename == __file__


def test_user_message_is_copied_and_compared_as_data():
    message = UserMessage("a", (IMAGE,))
    assert dataclasses.replace(message, text="b") == UserMessage("b", (IMAGE,))
    assert repr(UserMessage("a")) == "UserMessage(text='a', contents=())"
    assert {UserMessage("a"), UserMessage("a")} == {UserMessage("a")}
