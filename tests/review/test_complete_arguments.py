"""Nothing that a tool gets is left out: not for reviewers, rules and receipts, not in keys, not for other programs."""

import collections
import dataclasses
import datetime
import enum
import functools
import json
import logging
import sys
import threading
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Annotated, Any, NamedTuple, TypedDict

import attrs
import msgspec
import numpy
import pydantic
import pytest
import typing_extensions
from pydantic import AliasChoices, AliasPath, BaseModel, PrivateAttr, SecretStr, model_validator
from pydantic.dataclasses import dataclass as pydantic_dataclass

from helpers.columns import column
from helpers.sample_tools import Reviewer
from helpers.web_server import serving
from toolsemble import (
    Cache,
    Continue,
    ExitEarly,
    Param,
    Secret,
    Toolbox,
    ToolCall,
    ToolContext,
    ToolDefinitionError,
    ToolResult,
    TypedTool,
    tool,
)
from toolsemble._runtime.text import HIDDEN
from toolsemble._schema.display import to_display
from toolsemble._schema.masking import find_hidden_texts
from toolsemble._schema.members import names_of
from toolsemble._schema.typed_arguments import keeps_all
from toolsemble.builtin import HttpTool, ProcessTool
from toolsemble.review import AutoApprove, RememberReview, ReviewStore, Rule, RulesReview
from toolsemble.testing import RecordingSink


@attrs.define
class Target:
    _path: str
    _recursive: bool = False


@attrs.define
class Crossed:
    source: str = attrs.field(alias="target")
    target: str = attrs.field(alias="source")


@attrs.define
class Order:
    number: int = attrs.field(alias="order_number")
    _title: str = ""


class Under(Target):
    pass


@dataclass
class Job:
    name: str
    command: dataclasses.InitVar[str] = "true"

    def __post_init__(self, command):
        self.argv = command.split()


@dataclass
class Required:
    command: dataclasses.InitVar[str]
    argv: list[str] = dataclasses.field(init=False)

    def __post_init__(self, command):
        self.argv = command.split()


@pydantic_dataclass
class CheckedJob:
    name: str
    command: dataclasses.InitVar[str] = "true"

    def __post_init__(self, command):
        self.argv = command.split()


class Holder(BaseModel):
    jobs: list[CheckedJob] = []


class PlainHolder(BaseModel):
    job: Job


class TypedHolder(TypedDict):
    job: Job | None


INIT_ONLY = [
    Job,
    Required,
    CheckedJob,
    Holder,
    PlainHolder,
    TypedHolder,
    list[Job],
    dict[str, Job],
    Job | int,
    tuple[CheckedJob, ...],
    Annotated[Job, "A job"] | None,
]


def make_take_tool(kind, body=lambda value: "taken", **settings):
    def take(value):
        return body(value)

    take.__annotations__ = {"value": kind, "return": str}
    return tool(**settings)(take)


def request_for(kind, value, **settings):
    reviewer = Reviewer(Continue())
    box = Toolbox([make_take_tool(kind, requires_approval=True, **settings)], review=reviewer, repair=False)
    reply = box.execute(ToolCall("take", {"value": value}, "c1"))
    return reviewer.requests[0] if reviewer.requests else reply.text


def shown_value(kind, value):
    request = request_for(kind, value)
    return request if isinstance(request, str) else request.arguments["value"]


