"""The commands ``runs`` and ``work``: show, resume and settle a journal's runs, and execute them."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from types import ModuleType
from typing import Any

from toolsemble._cli.json_output import json_line
from toolsemble._cli.options import Exit, format_age, open_store
from toolsemble._cli.screen import Screen
from toolsemble._cli.table import Column, show_list, show_table
from toolsemble._cli.targets import load_deps, load_object, split_targets
from toolsemble._runtime.text import escape_line, escape_prose, with_article
from toolsemble._vocabulary.errors import ToolConfigurationError, ToolDefinitionError, ToolsembleError
from toolsemble.agent._agent import Agent
from toolsemble.agent._journal.journal import RunJournal
from toolsemble.agent._journal.questions import LOGGER
from toolsemble.agent._journal.records import RunRecord, RunStatus, UnknownCall, describe_step, find_changes
from toolsemble.agent._journal.worker import Worker, is_runner

_RUN_COLUMNS = (
    Column("run"),
    Column("agent", is_optional=True),
    Column("state"),
    Column("changed", is_optional=True),
    Column("prompt", is_cut=True),
    Column("about", is_cut=True),
)
_STEP_TITLES = ("place", "what", "state", "about")
_UNKNOWN_COLUMNS = (Column("run"), Column("place"), Column("tool", is_cut=True), Column("arguments", is_cut=True))
_WHOLE = ("answer", "error")
_SHOWN = 200
_NO_LIMIT = 10**9


def open_journal(url: str | None, *, may_create: bool = False, **settings: Any) -> RunJournal:
    """Return a command's journal; raise ToolConfigurationError if it does not exist.

    :param may_create: whether to create a missing file
    """
    if not url:
        raise ToolConfigurationError("Which journal? Pass --journal runs.db, or set TOOLSEMBLE_JOURNAL")
    if "://" not in url and not may_create and not Path(url).exists():
        raise ToolConfigurationError(f"There is no journal '{url}'; pass a RunJournal's file")
    return RunJournal(url, **settings)


def list_runs(journal: RunJournal, state: RunStatus | None, screen: Screen, *, as_json: bool) -> Exit:
    """Write the runs, oldest first."""
    found = journal.list(state)
    if as_json:
        for run in found:
            screen.write(json_line(asdict(run)))
    elif found:
        about = _find_reasons(journal)
        show_list(screen, _RUN_COLUMNS, [_to_row(run, about, time.time()) for run in found])
    else:
        screen.report("The journal has no runs." if state is None else f"No run is {state}.")
    return Exit.DONE


def show_run(journal: RunJournal, run_id: str, screen: Screen, *, full: bool, as_json: bool) -> Exit:
    """Write one run and its steps."""
    run, steps = _find(journal, run_id), journal.steps(run_id)
    if as_json:
        shown = [{"place": each.place, "state": each.state, **describe_step(each)} for each in steps]
        screen.write(json_line({**asdict(run), "steps": shown}))
        return Exit.DONE
    for title, text in _describe(run, _find_reasons(journal), find_changes(steps)).items():
        line = escape_prose(text) if full or title in _WHOLE else escape_line(text, _SHOWN)
        screen.write(f"{title + ':':<10}{line}".replace("\n", f"\n{'':<10}"))
    limit = _NO_LIMIT if full else _SHOWN
    rows = []
    for step in steps:
        if step.kind != "question":
            described = describe_step(step)
            rows.append((step.place, described["what"], step.state, escape_line(described["about"], limit)))
    if rows:
        screen.write("")
        show_table(screen, _STEP_TITLES, rows)
    return Exit.DONE


def begin_run(journal: RunJournal, screen: Screen, run_id: str, agent: str, prompt: str, memory_id: str | None) -> Exit:
    """Queue a run for a worker."""
    journal.begin(run_id, agent, prompt, memory_id=memory_id)
    screen.answer(f"{_find(journal, run_id).state}: {run_id}")
    return Exit.DONE


def resume_run(journal: RunJournal, run_id: str, target: str, screen: Screen, deps: str | None = None) -> Exit:
    """Resume a run with its agent, and write its answer."""
    record, agents = _find(journal, run_id), load_agents([target])
    name = record.agent
    if name not in agents:
        known = ", ".join(map(escape_line, agents))
        raise ToolDefinitionError(
            f"Run {run_id!r:.80} belongs to agent {name!r:.80}, which {target!r:.80} does not have; it has {known}"
        )
    given = load_deps(deps)
    if record.state != "done":  # a recorded answer needs none
        agents[name].check_deps(given)
    result = asyncio.run(journal.resume(run_id, agents[name], deps=given))
    screen.answer(result.text)
    return Exit.DONE


def cancel_run(journal: RunJournal, run_id: str, screen: Screen, *, store: str | None, secret: str | None) -> Exit:
    """Cancel a run, and close its pending requests in a review store."""
    if store is None:
        journal.cancel(run_id)
    else:
        with open_store(store, secret) as reviews:
            journal.cancel(run_id, store=reviews)
    screen.answer(f"{_find(journal, run_id).state}: {run_id}")
    return Exit.DONE


def list_unknown(journal: RunJournal, screen: Screen, *, as_json: bool) -> Exit:
    """Write the calls with unknown outcome, oldest first."""
    found = journal.unknown()
    if as_json:
        for call in found:
            screen.write(json_line(asdict(call)))
    elif found:
        show_list(screen, _UNKNOWN_COLUMNS, [_to_unknown_row(call) for call in found])
    else:
        screen.report("No call has an unknown outcome.")
    return Exit.DONE


def resolve_call(
    journal: RunJournal, run_id: str, place: str, screen: Screen, *, happened: bool, result: str | None
) -> Exit:
    """Settle a call with unknown outcome; raise ToolsembleError if there is none at that place."""
    try:
        journal.resolve(run_id, place, happened=happened, result=result)
    except ValueError as error:
        raise ToolsembleError(str(error)) from None
    outcome = "it happened" if happened else "it did not happen"
    screen.answer(f"{outcome}: {run_id} {place}")
    return Exit.DONE


def fork_run(journal: RunJournal, screen: Screen, run_id: str, after: str, new_id: str) -> Exit:
    """Queue a copy of a run up to a turn; raise ToolsembleError if there is no such turn."""
    try:
        journal.fork(run_id, after, new_id)
    except ValueError as error:
        raise ToolsembleError(str(error)) from None
    screen.answer(f"queued: {new_id}")
    return Exit.DONE


def take_over_run(journal: RunJournal, run_id: str, screen: Screen) -> Exit:
    """Take a run from a hung process."""
    journal.take_over(run_id)
    state = _find(journal, run_id).state
    screen.answer(f"{state}: {run_id}")
    if state == "failed":
        screen.report(f"No process drives it; 'toolsemble runs retry {run_id}' queues it again.")
    return Exit.FAILED if state == "failed" else Exit.DONE


def retry_run(journal: RunJournal, run_id: str, screen: Screen) -> Exit:
    """Queue a failed run again."""
    journal.retry(run_id)
    screen.answer(f"{_find(journal, run_id).state}: {run_id}")
    return Exit.DONE


def forget_runs(journal: RunJournal, days: float, screen: Screen) -> Exit:
    """Delete runs that ended more than this many days ago."""
    screen.answer(f"deleted: {journal.forget(days * 24 * 3600)}")
    return Exit.DONE


def do_runs(
    targets: Sequence[str],
    url: str | None,
    screen: Screen,
    *,
    park_after: float,
    on_unknown: Any,
    deps: str | None = None,
    **settings: Any,
) -> Exit:
    """Execute a journal's runs until the process is told to stop, or is idle."""
    agents, settings["deps"] = load_agents(split_targets(targets)), load_deps(deps)
    for agent in agents.values():
        agent.check_deps(settings["deps"])  # before a journal is created
    with (
        open_journal(url, may_create=True, park_after=park_after, on_unknown=on_unknown) as journal,
        screen.show_log(LOGGER.name),
    ):
        screen.report(f"working for {', '.join(map(escape_line, agents))}; Ctrl-C stops")
        worker = Worker(journal, agents, signals=(signal.SIGTERM, signal.SIGINT), **settings)
        asyncio.run(worker.run())
    return Exit.DONE


