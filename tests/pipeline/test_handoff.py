import asyncio
import dataclasses
import datetime
import enum
import logging
import re
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, NamedTuple, TypedDict

import attrs
import msgspec
import pydantic
import pytest

from helpers.sample_tools import Echo, Function, Plain
from toolsemble import (
    Continue,
    Edit,
    ErrorStrategy,
    ImageContent,
    Param,
    SchemaTool,
    Step,
    Tool,
    Toolbox,
    ToolCall,
    ToolContext,
    ToolDefinitionError,
    ToolPipeline,
    ToolResult,
    TypedTool,
    choose,
    fan_out,
    map_over,
    tool,
)
from toolsemble.telemetry import TraceFile
from toolsemble.testing import RecordingSink


@dataclass
class Hit:
    title: str
    url: str
    rank: int = 1


@dataclass
class Place:
    title: str
    url: str


class Model(pydantic.BaseModel):
    title: str
    url: str


@attrs.define
class Attrs:
    title: str
    url: str


class Struct(msgspec.Struct):
    title: str
    url: str


class Pair(NamedTuple):
    title: str
    url: str


class Keys(TypedDict):
    title: str
    url: str


class OpenModel(pydantic.BaseModel, extra="allow"):
    title: str


HIT = Hit("Rome", "https://rome")
PLAIN = {"title": "Rome", "url": "https://rome"}


@pytest.fixture(params=["sync", "async"])
def run(request):
    """Run a tool in a sync or an async way, with what it got on record."""

    def run(pipeline, given="{}"):
        if request.param == "sync":
            return pipeline.execute(given)
        return asyncio.run(pipeline.aexecute(given))

    return run


def make_giver(value):
    """A tool that returns a value without declaring its type."""
    return Function(lambda _: value, "giver")


def make_taker(kind, seen):
    """A tool that takes an object of a type and keeps it."""

    class Taker(TypedTool[kind]):
        name = "taker"
        description = "Takes an object"

        def run(self, input):
            seen.append(input)
            return "taken"

    return Taker()


def test_object_of_same_type_is_passed_by_identity(run):
    for kind, value in [
        (Hit, HIT),
        (Model, Model(**PLAIN)),
        (Attrs, Attrs(**PLAIN)),
        (Struct, Struct(**PLAIN)),
        (Pair, Pair(**PLAIN)),
    ]:
        seen = []
        assert run(make_giver(value) | make_taker(kind, seen)).output == "taken"
        assert seen[0] is value


@pytest.mark.parametrize(
    "value", [HIT, Place(**PLAIN), Model(**PLAIN), Attrs(**PLAIN), Struct(**PLAIN), Pair(**PLAIN), PLAIN]
)
@pytest.mark.parametrize("kind", [Place, Model, Attrs, Struct, Pair, Keys])
def test_valid_fields_are_passed_on(kind, value, run):
    seen = []
    assert run(make_giver(value) | make_taker(kind, seen)).text == "taken"
    assert seen == [value if type(value) is kind else kind(**PLAIN)]


def test_fields_are_matched_to_parameters_by_name(run):
    seen = []

    @tool
    def fetch(url: str, rank: int, retries: int = 3) -> None:
        seen.append((url, rank, retries))

    schema = SchemaTool(
        "schema",
        "",
        seen.append,
        {"properties": {"url": {"type": "string"}}, "required": ["url"], "additionalProperties": False},
    )
    open_schema = SchemaTool("open", "", seen.append, {"properties": {"url": {"type": "string"}}, "required": ["url"]})
    for each in (fetch, schema, open_schema, make_taker(OpenModel, seen)):
        assert run(make_giver(HIT) | each).is_success
    whole = {"title": "Rome", "url": "https://rome", "rank": 1}
    assert seen == [("https://rome", 1, 3), {"url": "https://rome"}, whole, OpenModel(**whole)]


def test_values_are_not_serialized_between_steps(run):
    seen = []
    day = datetime.date(2024, 5, 17)

    @tool
    def plan(day: datetime.date, hits: list[Hit], raw: bytes, kind: Literal["a", "b"]) -> None:
        seen.append((day, hits, raw, kind))

    run(make_giver({"day": day, "hits": [HIT, Place(**PLAIN)], "raw": b"\xff", "kind": "a"}) | plan)
    assert seen == [(day, [HIT, HIT], b"\xff", "a")]