class TestNames:
    @pytest.mark.parametrize(
        ("kind", "sent", "seen"),
        [
            (Target, {"path": "/etc"}, {"path": "/etc", "recursive": False}),
            (Under, {"path": "/etc"}, {"path": "/etc", "recursive": False}),
            (Crossed, {"source": "a", "target": "b"}, {"source": "a", "target": "b"}),
            (Order, {"order_number": 3}, {"order_number": 3, "title": ""}),
        ],
    )
    @pytest.mark.parametrize(
        ("around", "inside"),
        [
            (lambda kind: kind, lambda value: value),
            (lambda kind: list[kind], lambda value: [value]),
            (lambda kind: dict[str, kind], lambda value: {"k": value}),
            (lambda kind: kind | int, lambda value: value),
            (lambda kind: list[dict[str, kind | None]], lambda value: [{"k": value}]),
        ],
    )
    def test_shows_private_and_renamed_attrs_fields(self, kind, sent, seen, around, inside):
        assert shown_value(around(kind), inside(sent)) == inside(seen)

    def test_shows_struct_tag(self):
        class Cat(msgspec.Struct, tag="cat"):
            name: str

        class Dog(msgspec.Struct, tag="dog"):
            name: str

        assert shown_value(Cat | Dog, {"type": "dog", "name": "x"}) == {"type": "dog", "name": "x"}

    def test_shows_renamed_typed_dict_keys_at_every_depth(self):
        class Row(TypedDict, total=False):
            left: Annotated[str, Param(name="right")]
            right: Annotated[str, Param(name="left")]

        assert shown_value(list[Row], [{"left": "a", "right": "b"}]) == [{"left": "a", "right": "b"}]
        assert shown_value(dict[str, Row | None], {"k": {"left": "a"}}) == {"k": {"left": "a"}}

        class Dated(TypedDict):
            day: Annotated[datetime.date, Param(name="Day")]

        assert shown_value(list[Dated], [{"Day": "2024-01-02"}]) == [{"Day": "2024-01-02"}]

    def test_shows_typed_dict_aliases_inside_models(self):
        class Row(typing_extensions.TypedDict):
            left: Annotated[str, pydantic.Field(alias="right")]
            right: Annotated[str, pydantic.Field(alias="left")]

        class Table(BaseModel):
            rows: list[Row]

        sent = {"rows": [{"left": "a", "right": "b"}]}
        assert shown_value(Table, sent) == sent

    def test_body_gets_typed_dict_with_python_names(self):
        class Row(TypedDict):
            left: Annotated[str, Param(name="right")]

        seen = []
        take = make_take_tool(list[Row], lambda value: seen.append(value) or "taken")
        assert Toolbox([take]).execute(ToolCall("take", {"value": [{"right": "a"}]})).text == "taken"
        assert seen == [[{"left": "a"}]]
        assert repr(seen) == "[[{'left': 'a'}]]"

    def test_shows_names_from_local_annotations(self):
        class Inner(msgspec.Struct):
            size: int

        @attrs.define
        class Local:
            _inner: "Annotated[Inner, Param(name='Size')]"
            other: "Annotated[Inner | None, Param(name='inner')]" = None

        reviewer = Reviewer(Continue())

        @tool(requires_approval=True)
        def take(value: Local) -> str:
            return "taken"

        sent = {"value": {"Size": {"size": 1}, "inner": {"size": 2}}}
        assert Toolbox([take], review=reviewer).execute(ToolCall("take", sent)).text == "taken"
        assert reviewer.requests[0].arguments == sent

    def test_unresolved_annotations_use_constructor_names(self):
        @attrs.define
        class Local:
            _path: "Unknown"
            kind: str = "x"

        @dataclass
        class Dated:
            day: "Unknown"
            later: "dataclasses.InitVar[Unknown]" = 3

        class Struct(msgspec.Struct, rename="camel"):
            on_day: "Unknown"

        assert to_display(Local(1)) == {"path": 1, "kind": "x"}
        assert names_of(Dated) == {"day": "day"}
        assert to_display(Struct(1)) == {"onDay": 1}

    @pytest.mark.parametrize("sent", [{"x": 1, "a": 2}, {"x": 1}, {"x": 1, "more": [1]}])
    def test_extra_key_named_like_a_field_hides_nothing(self, sent):
        class Open(BaseModel):
            model_config = {"extra": "allow"}
            a: int = pydantic.Field(validation_alias=AliasChoices("x", "a"))

        assert shown_value(Open, sent) == sent
        assert shown_value(Open, {"a": 1}) == {"x": 1}

    def test_shows_alias_path_field_at_its_path(self):
        class Deep(BaseModel):
            model_config = {"extra": "allow"}
            a: int = pydantic.Field(validation_alias=AliasPath("in", "a"))
            b: int = pydantic.Field(2, validation_alias=AliasPath("in", "b"))

        assert shown_value(Deep, {"in": {"a": 1}, "a": 3}) == {"in": {"a": 1, "b": 2}, "a": 3}
        assert to_display(Deep.model_validate({"in": {"a": 1}, "a": 3})) == {"in": {"a": 1, "b": 2}, "a": 3}


