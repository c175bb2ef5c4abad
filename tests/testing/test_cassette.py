import dataclasses
import datetime
import itertools
import json
import threading

import pytest

from helpers.sample_tools import AsyncEcho, Echo, call
from toolsemble import (
    Agent,
    AudioContent,
    ExitEarly,
    FileContent,
    ImageContent,
    Secret,
    TextContent,
    Toolbox,
    ToolCall,
    ToolConfigurationError,
    ToolDefinitionError,
    ToolPipeline,
    ToolResult,
    tool,
)
from toolsemble.testing import Cassette, FakeReviewer, ScriptedModel

HIDDEN = "**********"


class Counter:
    """A tool that gives another number each time, so that a replay differs from a call."""

    def __init__(self):
        self.numbers = itertools.count(1)

    @tool
    def roll(self, sides: int = 6) -> str:
        """Roll a die."""
        return f"{sides}: {next(self.numbers)}"


ROLL = ToolCall("roll")


def make_recorder(path, mode="once", **settings):
    cassette = Cassette(path, mode, **settings)
    return cassette, cassette.around(Toolbox([Counter()]))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "tapes" / "dice.json"


def recorded_calls(path):
    return json.loads(path.read_text(encoding="utf-8"))["calls"]


def test_equal_calls_are_replayed_in_order(path):
    recorder, box = make_recorder(path)
    eight = ToolCall("roll", {"sides": 8})
    texts = [box.execute(made).text for made in (ROLL, eight, ROLL)]
    assert (texts, recorder.is_playing, recorder.unplayed) == (["6: 1", "8: 2", "6: 3"], False, [])
    player, box = make_recorder(path)
    assert player.unplayed == [ROLL, eight, ROLL]
    assert [box.execute(made).text for made in (eight, ROLL, ROLL)] == ["8: 2", "6: 1", "6: 3"]
    assert (player.is_playing, player.unplayed) == (True, [])


def test_cassette_is_readable_text(path):
    make_recorder(path)[1].execute(ROLL)
    assert path.read_text(encoding="utf-8") == (
        '{\n  "cassette": 1,\n  "calls": [\n    {\n      "tool": "roll",\n      "arguments": {},\n'
        '      "output": "6: 1"\n    }\n  ]\n}\n'
    )
    path.write_text(path.read_text(encoding="utf-8").replace("6: 1", "sechs: é"), encoding="utf-8")
    assert make_recorder(path)[1].execute(ROLL).text == "sechs: é"


def test_key_order_and_whitespace_do_not_matter(path):
    @tool
    def add(a: int, b: int) -> int:
        return a + b

    Cassette(path).around(Toolbox([add])).execute(ToolCall("add", {"a": 1, "b": 2}))
    box = Cassette(path, "replay").around(Toolbox([add]))
    assert box.execute(ToolCall("add", '{"b": 2,\n "a": 1}')).result == ToolResult.success("3", 3)


def test_failures_are_replayed(path):
    texts = ["{", "[1]", '"x"', '{"sides": "many"}', "{}"]
    recorded = [make_recorder(path, "record")[1].execute(ToolCall("roll", text)).result for text in texts[:1]]
    _, box = make_recorder(path, "record")
    recorded = [box.execute(ToolCall("roll", text)).result for text in texts]
    _, box = make_recorder(path, "replay")
    assert [box.execute(ToolCall("roll", text)).result for text in texts] == recorded
    assert [each.is_success for each in recorded] == [False, False, False, False, True]


def test_unknown_tool_calls_are_replayed(path):
    made = ToolCall("rolll")
    first = make_recorder(path)[1].execute(made)
    assert make_recorder(path)[1].execute(made) == first


def test_record_mode_starts_a_new_cassette(path):
    make_recorder(path)[1].execute(ROLL)
    _, box = make_recorder(path, "record")
    box.execute(ToolCall("roll", {"sides": 20}))
    assert [each["arguments"] for each in recorded_calls(path)] == [{"sides": 20}]


@pytest.mark.parametrize("boxed", [Toolbox([Echo()]), Toolbox([AsyncEcho()])], ids=["sync", "async"])
async def test_async_calls_are_recorded_and_replayed(path, boxed):
    made = [call(boxed.names[0], text) for text in ("a", "b", "a")]
    recorded = await Cassette(path).around(boxed).aexecute_all(made)
    assert await Cassette(path).around(boxed).aexecute_all(made) == recorded
    assert len(recorded_calls(path)) == 3


