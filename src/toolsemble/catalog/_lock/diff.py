"""What has changed since tools were pinned, in words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from toolsemble._runtime.signing import canonical_json
from toolsemble._runtime.text import escape_invisible, quote_text
from toolsemble.catalog._lock.pins import HINTS, PinnedTool
from toolsemble.catalog._lock.schema_diff import Difference, Effect, compare_schemas

_EFFECTS: tuple[Effect, ...] = ("breaking", "weaker", "compatible")
_MAX_DIFFERENCES = 100
_MAX_LINES = 30
_MAX_TEXT = 1000
_CONTEXT = 40
_PROMISES = {"readOnlyHint": True, "destructiveHint": False, "idempotentHint": True, "openWorldHint": False}
_ASSUMED = {"readOnlyHint": False, "destructiveHint": True, "idempotentHint": False, "openWorldHint": True}


@dataclass(frozen=True, slots=True)
class Change:
    """A tool that differs from its pin, is new, or is gone.

    >>> Change("now", "added").effects
    ('compatible',)
    """

    tool: str
    """The name of the tool at its source."""
    kind: Literal["added", "changed", "removed"]
    """Whether the source has a new tool, shows another definition, or has lost one."""
    differences: tuple[Difference, ...] = ()
    """The differences of a changed tool."""

    @property
    def effects(self) -> tuple[Effect, ...]:
        """What the change means, the worst first: ``breaking``, ``weaker``, ``compatible``."""
        if self.kind != "changed":
            return ("breaking",) if self.kind == "removed" else ("compatible",)
        found = {each.effect for each in self.differences}
        return tuple(effect for effect in _EFFECTS if effect in found)

    def __str__(self) -> str:
        """Return the change as lines of text, with invisible characters as escapes."""
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
    """Compare the schemas of arguments or of results, of which both may be missing."""
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
    """Return what it means that a hint has changed.

    A tool that claims to be more harmless than before passes gates that go by its hints, so that is weaker. One that
    no longer claims it breaks what relies on it, such as caches.
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
    """Return the lines that differ; of two long lines, the part from shortly before the first difference on."""
    while before and after and before[0] == after[0]:
        before, after = before[1:], after[1:]
    while before and after and before[-1] == after[-1]:
        before, after = before[:-1], after[:-1]
    if before and after and (start := _count_common(before[0], after[0]) - _CONTEXT) > _CONTEXT:
        before = [f"... {before[0][start:]}", *before[1:]]
        after = [f"... {after[0][start:]}", *after[1:]]
    return before, after


def _count_common(first: str, second: str) -> int:
    """Return how many characters two texts have in common at their start."""
    pairs = zip(first, second, strict=False)
    return next((index for index, (one, other) in enumerate(pairs) if one != other), min(len(first), len(second)))


def _format_lines(sign: str, lines: list[str]) -> Iterator[str]:
    for line in lines[:_MAX_LINES]:
        more = f" ... and {len(line) - _MAX_TEXT} more characters" if len(line) > _MAX_TEXT else ""
        yield f"    {sign} {escape_invisible(line[:_MAX_TEXT])}{more}"
    if len(lines) > _MAX_LINES:
        yield f"    {sign} ... and {len(lines) - _MAX_LINES} more lines"
