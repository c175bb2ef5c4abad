from __future__ import annotations

import json
import pickle
import sys
import threading

import jsonpath_rfc9535
import pytest
from hypothesis import given, settings, strategies as st

from toolsemble import Toolbox, ToolCall, ToolDefinitionError, ToolResult
from toolsemble.builtin import JsonParserTool, _jsonpath as jsonpath

pytestmark = pytest.mark.slow

DOCUMENT = {
    "users": [{"name": "Ada", "age": 36}, {"name": "Bob", "e.mail": "bob@example.org"}],
    "count": 2,
    "ratio": 0.5,
    "ok": True,
    "none": None,
    "empty": {},
    "a b": {"c-d": "é"},
    'quo"te': 1,
    "it's": 2,
    "[0]": 3,
    "back\\slash": 4,
    "12": "digits",
    "big": 123456789012345678901234567890,
}
BOX = Toolbox([JsonParserTool()])


def parse(path, document=DOCUMENT):
    """Return the text for the model."""
    text = document if isinstance(document, str) else json.dumps(document)
    return BOX.execute(ToolCall("json_parser", {"json_path": path, "json": text})).text


def select(query, document):
    """Return the values that a query selects, or the error."""
    result = BOX.execute(ToolCall("json_parser", {"json_path": query, "json": json.dumps(document)})).result
    return result.structured_output if result.is_success else result.text


def test_specification():
    (specification,) = BOX.specifications
    assert specification.name == "json_parser"
    assert list(specification.parameters["properties"]) == ["json_path", "json"]
    assert specification.parameters["required"] == ["json_path", "json"]
    assert all(each["description"] for each in specification.parameters["properties"].values())


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("users[1].name", "Bob"),
        ("users[-1].name", "Bob"),
        ("users[-2].name", "Ada"),
        ("users[ 0 ].age", "36"),
        ('users[1]["e.mail"]', "bob@example.org"),
        ("users[1]['e.mail']", "bob@example.org"),
        ('["users"][0]["name"]', "Ada"),
        ("users[0]", '{"name":"Ada","age":36}'),
        ("users", '[{"name":"Ada","age":36},{"name":"Bob","e.mail":"bob@example.org"}]'),
        ("count", "2"),
        ("ratio", "0.5"),
        ("ok", "true"),
        ("none", "null"),
        ("empty", "{}"),
        ("a b.c-d", "é"),
        ("a b", '{"c-d":"é"}'),
        ('["quo\\"te"]', "1"),
        ("['it\\'s']", "2"),
        ("it's", "2"),
        ('["[0]"]', "3"),
        ('["back\\\\slash"]', "4"),
        ("back\\slash", "4"),
        ("12", "digits"),
        ("big", "123456789012345678901234567890"),
    ],
)
async def test_dot_path_selects_value(path, text):
    assert parse(path) == text
    call = ToolCall("json_parser", {"json_path": path, "json": json.dumps(DOCUMENT)})
    assert (await BOX.aexecute(call)).text == text


def test_structured_output_is_the_value():
    given = '{"json_path": "a[0]", "json": "{\\"a\\": [{\\"b\\": 1}]}"}'
    assert JsonParserTool().execute(given) == ToolResult.success('{"b":1}', {"b": 1})


@pytest.mark.parametrize("document", ["[1, 2]", '"text"', "3", "null"])
def test_empty_path_selects_whole_document(document):
    assert parse("", document) == document.replace(" ", "").strip('"')