def test_hooks_can_be_passed_to_a_toolbox(path):
    for _ in range(2):
        cassette = Cassette(path)
        box = Toolbox([Counter()], before_call=cassette.before_call, after_call=cassette.after_call)
        assert box.execute(ROLL).text == "6: 1"


def test_replay_runs_no_tool_and_asks_no_reviewer(path):
    @tool(requires_approval=True)
    def delete(file: str) -> str:
        return f"deleted {file}"

    reviewer = FakeReviewer()
    box = Toolbox([delete], review=reviewer)
    made = ToolCall("delete", {"file": "a.log"})
    assert Cassette(path).around(box).execute(made).text == "deleted a.log"
    assert Cassette(path).around(box).execute(made).text == "deleted a.log"
    assert len(reviewer.requests) == 1


def test_agent_run_is_replayed_offline(path):
    def run(counter):
        model = ScriptedModel([ROLL, [ROLL, ToolCall("roll", {"sides": 2})], lambda said: said[-1].text])
        return Agent(model, Cassette(path).around(Toolbox([counter], max_concurrency=1))).run_sync("Roll!")

    first = run(Counter())
    later = Counter()
    assert run(later).messages == first.messages
    assert next(later.numbers) == 1


def test_pipeline_is_recorded_as_one_call(path):
    pipeline = ToolPipeline.of(Echo(), AsyncEcho(), name="both")
    made = call("both", "hello")
    first = Cassette(path).around(Toolbox([pipeline])).execute(made)
    assert [each["tool"] for each in recorded_calls(path)] == ["both"]
    assert Cassette(path).around(Toolbox([pipeline])).execute(made).text == first.text == "hello"


def test_calls_that_end_the_run_are_not_recorded(path):
    @tool
    def ask() -> str:
        raise ToolConfigurationError("no key")

    cassette = Cassette(path)
    box = cassette.around(Toolbox([ask, Counter()]))
    with pytest.raises(ToolConfigurationError, match="no key"):
        box.execute(ToolCall("ask"))
    box.execute(ROLL)
    assert [each["tool"] for each in recorded_calls(path)] == ["roll"]


def test_call_is_recorded_before_inner_hooks_change_it(path):
    inner = Toolbox([Echo()], before_call=lambda made, context: call(text="changed"))
    assert Cassette(path).around(inner).execute(call()).text == "changed"
    assert Cassette(path).around(inner).execute(call()).text == "changed"


# what is missing, and what is said of it
MISSING = {
    "other arguments": (
        ToolCall("roll", {"sides": 7}),
        'has no roll({"sides": 7}); the nearest is roll({"sides": 6}); ',
    ),
    "another tool": (ToolCall("rol"), "has no rol({}); the nearest is roll({}); "),
    "no JSON": (ToolCall("roll", "{'a"), "has no roll({'a); the nearest is roll({}); "),
    "once more": (ROLL, "has roll({}) once, and this is one more; "),
    "a third time": (ToolCall("roll", {"sides": 6}), 'has roll({"sides": 6}) 2 times, and this is one more; '),
}


@pytest.mark.parametrize(("made", "said"), MISSING.values(), ids=MISSING)
def test_unrecorded_call_error_names_the_nearest_call(path, made, said):
    _, recording = make_recorder(path)
    for each in (ROLL, ToolCall("roll", {"sides": 6}), ToolCall("roll", {"sides": 6})):
        recording.execute(each)
    _, box = make_recorder(path, "replay")
    for each in (ROLL, ToolCall("roll", {"sides": 6}), ToolCall("roll", {"sides": 6})):
        box.execute(each)
    with pytest.raises(ToolConfigurationError) as caught:
        box.execute(made)
    assert str(caught.value) == f"The cassette '{path}' {said}record it again with Cassette(path, mode='record')"


def test_empty_cassette_has_no_nearest_call(path):
    path.parent.mkdir()
    path.write_text('{"cassette": 1, "calls": []}', encoding="utf-8")
    with pytest.raises(ToolConfigurationError, match=r"has no roll\({}\); it is empty; record it again"):
        make_recorder(path)[1].execute(ROLL)


