"""Generated values for a schema: random ones, and edge cases."""

from __future__ import annotations

import json
import math
import random
import re
from collections.abc import Callable, Mapping
from typing import Any

from toolsemble._schema.problem import find_ref_target
from toolsemble.testing._samples import FORMATS, HOSTILE, INTEGERS, NUMBERS, ODD, PATTERNED, WORDS

_MAX_DEPTH = 5  # maximum depth of values of recursive schemas
_MAX_LENGTH = 20_000
_TRIES = 30
_EDGE_DEPTH = 3  # maximum depth of edge cases
_MAX_EDGES = 10
_SHORT = ("", " ", "\x00", "é", "a")
_GIVEN = 0.2  # probability of a value that the schema has as an example or a default
_HALF = 0.5
_EDGE = 0.7  # probability that an integer is at a limit
_ORIGINS = (2, 2, 1)  # weights of words, hostile texts and random characters


class Values:
    """A generator of values for a schema; the same random numbers yield the same values.

    >>> schema = {"type": "integer", "minimum": 1, "maximum": 9}
    >>> Values(schema, random.Random(7)).edges(schema, 0)
    [1, 9, 1]
    """

    def __init__(self, schema: Mapping[str, Any], rng: random.Random) -> None:
        self._schema = schema  # the whole schema, for references
        self._rng = rng

    def generate(self, schema: Any, depth: int = 0, *, optional: float = 0.5) -> Any:
        """Return a valid value of a schema."""
        schema = self._resolve(schema)
        if "const" in schema:
            return schema["const"]
        if schema.get("enum"):
            return self._rng.choice(list(schema["enum"]))
        given = [*schema.get("examples", ()), *([schema["default"]] if "default" in schema else ())]
        if given and self._rng.random() < _GIVEN:
            return self._rng.choice(given)
        for keyword in ("anyOf", "oneOf"):
            if branches := schema.get(keyword):
                rest = {key: each for key, each in schema.items() if key != keyword}
                branch = _merge(rest, self._resolve(self._rng.choice(branches)))
                return self.generate(branch, depth, optional=optional)
        generators: dict[str, Callable[[], Any]] = {
            "string": lambda: self._generate_text(schema),
            "integer": lambda: self._generate_integer(schema),
            "number": lambda: self._generate_number(schema),
            "boolean": lambda: self._rng.random() < _HALF,
            "null": lambda: None,
            "array": lambda: self._generate_list(schema, depth),
            "object": lambda: self._generate_object(schema, depth, optional),
        }
        return generators.get(self._choose_type(schema), lambda: self._rng.choice(ODD))()

    def edges(self, schema: Any, depth: int) -> list[Any]:
        """Return the smallest, the largest and unusual valid values of a schema, also of nested ones."""
        schema = self._resolve(schema)
        if depth > _EDGE_DEPTH or "const" in schema:
            return []
        if "enum" in schema:
            return list(schema["enum"])[:_MAX_EDGES]
        if branches := [*schema.get("anyOf", ()), *schema.get("oneOf", ())]:
            return [edge for each in branches for edge in self.edges(each, depth)]
        kind = self._choose_type(schema)
        if kind == "object":
            names = schema.get("properties", {}).items()
            found = [(name, edge) for name, each in names for edge in self.edges(each, depth + 1)]
            return [{**self._generate_object(schema, _MAX_DEPTH, 0), name: edge} for name, edge in found]
        if kind == "array":
            least = schema.get("minItems", 0)
            wide = [[edge] * max(1, least) for edge in self.edges(schema.get("items", {}), depth + 1)]
            return wide if least else [[], *wide]
        low, high = _read_bounds(schema)
        longest = schema.get("maxLength", _MAX_LENGTH)
        edges: dict[str, list[Any]] = {
            "string": [each for each in _SHORT if schema.get("minLength", 0) <= len(each) <= longest],
            "integer": [each for each in (low, high, 0, 1, -1) if math.isfinite(each) and low <= each <= high],
            "number": [each for each in (low, high, 0.0, -0.5) if math.isfinite(each) and low <= each <= high],
            "boolean": [True, False],
            "null": [None],
        }
        return edges.get(kind, [])

    def _resolve(self, schema: Any) -> dict[str, Any]:
        """Return a schema with ``$ref`` and ``allOf`` resolved at its top level."""
        found = dict(schema) if isinstance(schema, Mapping) else {}
        for _ in range(_TRIES):
            if "$ref" in found:
                found = _merge(found, find_ref_target(self._schema, found.pop("$ref")))
            elif "allOf" in found:
                parts = found.pop("allOf")
                for part in parts:
                    found = _merge(found, part if isinstance(part, Mapping) else {})
            else:
                break
        return found

    def _choose_type(self, schema: Mapping[str, Any]) -> str:
        said = schema.get("type")
        if isinstance(said, (list, tuple)):
            return str(self._rng.choice(said))
        if said is None and ("properties" in schema or "required" in schema):
            return "object"
        return str(said)

    def _generate_text(self, schema: Mapping[str, Any]) -> str:
        if schema.get("format") in FORMATS:
            return self._rng.choice(FORMATS[schema["format"]])
        least, most = schema.get("minLength", 0), min(schema.get("maxLength", _MAX_LENGTH), _MAX_LENGTH)
        text = self.generate_text()
        text = (text + "x" * least)[: max(most, 0)] if len(text) < least or len(text) > most else text
        pattern = schema.get("pattern")
        return text if pattern is None else self._match_pattern(pattern, text, least, most)

    def generate_text(self) -> str:
        """Return a text without constraints."""
        texts = self._rng.choices((WORDS, HOSTILE, ()), _ORIGINS)[0]
        if texts:
            return self._rng.choice(texts)
        signs = (self._rng.choice((0x20, 0x400, 0x1F600)) + self._rng.randrange(0x50) for _ in range(12))
        return "".join(map(chr, signs))[: self._rng.randint(1, 12)]

    def _match_pattern(self, pattern: str, text: str, least: int, most: int) -> str:
        """Return a sample text that matches a pattern, or the given one if there is none."""
        try:
            fits = [each for each in (*PATTERNED, *WORDS) if re.search(pattern, each) and least <= len(each) <= most]
        except re.error:  # another regex dialect
            fits = []
        return self._rng.choice(fits) if fits else text

    def _generate_integer(self, schema: Mapping[str, Any]) -> int:
        low, high = _read_bounds(schema)
        step = schema.get("multipleOf", 1)
        edges = [each for each in (low, high, *INTEGERS) if math.isfinite(each) and low <= each <= high]
        picked = self._rng.choice(edges) if edges else 0
        near = int(picked) if self._rng.random() < _EDGE else self._random_between(low, high)
        if not isinstance(step, int) or not near % step:
            return near
        return near - near % step + (step if near - near % step < low else 0)

    def _random_between(self, low: float, high: float) -> int:
        least = int(low) if math.isfinite(low) else (int(high) - 100 if math.isfinite(high) else -100)
        most = int(high) if math.isfinite(high) else least + 200
        return self._rng.randint(least, max(least, most))

    def _generate_number(self, schema: Mapping[str, Any]) -> float:
        low, high = _read_bounds(schema)
        edges = [each for each in (low, high, *NUMBERS, *INTEGERS) if math.isfinite(each) and low <= each <= high]
        return self._rng.choice(edges) if edges else (low + high) / 2

    def _generate_list(self, schema: Mapping[str, Any], depth: int) -> list[Any]:
        least = schema.get("minItems", 0)
        most = least if depth >= _MAX_DEPTH else min(schema.get("maxItems", least + 3), least + 3)
        first = [self.generate(each, depth + 1) for each in schema.get("prefixItems", ())]
        items = schema.get("items", {})
        if items is False:
            return first
        more = max(0, self._rng.randint(least, max(least, most)) - len(first))
        found = [*first, *(self.generate(items, depth + 1) for _ in range(more))]
        if schema.get("uniqueItems"):
            return list({json.dumps(each, sort_keys=True): each for each in found}.values())
        return found

    def _generate_object(self, schema: Mapping[str, Any], depth: int, optional: float) -> dict[str, Any]:
        required = schema.get("required", ())
        found = {}
        for name, each in schema.get("properties", {}).items():
            if name in required or (depth < _MAX_DEPTH and self._rng.random() < optional):
                found[name] = self.generate(each, depth + 1, optional=optional)
        others = schema.get("additionalProperties")
        if isinstance(others, Mapping) and depth < _MAX_DEPTH:
            for _ in range(self._rng.randint(0, 2)):
                found[self.generate_text()] = self.generate(others, depth + 1)
        return found


def _merge(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    both = {**one, **other}
    if "properties" in one and "properties" in other:
        both["properties"] = {**one["properties"], **other["properties"]}
    if "required" in one and "required" in other:
        both["required"] = [*one["required"], *other["required"]]
    return both


def _read_bounds(schema: Mapping[str, Any]) -> tuple[float, float]:
    low, high = schema.get("minimum", -math.inf), schema.get("maximum", math.inf)
    whole = schema.get("type") == "integer"
    if (above := schema.get("exclusiveMinimum")) is not None:
        low = max(low, above + 1 if whole else math.nextafter(above, math.inf))
    if (below := schema.get("exclusiveMaximum")) is not None:
        high = min(high, below - 1 if whole else math.nextafter(below, -math.inf))
    return low, high
