"""A tool called with whatever its schema lets a model think of, to find what it does not stand."""

from __future__ import annotations

import logging
import os
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from toolsemble.definition.definition import ToolDefinition, map_definition
from toolsemble.errors import ToolDefinitionError
from toolsemble.review import ReviewHandler
from toolsemble.review.automatic import AutoApprove
from toolsemble.testing.arguments import Arguments
from toolsemble.testing.probe import Crash, Finding, Probe
from toolsemble.tools.collection import collect_tools

_MOST_HANGS = 3  # each takes all of its time, and leaves a thread behind
_SHOWN = 500


@dataclass(frozen=True, slots=True)
class FuzzReport:
    """What came of many calls.

    >>> FuzzReport("weather", 7, {"success": 200}).ok
    True
    """

    tool_name: str
    """The tool."""
    seed: int
    """What the same calls can be made with again."""
    outcomes: Mapping[str, int]
    """How many calls gave a ``success``, a ``failure`` that the model is told, and a ``crash``."""
    crashes: tuple[Crash, ...] = ()
    """What the tool does not stand, each thing once."""

    @property
    def ok(self) -> bool:
        """Whether nothing was found."""
        return not self.crashes

    def assert_ok(self) -> None:
        """Raise an ``AssertionError`` that tells all that was found, if there is something."""
        if not self.ok:
            raise AssertionError(str(self))

    def __str__(self) -> str:
        counted = ", ".join(f"{count} {name}" for name, count in self.outcomes.items())
        lines = [f"fuzz of '{self.tool_name}' with seed={self.seed}: {counted}"]
        for number, crash in enumerate(self.crashes, 1):
            lines.append(f"{number}. {crash.error} ({crash.count}x, {crash.kind})\n   {crash.call!r:.{_SHOWN}}")
            lines += [f"   {line}" for line in crash.traceback.splitlines()[-3:]]
        return "\n".join(lines)


def fuzz(
    tool: object,
    *,
    count: int = 200,
    seed: int | None = None,
    examples: Iterable[Mapping[str, Any] | str] = (),
    timeout: float = 5.0,
    declared: tuple[type[BaseException], ...] = (),
    review: ReviewHandler | None = None,
) -> FuzzReport:
    """Call a tool many times, with arguments that its schema admits and with some that it nearly does.

    The tool really runs, so give it a place where it can do no harm. A crash is an exception other than those that are
    meant for the model, an exception that leaves the call path, a result that JSON cannot hold, and a call that does
    not end; a failed result is none.

    :param tool: one tool, of any kind that a toolbox takes
    :param count: how many calls are made, beside those that are needed to make a crash simple
    :param seed: makes the same calls again; a new one for None, which the report tells
    :param examples: arguments that make sense, for tools whose schema says little; for a string tool, its inputs
    :param timeout: how many seconds a call may take; its thread goes on when it takes more
    :param declared: further exceptions that are meant for the model
    :param review: who approves calls; somebody who always does for None

    >>> from toolsemble import tool
    >>> @tool
    ... def initial(name: str) -> str:
    ...     return name[0]
    >>> report = fuzz(initial, seed=1)
    >>> [(crash.error, crash.call.arguments) for crash in report.crashes]
    [('IndexError: string index out of range', {'name': ''})]
    """
    target, definition = _target(tool)
    seed = int.from_bytes(os.urandom(4)) if seed is None else seed
    probe = Probe(target, definition.name, timeout, declared, AutoApprove() if review is None else review)
    maker = Arguments(definition.schema(), random.Random(seed), _checked_examples(examples))  # noqa: S311 - no secret
    corners = maker.corners(count // 2)
    outcomes: Counter[str] = Counter()
    found: dict[tuple[str, ...], list[tuple[Finding, Any]]] = {}
    hangs = 0
    with _quiet(definition, probe.mark):
        for number in range(count):
            given = corners[number] if number < len(corners) else maker.any()
            outcome = probe.tried(given)
            outcomes[outcome if isinstance(outcome, str) else "crash"] += 1
            if isinstance(outcome, Finding):
                found.setdefault(outcome.key, []).append((outcome, given))
                hangs += outcome.kind == "hang"
            if hangs >= _MOST_HANGS:
                break
        crashes = tuple(map(probe.crash, found.values()))
    return FuzzReport(definition.name, seed, dict(outcomes), crashes)


@contextmanager
def _quiet(definition: ToolDefinition, mark: str) -> Iterator[None]:
    """Keep the calls of a probe out of the log: the report tells what is worth telling."""
    loggers: list[logging.Logger] = []

    def taken(part: ToolDefinition) -> ToolDefinition:
        loggers.append(part.logger)
        return part

    def passes(record: logging.LogRecord) -> bool:
        return not str(getattr(record, "call_id", "")).startswith(mark)

    map_definition(definition, taken)
    for logger in loggers:
        logger.addFilter(passes)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(passes)


def _target(tool: object) -> tuple[object, ToolDefinition]:
    found = collect_tools(tool)
    if len(found) != 1:
        names = ", ".join(definition.name for _, definition in found) or "none"
        raise ToolDefinitionError(f"fuzz takes one tool; {type(tool).__name__} has {len(found)}: {names}")
    return found[0]


def _checked_examples(examples: Iterable[Mapping[str, Any] | str]) -> list[dict[str, Any]]:
    if isinstance(examples, (str, Mapping)):
        raise TypeError(f"fuzz examples must be a list of arguments, not {type(examples).__name__}")
    return [{"input": each} if isinstance(each, str) else dict(each) for each in examples]