@tool
def login(user: str, password: Secret[str]) -> str:
    """Log in."""
    if user == "eve":
        raise PermissionError(f"{password.get_secret_value()} is wrong")
    return f"{user} is in with {password.get_secret_value()}"


def test_secrets_are_masked_and_match_any_value_during_replay(path):
    box = Toolbox([login])
    tape = Cassette(path).around(box)
    for user in ("ada", "eve"):
        tape.execute(ToolCall("login", {"user": user, "password": "hunter2"}))
    assert "hunter2" not in path.read_text(encoding="utf-8")
    assert recorded_calls(path) == [
        {"tool": "login", "arguments": {"user": "ada", "password": HIDDEN}, "output": f"ada is in with {HIDDEN}"},
        {"tool": "login", "arguments": {"user": "eve", "password": HIDDEN}, "error": f"{HIDDEN} is wrong"},
    ]
    tape = Cassette(path).around(box)
    again = tape.execute(ToolCall("login", {"user": "eve", "password": "other"}))
    assert again.text == f"Error: {HIDDEN} is wrong"
    with pytest.raises(ToolConfigurationError) as caught:
        tape.execute(ToolCall("login", {"user": "bob", "password": "hunter3"}))
    assert "hunter3" not in str(caught.value)
    assert f'has no login({{"user": "bob", "password": "{HIDDEN}"}})' in str(caught.value)


def test_hide_masks_other_texts(path):
    @tool
    def fetch(url: str, tries: list[str], limit: int = 1) -> dict:
        return {"url": url, "key": "sk-123"}

    made = ToolCall("fetch", {"url": "https://x.test/?key=sk-123&q=1", "tries": ["sk-123", "b"]})
    Cassette(path, hide=["sk-123"]).around(Toolbox([fetch])).execute(made)
    assert "sk-123" not in path.read_text(encoding="utf-8")
    tape = Cassette(path, hide="sk-123").around(Toolbox([fetch]))
    for other in (
        {"url": "https://x.test/?key=other&q=2", "tries": ["sk-9", "b"]},
        {"url": "https://x.test/?key=other&q=1", "tries": ["sk-9"]},
        {"url": "https://x.test/?key=other&q=1", "tries": "b"},
        {"url": 7, "tries": ["sk-9", "b"]},
        {"url": "https://x.test/?key=other&q=1", "tries": ["sk-9", True]},
        {"url": "https://x.test/?key=other&q=1"},
    ):
        with pytest.raises(ToolConfigurationError, match="has no fetch"):
            tape.execute(ToolCall("fetch", other))
    found = tape.execute(ToolCall("fetch", {"url": "https://x.test/?key=k\n2&q=1", "tries": ["", "b"]}))
    assert found.result.structured_output == {"url": f"https://x.test/?key={HIDDEN}&q=1", "key": HIDDEN}


@dataclasses.dataclass
class Trip:
    city: str
    day: datetime.date


CONTENTS = [
    TextContent("a footnote"),
    ImageContent(b"\x00\x01", "image/png"),
    AudioContent(b"\x02", "audio/wav"),
    FileContent(b"\x03", "application/pdf", "a.pdf"),
]

# result, what is played, what is said to be lost
RESULTS = {
    "contents": (ToolResult.success("see", contents=CONTENTS), ToolResult.success("see", contents=CONTENTS), []),
    "JSON": (
        ToolResult.success("ok", {"a": [1, 2.5, None, True]}, attributes={"n": 1}),
        ToolResult.success("ok", {"a": [1, 2.5, None, True]}, attributes={"n": 1}),
        [],
    ),
    "tuples are lists": (ToolResult.success("ok", (1, (2,))), ToolResult.success("ok", [1, [2]]), []),
    "a failure with a payload": (
        ToolResult.failure("no", structured_output={"code": 3}, attributes={"error_code": 3}),
        ToolResult.failure("no", structured_output={"code": 3}, attributes={"error_code": 3}),
        [],
    ),
    "an object": (
        ToolResult.success("ok", Trip("Rome", datetime.date(2024, 2, 29))),
        ToolResult.success("ok", {"city": "Rome", "day": "2024-02-29"}),
        ["make: structured_output (Trip)"],
    ),
    "keys that are no text": (
        ToolResult.success("ok", {1: "a"}),
        ToolResult.success("ok", {"1": "a"}),
        ["make: structured_output (dict)"],
    ),
    "no number": (
        ToolResult.success("ok", float("nan")),
        ToolResult.success("ok", "nan"),
        ["make: structured_output (float)"],
    ),
    "attributes": (
        ToolResult.success("ok", attributes={"at": datetime.date(2024, 2, 29), "n": 1}),
        ToolResult.success("ok", attributes={"at": "2024-02-29", "n": 1}),
        ["make: attributes.at (date)"],
    ),
    "custom contents": (
        ToolResult.success("ok", contents=[{"kind": "odd"}]),
        ToolResult.success("ok", contents=[TextContent("{'kind': 'odd'}")]),
        ["make: contents[0] (dict)"],
    ),
    "half a surrogate pair": (ToolResult.success("ok", "\ud800"), ToolResult.success("ok", "\ud800"), []),
}


