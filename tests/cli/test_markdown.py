from __future__ import annotations

import pytest

from toolsemble._cli.text_output import MarkdownBlocks


def split(*pieces):
    blocks = MarkdownBlocks()
    found = [block for piece in pieces for block in blocks.add(piece)]
    return [*found, blocks.finish()]


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        (["a"], ["a"]),
        (["a\n\nb"], ["a", "b"]),
        (["a\n", "\n", "\n\n", "b"], ["a", "b"]),
        (["a\nb\n"], ["a\nb"]),
        (["```\na\n\nb\n```\n\nc"], ["```\na\n\nb\n```", "c"]),
        (["~~~\n```\n\n~~~\n\nc"], ["~~~\n```\n\n~~~", "c"]),
        (["```py\na\n\nb"], ["```py\na\n\nb"]),
        ([""], [""]),
    ],
)
def test_text_is_split_at_blank_lines_outside_of_code(pieces, expected):
    assert split(*pieces) == expected


def test_text_is_split_in_the_same_way_however_it_arrives():
    text = "# a\n\nb\nc\n\n```\nd\n\ne\n```\n\nf"
    assert split(*text) == split(text)
