"""JSON pointers: the examples of RFC 6901, and references that lead nowhere."""

import pytest

from toolsemble._schema.argument_problems import escape_token, find_ref_target, follow_ref

# The document of RFC 6901, section 5, and the URI fragments of section 6.
DOCUMENT = {
    "foo": ["bar", "baz"],
    "": 0,
    "a/b": 1,
    "c%d": 2,
    "e^f": 3,
    "g|h": 4,
    "i\\j": 5,
    'k"l': 6,
    " ": 7,
    "m~n": 8,
}


@pytest.mark.parametrize(
    ("ref", "value"),
    [
        ("#", DOCUMENT),
        ("#/foo", ["bar", "baz"]),
        ("#/foo/0", "bar"),
        ("#/", 0),
        ("#/a~1b", 1),
        ("#/c%25d", 2),
        ("#/e%5Ef", 3),
        ("#/g%7Ch", 4),
        ("#/i%5Cj", 5),
        ("#/k%22l", 6),
        ("#/%20", 7),
        ("#/m~0n", 8),
    ],
)
def test_reference_follows_rfc_6901(ref, value):
    assert follow_ref(DOCUMENT, ref) == value


@pytest.mark.parametrize("key", DOCUMENT)
def test_escaped_key_is_found(key):
    assert follow_ref(DOCUMENT, f"#/{escape_token(key).replace('%', '%25')}") == DOCUMENT[key]


@pytest.mark.parametrize(
    ("ref", "problem"),
    [
        ("other.json#/foo", "'other.json#/foo' does not refer to a place in the same document"),
        ("#anchor", "'#anchor' does not refer to a place in the same document"),
        ("", "'' does not refer to a place in the same document"),
        ("#/nowhere", "'#/nowhere': there is no 'nowhere'"),
        ("#/foo/2", "'#/foo/2': there is no '2'"),
        ("#/foo/-", "'#/foo/-': there is no '-'"),
        ("#/foo/01", "'#/foo/01': there is no '01'"),
        ("#/foo/\u0661", "'#/foo/\u0661': there is no '\u0661'"),
        ("#/foo/0/x", "'#/foo/0/x': there is no 'x'"),
    ],
)
def test_dangling_reference_is_reported(ref, problem):
    with pytest.raises(LookupError) as caught:
        follow_ref(DOCUMENT, ref)
    assert str(caught.value).startswith(problem)
    assert find_ref_target(DOCUMENT, ref) == {}


def test_non_schema_target_is_an_empty_schema():
    assert find_ref_target(DOCUMENT, "#/foo") == {}
