"""Paging of results that are too long for a model."""

import re
from concurrent.futures import ThreadPoolExecutor

import pytest

from toolsemble import Agent, Pages, Toolbox, ToolCall, ToolContext, ToolDefinitionError, ToolResult, tool
from toolsemble._tools.toolbox.pages import page_starts
from toolsemble.models import ScriptedModel, ToolMessage
from toolsemble.models._message import message_from_json, message_to_json
from toolsemble.review import AutoReject

TEXT = "".join(f"line {number}\n" for number in range(100))


PAGE = re.compile(r"(.*?)(?:\.\.\. \[truncated, full length: \d+ chars\] |\n)\[page (\d+) of (\d+)(.*)\]", re.DOTALL)


@tool
def read(text: str = TEXT) -> str:
    """Return a text."""
    return text


@tool(max_output=20)
def short() -> dict[str, str]:
    """Return a text."""
    return {"text": TEXT}


@tool
def fail() -> str:
    """Fail at length."""
    raise ValueError("no " * 100)


def parse_page(reply):
    """Return the text of a page, its number, the number of pages, and the id of the result if there is a next page."""
    found = PAGE.fullmatch(reply.text)
    text, number, count, rest = found.groups()
    named = re.fullmatch(rf'; for the next one call \w+ with result="(\w+)" and page={int(number) + 1}', rest)
    assert named or rest == ", the last one"
    return text, int(number), int(count), named and named[1]


def read_page(box, key, page, name="read_more", **whose):
    return box.execute(ToolCall(name, {"result": key, "page": page}), **whose)


def test_text_is_truncated_and_the_result_is_whole():
    reply = Toolbox([read], max_output=10).execute(ToolCall("read"))
    assert reply.text == f"line 0\nlin... [truncated, full length: {len(TEXT)} chars]"
    assert reply.result == ToolResult.success(TEXT)


@pytest.mark.parametrize(("box", "expected"), [(None, 20), (10, 10), (50, 20), (0, 0)])
def test_smaller_limit_applies(box, expected):
    reply = Toolbox([short], max_output=box).execute(ToolCall("short"))
    assert reply.limit == expected
    assert (
        reply.text == f"{reply.result.output[:expected]}... [truncated, full length: {len(reply.result.output)} chars]"
    )
    assert reply.result.structured_output == {"text": TEXT}


async def test_limits_apply_to_parallel_calls():
    box = Toolbox([read, short], max_output=30)
    calls = [ToolCall("read"), ToolCall("short"), ToolCall("unknown" * 20)]
    for replies in (box.execute_all(calls), await box.aexecute_all(calls)):
        assert [reply.limit for reply in replies] == [30, 20, 30]
    assert (await box.aexecute(calls[1])).limit == 20


def test_tool_limit_does_not_apply_to_direct_calls():
    assert short.execute("{}").structured_output == {"text": TEXT}
    assert len(short.execute("{}").output) > 20


def test_reads_all_pages():
    box = Toolbox([read], max_output=200, pages=True)
    first = box.execute(ToolCall("read"))
    text, number, count, key = parse_page(first)
    assert (number, first.result.output) == (1, TEXT)
    assert f"... [truncated, full length: {len(TEXT)} chars] [page 1 of {count}; " in first.text
    pages = [text]
    for page in range(2, count + 1):
        text, number, known, next_id = parse_page(read_page(box, key, page))
        assert (number, known, next_id) == (page, count, None if page == count else key)
        pages.append(text)
    assert "".join(pages) == TEXT
    assert all(len(page) <= 200 and page.endswith("\n") for page in pages)
    assert parse_page(read_page(box, key, 2)) == parse_page(read_page(box, key, 2))
    assert parse_page(read_page(box, key, 1))[0] == pages[0]


def test_read_more_is_a_tool_of_the_toolbox():
    box = Toolbox([read], max_output=50, pages=True, approve=["*"], review=AutoReject())
    assert (box.names, len(box), "read_more" in box, [each.name for each in box]) == (
        ["read", "read_more"],
        2,
        True,
        ["read", "read_more"],
    )
    specification = box.specifications[1]
    assert list(specification.parameters["properties"]) == ["result", "page"]
    assert specification.metadata["readOnlyHint"] is True
    # What the model has already received needs no second approval.
    assert "Rejected" not in read_page(box, "x", 1).text


