"""A tool in one line, for people and for models: its name, its parameters and the first sentence of its description."""

from __future__ import annotations

import re
from typing import Any

from toolsemble._runtime.text import escape_line
from toolsemble._vocabulary.serialization import compact_json
from toolsemble._vocabulary.specification import ToolSpecification

_LONGEST_SENTENCE = 240
_MOST_PARAMETERS = 30
_MOST_CHOICES = 12
_LONGEST_CHOICES = 200
_LONGEST_NAME = 64
_END = re.compile(r"(?<!\be\.g)(?<!\bi\.e)(?<!\betc)(?<!\bvs)[.!?](?=\s)|[\u3002\uff01\uff1f]|\n\s*\n")


def first_sentence(text: str) -> str:
    r"""Return the first sentence of a text on one line; a very long one is cut.

    >>> first_sentence("Send mail, e.g. a reminder.\nNeeds an address. Takes files.")
    'Send mail, e.g. a reminder.'
    """
    whole = text.strip()
    end = _END.search(whole)
    sentence = " ".join(whole[: end.end()].split() if end else whole.split())
    if len(sentence) <= _LONGEST_SENTENCE:
        return sentence
    return f"{sentence[:_LONGEST_SENTENCE].rpartition(' ')[0] or sentence[:_LONGEST_SENTENCE]}…"


def format_parameters(specification: ToolSpecification) -> str:
    """Return the parameters in one line, optional ones in brackets.

    >>> schema = {"properties": {"city": {"type": "string"}, "days": {"type": "integer"}}, "required": ["city"]}
    >>> format_parameters(ToolSpecification("weather", "", schema))
    'city: string, [days: integer]'
    """
    schema = specification.parameters or {}
    needed = schema.get("required", ())
    properties = schema.get("properties", {})
    shown = [
        (name, f"{escape_line(name, _LONGEST_NAME)}: {_format_type(part)}")
        for name, part in list(properties.items())[:_MOST_PARAMETERS]
    ]
    more = ["…"] if len(properties) > _MOST_PARAMETERS else []
    return ", ".join([*(text if name in needed else f"[{text}]" for name, text in shown), *more])


def write_line(specification: ToolSpecification) -> str:
    """Return a tool in one line.

    >>> write_line(ToolSpecification("now", "The time. In UTC."))
    'now(): The time.'
    """
    sentence = escape_line(first_sentence(specification.description))
    return f"{specification.name}({format_parameters(specification)}){f': {sentence}' if sentence else ''}"


def _format_type(schema: dict[str, Any]) -> str:
    if "enum" in schema:
        values = [compact_json(value) for value in schema["enum"][:_MOST_CHOICES]]
        more = ["…"] if len(schema["enum"]) > _MOST_CHOICES else []
        return escape_line("|".join([*values, *more]), _LONGEST_CHOICES)
    if "anyOf" in schema:
        return "|".join(dict.fromkeys(map(_format_type, schema["anyOf"])))
    kind = str(schema.get("type", "any"))
    return f"{_format_type(schema.get('items', {}))}[]" if kind == "array" else kind