class TestUsesOfArguments:
    """Rules, receipts, remembered answers, caches, ledgers and programs: all of them see the whole."""

    def delete(self):
        return make_take_tool(Target, lambda target: f"deleted {target._path}", requires_approval=True)

    def test_approval_is_remembered_only_for_these_arguments(self):
        reviewer = Reviewer(Continue(), Continue())
        box = Toolbox([self.delete()], review=RememberReview(reviewer))
        calls = [ToolCall("take", {"value": {"path": path}}) for path in ("a.tmp", "/etc/passwd", "a.tmp")]
        assert [box.execute(call, run_id="r1").text for call in calls] == [
            "deleted a.tmp",
            "deleted /etc/passwd",
            "deleted a.tmp",
        ]
        assert len(reviewer.requests) == 2

    def test_rules_see_every_field(self):
        rules = [Rule("deny", "take", {"value.path": "/etc/*"}), Rule("allow", "take")]
        box = Toolbox([self.delete()], review=RulesReview(rules))
        assert box.execute(ToolCall("take", {"value": {"path": "/etc/passwd"}})).text.startswith("Error: Rejected")
        assert box.execute(ToolCall("take", {"value": {"path": "a.tmp"}})).text == "deleted a.tmp"

    def test_receipt_is_valid_only_for_these_arguments(self, tmp_path):
        asked, other = (request_for(Target, {"path": path}) for path in ("a.tmp", "/etc/passwd"))
        other = replace(asked, arguments=other.arguments)
        with ReviewStore(tmp_path / "reviews.db") as store:
            store.ask([asked])
            store.answer(asked, Continue())
            assert store.take({asked.id: other}) == {
                asked.id: ExitEarly("the approval is not valid: it is for other arguments")
            }

    def test_cache_distinguishes_them(self):
        read = make_take_tool(Target, lambda target: f"content of {target._path}", effects="read", cache=True)
        box = Toolbox([read])
        texts = [box.execute(ToolCall("take", {"value": {"path": path}})).text for path in ("public", "secret")]
        assert texts == ["content of public", "content of secret"]

    def test_ledger_distinguishes_them(self):
        pay = make_take_tool(Order, lambda order: f"paid {order.number}", effects="irreversible", idempotency=True)
        box = Toolbox([pay])
        calls = [ToolCall("take", {"value": {"order_number": number}}) for number in (17, 18, 17)]
        assert [box.execute(call, run_id="r1").text for call in calls] == ["paid 17", "paid 18", "paid 17"]

    def test_process_tool_sends_every_field(self):
        worker = ProcessTool("w", "Works", [sys.executable, "-c", "print(input())"], input_type=Order)
        reply = Toolbox([worker]).execute(ToolCall("w", {"order_number": 3, "title": "Emma"}))
        assert json.loads(reply.text) == {"input": {"order_number": 3, "title": "Emma"}}

    def test_http_tool_sends_every_field(self):
        with serving() as web:
            web.answers["/orders"] = b"done"
            service = HttpTool("s", "Serves", web.url("/orders"), input_type=Order, allow_hosts=["127.0.0.1"])
            assert Toolbox([service]).execute(ToolCall("s", {"order_number": 3, "title": "Emma"})).text == "done"
            assert json.loads(web.requests[0][3]) == {"order_number": 3, "title": "Emma"}


class TestInitVar:
    """A constructor parameter that no field stores cannot be read back, so that no reviewer could see it."""

    @pytest.mark.parametrize("kind", INIT_ONLY)
    def test_rejects_init_var_in_gated_cached_and_idempotent_tools(self, kind):
        problem = r"'command' of (Checked)?(Job|Required) is an InitVar"
        for settings in (
            {"requires_approval": True},
            {"requires_approval": lambda arguments, context: False},
            {"effects": "read", "cache": True},
            {"effects": "irreversible", "idempotency": True},
        ):
            with column(settings):
                with pytest.raises(ToolDefinitionError, match=problem) as raised:
                    Toolbox([make_take_tool(kind, **settings)])
                assert "make it a field" in str(raised.value)

    def test_rejects_init_var_with_toolbox_approval(self):
        Toolbox([make_take_tool(Job)])
        with pytest.raises(ToolDefinitionError, match="InitVar"):
            Toolbox([make_take_tool(Job)], approve=["take"], review=Reviewer())

    def test_toolbox_cache_skips_init_var(self):
        seen = []
        box = Toolbox([make_take_tool(Job, lambda job: str(seen.append(job.argv)), effects="read")], cache=True)
        for command in ("ls", "rm"):
            box.execute(ToolCall("take", {"value": {"name": "x", "command": command}}))
        assert seen == [["ls"], ["rm"]]

    def test_rejects_init_var_in_gated_typed_tool(self):
        class Take(TypedTool[Job]):
            name, description, requires_approval = "take", "", True

            def run(self, input):
                return "taken"

        with pytest.raises(ToolDefinitionError, match="'command' of Job is an InitVar"):
            Toolbox([Take()])

    def test_cache_key_function_allows_init_var(self):
        cache = Cache(key=lambda arguments: arguments.value.argv)
        read = make_take_tool(Job, lambda job: str(job.argv), effects="read", cache=cache)
        box = Toolbox([read])
        texts = [box.execute(ToolCall("take", {"value": {"name": "x", "command": each}})).text for each in ("ls", "rm")]
        assert texts == ["['ls']", "['rm']"]

    @pytest.mark.parametrize("kind", [Job, CheckedJob, Holder])
    def test_rejects_init_var_in_process_and_http_tools(self, kind):
        with pytest.raises(ToolDefinitionError, match=r"'command' of (Checked)?Job is an InitVar"):
            ProcessTool("w", "Works", ["cat"], input_type=kind)
        with pytest.raises(ToolDefinitionError, match=r"'command' of (Checked)?Job is an InitVar"):
            HttpTool("s", "Serves", "https://example.com", input_type=kind)

    def test_init_var_calls_run_and_emit_events(self):
        sink = RecordingSink()
        box = Toolbox([make_take_tool(Job, lambda job: str(job.argv))], sinks=[sink])
        assert box.execute(ToolCall("take", {"value": {"name": "x", "command": "ls -l"}})).text == "['ls', '-l']"
        said = "It cannot be shown: Job does not store its 'command'"
        assert [event.arguments for event in sink.events] == [said, said]

    def test_object_with_init_var_is_not_shown_to_a_reviewer(self):
        @tool
        def make() -> Job:
            return Job("x", "rm -rf /")

        reviewer = Reviewer(Continue())
        ran = []
        run = make_take_tool(Any, lambda job: str(ran.append(job)), requires_approval=True)
        reply = Toolbox([make | run], review=reviewer).execute(ToolCall("make_then_take", {}))
        assert "cannot be shown" in reply.text
        assert (ran, reviewer.requests) == ([], [])