def test_text_within_the_limit_is_not_stored():
    box = Toolbox([read], max_output=5, pages=True)
    assert box.execute(ToolCall("read", {"text": "12345"})).text == "12345"
    assert read_page(box, "", 1).is_error


def test_errors_have_pages_too():
    box = Toolbox([fail], max_output=50, pages=True)
    reply = box.execute(ToolCall("fail"))
    text, _, _, key = parse_page(reply)
    assert (reply.is_error, text[:9]) == (True, "Error: no")
    assert parse_page(read_page(box, key, 2))[0].startswith("no no")


GONE = "it never existed or is no longer stored; call the tool again"


@pytest.mark.parametrize(
    ("kept_for", "read_by", "allowed"),
    [
        ({}, {}, True),
        ({"memory_id": "ada"}, {"memory_id": "ada"}, True),
        ({"memory_id": "ada"}, {"memory_id": "bob"}, False),
        ({"memory_id": "ada"}, {}, False),
        ({}, {"memory_id": "bob"}, False),
        ({"memory_id": "ada", "run_id": "1"}, {"memory_id": "ada", "run_id": "2"}, True),
        ({"run_id": "1"}, {"run_id": "1"}, True),
        ({"run_id": "1"}, {"run_id": "2"}, False),
        ({"run_id": "1"}, {}, False),
    ],
)
def test_pages_are_readable_only_by_the_same_user_and_run(kept_for, read_by, allowed):
    box = Toolbox([read], max_output=50, pages=True)
    *_, key = parse_page(box.execute(ToolCall("read"), **kept_for))
    reply = read_page(box, key, 2, **read_by)
    assert reply.is_error is not allowed
    if not allowed:
        assert reply.text == f"Error: Unknown result '{key}': {GONE}"
        assert reply.text == read_page(box, key, 3, **read_by).text


def test_toolbox_cannot_read_results_of_another():
    boxes = [Toolbox([read], max_output=50, pages=True) for _ in range(2)]
    *_, key = parse_page(boxes[0].execute(ToolCall("read")))
    assert GONE in read_page(boxes[1], key, 2).text


def test_nested_calls_belong_to_the_same_run():
    inner = Toolbox([read], max_output=50, pages=True)

    @tool
    def outer() -> str:
        *_, key = parse_page(inner.execute(ToolCall("read")))
        return f"{key} {read_page(inner, key, 2).is_error}"

    key, failed = outer.execute("{}", ToolContext(run_id="1")).output.split()
    assert (failed, read_page(inner, key, 2, run_id="1").is_error) == ("False", False)
    assert read_page(inner, key, 2, run_id="2").is_error


def test_ids_cannot_be_guessed():
    box = Toolbox([read], max_output=50, pages=True)
    ids = {parse_page(box.execute(ToolCall("read")))[3] for _ in range(20)}
    assert (len(ids), {len(key) for key in ids}) == (20, {32})


@pytest.mark.parametrize("page", [0, -1, 8, 10**30])
def test_missing_page_error_shows_the_range(page):
    box = Toolbox([read], max_output=200, pages=True)
    *_, count, key = parse_page(box.execute(ToolCall("read")))
    assert count == 4
    assert read_page(box, key, page).text.startswith("Error: The result has pages 1 to 4, not ")


@pytest.mark.parametrize(
    ("pages", "left"),
    [
        (Pages(results=2), [False, True, True]),
        (Pages(characters=2 * len(TEXT)), [False, True, True]),
        (Pages(characters=2 * len(TEXT) - 1), [False, False, True]),
    ],
)
def test_oldest_results_are_evicted(pages, left):
    box = Toolbox([read], max_output=50, pages=pages)
    ids = [parse_page(box.execute(ToolCall("read")))[3] for _ in range(3)]
    assert [not read_page(box, key, 2).is_error for key in ids] == left


@pytest.mark.parametrize(
    ("settings", "text"),
    [({"max_output": 50, "pages": Pages(characters=99)}, "x" * 100), ({"max_output": 1, "pages": True}, "x" * 5001)],
)
def test_text_with_too_many_pages_is_truncated(settings, text):
    limit = settings["max_output"]
    reply = Toolbox([read], **settings).execute(ToolCall("read", {"text": text}))
    assert reply.text == f"{text[:limit]}... [truncated, full length: {len(text)} chars]"


