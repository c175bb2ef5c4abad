"""Differences between a pinned and an offered tool, and whether they are compatible, breaking or weaker."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from toolsemble._runtime.signing import canonical_json
from toolsemble._runtime.text import escape_invisible, quote_text
from toolsemble._vocabulary.errors import ToolExecutionError
from toolsemble.catalog._pinning.pins import HINTS, LISTED, NAMED, SINGLE, PinnedTool

Effect: TypeAlias = Literal["compatible", "breaking", "weaker"]
"""The effect of a change on the tool's users."""

_TEXTS = {"$comment", "$id", "$schema", "default", "deprecated", "description", "examples", "title"}
_LOWER = {"exclusiveMinimum", "minContains", "minItems", "minLength", "minProperties", "minimum"}
_UPPER = {"exclusiveMaximum", "maxContains", "maxItems", "maxLength", "maxProperties", "maximum"}
_MISSING = object()


@dataclass(frozen=True, slots=True)
class Difference:
    """A difference between two versions of a schema or another part of a tool."""

    place: str
    """Its location, such as ``input.path.type``."""
    effect: Effect
    """Its effect."""
    before: Any
    """The old value; None if there was none."""
    after: Any
    """The new value; None if there is none."""
    summary: str = ""
    """The change as text; "" to show both values."""


def compare_schemas(place: str, before: Any, after: Any, *, output: bool = False) -> Iterator[Difference]:
    """Yield the differences between two versions of a schema.

    A change is breaking if a previously valid value may be invalid now; for result schemas, if a now valid result may
    have been invalid before.

    :param place: the schema's location
    :param output: whether it is a result schema

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
    """Compare schemas of which at least one is True, False or missing; True and missing accept everything."""
    if not _is_equal(before, after):
        first, second = (after, before) if output else (before, after)
        accepts_more = first is False or second is True or second is _MISSING
        yield _make_difference(place, before, after, accepts_more=accepts_more)


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
        yield _make_difference(inside, old, new, accepts_more=_accepts_more(key, first, second))


def _find_changed(old: Any, new: Any) -> tuple[Any, Any] | None:
    """Return the only differing schema of a list, in both versions; None if there is not exactly one."""
    if not isinstance(old, list) or not isinstance(new, list) or len(old) != len(new):
        return None
    known = _values(old), _values(new)
    gone = [each for each in old if canonical_json(each) not in known[1]]
    added = [each for each in new if canonical_json(each) not in known[0]]
    return (gone[0], added[0]) if len(gone) == len(added) == 1 else None


def _compare_properties(
    place: str, before: Mapping[str, Any], after: Mapping[str, Any], *, output: bool
) -> Iterator[Difference]:
    """Compare object properties: a removed one breaks callers; a new one does so if it is required."""
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
    """Compare schemas by name; added and removed ones count where they are referenced."""
    for name in sorted({*before, *after}):
        old, new = before.get(name, _MISSING), after.get(name, _MISSING)
        if old is _MISSING or new is _MISSING:
            what = "removed" if new is _MISSING else "added"
            # Also key patterns, whose effect is unknown here.
            effect: Effect = "compatible" if place.endswith(("$defs", "definitions")) else "breaking"
            yield Difference(f"{place}.{name}", effect, _show(old), _show(new), f"{name!r} was {what}")
        else:
            yield from compare_schemas(f"{place}.{name}", old, new, output=output)


def _accepts_more(key: str, old: Any, new: Any) -> bool:
    """Return whether a keyword's new value accepts everything that the old one accepts; False if unknown."""
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


def _make_difference(place: str, old: Any, new: Any, *, accepts_more: bool) -> Difference:
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


_EFFECTS: tuple[Effect, ...] = ("breaking", "weaker", "compatible")
_MAX_DIFFERENCES = 100
_MAX_LINES = 30
_MAX_TEXT = 1000
_CONTEXT = 40
_PROMISES = {"readOnlyHint": True, "destructiveHint": False, "idempotentHint": True, "openWorldHint": False}
_ASSUMED = {"readOnlyHint": False, "destructiveHint": True, "idempotentHint": False, "openWorldHint": True}


