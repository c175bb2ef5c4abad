"""``ToolLock``: admit tools only if they match their pins."""

from __future__ import annotations

import logging
import os
import shlex
from collections.abc import Callable, Generator, Iterable, Mapping
from copy import copy
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

from toolsemble._engine.definition import Inner, Layer, Policy, ToolDefinition
from toolsemble._engine.execution.call_path import adrive, drive
from toolsemble._runtime.text import escape_invisible, preview, quote_text
from toolsemble._runtime.threads import fork_safe_lock
from toolsemble._schema.decode import Decoded, Read
from toolsemble._tools.base import Tool
from toolsemble._tools.collection import collect_tools
from toolsemble._tools.renamed import RenamedTool
from toolsemble._vocabulary.errors import ToolConfigurationError, ToolDefinitionError
from toolsemble._vocabulary.specification import ToolSpecification
from toolsemble.catalog._pinning.diff import Change, Verdict, compare_pins, compare_tools, format_changes
from toolsemble.catalog._pinning.lock_file import Sources, read_lock, write_lock
from toolsemble.catalog._pinning.pins import PinnedTool, is_pinned, pin_tool
from toolsemble.review._asking.question import Question
from toolsemble.review._request import Continue, ExitEarly, ReviewDecision, ReviewHandler, ReviewRequest
from toolsemble.review._terms import ReviewTiming

Check: TypeAlias = Callable[[], None]
"""Raises if a tool may not be called."""


class LockedTool(RenamedTool):
    """A tool in the checked state of a lock; its calls fail as soon as the lock refuses it.

    Other attributes are the original's.
    """

    def __init__(
        self,
        source: object,
        definition: ToolDefinition,
        digest: str,
        check: Check,
        find_lock_refusal: Callable[[str], str],
    ) -> None:
        """Add the check to all calls.

        :param source: the tool
        :param definition: its checked definition
        :param digest: the digest of its pin
        :param check: raises if the tool may not be called
        :param find_lock_refusal: returns why the lock hides another tool of the source, by its name; "" if it does not
        """
        super().__init__(source, definition.name, None, add_check(definition, digest, check))
        vars(self)["find_lock_refusal"] = find_lock_refusal


def add_check(definition: ToolDefinition, digest: str, check: Check) -> ToolDefinition:
    """Return a definition whose calls fail if ``check`` raises, and whose approvals are bound to the digest."""
    policy = definition.policy or Policy()
    return replace(
        definition,
        decode=_CheckedReader(definition.decode, check),
        accept=_CheckedReader(definition.accept, check),
        policy=replace(policy, layers=(*policy.layers, _LockLayer(check))),
        pinned=digest,
    )


class _CheckedReader:
    """A reader of arguments that fails if the tool is refused, before any review."""

    __slots__ = ("_check", "_read")

    def __init__(self, read: Read, check: Check) -> None:
        self._read = read
        self._check = check

    def __call__(self, value: Any, steps: frozenset[str]) -> Decoded:
        """Read arguments."""
        self._check()
        return self._read(value, steps)


class _LockLayer(Layer):
    """A layer that fails if the tool was refused after its arguments were parsed, such as during approval."""

    __slots__ = ("_check",)

    def __init__(self, check: Check) -> None:
        self._check = check

    def around(self, definition: Any, value: Any, context: Any, inner: Inner) -> Generator[Any, Any, Any]:
        """Run one call."""
        _ = definition, value
        self._check()
        return (yield from inner(context))


@dataclass(frozen=True, slots=True)
class Listing:
    """The tools of a source."""

    pins: dict[str, PinnedTool] = field(default_factory=dict)
    """The tools by name."""
    faults: dict[str, str] = field(default_factory=dict)
    """The reasons for tools that cannot be pinned, by name."""

    def add(self, shown: object) -> None:
        """Add a tool; record a fault if it cannot be pinned or is a duplicate."""
        name = _find_name(shown)
        try:
            pin = pin_tool(shown)
        except ToolDefinitionError as problem:
            self.pins.pop(name, None)
            self.faults[name] = str(problem)
            return
        if pin.name in self.pins or pin.name in self.faults:
            self.pins.pop(pin.name, None)
            self.faults[pin.name] = f"Duplicate tool name: {pin.name!r:.80}"
        else:
            self.pins[pin.name] = pin