def test_object_is_passed_by_identity_in_parameter_and_list(run):
    seen = []

    @tool
    def one(hit: Hit, more: int = 1) -> None:
        seen.append(hit)

    @tool
    def many(hits: list[Hit]) -> None:
        seen.extend(hits)

    run(make_giver(HIT) | one)
    run(make_giver([HIT, HIT]) | many)
    run(make_giver([HIT]) | map_over(one))
    assert all(each is HIT for each in seen)
    assert len(seen) == 4


def test_values_are_not_coerced(run):
    @tool
    def count(number: int, other: int) -> int:
        return number

    # As text it goes the way of any arguments, and there repairs are on record.
    result = run(make_giver({"number": "5", "other": 1}) | count)
    assert result.output == "5"
    assert [repair["path"] for repair in result.attributes["steps"][1].result.attributes["repairs"]] == ["number"]


def test_text_fills_single_required_parameter(run):
    seen = []

    @tool
    def save(text: str, path: str = "default") -> None:
        seen.append((text, path))

    @tool
    def only(text: str = "") -> None:
        seen.append(text)

    hostile = '{"text": "x", "path": "/etc/passwd"}'
    for giver in (Function(lambda _: hostile, "page"), Plain()):
        assert run(giver | save, hostile).is_success
    run(Function(lambda _: hostile, "page") | only)
    run(Function(lambda _: "", "page") | save)
    assert seen == [(hostile, "default"), (hostile, "default"), hostile, ("", "default")]


def test_text_is_parsed_as_arguments_without_single_parameter(run):
    @tool
    def save(text: str, path: str) -> str:
        return f"{text} in {path}"

    @tool
    def both(a: int = 1, b: int = 2) -> int:
        return a + b

    assert run(Function(lambda _: '{"text": "x", "path": "p"}', "page") | save).output == "x in p"
    assert run(Function(lambda _: "not json", "page") | save).error_message.startswith("Invalid JSON input for 'save'")
    assert run(Function(lambda _: "", "page") | both).output == "3"


def test_number_in_text_is_parsed(run):
    @tool
    def double(number: int) -> int:
        return number * 2

    assert run(Echo() | double, "21").output == "42"
    assert run(Echo() | double, "many").error_message == "Invalid arguments for 'double': number: expected an integer"


@pytest.mark.parametrize(
    ("value", "got"), [([1, 2], [1, 2]), ({"other": 1}, {"other": 1}), (7, 7), (HIT, HIT), (True, True)]
)
def test_any_value_fills_single_required_parameter(value, got, run):
    seen = []

    @tool
    def take(value: Any) -> None:
        seen.append(value)

    run(make_giver(value) | take)
    assert seen == [got]


def test_mismatched_values_are_passed_as_text(run):
    seen = []

    @tool
    def save(text: str) -> None:
        seen.append(text)

    for value in ([1, 2], {"a": 1}, 7, HIT):
        run(make_giver(value) | save)
    assert seen == ["[1,2]", '{"a":1}', "7", '{"title":"Rome","url":"https://rome","rank":1}']


def test_step_without_parameters_gets_nothing(run):
    @tool
    def now() -> str:
        return "noon"

    assert run(Echo() | now, "whatever").output == "noon"
    assert run(make_giver({"a": 1}) | now).output == "noon"
    assert run(make_giver([1]) | SchemaTool("nothing", "", str)).output == "{}"


def test_circular_value_fails_step(run):
    loop = {}
    loop["self"] = loop
    giver = Function(lambda _: ToolResult.success("x", loop), "giver")

    @tool
    def take(self_: Annotated[dict, Param(name="self")], other: int) -> None: ...

    assert not run(giver | take).is_success


def test_adapter_dict_becomes_arguments(run):
    seen = []

    @tool
    def save(text: str, limit: int = 3) -> None:
        seen.append((text, limit))

    day = datetime.date(2024, 5, 17)

    @tool
    def plan(day: datetime.date) -> None:
        seen.append(day)

    def adapted(value, step):
        return run(Step(Echo(), lambda _: value) | step, "x")

    adapted({"text": "a", "limit": 5}, save)
    repaired = adapted({"text": "a", "limit": "5"}, save)
    adapted({"day": day}, plan)
    adapted([1], Function(seen.append, "text"))
    refused = adapted({"text": "a", "unknown": 5, "limit": "x"}, save)
    assert seen == [("a", 5), ("a", 5), day, "[1]"]
    assert [each["step"] for each in repaired.attributes["steps"][1].result.attributes["repairs"]] == ["coerce"]
    assert refused.error_message.startswith("Invalid arguments for 'save': limit: expected an integer")
    assert adapted({"day": object()}, plan).error_message.startswith("Invalid arguments for 'plan'")