def test_path_may_start_with_index():
    assert parse("[1][0]", [1, ["x"]]) == "x"


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("users[0].email", "Path not found: 'email'. Keys there: name, age"),
        ("user", "Path not found: 'user'. Keys there: users, count, ratio, ok, none, empty, a b, quo\"te, it's, [0], "),
        ("empty.x", "Path not found: 'x'. The object there is empty"),
        ("users.name", "Path not found: 'name'. There is an array of size 2; write an index such as [0]"),
        ("users.0", "Path not found: '0'. There is an array of size 2; write an index such as [0]"),
        ("count.x", "Path not found: 'x'. There is a number, which has no parts"),
        ("ratio.x", "Path not found: 'x'. There is a number, which has no parts"),
        ("ok.x", "Path not found: 'x'. There is a boolean, which has no parts"),
        ("none.x", "Path not found: 'x'. There is null, which has no parts"),
        ("users[0].name.x", "Path not found: 'x'. There is a string, which has no parts"),
        ("users[0].name[0]", "Path not found: '[0]'. There is a string, which has no parts"),
        ("empty[0]", "Path not found: '[0]'. The object there is empty"),
        ("users[5]", "Array index out of bounds: index 5 is out of bounds for array of size 2"),
        ("users[2]", "Array index out of bounds: index 2 is out of bounds for array of size 2"),
        ("users[-3]", "Array index out of bounds: index -3 is out of bounds for array of size 2"),
        ("users[", "Invalid path: 'users[' at position 5; write keys with dots, indices as [0] and other keys as"),
        ("users[x]", "Invalid path: 'users[x]' at position 5; "),
        ("users[1", "Invalid path: 'users[1' at position 5; "),
        ("users[1]name", "Invalid path: 'users[1]name' at position 8; "),
        ("users..name", "Invalid path: 'users..name' at position 5; "),
        (".users", "Invalid path: '.users' at position 0; "),
        ("users.", "Invalid path: 'users.' at position 5; "),
        ("users]", "Invalid path: 'users]' at position 5; "),
        (
            "users[99999999999999999999]",
            "Array index out of bounds: index 99999999999999999999 is out of bounds for array of size 2",
        ),
        (
            f"users[-{'9' * 4000}]",
            f"Array index out of bounds: index -{'9' * 79}... is out of bounds for array of size 2",
        ),
        (f"count[{'9' * 100}]", f"Path not found: '[{'9' * 80}...]'. There is a number, which has no parts"),
        ("users[" + "9" * 5000 + "]", "Invalid path: "),
        ('["\\x"]', 'Invalid path: the key "\\x": Invalid \\escape'),
    ],
)
def test_missing_path_lists_existing_keys(path, problem):
    assert parse(path).startswith(f"Error: {problem}")


def test_index_error_reports_array_size():
    message = "Error: Array index out of bounds: index 5 is out of bounds for array of size 3"
    assert parse("[5]", [1, 2, 3]) == message


def test_only_the_first_of_many_keys_are_listed():
    message = parse("x", {f"k{n}": n for n in range(30)})
    assert message.endswith(f"Keys there: {', '.join(f'k{n}' for n in range(20))} and 10 more")


@pytest.mark.parametrize("path", ["a", "$.a"])
@pytest.mark.parametrize(
    ("document", "problem"),
    [
        ("", "Invalid JSON: Expecting value: line 1 column 1 (char 0)"),
        ("{'a': 1}", "Invalid JSON: Expecting property name enclosed in double quotes"),
        ('{"a": 1', "Invalid JSON: Expecting ',' delimiter"),
        ('{"a": NaN}', "Invalid JSON: NaN is not a JSON value"),
        ('{"a": -Infinity}', "Invalid JSON: -Infinity is not a JSON value"),
        ('{"a": 1e999}', "Invalid JSON: the number 1e999 is too large"),
        (f'{{"a": {"1" * 5000}}}', "Invalid JSON: the number 11111111111111111111... has more than 4000 digits"),
        ("[" * 200_000, "Invalid JSON: it is nested too deeply"),
    ],
)
def test_invalid_json_is_reported(path, document, problem):
    assert parse(path, document).startswith(f"Error: {problem}")


def test_big_integers_stay_exact():
    digits = "9" * 3999
    assert parse("a[0]", f'{{"a": [{digits}]}}') == digits
    assert parse("$.a", f'{{"a": [{digits}]}}') == f"[[{digits}]]"
    assert parse("a", '\ufeff{"a": -12345678901234567890}') == "-12345678901234567890"


def test_document_may_be_an_object():
    call = ToolCall("json_parser", {"json_path": "a.b", "json": {"a": {"b": 12345678901234567890}}})
    assert BOX.execute(call).text == "12345678901234567890"


