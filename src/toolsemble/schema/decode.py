"""JSON text to values, refusing what is not JSON in words that a model can act on."""

from __future__ import annotations

import json
from typing import Any, NoReturn

from toolsemble.errors import ToolArgumentsError

_KINDS: dict[type, str] = {
    list: "ARRAY",
    str: "STRING",
    int: "NUMBER",
    float: "NUMBER",
    bool: "BOOLEAN",
    type(None): "NULL",
}


def decode_object(text: str, owner: str) -> dict[str, Any]:
    """Give the JSON object that a text holds; blank text counts as an empty one.

    >>> decode_object('{"city": "Rome"}', "weather")
    {'city': 'Rome'}
    >>> decode_object('["Rome"]', "weather")
    Traceback (most recent call last):
    ...
    toolsemble.errors.ToolArgumentsError: Expected a JSON object for 'weather' but received: ARRAY
    """
    if not text or text.isspace():
        return {}
    try:
        value = _DECODER.decode(text)
    except RecursionError:
        raise _invalid(owner, "nested too deeply") from None
    except ValueError as problem:
        raise _invalid(owner, str(problem)) from None
    if isinstance(value, dict):
        return value
    raise ToolArgumentsError(f"Expected a JSON object for '{owner}' but received: {_KINDS[type(value)]}")


def decode_input(text: str, owner: str) -> str:
    """Give the one string that a string tool takes, out of the arguments that a model wrote.

    >>> decode_input('{"input": "2 + 2"}', "calculator")
    '2 + 2'
    >>> decode_input('{"input": null}', "calculator")
    Traceback (most recent call last):
    ...
    toolsemble.errors.ToolArgumentsError: Missing required parameter(s) for 'calculator': input
    """
    arguments = decode_object(text, owner)
    value = arguments.get("input")
    if value is None:
        if "input" in arguments or not arguments:
            raise ToolArgumentsError(f"Missing required parameter(s) for '{owner}': input")
        value = text  # a model that names the parameter after its meaning still gets its arguments through
    return plain_input(value, owner)


def plain_input(value: object, owner: str) -> str:
    """Give a string as it is, None as the empty one, and any other JSON value as its text.

    >>> plain_input([1, 2], "calculator")
    '[1,2]'
    """
    if not isinstance(value, str):
        value = "" if value is None else _compact(value, owner)
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as problem:
            code = ord(value[problem.start])
            reason = f"half of a surrogate pair (\\u{code:04x}) at position {problem.start}; send whole characters"
            raise _invalid(owner, reason) from None
    return value


def _compact(value: object, owner: str) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except RecursionError:
        raise _invalid(owner, "nested too deeply") from None
    except (TypeError, ValueError) as problem:
        raise _invalid(owner, str(problem)) from None


def _invalid(owner: str, reason: str) -> ToolArgumentsError:
    return ToolArgumentsError(f"Invalid JSON input for '{owner}': {reason}")


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON value")


# Python's own reader takes NaN and Infinity, which JSON does not have.
_DECODER = json.JSONDecoder(parse_constant=_refuse_constant)