def test_adapter_text_fills_single_parameter(run):
    @tool
    def save(text: str, limit: int = 3) -> str:
        return text

    assert run(Step(Echo(), lambda _: '{"limit": 5}') | save, "x").output == '{"limit": 5}'


def test_error_message_fills_single_required_parameter(run):
    @tool
    def report(problem: str, level: int = 1) -> str:
        return f"reported: {problem}"

    failing = Function(lambda _: ToolResult.failure("no luck", structured_output={"problem": "other"}), "failing")
    pipeline = ToolPipeline("p", "", [Step(failing, on_error=ErrorStrategy.CONTINUE_ON_FAILURE), report])
    assert run(pipeline).output == "reported: no luck"


def test_reviewer_sees_handed_over_arguments(run):
    shown = []

    class Watch:
        def review(self, request):
            shown.append(request.arguments)

    @tool(requires_approval=True)
    def save(hit: Hit) -> None: ...

    (make_giver(HIT) | save).execute("x", ToolContext(review=Watch()))
    assert shown == [{"hit": dataclasses.asdict(HIT)}]


def test_step_record_has_arguments_of_body(run):
    @tool
    def save(text: str, limit: int = 3) -> None: ...

    @tool
    def strict(a: int, b: int) -> None: ...

    assert run(Echo() | save, "x").attributes["steps"][1].input == {"text": "x", "limit": 3}
    assert run(make_giver({"a": "?"}) | strict).attributes["steps"][1].input == {"a": "?"}


def test_nested_pipeline_takes_input_of_its_first_step(run):
    @tool
    def fetch(url: str) -> str:
        return f"fetched {url}"

    inner = ToolPipeline("inner", "", [fetch, Echo()])
    assert run(make_giver(HIT) | inner).output == "fetched https://rome"
    assert run(make_giver([HIT, HIT]) | ToolPipeline("inner", "", [map_over(fetch)])).output == (
        '["fetched https://rome","fetched https://rome"]'
    )


def test_branch_results_are_passed_by_name(run):
    @tool
    def upper(text: str) -> str:
        return text.upper()

    @tool
    def length(text: str) -> int:
        return len(text)

    @tool
    def join(upper: str, length: int) -> str:
        return f"{upper} {length}"

    assert run(Echo() | fan_out(upper, length) | join, "rome").output == "ROME 4"
    assert run(Echo() | fan_out(upper, length) | Echo(), "rome").output == '{"upper":"ROME","length":4}'


class Box:
    """Runs a pipeline called ``p`` in a toolbox."""

    def __init__(self, *steps, **settings):
        self.box = Toolbox([ToolPipeline("p", "", steps)], **settings)

    def result(self, text="x"):
        return self.box.execute(ToolCall("p", {"input": text})).result


@tool
def take2(title: str, n: int) -> str:
    return f"{title}{n}"


@tool
def takeint(x: int) -> int:
    return x


@pytest.mark.parametrize("repair", [False, True])
@pytest.mark.parametrize(
    ("made", "branches", "text"),
    [
        ({"title": "t", "n": 1, "x": 3}, fan_out(take2, takeint), '{"take2":"t1","takeint":3}'),
        ({"x": 3, "input": "hello"}, fan_out(Echo(), takeint), '{"echo":"hello","takeint":3}'),
        ({"x": 3, "input": "hello"}, choose(lambda values: values["x"] > 5, takeint, Echo()), "hello"),
        ({"x": 3, "input": "hello"}, choose(lambda values: values["x"] < 5, takeint, Echo()), "3"),
        ({"input": "hello"}, fan_out(Echo()), '{"echo":"{\\"input\\":\\"hello\\"}"}'),
        ({"x": 3}, fan_out(Echo(), takeint), '{"echo":"{\\"x\\":3}","takeint":3}'),
        (["a"], fan_out(Echo()), '{"echo":"[\\"a\\"]"}'),
    ],
)
def test_adapter_dict_is_distributed_among_branches(made, branches, text, repair):
    assert Box(Step(Echo(), lambda _: made), branches, repair=repair).result().output == text