def test_lone_surrogate_is_accepted():
    assert parse("a", '{"a": "\\ud800"}') == "\\ud800"


STORE = {
    "store": {
        "book": [
            {"category": "reference", "author": "Nigel Rees", "title": "Sayings", "price": 8.95},
            {"category": "fiction", "author": "Evelyn Waugh", "title": "Sword", "price": 12.99},
            {"category": "fiction", "author": "Herman Melville", "title": "Moby", "isbn": "0-553", "price": 8.99},
            {"category": "fiction", "author": "J. R. R. Tolkien", "title": "Rings", "isbn": "0-395", "price": 22.99},
        ],
        "bicycle": {"color": "red", "price": 399},
    }
}
TENS = [0, 10, 20, 30, 40, 50]
NUMBER_AND_TRUE = [[1], [True], [1.0]]


@pytest.mark.parametrize(
    ("query", "document", "values"),
    [
        # the root, names and wildcards
        ("$", 1, [1]),
        ("$", {"a": 1}, [{"a": 1}]),
        ("$.a", {"a": 1}, [1]),
        ("$.a", {"a": None}, [None]),
        ("$.a", {"b": 1}, []),
        ("$.a", [1], []),
        ("$['a']", {"a": 1}, [1]),
        ('$["a"]', {"a": 1}, [1]),
        ("$['a b','c']", {"a b": 1, "c": 2}, [1, 2]),
        ("$['a','a']", {"a": 1}, [1, 1]),
        ("$['\\u263A']", {"☺": 1}, [1]),
        ("$['\\uD834\\uDD1E']", {"𝄞": 1}, [1]),
        ("$['\\'']", {"'": 1}, [1]),
        ('$["\\n\\t\\/\\\\"]', {"\n\t/\\": 1}, [1]),
        ("$.☺", {"☺": 1}, [1]),
        ("$['']", {"": 1}, [1]),
        ("$ .a  [0]", {"a": [5]}, [5]),
        ("$.a\n.b", {"a": {"b": 1}}, [1]),
        ("$.*", {"a": 1, "b": [2]}, [1, [2]]),
        ("$[*]", [1, 2], [1, 2]),
        ("$[*, 0]", [1, 2], [1, 2, 1]),
        ("$.*", 1, []),
        # indices and slices
        ("$[0]", TENS, [0]),
        ("$[-1]", TENS, [50]),
        ("$[6]", TENS, []),
        ("$[-7]", TENS, []),
        ("$[0]", {"0": 1}, []),
        ("$[0,-1,1:3]", TENS, [0, 50, 10, 20]),
        ("$[1:3]", TENS, [10, 20]),
        ("$[4:]", TENS, [40, 50]),
        ("$[:-4]", TENS, [0, 10]),
        ("$[::2]", TENS, [0, 20, 40]),
        ("$[5:1:-2]", TENS, [50, 30]),
        ("$[::-1]", TENS, [50, 40, 30, 20, 10, 0]),
        ("$[::0]", TENS, []),
        ("$[3:1]", TENS, []),
        ("$[-100:100]", TENS, TENS),
        ("$[ 1 : 5 : 2 ]", TENS, [10, 30]),
        ("$[:]", {"a": 1}, []),
        # descendants
        ("$..a", {"a": 1, "b": {"a": 2}, "c": [{"a": 3}]}, [1, 2, 3]),
        ("$..[0]", [[1], [2]], [[1], 1, 2]),
        ("$..*", {"a": [1]}, [[1], 1]),
        ("$.a..b", {"a": {"b": {"b": 1}}, "b": 2}, [{"b": 1}, 1]),
        ("$..*..*", {"a": {"b": {"c": 1}}}, [{"c": 1}, 1, 1]),
        ("$..price", STORE, [8.95, 12.99, 8.99, 22.99, 399]),
        ("$.store.book[*].author", STORE, ["Nigel Rees", "Evelyn Waugh", "Herman Melville", "J. R. R. Tolkien"]),
        # filters: existence, comparison, logic
        ("$.store.book[?@.isbn].title", STORE, ["Moby", "Rings"]),
        ("$.store.book[?@.price < 10].title", STORE, ["Sayings", "Moby"]),
        ("$.store.book[?(@.price<10 && @.isbn)].title", STORE, ["Moby"]),
        ("$.store.book[?@.price>20 || @.price<8.96].title", STORE, ["Sayings", "Rings"]),
        ("$.store.book[?!@.isbn].title", STORE, ["Sayings", "Sword"]),
        ("$.store.book[?!(@.isbn && @.price>10)].title", STORE, ["Sayings", "Sword", "Moby"]),
        ("$..[?@.color=='red'].price", STORE, [399]),
        ("$..book[?@.price > $.store.book[1].price].title", STORE, ["Rings"]),
        ("$[?@.a]", [{"a": None}, {"a": False}, {"a": []}, {}], [{"a": None}, {"a": False}, {"a": []}]),
        ("$[?@>15]", TENS, [20, 30, 40, 50]),
        ("$[?@>=20 && @<=30]", TENS, [20, 30]),
        ("$[?@!=10]", [10, "10", None], ["10", None]),
        ("$[?@=='a']", ["a", "b", 1], ["a"]),
        ('$[?@=="\\u0061"]', ["a", "b"], ["a"]),
        ("$[?@<'b']", ["a", "b", 1], ["a"]),
        ("$[?@==null]", [None, 0, False], [None]),
        ("$[?@==true]", [True, 1, "true"], [True]),
        ("$[?@==1]", [1, 1.0, True, "1"], [1, 1.0]),
        ("$[?@==-0]", [0, 0.0], [0, 0.0]),
        ("$[?@==1e2]", [100, 10], [100]),
        ("$[?@==1.5E-1]", [0.15], [0.15]),
        ("$[?@.a==@.b]", [{}, {"a": 1}, {"a": 1, "b": 1}], [{}, {"a": 1, "b": 1}]),
        ("$[?@.a!=@.b]", [{}, {"a": 1}], [{"a": 1}]),
        ("$[?@.a<=@.b]", [{}, {"a": [1], "b": [1]}, {"a": [1], "b": [2]}], [{}, {"a": [1], "b": [1]}]),
        ("$[?@==$[0]]", [[1, {"a": 2}], [1, {"a": 2}], [1]], [[1, {"a": 2}], [1, {"a": 2}]]),
        ("$[?@==$[0]]", NUMBER_AND_TRUE, [[1], [1.0]]),
        ("$[?@!=$[0]]", NUMBER_AND_TRUE, [[True]]),
        ("$[?@==$[0]]", [{"a": 0}, {"a": False}, {"b": 0}, []], [{"a": 0}]),
        ("$[?@<$[0]]", [[1], [0]], []),
        ("$[?@.*]", [[], [1], {"a": 1}, 1], [[1], {"a": 1}]),
        ("$[?@[?@>1]]", [[1], [2]], [[2]]),
        ("$.a[?@.b, ?@.c]", {"a": [{"b": 1, "c": 2}]}, [{"b": 1, "c": 2}, {"b": 1, "c": 2}]),
        ("$[?@]", {"a": 1, "b": None}, [1, None]),
        # functions
        ("$[?length(@)==1]", ["𝄞", "ab", [1], {"a": 1}, 1], ["𝄞", [1], {"a": 1}]),
        ("$[?length(@.a)>1]", [{"a": "x"}, {"a": "xy"}, {}], [{"a": "xy"}]),
        ("$[?count(@.*)==2]", [[1], [1, 2], {"a": 1, "b": 2}], [[1, 2], {"a": 1, "b": 2}]),
        ("$[?value(@..a)==1]", [{"a": 1}, {"a": 2}, {"a": 1, "b": {"a": 1}}], [{"a": 1}]),
        ("$[?match(@.d, '1974-05-..')]", [{"d": "1974-05-11"}, {"d": "x1974-05-11"}, {}], [{"d": "1974-05-11"}]),
        ("$[?search(@, '[BR]ob')]", ["Bob!", "Rob", "bob"], ["Bob!", "Rob"]),
        ("$[?!match(@, 'a')]", ["a", "b"], ["b"]),
        ("$[?match(@, 'a.c')]", ["abc", "a\nc", "a\rc", "a\u2028c", "a𐄀c", "a.c"], ["abc", "a\u2028c", "a𐄀c", "a.c"]),
        ("$[?match(@, 'a[.]c')]", ["abc", "a.c"], ["a.c"]),
        ("$[?match(@, 'a\\\\.c')]", ["abc", "a.c"], ["a.c"]),
        ("$[?search(@, '[\\\\].]x')]", ["]x", ".x", "ax"], ["]x", ".x"]),
        ("$[?match(@, '\\\\p{Lu}')]", ["A", "a", "Ж"], ["A", "Ж"]),
        ("$[?match(@, '[^\\\\p{Lu}]')]", ["A", "a"], ["a"]),
        ("$[?match(@, 'ab|cd')]", ["ab", "cd", "abd"], ["ab", "cd"]),
        ("$[?match(@, 'a{2,3}')]", ["a", "aa", "aaaa"], ["aa"]),
        ("$[?match(@, '(?i)a')]", ["a", "A"], []),
        ("$[?match(@, '[b-a]')]", ["a"], []),
        ("$[?match(@, 1)]", ["1"], []),
        ("$[?match(@, 'a')]", [1, None, ["a"]], []),
        ("$[?search(@.a, $[0].b)]", [{"b": "x."}, {"a": "axb"}, {"a": "x"}], [{"a": "axb"}]),
    ],
)
def test_query_follows_the_standard(query, document, values):
    assert repr(select(query, document)) == repr(values)
    assert parse(query, document) == json.dumps(values, ensure_ascii=False, separators=(",", ":"))


