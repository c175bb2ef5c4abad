"""``RunJournal``: runs that survive their process, recorded step by step."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias

from toolsemble._engine.execution.journaled_call import write_recorded
from toolsemble._runtime.checks import check_seconds
from toolsemble._runtime.storage.opening import read_location
from toolsemble._runtime.text import escape_surrogates
from toolsemble._vocabulary.errors import RunBusyError, RunCancelledError, ToolConfigurationError, ToolDefinitionError
from toolsemble._vocabulary.result import ToolResult
from toolsemble._vocabulary.serialization import compact_json
from toolsemble.agent._journal.driver import DriverSettings, RunDriver
from toolsemble.agent._journal.questions import LOGGER, Questions, Withdraws, mark_closing
from toolsemble.agent._journal.records import STATES, RunRecord, RunStatus, Step, UnknownCall, find_turn, is_turn
from toolsemble.agent._journal.storage import (
    LEASE,
    RunRow,
    Storage,
    Tables,
    describe_owner,
    new_owner,
    report_failures,
    to_json_object,
)
from toolsemble.models._message import Message, Prompt, check_question, messages_to_json, to_messages
from toolsemble.review._request import Reviewer, to_reviewer

if TYPE_CHECKING:
    from toolsemble.agent._journal.worker import Runner


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


OnUnknown: TypeAlias = Literal["tell", "ask"]
"""What happens to a run with a call of unknown outcome: the model is told, or a person is asked first."""

_ENDED = ("done", "failed", "cancelled")


class RunJournal:
    """A journal of runs: what their models said and what their calls returned, in a SQLite file or in Postgres.

    A run of an agent with a journal continues where it was when its process was killed. What is recorded is not done
    again: models are not asked twice, and finished calls are not repeated. A call that was running when the process
    ended is repeated only if its tool reads or is idempotent; otherwise its outcome is unknown.

    :param url: the file; created if it is missing, readable for its owner only; or a ``postgresql://`` URL (extra
        ``postgres``), for agents and workers on any machine
    :param park_after: seconds of waiting for a person after which a run is parked, so that no process waits; None:
        never
    :param on_unknown: ``"tell"`` the model that the outcome of a call is unknown, or ``"ask"`` a person first: the run
        waits for :meth:`resolve`
    :param pin: refuse to continue a run whose agent has another model, other instructions or other tools than before,
        with :class:`~toolsemble.RunChangedError`; by default it continues with those of today
    :param lease: seconds after which a run on Postgres is taken over from a process that does not say that it lives
    :param clock: returns the seconds since the epoch; None: the time of the system, or of the Postgres server

    >>> import tempfile
    >>> from toolsemble import Agent
    >>> from toolsemble.testing import ScriptedModel
    >>> folder = tempfile.TemporaryDirectory()
    >>> with RunJournal(f"{folder.name}/runs.db") as runs:
    ...     agent = Agent(ScriptedModel(["Refunded."]), journal=runs, name="clerk")
    ...     first = agent.run_sync("Refund order 7", run_id="order-7")
    ...     again = agent.run_sync("Refund order 7", run_id="order-7")  # the model is not asked again
    ...     first.text, again.text, runs.find("order-7").state
    ('Refunded.', 'Refunded.', 'done')
    >>> folder.cleanup()
    """

    def __init__(
        self,
        url: str | os.PathLike[str],
        *,
        park_after: float | None = None,
        on_unknown: OnUnknown = "tell",
        pin: bool = False,
        lease: float = LEASE,
        clock: Callable[[], float] | None = None,
    ) -> None:
        place: object = url
        if not isinstance(place, (str, os.PathLike)) or os.fspath(place) in {"", ":memory:"}:
            raise ToolDefinitionError(f"A RunJournal needs the path of a file, not {url!r:.80}")
        if park_after is not None:
            check_seconds("RunJournal park_after", park_after, zero=True)
        if on_unknown not in ("tell", "ask"):
            raise ToolDefinitionError(f"RunJournal on_unknown must be 'tell' or 'ask', not {on_unknown!r:.80}")
        if not isinstance(pin, bool):
            raise ToolDefinitionError(f"RunJournal pin must be True or False, not {pin!r:.80}")
        check_seconds("RunJournal lease", lease)
        self._path = read_location(url, "RunJournal")
        self._arguments: dict[str, Any] = {
            "url": str(self._path) if isinstance(self._path, Path) else url,
            "park_after": park_after,
            "on_unknown": on_unknown,
            "pin": pin,
            "lease": lease,
            "clock": clock,
        }
        self._storage = Storage(self._path, lease, clock)
        self._questions = Questions(self._storage)
        self._draining = False
        self._damaged: set[str] = set()
        self._workers: dict[object, Callable[[], None]] = {}
        self._settings = DriverSettings(park_after, on_unknown, pin, lambda: self._draining)

    def begin(
        self,
        run_id: str,
        agent: str,
        prompt: Prompt,
        *,
        memory_id: str | None = None,
        history: Sequence[Message] | None = None,
        parameters: Mapping[str, Any] | None = None,
    ) -> None:
        """Record a run to be done by a worker; do nothing if it is recorded already with the same prompt and agent.

        :param agent: the name of the agent, as :meth:`work` gets it
        :param memory_id: the id of the conversation or user
        :param history: earlier messages
        :param parameters: JSON values that the tools of the run share
        """
        messages = to_messages(prompt)
        check_question(messages, has_earlier=bool(history) or memory_id is not None)
        row = new_row(run_id, agent, messages, memory_id, history, parameters)
        with self._storage.writing(run_id, synced=True, notify=True) as tables:
            if tables.find_run(run_id) is None:
                tables.add_run(row._replace(created=tables.now(), updated=tables.now()))
            else:
                check_same(self._get(tables, run_id), row)

    def list(self, state: RunStatus | None = None) -> Sequence[RunRecord]:
        """Return the runs, oldest first; all of them, or those in one state."""
        if state is not None and state not in STATES:
            raise ValueError(f"A run has no state {state!r:.80}; known are {', '.join(STATES)}")
        with self._storage.reading() as tables:
            rows = tables.list_runs([] if state is None else [state])
        return [row.to_record() for row in self._skip_damaged(rows)]

    def find(self, run_id: str) -> RunRecord | None:
        """Return a run; None if the id is unknown."""
        _check_id(run_id)
        with self._storage.reading() as tables:
            row = None if tables.find_run(escape_surrogates(run_id)) is None else self._get(tables, run_id)
        return None if row is None else row.to_record()

    def steps(self, run_id: str) -> Sequence[Step]:
        """Return what is recorded of a run, in the order in which it began; empty if the id is unknown."""
        _check_id(run_id)
        with self._storage.reading() as tables:
            return tables.list_steps(run_id)

    def cancel(self, run_id: str, *, store: Any = None) -> None:
        """Cancel a run: its driver stops before the next call, and nobody continues it. Ended runs do not change.

        Its open questions to people are closed: at once if the run was parked by this process or if ``store`` is
        given, otherwise by the next worker that has its agent.

        :param store: the review store with the questions of the run
        """
        with self._storage.writing(run_id, synced=True, notify=True) as tables:
            row = self._get(tables, run_id)
            if row.state not in _ENDED:
                tables.change_run(run_id, state="cancelled", updated=tables.now())
                mark_closing(tables, run_id)
        given = [] if store is None else [store]
        find = self._questions.find_reviewer
        self._questions.close(lambda run, _, id_: [*given, *find(run, id_)] if run == run_id else ())

    def unknown(self) -> Sequence[UnknownCall]:
        """Return the calls whose outcome is unknown and that nobody has settled, oldest first."""
        with self._storage.reading() as tables:
            found = tables.list_open_steps()  # first: runs with open steps are not deleted
            rows = {row.run: row for row in self._skip_damaged(tables.list_runs())}
            now = tables.now()
        return [
            UnknownCall(run, step.place, step.tool, step.arguments)
            for run, step in found
            if run not in rows or step.state == "unknown" or not self._storage.is_driven(rows[run], now)
        ]

    def resolve(self, run_id: str, place: str, *, happened: bool, result: ToolResult | str | None = None) -> None:
        """Settle a call of unknown outcome, after somebody has checked what happened.

        If the model was told already that the outcome is unknown, the entry is settled, and the run does not change.

        :param happened: whether the effect happened; if not, the call is made when the run continues
        :param result: the result of the call, if it happened
        """
        check_outcome(happened, result)
        made = result if isinstance(result, ToolResult) else ToolResult.success(result or "")
        with self._storage.writing(run_id, synced=True, notify=True) as tables:
            row = self._get(tables, run_id)
            driven, ended = self._storage.is_driven(row, tables.now()), row.state in ("done", "cancelled")
            settle_call(tables, row, place, made if happened else None, driven=driven, ended=ended)

    def fork(self, run_id: str, after: str, new_id: str) -> None:
        """Record a new run that begins like another one, with everything up to a turn and its calls; it is queued.

        A fork of a run with a memory begins with the same conversation, and stores nothing in it.

        :param after: the place of the turn, such as ``/3``
        """
        with self._storage.writing(synced=True, notify=True) as tables:
            row = self._get(tables, run_id)
            steps = tables.list_steps(run_id)
            turns = [step.place for step in steps if step.kind == "reply" and is_turn(step.place)]
            if after not in turns:
                known = f"it has {', '.join(turns)}" if turns else "it has none yet"
                raise ValueError(f"Run '{run_id}' has no turn {after!r:.80}; {known}")
            if tables.find_run(new_id) is not None:
                raise ToolConfigurationError(f"There is a run '{new_id}' already; choose another id")
            now = tables.now()
            settings = compact_json({**json.loads(row.settings), "fork_of": run_id}, ensure_ascii=True)
            fresh = new_row(new_id, row.agent, [])
            tables.add_run(fresh._replace(prompt=row.prompt, settings=settings, created=now, updated=now))
            for step in steps:
                if find_turn(step.place) <= find_turn(after) and step.kind != "question":  # a fork asks for itself
                    tables.put_step(new_id, step, now)

    def forget(self, older_than: float) -> int:
        """Delete the runs that ended more than so many seconds ago; return how many.

        Those with calls of unknown outcome stay, until somebody settles them.
        """
        check_seconds("RunJournal.forget older_than", older_than, zero=True)
        with self._storage.writing() as tables:
            before, kept = tables.now() - older_than, {run for run, _ in tables.list_open_steps()}
            old = [row.run for row in tables.list_runs(_ENDED) if row.updated <= before and row.run not in kept]
            for run in old:
                tables.delete_run(run)
        return len(old)

    def take_over(self, run_id: str) -> None:
        """Take a run from a process that hangs: that process writes nothing more, and the run is queued again."""
        with self._storage.writing(run_id, synced=True, notify=True) as tables:
            row = self._get(tables, run_id)
            if row.state == "running":
                tables.change_run(run_id, state="queued", owner="", fence=row.fence + 1, updated=tables.now())

    def retry(self, run_id: str) -> None:
        """Put a failed run back into the queue, for a worker to continue it; what is recorded of it is kept.

        Finished calls are not made again. Retrying a queued run does nothing.
        """
        with self._storage.writing(run_id, synced=True, notify=True) as tables:
            row = self._get(tables, run_id)
            if row.state not in ("failed", "queued"):
                raise ToolConfigurationError(f"Run '{run_id}' is {row.state}; only a failed run can be retried")
            if row.state == "failed":
                tables.change_run(run_id, state="queued", error="", updated=tables.now())

    async def work(
        self,
        agents: Mapping[str, Runner],
        *,
        at_once: int = 4,
        until_idle: bool = False,
        poll: float = 0.5,
        grace: float | None = None,
        deps: Any = None,
        signals: bool = True,
    ) -> None:
        """Do the runs that are queued, left behind by a process that ended, or answered by a person.

        Runs until it is cancelled or drained. At SIGTERM, or after :meth:`drain`, it takes no more runs, lets the calls
        in flight end, gives the runs back before their next calls, and returns; questions to people stay open.

        :param agents: the agents by name; runs of others stay queued
        :param at_once: how many runs are done at the same time
        :param until_idle: whether to return when there is nothing to do, except for runs that wait for a person
        :param poll: seconds between two looks for runs
        :param grace: seconds after which calls that are still in flight are cancelled, and their runs given back: such
            a call is then in flight as after a crash, repeated if it may be, or else of unknown outcome; None: no limit
        :param deps: an object that tools get as ``ToolContext.deps``, instead of the agents' own; the journal does not
            keep that of a run. If an agent needs deps and there are none, raise
            :class:`~toolsemble.ToolConfigurationError`, and touch no run
        :param signals: whether SIGTERM drains the journal, if this is called in the main thread; the handler that was
            installed before, such as a web server's, is called as well. False: the program calls :meth:`drain`
        """
        from signal import SIGTERM

        from toolsemble.agent._journal.worker import Worker

        settings: dict[str, Any] = {
            "at_once": at_once,
            "until_idle": until_idle,
            "poll": poll,
            "grace": grace,
            "deps": deps,
            "signals": (SIGTERM,) if signals else (),
        }
        await Worker(self, agents, **settings).run()

    async def resume(self, run_id: str, agent: Runner, *, deps: Any = None) -> Any:
        """Do or continue a run with the prompt and settings it was begun with; return its result.

        A failed run continues as well. Raise as :meth:`Agent.run <toolsemble.Agent.run>` does with the id of the run.

        :param deps: an object that tools get as ``ToolContext.deps``, instead of the agent's own
        """
        from toolsemble.agent._journal.worker import is_runner, resume_run

        if not is_runner(agent):
            raise ToolDefinitionError(f"RunJournal.resume takes an agent, not {agent!r:.80}")
        with self._storage.reading() as tables:
            row = self._get(tables, run_id)
        check_agent(row, getattr(agent, "name", row.agent))
        return await resume_run(self, agent, row, deps)

    def drain(self) -> None:
        """Let the runs of this journal object stop before their next turn, and :meth:`work` return; thread-safe.

        Calls in flight end first, questions stay open, and the runs continue with another journal object. For the end
        of a program, such as a web server's lifespan.
        """
        self._draining = True
        self._storage.drain()
        for stop in list(self._workers.values()):
            stop()

    def watch_drain(self, stop: Callable[[], None]) -> Callable[[], object]:
        """Call a function when the runs are to stop, at once if they are already; return a function that ends this."""
        token = object()
        self._workers[token] = stop
        if self._draining:
            stop()
        return partial(self._workers.pop, token, None)

    def close(self) -> None:
        """Close the journal; runs that need it then fail."""
        self._storage.close()

    def claim(
        self,
        run_id: str,
        agent: str,
        prompt: Sequence[Message],
        *,
        memory_id: str | None = None,
        history: Sequence[Message] | None = None,
        parameters: Mapping[str, Any] | None = None,
    ) -> RunDriver | RunRow:
        """Become the driver of a run, which is recorded if it is new; return its row if it is done.

        Raise :class:`~toolsemble.RunBusyError` if somebody else drives it.
        """
        row = new_row(run_id, agent, prompt, memory_id, history, parameters)
        with report_failures(run_id), self._storage.writing(run_id, synced=True) as tables:
            found = tables.find_run(run_id)
            if found is None:
                tables.add_run(row._replace(created=tables.now(), updated=tables.now()))
            known = self._get(tables, run_id)
            check_same(known, row)
            self._check_free(known, tables.now())
            if known.state == "done":
                return known
            taken = known._replace(state="running", owner=new_owner(), fence=known.fence + 1)
            tables.change_run(
                run_id, state="running", owner=taken.owner, fence=taken.fence, error="", updated=tables.now()
            )
            steps = tables.list_steps(run_id)
        driver = RunDriver(self._storage, taken, steps, self._settings, found)
        self._storage.add(driver)
        return driver

    def watch(self, changed: Callable[[], object]) -> Callable[[], None] | None:
        """Call a function, in another thread, when there may be runs to do; return a function that ends this.

        Return None for a file, which has to be looked at from time to time.
        """
        return self._storage.watch(changed)

    def find_work(self) -> Sequence[RunRow]:
        """Return the runs that are queued, wait, or were left behind, oldest first."""
        with self._storage.reading() as tables:
            now = tables.now()
            rows = tables.list_runs(("queued", "running", "waiting"))
        return [row for row in self._skip_damaged(rows) if not self._storage.is_driven(row, now)]

    def note_parked(self, run_id: str, reviewers: Mapping[str, Any]) -> None:
        """Remember the reviewers that a run was parked with in this process, by the ids of their requests."""
        self._questions.note_parked(run_id, reviewers)

    def find_reviewers(self, run_id: str) -> Mapping[str, Reviewer | None]:
        """Return the reviewers that a run was parked with in this process; empty if it was not parked here."""
        return self._questions.find_reviewers(run_id)

    def close_questions(self, agents: Mapping[str, Runner]) -> None:
        """Close the questions of cancelled runs of some agents, by name."""

        def find(run: str, agent: str, id_: str) -> list[Withdraws]:
            listed = agents[agent].list_reviewers() if agent in agents else ()
            return [*self._questions.find_reviewer(run, id_), *map(to_reviewer, listed)]

        self._questions.close(find)

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(RunJournal, **self._arguments), ()

    def __repr__(self) -> str:
        return f"RunJournal({str(self._path)!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _skip_damaged(self, rows: Iterable[RunRow]) -> Sequence[RunRow]:
        """Return the rows that can be read: one that something else has changed must not hide the others."""
        readable = []
        for row in rows:
            if problem := row.find_damage():
                if row.run not in self._damaged:
                    LOGGER.error("Run '%s' is damaged, and left out: %s", row.run, problem)
                self._damaged.add(row.run)
            else:
                readable.append(row)
        return readable

    def _get(self, tables: Tables, run_id: str) -> RunRow:
        _check_id(run_id)
        row = tables.find_run(run_id)
        if row is None:
            raise ToolConfigurationError(f"There is no run '{run_id:.80}' in the journal; see list()")
        if problem := row.find_damage():
            raise ToolConfigurationError(f"Run '{run_id:.80}' is damaged: {problem}")
        return row

    def _check_free(self, row: RunRow, now: float) -> None:
        if row.state == "cancelled":
            raise RunCancelledError(f"Run '{row.run}' was cancelled, and is not continued", run_id=row.run)
        if self._storage.is_driven(row, now):
            raise RunBusyError(
                f"Run '{row.run}' is driven by {describe_owner(row.owner)}; wait for its end, or take it from a "
                f"process that hangs with RunJournal.take_over('{row.run}')",
                run_id=row.run,
            )


def _check_id(run_id: object) -> None:
    if not isinstance(run_id, str):
        raise TypeError(f"The id of a run is a str, not {run_id!r:.80}")
