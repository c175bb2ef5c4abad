"""Steps of a run in words, for people."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from toolsemble.agent._journal.places import is_turn
from toolsemble.agent._journal.records import Step


def describe_step(step: Step) -> dict[str, str]:
    """Return what a step is, and what it is about; arguments with secrets are not shown.

    >>> describe_step(Step("/1", "reply", "done", "", "", {"text": "Rome", "stop_reason": "stop"}))
    {'what': 'model', 'about': 'Rome'}
    >>> describe_step(Step("/1.1", "call", "done", "look", '{"order": 7}', {"output": "5 EUR"}))
    {'what': 'look', 'about': '{"order": 7} -> 5 EUR'}
    >>> describe_step(Step("/0", "reply", "done", "", "", {"stored": 4}))["about"]
    '4 messages of the conversation came before'
    >>> describe_step(Step("/1.1", "question", "done", "", "", [1700000000.0, "token"]))
    {'what': 'question', 'about': ''}
    """
    if step.kind == "reply":
        return {"what": "model", "about": _describe_reply(step.data)}
    if step.kind == "question":
        return {"what": "question", "about": ""}
    outcome = _describe_result(step.data)
    return {"what": step.tool, "about": " -> ".join(part for part in (step.arguments, outcome) if part)}


def find_changes(steps: Iterable[Step]) -> list[str]:
    """Return the turns of the outermost agent at which its model, instructions or tools were others than before.

    >>> turns = [Step(f"/{n}", "reply", "done", "", "", {"agent": mark}) for n, mark in enumerate("aab", 1)]
    >>> find_changes(turns)
    ['3']
    """
    # Behind a slash is what a function of the run returned for the turn: that it differs is not a change of the agent.
    marks = [(step.place[1:], step.data["agent"].partition("/")[0]) for step in steps if _is_turn(step)]
    return [turn for (turn, mark), (_, before) in zip(marks[1:], marks, strict=False) if mark != before]


def _is_turn(step: Step) -> bool:
    return step.kind == "reply" and is_turn(step.place)


def _describe_reply(data: dict[str, Any]) -> str:
    if "stored" in data:
        return f"{data['stored']} messages of the conversation came before"
    calls = ", ".join(call["name"] for call in data.get("calls", ()))
    return ": ".join(part for part in (f"calls {calls}" if calls else "", data["text"]) if part)


def _describe_result(data: Any) -> str:
    if data is None:
        return ""
    if "error" in data:
        return f"Error: {data['error']}"
    return data["output"] if isinstance(data["output"], str) else json.dumps(data["output"], ensure_ascii=False)
