"""JSON text to values, refusing what does not fit in words that a model can act on."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn, Protocol, TypeAlias

from toolsemble.errors import ToolArgumentsError
from toolsemble.schema.lenient import CutOffError, parse_lenient
from toolsemble.schema.number import TOO_LONG, LongNumberError, WrittenFloat, find_unwritable
from toolsemble.schema.problem import MismatchError, Problem, report
from toolsemble.schema.repair import CAUTIOUS, Repairs

Repair: TypeAlias = Mapping[str, Any]
"""One change that made arguments fit: its ``step`` and ``path``, what it was ``from`` and what it became, ``to``."""

Decoded: TypeAlias = tuple[Any, Sequence[Repair]]
"""What a body takes, and what had to be repaired for it."""

_KINDS: dict[type, str] = {
    list: "ARRAY",
    str: "STRING",
    int: "NUMBER",
    bool: "BOOLEAN",
    type(None): "NULL",
}
_CUT_OFF = "the text is cut off; send all of it again"
_TOO_DEEP = "nested too deeply; send fewer levels"
_ONE_OBJECT = "; send one JSON object"


class Arguments(Protocol):
    """How one tool's arguments are checked: by declared types, or by a schema."""

    owner: str
    ignored: frozenset[str]

    @property
    def schema(self) -> Mapping[str, Any]:
        """The JSON Schema that the arguments fit."""
        ...

    @property
    def secret_keys(self) -> frozenset[str]:
        """The parameters that are secrets or have some inside."""
        ...

    @property
    def init_only(self) -> str:
        """What a constructor takes and no object keeps, so that nobody can be shown it; empty for nothing."""
        ...

    def validate(self, text: str) -> Any:
        """Give the values that JSON text holds, or raise :class:`MismatchError`."""
        ...

    def holds(self, value: Any) -> bool:
        """Whether a Python object is of the very type that the arguments make, and is passed on as it is."""
        ...

    def take(self, value: Any) -> Any:
        """Give the values that a Python object holds, or raise :class:`MismatchError`."""
        ...

    def wrong_keys(self, unfit: MismatchError) -> frozenset[str] | None:
        """Give the parameters that do not fit, those that are missing, and keys that are unknown; None for any."""
        ...

    def problems(self, text: str, value: Any, unfit: MismatchError) -> tuple[list[Problem], int]:
        """Give what is wrong with a value that is written as the text, and how many problems there are beyond."""
        ...

    def present(self, value: Any, *, reveal: bool = False, best_effort: bool = False) -> Any:
        """Return validated values as JSON, every one of them, under the names that the model knows; secrets hidden.

        :param best_effort: whether the result only informs, so that it is not checked for completeness
        """
        ...


def decode_arguments(arguments: Arguments, text: str, steps: frozenset[str]) -> Decoded:
    """Give the values of a text: read at once when it fits as it is, else with as much help as the steps allow."""
    if not text or text.isspace():
        text = "{}"
    unfit = None
    try:
        if "NaN" not in text and "Infinity" not in text:  # which the fast reader would take for numbers
            return arguments.validate(text), ()
    except MismatchError as problem:  # the rare way, on which time is spent to help
        unfit = problem
    value, made = decode_object(text, arguments.owner, steps)
    injected = arguments.ignored & value.keys()
    for key in injected:
        value.pop(key)
    if made or injected or unfit is None:  # it is another text by now
        text = json_text(value, arguments.owner)
        try:
            return arguments.validate(text), made
        except MismatchError as problem:
            unfit = problem
    return _repair(value, arguments, steps, unfit, made)


def _repair(
    value: dict[str, Any], arguments: Arguments, steps: frozenset[str], unfit: MismatchError, made: list[Repair]
) -> Decoded:
    """Give what values that do not fit become, or refuse them."""
    # What fits is left alone, whatever is wrong beside it.
    repairs = Repairs(arguments.schema, steps, arguments.wrong_keys(unfit))
    try:
        mended = repairs.repair(value, arguments.schema)
    except LongNumberError:
        raise _invalid(arguments.owner, TOO_LONG) from None
    fitting = plain_input(mended, arguments.owner)
    try:
        return arguments.validate(fitting), (*made, *repairs.changes)
    except MismatchError as problem:
        problems, more = arguments.problems(fitting, mended, problem)
    if not problems:  # it is not the values: a reader more careful than ours refuses the text
        raise _invalid(arguments.owner, "a number is too large, or it is nested too deeply; send less")
    raise report(arguments.owner, problems, more)


def decode_object(text: str, owner: str, steps: frozenset[str] = frozenset()) -> tuple[dict[str, Any], list[Repair]]:
    """Give the JSON object that a text holds; blank text counts as an empty one.

    >>> decode_object('{"city": "Rome"}', "weather")
    ({'city': 'Rome'}, [])
    >>> decode_object('["Rome"]', "weather")
    Traceback (most recent call last):
    ...
    toolsemble.errors.ToolArgumentsError: Expected a JSON object for 'weather' but received: ARRAY
    """
    if not text or text.isspace():
        return {}, []
    repairs: list[Repair] = []
    value = _read(text, owner, steps, repairs)
    for _ in range(2):  # a model may encode its arguments once too often, seldom twice
        if isinstance(value, str) and "text" in steps and "{" in value:
            try:
                inner = _read(value, owner, steps, [])
            except ToolArgumentsError as problem:
                if str(problem).endswith((_CUT_OFF, TOO_LONG)):
                    raise
                break
            repairs.append({"step": "text", "path": "$", "from": value, "to": inner})
            value = inner
    if isinstance(value, dict):
        return value, repairs
    kind = "NUMBER" if isinstance(value, float) else _KINDS[type(value)]
    raise ToolArgumentsError(f"Expected a JSON object for '{owner}' but received: {kind}")


