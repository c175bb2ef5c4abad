"""Compare two versions of a JSON Schema, and say which changes break callers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from toolsemble._runtime.signing import canonical_json
from toolsemble.catalog._lock.canonical import LISTED, NAMED, SINGLE

Effect: TypeAlias = Literal["compatible", "breaking", "weaker"]
"""What a change means for those who use the tool."""

_TEXTS = {"$comment", "$id", "$schema", "default", "deprecated", "description", "examples", "title"}
_LOWER = {"exclusiveMinimum", "minContains", "minItems", "minLength", "minProperties", "minimum"}
_UPPER = {"exclusiveMaximum", "maxContains", "maxItems", "maxLength", "maxProperties", "maximum"}
_MISSING = object()


@dataclass(frozen=True, slots=True)
class Difference:
    """A difference between two versions of a schema, or of another part of a tool."""

    place: str
    """Where it is, such as ``input.path.type``."""
    effect: Effect
    """What it means."""
    before: Any
    """The old value; None if there was none."""
    after: Any
    """The new value; None if there is none."""
    summary: str = ""
    """The change in words; "" to show both values."""


def compare_schemas(place: str, before: Any, after: Any, *, output: bool = False) -> Iterator[Difference]:
    """Yield the differences between two versions of a schema.

    A change is breaking if a value that was valid before may not be valid now; for the schema of results, if a result
    that is valid now may not have been valid before.

    :param place: where the schema is
    :param output: whether it is the schema of results

    >>> [each.summary for each in compare_schemas("input", {"required": []}, {"required": ["a"]})]
    ["'a' is required now"]
    """
    if not isinstance(before, Mapping) or not isinstance(after, Mapping):
        yield from _compare_whole(place, before, after, output=output)
        return
    for key in sorted({*before, *after}):
        old, new = before.get(key, _MISSING), after.get(key, _MISSING)
        if not _is_equal(old, new):
            yield from _compare_keyword(place, key, old, new, output=output)


def _compare_whole(place: str, before: Any, after: Any, *, output: bool) -> Iterator[Difference]:
    """Compare schemas of which at least one is True, False or missing; True and a missing one accept everything."""
    if not _is_equal(before, after):
        first, second = (after, before) if output else (before, after)
        yield _make_difference(place, before, after, first is False or second is True or second is _MISSING)


def _compare_keyword(place: str, key: str, old: Any, new: Any, *, output: bool) -> Iterator[Difference]:
    inside = f"{place}.{key}"
    if key in _TEXTS:
        yield Difference(inside, "compatible", _show(old), _show(new))
    elif key == "properties" and _are_objects(old, new):
        yield from _compare_properties(place, _as_object(old), _as_object(new), output=output)
    elif key == "required" and _are_names(old, new):
        yield from _compare_required(place, _as_list(old), _as_list(new), output=output)
    elif key in NAMED and _are_objects(old, new):
        yield from _compare_named(inside, _as_object(old), _as_object(new), output=output)
    elif key in SINGLE - {"if", "not"} and not isinstance(old, list) and not isinstance(new, list):
        yield from compare_schemas(inside, old, new, output=output)
    elif key in LISTED and (pair := _find_changed(old, new)):
        yield from compare_schemas(inside, *pair, output=output)
    else:
        first, second = (new, old) if output else (old, new)
        yield _make_difference(inside, old, new, _accepts_more(key, first, second))


def _find_changed(old: Any, new: Any) -> tuple[Any, Any] | None:
    """Return the one schema of a list that differs, in both versions; None if there are more, or fewer."""
    if not isinstance(old, list) or not isinstance(new, list) or len(old) != len(new):
        return None
    known = _values(old), _values(new)
    gone = [each for each in old if canonical_json(each) not in known[1]]
    added = [each for each in new if canonical_json(each) not in known[0]]
    return (gone[0], added[0]) if len(gone) == len(added) == 1 else None


def _compare_properties(
    place: str, before: Mapping[str, Any], after: Mapping[str, Any], *, output: bool
) -> Iterator[Difference]:
    """Compare the properties of objects: one that is gone breaks callers; one that is new does so if it is required."""
    for name in sorted({*before, *after}):
        if name not in after:
            yield Difference(f"{place}.{name}", "breaking", before[name], None, f"{name!r} was removed")
        elif name not in before:
            yield Difference(f"{place}.{name}", "compatible", None, after[name], f"{name!r} was added")
        else:
            yield from compare_schemas(f"{place}.{name}", before[name], after[name], output=output)


def _compare_required(place: str, before: list[Any], after: list[Any], *, output: bool) -> Iterator[Difference]:
    for name in sorted({*before} ^ {*after}):
        added = name in after
        effect: Effect = "breaking" if added is not output else "compatible"
        what = "is required now" if added else "is optional now"
        yield Difference(f"{place}.{name}", effect, None, None, f"{name!r} {what}")


def _compare_named(
    place: str, before: Mapping[str, Any], after: Mapping[str, Any], *, output: bool
) -> Iterator[Difference]:
    """Compare schemas by name; one that is new or gone counts where it is referred to."""
    for name in sorted({*before, *after}):
        old, new = before.get(name, _MISSING), after.get(name, _MISSING)
        if old is _MISSING or new is _MISSING:
            what = "removed" if new is _MISSING else "added"
            # Also a pattern of keys; whether that breaks anything cannot be seen here.
            effect: Effect = "compatible" if place.endswith(("$defs", "definitions")) else "breaking"
            yield Difference(f"{place}.{name}", effect, _show(old), _show(new), f"{name!r} was {what}")
        else:
            yield from compare_schemas(f"{place}.{name}", old, new, output=output)


def _accepts_more(key: str, old: Any, new: Any) -> bool:
    """Return whether the new value of a keyword accepts all that the old one accepts; False if that is not known."""
    if new is _MISSING:
        return key not in {"$ref", "if", "then", "else"}
    if old is _MISSING:
        return False
    if key == "type":
        return _types(old) <= _types(new)
    if key in {"anyOf", "enum"}:
        return _values(old) <= _values(new)
    if key in _LOWER | _UPPER and _is_number(old) and _is_number(new):
        return bool(new <= old) if key in _LOWER else bool(new >= old)
    return False


def _make_difference(place: str, old: Any, new: Any, accepts_more: bool) -> Difference:  # noqa: FBT001 - a private function
    return Difference(place, "compatible" if accepts_more else "breaking", _show(old), _show(new))


def _types(value: Any) -> set[str]:
    found = {str(each) for each in _as_list(value)}
    return found | {"integer"} if "number" in found else found


def _values(value: Any) -> set[str]:
    return {canonical_json(each) for each in _as_list(value)}


def _as_list(value: Any) -> list[Any]:
    if value is _MISSING:
        return []
    return value if isinstance(value, list) else [value]


def _as_object(value: Any) -> Mapping[str, Any]:
    return {} if value is _MISSING else value


def _are_objects(*values: Any) -> bool:
    return all(value is _MISSING or isinstance(value, Mapping) for value in values)


def _are_names(*values: Any) -> bool:
    return all(
        value is _MISSING or (isinstance(value, list) and all(isinstance(each, str) for each in value))
        for value in values
    )


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_equal(first: Any, second: Any) -> bool:
    """Return whether two JSON values are equal; in Python, True equals 1."""
    if first is _MISSING or second is _MISSING:
        return first is second
    return canonical_json(first) == canonical_json(second)


def _show(value: Any) -> Any:
    return None if value is _MISSING else value
