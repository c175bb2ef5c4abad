"""What the model may write: a grammar, in llama.cpp's notation, made from the tools' JSON Schemas.

The separators are those of ``json.dumps``, as in everything that the model is shown: a small model that is held to
other ones than it sees writes worse arguments. There is no line break anywhere in it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

Schema = Mapping[str, Any] | bool

LONGEST = 60_000
"""How many characters a grammar may have; llama.cpp reads one for every reply."""

_MOST_RULES = 800
_MOST_ITEMS = 16
_DEEPEST = 24
_MOST_PLANNED = 4
_LONGEST_NOTE = 160

_ANY: dict[str, str] = {
    "value": "object | array | string | number | boolean | null",
    "object": '"{" (member (", " member)*)? "}"',
    "member": 'string ": " value',
    "array": '"[" (value (", " value)*)? "]"',
    "string": '"\\"" char* "\\""',
    "text": '"\\"" char+ "\\""',
    # Half a surrogate pair is no text: what stands outside of the first plane is written as it is.
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
    """Whether a string is meant to hold JSON, which a small model gets right only where it need not escape it.

    The value is written as it is, and made a text again where arguments are read.

    >>> holds_json({"type": "string", "description": "The JSON document, as text"})
    True
    """
    return schema.get("type") == "string" and _JSON_TEXT.search(str(schema.get("description", ""))) is not None


_NOT_FIRST = "x-not-first"


def begun_otherwise(schema: Mapping[str, Any] | None, before: Any) -> Mapping[str, Any] | None:
    """Give the schema of a tool that takes one text, such that it begins with another letter than the one before.

    >>> schema = {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}
    >>> begun_otherwise(schema, {"input": "total * 2"})["properties"]
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
    changed = {**part, _NOT_FIRST: text[0].lower() + text[0].upper() * text[0].isalpha()}
    return {**schema, "properties": {**schema["properties"], name: changed}}


class _NotExpressibleError(Exception):
    """A schema says more than a grammar can, or takes too much room."""


