"""For all types: different arguments look different, and the displayed form validates to the same values."""

import collections
import dataclasses
import datetime
import enum
import ipaddress
import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import PurePosixPath
from typing import Annotated, Any, Generic, Literal, NamedTuple, TypedDict, TypeVar, Union

import attrs
import msgspec
import pydantic
import pytest
from hypothesis import HealthCheck, assume, given, reject, settings, strategies as st
from pydantic import AliasChoices, RootModel, SecretBytes, SecretStr
from pydantic.dataclasses import dataclass as pydantic_dataclass

from helpers.sample_tools import Reviewer
from toolsemble import Continue, Param, Secret, Toolbox, ToolCall, tool

pytestmark = pytest.mark.slow

T = TypeVar("T")


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Size(enum.IntEnum):
    SMALL = 1
    LARGE = 2


class Grid(enum.Enum):
    SMALL = (1, 2)
    LARGE = (3, 4)


class Code(str):
    __slots__ = ()


@dataclass
class Box(Generic[T]):
    value: T


@dataclass
class Ordered:
    """Puts its value in order."""

    value: str
    length: int = dataclasses.field(init=False, default=0)

    def __post_init__(self):
        self.value = self.value.strip()
        self.length = len(self.value)


TEXTS = st.sampled_from(["", "a", " a", "1", "1.5", "true", "null", "red", "b2s=", "2024-01-02", "**********", "ä"])
NUMBERS = st.sampled_from([0, 1, 2, -1, 10**20])
FLOATS = st.sampled_from([0, 1, 1.0, -0.0, 0.5, 1e300, -1.5])
JSON = st.recursive(
    st.none() | st.booleans() | TEXTS | NUMBERS | FLOATS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXTS | st.just("$python"), inner, max_size=2),
    max_leaves=4,
)
UUIDS = st.sampled_from([str(uuid.UUID(int=number)) for number in (1, 2)])
DATES = st.sampled_from(["2024-01-02", "2024-01-03"])

KEYS = [
    (str, TEXTS),
    (int, st.sampled_from(["0", "1", "-1"])),
    (float, st.sampled_from(["0.5", "1.5", "1"])),
    (bool, st.sampled_from(["true", "false"])),
    (datetime.date, DATES),
    (uuid.UUID, UUIDS),
    (Color, st.sampled_from(["red", "blue"])),
    (Size, st.sampled_from(["SMALL", "1", "2"])),
    (Decimal, st.sampled_from(["1.5", "1.50", "2"])),
    (SecretStr, TEXTS),
    (int | str, st.sampled_from(["1", "a", "01"])),
]
HASHABLE = [
    (str, TEXTS),
    (int, NUMBERS),
    (bool, st.booleans()),
    (Decimal, FLOATS | st.sampled_from(["1.5", "1.50", "1E+2"])),
    (datetime.date, DATES),
    (
        datetime.datetime,
        st.sampled_from(["2024-01-02T03:04:05", "2024-01-02T03:04:05Z", "2024-01-02T04:04:05+01:00"]),
    ),
    (datetime.time, st.sampled_from(["03:04:05", "03:04:05.000001", "03:04:05Z"])),
    (datetime.timedelta, st.sampled_from(["P1D", "PT24H", "-PT1.5S", "PT0.000001S", "P400D"])),
    (uuid.UUID, UUIDS),
    (PurePosixPath, st.sampled_from(["a/b", "a//b", "/a"])),
    (bytes, st.sampled_from(["", "b2s=", "AAE="])),
    (ipaddress.IPv4Address, st.sampled_from(["127.0.0.1", "10.0.0.1"])),
    (Color, st.sampled_from(["red", "blue"])),
    (Size, st.sampled_from([1, 2])),
    (Grid, st.sampled_from(["SMALL", "LARGE"])),
    (Code, TEXTS),
    (Literal["a", "b", 1, True, None], st.sampled_from(["a", "b", 1, True, None])),
]
LEAVES = [
    *HASHABLE,
    (float, FLOATS),
    (Any, JSON),
    (dict, st.dictionaries(TEXTS, JSON, max_size=2)),
    (str | Decimal, TEXTS | FLOATS),
    (int | float | str, TEXTS | FLOATS | NUMBERS),
    (datetime.date | str, TEXTS),
    (bytes | str | None, TEXTS | st.none()),
    (Color | str, TEXTS),
    (SecretStr, TEXTS),
    (SecretBytes, st.sampled_from(["b2s=", "AAE="])),
    (Secret[int], NUMBERS),
    (Secret[dict[str, int]], st.dictionaries(TEXTS, NUMBERS, max_size=2)),
    (Ordered, st.builds(lambda value: {"value": value}, TEXTS)),
    (pydantic.HttpUrl, st.sampled_from(["https://a.example", "https://a.example/b"])),
]


