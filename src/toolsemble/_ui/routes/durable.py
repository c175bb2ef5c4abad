"""Endpoints of durable runs, and of calls with unknown outcome in the ledger and the journal."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any

from toolsemble._runtime.text import describe_error
from toolsemble._ui.endpoint import Asked, RefusedError, acts, changes, reads
from toolsemble._ui.forms import to_json_values
from toolsemble._ui.interface import Interface
from toolsemble._vocabulary.call import new_id
from toolsemble._vocabulary.errors import RunError
from toolsemble.agent._agent import Agent
from toolsemble.agent._journal.journal import RunJournal
from toolsemble.agent._journal.records import Step

LOGGER = logging.getLogger("toolsemble.ui")
_ENDED = ("done", "failed", "cancelled")
_FINAL = ("done", "cancelled")  # a failed run is resumable
_MOST = 500


def list_unknown(interface: Interface, _: Asked) -> dict[str, Any]:
    """Return the calls with unknown outcome, with their record's location."""
    ledger, journal = interface.folder.ledger(), interface.folder.journal()
    effects = [] if ledger is None else ledger.unknown()
    calls = [] if journal is None else journal.unknown()
    rows: list[dict[str, Any]] = [
        {"kind": "effect", "key": each.key, "tool": each.tool_name, "run_id": each.run_id, "arguments": each.arguments,
         "began": each.began}
        for each in effects
    ]  # fmt: skip
    rows += [
        {"kind": "step", "key": each.place, "tool": each.tool, "run_id": each.run_id, "arguments": each.arguments,
         "began": None}
        for each in calls
    ]  # fmt: skip
    return {"unknown": rows, "exists": ledger is not None or journal is not None}


def settle(interface: Interface, asked: Asked) -> dict[str, Any]:
    """Settle a call: it happened, with a result, or it did not."""
    kind, key = asked.take("kind", str, ""), asked.take("key", str, "")
    happened, result = asked.take("happened", bool), asked.take("result", str, "")
    if happened is None:
        raise RefusedError(400, "'happened' must be true or false")
    ledger, journal = interface.folder.ledger(), interface.folder.journal()
    if kind == "effect" and ledger is not None:
        ledger.resolve(key, happened=happened, result=result)
    elif kind == "step" and journal is not None:
        journal.resolve(asked.take("run_id", str, ""), key, happened=happened, result=result if happened else None)
    else:
        raise RefusedError(404, f"The data folder has no {kind:.20} to settle")
    return list_unknown(interface, asked)


def list_durable(interface: Interface, asked: Asked) -> dict[str, Any]:
    """Return the runs of the journal, latest first."""
    journal = interface.folder.journal()
    if journal is None:
        return {"runs": [], "exists": False, "total": 0}
    state: Any = asked.query.get("state") or None
    driven = _find_driven(journal)
    listed = journal.list("running" if state == "lost" else state)
    if state in ("running", "lost"):
        listed = [run for run in listed if (run.run_id in driven) == (state == "running")]
    found = sorted(listed, key=lambda run: run.updated, reverse=True)
    runs = [_describe(interface, each, is_driven=each.run_id in driven) for each in found[:_MOST]]
    return {"runs": runs, "exists": True, "total": len(found)}