def written(value: Any) -> str:
    """Give a value as JSON text with the separators of the grammar.

    >>> written({"city": "Zürich", "days": 3})
    '{"city": "Zürich", "days": 3}'
    """
    text = json.dumps(value, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:  # half a surrogate pair, which no tokenizer takes
        return json.dumps(value)
    return text


def opening(name: str, plan: Sequence[str] | None = None, note: str | None = None) -> str:
    """Give what stands before the arguments of a call: for a question the first has a plan, the others have a note.

    >>> opening("weather", ["weather", "final_answer"])
    '{"plan": ["weather", "final_answer"], "name": "weather", "arguments": '
    """
    planned = "" if plan is None else f'"plan": {written(list(plan))}, '
    noted = "" if note is None else f'"note": {written(note)}, '
    return f'{{{planned}{noted}"name": {written(name)}, "arguments": '


def step_grammar(
    arguments: Mapping[str, Schema | None], final: str = "", thought: Literal["plan", "note"] | None = None
) -> str:
    r"""Give the grammar of one step: a call of one of the tools, with arguments that fit its schema.

    A schema that a grammar cannot express, or not in a bounded size, leaves that tool's arguments free: an object.

    >>> print(step_grammar({"now": None}).splitlines()[0])
    root ::= "{\"name\": \"now\", \"arguments\": " "{}" "}"

    :param arguments: for each tool, the schema of its arguments; None when it takes none
    :param final: the name that is an answer, and no tool
    :param thought: what stands before a call: the plan, which names this tool first and then all others, or a note of
        what the results say that the call needs
    """
    grammar = _Grammar(LONGEST // max(1, len(arguments)))
    tools = [_literal(written(name)) for name in arguments if name != final]
    if thought == "plan" and tools:
        grammar.add("tool", " | ".join(tools))
    if thought == "note":
        # No equation: a note copies values, and a small model computes wrongly.
        grammar.add("note", f'[^"=\\\\\\x00-\\x1F\\x7F]{{1,{_LONGEST_NOTE}}}')

    def begin(name: str) -> str:
        if thought is None or name == final:
            return _literal(opening(name, [final] if thought == "plan" else None))
        rest = opening(name)[1:]
        if thought == "note":
            return f"{_literal(_NOTE)} note {_literal(_AFTER_NOTE + rest)}"
        head, tail = f'{{"plan": [{written(name)}', f", {written(final)}], {rest}"
        return f'{_literal(head)} (", " tool){{0,{_MOST_PLANNED - 1}}} {_literal(tail)}'

    heads = [f'{begin(name)} {grammar.arguments(schema)} "}}"' for name, schema in arguments.items()]
    return grammar.text(" | ".join(heads))


_NOTE, _AFTER_NOTE = '{"note": "', '", '


class _Grammar:
    """Collects the rules; those that are common to all JSON are there already."""

    def __init__(self, room: int) -> None:
        self._rules: dict[str, str] = {}
        self._room = room

    def text(self, root: str) -> str:
        return "\n".join(f"{name} ::= {body}" for name, body in {"root": root, **_ANY, **self._rules}.items())

    def add(self, name: str, body: str) -> None:
        self._rules[name] = body

    def arguments(self, schema: Schema | None) -> str:
        """Give the expression for the arguments of one tool."""
        if schema is None:
            return '"{}"'
        before = dict(self._rules)
        try:
            return _Rules(schema, self._rules, self._room).expression(schema)
        except (_NotExpressibleError, TypeError, ValueError, AttributeError, RecursionError):
            # Whatever is strange about a schema, the call path checks the arguments in the end.
            self._rules = before
            return "object"


class _Rules:
    """Makes the rules of one schema."""

    def __init__(self, root: Schema, rules: dict[str, str], room: int) -> None:
        self._root = root
        self._rules = rules
        self._room = room
        self._named: dict[str, str] = {}
        self._begun: set[str] = set()  # references that are nothing but themselves so far
        self._depth = 0

    def expression(self, schema: Schema) -> str:
        """Give an expression for the values that fit a schema."""
        self._depth += 1
        if self._depth > _DEEPEST:
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
            return _literal(written(schema["const"]))
        if "enum" in schema:
            return self._rule(" | ".join(_literal(written(value)) for value in schema["enum"]))
        for several in ("anyOf", "oneOf"):
            if several in schema:
                return self._rule(" | ".join(self.expression(part) for part in schema[several]))
        if "allOf" in schema:
            return self._all_of(schema)
        return self._typed(schema)

    def _all_of(self, schema: Mapping[str, Any]) -> str:
        parts = schema["allOf"]
        if len(parts) != 1 or any(shape in schema for shape in _SHAPES):
            raise _NotExpressibleError
        return self.expression(parts[0])

    def _typed(self, schema: Mapping[str, Any]) -> str:
        kind = schema.get("type", "object" if "properties" in schema else None)
        if kind is None:
            return "value"
        if isinstance(kind, list):
            return self._rule(" | ".join(self._of_type(each, schema) for each in kind))
        return self._of_type(kind, schema)

    def _of_type(self, kind: str, schema: Mapping[str, Any]) -> str:
        if kind not in _PLAIN:
            raise _NotExpressibleError
        if kind in {"object", "array"}:
            begun, self._begun = self._begun, set()
            try:
                return self._object(schema) if kind == "object" else self._array(schema)
            finally:
                self._begun = begun
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
        if reference in self._begun:  # a type that is itself, or something else: llama.cpp would look for ever
            raise _NotExpressibleError
        name = self._named.get(reference)
        if name is None:
            # Named before it is made: a type may hold itself.
            name = self._named[reference] = self._new_name()
            self._begun.add(reference)
            self._put(name, self.expression(self._resolved(reference)))
            self._begun.discard(reference)
        return name

    def _resolved(self, reference: str) -> Schema:
        if not reference.startswith("#"):
            raise _NotExpressibleError
        found: Any = self._root
        for part in reference[1:].split("/")[1:]:
            key = part.replace("~1", "/").replace("~0", "~")
            if not isinstance(found, Mapping) or key not in found:
                raise _NotExpressibleError
            found = found[key]
        return found  # type: ignore[no-any-return]  # what stands there is a schema, or fails as one

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
            return self._rule(f'"{{" ({self._first_of(optional)})? "}}"')
        begin = ' ", " '.join(members[name] for name in properties if name in required)
        return self._rule(" ".join(['"{"', begin, *(f'(", " {member})?' for member in optional), '"}"']))

    def _first_of(self, optional: Sequence[str]) -> str:
        """Give any choice of members, in order; a rule for the rest of each keeps it linear in size."""
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
        return self._rule(f"{_literal(written(name) + ': ')} {self.expression(schema)}")

    def _array(self, schema: Mapping[str, Any]) -> str:
        least, most = schema.get("minItems", 0), schema.get("maxItems")
        if "prefixItems" in schema:
            parts = ' ", " '.join(self.expression(part) for part in schema["prefixItems"])
            return self._rule(f'"[" {parts} "]"')
        item = self.expression(schema.get("items", True))
        if most is not None and most <= 0:
            return '"[]"'
        if least > _MOST_ITEMS or (most is not None and most < least):
            raise _NotExpressibleError
        least_more = max(0, least - 1)
        more = f"{{{least_more},{most - 1}}}" if most is not None and most <= _MOST_ITEMS else f"{{{least_more},}}"
        items = f'{item} (", " {item}){more}'
        return self._rule(f'"[" {items} "]"' if least else f'"[" ({items})? "]"')

    def _rule(self, body: str) -> str:
        name = self._new_name()
        self._put(name, body)
        return name

    def _new_name(self) -> str:
        name = f"r{len(self._rules)}"
        self._rules[name] = ""
        return name

    def _put(self, name: str, body: str) -> None:
        if not body.strip():
            raise _NotExpressibleError
        self._rules[name] = body
        self._room -= len(body)
        if self._room < 0 or len(self._rules) > _MOST_RULES:
            raise _NotExpressibleError


def _literal(text: str) -> str:
    """Give a text as something that the grammar takes letter by letter; nothing in it can end it early."""
    return '"' + "".join(_ESCAPES.get(letter) or _shown(letter) for letter in text) + '"'


def _shown(letter: str) -> str:
    return letter if letter.isprintable() else f"\\U{ord(letter):08X}"


_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
