"""Decode JSON text into validated arguments, with repairs, and with errors that a model can act on."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NoReturn, Protocol, TypeAlias

from toolsemble._schema.argument_problems import (
    MismatchError,
    Path,
    Problem,
    find_member_names,
    format_choices,
    format_value,
    report,
    resolve_schema,
)
from toolsemble._schema.number import TOO_LONG, LongNumberError, WrittenFloat, find_unwritable
from toolsemble._schema.repair import CAUTIOUS, CutOffError, Repairs, hint_at_nesting, parse_lenient
from toolsemble._vocabulary.errors import InvalidJsonError, ToolArgumentsError

_START = "expected one of "
_MOST_NAMES = 100


def name_choices(schema: Mapping[str, Any], problems: Sequence[Problem]) -> list[Problem]:
    """Return problems in which enum values have their member names, if the schema has them.

    >>> color = {"enum": [1, 2], "x-enum-varnames": ["RED", "BLUE"]}
    >>> name_choices({"properties": {"color": color}}, [Problem(("color",), "expected one of 1, 2")])[0].message
    'expected one of 1 (RED), 2 (BLUE)'
    """
    return [_name(schema, each) if each.message.startswith(_START) else each for each in problems]


def _name(schema: Mapping[str, Any], problem: Problem) -> Problem:
    names = find_member_names(_find_schema(schema, problem.path))
    if not names or len(names) > _MOST_NAMES or problem.message != f"expected {format_choices(list(names.values()))}":
        return problem
    named = ", ".join(f"{format_value(value)} ({name})" for name, value in names.items())
    return replace(problem, message=f"{_START}{named}")


def _find_schema(root: Mapping[str, Any], path: Path) -> Mapping[str, Any]:
    """Return the schema of the value at a path; empty if there is none, or if it is ambiguous."""
    schema: Any = resolve_schema(root, root)
    for part in path:
        inside = schema.get("items") if isinstance(part, int) else schema.get("properties", {}).get(part)
        if not isinstance(inside, Mapping):
            return {}
        schema = resolve_schema(root, inside)
    return schema  # type: ignore[no-any-return]  # a schema is a mapping


Repair: TypeAlias = Mapping[str, Any]
"""One change to the arguments: its ``step`` and ``path``, and the values ``from`` and ``to``."""

Decoded: TypeAlias = tuple[Any, Sequence[Repair]]
"""The validated arguments, and the repairs that were made."""

Read: TypeAlias = Callable[[Any, frozenset[str]], Decoded]
"""Reads the input of a call, with the repair steps that are enabled."""

_KINDS: dict[type, str] = {list: "ARRAY", str: "STRING", int: "NUMBER", bool: "BOOLEAN", type(None): "NULL"}
_CUT_OFF = "the text is cut off; send all of it again"
_TOO_DEEP = "nested too deeply; send fewer levels"
_ONE_OBJECT = "; send one JSON object"


class Arguments(Protocol):
    """The validator of one tool's arguments, by declared types or by a schema."""

    owner: str
    ignored: frozenset[str]

    @property
    def schema(self) -> Mapping[str, Any]:
        """The JSON Schema of the arguments."""
        ...

    @property
    def secret_keys(self) -> frozenset[str]:
        """The parameters that are or contain secrets."""
        ...

    @property
    def init_only(self) -> str:
        """A constructor parameter that no object stores, so that it cannot be displayed; empty if there is none."""
        ...

    def validate(self, text: str) -> Any:
        """Return the values in JSON text, or raise :class:`MismatchError`."""
        ...

    def holds(self, value: Any) -> bool:
        """Return whether a Python object is already of the input type."""
        ...

    def take(self, value: Any) -> Any:
        """Return the values in a Python object, or raise :class:`MismatchError`."""
        ...

    def wrong_keys(self, mismatch: MismatchError) -> frozenset[str] | None:
        """Return the parameters that are wrong, missing or unknown; None if any may be."""
        ...

    def is_settled(self, mismatch: MismatchError) -> bool:
        """Return whether a text and the value parsed from it have the same errors."""
        ...

    def problems(self, text: str, value: Any, mismatch: MismatchError) -> tuple[list[Problem], int]:
        """Return the problems of a value with this JSON text, and the number of omitted problems."""
        ...

    def present(self, value: Any, *, reveal: bool = False, best_effort: bool = False) -> Any:
        """Return validated values as JSON, all of them, with the keys that the model uses; secrets hidden.

        :param best_effort: whether the result is informational only, and not checked for completeness
        """
        ...


def decode_arguments(arguments: Arguments, text: str, steps: frozenset[str]) -> Decoded:
    """Return the arguments in a text: directly if it validates unchanged, otherwise with the allowed repairs."""
    if not text or text.isspace():
        text = "{}"
    mismatch = None
    try:
        if "NaN" not in text and "Infinity" not in text:  # the fast parser would accept them
            return arguments.validate(text), ()
    except MismatchError as problem:  # the slow path, with repairs
        mismatch = problem.with_traceback(None)  # it would refer to this frame, which refers to the exception
    value, changes = decode_object(text, arguments.owner, steps)
    injected = arguments.ignored & value.keys()
    for key in injected:
        value.pop(key)
    if changes or injected or mismatch is None:  # the text has changed
        text = json_text(value, arguments.owner)
        try:
            return arguments.validate(text), changes
        except MismatchError as problem:
            mismatch = problem.with_traceback(None)
    return _repair(text, value, arguments, steps, mismatch, changes)


