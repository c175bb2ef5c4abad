import os
import pickle

import pytest

from toolsemble import ToolCall, ToolReply, ToolResult
from toolsemble._vocabulary.call import new_id


def test_arguments_text_is_unchanged():
    call = ToolCall("weather", '{"city":  "Rome"}', "call_1")
    assert (call.name, call.original, call.id) == ("weather", '{"city":  "Rome"}', "call_1")
    assert call.json == '{"city":  "Rome"}'


def test_arguments_are_a_dict_whether_text_or_a_dict_was_passed():
    assert ToolCall("weather", '{"city":  "Rome"}').arguments == ToolCall("weather", {"city": "Rome"}).arguments
    given = ToolCall("weather", '{"days": [1]}')
    given.arguments["days"].append(2)
    assert given.arguments == {"days": [1]}


@pytest.mark.parametrize(
    "text", ["", " ", '{"city": "Ro', "not JSON", "[1]", '"{}"', "5", "null", "[" * 100_000, "1" * 5000]
)
def test_arguments_of_text_that_is_not_a_json_object_are_empty_and_the_text_stays(text):
    call = ToolCall("weather", text)
    assert (call.arguments, call.json, call.original) == ({}, text, text)
    restored = pickle.loads(pickle.dumps(call))
    assert (restored, restored.json) == (call, text)


def test_call_without_arguments_has_an_empty_object():
    assert ToolCall("now").arguments == {}
    assert ToolCall("now", None).json == "{}"
    assert ToolCall("now").id is None


def test_dict_arguments_are_returned_as_a_copy():
    given = {"city": "Köln", "days": [1]}
    call = ToolCall("weather", given)
    given["city"] = "Bonn"
    call.arguments["days"].append(2)
    assert call.arguments == {"city": "Köln", "days": [1]}
    assert call.json == '{"city":"Köln","days":[1]}'


@pytest.mark.parametrize("field", ["name", "arguments", "id", "other"])
def test_call_is_immutable(field):
    with pytest.raises(AttributeError):
        setattr(ToolCall("now"), field, "other")


def test_calls_are_compared_by_value():
    assert ToolCall("a", "{}", "1") == ToolCall("a", {}, "1")
    assert hash(ToolCall("a", "{}")) == hash(ToolCall("a"))
    assert ToolCall("a") != ToolCall("b")
    assert ToolCall("a") != "a"


def test_repr_looks_like_the_constructor():
    assert repr(ToolCall("a", {"x": 1}, "7")) == "ToolCall('a', {'x': 1}, id='7')"


@pytest.mark.parametrize("arguments", ["{}", '{"a": 1}', {"a": [1, None]}])
def test_call_can_be_pickled(arguments):
    call = ToolCall("a", arguments, "7")
    restored = pickle.loads(pickle.dumps(call))
    assert (restored, restored.original, repr(restored)) == (call, arguments, repr(call))


@pytest.mark.parametrize(
    ("name", "arguments", "problem"),
    [
        (5, "{}", "name must be a str, not int"),
        ("a", ["x"], "arguments must be JSON text or a dict, not list"),
        ("a", {"x": object()}, "arguments must be JSON values"),
    ],
)
def test_rejects_invalid_name_and_arguments(name, arguments, problem):
    with pytest.raises(TypeError, match=problem):
        ToolCall(name, arguments)


def test_reply_has_the_text_of_its_result():
    reply = ToolReply(ToolCall("a"), ToolResult.failure("no"))
    assert (reply.text, reply.is_error) == ("Error: no", True)
    assert not ToolReply(ToolCall("a"), ToolResult.success("yes")).is_error


@pytest.mark.parametrize(
    ("limit", "text"),
    [(None, "0123456789"), (10, "0123456789"), (4, "0123... [truncated, full length: 10 chars]")],
)
def test_reply_is_truncated_to_its_limit(limit, text):
    reply = ToolReply(ToolCall("a"), ToolResult.success("0123456789"), limit)
    assert reply.text == text
    assert reply.result.output == "0123456789"


def test_reply_is_immutable():
    with pytest.raises(AttributeError):
        ToolReply(ToolCall("a"), ToolResult.success()).result = None


@pytest.mark.skipif(not hasattr(os, "fork"), reason="POSIX systems fork")
def test_fork_generates_its_own_ids():
    new_id()  # some more are drawn together with it
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, " ".join(new_id() for _ in range(100)).encode())
        os._exit(0)
    os.waitpid(child, 0)
    theirs = set(os.read(reader, 10_000).decode().split())
    os.close(reader), os.close(writer)
    ours = {new_id() for _ in range(100)}
    assert (len(theirs), len(ours), theirs & ours) == (100, 100, set())