def decode_input(text: str, owner: str, steps: frozenset[str] = frozenset()) -> Decoded:
    """Give the one string that a string tool takes, out of the arguments that a model wrote.

    >>> decode_input('{"input": "2 + 2"}', "calculator")
    ('2 + 2', ())
    >>> decode_input('{"input": null}', "calculator")
    Traceback (most recent call last):
    ...
    toolsemble.errors.ToolArgumentsError: Missing required parameter(s) for 'calculator': input
    """
    arguments, repairs = decode_object(text, owner, steps)
    value = arguments.get("input")
    if value is None:
        if "input" in arguments or not arguments:
            raise ToolArgumentsError(f"Missing required parameter(s) for '{owner}': input")
        # A model that names the parameter after its meaning still gets its arguments through.
        value = arguments if repairs else text
    elif CAUTIOUS in steps:
        _check_alone(arguments, owner)
    return plain_input(value, owner), repairs or ()


def _check_alone(arguments: Mapping[str, Any], owner: str) -> None:
    """Raise when a tool that takes one string, and whose effects cannot be undone, is sent anything else."""
    found = [Problem((key,), "not a parameter of this tool") for key in arguments if key != "input"]
    if isinstance(arguments["input"], (dict, list)):
        found.insert(0, Problem(("input",), "expected a string"))
    if found:
        raise report(owner, found)


class CautiousReader:
    """Reads arguments of a tool whose effects cannot be undone: what was said is not left out, nor words around it.

    Keys that the tool does not have are refused, and so are words around the JSON, and an object or a list for a text.
    """

    __slots__ = ("read",)

    def __init__(self, read: Callable[[Any, frozenset[str]], Decoded]) -> None:
        self.read = read

    def __call__(self, given: Any, steps: frozenset[str]) -> Decoded:
        """Read arguments with the steps that are allowed, but those that leave something out."""
        return self.read(given, steps - {"extra"} | {CAUTIOUS})


def plain_input(value: object, owner: str) -> str:
    """Give a string as it is, None as the empty one, and any other JSON value as its text.

    >>> plain_input([1, 2], "calculator")
    '[1,2]'
    """
    if not isinstance(value, str):
        value = "" if value is None else json_text(value, owner)
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as problem:
            code = ord(value[problem.start])
            reason = f"half of a surrogate pair (\\u{code:04x}) at position {problem.start}; send whole characters"
            raise _invalid(owner, reason) from None
    return value


def json_text(value: object, owner: str) -> str:
    """Give a value as compact JSON; refuse what is not JSON.

    >>> json_text({"a": [1]}, "calculator")
    '{"a":[1]}'
    """
    try:
        return _ENCODER.encode(value)
    except RecursionError:
        raise _invalid(owner, _TOO_DEEP) from None
    except (TypeError, ValueError) as problem:
        raise _invalid(owner, find_unwritable(value) or str(problem)) from None


def _read(text: str, owner: str, steps: frozenset[str], repairs: list[Repair]) -> Any:
    """Give the value of a text that is JSON, or nearly so where that is allowed."""
    decoder = _DECODER if len(text) < _LONG_TEXT else _PLAIN_DECODER
    try:
        if text[0] == "{" and text[-1] == "}":
            value, end = decoder.raw_decode(text)  # which looks for no space around it
            if end == len(text):
                return value
        return decoder.decode(text)
    except RecursionError:
        raise _invalid(owner, _TOO_DEEP) from None
    except json.JSONDecodeError as problem:
        reason = f"{problem}{_ONE_OBJECT}" if problem.doc else problem.msg
    except ValueError:  # JSON, but more than can be read
        raise _invalid(owner, TOO_LONG) from None
    try:
        value = parse_lenient(text, decoder.decode, words=CAUTIOUS not in steps)
    except CutOffError:
        raise _invalid(owner, _CUT_OFF) from None
    except LongNumberError:
        raise _invalid(owner, TOO_LONG) from None
    except ValueError:
        raise _invalid(owner, reason) from None
    if "text" not in steps:
        raise _invalid(owner, reason)
    repairs.append({"step": "text", "path": "$", "from": text, "to": value})
    return value


def _invalid(owner: str, reason: str) -> ToolArgumentsError:
    return ToolArgumentsError(f"Invalid JSON input for '{owner}': {reason}")


def _refuse_constant(name: str) -> NoReturn:
    raise json.JSONDecodeError(f"{name} is not a JSON value; send a finite number, or leave it out", "", 0)


# Python's own reader takes NaN and Infinity, which JSON does not have.
_DECODER = json.JSONDecoder(parse_constant=_refuse_constant, parse_float=WrittenFloat)
_PLAIN_DECODER = json.JSONDecoder(parse_constant=_refuse_constant)
_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)
_LONG_TEXT = 50_000  # of more, numbers do not remember how they were written: it would take too long
