"""Estimate from a schema how much work validating a value can cause.

A validator tries every option of a choice, and validates the content once per option. Nested choices multiply this:
twenty levels of two options are a million paths, and native code cannot be interrupted while it follows them.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from toolsemble._schema.argument_problems import find_ref_target

MOST_PATHS = 5000
"""The maximum number of paths; a schema with more is rejected when it is defined."""

_MOST_WORK = 50_000_000
_MOST_LEVELS = 256
_MOST_STEPS = 2_000_000
_FEWEST_LEVELS = 3
_BRANCHING = ("anyOf", "oneOf", "allOf", "$ref", "if", "not", "dependentSchemas", "dependencies", "patternProperties",
              "contains", "propertyNames", "unevaluatedProperties", "unevaluatedItems")  # fmt: skip
_ANY_KEY = ("key",)
_ANY_ITEM = ("item",)

Key: TypeAlias = Any
"""A key of an object, an index of an array, or a wildcard for all others."""


class TooMuchWorkError(ValueError):
    """A schema is too large to be checked; the message has the path."""


@dataclass(frozen=True, slots=True)
class Work:
    """The number of paths through a schema, by the depth of the value."""

    paths: tuple[int, ...]
    """The paths for values of depth 0, 1, and so on; deeper values have as many as the last."""
    deepest: int | None = None
    """The maximum depth of a value, if each level multiplies the paths; None: no limit."""

    @property
    def at_most(self) -> int:
        """The number of characters up to which a value needs no check of its depth."""
        if self.deepest is not None:
            return 0
        return sys.maxsize if self.paths[-1] == 1 else _MOST_WORK // self.paths[-1]

    def estimate(self, value: Any, length: int) -> int:
        """Return the work that a value with JSON text of this length can cause.

        >>> Work((1, 2)).estimate({"a": []}, 9)
        18
        """
        return self.paths[min(measure_depth(value), len(self.paths) - 1)] * length

    def admits(self, value: Any, length: int) -> bool:
        """Return whether a value is neither too deep nor too large to be checked.

        >>> Work((1, 2, 4), deepest=2).admits([[[]]], 6)
        False
        """
        if length <= self.at_most:
            return True
        deep = self.deepest is not None and measure_depth(value) > self.deepest
        return not deep and self.estimate(value, length) <= _MOST_WORK


LINEAR = Work((1,))
"""The work of most schemas: each part of a value is checked once."""


def measure_depth(value: Any) -> int:
    """Return the nesting depth of objects and arrays in a value.

    >>> measure_depth({"a": [1, [2]]}), measure_depth(5)
    (3, 0)
    """
    depth, level = 0, [value]
    while level := [each for each in level if isinstance(each, (dict, list))]:
        depth += 1
        level = [inner for each in level for inner in (each.values() if isinstance(each, dict) else each)]
    return depth


def count_values(value: Any) -> int:
    """Return the number of values in a value, including itself.

    >>> count_values({"a": [1, 2]})
    4
    """
    count, level = 0, [value]
    while level:
        count += len(level)
        inside = (each.values() if isinstance(each, dict) else each for each in level if isinstance(each, (dict, list)))
        level = [inner for each in inside for inner in each]
    return count


def measure_work(schema: Mapping[str, Any], text: str | None = None) -> Work:
    """Return the work that a schema can cause; raise :class:`TooMuchWorkError` if it is too much.

    :param text: the schema as JSON text, if known; most schemas have no keyword that multiplies work

    >>> option = {"type": "object", "properties": {"next": {"$ref": "#"}}}
    >>> measure_work({"anyOf": [option, option]}).deepest
    10
    """
    if text is not None and not any(f'"{word}"' in text for word in _BRANCHING):
        return LINEAR
    return _Counter(schema).work()


def measure_type_work(schema: Mapping[str, Any]) -> Work:
    """Return the work that the schema of declared types can cause; no type is rejected: the author controls them.

    >>> measure_type_work({"anyOf": [{"$ref": "#"}, {"$ref": "#"}]}) is LINEAR
    True
    """
    try:
        return measure_work(schema)
    except TooMuchWorkError:
        return LINEAR


class _Node:
    """One schema: the schemas it applies to the same value, and to parts of it."""

    __slots__ = ("children", "choices", "parts", "path")

    def __init__(self, path: str) -> None:
        self.path = path
        self.parts: list[int] = []  # all apply to the same value
        self.choices: list[list[int]] = []  # one schema of each list applies to the same value
        self.children: dict[Key, list[int]] = {}

    def is_alias(self) -> bool:
        return len(self.parts) == 1 and not self.choices and not self.children


class _Counter:
    """A counter of the paths through one schema."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._nodes: list[_Node] = []
        self._known: dict[int, int] = {}
        self._waiting: list[tuple[int, Mapping[str, Any]]] = []  # keeps all schemas alive, so that ids stay unique
        self._steps = 0
        self._index(root, "$")
        for number, schema in self._waiting:  # grows during the loop
            self._read(self._nodes[number], schema)
        self._order = self._sort_inner_first()

    def work(self) -> Work:
        """Return the paths for each depth, up to the depth where they stop growing."""
        here = self._count_in_place()
        found, now = [here[0]], here
        while len(found) < _MOST_LEVELS:
            deeper = self._count_deeper(here, now)
            if deeper == now:
                break
            now = deeper
            found.append(now[0])
        deepest = next((depth for depth, paths in enumerate(found) if paths > MOST_PATHS), None)
        if deepest is None:
            return Work(tuple(found))
        if len(found) < _MOST_LEVELS or deepest <= _FEWEST_LEVELS:
            raise self._make_error(now)
        return Work(tuple(found[:deepest]), deepest - 1)

    def _make_error(self, paths: list[int]) -> TooMuchWorkError:
        worst = min((each, number) for number, each in enumerate(paths) if each > MOST_PATHS)[1]
        return TooMuchWorkError(
            f"{self._nodes[worst].path}: its choices multiply to more than {MOST_PATHS} ways to check a value; use "
            "fewer options in anyOf, oneOf and allOf, or tell them apart by a required property with a const"
        )

    def _index(self, schema: Any, path: str) -> int:
        """Return the index of a schema; true and false also have one."""
        known = self._known.get(id(schema)) if isinstance(schema, Mapping) else None
        if known is not None:
            return known
        self._nodes.append(_Node(path))
        number = len(self._nodes) - 1
        if isinstance(schema, Mapping):
            self._known[id(schema)] = number
            self._waiting.append((number, schema))
        return number

    def _read(self, node: _Node, schema: Mapping[str, Any]) -> None:
        if isinstance(ref := schema.get("$ref"), str):
            node.parts.append(self._index(find_ref_target(self._root, ref), ref.replace("#", "$", 1).replace("/", ".")))
        options = [*self._index_keyword(schema, "anyOf", node.path), *self._index_keyword(schema, "oneOf", node.path)]
        if "discriminator" in schema:  # written by pydantic, which validates by it
            node.choices.append(options)
        else:
            node.parts += options
        for keyword in ("not", "if", "dependentSchemas", "dependencies"):
            node.parts += self._index_keyword(schema, keyword, node.path)
        if _is_exclusive(conditions := schema.get("allOf", ())):
            node.parts += [self._index(each["if"], f"{node.path}.allOf") for each in conditions]
            node.choices.append([self._index(each["then"], f"{node.path}.allOf") for each in conditions])
        else:
            node.parts += self._index_keyword(schema, "allOf", node.path)
        branches = [self._index_keyword(schema, word, node.path) for word in ("then", "else")]
        node.choices.append([number for each in branches for number in each])
        node.choices = [each for each in node.choices if each]
        self._read_keys(node, schema)
        self._read_items(node, schema)

    def _index_keyword(self, schema: Mapping[str, Any], keyword: str, path: str) -> list[int]:
        """Return the indices of the schemas under a keyword, which may be one schema, a list or a mapping."""
        value = schema.get(keyword)
        if isinstance(value, Mapping) and keyword in _NAMED:
            return [self._index(each, f"{path}.{keyword}") for each in value.values() if isinstance(each, Mapping)]
        if isinstance(value, list):
            return [self._index(each, f"{path}.{keyword}[{place}]") for place, each in enumerate(value)]
        return [self._index(value, f"{path}.{keyword}")] if isinstance(value, Mapping) else []

    def _read_keys(self, node: _Node, schema: Mapping[str, Any]) -> None:
        patterns = self._index_keyword(schema, "patternProperties", node.path)  # any key may match
        properties = schema.get("properties", {})
        self._spend(len(properties) * len(patterns))
        for name, each in properties.items():
            node.children[name] = [self._index(each, f"{node.path}.{name}"), *patterns]
        others = [*patterns, *self._index_keyword(schema, "additionalProperties", node.path)]
        others += self._index_keyword(schema, "unevaluatedProperties", node.path)
        others += self._index_keyword(schema, "propertyNames", node.path)
        node.children |= {_ANY_KEY: others} if others else {}

    def _read_items(self, node: _Node, schema: Mapping[str, Any]) -> None:
        rest = schema.get("items")
        old = isinstance(rest, list)  # older drafts
        each = self._index_keyword(schema, "contains", node.path)
        first = self._index_keyword(schema, "items" if old else "prefixItems", node.path)
        others = [*each, *self._index_keyword(schema, "additionalItems" if old else "items", node.path)]
        others += self._index_keyword(schema, "unevaluatedItems", node.path)
        node.children |= {place: [number, *each] for place, number in enumerate(first)}
        node.children |= {_ANY_ITEM: others} if others else {}

    def _sort_inner_first(self) -> list[int]:
        """Return the indices of all schemas; a schema comes after the schemas that it applies to the same value."""
        order: list[int] = []
        state = [0] * len(self._nodes)  # 0: new, 1: open, 2: done
        for start in range(len(self._nodes)):
            waiting = [start]
            while waiting:
                number = waiting[-1]
                if state[number] == 0:
                    state[number] = 1
                    inner = self._find_applied(number)
                    if (cyclic := next((each for each in inner if state[each] == 1), None)) is not None:
                        self._check_cycle([each for each in waiting if state[each] == 1], cyclic)
                    waiting += [each for each in inner if state[each] == 0]
                else:
                    waiting.pop()
                    order += [number] if state[number] == 1 else []
                    state[number] = 2
        return order

    def _check_cycle(self, around: list[int], start: int) -> None:
        """Reject a schema that applies itself to the same value; a plain reference to itself accepts anything."""
        circle = around[around.index(start) :]
        if not all(self._nodes[each].is_alias() for each in circle):
            raise TooMuchWorkError(f"{self._nodes[start].path}: it refers to itself for the same value")
        self._nodes[circle[-1]].parts.clear()

    def _find_applied(self, number: int) -> list[int]:
        node = self._nodes[number]
        return [*node.parts, *(each for choice in node.choices for each in choice)]

    def _count_in_place(self) -> list[int]:
        """Return how many schemas each schema applies to one value, including itself."""
        counts = [1] * len(self._nodes)
        for number in self._order:
            node = self._nodes[number]
            counts[number] += sum(counts[each] for each in node.parts)
            counts[number] += sum(max(counts[each] for each in choice) for choice in node.choices)
        return counts

    def _count_deeper(self, here: list[int], inside: list[int]) -> list[int]:
        """Return the paths of values one level deeper than the values counted in ``inside``."""
        self._spend(len(self._nodes))
        maps: list[dict[Key, int]] = [{}] * len(self._nodes)
        most = list(here)
        for number in self._order:
            node = self._nodes[number]
            if node.is_alias():
                maps[number], most[number] = maps[node.parts[0]], max(here[number], most[node.parts[0]])
                continue
            own = {key: sum(inside[each] for each in children) for key, children in node.children.items()}
            chosen = [_max_counts([maps[each] for each in choice]) for choice in node.choices]
            maps[number] = _add_counts([own, *(maps[each] for each in node.parts), *chosen])
            self._spend(len(maps[number]))
            most[number] = max(here[number], *maps[number].values(), 0)
        return most

    def _spend(self, steps: int) -> None:
        self._steps += steps
        if self._steps > _MOST_STEPS:
            raise TooMuchWorkError("$: too many nested schemas; use fewer")


