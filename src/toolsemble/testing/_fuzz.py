"""A fuzzer that calls a tool with generated arguments to find crashes."""

from __future__ import annotations

import logging
import os
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from toolsemble._engine.definition import ToolDefinition, map_definition
from toolsemble._engine.execution.call import missing_deps
from toolsemble._tools.collection import collect_tools
from toolsemble._vocabulary.errors import ToolDefinitionError
from toolsemble.review import ReviewHandler
from toolsemble.review._automatic import AutoApprove
from toolsemble.testing._arguments import Arguments
from toolsemble.testing._probe import Crash, Finding, Probe

_MAX_HANGS = 3  # each one waits for the full timeout and leaves a thread running
_SHOWN = 500


@dataclass(frozen=True, slots=True)
class FuzzReport:
    """The result of a fuzz run.

    >>> FuzzReport("weather", 7, {"success": 200}).ok
    True
    """

    tool_name: str
    """The name of the tool."""
    seed: int
    """The seed that reproduces the calls."""
    outcomes: Mapping[str, int]
    """The number of calls by outcome: ``success``, ``failure`` (reported to the model) and ``crash``."""
    crashes: tuple[Crash, ...] = ()
    """The distinct crashes."""

    @property
    def ok(self) -> bool:
        """Whether there are no crashes."""
        return not self.crashes

    def assert_ok(self) -> None:
        """Raise an ``AssertionError`` that lists the crashes, if there are any."""
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
    deps: Any = None,
) -> FuzzReport:
    """Call a tool many times with valid and almost valid arguments; return the crashes.

    The tool really runs, so run it where it can do no harm. A crash is an exception that is not meant for the model, an
    exception that escapes the call path, a result that is not JSON, or a call that hangs. A failed result is not a
    crash.

    :param tool: a tool of any kind that a toolbox accepts
    :param count: the number of calls, without those that simplify a crash
    :param seed: reproduces the same calls; None: a random one, which is in the report
    :param examples: valid arguments, for tools whose schema says little; inputs for a string tool
    :param timeout: seconds after which a call counts as a hang; its thread keeps running
    :param declared: more exceptions that are meant for the model
    :param review: the reviewer of calls; None: approve all
    :param deps: an object that the tool gets as ``ToolContext.deps`` in all calls; a tool that needs deps and gets none
        raises :class:`~toolsemble.ToolConfigurationError`

    >>> from toolsemble import tool
    >>> @tool
    ... def initial(name: str) -> str:
    ...     return name[0]
    >>> report = fuzz(initial, seed=1)
    >>> [(crash.error, crash.call.arguments) for crash in report.crashes]
    [('IndexError: string index out of range', {'name': ''})]
    """
    target, definition = _find_tool(tool)
    if (need := definition.deps_need) is not None and deps is None:
        raise missing_deps(need)
    seed = int.from_bytes(os.urandom(4)) if seed is None else seed
    probe = Probe(target, definition.name, timeout, declared, AutoApprove() if review is None else review, deps)
    generator = Arguments(definition.schema(), random.Random(seed), _check_examples(examples))  # noqa: S311 - not for cryptography
    edge_cases = generator.edge_cases(count // 2)
    outcomes: Counter[str] = Counter()
    found: dict[tuple[str, ...], list[tuple[Finding, Any]]] = {}
    hangs = 0
    with _suppress_logs(definition, probe.mark):
        for number in range(count):
            given = edge_cases[number] if number < len(edge_cases) else generator.generate()
            outcome = probe.run(given)
            outcomes[outcome if isinstance(outcome, str) else "crash"] += 1
            if isinstance(outcome, Finding):
                found.setdefault(outcome.key, []).append((outcome, given))
                hangs += outcome.kind == "hang"
            if hangs >= _MAX_HANGS:
                break
        crashes = tuple(map(probe.minimize, found.values()))
    return FuzzReport(definition.name, seed, dict(outcomes), crashes)


@contextmanager
def _suppress_logs(definition: ToolDefinition, mark: str) -> Iterator[None]:
    """Keep a probe's calls out of the log, because the report has the results."""
    loggers: list[logging.Logger] = []

    def collect(part: ToolDefinition) -> ToolDefinition:
        loggers.append(part.logger)
        return part

    def is_passed(record: logging.LogRecord) -> bool:
        return not str(getattr(record, "call_id", "")).startswith(mark)

    map_definition(definition, collect)
    for logger in loggers:
        logger.addFilter(is_passed)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(is_passed)


def _find_tool(tool: object) -> tuple[object, ToolDefinition]:
    found = collect_tools(tool)
    if len(found) != 1:
        names = ", ".join(definition.name for _, definition in found) or "none"
        raise ToolDefinitionError(f"fuzz takes one tool; {type(tool).__name__} has {len(found)}: {names}")
    return found[0]


def _check_examples(examples: Iterable[Mapping[str, Any] | str]) -> list[dict[str, Any]]:
    if isinstance(examples, (str, Mapping)):
        raise TypeError(f"fuzz examples must be a list of arguments, not {type(examples).__name__}")
    return [{"input": each} if isinstance(each, str) else dict(each) for each in examples]