@pytest.mark.parametrize(
    "query",
    [
        "$.",
        "$..",
        "$a",
        "$.a ",
        "$.1",
        "$.a.",
        "$['a]",
        "$['a'",
        '$["\\x"]',
        "$['\\uD800']",
        '$["a\nb"]',
        "$[]",
        "$[01]",
        "$[-0]",
        "$[1.0]",
        "$[9007199254740992]",
        "$[1:2:3:4]",
        "$[a]",
        "$[0",
        "$[?]",
        "$[?@.a==]",
        "$[?@.a=1]",
        "$[?@.a===1]",
        "$[?1]",
        "$[?'a']",
        "$[?@.*==1]",
        "$[?@==[1]]",
        "$[?@=={}]",
        "$[?(@.a]",
        "$[?@.a and @.b]",
        "$[?True]",
        "$[?@==.5]",
        "$[?@==01]",
        "$[?length(@.*)==1]",
        "$[?length()==1]",
        "$[?length(@)]",
        "$[?count(1)==1]",
        "$[?match(@.a, 'x')==true]",
        "$[?unknown(@)]",
        "$[?Length(@)==1]",
        "$[?length (@)==1]",
        "$[?@ == 1e400]",
        "$[?@ == " + "9" * 4500 + "]",
        "$.a; import os",
        "$.store.book[(@.length-1)]",
        "$[?__import__('os')]",
        "$" + "[0]" * 5000,
        "$[?" + "(" * 2000 + "@" + ")" * 2000 + "]",
        "$[?" + "!" * 4000 + "@.a]",
    ],
)
def test_invalid_query_is_reported(query):
    assert parse(query, [1]).startswith("Error: Invalid JSONPath: ")