def _dataclass(kind):
    return dataclasses.make_dataclass("Data", [("value", kind)]), ["value"]


def _slots(kind):
    return dataclasses.make_dataclass("Slots", [("value", kind)], slots=True, frozen=True), ["value"]


def _generic(kind):
    return Box[kind], ["value"]


def _typed_dict(kind):
    class Typed(TypedDict, total=False):
        value: Annotated[kind, Param(name="other")]
        other: Annotated[kind, Param(name="value")]

    return Typed, ["value", "other"]


def _named_tuple(kind):
    class Named(NamedTuple):
        value: kind

    return Named, ["value"]


def _model(kind):
    class Model(pydantic.BaseModel):
        model_config = {"extra": "allow"}
        value: kind = pydantic.Field(validation_alias=AliasChoices("x", "value"))

    return Model, ["x", "value"]


def _crossed_model(kind):
    class Crossed(pydantic.BaseModel):
        value: kind = pydantic.Field(alias="other")
        other: kind | None = pydantic.Field(None, alias="value")

    return Crossed, ["other", "value"]


def _pydantic_dataclass(kind):
    return pydantic_dataclass(type("Checked", (), {"__annotations__": {"value": kind}})), ["value"]


def _attrs(kind):
    @attrs.define
    class Private:
        _value: kind
        more: kind | None = attrs.field(alias="less", default=None)
        less: kind | None = attrs.field(alias="more", default=None)

    return Private, ["value", "more", "less"]


def _struct(kind):
    return msgspec.defstruct("Struct", [("my_value", kind)], rename="camel"), ["myValue"]


def _tagged_struct(kind):
    return msgspec.defstruct("Tagged", [("value", kind)], tag="t"), ["value"]


OBJECTS = [
    _dataclass,
    _slots,
    _generic,
    _typed_dict,
    _named_tuple,
    _model,
    _crossed_model,
    _pydantic_dataclass,
    _attrs,
    _struct,
    _tagged_struct,
]


def _field(kind, inputs):
    """A type with a field of a type, and what is sent for it."""

    def build(make):
        try:
            return _with_inputs(*make(kind), inputs)
        except (pydantic.errors.PydanticUserError, TypeError):
            reject()  # pydantic knows some kinds of types by themselves only

    return st.sampled_from(OBJECTS).map(build)


def _with_inputs(kind, keys, inputs):
    needed, *optional = keys
    return kind, st.fixed_dictionaries({needed: inputs}, optional=dict.fromkeys(optional, inputs))


def _root(kind, inputs):
    try:
        return RootModel[kind], inputs
    except (pydantic.errors.PydanticUserError, TypeError):
        reject()


def _containers_of(types):
    def containers(pair):
        kind, inputs = pair
        options = [
            st.just((list[kind], st.lists(inputs, max_size=2))),
            st.just((collections.deque[kind], st.lists(inputs, max_size=2))),
            st.just((tuple[kind, ...], st.lists(inputs, max_size=2))),
            st.just((tuple[kind, int], st.tuples(inputs, NUMBERS).map(list))),
            st.just((kind | None, inputs | st.none())),
            st.builds(_root, st.just(kind), st.just(inputs)),
            st.just((Annotated[kind, "A value"], inputs)),
            st.sampled_from(KEYS).map(lambda key: (dict[key[0], kind], st.dictionaries(key[1], inputs, max_size=3))),
            st.sampled_from(LEAVES).map(lambda leaf: (Union[kind, leaf[0]], inputs | leaf[1])),
            _field(kind, inputs),
        ]
        return st.one_of(options)

    return types.flatmap(containers)


