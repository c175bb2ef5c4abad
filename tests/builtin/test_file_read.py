from __future__ import annotations

import os
import pickle
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest

from toolsemble import Toolbox, ToolCall, ToolResult
from toolsemble._runtime.paths import DENIED
from toolsemble.builtin import FileReadTool

FIVE = "one\ntwo\nthree\nfour\nfive\n"


@pytest.fixture
def base(tmp_path):
    base = tmp_path / "base"
    base.mkdir()
    (tmp_path / "secret.txt").write_text("the secret")
    (base / "five.txt").write_text(FIVE)
    return base


def read(base, /, **arguments):
    return Toolbox([FileReadTool(base)]).execute(ToolCall("file_read", arguments)).text


def test_specification(base):
    (specification,) = Toolbox([FileReadTool(base)]).specifications
    assert specification.name == "file_read"
    assert specification.description.startswith("Reads a text file and gives its content.")
    parameters = specification.parameters
    assert list(parameters["properties"]) == ["path", "offset", "limit"]
    assert parameters["required"] == ["path"]
    assert all(each["description"] for each in parameters["properties"].values())


def test_file_is_returned_unchanged(base):
    assert read(base, path="five.txt") == FIVE


async def test_async_read(base):
    reply = await Toolbox([FileReadTool(base)]).aexecute(ToolCall("file_read", '{"path": "five.txt"}'))
    assert reply.text == FIVE


def test_structured_output_describes_read(base):
    assert FileReadTool(base).execute('{"path": "five.txt", "offset": 1, "limit": 2}') == ToolResult.success(
        "two\nthree\n",
        {"path": "five.txt", "offset": 1, "lines": 2, "total_lines": 5, "bytes": 24, "encoding": "utf-8"},
    )


@pytest.mark.parametrize(
    ("offset", "limit", "given"),
    [
        (0, None, FIVE),
        (0, 1, "one\n"),
        (1, 2, "two\nthree\n"),
        (3, None, "four\nfive\n"),
        (4, 100, "five\n"),
        (0, 5, FIVE),
        (0, 10**30, FIVE),
        (5, None, "Error: Offset 5 is past the end: 'five.txt' has 5 lines"),
        (10**30, 1, f"Error: Offset {10**30} is past the end: 'five.txt' has 5 lines"),
    ],
)
def test_offset_and_limit_select_lines(base, offset, limit, given):
    assert read(base, path="five.txt", offset=offset, limit=limit) == given


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"path": "five.txt", "offset": -1}, "Invalid arguments for 'FileReadInput': offset: "),
        ({"path": "five.txt", "limit": 0}, "Invalid arguments for 'FileReadInput': limit: "),
        ({"offset": 1}, "Missing required parameter(s) for 'FileReadInput': path"),
    ],
)
def test_invalid_arguments_are_reported(base, arguments, problem):
    assert read(base, **arguments).startswith(f"Error: {problem}")


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("", []),
        ("no end", ["no end"]),
        ("a\nb", ["a\n", "b"]),
        ("a\r\nb\r\n", ["a\r\n", "b\r\n"]),
        ("\n\n", ["\n", "\n"]),
        ("a\u2028b\x0bc\x0cd\x85e\n", ["a\u2028b\x0bc\x0cd\x85e\n"]),
    ],
)
def test_line_ends_at_a_line_feed(base, text, lines):
    (base / "x.txt").write_bytes(text.encode())
    result = FileReadTool(base).execute('{"path": "x.txt"}')
    assert (result.output, result.structured_output["total_lines"]) == (text, len(lines))
    given = [read(base, path="x.txt", offset=n, limit=1) for n in range(len(lines))]
    assert [each.partition("[lines")[0].removesuffix("\n") for each in given] == [
        each.removesuffix("\n") for each in lines
    ]


def test_long_file_is_returned_in_parts_with_note(base):
    (base / "x.txt").write_text("".join(f"{n}\n" for n in range(1, 5001)))
    first = FileReadTool(base).execute('{"path": "x.txt"}')
    assert first.output == "".join(f"{n}\n" for n in range(1, 2001)) + "[lines 1-2000 of 5000]"
    assert (first.structured_output["lines"], first.structured_output["total_lines"]) == (2000, 5000)
    assert read(base, path="x.txt", offset=4999) == "5000\n"
    assert read(base, path="x.txt", limit=4000).endswith("\n4000\n")


@pytest.mark.parametrize(
    ("text", "offset", "given"),
    [
        ("x" * 100_000, 0, "x" * 100_000),
        ("x" * 100_001, 0, "x" * 100_000 + "\n[line 1 of 1, the first 100000 of its 100001 characters]"),
        ("a\n" + "x" * 99_998, 0, "a\n" + "x" * 99_998),
        ("a\n" + "x" * 99_999, 0, "a\n[lines 1-1 of 2]"),
        ("a\nb", 1, "b"),
        ("a\n" + "x" * 100_000 + "\n", 1, "x" * 100_000 + "\n[line 2 of 2, the first 100000 of its 100001 characters]"),
    ],
)  # fmt: skip
def test_returned_characters_are_limited(base, text, offset, given):
    (base / "x.txt").write_text(text)
    assert read(base, path="x.txt", offset=offset, limit=10**6) == given


