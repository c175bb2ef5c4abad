"""Frozen data, compared with what the standard library makes of the same class."""

import copy
import dataclasses
import inspect
import pickle
from typing import ClassVar

import pytest

from toolsemble.data import dataclass


def both(make):
    """Give a class made by each of the two decorators."""
    return make(dataclass), make(dataclasses.dataclass)


def plain(decorator):
    @decorator(frozen=True, slots=True)
    class Thing:
        """A thing."""

        name: str
        size: int = 1
        parts: list = dataclasses.field(default_factory=list)
        kind: ClassVar[str] = "thing"

    return Thing


def elaborate(decorator):
    @decorator(frozen=True, slots=True)
    class Thing:
        """A thing with everything that a field can be."""

        name: str
        hidden: str = dataclasses.field(default="", repr=False)
        ignored: int = dataclasses.field(default=0, compare=False)
        unhashed: tuple = dataclasses.field(default=(), hash=False)
        made: tuple = dataclasses.field(init=False, default_factory=tuple)
        fixed: int = dataclasses.field(init=False, default=5)
        length: int = dataclasses.field(init=False)
        _: dataclasses.KW_ONLY
        named: float = 0.5

        def __post_init__(self):
            object.__setattr__(self, "length", len(self.name))

    return Thing


def empty(decorator):
    @decorator(frozen=True, slots=True)
    class Thing:
        """Nothing at all."""

    return Thing


def derived(decorator):
    @decorator(frozen=True, slots=True)
    class Base:
        """What comes first."""

        first: int

    @decorator(frozen=True, slots=True)
    class Thing(Base):
        """What comes then."""

        second: str = "two"

    return Thing


def own(decorator):
    @decorator(frozen=True, slots=True)
    class Thing:  # noqa: PLW1641 - the decorator does
        """A thing that says some things itself."""

        name: str

        def __repr__(self):
            return f"<{self.name}>"

        def __eq__(self, other):
            return isinstance(other, type(self))

    return Thing


GIVEN = {
    plain: [("a",), ("a", 2), ("a", 1, [3])],
    elaborate: [("a",), ("a", "secret"), ("a", "", 7)],
    empty: [()],
    derived: [(1,), (1, "three")],
}
CASES = [(make, given) for make, each in GIVEN.items() for given in each]
every = pytest.mark.parametrize("make", [plain, elaborate, empty, derived, own])
each = pytest.mark.parametrize(("make", "given"), CASES)


@each
def test_objects_look_and_compare_as_those_of_the_standard_library(make, given):
    ours, theirs = both(make)
    assert repr(ours(*given)) == repr(theirs(*given))
    assert ours(*given) == ours(*given)
    assert ours(*given) != theirs(*given)
    assert dataclasses.asdict(ours(*given)) == dataclasses.asdict(theirs(*given))
    assert [ours(*given) == ours(*other) for other in GIVEN[make]] == [
        theirs(*given) == theirs(*other) for other in GIVEN[make]
    ]


@every
def test_classes_tell_of_themselves_what_those_of_the_standard_library_do(make):
    ours, theirs = both(make)
    assert inspect.signature(ours).parameters.keys() == inspect.signature(theirs).parameters.keys()
    assert str(inspect.signature(ours)) == str(inspect.signature(theirs))
    assert [(field.name, field.type, field.default) for field in dataclasses.fields(ours)] == [
        (field.name, field.type, field.default) for field in dataclasses.fields(theirs)
    ]
    assert (ours.__slots__, ours.__match_args__) == (theirs.__slots__, theirs.__match_args__)
    assert repr(ours.__dataclass_params__) == repr(theirs.__dataclass_params__)
    assert (ours.__eq__.__qualname__, ours.__init__.__name__) == (f"{make.__name__}.<locals>.Thing.__eq__", "__init__")


def test_what_counts_for_the_hash_is_what_the_standard_library_counts():
    ours, _ = both(elaborate)
    assert hash(ours("a", unhashed=([],))) == hash(ours("a"))
    assert hash(ours("a", ignored=3)) == hash(ours("a"))
    with pytest.raises(TypeError, match="unhashable"):
        hash(both(plain)[0]("a"))