SECRET_KEY = "hunter2-of-ada"  # noqa: S105 - not a real key


class TestSecretKeys:
    """Keys of a dict are masked and compared as values are."""

    @pytest.mark.parametrize("kind", [dict[SecretStr, int], dict[Secret[str], int], dict[SecretStr, int] | None])
    def test_reviewer_sees_the_number_of_secret_keys(self, kind):
        assert shown_value(kind, {SECRET_KEY: 1, "other": 2}) == {"**********": 1, "********** (2)": 2}

    @pytest.mark.parametrize("kind", [dict[SecretStr, int], Secret[dict[str, int]], list[dict[SecretStr, int]]])
    def test_different_secret_keys_are_different_arguments(self, kind):
        def inside(value):
            return [value] if kind == list[dict[SecretStr, int]] else value

        one, other = (request_for(kind, inside({key: 1})) for key in (SECRET_KEY, "other"))
        assert one.arguments == other.arguments
        assert len({one.hidden_digest, other.hidden_digest, ""}) == 3

    @pytest.mark.parametrize("kind", [dict[SecretStr, int], Secret[dict[str, int]]])
    def test_cache_and_ledger_distinguish_secret_keys(self, kind):
        def key_length(value):
            value = value.get_secret_value() if hasattr(value, "get_secret_value") else value
            key = next(iter(value))
            return str(len(getattr(key, "get_secret_value", lambda: key)()))

        for settings in ({"effects": "read", "cache": True}, {"effects": "write", "idempotency": True}):
            box = Toolbox([make_take_tool(kind, key_length, **settings)])
            calls = [ToolCall("take", {"value": {key: 1}}) for key in ("a", "bcd", "a")]
            assert [box.execute(call, run_id="r1").text for call in calls] == ["1", "3", "1"]

    def test_key_that_looks_masked_is_not_lost(self):
        kind = dict[SecretStr, int]
        alike = {"**********": 1, "********** (2)": 2}
        assert shown_value(kind, alike) == alike
        mixed = {SecretStr("x"): 1, "**********": 2, SecretStr("y"): 3}
        assert to_display(mixed) == {"********** (2)": 1, "**********": 2, "********** (3)": 3}

    @pytest.mark.parametrize("kind", [dict[SecretStr, int], Secret[dict[str, int]], dict[str, dict[SecretStr, int]]])
    @pytest.mark.parametrize("sent", [1, "no number"])
    def test_secret_keys_are_masked_in_replies_logs_and_events(self, kind, sent, caplog):
        def fail(value):
            while not isinstance(value, dict) or "k" in value:
                value = value["k"] if isinstance(value, dict) else value.get_secret_value()
            key = next(iter(value))
            raise ValueError(f"no {getattr(key, 'get_secret_value', lambda: key)()} here")

        sink = RecordingSink()
        inner = {SECRET_KEY: sent}
        value = {"k": inner} if kind == dict[str, dict[SecretStr, int]] else inner
        with caplog.at_level("DEBUG", logger="toolsemble"):
            reply = Toolbox([make_take_tool(kind, fail)], sinks=[sink], repair=False).execute(
                ToolCall("take", {"value": value})
            )
        assert not reply.result.is_success
        assert SECRET_KEY not in f"{reply.text} {caplog.text} {sink.events}"

    def test_field_names_inside_a_secret_are_not_masked(self):
        class Login(BaseModel):
            user: str
            password: str

        def fail(login):
            raise ValueError(f"the user {login.get_secret_value().user} has no password")

        box = Toolbox([make_take_tool(Secret[Login], fail)])
        reply = box.execute(ToolCall("take", {"value": {"user": "ada-lovelace", "password": "hunter2"}}))
        assert reply.text == "Error: the user ********** has no password"

    def test_secret_removed_by_a_constructor_is_masked(self):
        @dataclass
        class Login:
            password: dataclasses.InitVar[SecretStr]
            user: str = "ada"

            def __post_init__(self, password):
                self.raw = password.get_secret_value()

        def fail(login):
            raise ValueError(f"wrong: {login.raw}")

        reply = Toolbox([make_take_tool(Login, fail)]).execute(ToolCall("take", {"value": {"password": SECRET_KEY}}))
        assert reply.text == "Error: wrong: **********"