def test_value_unknown_to_all_branches_is_rejected():
    made = {"title": "t", "n": 1, "x": 3, "y": 4}
    result = Box(Step(Echo(), lambda _: made), fan_out(take2, takeint), repair=False).result()
    assert result.error_message.count("y: not a parameter of this tool") == 2


@pytest.mark.parametrize(
    ("giver", "step", "shown", "edit", "output"),
    [
        (Step(Echo(), lambda _: ["1", "2"]), map_over(Echo()), {"items": ["1", "2"]}, '{"items": ["1"]}', '["1"]'),
        (Step(Echo(), lambda _: '["1"]'), map_over(Echo()), {"items": ["1"]}, '{"items": ["3"]}', '["3"]'),
        (Step(Echo(), lambda _: ["1"]), fan_out(Echo()), '["1"]', "2", '{"echo":"2"}'),
        (Step(Echo(), lambda _: {"a": 1}), choose(len, Echo(), Echo()), '{"a":1}', "2", "2"),
        (Step(Echo(), lambda _: "no list"), map_over(Echo()), "no list", '{"items": ["3"]}', None),
    ],
)
def test_reviewer_sees_editable_arguments(giver, step, shown, edit, output):
    asked = []

    class Reviewer:
        def review(self, request):
            asked.append(request.arguments)
            return Edit(edit) if len(asked) == 1 else Continue()

    step.requires_approval = True
    result = Box(giver, step, review=Reviewer()).result()
    assert asked[0] == shown
    assert result.output == (output or '["3"]')


def test_adapter_object_is_passed_whole(run):
    whole = run(Step(Echo(), lambda _: Hit("t", "u")) | take_title, "x")
    assert [repair["path"] for repair in whole.attributes["repairs"]] == ["rank"]
    fields = run(make_giver(Hit("t", "u")) | take_title, "x")
    assert (whole.output, fields.output, fields.attributes.get("repairs")) == ("tu", "tu", None)


@tool
def take_title(title: str, url: str) -> str:
    return title + url


# --- what is known to be wrong is refused


@tool
def an_integer() -> int: ...


@tool
def a_list() -> list[str]: ...


@tool
def anything_listed() -> list[Any]: ...


@tool
def a_hit() -> Hit: ...


@tool
def nothing() -> None: ...


@tool
def two(path: str, content: str) -> None: ...


@tool
def number(number: int) -> None: ...


@tool
def integers(values: list[int]) -> None: ...


@tool
def options(a: int = 1, b: int = 2) -> None: ...


@tool
def text(text: str) -> None: ...


def make_taker_of(kind):
    """A tool with one parameter of a type."""

    def take(value):
        return "taken"

    take.__annotations__ = {"value": kind}
    return tool(take)


@tool
def optional_text(text: str = "none") -> str:
    return f"<{text}>"


@tool
def optional(number: int = 1) -> int:
    return number


@dataclass
class Page:
    url: int
    title: str


@dataclass
class Tree:
    inner: list["Tree"] = field(default_factory=list)


class Holder(pydantic.BaseModel):
    hit: Hit


class Pages(TypedTool[Page]):
    name = "pages"
    description = ""

    def run(self, input: Page) -> Page: ...


class Places(TypedTool[Place]):
    name = "places"
    description = ""

    def run(self, input: Place) -> Place: ...


def make_giver_of(kind):
    @tool
    def giver() -> Any: ...

    giver._function.__annotations__["return"] = kind
    return giver


URL_OR_NULL = {"properties": {"url": {"type": ["integer", "null"]}, "x": {}}, "required": ["url", "x"]}