def load_agents(targets: Sequence[str]) -> dict[str, Agent]:
    """Return the agents of targets by the names that runs use.

    >>> load_agents(["math:pi"])
    Traceback (most recent call last):
    ...
    toolsemble.ToolDefinitionError: 'math:pi' is not an agent but a float; name one, such as bots.py:clerk
    """
    found: dict[str, Agent] = {}
    for target in targets:
        for name, agent in _load_agents(target).items():
            if found.setdefault(name, agent) is not agent:
                raise ToolDefinitionError(f"Two agents are named '{name}'; pass Agent(name=...) to tell them apart")
    return found


def _load_agents(target: str) -> Mapping[str, Agent]:
    thing = load_object(target, is_runner)
    if thing is None:
        raise ToolDefinitionError(f"There is no module {target!r:.80}; name an agent, such as bots.py:clerk")
    if isinstance(thing, Mapping) and thing and all(map(is_runner, thing.values())):
        return thing
    if isinstance(thing, ModuleType):
        agents: list[Any] = [each for each in vars(thing).values() if is_runner(each)]
        if not agents:
            raise ToolDefinitionError(f"{target!r:.80} defines no agents; name one, such as bots.py:clerk")
        return {agent.name: agent for agent in agents}
    if not isinstance(thing, Agent):
        kind = with_article(type(thing).__name__)
        raise ToolDefinitionError(f"{target!r:.80} is not an agent but {kind}; name one, such as bots.py:clerk")
    return {thing.name: thing}