class Color(enum.Enum):
    RED = "red"


class Grid(enum.Enum):
    SMALL = (1, 2)
    LARGE = (3, 4)


class TestKeys:
    @pytest.mark.parametrize(
        ("one", "other"),
        [
            ({1: "a"}, {"1": "a"}),
            ({1: "a", "1": "b"}, {1: "b", "1": "a"}),
            ({1: "a", "1": "b"}, {"1": "b"}),
            ({1: "a", "1": "b"}, {"1 (int)": "a", "1": "b"}),
            ({True: "a"}, {"true": "a"}),
            ({True: "a"}, {"True": "a"}),
            ({True: "a"}, {1: "a"}),
            ({None: "a"}, {"None": "a"}),
            ({None: "a"}, {"null": "a"}),
            ({1.0: "a"}, {1: "a"}),
            ({datetime.date(2024, 1, 2): "a"}, {"2024-01-02": "a"}),
            ({Color.RED: "a"}, {"red": "a"}),
            ({(1, 2): "a"}, {"[1, 2]": "a"}),
            ({Decimal("1.5"): "a"}, {"1.5": "a"}),
            ([1, 2], (1, 2)),
            ({1, 2}, [1, 2]),
            (Color.RED, "red"),
            (datetime.date(2024, 1, 2), "2024-01-02"),
            (float("nan"), "NaN"),
            (b"ok", "b2s="),
            (collections.deque([1]), [1]),
            (Target("x"), {"path": "x", "recursive": False}),
            ({"$python": "tuple", "items": [1]}, (1,)),
        ],
    )
    def test_different_values_are_shown_differently(self, one, other):
        def shown_of(value):
            @tool
            def make() -> Any:
                return {"value": value}

            reviewer = Reviewer(Continue())
            take = make_take_tool(Any, requires_approval=True)
            reply = Toolbox([make | take], review=reviewer).execute(ToolCall("make_then_take", {}))
            assert reply.text == "taken"
            return json.dumps(reviewer.requests[0].arguments, sort_keys=True)

        assert shown_of(one) != shown_of(other)

    def test_enum_member_is_shown_as_the_model_sends_it(self):
        assert shown_value(Grid, "LARGE") == "LARGE"
        assert shown_value(dict[Grid, int], {"LARGE": 1}) == {"LARGE": 1}


@dataclass
class Moved:
    path: str

    def __post_init__(self):
        self.real, self.path = self.path, ""


@dataclass(slots=True)
class MovedSlots:
    path: str
    real: str = dataclasses.field(init=False, default="")

    def __post_init__(self):
        self.real, self.path = self.path, ""


@attrs.define
class MovedAttrs:
    path: str
    _real: str = attrs.field(init=False, default="")

    def __attrs_post_init__(self):
        self._real, self.path = self.path, ""


class MovedStruct(msgspec.Struct, dict=True):
    path: str

    def __post_init__(self):
        self.real, self.path = self.path, ""


class MovedModel(BaseModel):
    path: str
    _real: str = PrivateAttr("")

    @model_validator(mode="after")
    def move(self):
        self._real, self.path = self.path, ""
        return self


class MovedPostInit(BaseModel):
    path: str
    _real: str = PrivateAttr("")

    def model_post_init(self, context):
        self._real, self.path = self.path, ""


@pydantic_dataclass
class MovedChecked:
    path: str

    def __post_init__(self):
        self.real, self.path = self.path, ""


class MovedText(str):  # noqa: SLOT000 - what it keeps is what is tested
    def __new__(cls, text):
        made = super().__new__(cls, "")
        made.real = text
        return made


@dataclass
class MovedIntoFunction:
    path: str

    def __post_init__(self):
        path, self.path = self.path, ""
        self.run = lambda: path


@dataclass
class Removed:
    path: str

    def __post_init__(self):
        self.length = len(self.path)
        del self.path


MOVED = [
    Moved,
    MovedSlots,
    MovedAttrs,
    MovedStruct,
    MovedModel,
    MovedPostInit,
    MovedChecked,
    MovedIntoFunction,
    Removed,
]


@dataclass
class Normal:
    """Rewrites its values in a way that changes nothing the second time, and stores extra state."""

    path: str
    number: int = dataclasses.field(init=False, default_factory=iter(range(10**9)).__next__)
    depth: int = dataclasses.field(init=False)

    def __post_init__(self):
        self.path = self.path.strip().lower()
        self.depth = self.path.count("/")
        self.lock = object()


class NormalModel(BaseModel):
    path: str
    _lock: Any = PrivateAttr(default_factory=object)

    @pydantic.field_validator("path")
    @classmethod
    def strip(cls, value):
        return value.strip().lower()


@attrs.define
class NormalAttrs:
    _path: str = attrs.field(converter=lambda path: path.strip().lower())