@dataclass(frozen=True, slots=True)
class Change:
    """A tool that differs from its pin, is new, or was removed.

    >>> Change("now", "added").effects
    ('compatible',)
    """

    tool: str
    """The tool's name at its source."""
    kind: Literal["added", "changed", "removed"]
    """Whether the tool was added, changed or removed."""
    differences: tuple[Difference, ...] = ()
    """The differences of a changed tool."""

    @property
    def effects(self) -> tuple[Effect, ...]:
        """The effects of the change, worst first: ``breaking``, ``weaker``, ``compatible``."""
        if self.kind != "changed":
            return ("breaking",) if self.kind == "removed" else ("compatible",)
        found = {each.effect for each in self.differences}
        return tuple(effect for effect in _EFFECTS if effect in found)

    def __str__(self) -> str:
        """Return the change as lines of text, with invisible characters escaped."""
        head = f"{quote_text(self.tool, 80)} {self.kind}: {', '.join(self.effects)}"
        shown = self.differences[:_MAX_DIFFERENCES]
        more = len(self.differences) - len(shown)
        rest = [f"  and {more} more differences"] if more else []
        return "\n".join([head, *(line for each in shown for line in _format_difference(each)), *rest])


def compare_tools(before: Mapping[str, PinnedTool], after: Mapping[str, PinnedTool]) -> Iterator[Change]:
    """Yield the changes of a source, by the names of its tools.

    >>> [str(each) for each in compare_tools({}, {"now": PinnedTool("now")})]
    ["'now' added: compatible"]
    """
    for name in sorted({*before, *after}):
        old, new = before.get(name), after.get(name)
        if old is None or new is None:
            yield Change(name, "added" if old is None else "removed")
        elif old.digest != new.digest:
            yield Change(name, "changed", tuple(compare_pins(old, new)))


def format_changes(source: str, changes: Iterable[Change]) -> str:
    """Return the changes of a source as text.

    >>> print(format_changes("tools.py", [Change("now", "removed")]))
    tools.py
      'now' removed: breaking
    """
    lines = [line for change in changes for line in str(change).split("\n")]
    return "\n".join([escape_invisible(source), *(f"  {line}" for line in lines)])


def compare_pins(before: PinnedTool, after: PinnedTool) -> Iterator[Difference]:
    """Yield the differences between two versions of a tool."""
    for name in ("title", "description"):
        if (old := getattr(before, name)) != (new := getattr(after, name)):
            yield Difference(name, "compatible", old, new)
    yield from _compare_parts("input", before.input_schema, after.input_schema)
    yield from _compare_parts("output", before.output_schema, after.output_schema)
    yield from _compare_hints(before.annotations, after.annotations)


def _compare_parts(place: str, before: Any, after: Any) -> Iterator[Difference]:
    """Compare argument or result schemas, either of which may be missing."""
    output = place == "output"
    if output and (before is None or after is None):
        if before is not after:
            yield Difference(place, "compatible" if before is None else "breaking", before, after)
        return
    yield from compare_schemas(place, before or {}, after or {}, output=output)


def _compare_hints(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Difference]:
    for name in sorted({*before, *after}):
        old, new = before.get(name), after.get(name)
        if canonical_json(old) != canonical_json(new):
            effect = _compare_hint(name, old, new) if name in HINTS else "compatible"
            yield Difference(f"annotations.{name}", effect, old, new)


def _compare_hint(name: str, old: Any, new: Any) -> Effect:
    """Return the effect of a changed hint.

    A tool that claims to be less harmful than before passes gates based on hints, so the change is weaker. A tool that
    drops such a claim breaks code that relies on it, such as caches.
    """
    promise, assumed = _PROMISES[name], _ASSUMED[name]
    if old is promise:
        return "breaking"
    if new is promise or (old is True and new is None and assumed):
        return "weaker"
    return "compatible"