@pytest.mark.parametrize(("result", "played", "lost"), RESULTS.values(), ids=RESULTS)
def test_results_that_json_cannot_represent_are_converted_and_reported(path, caplog, result, played, lost):
    @tool
    def make() -> ToolResult:
        return result

    recorder = Cassette(path)
    recorder.around(Toolbox([make])).execute(ToolCall("make"))
    player = Cassette(path)
    assert player.around(Toolbox([make])).execute(ToolCall("make")).result == played
    assert recorder.converted == player.converted == lost
    assert [record.getMessage() for record in caplog.records if record.name == "toolsemble.testing"] == [
        f"The cassette '{path}' has {place} of make {kind} as JSON only"
        for place, kind in (each.removeprefix("make: ").split(" ") for each in lost)
    ]


def test_opaque_object_is_recorded_as_text(path):
    @tool
    def make() -> ToolResult:
        loop = []
        loop.append(loop)
        return ToolResult.success("ok", loop)

    recorder = Cassette(path)
    recorder.around(Toolbox([make])).execute(ToolCall("make"))
    assert recorder.converted == ["make: structured_output (list)"]
    assert recorded_calls(path)[0]["structured_output"] == "[[...]]"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "JSONDecodeError"),
        ("[]", "TypeError"),
        ("{}", "KeyError: 'cassette'"),
        ('{"cassette": 2}', "ValueError: its version is 2, only 1 is supported"),
        ('{"cassette": 1, "calls": [{"tool": "roll", "arguments": {}}]}', "KeyError: 'output'"),
        ('{"cassette": 1, "calls": [{"tool": "roll", "arguments": 3, "output": ""}]}', "TypeError"),
        ('{"cassette": 1, "calls": [7]}', "AttributeError"),
    ],
)
def test_rejects_file_that_is_not_a_cassette(path, text, said):
    path.parent.mkdir()
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ToolConfigurationError) as caught:
        Cassette(path)
    assert str(caught.value).startswith(f"The cassette '{path}' cannot be read ({said}")


def test_missing_cassette_cannot_be_replayed(path):
    with pytest.raises(ToolConfigurationError) as caught:
        Cassette(path, "replay")
    assert str(caught.value) == f"There is no cassette '{path}'; record it with Cassette(path, mode='record')"


def test_rejects_unknown_mode(path):
    with pytest.raises(ToolDefinitionError, match="Cassette mode must be one of once, record, replay, not 'new'"):
        Cassette(path, "new")


def test_unwritable_cassette_fails_the_call_and_leaves_no_file(path):
    path.mkdir(parents=True)  # in the place of the file
    reply = make_recorder(path, "record")[1].execute(ROLL)
    assert reply.text.startswith("Error: The after_call hook failed: ")
    assert [each.name for each in path.parent.iterdir()] == ["dice.json"]


def test_threads_can_share_one_cassette(path):
    _, box = make_recorder(path)
    threads = [threading.Thread(target=box.execute, args=[ROLL]) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(recorded_calls(path)) == 20
    _, box = make_recorder(path)
    assert len({box.execute(ROLL).text for _ in range(20)}) == 20
    assert [each.name for each in path.parent.iterdir()] == ["dice.json"]


def test_rejection_is_recorded(path):
    @tool(requires_approval=True)
    def delete() -> str:
        return "deleted"

    box = Toolbox([delete], review=FakeReviewer(ExitEarly("no")))
    for _ in range(2):
        assert Cassette(path).around(box).execute(ToolCall("delete")).text == "Error: Rejected by reviewer: no"