@dataclass
class Cents:
    """Makes something else of its value each time."""

    amount: int

    def __post_init__(self):
        self.amount *= 100


class TestConstructors:
    """Code of the author's between what is sent and what is kept."""

    @pytest.mark.parametrize("kind", MOVED)
    @pytest.mark.parametrize(
        ("around", "inside"),
        [
            (lambda kind: kind, lambda value: value),
            (lambda kind: list[kind], lambda value: [value]),
            (lambda kind: dict[str, kind | None], lambda value: {"k": value}),
        ],
    )
    def test_rejects_values_stored_outside_of_fields(self, kind, around, inside):
        said = shown_value(around(kind), inside({"path": "/etc/passwd"}))
        assert said.startswith(f"Error: It cannot be shown: {kind.__name__} ")

    def test_rejects_scalar_subclass_with_attributes(self):
        assert shown_value(MovedText, "/etc/passwd") == (
            "Error: It cannot be shown: MovedText keeps something in 'real' that is not a field"
        )

    @pytest.mark.parametrize("kind", MOVED)
    def test_hidden_values_are_not_cached_and_fail_with_a_ledger(self, kind):
        def body(value):
            ran.append(value)
            return f"{len(ran)}"

        for settings, texts in (
            ({"effects": "read", "cache": True}, ["1", "2"]),
            ({"effects": "write", "idempotency": True}, ["Error", "Error"]),
        ):
            ran = []
            box = Toolbox([make_take_tool(kind, body, **settings)])
            calls = [ToolCall("take", {"value": {"path": path}}) for path in ("a", "b")]
            assert [box.execute(call, run_id="r1").text[:5] for call in calls] == texts

    @pytest.mark.parametrize("kind", MOVED)
    def test_hidden_values_run_without_a_gate(self, kind):
        sink = RecordingSink()
        box = Toolbox([make_take_tool(kind)], sinks=[sink])
        assert box.execute(ToolCall("take", {"value": {"path": "a"}})).text == "taken"
        assert [type(event).__name__ for event in sink.events] == ["CallStarted", "CallFinished"]

    @pytest.mark.parametrize("kind", [Normal, NormalModel, NormalAttrs])
    def test_normalized_value_is_shown_as_the_tool_gets_it(self, kind):
        assert shown_value(kind, {"path": " /Home/a "}) == {"path": "/home/a"}
        assert shown_value(list[kind], [{"path": " /Home/a "}]) == [{"path": "/home/a"}]

    def test_converted_value_is_shown_as_the_tool_gets_it(self):
        assert shown_value(Cents, {"amount": 5}) == {"amount": 500}

    @pytest.mark.parametrize("kind", [Moved, MovedAttrs])
    def test_rejects_hidden_values_between_pipeline_steps(self, kind):
        @tool
        def make() -> Any:
            return kind("/etc/passwd")

        reviewer = Reviewer(Continue())
        for wanted in (kind, kind | None):
            take = make_take_tool(wanted, requires_approval=True)
            reply = Toolbox([make | take], review=reviewer).execute(ToolCall("make_then_take", {}))
            assert reply.text.startswith("Error: It cannot be shown: ")
        assert reviewer.requests == []

    def test_object_of_undeclared_type_is_shown_completely(self):
        @tool
        def make() -> Any:
            return Moved("/etc/passwd")

        reviewer = Reviewer(Continue())
        take = make_take_tool(Any, requires_approval=True)
        Toolbox([make | take], review=reviewer).execute(ToolCall("make_then_take", {}))
        value = reviewer.requests[0].arguments["value"]
        assert value == {"$python": f"{__name__}.Moved", "path": "", "real": "/etc/passwd"}

    @pytest.mark.parametrize("value", [object(), threading.Lock()])
    def test_opaque_object_is_not_shown(self, value):
        @tool
        def make() -> Any:
            return ToolResult.success("made", {"value": value})

        reviewer = Reviewer(Continue())
        take = make_take_tool(Any, requires_approval=True)
        reply = Toolbox([make | take], review=reviewer).execute(ToolCall("make_then_take", {}))
        said = f"the content of a {type(value).__qualname__} is unknown"
        assert (reply.text, reviewer.requests) == (f"Error: It cannot be shown: {said}", [])

    def test_equal_looking_numbers_and_strings_are_shown_differently(self):
        for kind in (str | Decimal, list[str | Decimal]):
            one, other = ([1.5], ["1.5"]) if kind == list[str | Decimal] else (1.5, "1.5")
            assert shown_value(kind, one) != shown_value(kind, other)

    def test_added_attribute_is_rejected(self):
        @dataclass
        class Plain:
            path: str
            depth: int = dataclasses.field(init=False, default=0)

        def asked(change):
            @tool
            def make() -> Any:
                made = Plain("a")
                change(made)
                return made

            reviewer = Reviewer(Continue())
            take = make_take_tool(Plain, requires_approval=True)
            reply = Toolbox([make | take], review=reviewer).execute(ToolCall("make_then_take", {}))
            return reply.text, [request.arguments for request in reviewer.requests]

        assert asked(lambda made: None) == ("taken", [{"value": {"path": "a"}}])
        said = "Error: It cannot be shown: Plain keeps something in {!r} that is not a field"
        assert asked(lambda made: setattr(made, "depth", 3)) == (said.format("depth"), [])
        assert asked(lambda made: setattr(made, "real", "/etc")) == (said.format("real"), [])

    def test_ambiguous_value_is_shown_with_its_type(self):
        @dataclass
        class Packed:
            value: pydantic.Json[int]

        assert shown_value(Packed, {"value": "1"}) == {"$python": f"{__name__}.{Packed.__qualname__}", "value": 1}

    def test_ambiguous_object_with_secrets_is_not_shown(self):
        @dataclass
        class Growing:
            items: list[int]
            password: SecretStr

            def __post_init__(self):
                self.items = [*self.items, 0]

        said = shown_value(Growing, {"items": [1], "password": SECRET_KEY})
        assert said == "Error: It cannot be shown: it has secrets, and its displayed form is ambiguous"

    def test_recursive_object_is_not_shown(self):
        @dataclass
        class Node:
            inner: Any = None

        @tool
        def make() -> Any:
            node = Node()
            node.inner = {"node": node}
            return ToolResult.success("made", {"value": node})

        sink = RecordingSink()
        for settings in ({"requires_approval": True}, {}):
            take = make_take_tool(Any, **settings)
            reply = Toolbox([make | take], review=Reviewer(Continue()), sinks=[sink]).execute(
                ToolCall("make_then_take", {})
            )
            said = "It cannot be shown: it is nested too deeply, or inside itself"
            assert reply.text == (f"Error: {said}" if settings else "taken")
        assert [event.arguments for event in sink.of("call_finished") if event.tool_name == "take"][-1] == said

    def test_rejects_hidden_values_passed_to_a_typed_tool(self):
        class Take(TypedTool[MovedAttrs]):
            name, description, requires_approval = "take", "", True

            def run(self, input):
                return "taken"

        @tool
        def make() -> Any:
            return MovedAttrs("/etc/passwd")

        reply = Toolbox([make | Take()], review=Reviewer(Continue())).execute(ToolCall("make_then_take", {}))
        assert reply.text.startswith("Error: It cannot be shown: MovedAttrs keeps something in '_real'")

    def test_rejects_hidden_values_in_a_partial(self):
        @dataclass
        class Bound:
            path: str

            def __post_init__(self):
                other, self.path = Normal(self.path), ""
                self.run = functools.partial(other.__post_init__)

        assert shown_value(Bound, {"path": "/etc"}).startswith("Error: It cannot be shown: Bound keeps something in ")

    @pytest.mark.parametrize(
        ("before", "after"), [([1], [1, 2]), ({1}, {2}), ({"a": 1}, {"b": 1}), ("a", "b"), (Color.RED, None)]
    )
    def test_rejects_any_value_that_is_not_a_field(self, before, after):
        @dataclass
        class Counted:
            path: str

            def __post_init__(self):
                self.kept, self.path = (after if self.path else before), ""

        said = "Error: It cannot be shown: Counted keeps something in 'kept' that is not a field"
        assert shown_value(Counted, {"path": "x"}) == said
        assert shown_value(Counted, {"path": ""}) == {"path": ""}

    def test_custom_class_is_shown_by_its_str_and_attributes(self):
        class Version:
            def __init__(self, text):
                self._hash = None
                self.parts = tuple(text.split("."))

            def __str__(self):
                return ".".join(self.parts)

        @tool
        def make() -> Any:
            return {"value": [datetime.date(2024, 1, 2), Version("1.2"), frozenset({1}), Decimal(1), MovedText("x")]}

        reviewer = Reviewer(Continue())
        take = make_take_tool(Any, requires_approval=True)
        assert Toolbox([make | take], review=reviewer).execute(ToolCall("make_then_take", {})).text == "taken"
        assert reviewer.requests[0].arguments["value"] == [
            {"$python": "date", "text": "2024-01-02"},
            {
                "$python": f"{__name__}.{Version.__qualname__}",
                "_hash": None,
                "parts": {"$python": "tuple", "items": ["1", "2"]},
            },
            {"$python": "frozenset", "items": [1]},
            {"$python": "Decimal", "text": "1"},
            {"$python": f"{__name__}.MovedText", "real": "x", "text": ""},
        ]


