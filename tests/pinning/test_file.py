"""The lock file: readable, deterministic, and refused unless it is intact."""

import json
import os
import stat

import pytest

from toolsemble import ToolConfigurationError, ToolLock, ToolSpecification
from toolsemble.catalog._pinning.lock_file import format_lock, read_lock, write_lock
from toolsemble.catalog._pinning.pins import PinnedTool

PIN = PinnedTool(
    "read",
    "Reader",
    "Read a file.\nOr two.",
    {"type": "object", "required": ["b", "a"], "properties": {"b": {"minimum": 1.0}, "a": {}}},
    {"type": "string"},
    {"readOnlyHint": True},
)
SOURCES = {"tools.py": {"read": PIN, "now": PinnedTool("now")}, "calculator": {}}


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "toolsemble.lock"
    write_lock(path, SOURCES)
    return path


def edit(path, change):
    values = json.loads(path.read_text())
    change(values)
    path.write_text(json.dumps(values))


def test_what_is_written_can_be_read(path):
    assert read_lock(path) == SOURCES


def test_is_sorted_and_readable(path):
    text = """\
{
  "toolsemble.lock": 1,
  "sources": {
    "calculator": {},
    "tools.py": {
      "now": {
        "digest": "NOW"
      },
      "read": {
        "digest": "READ",
        "title": "Reader",
        "description": [
          "Read a file.",
          "Or two."
        ],
        "input_schema": {
          "properties": {
            "a": {},
            "b": {
              "minimum": 1
            }
          },
          "required": [
            "a",
            "b"
          ],
          "type": "object"
        },
        "output_schema": {
          "type": "string"
        },
        "annotations": {
          "readOnlyHint": true
        }
      }
    }
  }
}
"""
    assert path.read_text() == text.replace("NOW", PinnedTool("now").digest).replace("READ", PIN.digest)


def test_is_the_same_for_any_order():
    turned = dict(reversed(SOURCES.items())) | {"tools.py": {"now": PinnedTool("now"), "read": PIN}}
    assert format_lock(turned) == format_lock(SOURCES)


@pytest.mark.parametrize(
    "text", ["a\u200bb", "\u202eevil", "\U000e0041", "\x7f", "\x1b[2J", "\ud800", "a\r\nb", "\u2028"]
)
def test_hidden_characters_are_escapes(tmp_path, text):
    pins = {f"source {text}": {text: PinnedTool(text, description=text)}}
    write_lock(tmp_path / "lock", pins)
    written = (tmp_path / "lock").read_bytes().decode("ascii")
    assert written.replace("\n", "").isprintable()
    assert read_lock(tmp_path / "lock") == pins


def test_visible_text_of_other_scripts_stays(tmp_path):
    write_lock(tmp_path / "lock", {"s": {"a": PinnedTool("a", description="città 天気")}})
    assert "città 天気" in (tmp_path / "lock").read_text(encoding="utf-8")


def test_keeps_other_sources(path):
    ToolLock.write(path, {"more": [ToolSpecification("now", "The time")], "calculator": []})
    assert {**SOURCES, "more": {"now": PinnedTool("now", description="The time")}} == read_lock(path)


def test_a_missing_folder_is_created(tmp_path):
    ToolLock.write(tmp_path / "deep" / "lock", {})
    assert read_lock(tmp_path / "deep" / "lock") == {}


def test_a_link_stays_a_link(tmp_path, path):
    link = tmp_path / "link"
    link.symlink_to(path)
    write_lock(link, {})
    assert link.is_symlink()
    assert read_lock(path) == {}


def test_others_may_read_it(path):
    mask = os.umask(0o022)
    try:
        write_lock(path, SOURCES)
    finally:
        os.umask(mask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o644


def test_a_failed_write_leaves_the_old_file(path, monkeypatch):
    def fail(number):
        raise OSError("the disk is full")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="the disk is full"):
        write_lock(path, {})
    assert read_lock(path) == SOURCES
    assert [each.name for each in path.parent.iterdir()] == [path.name]


def pin_of(values):
    return values["sources"]["tools.py"]["read"]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda values: pin_of(values).update(description="Send it."), "does not fit its text, so it was edited"),
        (lambda values: pin_of(values).update(digest="sha256:0"), "does not fit its text, so it was edited"),
        (lambda values: pin_of(values).pop("digest"), "does not fit its text, so it was edited"),
        (lambda values: pin_of(values).pop("annotations"), "does not fit its text, so it was edited"),
        (lambda values: values["sources"]["tools.py"].update(other=pin_of(values)), "so it was edited"),
        (lambda values: pin_of(values).update(note="x"), "tools.py: read has an unknown key 'note'"),
        (lambda values: pin_of(values).update(title=7), "'tools.py: read' has a text that is not one"),
        (lambda values: pin_of(values).update(input_schema=7), "input_schema must be an object, not int"),
        (lambda values: pin_of(values).update(annotations=None), "so it was edited"),
        (lambda values: values["sources"].update(other=[]), "'other' must be an object"),
        (lambda values: values["sources"]["tools.py"].update(read=1), "'tools.py: read' must be an object"),
        (lambda values: values.pop("sources"), "'sources' must be an object"),
        (lambda values: values.update(more=1), "it has an unknown key 'more'"),
        (lambda values: values.update({"toolsemble.lock": 2}), "it has version 2, and this library reads version 1"),
        (lambda values: values.update({"toolsemble.lock": True}), "it has version True"),
        (lambda values: values.pop("toolsemble.lock"), "it is not a lock file"),
    ],
)
def test_refuses_a_file_that_was_edited(path, change, reason):
    edit(path, change)
    with pytest.raises(ToolConfigurationError) as refusal:
        ToolLock(path).check("calculator", [])
    assert str(refusal.value).startswith(f"The lock file '{path}' cannot be used: ")
    assert reason in str(refusal.value)
    assert str(refusal.value).endswith("restore it from version control, or delete it, write it again with "
                                       "'toolsemble lock', and review all of it")  # fmt: skip


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "Expecting value"),
        ("[]", "it is not a lock file"),
        ('{"toolsemble.lock": 1, "sources": {"a": {}, "a": {}}}', "the key 'a' is there twice"),
        ('{"toolsemble.lock": NaN}', "NaN is not JSON"),
        ('{\n<<<<<<< HEAD\n"toolsemble.lock": 1\n=======\n}', "it has marks of a merge conflict"),
        ("[" * 100_000, "recursion|Stack overflow"),
        (b"\xff\xfe", "UnicodeDecodeError"),
    ],
)
def test_refuses_other_files(path, text, reason):
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ToolConfigurationError, match=reason):
        ToolLock(path).check("calculator", [])
    with pytest.raises(ToolConfigurationError, match=reason):
        ToolLock.write(path, {"calculator": []})


def test_refuses_a_folder(tmp_path):
    with pytest.raises(ToolConfigurationError, match="IsADirectoryError"):
        ToolLock(tmp_path).check("calculator", [])
