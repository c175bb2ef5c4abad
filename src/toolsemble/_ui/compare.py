"""Compare two runs: which calls are the same, where the runs diverge, and what changed, line by line."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import zip_longest
from typing import Any, Literal, TypeAlias

from toolsemble.telemetry._history import KnowsRuns, RunHistory
from toolsemble.telemetry._history_records import CallSummary, RunSummary

MAX_CALLS = 10_000
"""The number of calls of each run that are compared at most."""
_MAX_ALIGNED = 500  # calls between which the best alignment is searched; more are aligned by their order
_MAX_LINES = 2_000  # of a text that is compared line by line
_MAX_LINE = 2_000  # characters

Change: TypeAlias = Literal["same", "changed", "added", "removed"]
"""How two calls differ: not at all, in their arguments or results, or one of them is missing."""


@dataclass(frozen=True, slots=True)
class DiffLine:
    """A line of a comparison.

    >>> DiffLine("+", '"amount": 5').mark
    '+'
    """

    mark: Literal["=", "-", "+"]
    """Whether it is in both, in the first only, or in the second only."""
    text: str
    """The line."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A call of each run, aligned by their tools; None where only the other run has one.

    >>> Pair("removed", None, None).change
    'removed'
    """

    change: Change
    """How they differ."""
    first: CallSummary | None
    """The call of the first run."""
    second: CallSummary | None
    """The call of the second run."""


@dataclass(frozen=True, slots=True)
class CallDiff:
    """The changes between two calls.

    >>> CallDiff((), (DiffLine("-", "paid"),)).text[0].text
    'paid'
    """

    arguments: tuple[DiffLine, ...]
    """The arguments as JSON, line by line; empty if they are the same."""
    text: tuple[DiffLine, ...]
    """What the model was told, line by line; empty if it is the same."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two runs side by side; their tokens, cost and time are in their summaries."""

    first: RunSummary
    """The first run."""
    second: RunSummary
    """The second run."""
    pairs: tuple[Pair, ...]
    """The calls, in order."""
    divergence: int | None
    """The index of the first pair that is not the same; None if all are."""
    prompt: tuple[DiffLine, ...]
    """What changed in the prompt; empty if nothing did."""
    answer: tuple[DiffLine, ...]
    """What changed in the answer; empty if nothing did."""
    is_cut: bool = False
    """Whether a run has more calls than were compared."""


def compare_runs(
    history: RunHistory, first: str, second: str, *, max_calls: int = MAX_CALLS, journal: KnowsRuns | None = None
) -> Comparison:
    """Return the comparison of two runs; raise ``LookupError`` if one of them is unknown.

    Calls are aligned by the names of their tools.

    :param journal: the journal of the runs, whose states count

    >>> import tempfile
    >>> from toolsemble import Agent, ToolCall, tool
    >>> from toolsemble.testing import ScriptedModel
    >>> @tool
    ... def pay(amount: int) -> str:
    ...     '''Pay an amount.'''
    ...     return f"paid {amount}"
    >>> with tempfile.TemporaryDirectory() as folder, RunHistory(f"{folder}/history.db") as history:
    ...     for run_id, amount in (("a", 5), ("b", 6)):
    ...         model = ScriptedModel([ToolCall("pay", {"amount": amount}), "Done."])
    ...         result = Agent(model, [pay], sinks=[history]).run_sync("Pay.", run_id=run_id)
    ...     found = compare_runs(history, "a", "b")
    ...     [line.text for line in diff_calls(history, found.pairs[0]).text]
    ['paid 5', 'paid 6']
    >>> found.divergence, found.pairs[0].change, found.answer
    (0, 'changed', ())
    """
    runs = [_find_run(history, each, journal) for each in (first, second)]
    calls = [history.calls(each, limit=max_calls) for each in (first, second)]
    asked, answered = zip(*(_load_messages(history, each) for each in (first, second)), strict=True)
    pairs = tuple(_pair_calls(*calls))
    divergence = next((index for index, pair in enumerate(pairs) if pair.change != "same"), None)
    is_cut = max_calls in map(len, calls)
    return Comparison(runs[0], runs[1], pairs, divergence, diff_texts(*asked), diff_texts(*answered), is_cut)


def diff_calls(history: RunHistory, pair: Pair) -> CallDiff:
    """Return what changed between the calls of a pair, from their whole arguments and results."""
    first, second = (_load_call(history, each) for each in (pair.first, pair.second))
    return CallDiff(diff_texts(first[0], second[0]), diff_texts(first[1], second[1]))


