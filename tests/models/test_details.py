import pytest

from toolsemble import ToolCall
from toolsemble.models import AssistantMessage
from toolsemble.models._adapter.conversation import sanitize_arguments
from toolsemble.models._adapter.replies import make_details, restore_blocks

CALLS = (ToolCall("add", {"a": 1}), ToolCall("now"))
WRITTEN = [{"type": "tool_use", "number": 0}, {"type": "tool_use", "number": 1}]


def test_signatures_stay_with_call_and_text():
    blocks = [
        {"type": "text", "text": "Let me"},
        {"type": "tool_use", "signature": "a"},
        {"type": "text", "text": "", "signature": "b"},
        {"type": "tool_use"},
        {"type": "text", "text": " "},
    ]
    details = make_details("p", blocks)
    assert details == {
        "p": [
            {"type": "text", "length": 6},
            {"type": "tool_use", "signature": "a"},
            {"type": "text", "length": 0, "signature": "b"},
            {"type": "tool_use"},
            {"type": "text", "length": 1},
        ]
    }
    assert restore_blocks("p", AssistantMessage("Let me ", CALLS, details), WRITTEN) == [
        {"type": "text", "text": "Let me"},
        {"type": "tool_use", "number": 0, "signature": "a"},
        {"type": "text", "text": "", "signature": "b"},
        {"type": "tool_use", "number": 1},
    ]


@pytest.mark.parametrize("text", ["Let", "Let me see"])
def test_changed_text_precedes_calls_with_signatures(text):
    details = {"p": [{"type": "tool_use", "signature": "a"}, {"type": "text", "length": 6, "signature": "b"}]}
    assert restore_blocks("p", AssistantMessage(text, CALLS, details), WRITTEN) == [
        {"type": "text", "text": text},
        {"type": "tool_use", "number": 0, "signature": "a"},
        {"type": "tool_use", "number": 1},
    ]


@pytest.mark.parametrize(
    ("text", "deepest", "fits"),
    [
        ('{"a": {"b": 1}}', 3, True),
        ('{"a": {"b": 1}}', 2, False),
        ('{"a": [[1]]}', 3, False),
        ('{"a": ' + "9" * 300 + "}", 9, True),
        ('{"a": ' + "9" * 301 + "}", 9, False),
        ('{"a": -' + "9" * 5000 + "}", 9, False),
        ('{"a": 1e400}', 9, False),
    ],
)
def test_too_deep_arguments_are_sent_back_as_text(text, deepest, fits):
    assert ("a" in sanitize_arguments(ToolCall("add", text), deepest)) is fits
