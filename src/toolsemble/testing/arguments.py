"""Arguments from a schema: such as fit, and such as nearly do.

A generator of our own, in place of hypothesis-jsonschema: that one would make hypothesis a dependency of every user,
and gives what fits only, while what nearly fits is what models send.
"""

from __future__ import annotations

import json
import math
import random
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from toolsemble.testing.samples import FORMATS, HOSTILE, INTEGERS, NUMBERS, ODD, PATTERNED, PIECES, WORDS
from toolsemble.testing.tree import Place, at, places, put, without

_DEEPEST = 5  # how deep values are made where a schema would let them be endless
_LONGEST = 20_000
_TRIES = 30
_NESTED = 60
_EDGED = 3  # how deep the edges are looked for
_MOST_EDGES = 10
_SHORT = ("", " ", "\x00", "é", "a")
_FULL, _LEAN = 0.9, 0.1  # how likely a parameter is given that need not be


class Arguments:
    """Makes the arguments of calls; the same ones for the same numbers of chance.

    >>> schema = {"type": "object", "properties": {"days": {"type": "integer", "minimum": 1}}, "required": ["days"]}
    >>> Arguments(schema, random.Random(7)).fitting()["days"] >= 1
    True
    """

    def __init__(self, schema: Mapping[str, Any], chance: random.Random, examples: Sequence[Any] = ()) -> None:
        self._schema = schema
        self._chance = chance
        self._examples = examples

    def corners(self, most: int) -> list[Any]:
        """Give what is always worth a try: nothing, no object, everything, and each parameter at its edges."""
        made = [self._made(self._schema, optional=share) for share in (0, 1)]
        edges = self._edges(self._schema, 0)
        chosen = edges if len(edges) <= most else self._chance.sample(edges, most)
        return [{}, *made, *self._examples, "", "null", "[]", '"text"', "7", *chosen]

    def any(self) -> Any:
        """Give arguments that fit, or nearly do, as a dict; or a text that is no JSON object."""
        kind = self._chance.random()
        if kind < 0.5:  # noqa: PLR2004 - half of them fit
            return self.fitting()
        return self.unfitting() if kind < 0.85 else self.broken()  # noqa: PLR2004 - most others are JSON

    def fitting(self) -> Any:
        """Give arguments that the schema admits, as far as that is cheap to know; an example now and then."""
        if self._examples and self._chance.random() < 0.3:  # noqa: PLR2004 - examples reach deeper than chance does
            return json.loads(json.dumps(self._chance.choice(self._examples)))
        return self._made(self._schema, optional=self._chance.choice((_LEAN, 0.5, _FULL)))

    def unfitting(self) -> Any:
        """Give arguments that were changed in one to three places, so that they nearly fit."""
        value = self.fitting()
        for _ in range(self._chance.randint(1, 3)):
            value = self._changed(value)
        return value

    def broken(self) -> str:
        """Give a text that nearly is the JSON of arguments that fit."""
        text = json.dumps(self.fitting(), ensure_ascii=self._chance.random() < 0.5)  # noqa: PLR2004 - either will do
        at = self._chance.randint(0, len(text))
        piece = self._chance.choice(PIECES)
        return self._chance.choice(
            (
                text[:at],
                text[:at] + piece + text[at:],
                text[:at] + piece + text[at + len(piece) :],
                f"Here it is:\n```json\n{text}\n```",
                text.replace('"', "'"),
                text[:-1] + ",}",
                "[" * self._chance.choice((3, 500)) + text,
                json.dumps(text),
                text + text,
            )
        )

    def _made(self, schema: Any, depth: int = 0, *, optional: float = 0.5) -> Any:
        """Give a value that a schema admits."""
        schema = self._resolved(schema)
        if "const" in schema:
            return schema["const"]
        if schema.get("enum"):
            return self._chance.choice(list(schema["enum"]))
        if (said := [*schema.get("examples", ()), *([schema["default"]] if "default" in schema else ())]) and (
            self._chance.random() < 0.2  # noqa: PLR2004 - what the author thought of, now and then
        ):
            return self._chance.choice(said)
        for keyword in ("anyOf", "oneOf"):
            if branches := schema.get(keyword):
                rest = {key: each for key, each in schema.items() if key != keyword}
                return self._made(
                    _merged(rest, self._resolved(self._chance.choice(branches))), depth, optional=optional
                )
        makers: dict[str, Callable[[], Any]] = {
            "string": lambda: self._text(schema),
            "integer": lambda: self._integer(schema),
            "number": lambda: self._number(schema),
            "boolean": lambda: self._chance.random() < 0.5,  # noqa: PLR2004 - a coin
            "null": lambda: None,
            "array": lambda: self._list(schema, depth),
            "object": lambda: self._object(schema, depth, optional),
        }
        return makers.get(self._type(schema), lambda: self._chance.choice(ODD))()

    def _edges(self, schema: Any, depth: int) -> list[Any]:
        """Give the smallest, the largest and the oddest values that a schema admits, in each of its places."""
        schema = self._resolved(schema)
        if depth > _EDGED or "const" in schema:
            return []
        if "enum" in schema:
            return list(schema["enum"])[:_MOST_EDGES]
        if branches := [*schema.get("anyOf", ()), *schema.get("oneOf", ())]:
            return [edge for each in branches for edge in self._edges(each, depth)]
        kind = self._type(schema)
        if kind == "object":
            names = schema.get("properties", {}).items()
            found = [(name, edge) for name, each in names for edge in self._edges(each, depth + 1)]
            return [{**self._object(schema, _DEEPEST, 0), name: edge} for name, edge in found]
        if kind == "array":
            least = schema.get("minItems", 0)
            wide = [[edge] * max(1, least) for edge in self._edges(schema.get("items", {}), depth + 1)]
            return wide if least else [[], *wide]
        low, high = _bounds(schema)
        longest = schema.get("maxLength", _LONGEST)
        edges: dict[str, list[Any]] = {
            "string": [each for each in _SHORT if schema.get("minLength", 0) <= len(each) <= longest],
            "integer": [each for each in (low, high, 0, 1, -1) if math.isfinite(each) and low <= each <= high],
            "number": [each for each in (low, high, 0.0, -0.5) if math.isfinite(each) and low <= each <= high],
            "boolean": [True, False],
            "null": [None],
        }
        return edges.get(kind, [])

    def _resolved(self, schema: Any) -> dict[str, Any]:
        """Give a schema without references and parts of a whole at its top."""
        found = dict(schema) if isinstance(schema, Mapping) else {}
        for _ in range(_TRIES):
            if "$ref" in found:
                found = _merged({key: each for key, each in found.items() if key != "$ref"}, self._at(found["$ref"]))
            elif "allOf" in found:
                parts = found.pop("allOf")
                for part in parts:
                    found = _merged(found, part if isinstance(part, Mapping) else {})
            else:
                break
        return found

    def _at(self, reference: str) -> Mapping[str, Any]:
        found: Any = self._schema
        for key in reference.lstrip("#/").split("/") if reference != "#" else ():
            found = found.get(key.replace("~1", "/").replace("~0", "~"), {}) if isinstance(found, Mapping) else {}
        return found if isinstance(found, Mapping) else {}

    def _type(self, schema: Mapping[str, Any]) -> str:
        said = schema.get("type")
        if isinstance(said, (list, tuple)):
            return str(self._chance.choice(said))
        if said is None and ("properties" in schema or "required" in schema):
            return "object"
        return str(said)

    def _text(self, schema: Mapping[str, Any]) -> str:
        if schema.get("format") in FORMATS:
            return self._chance.choice(FORMATS[schema["format"]])
        least, most = schema.get("minLength", 0), min(schema.get("maxLength", _LONGEST), _LONGEST)
        text = self._plain_text()
        text = (text + "x" * least)[: max(most, 0)] if len(text) < least or len(text) > most else text
        pattern = schema.get("pattern")
        return text if pattern is None else self._patterned(pattern, text, least, most)

    def _plain_text(self) -> str:
        kind = self._chance.random()
        if kind < 0.4:  # noqa: PLR2004 - as many sensible ones as hostile ones
            return self._chance.choice(WORDS)
        if kind < 0.8:  # noqa: PLR2004 - as above
            return self._chance.choice(HOSTILE)
        signs = (self._chance.choice((0x20, 0x400, 0x1F600)) + self._chance.randrange(0x50) for _ in range(12))
        return "".join(map(chr, signs))[: self._chance.randint(1, 12)]

    def _patterned(self, pattern: str, text: str, least: int, most: int) -> str:
        """Give a text that a pattern admits, if one is at hand; else any."""
        try:
            fits = [each for each in (*PATTERNED, *WORDS) if re.search(pattern, each) and least <= len(each) <= most]
        except re.error:  # a dialect of its own
            fits = []
        return self._chance.choice(fits) if fits else text

    def _integer(self, schema: Mapping[str, Any]) -> int:
        low, high = _bounds(schema)
        step = schema.get("multipleOf", 1)
        edges = [each for each in (low, high, *INTEGERS) if math.isfinite(each) and low <= each <= high]
        picked = self._chance.choice(edges) if edges else 0
        near = int(picked) if self._chance.random() < 0.7 else self._between(low, high)  # noqa: PLR2004 - edges are worth more
        if not isinstance(step, int) or not near % step:
            return near
        return near - near % step + (step if near - near % step < low else 0)

    def _between(self, low: float, high: float) -> int:
        least = int(low) if math.isfinite(low) else (int(high) - 100 if math.isfinite(high) else -100)
        most = int(high) if math.isfinite(high) else least + 200
        return self._chance.randint(least, max(least, most))

    def _number(self, schema: Mapping[str, Any]) -> float:
        low, high = _bounds(schema)
        edges = [each for each in (low, high, *NUMBERS, *INTEGERS) if math.isfinite(each) and low <= each <= high]
        return self._chance.choice(edges) if edges else (low + high) / 2

    def _list(self, schema: Mapping[str, Any], depth: int) -> list[Any]:
        least = schema.get("minItems", 0)
        most = least if depth >= _DEEPEST else min(schema.get("maxItems", least + 3), least + 3)
        first = [self._made(each, depth + 1) for each in schema.get("prefixItems", ())]
        items = schema.get("items", {})
        if items is False:
            return first
        more = max(0, self._chance.randint(least, max(least, most)) - len(first))
        found = [*first, *(self._made(items, depth + 1) for _ in range(more))]
        return _distinct(found) if schema.get("uniqueItems") else found

    def _object(self, schema: Mapping[str, Any], depth: int, optional: float) -> dict[str, Any]:
        required = schema.get("required", ())
        found = {}
        for name, each in schema.get("properties", {}).items():
            if name in required or (depth < _DEEPEST and self._chance.random() < optional):
                found[name] = self._made(each, depth + 1, optional=optional)
        others = schema.get("additionalProperties")
        if isinstance(others, Mapping) and depth < _DEEPEST:
            for _ in range(self._chance.randint(0, 2)):
                found[self._plain_text()] = self._made(others, depth + 1)
        return found

    def _changed(self, value: Any) -> Any:
        """Give a value that differs in one place."""
        place = self._chance.choice(list(places(value)))
        old = at(value, place)
        changes: list[Callable[[], Any]] = [
            lambda: put(value, place, self._chance.choice(ODD)),
            lambda: put(value, place, self._plain_text()),
            lambda: put(value, place, json.dumps(old)),
            lambda: put(value, place, [old]),
            lambda: put(value, place, _wrapped(old)),
            *[lambda: put(value, place, self._beyond(old))] * 3,
        ]
        if place and isinstance(place[-1], str):
            changes += [lambda: without(value, place), lambda: self._renamed(value, place, old)] * 2
        if isinstance(old, dict):
            extra = self._chance.choice(("extra", "", "__class__", "input", "$ref", "\u202e"))
            changes.append(lambda: put(value, (*place, extra), self._chance.choice(ODD)))
        return self._chance.choice(changes)()

    def _renamed(self, value: Any, place: Place, old: Any) -> Any:
        name = place[-1]
        other = self._chance.choice((name.upper(), f"{name}s", name[:-1], f" {name}"))
        return put(without(value, place), (*place[:-1], other), old)

    def _beyond(self, old: Any) -> Any:
        if isinstance(old, str):
            return self._chance.choice((old * 50, old[: len(old) // 2], self._spliced(old), self._spliced(old)))
        if isinstance(old, (int, float)):
            return self._chance.choice((-old, old + 1, old - 1, *INTEGERS, *NUMBERS))
        return old * 30 if isinstance(old, list) else self._chance.choice(ODD)

    def _spliced(self, text: str) -> str:
        """Give a text with something else in some place of it: a part of itself, a sign, or another text."""
        start, end = sorted(self._chance.randint(0, len(text)) for _ in range(2))
        new = self._chance.choice((text[start:end] * 2, self._chance.choice("+-*/(){}[]^$.,:;@#%&|!?<>=~ 0"), ""))
        return text[:start] + (new or self._chance.choice(HOSTILE)) + text[end:]


def _merged(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    both = {**one, **other}
    if "properties" in one and "properties" in other:
        both["properties"] = {**one["properties"], **other["properties"]}
    if "required" in one and "required" in other:
        both["required"] = [*one["required"], *other["required"]]
    return both


def _bounds(schema: Mapping[str, Any]) -> tuple[float, float]:
    low, high = schema.get("minimum", -math.inf), schema.get("maximum", math.inf)
    whole = schema.get("type") == "integer"
    if (above := schema.get("exclusiveMinimum")) is not None:
        low = max(low, above + 1 if whole else math.nextafter(above, math.inf))
    if (below := schema.get("exclusiveMaximum")) is not None:
        high = min(high, below - 1 if whole else math.nextafter(below, -math.inf))
    return low, high


def _distinct(items: list[Any]) -> list[Any]:
    return list({json.dumps(each, sort_keys=True): each for each in items}.values())


def _wrapped(value: Any) -> Any:
    for _ in range(_NESTED):
        value = [value]
    return value
