"""Find the option of a union that a value belongs to."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from toolsemble._ui.form_schema import Node, constants, find_kind, fits_kind, is_same, list_properties, resolve


class OptionFinder:
    """A finder of options: the one that a value is valid for, or else the one that is most like it.

    >>> finder = OptionFinder({})
    >>> card, bank = (Node({"properties": {"kind": {"const": each}}}, "#") for each in ("card", "bank"))
    >>> finder.find([card, bank], {"kind": "bank", "iban": "?"})
    1
    """

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._checks: dict[str, Callable[[Any], bool]] = {}

    def find(self, options: Sequence[Node], value: Any) -> int | None:
        """Return the index of an option; None if the value is of another type than all of them."""
        likely = [index for index, each in enumerate(options) if fits_kind(each, find_kind(each), value)]
        # The first of those that are equally like it.
        return max(likely, key=lambda index: self._compare(options[index], value), default=None)

    def matches(self, pattern: str, name: str) -> bool:
        """Return whether a key matches a pattern of ``patternProperties``."""
        return self._check({"pattern": pattern}, f"pattern {pattern}")(name)

    def _is_valid(self, option: Node, value: Any) -> bool:
        return self._check(option.schema, option.place)(value)

    def _check(self, schema: Mapping[str, Any], key: str) -> Callable[[Any], bool]:
        found = self._checks.get(key)
        if found is None:
            found = self._checks[key] = _make_check({**_definitions(self._root), **schema})
        return found

    def _compare(self, option: Node, value: Any) -> tuple[int, ...]:
        """Return how much a value is like an option: whether it is valid, by its constants, and by its keys."""
        is_valid = self._is_valid(option, value)
        if not isinstance(value, dict):
            return (int(is_valid),)
        properties = list_properties(option.schema)
        resolved = {name: resolve(self._root, properties[name], "").schema for name in properties.keys() & value.keys()}
        equal = sum(
            1 if any(is_same(each, value[name]) for each in constants(schema)) else -1
            for name, schema in resolved.items()
            if constants(schema)
        )
        others = len(value.keys() - properties.keys())
        # A schema that admits all keys is valid for nearly everything.
        return int(is_valid and not others), equal, len(resolved), -others, int(is_valid)


def _definitions(root: Mapping[str, Any]) -> dict[str, Any]:
    return {name: root[name] for name in ("$defs", "definitions") if name in root}


def _make_check(schema: dict[str, Any]) -> Callable[[Any], bool]:
    """Return a function that says whether a value is valid; nothing is, for a schema that cannot be compiled."""
    import jsonschema_rs

    try:
        return jsonschema_rs.validator_for(schema, offline=True, pattern_options=jsonschema_rs.RegexOptions()).is_valid
    except ValueError:  # a reference or a pattern that does not work here
        return lambda _: False
