"""The JSON form of values, results and contents."""

import base64
import json

import pytest

from toolsemble import ToolResult
from toolsemble._vocabulary.result import AudioContent, FileContent, ImageContent, TextContent
from toolsemble._vocabulary.serialization import compact_json, read_result, write_result

CONTENTS = [
    TextContent("a footnote \ud800"),
    ImageContent(b"\x00\xff", "image/png"),
    AudioContent(b"la", "audio/wav"),
    FileContent(b"%PDF", "application/pdf", name="a.pdf"),
]
RESULTS = [
    ToolResult.success("21 °C", {"celsius": 21.5, "at": [1, None, True]}, attributes={"station": 7}),
    ToolResult.failure("no such city"),
    ToolResult.success("", contents=CONTENTS),
]


@pytest.mark.parametrize("result", RESULTS, ids=["values", "failure", "contents"])
def test_result_round_trips_as_one_ascii_line(result):
    text = write_result(result)
    assert text.isascii()
    assert "\n" not in text
    assert read_result(text) == result


def test_results_of_earlier_versions_are_read():
    contents = [
        {"kind": "TextContent", "text": "a footnote"},
        {
            "kind": "FileContent",
            "data": base64.b64encode(b"%PDF").decode(),
            "mime_type": "text/csv",
            "name": "a",
        },
    ]
    fields = {"output": "", "error": None, "payload": [1], "contents": contents, "attributes": {"retries": 2}}
    found = read_result(json.dumps(fields))
    assert found.contents == (TextContent("a footnote"), FileContent(b"%PDF", "text/csv", name="a"))
    assert (found.structured_output, dict(found.attributes)) == ([1], {"retries": 2})


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"payload": 1}', '{"contents": [{"type": "film"}]}'])
def test_rejects_other_texts(text):
    with pytest.raises(ValueError, match="Not a serialized result"):
        read_result(text)


def test_compact_json_matches_the_standard_library():
    value = {"città": ["\u2028", 1.0, 10**20, {"b": None, "a": True}]}
    assert compact_json(value) == json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    assert compact_json(value, sort_keys=True, ensure_ascii=True) == json.dumps(
        value, sort_keys=True, separators=(",", ":")
    )