class TestTransparency:
    """Types that need no inspection, because no custom code runs in between."""

    def test_plain_types_keep_all_values(self):
        @dataclass(frozen=True, slots=True)
        class Frozen:
            value: int

        @attrs.frozen
        class FrozenAttrs:
            value: int

        class Named(NamedTuple):
            value: int

        class Struct(msgspec.Struct, frozen=True):
            value: int

        assert [kind for kind in (Frozen, FrozenAttrs, Target, Named, Struct) if not keeps_all(kind)] == []

    def test_custom_constructors_are_checked(self):
        @dataclass
        class Own:
            value: int

            def __init__(self, value):
                self.value = value

        @dataclass(init=False)
        class Without:
            value: int

        @dataclass
        class Described:
            value: int

        Described.value = property(lambda self: 3, lambda self, value: None)

        class Mixed(NormalAttrs):
            def __setattr__(self, name, value):
                pass

        class Longer(collections.namedtuple("Pair", "a b")):  # noqa: PYI024, SLOT002 - the untyped form
            pass

        kinds = [Own, Without, Described, Mixed, Longer, Moved, MovedAttrs, MovedStruct, NormalAttrs, MovedText, len]
        assert [kind for kind in kinds if keeps_all(kind)] == []

    def test_field_with_init_false_is_not_shown(self):
        @pydantic_dataclass
        class Checked:
            path: str
            depth: int = dataclasses.field(init=False, default=0)

        assert shown_value(Checked, {"path": "a"}) == {"path": "a"}

    def test_alias_path_with_an_index_cannot_be_shown(self):
        class Placed(BaseModel):
            a: int = pydantic.Field(validation_alias=AliasPath("in", 1))

        class Taken(BaseModel):
            model_config = {"extra": "allow"}
            a: int = pydantic.Field(3, validation_alias=AliasPath("in", "a"))
            b: Any = pydantic.Field(None, validation_alias="in")

        said = "Error: It cannot be shown: Placed has no unique key for 'in.1'"
        assert shown_value(Placed, {"in": [1, 2]}) == said
        assert shown_value(Taken, {"in": 5}) == "Error: It cannot be shown: Taken has no unique key for 'in'"

    def test_named_tuple_with_unresolved_annotations_is_shown(self):
        class Local(NamedTuple):
            day: "Unknown"

        assert to_display([Local(1)]) == [{"day": 1}]

    def test_finds_hidden_texts_of_extra_entries(self):
        assert list(find_hidden_texts({"a": "*"}, {"a": "k1", "b": "k2"})) == ["a", "k1", "b", "k2"]