def list_tools(shown: Iterable[object]) -> Listing:
    """Return the pins of tools, specifications, or a server's list.

    >>> list(list_tools([ToolSpecification("now", "The time")]).pins)
    ['now']
    """
    listing = Listing()
    for each in shown:
        for part in [each] if _is_shown(each) else [definition for _, definition in list_definitions([each])]:
            listing.add(part)
    return listing


def list_valid_tools(source: str, shown: Iterable[object]) -> dict[str, PinnedTool]:
    """Return the pins of tools by name; raise ToolDefinitionError if one cannot be pinned."""
    listing = list_tools(shown)
    for fault in listing.faults.values():
        raise ToolDefinitionError(f"{source}: {fault}")
    return listing.pins


def list_definitions(tools: Iterable[object]) -> list[tuple[object, ToolDefinition]]:
    """Return tools with their definitions; raise ToolDefinitionError for other objects."""
    if hasattr(tools, "specifications"):
        raise ToolDefinitionError(
            "A lock takes a list of tools, not a Toolbox, whose gates and limits would be lost; write "
            "Toolbox(lock.checked([...], source=...))"
        )
    found: list[tuple[object, ToolDefinition]] = []
    for each in tools:
        defined = collect_tools(each)
        if not defined:
            raise ToolDefinitionError(f"A lock takes tools; {type(each).__name__} is not one")
        found += defined
    return found


def _is_shown(each: object) -> bool:
    return isinstance(each, (PinnedTool, ToolSpecification, ToolDefinition, Mapping)) or is_pinned(each)


def _find_name(shown: object) -> str:
    name = shown.get("name") if isinstance(shown, Mapping) else getattr(shown, "name", None)
    return name if isinstance(name, str) else repr(name)[:80]


LOGGER = logging.getLogger("toolsemble.lock")
"""The logger of changes."""
ASKED_AS = "toolsemble.lock"
"""The tool name in review requests; not a valid tool name, so that rules for tools do not match it."""

Changed = Literal["refuse", "ask", "warn"]
Added = Literal["hide", "ask", "warn"]
Removed = Literal["warn", "refuse", "ignore"]
First = Literal["refuse", "trust"]
_Checking = Generator[Question, ReviewDecision, Verdict]