@pytest.mark.parametrize(
    ("giver", "step", "problem"),
    [
        (
            an_integer,
            two,
            "Step 'an_integer' returns int, but step 'two' takes two(path: string, content: string): it is integer",
        ),
        (an_integer, two, "it is integer, not object; put an adapter between them: Step(an_integer, adapter=...)"),
        (nothing, two, "returns NoneType, but step 'two'"),
        (a_list, number, "Step 'a_list' returns list[str], but step 'number' takes number(number: integer)"),
        (
            make_giver_of(list[int]),
            make_taker_of(list[Hit]),
            "returns list[int], but step 'take' takes take(value: array): value[] is integer, not object",
        ),
        (
            make_giver_of(None),
            number,
            "returns NoneType, but step 'number' takes number(number: integer): number is null",
        ),
        (make_giver_of(list[int]), make_taker_of(list[list[Hit]]), "value[][] is integer, not object"),
        (make_giver_of(int), make_taker_of(list[Hit]), "value[] is integer, not object"),
        (a_hit, map_over(text), "returns Hit, but step 'each_text' takes each_text(items: array): it is object, not"),
        (an_integer, map_over(number), "takes each_number(items: array): it is integer, not array"),
        (
            make_giver_of(list[int]),
            map_over(make_taker_of(Hit)),
            "step 'take' takes take(value: object): value is integer, not",
        ),
        (
            make_giver_of(list[float]),
            map_over(two),
            "step 'two' takes two(path: string, content: string): it is number",
        ),
        (make_giver_of(float), fan_out(number, two), "returns float, but step 'two' takes"),
        (make_giver_of(float), choose(len, text, two), "returns float, but step 'two' takes"),
        (
            make_giver_of(float),
            ToolPipeline("inner", "", [fan_out(two), Echo()]),
            "returns float, but step 'two' takes",
        ),
        (map_over(takeint), take2, "returns list[int], but step 'take2' takes take2(title: string, n"),
        (fan_out(takeint, Echo()), take2, "Step 'takeint_and_echo' returns Results, but step 'take2' takes"),
        (choose(len, takeint, takeint), take2, "returns int, but step 'take2' takes"),
        (anything_listed, number, "returns list[Any], but step 'number' takes"),
        (a_list, options, "returns list[str], but step 'options' takes"),
        (a_hit, two, "but step 'two' takes two(path: string, content: string): path is missing"),
        (a_hit, number, "returns Hit, but step 'number' takes"),
        (
            make_giver_of(TypedDict("Half", {"url": int})),
            Pages(),
            "Step 'giver' returns Half, but step 'pages' takes Page(url: integer, title: string): title is missing",
        ),
        (a_hit, SchemaTool("schema", "", print, URL_OR_NULL), "x: any): x is missing"),
        (
            make_giver_of(TypedDict("Listed", {"url": list[int], "x": int})),
            SchemaTool("schema", "", print, URL_OR_NULL),
            "x: any): url is array, not integer or null",
        ),
    ],
)
def test_incompatible_types_are_rejected_at_definition(giver, step, problem):
    with pytest.raises(ToolDefinitionError, match=re.escape(problem)):
        giver | step
    assert Step(giver, lambda result: "x") | step


@tool
def holder(hit: Hit, more: int = 1) -> None: ...


@tool
def union(value: int | list[int], other: str) -> None: ...


@tool
def anything(value: Any, other: str) -> None: ...


class Color(enum.Enum):
    RED = "red"


@pytest.mark.parametrize(
    ("kind", "step"),
    [
        (Any, two),
        (object, two),
        (str, two),
        (str, number),
        (ToolResult, two),
        (ToolResult | None, two),
        (int | str, two),
        (dict, two),
        (list[ImageContent | str], two),
        (Annotated[ToolResult, "told"], two),
        (set[int], integers),
        (tuple[int, ...], integers),
        (dict[str, Any], two),
        (dict[str, Any], number),
        (dict[str, int], Pages()),
        (Any | None, two),
        (int, number),
        (float, number),
        (bool, make_giver_of(str)),
        (list, integers),
        (list[int], integers),
        (list[Any], integers),
        (Holder, holder),
        (Hit, holder),
        (Hit | None, Places()),
        (Place, Places()),
        (Model, Places()),
        (Tree, make_taker(Tree, [])),
        (Color, number),
        (asyncio.Lock, two),
        (TypedDict("Both", {"value": int, "other": str}), union),
        (TypedDict("Both", {"value": bytes, "other": str}), anything),
        (Hit, Echo()),
        (list[int], map_over(number)),
        (list, map_over(number)),
        (dict, map_over(number)),
        (str | int, map_over(number)),
        (list[int] | int, map_over(number)),
        (TypedDict("Items", {"items": list[int]}), map_over(number)),
        (int, fan_out(number, text)),
        (None, options),
        (None, optional),
        (list[int], make_taker_of(list[str])),
        (list[str], integers),
        (Hit, make_taker_of(list[Hit])),
        (Hit, Pages()),
        (int, an_integer),
        (int, text),
        (list[int], SchemaTool("array", "", print, {"properties": {"a": {"type": "array"}}})),
        (TypedDict("Open", {"path": str}), SchemaTool("open", "", print, {"properties": {"path": {}}})),
    ],
)
def test_possibly_compatible_types_are_accepted(kind, step):
    assert make_giver_of(kind) | step


