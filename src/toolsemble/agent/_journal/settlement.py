"""Settling a call of unknown outcome, after a person has found out what happened."""

from __future__ import annotations

from typing import Any, Literal

from toolsemble._engine.execution.journal_values import write_recorded
from toolsemble._vocabulary.result import ToolResult
from toolsemble.agent._journal.records import Step
from toolsemble.agent._journal.tables import RunRow, Tables


def check_outcome(happened: object, result: object) -> None:
    """Raise unless it is clear what is said about a call: a text such as "no" counts as true.

    >>> check_outcome("no", None)
    Traceback (most recent call last):
    ...
    TypeError: RunJournal.resolve happened must be True or False, not 'no'
    """
    if not isinstance(happened, bool):
        raise TypeError(f"RunJournal.resolve happened must be True or False, not {happened!r:.80}")
    if result is not None and not (happened and isinstance(result, (str, ToolResult))):
        expected = "a str or a ToolResult" if happened else "None for a call that did not happen"
        raise TypeError(f"RunJournal.resolve result must be {expected}, not {result!r:.80}")


def settle_call(
    tables: Tables, row: RunRow, place: str, result: ToolResult | None, *, driven: bool, ended: bool
) -> None:
    """Settle the call at a place of a run; raise ValueError if its outcome is not unknown.

    :param result: what the call returned; None: it did not happen
    :param driven: whether somebody drives the run
    :param ended: whether the run has ended, and does not continue
    """
    steps = [each for each in tables.list_steps(row.run) if (each.place, each.kind) == (place, "call")]
    step = steps[0] if steps else None
    if step is None or step.state not in ("started", "unknown") or (step.state == "started" and driven):
        raise ValueError(f"Run '{row.run}' has no call of unknown outcome at {place!r:.80}; see unknown()")
    if step.state == "unknown" or ended:
        tables.put_step(row.run, _change(step, "settled"), tables.now())
    elif result is not None:
        tables.put_step(row.run, _change(step, "done", write_recorded(result)), tables.now())
    else:
        tables.delete_step(row.run, place)
    if row.state == "waiting":
        tables.change_run(row.run, state="queued", waiting="{}", updated=tables.now())


def _change(step: Step, state: Literal["done", "settled"], data: Any = None) -> Step:
    return Step(step.place, step.kind, state, step.tool, step.arguments, step.data if data is None else data)