def test_what_a_class_defines_itself_stays():
    ours, theirs = both(own)
    assert repr(ours("a")) == repr(theirs("a")) == "<a>"
    assert ours("a") == ours("b")
    assert hash(ours("a")) != hash(ours("b"))  # as there: it goes by the fields


def test_a_hash_that_a_class_refuses_stays_refused():
    @dataclass(frozen=True, slots=True)
    class Thing:
        """A thing that no set can hold."""

        name: str
        __hash__ = None

    with pytest.raises(TypeError, match="unhashable"):
        hash(Thing("a"))


def test_a_value_that_does_not_equal_itself_is_found_again():
    ours, theirs = both(derived)
    nan = float("nan")
    assert ours(nan) == ours(nan)
    assert theirs(nan) == theirs(nan)

    @dataclass(frozen=True, slots=True)
    class Alone:
        """One field."""

        value: float

    assert Alone(nan) == Alone(nan)


def test_nothing_is_made_of_a_method_that_is_not_wanted():
    @dataclass(frozen=True, slots=True, eq=False, repr=False, init=False)
    class Thing:
        """A thing without any."""

        name: str = ""

    assert {"__init__", "__eq__", "__repr__"}.isdisjoint(vars(Thing))


@each
def test_objects_cannot_be_changed(make, given):
    thing = both(make)[0](*given)
    for name in ("name", "first", "anything"):
        with pytest.raises(dataclasses.FrozenInstanceError, match=f"cannot assign to field '{name}'"):
            setattr(thing, name, 1)
        with pytest.raises(dataclasses.FrozenInstanceError, match=f"cannot delete field '{name}'"):
            delattr(thing, name)


def test_a_class_that_inherits_may_have_attributes_of_another_kind():
    class Noted(both(plain)[0]):
        """It has a dict."""

    thing = Noted("a")
    thing.note = "mine"
    assert thing.note == "mine"
    del thing.note
    assert not hasattr(thing, "note")
    with pytest.raises(dataclasses.FrozenInstanceError):
        thing.name = "b"
    with pytest.raises(dataclasses.FrozenInstanceError):
        del thing.name


@pytest.mark.parametrize("decorator", [dataclass, dataclasses.dataclass])
def test_programs_can_inherit_from_it_with_either_decorator(decorator):
    base = both(plain)[0]

    @decorator(frozen=True, slots=True)
    class More(base):
        """It has one more."""

        more: int = 9

    assert More("a").more == 9
    assert base.__dataclass_params__.frozen
    with pytest.raises(TypeError, match="non-frozen"):
        dataclasses.dataclass(type("Thawed", (base,), {}))


@dataclass(frozen=True, slots=True)
class Kept:
    """What a pickle finds again by its name."""

    name: str
    parts: tuple = ()


def test_objects_are_copied_replaced_and_pickled():
    thing = Kept("a", (1, 2))
    assert [copy.copy(thing), copy.deepcopy(thing), pickle.loads(pickle.dumps(thing))] == [thing] * 3
    assert dataclasses.replace(thing, name="b") == Kept("b", (1, 2))


@dataclasses.dataclass(frozen=True)
class KeptMore(Kept):
    """What a program adds a field to, without slots."""

    more: int = 0


def test_what_a_program_adds_to_a_class_is_copied_and_pickled_with_it():
    thing = KeptMore("a", (1, 2), 3)
    assert [copy.copy(thing), copy.deepcopy(thing), pickle.loads(pickle.dumps(thing))] == [thing] * 3


def test_an_object_that_has_itself_inside_can_be_shown():
    thing = both(plain)[0]("a")
    thing.parts.append(thing)
    assert repr(thing).endswith("parts=[...])")


def test_a_wrong_argument_is_told_as_anywhere():
    ours, theirs = both(plain)
    for given in ((), ("a", 1, [], 4)):
        with pytest.raises(TypeError) as told:
            ours(*given)
        with pytest.raises(TypeError) as expected:
            theirs(*given)
        assert str(told.value) == str(expected.value)


@pytest.mark.parametrize("options", [{"frozen": False, "slots": True}, {"frozen": True, "slots": False}])
def test_data_that_is_not_frozen_or_has_no_slots_is_refused(options):
    with pytest.raises(TypeError, match=r"dataclasses\.dataclass"):
        dataclass(**options)