class TestValuesOfUndeclaredTypes:
    """What a step hands on to a parameter that takes anything."""

    @pytest.mark.parametrize("settings", [{"requires_approval": True}, {"cache": True, "effects": "read"}], ids=str)
    @pytest.mark.parametrize("kind", [Any, object, dict[str, Any]])
    def test_secrets_in_undeclared_values_are_masked(self, kind, settings, caplog):
        @tool
        def find() -> dict:
            return {"x": {"user": "ada", "token": SecretStr("hunter22"), "size": (3, 4)}}

        @tool(**settings)
        def use(x: kind) -> str:
            return x["token"].get_secret_value()[:2]

        reviewer, seen = Reviewer(Continue()), []
        box = Toolbox([find | use], review=reviewer, sinks=[seen.append])
        with caplog.at_level(logging.DEBUG):
            assert box.execute(ToolCall("find_then_use")).text == "hu"
        box.flush(30)
        assert "hunter22" not in f"{reviewer.requests} {seen} {caplog.text}"
        if reviewer.requests:
            assert reviewer.requests[0].arguments["x"]["token"] == HIDDEN

    def test_arrays_can_be_passed_between_steps(self):
        @tool
        def find() -> Any:
            return {"h": numpy.arange(3), "n": 1}

        def run(**settings):
            @tool(**settings)
            def use(h: Any, n: int) -> str:
                return f"{h.sum()} {n}"

            return (find | use).execute("{}", ToolContext(review=AutoApprove())).text

        assert run(cache=True, effects="read") == run(retries=1, effects="read") == "3 1"
        assert "cannot be shown: the content of a ndarray is unknown" in run(requires_approval=True)

    @pytest.mark.parametrize("settings", [{"requires_approval": True}, {"idempotency": True}], ids=str)
    def test_cached_properties_are_not_hidden_values(self, settings):
        @dataclasses.dataclass
        class Invoice:
            items: list[int]

            @functools.cached_property
            def total(self):
                return sum(self.items)

        @attrs.frozen(cache_hash=True)
        class Owner:
            name: str

        @tool
        def find() -> dict:
            invoice, owner = Invoice([1, 2]), Owner("ada")
            hash(owner)
            return {"invoice": invoice, "owner": owner, "total": invoice.total}

        @tool(effects="write", **settings)
        def pay(invoice: Invoice, owner: Owner, total: int) -> str:
            return f"{owner.name} pays {invoice.total}"

        context = ToolContext(review=AutoApprove(), run_id="r1")
        assert (find | pay).execute("{}", context).text == "ada pays 3"
