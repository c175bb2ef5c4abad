"""Types of every kind, with what a model sees of them, sends, and what arrives."""

from __future__ import annotations

import collections
import dataclasses
import datetime
import decimal
import enum
import ipaddress
import pathlib
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import (
    Annotated,
    Any,
    Generic,
    Literal,
    NamedTuple,
    NewType,
    NotRequired,
    Optional,
    Required,
    Self,
    TypedDict,
    TypeVar,
    Union,
)

import attrs
import msgspec
import pydantic
from pydantic import BaseModel, Field

from toolsemble import tool

T = TypeVar("T")


UserNumber = NewType("UserNumber", int)


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Corner(enum.Enum):
    TOP = (0, 1)
    BOTTOM = (0, -1)


class UserId(str):
    __slots__ = ()


@dataclasses.dataclass
class Point:
    """A place.

    Attributes:
        x: To the right.
    """

    x: int
    y: int = 0


@dataclasses.dataclass
class Node:
    value: int
    children: list[Node] = dataclasses.field(default_factory=list)
    twin: Self | None = None


@dataclasses.dataclass
class Wrapped(Generic[T]):
    item: T


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int = 9


class Dog(BaseModel):
    kind: Literal["dog"]
    tricks: list[str]


class Movie(TypedDict, total=False):
    title: Required[str]
    year: int


class Strict(TypedDict):
    title: str
    year: NotRequired[int]


class Pair(NamedTuple):
    left: int
    right: str = "r"


@attrs.define
class Account:
    owner: str
    _balance: int = attrs.field(default=0, validator=attrs.validators.ge(0))
    tags: list[str] = attrs.field(factory=list)
    label: str = attrs.field(default=attrs.Factory(lambda self: self.owner.upper(), takes_self=True))


class Job(msgspec.Struct, rename="camel"):
    job_name: str
    max_tries: Annotated[int, msgspec.Meta(ge=1, le=3)] = 2
    sub_jobs: list[Job] = msgspec.field(default_factory=list)


INTEGER, STRING = {"type": "integer"}, {"type": "string"}


NULL = {"type": "null"}


def closed(properties, *required):
    return {
        "type": "object",
        "properties": properties,
        **({"required": list(required)} if required else {}),
        "additionalProperties": False,
    }


def array(items, description=None):
    return {"type": "array", **({"description": description} if description else {}), "items": items}


def text(description):
    return {"type": "string", "description": description}


POINT = {
    "description": "A place.",
    **closed({"x": {"type": "integer", "description": "To the right."}, "y": {"type": "integer", "default": 0}}, "x"),
}


CAT = closed({"kind": {"type": "string", "enum": ["cat"]}, "lives": {"type": "integer", "default": 9}}, "kind")


DOG = closed({"kind": {"type": "string", "enum": ["dog"]}, "tricks": array(STRING)}, "kind", "tricks")


# Older releases of pydantic have a pattern for the text of a decimal.
_PATTERNS = [each.get("pattern") for each in pydantic.TypeAdapter(decimal.Decimal).json_schema()["anyOf"]]


DECIMAL = text(f"must match {_PATTERNS[1]}") if _PATTERNS[1] else STRING


