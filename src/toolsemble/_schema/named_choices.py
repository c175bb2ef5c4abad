"""Name the members of an enumeration in the problems of its values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from toolsemble._schema.phrases import find_member_names, format_choices, format_value
from toolsemble._schema.pointer import resolve_schema
from toolsemble._schema.problem import Path, Problem

_START = "expected one of "
_MOST_NAMES = 100


def name_choices(schema: Mapping[str, Any], problems: Sequence[Problem]) -> list[Problem]:
    """Return problems in which the values of an enumeration have the names of its members, if the schema has them.

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
    """Return the schema of the value at a path; empty if there is none, or if it is not clear which."""
    schema: Any = resolve_schema(root, root)
    for part in path:
        inside = schema.get("items") if isinstance(part, int) else schema.get("properties", {}).get(part)
        if not isinstance(inside, Mapping):
            return {}
        schema = resolve_schema(root, inside)
    return schema  # type: ignore[no-any-return]  # a schema is a mapping