def diff_texts(first: str, second: str) -> tuple[DiffLine, ...]:
    r"""Return two texts line by line; nothing if they are the same.

    >>> [(each.mark, each.text) for each in diff_texts("a\nb", "a\nc")]
    [('=', 'a'), ('-', 'b'), ('+', 'c')]
    """
    return () if first == second else tuple(_diff_lines(_split_lines(first), _split_lines(second)))


def _diff_lines(first: Sequence[str], second: Sequence[str]) -> Iterator[DiffLine]:
    for change, start, end, other_start, other_end in SequenceMatcher(None, first, second).get_opcodes():
        if change == "equal":
            yield from (DiffLine("=", line) for line in first[start:end])
            continue
        yield from (DiffLine("-", line) for line in first[start:end])
        yield from (DiffLine("+", line) for line in second[other_start:other_end])


def _split_lines(text: str) -> list[str]:
    return [line[:_MAX_LINE] for line in text.split("\n")[:_MAX_LINES]] if text else []


def _pair_calls(first: Sequence[CallSummary], second: Sequence[CallSummary]) -> Iterator[Pair]:
    """Return the calls of both runs side by side."""
    same = next((index for index, pair in enumerate(zip(first, second)) if not _is_same(*pair)), None)  # noqa: B905 - one may be longer
    start = min(len(first), len(second)) if same is None else same
    yield from (Pair("same", *pair) for pair in zip(first[:start], second[:start], strict=True))
    for mine, others in _align(first[start:], second[start:]):
        if mine is None or others is None:
            yield Pair("removed" if others is None else "added", mine, others)
        else:
            yield Pair("same" if _is_same(mine, others) else "changed", mine, others)


def _align(
    first: Sequence[CallSummary], second: Sequence[CallSummary]
) -> Iterator[tuple[CallSummary | None, CallSummary | None]]:
    """Return the calls of both runs, those of the same tool together; the order of each run stays."""
    if max(len(first), len(second)) > _MAX_ALIGNED:
        for mine, others in zip_longest(first, second):
            yield from _join(mine, others)
        return
    names = [[each.tool_name for each in calls] for calls in (first, second)]
    for change, start, end, other_start, other_end in SequenceMatcher(
        None, names[0], names[1], autojunk=False
    ).get_opcodes():
        if change == "equal":
            yield from zip(first[start:end], second[other_start:other_end], strict=True)
            continue
        yield from ((each, None) for each in first[start:end])
        yield from ((None, each) for each in second[other_start:other_end])


def _join(
    first: CallSummary | None, second: CallSummary | None
) -> Iterator[tuple[CallSummary | None, CallSummary | None]]:
    """Return two calls as one pair, if they are calls of the same tool, or else as two."""
    if first is None or second is None or first.tool_name == second.tool_name:
        yield first, second
    else:
        yield first, None
        yield None, second


def _is_same(first: CallSummary, second: CallSummary) -> bool:
    return first.tool_name == second.tool_name and first.digest == second.digest and first.outcome == second.outcome


def _find_run(history: RunHistory, run_id: str, journal: KnowsRuns | None) -> RunSummary:
    run = history.run(run_id, journal=journal)
    if run is None:
        raise LookupError(f"there is no run {run_id!r:.80} in the history")
    return run


def _load_messages(history: RunHistory, run_id: str) -> tuple[str, str]:
    """Return the whole prompt and the whole answer of a run; those of its latest attempt."""
    prompt = answer = ""
    for event in history.events(run=run_id, kinds=("run_started", "run_finished"), limit=MAX_CALLS):
        if event.parent_id:
            continue  # an agent inside a call
        if event.kind == "run_finished":
            answer = str(event.values.get("text") or "")
        else:
            texts = [each.get("text") for each in event.values.get("messages") or () if each.get("role") == "user"]
            prompt, answer = str(texts[-1] or "") if texts else "", ""
    return prompt, answer


def _load_call(history: RunHistory, call: CallSummary | None) -> tuple[str, str]:
    """Return the arguments of a call as JSON, and what the model was told."""
    if call is None:
        return "", ""
    event = history.event(call.finished or call.number)
    values: dict[str, Any] = {} if event is None else event.values
    result = values.get("result") or {}
    error = result.get("error_message")
    text = str(result.get("output") or "") if error is None else f"Error: {error}"
    return _format_json(values.get("arguments")), text or str(values.get("error") or "")


def _format_json(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2, sort_keys=True)