def test_invalid_query_error_is_readable():
    assert parse("$[01]") == "Error: Invalid JSONPath: leading zero in index selector, line 1, column 2"
    assert parse("$" + "a" * 5000) == "Error: Invalid JSONPath: it has more than 5000 characters"


def test_empty_selection_is_not_an_error():
    result = JsonParserTool().execute('{"json_path": "$.nothing", "json": "{}"}')
    assert result == ToolResult.success("[]", [])


def nested(depth, width=1):
    """Return arrays inside arrays."""
    value = 1
    for _ in range(depth):
        value = [value] * width
    return value


@pytest.mark.parametrize(
    ("query", "document"),
    [
        ("$" + "..*" * 12, nested(12, 2)),
        ("$" + "..[?@..*]" * 8, nested(10, 2)),
        ("$[?count($..*..*..*..*..*) > 0]", nested(12, 2)),
        ("$" + "[*,*,*,*]" * 30, nested(30)),
        (f"$[?{'&&'.join(['1==2'] * 150)}]", [1] * 20_000),
        ("$[?match(@, '(a|aa)+b')]", ["a" * 100]),
        ("$[?search(@, '(a|aa)+b')]", ["a" * 100]),
    ],
)
def test_endless_query_is_stopped(query, document):
    call = ToolCall("json_parser", {"json_path": query, "json": json.dumps(document)})
    reply = Toolbox([JsonParserTool(timeout=0.5)]).execute(call)
    assert reply.text == "Error: Invalid JSONPath: it takes too long; write a more exact query"


