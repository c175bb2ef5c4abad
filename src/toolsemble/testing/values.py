"""Values from a schema: such as it admits, by chance and at its edges."""

from __future__ import annotations

import json
import math
import random
import re
from collections.abc import Callable, Mapping
from typing import Any

from toolsemble.testing.samples import FORMATS, HOSTILE, INTEGERS, NUMBERS, ODD, PATTERNED, WORDS

_DEEPEST = 5  # how deep values are made where a schema would let them be endless
_LONGEST = 20_000
_TRIES = 30
_EDGED = 3  # how deep the edges are looked for
_MOST_EDGES = 10
_SHORT = ("", " ", "\x00", "é", "a")


class Values:
    """Makes values of a schema and of its parts; the same ones for the same numbers of chance.

    >>> schema = {"type": "integer", "minimum": 1, "maximum": 9}
    >>> Values(schema, random.Random(7)).edges(schema, 0)
    [1, 9, 1]
    """

    def __init__(self, schema: Mapping[str, Any], chance: random.Random) -> None:
        self._schema = schema  # the whole, in which references are looked up
        self._chance = chance

    def made(self, schema: Any, depth: int = 0, *, optional: float = 0.5) -> Any:
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
                return self.made(_merged(rest, self._resolved(self._chance.choice(branches))), depth, optional=optional)
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

    def edges(self, schema: Any, depth: int) -> list[Any]:
        """Give the smallest, the largest and the oddest values that a schema admits, in each of its places."""
        schema = self._resolved(schema)
        if depth > _EDGED or "const" in schema:
            return []
        if "enum" in schema:
            return list(schema["enum"])[:_MOST_EDGES]
        if branches := [*schema.get("anyOf", ()), *schema.get("oneOf", ())]:
            return [edge for each in branches for edge in self.edges(each, depth)]
        kind = self._type(schema)
        if kind == "object":
            names = schema.get("properties", {}).items()
            found = [(name, edge) for name, each in names for edge in self.edges(each, depth + 1)]
            return [{**self._object(schema, _DEEPEST, 0), name: edge} for name, edge in found]
        if kind == "array":
            least = schema.get("minItems", 0)
            wide = [[edge] * max(1, least) for edge in self.edges(schema.get("items", {}), depth + 1)]
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
        text = self.plain_text()
        text = (text + "x" * least)[: max(most, 0)] if len(text) < least or len(text) > most else text
        pattern = schema.get("pattern")
        return text if pattern is None else self._patterned(pattern, text, least, most)

    def plain_text(self) -> str:
        """Give a text that no schema asked for."""
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
        first = [self.made(each, depth + 1) for each in schema.get("prefixItems", ())]
        items = schema.get("items", {})
        if items is False:
            return first
        more = max(0, self._chance.randint(least, max(least, most)) - len(first))
        found = [*first, *(self.made(items, depth + 1) for _ in range(more))]
        return _distinct(found) if schema.get("uniqueItems") else found

    def _object(self, schema: Mapping[str, Any], depth: int, optional: float) -> dict[str, Any]:
        required = schema.get("required", ())
        found = {}
        for name, each in schema.get("properties", {}).items():
            if name in required or (depth < _DEEPEST and self._chance.random() < optional):
                found[name] = self.made(each, depth + 1, optional=optional)
        others = schema.get("additionalProperties")
        if isinstance(others, Mapping) and depth < _DEEPEST:
            for _ in range(self._chance.randint(0, 2)):
                found[self.plain_text()] = self.made(others, depth + 1)
        return found


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
