"""A run as it is recorded when it begins, and what must be the same when it continues."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from toolsemble._runtime.text import escape_surrogates
from toolsemble._vocabulary.errors import ToolConfigurationError
from toolsemble._vocabulary.serialization import compact_json
from toolsemble.agent._journal.json_values import to_json_object
from toolsemble.agent._journal.tables import RunRow
from toolsemble.models._message import Message
from toolsemble.models._transcript import messages_to_json


def new_row(
    run_id: str,
    agent: str,
    prompt: Sequence[Message],
    memory_id: str | None = None,
    history: Sequence[Message] | None = None,
    parameters: Mapping[str, Any] | None = None,
) -> RunRow:
    """Return the row of a new run, which nobody has begun; raise if an id or a setting is not valid.

    >>> new_row("order-7", "clerk", []).state
    'queued'
    """
    texts: dict[str, object] = {"run_id": run_id, "agent": agent}
    for name, value in texts.items():
        if not isinstance(value, str) or not value.strip() or "\0" in value or escape_surrogates(value) != value:
            raise ToolConfigurationError(f"A run needs {name}, a text, not {value!r:.80}")
    if memory_id is not None and not isinstance(memory_id, str):
        raise TypeError(f"The memory_id of a run must be a str, not {memory_id!r:.80}")
    settings: dict[str, Any] = {"memory_id": memory_id, "parameters": to_json_object(parameters)}
    if history is not None:
        settings["history"] = json.loads(messages_to_json(history))
    text = compact_json(settings, ensure_ascii=True)
    return RunRow(run_id, agent, "queued", messages_to_json(prompt), text, None, "", "{}", "", 0, 0.0, 0.0)


def check_same(known: RunRow, row: RunRow) -> None:
    """Raise if a run is recorded with another prompt, for another agent, or for another user."""
    check_agent(known, row.agent)
    if json.loads(known.prompt) != json.loads(row.prompt):
        raise ToolConfigurationError(f"Run '{row.run}' was begun with another prompt; choose another run_id")
    before, now = (json.loads(each.settings)["memory_id"] for each in (known, row))
    if now is not None and before != now:  # the answer to one user is not for another
        raise ToolConfigurationError(f"Run '{row.run}' was begun with another memory_id; choose another run_id")


def check_agent(row: RunRow, name: str) -> None:
    """Raise if a run is recorded for another agent."""
    if row.agent != name:
        raise ToolConfigurationError(f"Run '{row.run}' is one of the agent '{row.agent}', not of '{name}'")
