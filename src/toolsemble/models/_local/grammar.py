"""The grammar of a step, in llama.cpp's notation (GBNF), built from the tools' JSON Schemas.

The separators match ``json.dumps``, as in the rest of the prompt: a small model that is forced to use others
writes worse arguments. A step has no line breaks.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from toolsemble._schema.argument_problems import follow_ref

Schema = Mapping[str, Any] | bool

MAX_LENGTH = 60_000
"""The maximum length of a grammar; llama.cpp parses it for every reply."""

_MAX_RULES = 800
_MAX_ITEMS = 16
_MAX_DEPTH = 24
_MAX_PLANNED = 4
_MAX_NOTE = 160

_ANY: dict[str, str] = {
    "value": "object | array | string | number | boolean | null",
    "object": '"{" (member (", " member)*)? "}"',
    "member": 'string ": " value',
    "array": '"[" (value (", " value)*)? "]"',
    "string": '"\\"" char* "\\""',
    "text": '"\\"" char+ "\\""',
    # A lone surrogate is not valid text; characters outside the basic plane are written unescaped.
    "char": '[^"\\\\\\x00-\\x1F\\x7F] | "\\\\" (["\\\\/bfnrt] | "u" code)',
    "code": "[0-9a-cA-Ce-fE-F] hex hex hex | [dD] [0-7] hex hex",
    "hex": "[0-9a-fA-F]",
    "integer": '"-"? natural',
    "natural": '"0" | [1-9] [0-9]{0,15}',
    "number": 'integer ("." [0-9]{1,16})? ([eE] [-+]? [0-9]{1,3})?',
    "boolean": '"true" | "false"',
    "null": '"null"',
    "date": '[0-9] [0-9] [0-9] [0-9] "-" [01] [0-9] "-" [0-3] [0-9]',
}
_PLAIN = {"object", "array", "string", "integer", "number", "boolean", "null"}
_SHAPES = ("properties", "items", "prefixItems", "minItems", "maxItems", "format", "minLength", "minimum")


_JSON_TEXT = re.compile(r"\bJSON (?:text|document|object|value|string|array)\b")


def holds_json(schema: Mapping[str, Any]) -> bool:
    """Whether a string is meant to contain JSON, which a small model writes correctly only without escapes.

    The model writes the JSON value itself; it is converted to text when the arguments are read.

    >>> holds_json({"type": "string", "description": "The JSON document, as text"})
    True
    """
    return schema.get("type") == "string" and _JSON_TEXT.search(str(schema.get("description", ""))) is not None


_NOT_FIRST = "x-not-first"


def forbid_same_start(schema: Mapping[str, Any] | None, before: Any) -> Mapping[str, Any] | None:
    """Return the schema of a tool with one text parameter, changed so that the text starts with another character.

    >>> schema = {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}
    >>> forbid_same_start(schema, {"input": "total * 2"})["properties"]
    {'input': {'type': 'string', 'x-not-first': 'tT'}}
    """
    required = list((schema or {}).get("required") or ())
    if schema is None or len(required) != 1 or not isinstance(before, Mapping):
        return schema
    name, text = required[0], before.get(required[0])
    part = schema.get("properties", {}).get(name)
    if not isinstance(part, Mapping) or part.get("type") != "string" or not isinstance(text, str):
        return schema
    if not text[:1].isalnum() or not text[:1].isascii():
        return schema
    restricted = {**part, _NOT_FIRST: text[0].lower() + text[0].upper() * text[0].isalpha()}
    return {**schema, "properties": {**schema["properties"], name: restricted}}


class _NotExpressibleError(Exception):
    """The schema cannot be expressed as a grammar of bounded size."""


def dump_json(value: Any) -> str:
    """Return a value as JSON text with the separators of the grammar.

    >>> dump_json({"city": "Zürich", "days": 3})
    '{"city": "Zürich", "days": 3}'
    """
    text = json.dumps(value, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:  # a lone surrogate, which cannot be tokenized
        return json.dumps(value)
    return text


def format_opening(name: str, plan: Sequence[str] | None = None, note: str | None = None) -> str:
    """Return the text before the arguments of a call: the first call for a question has a plan, the others a note.

    >>> format_opening("weather", ["weather", "final_answer"])
    '{"plan": ["weather", "final_answer"], "name": "weather", "arguments": '
    """
    planned = "" if plan is None else f'"plan": {dump_json(list(plan))}, '
    noted = "" if note is None else f'"note": {dump_json(note)}, '
    return f'{{{planned}{noted}"name": {dump_json(name)}, "arguments": '


def step_grammar(
    arguments: Mapping[str, Schema | None], final: str = "", thought: Literal["plan", "note"] | None = None
) -> str:
    r"""Return the grammar of one step: a call of one of the tools, with arguments that fit its schema.

    If a schema cannot be expressed as a grammar of bounded size, the tool's arguments can be any object.

    >>> print(step_grammar({"now": None}).splitlines()[0])
    root ::= "{\"name\": \"now\", \"arguments\": " "{}" "}"

    :param arguments: for each tool, the schema of its arguments; None if it takes none
    :param final: the name of the call that answers
    :param thought: what comes before a call: a plan, which lists this tool first and then all others, or a note with
        the values from the results that the call needs
    """
    rules: dict[str, str] = {}
    room = MAX_LENGTH // max(1, len(arguments))
    tools = [_literal(dump_json(name)) for name in arguments if name != final]
    if thought == "plan" and tools:
        rules["tool"] = " | ".join(tools)
    if thought == "note":
        # No "=": a note copies values, and a small model calculates wrongly.
        rules["note"] = f'[^"=\\\\\\x00-\\x1F\\x7F]{{1,{_MAX_NOTE}}}'

    def begin(name: str) -> str:
        if thought is None or name == final:
            return _literal(format_opening(name, [final] if thought == "plan" else None))
        rest = format_opening(name)[1:]
        if thought == "note":
            return f"{_literal(_NOTE)} note {_literal(_AFTER_NOTE + rest)}"
        head, tail = f'{{"plan": [{dump_json(name)}', f", {dump_json(final)}], {rest}"
        return f'{_literal(head)} (", " tool){{0,{_MAX_PLANNED - 1}}} {_literal(tail)}'

    heads = [f'{begin(name)} {_arguments_expression(schema, rules, room)} "}}"' for name, schema in arguments.items()]
    return "\n".join(f"{name} ::= {body}" for name, body in {"root": " | ".join(heads), **_ANY, **rules}.items())


_NOTE, _AFTER_NOTE = '{"note": "', '", '


def _arguments_expression(schema: Schema | None, rules: dict[str, str], room: int) -> str:
    """Return the expression for the arguments of one tool, and add the rules that it needs."""
    if schema is None:
        return '"{}"'
    extended = dict(rules)
    try:
        expression = _Rules(schema, extended, room).expression(schema)
    except (_NotExpressibleError, LookupError, TypeError, ValueError, AttributeError, RecursionError):
        # The call path validates the arguments in any case.
        return "object"
    rules.update(extended)
    return expression


class _Rules:
    """A builder of the rules of one schema."""

    def __init__(self, root: Schema, rules: dict[str, str], room: int) -> None:
        self._root = root
        self._rules = rules
        self._room = room
        self._rule_names: dict[str, str] = {}
        self._unfinished: set[str] = set()  # references that are being resolved, without an object or array around them
        self._depth = 0

    def expression(self, schema: Schema) -> str:
        """Return the expression for the values of a schema."""
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise _NotExpressibleError
        try:
            return self._expression(schema)
        finally:
            self._depth -= 1

    def _expression(self, schema: Schema) -> str:
        if isinstance(schema, bool):
            if not schema:
                raise _NotExpressibleError
            return "value"
        if "$ref" in schema:
            return self._reference(schema["$ref"])
        if "const" in schema:
            return _literal(dump_json(schema["const"]))
        if "enum" in schema:
            return self._rule(" | ".join(_literal(dump_json(value)) for value in schema["enum"]))
        for several in ("anyOf", "oneOf"):
            if several in schema:
                return self._rule(" | ".join(self.expression(part) for part in schema[several]))
        if "allOf" in schema:
            return self._all_of(schema)
        return self._from_type(schema)

    def _all_of(self, schema: Mapping[str, Any]) -> str:
        parts = schema["allOf"]
        if len(parts) != 1 or any(shape in schema for shape in _SHAPES):
            raise _NotExpressibleError
        return self.expression(parts[0])

    def _from_type(self, schema: Mapping[str, Any]) -> str:
        kind = schema.get("type", "object" if "properties" in schema else None)
        if kind is None:
            return "value"
        if isinstance(kind, list):
            return self._rule(" | ".join(self._from_single_type(each, schema) for each in kind))
        return self._from_single_type(kind, schema)

    def _from_single_type(self, kind: str, schema: Mapping[str, Any]) -> str:
        if kind not in _PLAIN:
            raise _NotExpressibleError
        if kind in {"object", "array"}:
            unfinished, self._unfinished = self._unfinished, set()
            try:
                return self._object(schema) if kind == "object" else self._array(schema)
            finally:
                self._unfinished = unfinished
        if kind == "string":
            if _NOT_FIRST in schema:
                return self._rule(f'"\\"" [^{schema[_NOT_FIRST]}"\\\\\\x00-\\x1F\\x7F] char* "\\""')
            if schema.get("format") == "date":
                return '"\\"" date "\\""'
            if holds_json(schema):
                return self._rule("object | array | string")
            return "text" if schema.get("minLength", 0) > 0 else "string"
        if kind == "integer" and schema.get("minimum", -1) >= 0:
            return "natural"
        return kind

    def _reference(self, reference: str) -> str:
        if reference in self._unfinished:  # left recursion, which llama.cpp would follow forever
            raise _NotExpressibleError
        name = self._rule_names.get(reference)
        if name is None:
            # Named before it is built, because a type may contain itself.
            name = self._rule_names[reference] = self._new_name()
            self._unfinished.add(reference)
            self._add_rule(name, self.expression(follow_ref(self._root, reference)))
            self._unfinished.discard(reference)
        return name

    def _object(self, schema: Mapping[str, Any]) -> str:
        properties: Mapping[str, Schema] = schema.get("properties") or {}
        required = [name for name in schema.get("required", ()) if name in properties]
        if len(required) < len(schema.get("required", ())):
            raise _NotExpressibleError
        if not properties:
            return self._mapping(schema.get("additionalProperties", True))
        members = {name: self._member(name, part) for name, part in properties.items()}
        optional = [members[name] for name in properties if name not in required]
        if not required:
            return self._rule(f'"{{" ({self._choose_in_order(optional)})? "}}"')
        begin = ' ", " '.join(members[name] for name in properties if name in required)
        return self._rule(" ".join(['"{"', begin, *(f'(", " {member})?' for member in optional), '"}"']))

    def _choose_in_order(self, optional: Sequence[str]) -> str:
        """Return a choice of any members, in order; one rule for each rest keeps the size linear."""
        rest, choices = "", []
        for member in reversed(optional):
            choices.append(f"{member} {rest}".strip())
            rest = self._rule(f'(", " {member})? {rest}'.strip())
        return " | ".join(reversed(choices))

    def _mapping(self, values: Schema) -> str:
        if values is True:
            return "object"
        if values is False:
            return '"{}"'
        member = self._rule(f'string ": " {self.expression(values)}')
        return self._rule(f'"{{" ({member} (", " {member})*)? "}}"')

    def _member(self, name: str, schema: Schema) -> str:
        return self._rule(f"{_literal(dump_json(name) + ': ')} {self.expression(schema)}")

    def _array(self, schema: Mapping[str, Any]) -> str:
        least, most = schema.get("minItems", 0), schema.get("maxItems")
        if "prefixItems" in schema:
            parts = ' ", " '.join(self.expression(part) for part in schema["prefixItems"])
            return self._rule(f'"[" {parts} "]"')
        item = self.expression(schema.get("items", True))
        if most is not None and most <= 0:
            return '"[]"'
        if least > _MAX_ITEMS or (most is not None and most < least):
            raise _NotExpressibleError
        least_more = max(0, least - 1)
        more = f"{{{least_more},{most - 1}}}" if most is not None and most <= _MAX_ITEMS else f"{{{least_more},}}"
        items = f'{item} (", " {item}){more}'
        return self._rule(f'"[" {items} "]"' if least else f'"[" ({items})? "]"')

    def _rule(self, body: str) -> str:
        name = self._new_name()
        self._add_rule(name, body)
        return name

    def _new_name(self) -> str:
        name = f"r{len(self._rules)}"
        self._rules[name] = ""
        return name

    def _add_rule(self, name: str, body: str) -> None:
        if not body.strip():
            raise _NotExpressibleError
        self._rules[name] = body
        self._room -= len(body)
        if self._room < 0 or len(self._rules) > _MAX_RULES:
            raise _NotExpressibleError


def _literal(text: str) -> str:
    """Return a text as a quoted literal of the grammar."""
    return '"' + "".join(_ESCAPES.get(character) or _escape(character) for character in text) + '"'


def _escape(character: str) -> str:
    return character if character.isprintable() else f"\\U{ord(character):08X}"


_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
