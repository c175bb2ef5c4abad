import copy
import dataclasses
import pickle

import pytest

from toolsemble import AudioContent, FileContent, ImageContent, TextContent, ToolResult


def test_success_text_is_its_output():
    result = ToolResult.success("21 °C", {"celsius": 21})
    assert (result.output, result.text, result.is_success) == ("21 °C", "21 °C", True)
    assert result.error_message is None
    assert result.structured_output == {"celsius": 21}


def test_success_of_none_is_empty():
    assert ToolResult.success(None) == ToolResult.success("") == ToolResult.success()


def test_failure_text_starts_with_error():
    result = ToolResult.failure("no such city", structured_output=404, attributes={"tries": 3})
    assert (result.output, result.text, result.is_success) == ("", "Error: no such city", False)
    assert (result.structured_output, dict(result.attributes)) == (404, {"tries": 3})


@pytest.mark.parametrize("message", [None, ""])
def test_failure_without_a_message_has_a_default_text(message):
    assert ToolResult.failure(message).error_message == "Tool execution failed with no message"


def test_result_has_contents_and_attributes():
    image = ImageContent(b"...", "image/png")
    result = ToolResult.success("a map", contents=[image], attributes={"page": 1})
    assert result.contents == (image,)
    assert result.attributes["page"] == 1
    assert result.text == "a map"


@pytest.mark.parametrize("field", [field.name for field in dataclasses.fields(ToolResult)])
def test_result_is_immutable(field):
    result = ToolResult.success("x", attributes={"a": 1})
    with pytest.raises(AttributeError):
        setattr(result, field, "other")


def test_attributes_are_a_read_only_copy():
    given = {"a": 1}
    result = ToolResult.success("x", attributes=given)
    given["a"] = 2
    with pytest.raises(TypeError):
        result.attributes["a"] = 3
    assert result.attributes["a"] == 1


def test_results_are_compared_by_value_and_hashable():
    one = ToolResult.success("x", {"a": []}, attributes={"b": []})
    other = ToolResult.success("x", {"a": []}, attributes={"b": []})
    assert one == other
    assert hash(one) == hash(other)
    assert one != ToolResult.success("x")
    assert ToolResult.success("x") != ToolResult.failure("x")


@pytest.mark.parametrize(
    ("result", "shown"),
    [
        (ToolResult.success("hi"), "ToolResult.success('hi')"),
        (ToolResult.failure("no"), "ToolResult.failure('no')"),
        (
            ToolResult.success("hi", 5, contents=[TextContent("t")], attributes={"a": 1}),
            "ToolResult.success('hi', structured_output=5, contents=(TextContent(text='t'),), attributes={'a': 1})",
        ),
    ],
)
def test_repr_looks_like_the_constructor(result, shown):
    assert repr(result) == shown


@pytest.mark.parametrize("clone", [copy.copy, copy.deepcopy, lambda result: pickle.loads(pickle.dumps(result))])
def test_result_can_be_copied_and_pickled(clone):
    result = ToolResult.success("x", [1], contents=[FileContent(b"1", "text/plain", "a.txt")], attributes={"a": 1})
    cloned = clone(result)
    assert cloned == result
    with pytest.raises(TypeError):
        cloned.attributes["a"] = 2


@pytest.mark.parametrize("make", [ToolResult.success, ToolResult.failure])
def test_output_that_is_not_a_str_is_a_type_error_with_a_hint(make):
    with pytest.raises(TypeError, match="must be a str, not int; put other values into structured_output"):
        make(5)


@pytest.mark.parametrize(
    ("content", "shown"),
    [
        (ImageContent(b"123", "image/png"), "ImageContent(<3 bytes>, mime_type='image/png')"),
        (AudioContent(b"123", "audio/wav"), "AudioContent(<3 bytes>, mime_type='audio/wav')"),
        (
            FileContent(b"123", "text/plain", "a.txt"),
            "FileContent(<3 bytes>, mime_type='text/plain', name='a.txt')",
        ),
    ],
)
def test_contents_repr_shows_the_number_of_bytes(content, shown):
    assert repr(content) == shown
    assert content.data == b"123"


def test_contents_of_different_kinds_are_never_equal():
    assert ImageContent(b"1", "image/png") != AudioContent(b"1", "image/png")