def _format_difference(difference: Difference) -> Iterator[str]:
    place = escape_invisible(difference.place[:_MAX_TEXT])
    head = f"  {difference.effect}: {place}"
    if difference.summary:
        yield f"{head}: {escape_invisible(difference.summary[:_MAX_TEXT])}"
        return
    yield head
    before, after = _cut_common(_split_lines(difference.before), _split_lines(difference.after))
    yield from _format_lines("-", before)
    yield from _format_lines("+", after)


def _split_lines(value: Any) -> list[str]:
    if value is None:
        return []
    return (value if isinstance(value, str) else canonical_json(value)).split("\n")


def _cut_common(before: list[str], after: list[str]) -> tuple[list[str], list[str]]:
    """Return the differing lines; for two long lines, the part starting shortly before the first difference."""
    while before and after and before[0] == after[0]:
        before, after = before[1:], after[1:]
    while before and after and before[-1] == after[-1]:
        before, after = before[:-1], after[:-1]
    if before and after and (start := _count_common(before[0], after[0]) - _CONTEXT) > _CONTEXT:
        before = [f"... {before[0][start:]}", *before[1:]]
        after = [f"... {after[0][start:]}", *after[1:]]
    return before, after


def _count_common(first: str, second: str) -> int:
    """Return the length of the common prefix of two texts."""
    pairs = zip(first, second, strict=False)
    return next((index for index, (one, other) in enumerate(pairs) if one != other), min(len(first), len(second)))


def _format_lines(sign: str, lines: list[str]) -> Iterator[str]:
    for line in lines[:_MAX_LINES]:
        more = f" ... and {len(line) - _MAX_TEXT} more characters" if len(line) > _MAX_TEXT else ""
        yield f"    {sign} {escape_invisible(line[:_MAX_TEXT])}{more}"
    if len(lines) > _MAX_LINES:
        yield f"    {sign} ... and {len(lines) - _MAX_LINES} more lines"


@dataclass(frozen=True, slots=True)
class Verdict:
    """A lock's verdict: which tools of a source may be shown and called.

    >>> verdict = Verdict("tools.py", frozenset({"now"}), {"later": "it is not in the lock"})
    >>> verdict.admits("now"), verdict.admits("later"), verdict.admits("never")
    (True, False, False)
    """

    source: str
    """The identity of the source."""
    admitted: frozenset[str] = frozenset()
    """The names of admitted tools."""
    refused: Mapping[str, str] = field(default_factory=dict)
    """The refused tools, each with the reason."""
    changes: tuple[Change, ...] = ()
    """All changes, including changes of admitted tools."""
    digests: Mapping[str, str] = field(default_factory=dict)
    """The digests of the admitted tools."""
    problem: str = ""
    """Why the whole source is refused; "" if it is not."""

    def admits(self, name: str) -> bool:
        """Return whether a tool may be shown and called."""
        return name in self.admitted

    def check_call(self, name: str, digest: str = "") -> None:
        """Raise ToolExecutionError if a tool may not be called, including previously obtained ones.

        :param digest: the digest of the tool's pin when it was obtained; "" to compare only the name

        >>> Verdict("tools.py").check_call("now")
        Traceback (most recent call last):
        ...
        toolsemble.ToolExecutionError: The lock refuses 'now': its source does not have it anymore
        """
        if name not in self.admitted:
            reason = self.problem or self.refused.get(name, "its source does not have it anymore")
        elif digest and digest != self.digests.get(name):
            reason = "its definition has changed since it was taken"
        else:
            return
        raise ToolExecutionError(f"The lock refuses '{name}': {reason}")

    @property
    def diff(self) -> str:
        """All changes as text, with invisible characters escaped; "" if there are none."""
        return format_changes(self.source, self.changes) if self.changes else ""