SETS = st.sampled_from(HASHABLE).flatmap(
    lambda leaf: st.sampled_from([set, frozenset]).map(lambda kind: (kind[leaf[0]], st.lists(leaf[1], max_size=3)))
)
TYPES = st.recursive(st.sampled_from(LEAVES) | SETS, _containers_of, max_leaves=4)


def full_text(value):
    """A value as a text that has all of it, written without the code that is tested."""
    if hasattr(value, "get_secret_value"):
        return f"secret {full_text(value.get_secret_value())}"
    if isinstance(value, Mapping):
        return f"{{{sorted((full_text(key), full_text(each)) for key, each in value.items())}}}"
    if (isinstance(value, tuple) and hasattr(value, "_fields")) or isinstance(value, (list, tuple, collections.deque)):
        return f"{type(value).__name__}{[full_text(each) for each in value]}"
    if isinstance(value, (set, frozenset)):
        return f"{type(value).__name__}{sorted(full_text(each) for each in value)}"
    if isinstance(value, pydantic.BaseModel):
        return f"{type(value).__name__}{full_text({**value.__dict__, **(value.__pydantic_extra__ or {'': None})})}"
    names = getattr(value, "__struct_fields__", None) or getattr(value, "__slots__", None)
    if hasattr(value, "__attrs_attrs__") or isinstance(value, msgspec.Struct):
        return f"{type(value).__name__}{[full_text(getattr(value, name)) for name in names if name != '__weakref__']}"
    if dataclasses.is_dataclass(value):
        return f"{type(value).__name__}{[full_text(getattr(value, each.name)) for each in dataclasses.fields(value)]}"
    return f"{type(value).__name__} {value!r}"


REJECTED = ("Error: Invalid arguments", "Error: Missing required", "Error: It cannot be shown: it has secrets")


class Trial:
    """Two calls of a tool of a type, by every way that must tell them apart."""

    def __init__(self, kind, *inputs):
        self.kind, self.values, self.requests, self.texts = kind, [], [], []
        for sent in inputs:
            self.ask(sent)

    def ask(self, sent):
        reviewer = Reviewer(Continue())
        box = Toolbox([self.tool(requires_approval=True)], review=reviewer, repair=False)
        self.texts.append(box.execute(ToolCall("take", {"value": sent}, "c1"), run_id="r1").text)
        self.requests += reviewer.requests

    def tool(self, **settings):
        def take(value):
            self.values.append(value)
            return str(len(self.values))

        take.__annotations__ = {"value": self.kind, "return": str}
        return tool(**settings)(take)

    def runs(self, inputs, **settings):
        self.values = []
        box = Toolbox([self.tool(**settings)], repair=False)
        for sent in inputs:
            box.execute(ToolCall("take", {"value": sent}), run_id="r1")
        return len(self.values)


# Before 2.14, pydantic validates the items of a deque twice: keys that are aliases of each other come back swapped.
VALIDATES_DEQUES_TWICE = tuple(map(int, pydantic.VERSION.split(".")[:2])) < (2, 14)


@settings(max_examples=120, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck), database=None)
@given(st.data())
def test_displayed_arguments_are_distinct_and_validate_to_same_value(data):
    kind, inputs = data.draw(TYPES)
    assume(not (VALIDATES_DEQUES_TWICE and "deque" in str(kind)))
    sent = [data.draw(inputs), data.draw(inputs)]
    tried = Trial(kind, *sent)
    texts = [full_text(value) for value in tried.values]
    if len(texts) < 2:  # one of them does not fit
        assert all(text in ("1", "2") or text.startswith(REJECTED) for text in tried.texts)
        return
    shown = [(request.arguments_digest, request.hidden_digest) for request in tried.requests]
    assert (shown[0] == shown[1]) == (texts[0] == texts[1])
    assert tried.runs(sent, effects="read", cache=True) == len({*texts})
    assert tried.runs(sent, effects="write", idempotency=True) == len({*texts})
    for request, text in zip(tried.requests, texts, strict=True):
        if request.hidden_digest or "$python" in json.dumps(request.arguments):
            continue
        again = Trial(kind, request.arguments["value"])
        assert [full_text(value) for value in again.values] == [text]