@pytest.mark.parametrize(("limit", "stopped"), [(10, True), (100, False)])
def test_query_steps_are_limited(monkeypatch, limit, stopped):
    monkeypatch.setattr(jsonpath, "_MAX_STEPS", limit)
    assert parse("$..*", list(range(20))).startswith("Error: ") is stopped


@pytest.mark.parametrize("depth", [90, 499, 501, 900])
def test_deep_document_is_searched_or_refused(depth):
    refused = "Error: The document is nested too deeply for '..': more than 500 levels"
    assert parse("$..*", nested(depth)).startswith("[[" if depth < 500 else refused)
    assert parse("$..[?@ == 1]", nested(depth)) == ("[1]" if depth < 500 else refused)


def test_query_with_too_many_segments_is_rejected():
    assert parse("$" + ".a" * 2000, {"a": 1}) == (
        "Error: Invalid JSONPath: the query or the document is nested too deeply"
    )


def test_large_value_cannot_be_selected_many_times():
    document = json.dumps(["x" * 1_000_000])
    call = {"json_path": f"$[{','.join(['0'] * 2400)}]", "json": document}
    assert JsonParserTool().execute(call).error_message == (
        "The query selects more than 10,000,000 characters; write a more exact one"
    )
    assert len(JsonParserTool().execute({**call, "json_path": "$[0,0,0]"}).output) == 3_000_010


@pytest.mark.parametrize(
    ("query", "document", "text"),
    [
        ("$[?@.a==9007199254740993]", '[{"a":9007199254740993},{"a":9007199254740992}]', '[{"a":9007199254740993}]'),
        ("$[?@>9007199254740992]", "[9007199254740992,9007199254740993]", "[9007199254740993]"),
        ("$[?@==-9007199254740993]", "[-9007199254740993,-9007199254740992]", "[-9007199254740993]"),
        (f"$[?@=={'9' * 1000}]", f"[{'9' * 1000},1]", f"[{'9' * 1000}]"),
        ("$[?@==1e20]", "[100000000000000000000]", "[100000000000000000000]"),
    ],
)
def test_query_compares_big_integers_exactly(query, document, text):
    assert parse(query, document) == text


@pytest.mark.parametrize(
    ("pattern", "texts", "found"),
    [
        ("a{1,1000}", ["a" * 1000, "a" * 1001, "b"], ["a" * 1000]),
        ("a{10}", ["a" * 10, "a" * 11], ["a" * 10]),
        ("a{12,}", ["a" * 11, "a" * 12], ["a" * 12]),
        ("(ab{2}){10}", ["abb" * 10, "abb"], ["abb" * 10]),
        ("[{10}]{02}", ["{1", "10", "2"], ["{1", "10"]),
        ("\\\\{1}", ["\\"], ["\\"]),
        ("\\p{Lu}{11}", ["A" * 11, "a" * 11], ["A" * 11]),
        ("\\p{10}", ["p"], []),
        ("a{10", ["a"], []),
        ("a{,10}", ["a"], []),
        ("a{30,10}", ["a" * 20], []),
    ],
)
def test_pattern_quantifiers_may_exceed_nine(pattern, texts, found):
    assert select("$.texts[?match(@, $.pattern)]", {"pattern": pattern, "texts": texts}) == found


