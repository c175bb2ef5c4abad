"""Endpoints of durable runs: their state and steps, and what a person can do with them."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any

from toolsemble.agent.agent import Agent
from toolsemble.call import new_id
from toolsemble.errors import RunInterruptedError
from toolsemble.journal.journal import RunJournal
from toolsemble.journal.tables import RunRow
from toolsemble.models.transcript import messages_from_json
from toolsemble.runtime.text import describe_error
from toolsemble.ui.endpoint import Asked, RefusedError, acts, changes, reads
from toolsemble.ui.interface import Interface
from toolsemble.ui.json_values import to_json_values

LOGGER = logging.getLogger("toolsemble.ui")
_ENDED = ("done", "failed", "cancelled")
_MOST = 500


def list_durable(interface: Interface, asked: Asked) -> dict[str, Any]:
    """Return the runs of the journal, latest first."""
    journal = interface.folder.journal()
    if journal is None:
        return {"runs": [], "exists": False, "total": 0}
    state: Any = asked.query.get("state") or None
    found = sorted(journal.list(state), key=lambda run: run.updated, reverse=True)
    driven = _find_driven(journal)
    runs = [_describe(interface, each, is_driven=each.run_id in driven) for each in found[:_MOST]]
    return {"runs": runs, "exists": True, "total": len(found)}


def show_durable(interface: Interface, asked: Asked) -> dict[str, Any]:
    """Return one run and its steps: what was done, not what was said, which stays in the journal."""
    journal, run_id = _open(interface), asked.text("id")
    run = journal.find(run_id)
    if run is None:
        raise RefusedError(404, f"There is no run '{run_id:.80}' in the journal")
    steps = journal.steps(run_id)
    shown = [
        {"place": each.place, "kind": each.kind, "state": each.state, "tool": each.tool, "arguments": each.arguments,
         "elapsed": each.elapsed}
        for each in steps
    ]  # fmt: skip
    described = _describe(interface, run, is_driven=run_id in _find_driven(journal))
    return {"run": described, "steps": shown, "in_history": _is_in_history(interface, run_id)}


def cancel(interface: Interface, asked: Asked) -> dict[str, Any]:
    """Cancel a run."""
    run_id = asked.take("id", str, "")
    _open(interface).cancel(run_id)
    return {"state": _find_state(interface, run_id)}


def take_over(interface: Interface, asked: Asked) -> dict[str, Any]:
    """Take a run from a process that hangs."""
    run_id = asked.take("id", str, "")
    _open(interface).take_over(run_id)
    return {"state": _find_state(interface, run_id)}


def fork(interface: Interface, asked: Asked) -> dict[str, Any]:
    """Record a new run that begins like another one, up to a turn."""
    run_id, after = asked.take("id", str, ""), asked.take("after", str, "")
    name = asked.take("new_id", str, "").strip() or f"{run_id}-{new_id()[:6]}"
    _open(interface).fork(run_id, after, name)
    return {"id": name}


async def resume(interface: Interface, asked: Asked) -> dict[str, Any]:
    """Continue a run in this server, with the agent of its name."""
    run_id = asked.take("id", str, "")
    agent, row = _prepare(interface, run_id)
    task = asyncio.create_task(_work(_open(interface), agent, row, interface))
    interface.working.add(task)
    task.add_done_callback(interface.working.discard)
    return {"id": run_id}


async def stop_working(interface: Interface) -> None:
    """Let the runs that were resumed here stop; their journal keeps them."""
    tasks = list(interface.working)
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks, timeout=5)


def _prepare(interface: Interface, run_id: str) -> tuple[Agent[Any], RunRow]:
    rows = [each for each in _open(interface).find_work() if each.run == run_id]
    if not rows:
        raise RefusedError(409, f"Run '{run_id:.80}' has ended, is unknown, or is being done by another process")
    agent = interface.targets.agents.get(rows[0].agent)
    if agent is None:
        raise RefusedError(
            409, f"Start the server with the agent '{rows[0].agent:.80}' to resume its runs here: toolsemble ui FILE.py"
        )
    return agent, rows[0]


async def _work(journal: RunJournal, agent: Agent[Any], row: RunRow, interface: Interface) -> None:
    values = json.loads(row.settings)
    settings = {"run_id": row.run, "memory_id": values["memory_id"], "parameters": values["parameters"] or None}
    if "history" in values:
        settings["history"] = messages_from_json(json.dumps(values["history"]))
    settings.update(interface.choose_reviewer(agent))
    run = agent.run_journaled(journal, row.agent, [*messages_from_json(row.prompt)], settings)
    try:
        await interface.record().ado(run)
    except RunInterruptedError as stopped:
        LOGGER.info("%s", stopped)
    except Exception as error:  # noqa: BLE001 - recorded with the run
        LOGGER.warning("Run '%s' failed: %s", row.run, describe_error(error))


def _describe(interface: Interface, run: Any, *, is_driven: bool) -> dict[str, Any]:
    has_agent = run.agent in interface.targets.agents
    return {
        **to_json_values(run),
        "is_driven": is_driven,
        "can_cancel": run.state not in _ENDED,
        "can_resume": run.state not in _ENDED and not is_driven and has_agent,
        "has_agent": has_agent,
    }


def _find_driven(journal: RunJournal) -> set[str]:
    """Return the runs that a living process does now."""
    free = {row.run for row in journal.find_work()}
    return {run.run_id for run in journal.list("running")} - free


def _find_state(interface: Interface, run_id: str) -> str:
    run = _open(interface).find(run_id)
    return "" if run is None else run.state


def _is_in_history(interface: Interface, run_id: str) -> bool:
    history = interface.folder.history()
    return history is not None and history.run(run_id) is not None


def _open(interface: Interface) -> RunJournal:
    journal = interface.folder.journal()
    if journal is None:
        raise RefusedError(404, "There is no runs.db in the data folder")
    return journal


ROUTES = [
    reads("/api/durable", list_durable),
    reads("/api/durable/run", show_durable),
    changes("/api/durable/cancel", cancel, operator=True),
    changes("/api/durable/take-over", take_over, operator=True),
    changes("/api/durable/fork", fork, operator=True),
    acts("/api/durable/resume", resume),
]