def _repair(
    text: str,
    value: dict[str, Any],
    arguments: Arguments,
    steps: frozenset[str],
    mismatch: MismatchError,
    changes: list[Repair],
) -> Decoded:
    """Return the arguments after repairs; raise ToolArgumentsError if they are still invalid."""
    # Valid values are not changed, even if others are invalid.
    schema = arguments.schema
    repairs = Repairs(schema, steps, arguments.wrong_keys(mismatch))
    try:
        repaired = repairs.repair(value, schema)
    except LongNumberError:
        raise _invalid(arguments.owner, TOO_LONG) from None
    if repairs.has_changed or not arguments.is_settled(mismatch):
        text = plain_input(repaired, arguments.owner)
        try:
            return arguments.validate(text), (*changes, *repairs.changes)
        except MismatchError as problem:
            mismatch = problem.with_traceback(None)
    raise _refuse(text, repaired, value, arguments, mismatch)


def _refuse(
    text: str, repaired: dict[str, Any], value: dict[str, Any], arguments: Arguments, mismatch: MismatchError
) -> ToolArgumentsError:
    """Return the error for arguments that are invalid after all repairs."""
    problems, more = arguments.problems(text, repaired, mismatch)
    if not problems:  # the values are valid, but the validator's parser has lower limits
        return _invalid(arguments.owner, "a number is too large, or it is nested too deeply; send less")
    schema = arguments.schema
    problems = name_choices(schema, problems)
    return report(arguments.owner, problems, more, hint_at_nesting(schema, value, problems))


def decode_object(text: str, owner: str, steps: frozenset[str] = frozenset()) -> tuple[dict[str, Any], list[Repair]]:
    """Return the JSON object in a text; blank text is an empty object.

    >>> decode_object('{"city": "Rome"}', "weather")
    ({'city': 'Rome'}, [])
    >>> decode_object('["Rome"]', "weather")
    Traceback (most recent call last):
    ...
    toolsemble.ToolArgumentsError: Expected a JSON object for 'weather' but received: ARRAY
    """
    if not text or text.isspace():
        return {}, []
    repairs: list[Repair] = []
    value = _read(text, owner, steps, repairs)
    if isinstance(value, dict):
        return value, repairs
    for _ in range(2):  # a model may encode its arguments twice
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
    """Return the single string argument of a string tool.

    >>> decode_input('{"input": "2 + 2"}', "calculator")
    ('2 + 2', ())
    >>> decode_input('{"input": null}', "calculator")
    Traceback (most recent call last):
    ...
    toolsemble.ToolArgumentsError: Missing required parameter(s) for 'calculator': input
    """
    arguments, repairs = decode_object(text, owner, steps)
    value = arguments.get("input")
    if value is None:
        if "input" in arguments or not arguments:
            raise ToolArgumentsError(f"Missing required parameter(s) for '{owner}': input")
        # A model may use another name for the parameter; the tool then gets all arguments as JSON text.
        value = arguments if repairs else text
    elif CAUTIOUS in steps:
        _check_alone(arguments, owner)
    return plain_input(value, owner), repairs or ()


def _check_alone(arguments: Mapping[str, Any], owner: str) -> None:
    """Raise ToolArgumentsError if the arguments are not exactly one string."""
    found = [Problem((key,), "not a parameter of this tool") for key in arguments if key != "input"]
    if isinstance(arguments["input"], (dict, list)):
        found.insert(0, Problem(("input",), "expected a string"))
    if found:
        raise report(owner, found)


class CautiousReader:
    """An arguments reader for tools with irreversible effects, which drops nothing that the model sent.

    Unknown keys, text around the JSON, and an object or a list instead of a string are rejected.
    """

    __slots__ = ("read",)

    def __init__(self, read: Read) -> None:
        self.read = read

    def __call__(self, arguments: Any, steps: frozenset[str]) -> Decoded:
        """Read arguments without the steps that drop input."""
        return self.read(arguments, steps - {"extra"} | {CAUTIOUS})


def plain_input(value: object, owner: str) -> str:
    """Return a str unchanged, None as an empty str, and any other JSON value as its text.

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
    """Return a value as compact JSON; raise ToolArgumentsError if it is not JSON.

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
    """Return the value of JSON text, or of almost valid JSON text if the step is allowed."""
    decoder = _DECODER if len(text) < _LONG_TEXT else _PLAIN_DECODER
    try:
        if text[0] == "{" and text[-1] == "}":
            value, end = decoder.raw_decode(text)  # does not skip whitespace
            if end == len(text):
                return value
        return decoder.decode(text)
    except RecursionError:
        raise _invalid(owner, _TOO_DEEP) from None
    except json.JSONDecodeError as problem:
        reason = f"{problem}{_ONE_OBJECT}" if problem.doc else problem.msg
    except ValueError:  # valid JSON, but the number is too long
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
    return InvalidJsonError(f"Invalid JSON input for '{owner}': {reason}")


def _refuse_constant(name: str) -> NoReturn:
    raise json.JSONDecodeError(f"{name} is not a JSON value; send a finite number, or leave it out", "", 0)


# Python's parser accepts NaN and Infinity, which are not JSON.
_DECODER = json.JSONDecoder(parse_constant=_refuse_constant, parse_float=WrittenFloat)
_PLAIN_DECODER = json.JSONDecoder(parse_constant=_refuse_constant)
_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)
_LONG_TEXT = 50_000  # in longer texts, floats do not keep their text, because that would take too long