class ToolLock:
    """The pins in a file: the reviewed tool definitions of each source.

    A tool that has changed since is hidden and its calls fail, a new one is hidden, and a removed one is logged.
    ``toolsemble lock`` or :meth:`write` writes the file. It is read at every check, so a running program picks up new
    pins.

    >>> import tempfile
    >>> from toolsemble import Toolbox, tool
    >>> @tool
    ... def read(path: str) -> str:
    ...     '''Read a file.'''
    ...     return "text"
    >>> @tool
    ... def send(text: str) -> str:
    ...     '''Send a text.'''
    ...     return "sent"
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     ToolLock.write(f"{folder}/toolsemble.lock", {"my tools": [read]})
    ...     lock = ToolLock(f"{folder}/toolsemble.lock")
    ...     Toolbox(lock.checked([read, send], source="my tools")).names
    ['read']
    """

    def __init__(
        self,
        path: str | os.PathLike[str] = "toolsemble.lock",
        *,
        changed: Changed = "refuse",
        added: Added = "hide",
        removed: Removed = "warn",
        first: First = "refuse",
        review: ReviewHandler | None = None,
    ) -> None:
        """Read nothing yet.

        :param path: the lock file
        :param changed: what to do with a tool that differs from its pin: ``"refuse"`` hides it and fails its calls,
            ``"ask"`` sends the diff to the reviewer, ``"warn"`` logs the diff
        :param added: what to do with a tool that is not pinned: ``"hide"``, ``"ask"``, or ``"warn"``, which shows it
        :param removed: what to do if a pinned tool was removed: ``"warn"``, ``"refuse"`` the whole source, or
            ``"ignore"``
        :param first: what to do with a source that is not in the file: ``"refuse"`` it, or ``"trust"``, which pins it
        :param review: the reviewer, unless a check has its own
        """
        options = {"changed": (changed, Changed), "added": (added, Added), "removed": (removed, Removed)}
        for name, (value, known) in {**options, "first": (first, First)}.items():
            if value not in get_args(known):
                choices = ", ".join(map(repr, get_args(known)))
                raise ToolDefinitionError(f"ToolLock: {name} must be one of {choices}, not {value!r:.80}")
        self.path = Path(path)
        self.changed, self.added, self.removed, self.first = changed, added, removed, first
        self._review = review
        self._command = ""  # the command that writes the pins, if it is not the source's
        self._guard = fork_safe_lock(self)
        self._verdicts: dict[str, Verdict] = {}
        self._approved: set[tuple[str, str]] = set()  # the sources and digests approved by a reviewer
        self._reported: set[tuple[str, ...]] = set()  # what was logged, once

    def __repr__(self) -> str:
        return f"ToolLock({str(self.path)!r})"

    @staticmethod
    def write(path: str | os.PathLike[str], sources: Mapping[str, Iterable[object]]) -> None:
        """Pin the tools of some sources; other sources in the file stay unchanged.

        :param path: the lock file
        :param sources: for each source its tools, their specifications, or a server's list
        """
        pinned = read_lock(Path(path)) or {}
        for source, tools in sources.items():
            pinned[source] = list_valid_tools(source, tools)
        write_lock(Path(path), pinned)

    def compare(self, source: str, shown: Iterable[object]) -> tuple[Change, ...]:
        """Return the differences between a source and its pins, without a verdict.

        Raise ToolConfigurationError if there are no pins, and ToolDefinitionError for a tool that cannot be pinned.
        """
        sources = read_lock(self.path)
        if sources is None or source not in sources:
            raise self._describe_missing(source, has_file=sources is not None)
        return tuple(compare_tools(sources[source], list_valid_tools(source, shown)))

    def check(self, source: str, shown: Iterable[object], *, review: ReviewHandler | None = None) -> Verdict:
        """Compare a source with its pins, and return the verdict.

        Call it when tools are obtained and whenever they change; the latest verdict also applies to calls of previously
        obtained tools. Raise ToolConfigurationError if the file is missing or unusable, or if the source is not in it;
        then none of the source's tools may be used.

        :param source: the source's identity: see :mod:`toolsemble.catalog._pinning.lock_file`
        :param shown: all tools of the source as listed: specifications, pins, or an MCP server's list
        :param review: the reviewer for ``changed="ask"`` and ``added="ask"``
        """
        return drive(self._check(source, list_tools(shown), review))

    async def acheck(self, source: str, shown: Iterable[object], *, review: ReviewHandler | None = None) -> Verdict:
        """Do the same as :meth:`check` without blocking the event loop while a reviewer is asked."""
        return await adrive(self._check(source, list_tools(shown), review))

    def checked(self, tools: Iterable[object], *, source: str, review: ReviewHandler | None = None) -> list[Tool]:
        """Return the admitted tools; their calls fail as soon as a later check refuses them.

        :param tools: tools, as for a toolbox
        :param source: the source's identity, as in the file
        :param review: the reviewer for ``changed="ask"`` and ``added="ask"``
        """
        found = list_definitions(tools)
        verdict = self.check(source, [definition for _, definition in found], review=review)
        return [
            self._lock_tool(tool, definition, source, verdict.digests[definition.name])
            for tool, definition in found
            if verdict.admits(definition.name)
        ]

    def verdict(self, source: str) -> Verdict:
        """Return the latest verdict on a source; before the first check, one that refuses everything."""
        with self._guard:
            return self._verdicts.get(source) or Verdict(source, problem="its source has not been checked")

    def check_call(self, source: str, name: str, digest: str) -> None:
        """Raise ToolExecutionError if the latest verdict refuses a tool, including previously obtained ones.

        :param name: the tool's name at its source
        :param digest: the digest of its pin when it was listed
        """
        # If changes are only logged, changed tools stay usable on purpose.
        self.verdict(source).check_call(name, "" if self.changed == "warn" else digest)

    def separate(self, command: str | None = None) -> ToolLock:
        """Return a lock with the same file, settings and approvals, but separate verdicts.

        Users of one server may see different tools; one user's verdict must not apply to another.

        :param command: the command that writes the pins, for messages; None: this lock's
        """
        lock = copy(self)
        lock._verdicts = {}  # noqa: SLF001 - a new object of this class
        if command is not None:
            lock._command = command  # noqa: SLF001 - as above
        return lock

    def _lock_tool(self, tool: object, definition: ToolDefinition, source: str, digest: str) -> Tool:
        return LockedTool(
            tool,
            definition,
            digest,
            lambda: self.check_call(source, definition.name, digest),
            lambda name: self.verdict(source).refused.get(name, ""),
        )

    def _check(self, source: str, listing: Listing, review: ReviewHandler | None) -> _Checking:
        try:
            pinned = self._read_pins(source, listing)
        except ToolConfigurationError as problem:
            self._store(Verdict(source, problem=str(problem)))
            raise
        verdict = yield from self._decide(source, pinned, listing, review)
        self._store(verdict)
        if verdict.problem:
            raise ToolConfigurationError(verdict.problem)
        return verdict

    def _store(self, verdict: Verdict) -> None:
        with self._guard:
            self._verdicts[verdict.source] = verdict

    def _read_pins(self, source: str, listing: Listing) -> Mapping[str, PinnedTool]:
        """Return a source's pins; pin it if it is new and trusted."""
        with self._guard:
            sources = read_lock(self.path)
            if sources is not None and source in sources:
                return sources[source]
            if self.first != "trust":
                raise self._describe_missing(source, has_file=sources is not None)
            write_lock(self.path, {**(sources or {}), source: listing.pins})
        LOGGER.warning("%s: pinned on first use: %d tools", escape_invisible(source), len(listing.pins))
        return listing.pins

    def _describe_missing(self, source: str, *, has_file: bool) -> ToolConfigurationError:
        file = f"lock file '{self.path}'"
        what = f"The {file} does not have the source {quote_text(source)}" if has_file else f"There is no {file}"
        command = self._command or _format_command(source, str(self.path))
        return ToolConfigurationError(f"{what}; review the tools, and pin them with: {command}")

    def _decide(
        self, source: str, pinned: Mapping[str, PinnedTool], listing: Listing, review: ReviewHandler | None
    ) -> _Checking:
        changes = _find_changes(pinned, listing)
        refused = {name: f"its definition cannot be pinned: {fault}" for name, fault in listing.faults.items()}
        # Until a reviewer has answered, previously obtained tools cannot be called either.
        waiting = dict.fromkeys((each.tool for each in changes), "its definition has changed and is being reviewed")
        self._store(_build_verdict(source, listing, waiting | refused, changes))
        problem = ""
        for change in changes:
            if change.kind == "removed":
                problem = problem or self._report_removed(source, change)
            elif reason := (yield from self._judge(source, change, listing.pins[change.tool], review)):
                refused[change.tool] = reason
        return _build_verdict(source, listing, refused, changes, problem)

    def _report_removed(self, source: str, change: Change) -> str:
        """Log a removed tool, and return why the source is refused for it; "" if it is not."""
        if self.removed == "ignore":
            return ""
        self._log(source, change, "")
        name = quote_text(change.tool, 80)
        return f"{source} does not have {name} anymore, which is pinned" if self.removed == "refuse" else ""

    def _judge(
        self, source: str, change: Change, pin: PinnedTool, review: ReviewHandler | None
    ) -> Generator[Question, ReviewDecision, str]:
        """Return why a changed or new tool is refused; "" if it is admitted."""
        action = self.changed if change.kind == "changed" else self.added
        if action == "warn":
            self._log(source, change, pin.digest)
            return ""
        if action == "ask":
            return (yield from self._ask(source, change, pin, review or self._review))
        self._log(source, change, pin.digest)
        command = self._command or _format_command(source, str(self.path))
        how = f"{command} --check" if command.startswith("toolsemble ") else command
        if change.kind == "changed":
            effects = ", ".join(change.effects)
            return f"its definition has changed since it was locked ({effects}); review it with: {how}"
        return f"it is not in the lock file '{self.path}'; review it with: {how}"

    def _ask(
        self, source: str, change: Change, pin: PinnedTool, review: ReviewHandler | None
    ) -> Generator[Question, ReviewDecision, str]:
        """Send a change to the reviewer, unless it was already approved."""
        if (source, pin.digest) in self._approved:
            return ""
        if review is None:
            self._log(source, change, pin.digest)
            return "its definition is not the locked one, and there is no reviewer; pass review=..."
        decision = yield Question(review, _build_request(source, change, pin))
        if type(decision) is not Continue:
            why = decision.reason if type(decision) is ExitEarly else "a definition cannot be edited"
            return f"a reviewer rejected its definition{f': {preview(why)}' if why else ''}"
        self._approved.add((source, pin.digest))
        if decision.always:
            self._pin(source, pin)
        return ""

    def _pin(self, source: str, pin: PinnedTool) -> None:
        with self._guard:
            sources: Sources = read_lock(self.path) or {}
            write_lock(self.path, {**sources, source: {**sources.get(source, {}), pin.name: pin}})

    def _log(self, source: str, change: Change, digest: str) -> None:
        """Log a change, once per definition."""
        key = (source, change.tool, change.kind, digest)
        if key not in self._reported:
            self._reported.add(key)
            LOGGER.warning("%s", format_changes(source, [change]))