def test_zero_max_output_has_no_pages():
    reply = Toolbox([read], max_output=0, pages=True).execute(ToolCall("read", {"text": "text"}))
    assert reply.text == "... [truncated, full length: 4 chars]"


FAMILY = "\U0001f468\u200d\U0001f469\u200d\U0001f467"


@pytest.mark.parametrize(
    ("text", "limit", "pages"),
    [
        ("one\ntwo\nthree", 8, ["one\ntwo\n", "three"]),
        ("one two three", 9, ["one two ", "three"]),
        ("a\n" + "b" * 10, 8, ["a\nbbbbbb", "bbbb"]),
        ("abcdefgh", 3, ["abc", "def", "gh"]),
        ("xxxe\u0301e\u0301", 4, ["xxx", "e\u0301e\u0301"]),
        (f"xx{FAMILY}x", 4, ["xx", f"{FAMILY[:4]}", f"{FAMILY[4:]}x"]),
        ("xx\U0001f44d\U0001f3fdx", 3, ["xx", "\U0001f44d\U0001f3fdx"]),
        ("xxx\r\nyy", 4, ["xxx", "\r\nyy"]),
        ("äöü", 2, ["äö", "ü"]),
        ("e" + "\u0301" * 30, 20, ["e" + "\u0301" * 19, "\u0301" * 11]),
    ],
)
def test_pages_end_at_line_or_word_boundaries(text, limit, pages):
    starts = page_starts(text, limit)
    assert [text[start:end] for start, end in zip(starts, [*starts[1:], None], strict=True)] == pages


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"pages": True}, "Toolbox pages needs max_output: only truncated results have further pages"),
        ({"pages": 5, "max_output": 5}, "Toolbox pages must be True, False or Pages(...), not 5"),
        (
            {"pages": Pages(name="read"), "max_output": 5},
            "Toolbox pages: a tool 'read' already exists; choose another name with pages=Pages(name=...)",
        ),
    ],
)
def test_rejects_invalid_toolbox_pages(settings, problem):
    with pytest.raises(ToolDefinitionError) as refusal:
        Toolbox([read], **settings)
    assert str(refusal.value) == problem


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"name": "read more"}, "Invalid tool name 'read more': use 1 to 64 letters, digits, '_' or '-'"),
        ({"results": 0}, "Pages results must be an int >= 1, not 0"),
        ({"characters": "x"}, "Pages characters must be an int >= 1, not 'x'"),
    ],
)
def test_rejects_invalid_pages_settings(settings, problem):
    with pytest.raises(ToolDefinitionError) as refusal:
        Pages(**settings)
    assert str(refusal.value) == problem


def test_read_more_can_be_renamed():
    box = Toolbox([short], pages=Pages(name="turn_page"))
    reply = box.execute(ToolCall("short"))
    assert "call turn_page with" in reply.text
    assert not read_page(box, parse_page(reply)[3], 2, "turn_page").is_error


def test_threads_keep_the_limit_of_results():
    box = Toolbox([read], max_output=50, pages=Pages(results=5))
    with ThreadPoolExecutor(8) as threads:
        replies = list(threads.map(lambda _: box.execute(ToolCall("read")), range(100)))
    ids = [parse_page(reply)[3] for reply in replies]
    assert sum(not read_page(box, key, 2).is_error for key in ids) == 5


def test_message_json_has_the_truncated_text():
    message = ToolMessage(Toolbox([read], max_output=50, pages=True).execute(ToolCall("read")))
    assert message_from_json(message_to_json(message)).text == message.text
    assert message.reply.more in message.text


def test_model_reads_the_next_page():
    def next_page(messages):
        *_, key = parse_page(messages[-1].reply)
        return ToolCall("read_more", {"result": key, "page": 2})

    model = ScriptedModel([ToolCall("read"), next_page, "done"])
    result = Agent(model, Toolbox([read], max_output=200, pages=True)).run_sync("read on")
    assert (result.text, [record.reply.is_error for record in result.tool_calls]) == ("done", [False, False])
    text = "".join(parse_page(record.reply)[0] for record in result.tool_calls)
    assert TEXT.startswith(text)
    assert len(text) > 200