@dataclass
class Text:
    title: str
    n: str


@pytest.mark.parametrize(
    ("value", "step", "output"),
    [
        (None, options, ""),
        (None, optional, "1"),
        ("", optional, "1"),
        (None, optional_text, "<>"),
        (None, make_taker_of(str), "taken"),
        ([1, 2], make_taker_of(list[str]), "taken"),
        (["1", "2"], integers, ""),
        (Hit("t", "u"), make_taker_of(list[Hit]), "taken"),
        (Text("t", "3"), take2, "t3"),
    ],
)
def test_repairable_values_run(value, step, output, run):
    result = run(make_giver(value) | step, "x")
    assert (result.error_message, result.output) == (None, output)


def test_branches_have_return_types():
    typed = fan_out(takeint, a_hit, nothing, error_strategy=ErrorStrategy.FAIL_FAST)
    assert typed | holder_of_results
    assert fan_out(takeint, merge=len) | two
    assert choose(len, takeint, Echo()) | two
    with pytest.raises(ToolDefinitionError, match="returns Results, but step 'holder_of_results' takes"):
        fan_out(a_list, a_hit, nothing, name="x", error_strategy=ErrorStrategy.FAIL_FAST) | holder_of_results


@tool
def holder_of_results(takeint: int, a_hit: Hit, nothing: str) -> None: ...


def test_pipeline_has_the_return_type_of_its_last_step():
    inner = ToolPipeline("inner", "", [Echo(), an_integer])
    with pytest.raises(ToolDefinitionError, match="Step 'inner' returns int, but step 'two' takes"):
        inner | two


def test_class_has_the_return_type_of_its_run_method():
    class Counted(Tool):
        name = "counted"
        description = ""

        def run(self, input: str) -> int: ...

    def counted(arguments: dict) -> int: ...

    for giver in (Counted(), SchemaTool("counted", "", counted)):
        with pytest.raises(ToolDefinitionError, match="Step 'counted' returns int"):
            giver | two
    Counted.run.__annotations__["return"] = "Unresolvable"
    assert Counted() | two


def test_typed_pipeline_runs_in_a_toolbox_with_repairs_off():
    @tool
    def search(query: str) -> list[Hit]:
        return [Hit(query, "u")]

    @tool
    def titles(hits: list[Hit]) -> list[str]:
        return [hit.title for hit in hits]

    reply = Toolbox([search | titles], repair=False).execute(ToolCall("search_then_titles", {"query": "rome"}))
    assert reply.text == '["rome"]'


@tool
def fetch_rows(url: str) -> ToolResult:
    return ToolResult.success("a page", {"rows": (1, 2), "url": url})


@tool
def take_amount(amount: int) -> str:
    return str(amount)


@tool
def fetch_opaque(url: str) -> ToolResult:
    rows = []
    rows.append(rows)
    return ToolResult.success("an object", rows)


@tool
def fetch_text(url: str) -> str:
    return "a page"


@pytest.mark.parametrize(
    ("first", "shown"),
    [
        (fetch_rows, '{"rows": [1, 2], "url": "x"}'),
        (fetch_text, "a page"),
        (Step(fetch_rows, lambda result: {"rows": result.structured_output["rows"]}), '{"rows":[1,2]}'),
    ],
    ids=["values", "text", "adapter"],
)
def test_input_that_does_not_fit_is_traced_as_json(tmp_path, caplog, first, shown):
    caplog.set_level(logging.INFO)
    sink, path = RecordingSink(), tmp_path / "trace.jsonl"
    box = Toolbox([first | take_amount], sinks=[sink, TraceFile(path)])
    assert box.execute(ToolCall(box.names[0], {"url": "x"})).is_error
    last = [event for event in sink.events if event.tool_name == "take_amount"]
    assert [event.arguments for event in last] == [shown, shown]
    assert box.flush(5)
    assert "ToolResult" not in path.read_text()
    assert f"take_amount({shown}) -> " in caplog.text


def test_object_that_json_cannot_hold_is_traced_as_the_text_of_its_step():
    sink = RecordingSink()
    box = Toolbox([fetch_opaque | take_amount], sinks=[sink])
    box.execute(ToolCall(box.names[0], {"url": "x"}))
    assert [event.arguments for event in sink.of("call_started")][-1] == "an object"