def show_durable(interface: Interface, asked: Asked) -> dict[str, Any]:
    """Return one run and its steps, without model messages, which stay in the journal."""
    journal, run_id = _open(interface), asked.text("id")
    run = journal.find(run_id)
    if run is None:
        raise RefusedError(404, f"The journal has no run '{run_id:.80}'")
    steps = journal.steps(run_id)
    shown = [
        {"place": each.place, "kind": each.kind, "state": _find_step_state(run.state, steps, each), "tool": each.tool,
         "arguments": each.arguments, "elapsed": each.elapsed}
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
    """Take a run from a hung process."""
    run_id = asked.take("id", str, "")
    _open(interface).take_over(run_id)
    return {"state": _find_state(interface, run_id)}


def fork(interface: Interface, asked: Asked) -> dict[str, Any]:
    """Queue a copy of a run up to a turn."""
    run_id, after = asked.take("id", str, ""), asked.take("after", str, "")
    name = asked.take("new_id", str, "").strip() or f"{run_id}-{new_id()[:6]}"
    _open(interface).fork(run_id, after, name)
    return {"id": name}


async def resume(interface: Interface, asked: Asked) -> dict[str, Any]:
    """Resume a run in this server, with its agent."""
    run_id = asked.take("id", str, "")
    agent = _find_agent(interface, run_id)
    task = asyncio.create_task(_work(interface, run_id, agent))
    interface.working.add(task)
    task.add_done_callback(interface.working.discard)
    return {"id": run_id}


async def stop_working(interface: Interface) -> None:
    """Stop the runs resumed here; their journal keeps them."""
    tasks = list(interface.working)
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks, timeout=5)


def _find_agent(interface: Interface, run_id: str) -> Agent[Any]:
    journal = _open(interface)
    run = journal.find(run_id)
    if run is None or run.state in _FINAL or run_id in _find_driven(journal):
        raise RefusedError(409, f"Run '{run_id:.80}' has ended, is unknown, or is driven by another process")
    agent = interface.targets.agents.get(run.agent)
    if agent is None:
        raise RefusedError(
            409, f"Start the server with the agent '{run.agent:.80}' to resume its runs here: toolsemble ui FILE.py"
        )
    return agent


class _ReviewedAgent:
    """An agent whose runs ask for approval here, unless it has its own reviewer."""

    def __init__(self, agent: Agent[Any], interface: Interface) -> None:
        self._agent = agent
        self._interface = interface

    def run_journaled(self, journal: RunJournal, name: str, prompt: Any, settings: Mapping[str, Any]) -> Awaitable[Any]:
        reviewer = self._interface.choose_reviewer(self._agent)
        return self._agent.run_journaled(journal, name, prompt, {**settings, **reviewer})


async def _work(interface: Interface, run_id: str, agent: Agent[Any]) -> None:
    runner: Any = _ReviewedAgent(agent, interface)
    try:
        await interface.record().ado(_open(interface).resume(run_id, runner, deps=interface.targets.deps))
    except RunError as stopped:
        LOGGER.info("%s", stopped)
    except Exception as error:  # recorded with the run
        LOGGER.warning("Run '%s' failed: %s", run_id, describe_error(error))


def _describe(interface: Interface, run: Any, *, is_driven: bool) -> dict[str, Any]:
    has_agent = run.agent in interface.targets.agents
    return {
        **to_json_values(run),
        # As on the run's page: its process has died, and no other process has taken it over yet.
        "state": "lost" if run.state == "running" and not is_driven else run.state,
        "is_driven": is_driven,
        "can_cancel": run.state not in _ENDED,
        "can_resume": run.state not in _FINAL and not is_driven and has_agent,
        "has_agent": has_agent,
    }


def _find_step_state(run_state: str, steps: Sequence[Step], step: Step) -> str:
    """Return a step's state; a request is recorded once, and is open until its call starts or the run ends."""
    if step.kind != "question":
        return step.state
    place = step.place.partition("?")[0]
    inside = f"{place}.", f"{place}/"
    begun = any(each.place.startswith(inside) or (each.place, each.kind) == (place, "call") for each in steps)
    return "closed" if begun or run_state in _ENDED else "open"


def _find_driven(journal: RunJournal) -> set[str]:
    """Return the runs that a live process is driving."""
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
        raise RefusedError(404, "The data folder has no runs.db")
    return journal


ROUTES = [
    reads("/api/durable", list_durable),
    reads("/api/durable/run", show_durable),
    changes("/api/durable/cancel", cancel, operator=True),
    changes("/api/durable/take-over", take_over, operator=True),
    changes("/api/durable/fork", fork, operator=True),
    acts("/api/durable/resume", resume),
    reads("/api/unknown", list_unknown),
    changes("/api/unknown", settle, operator=True),
]