@pytest.mark.parametrize(
    ("data", "text", "encoding"),
    [
        ("naïve 日本 🎉".encode(), "naïve 日本 🎉", "utf-8"),
        ("naïve".encode("utf-8-sig"), "naïve", "utf-8"),
        (b"\xff\xfe" + "naïve 🎉".encode("utf-16-le"), "naïve 🎉", "utf-16-le"),
        (b"\xfe\xff" + "naïve 🎉".encode("utf-16-be"), "naïve 🎉", "utf-16-be"),
        (b"\xff\xfe\0\0" + "naïve".encode("utf-32-le"), "naïve", "utf-32-le"),
        (b"\0\0\xfe\xff" + "naïve".encode("utf-32-be"), "naïve", "utf-32-be"),
        ("a naïve “quote”".encode("cp1252"), "a naïve “quote”", "cp1252"),
        ("naïve café".encode() + b"\xff!", "naïve café\ufffd!", "utf-8"),
        ("日本語 naïve".encode()[1:], "\ufffd\ufffd本語 naïve", "utf-8"),
        (b"\xef\xbb\xbf" + "naïve café".encode() + b"\xff", "naïve café\ufffd", "utf-8"),
        (b"\x1b[31mred\x1b[0m", "\x1b[31mred\x1b[0m", "utf-8"),
    ],
)
def test_encoding_is_detected(base, data, text, encoding):
    (base / "x.txt").write_bytes(data)
    result = FileReadTool(base).execute('{"path": "x.txt"}')
    assert (result.output, result.structured_output["encoding"]) == (text, encoding)


@pytest.mark.parametrize(
    "data",
    [
        b"\0",
        b"text with a \0 in it",
        bytes(range(256)),
        b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR",
        b"\xff\xd8\xff\xe0",
        b"\x1f\x8b\x08\x08" + b"abcdefghijklmnopqrstuvwxyz",
        b"\xff\xfe\xfd",
        b"\x80\x81\x82",
        b"\x7fELF\x02\x01\x01\0",
        b"\xef\xbb\xbf\xff\xff",
        b"%PDF-1.4\n%\xe2\xe3\xcf\xd3\n1 0 obj << /Type /Catalog >> endobj",
        b"%PDF-1.4\n1 0 obj",
        b"GIF89a and nothing else",
        "naïve café".encode() + b"\xff\1",
    ],
)
def test_binary_file_is_reported(base, data):
    (base / "x.bin").write_bytes(data)
    assert read(base, path="x.bin") == f"Error: 'x.bin' is a binary file of {len(data)} bytes, not text"


@pytest.mark.parametrize("path", ["../secret.txt", "/etc/passwd", "link.txt", "folder/secret.txt", "hard.txt", "x\0"])
def test_files_outside_cannot_be_read(base, tmp_path, path):
    (base / "link.txt").symlink_to(tmp_path / "secret.txt")
    (base / "folder").symlink_to(tmp_path)
    (base / "hard.txt").hardlink_to(tmp_path / "secret.txt")
    assert read(base, path=path) == f"Error: {DENIED}"


@pytest.mark.parametrize("path", ["../missing.txt", "../secret.txt", "../base", "link/missing", "link/secret.txt"])
def test_files_outside_cannot_be_detected(base, tmp_path, path):
    (base / "link").symlink_to(tmp_path)
    assert read(base, path=path) == f"Error: {DENIED}"


def test_absolute_path_is_denied_even_inside(base):
    assert read(base, path=str(base / "five.txt")) == f"Error: {DENIED}"


def test_missing_file_is_reported_without_its_full_path(base):
    assert read(base, path="notes/none.txt") == "Error: File not found: 'notes/none.txt'"


def test_pipe_is_rejected_without_blocking(base):
    os.mkfifo(base / "pipe")
    assert read(base, path="pipe") == "Error: 'pipe' is a device or a pipe, not a file"


def test_file_over_size_limit_is_rejected(base):
    tool = FileReadTool(base, max_bytes=23)
    assert tool.execute('{"path": "five.txt"}').text == "Error: 'five.txt' is too large: 24 bytes, the limit is 23"
    assert FileReadTool(base, max_bytes=24).execute('{"path": "five.txt"}').output == FIVE
    os.truncate(base / "five.txt", 2**40)
    assert read(base, path="five.txt") == f"Error: 'five.txt' is too large: {2**40} bytes, the limit is 10485760"


def test_tool_runs_in_another_process(base):
    assert pickle.loads(pickle.dumps(FileReadTool(base))).execute('{"path": "five.txt"}').output == FIVE
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        box = Toolbox([FileReadTool(base)], executor=pool)
        (reply,) = box.execute_all([ToolCall("file_read", {"path": "five.txt"})])
    assert reply.text == FIVE