@pytest.mark.parametrize(
    "pattern", ["((a{1000}){1000}){1000}", "a{10001}", "(((((a{9}){9}){9}){9}){9})", f"a{{1,{'9' * 4900}}}"]
)
def test_memory_exhausting_pattern_is_rejected(pattern):
    assert select("$.texts[?search(@, $.pattern)]", {"pattern": pattern, "texts": ["a"]}) == (
        f"Error: Invalid JSONPath: the pattern {pattern[:60] + '...' * (len(pattern) > 60)!r} "
        "repeats more than 10,000 characters"
    )


def test_pattern_length_is_limited():
    assert select("$[?search('a', $[0])]", ["a" * 5001]) == (
        "Error: Invalid JSONPath: a pattern has more than 5000 characters"
    )


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(2, 4) | st.sampled_from(["", "a", "b", "ab", 1.5]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=12,
)
PIECES = ["$", "@", ".a", "['b']", "[0]", "[-1]", "[1:]", "[::-1]", ".*", "..a", "..*", "[*]", "[?", "]", "(", ")", "!"]
PIECES += [" ", "==", "<", ">=", "&&", "||", "1", "'a'", "null", "true", "length(", "count(", "match(", "value(", ","]


def query_with_library(query, document):
    try:
        return jsonpath_rfc9535.find(query, document).values()
    except jsonpath_rfc9535.JSONPathError as problem:
        return f"Error: Invalid JSONPath: {problem}"


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=8).map("".join), JSON)
def test_limited_queries_agree_with_library(rest, document):
    """What is built upon the library answers as the library does."""
    assert repr(select(f"${rest}", document)) == repr(query_with_library(f"${rest}", document))


@settings(max_examples=200, deadline=None)
@given(st.text(st.sampled_from("$@.[]()?*:,'\"\\!=<>&|0a-u \n") | st.characters(), max_size=30), JSON)
def test_no_path_raises(path, document):
    text = parse(path, document)
    assert not text.startswith("Error: ") or text.split(":")[1].strip().split()[0] in {"Invalid", "Path", "Array"}


def test_missing_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "jsonpath_rfc9535", None)
    with pytest.raises(ToolDefinitionError, match=r"JsonParserTool needs .*pip install .*\[json\]"):
        JsonParserTool()


def test_tool_can_be_pickled():
    copied = pickle.loads(pickle.dumps(JsonParserTool()))
    assert copied.execute('{"json_path": "$[0]", "json": "[1]"}').output == "[1]"


def test_pattern_is_limited_by_wall_clock(monkeypatch):
    ended = threading.Event()

    def starved(expression, text, *, timeout, concurrent=False):
        """Match as on a machine that gives this program no time: only a moment of it passes."""
        if timeout <= jsonpath._QUICK_SECONDS:
            raise TimeoutError
        return ended.wait(60) or None

    monkeypatch.setattr(jsonpath.regex, "fullmatch", starved)
    box = Toolbox([JsonParserTool(timeout=0.2)])
    try:
        reply = box.execute(ToolCall("json_parser", {"json_path": "$[?match(@, 'a?a?')]", "json": '["aa"]'}))
    finally:
        ended.set()
    assert reply.text == "Error: Invalid JSONPath: it takes too long; write a more exact query"


def test_slow_pattern_is_matched(monkeypatch):
    monkeypatch.setattr(jsonpath, "_QUICK_SECONDS", 1e-9)
    pattern = "a?" * 20 + "a" * 20
    box = Toolbox([JsonParserTool()])
    for text, found in (("a" * 20, [("a" * 20)]), ("a" * 19, [])):
        reply = box.execute(
            ToolCall("json_parser", {"json_path": f"$[?match(@, '{pattern}')]", "json": json.dumps([text])})
        )
        assert reply.result.structured_output == found