# annotation, schema, what is sent, what the body gets, what is refused
TABLE = [
    (str, STRING, "x", "x", None),
    (int, INTEGER, 3, 3, 1.5),
    (float, {"type": "number"}, 1.5, 1.5, "x"),
    (float, {"type": "number"}, 3, 3.0, []),
    (bool, {"type": "boolean"}, True, True, 2),
    (None, NULL, None, None, 1),
    (Any, {}, {"q": [1]}, {"q": [1]}, ...),
    (object, {}, 1, 1, ...),
    (Optional[int], {"anyOf": [INTEGER, NULL]}, None, None, "x"),
    (int | None, {"anyOf": [INTEGER, NULL]}, 3, 3, "x"),
    (Union[int, str], {"anyOf": [INTEGER, STRING]}, "a", "a", ...),
    (Literal["a", "b"], {"type": "string", "enum": ["a", "b"]}, "a", "a", "c"),
    (Literal["a", 3], {"anyOf": [{"type": "string", "enum": ["a"]}, {"type": "integer", "enum": [3]}]}, 3, 3, 4),
    (Literal["a", None], {"anyOf": [{"type": "string", "enum": ["a"]}, NULL]}, None, None, "b"),
    (Color, {"type": "string", "enum": ["red", "blue"]}, "red", Color.RED, "green"),
    (Level, {"type": "integer", "description": "LOW=1, HIGH=2", "enum": [1, 2]}, 2, Level.HIGH, 3),
    (Corner, {"type": "string", "enum": ["TOP", "BOTTOM"]}, "TOP", Corner.TOP, "LEFT"),
    (datetime.date, text("a date, YYYY-MM-DD"), "2024-03-15", datetime.date(2024, 3, 15), "soon"),
    (
        datetime.datetime,
        text("a date and time, such as 2024-03-15T12:30:00Z"),
        "2024-03-15T12:30:00+01:00",
        datetime.datetime.fromisoformat("2024-03-15T12:30:00+01:00"),
        "2024",
    ),
    (datetime.time, text("a time, HH:MM:SS"), "12:30:00", datetime.time(12, 30), "noon"),
    (datetime.timedelta, text("a duration, such as PT1H30M"), "PT90M", datetime.timedelta(minutes=90), "long"),
    (uuid.UUID, text("a UUID"), str(uuid.UUID(int=5)), uuid.UUID(int=5), "5"),
    (decimal.Decimal, {"anyOf": [{"type": "number"}, DECIMAL]}, "1.10", decimal.Decimal("1.10"), "x"),
    (bytes, text("base64"), "aGk=", b"hi", "%"),
    (pathlib.Path, text("a path"), "a/b", pathlib.Path("a/b"), []),
    (ipaddress.IPv4Address, text("an IPv4 address"), "127.0.0.1", ipaddress.IPv4Address("127.0.0.1"), "localhost"),
    (list[int], array(INTEGER), [1, 2], [1, 2], ["x"]),
    (list, array({}), [1, "a"], [1, "a"], ...),
    (tuple[int, ...], array(INTEGER), [1, 2], (1, 2), ["x"]),
    (
        tuple[int, str],
        array({"anyOf": [INTEGER, STRING]}, "in this order: integer, string; exactly 2 items"),
        [1, "a"],
        (1, "a"),
        [1],
    ),
    (set[int], array(INTEGER, "no duplicates"), [1, 1], {1}, ["x"]),
    (frozenset[str], array(STRING, "no duplicates"), ["a"], frozenset("a"), [None]),
    (Sequence[int], array(INTEGER), [1], [1], ["x"]),
    (Iterable[int], array(INTEGER), [1], [1], ["x"]),
    (collections.deque[int], array(INTEGER), [1], collections.deque([1]), ["x"]),
    (dict, {"type": "object", "additionalProperties": True}, {"a": 1}, {"a": 1}, 5),
    (dict[str, int], {"type": "object", "additionalProperties": INTEGER}, {"a": 1}, {"a": 1}, {"a": "x"}),
    (Mapping[str, int], {"type": "object", "additionalProperties": INTEGER}, {"a": 1}, {"a": 1}, {"a": []}),
    (dict[int, str], {"type": "object", "additionalProperties": STRING}, {"1": "x"}, {1: "x"}, {"x": "x"}),
    (Point, POINT, {"x": 1}, Point(1), {"y": 1}),
    (list[Point], array(POINT), [{"x": 1, "y": 2}], [Point(1, 2)], [{"x": "q"}]),
    (Optional[Point], {"anyOf": [POINT, NULL]}, {"x": 1}, Point(1), {"x": None}),
    (Cat, CAT, {"kind": "cat"}, Cat(kind="cat"), {"kind": "dog"}),
    (Cat | Dog, {"anyOf": [CAT, DOG]}, {"kind": "dog", "tricks": []}, Dog(kind="dog", tricks=[]), {"kind": "cow"}),
    (
        Annotated[Cat | Dog, Field(discriminator="kind")],
        {"anyOf": [CAT, DOG]},
        {"kind": "cat", "lives": 1},
        Cat(kind="cat", lives=1),
        {"lives": 1},
    ),
    (Movie, closed({"title": STRING, "year": INTEGER}, "title"), {"title": "M"}, {"title": "M"}, {"year": 1931}),
    (Strict, closed({"title": STRING, "year": INTEGER}, "title"), {"title": "M"}, {"title": "M"}, {"year": 1931}),
    (Pair, closed({"left": INTEGER, "right": {**STRING, "default": "r"}}, "left"), {"left": 1}, Pair(1), {"right": ""}),
    (Wrapped[int], closed({"item": INTEGER}, "item"), {"item": 1}, Wrapped(1), {"item": "x"}),
    (Wrapped[Point], closed({"item": POINT}, "item"), {"item": {"x": 1}}, Wrapped(Point(1)), {"item": 5}),
    (UserId, STRING, "u", UserId("u"), None),
    (UserNumber, INTEGER, 5, 5, "x"),
    (Annotated[int, Field(ge=1, le=7)], {"type": "integer", "description": "between 1 and 7"}, 7, 7, 8),
    (Annotated[int, Field(gt=1)], {"type": "integer", "description": "more than 1"}, 2, 2, 1),
    (Annotated[str, Field(min_length=2)], text("at least 2 characters"), "ab", "ab", "a"),
    (Annotated[str, Field(pattern="^a")], text("must match ^a"), "ab", "ab", "b"),
    (Annotated[list[int], Field(max_length=1)], array(INTEGER, "at most 1 items"), [1], [1], [1, 2]),
    (Annotated[list[Annotated[int, "Even"]], "All"], array({**INTEGER, "description": "Even"}, "All"), [2], [2], ["x"]),
]


def tool_of(annotation, default=...):
    got = []

    def function(value):
        got.append(value)
        return "ok"

    function.__annotations__ = {"value": annotation}
    if default is not ...:
        function.__defaults__ = (default,)
    return tool(function), got