_NAMED = {"dependentSchemas", "dependencies", "patternProperties"}


def _add_counts(maps: list[dict[Key, int]]) -> dict[Key, int]:
    """Return the sum of several maps; a map's wildcard count is used for missing keys."""
    if len(filled := [each for each in maps if each]) == 1:
        return filled[0]
    total: dict[Key, int] = {}
    for each in filled:
        for key, count in each.items():
            total[key] = total.get(key, 0) + count - _wildcard_count(each, key)
    return {key: count + _wildcard_count(total, key) for key, count in total.items()}


def _max_counts(maps: list[dict[Key, int]]) -> dict[Key, int]:
    """Return the maximum of several maps for each key; wildcard counts apply to all keys."""
    most: dict[Key, int] = {}
    for each in maps:
        for key, count in each.items():
            most[key] = max(most.get(key, 0), count)
    return {key: max(count, _wildcard_count(most, key)) for key, count in most.items()}


def _wildcard_count(counts: dict[Key, int], key: Key) -> int:
    """Return the wildcard count that applies to a key or an index; 0 for a wildcard itself."""
    return counts.get(_ANY_KEY if isinstance(key, str) else _ANY_ITEM if isinstance(key, int) else None, 0)


def _is_exclusive(options: Any) -> bool:
    """Return whether only one of several conditions can hold: they require different constants of one property."""
    if not isinstance(options, list) or len(options) < 2:  # noqa: PLR2004 - a single condition excludes nothing
        return False
    constants = [found for each in options if (found := _condition(each))]
    return len({name for name, _ in constants}) == 1 and len(set(constants)) == len(options)


def _condition(option: Any) -> tuple[str, str] | None:
    """Return the property and the constant that a condition requires; None for any other condition."""
    if not isinstance(option, Mapping) or option.keys() != {"if", "then"} or not isinstance(option["if"], Mapping):
        return None
    properties, required = option["if"].get("properties"), option["if"].get("required")
    if not isinstance(properties, Mapping) or len(properties) != 1 or required != list(properties):
        return None
    name, constant = next(iter(properties.items()))
    if not isinstance(constant, Mapping) or constant.keys() != {"const"} or not isinstance(constant["const"], str):
        return None
    return name, constant["const"]