def as_lock(lock: ToolLock | str | os.PathLike[str]) -> ToolLock:
    """Return a lock; for a path, a lock with default settings.

    >>> as_lock("toolsemble.lock")
    ToolLock('toolsemble.lock')
    """
    if isinstance(lock, ToolLock):
        return lock
    if not isinstance(lock, (str, os.PathLike)):
        raise ToolDefinitionError(f"lock must be a ToolLock or a path, not {type(lock).__name__}")
    return ToolLock(lock)


def _find_changes(pinned: Mapping[str, PinnedTool], listing: Listing) -> tuple[Change, ...]:
    """Return a source's changes; a pinned tool that can no longer be pinned is refused, not removed."""
    known = {name: pin for name, pin in pinned.items() if name not in listing.faults}
    return tuple(compare_tools(known, listing.pins))


def _build_verdict(
    source: str, listing: Listing, refused: Mapping[str, str], changes: tuple[Change, ...], problem: str = ""
) -> Verdict:
    names = frozenset() if problem else frozenset(listing.pins.keys() - refused.keys())
    return Verdict(source, names, refused, changes, {name: listing.pins[name].digest for name in names}, problem)


def _build_request(source: str, change: Change, pin: PinnedTool) -> ReviewRequest:
    what = "has changed since it was locked" if change.kind == "changed" else "is not in the lock"
    return ReviewRequest(
        f"The definition of {quote_text(change.tool, 80)} {what}; may models be shown it?",
        ASKED_AS,
        {"source": source, "tool": change.tool, "diff": _list_lines(change, pin)},
        ReviewTiming.DURING_EXECUTION,
        scopes=("tool",),
        schema_digest=pin.digest,
    )


def _list_lines(change: Change, pin: PinnedTool) -> list[str]:
    """Return the diff as lines; for a new tool, its full definition."""
    nothing = PinnedTool(pin.name)
    shown = change if change.kind == "changed" else Change(pin.name, "added", tuple(compare_pins(nothing, pin)))
    return str(shown).split("\n")[1:]


def _format_command(source: str, file: str) -> str:
    """Return the command that writes the pins of a source."""
    where = [] if file == "toolsemble.lock" else ["--file", file]
    return escape_invisible(shlex.join(["toolsemble", "lock", source, *where]))