def _find(journal: RunJournal, run_id: str) -> RunRecord:
    run = journal.find(run_id)
    if run is None:
        raise ToolConfigurationError(f"There is no run {run_id!r:.80} in the journal; see the list")
    return run


def _find_reasons(journal: RunJournal) -> dict[str, str]:
    """Return why unfinished runs are stuck, by their ids: abandoned, or a call has to be settled."""
    left = {row.run: "abandoned" for row in journal.find_work() if row.state == "running"}
    unknown = {call.run_id: f"{call.tool} at {call.place} to be settled" for call in journal.unknown()}
    return unknown | left


def _describe_state(run: RunRecord, reasons: Mapping[str, str]) -> str:
    """Return what an unfinished run waits for, or which process drives it."""
    if run.state == "waiting":
        return f"for {f'approval of {run.waits_for}' if run.waits_for else reasons.get(run.run_id, 'approval')}"
    if run.state == "running":
        return f"abandoned by {run.owner}" if reasons.get(run.run_id) == "abandoned" else f"driven by {run.owner}"
    return ""


def _describe(run: RunRecord, reasons: Mapping[str, str], changes: Sequence[str]) -> dict[str, str]:
    """Return the lines about a run by their titles, without empty ones."""
    now = time.time()
    lines = {
        "run": run.run_id,
        "agent": run.agent,
        "state": ", ".join(filter(None, (run.state, _describe_state(run, reasons)))),
        "begun": f"{format_age(now - run.created)} ago",
        "changed": f"{format_age(now - run.updated)} ago",
        "prompt": run.prompt,
        "answer": run.text,
        "error": run.error,
        "note": f"the agent has changed at turn {', '.join(changes)}" if changes else "",
    }
    return {title: text for title, text in lines.items() if text}


def _to_row(run: RunRecord, reasons: Mapping[str, str], now: float) -> Sequence[str]:
    about = run.error or run.text or _describe_state(run, reasons)
    return run.run_id, run.agent, run.state, f"{format_age(now - run.updated)} ago", run.prompt, about


def _to_unknown_row(call: UnknownCall) -> Sequence[str]:
    return call.run_id, call.place, call.tool, call.arguments
