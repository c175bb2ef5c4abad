"""Agent runs on an engine: what a workflow starts, waits for and returns."""

from __future__ import annotations

import json
import logging
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from toolsemble._vocabulary import errors
from toolsemble._vocabulary.serialization import compact_json
from toolsemble.models._message import (
    Message,
    Prompt,
    check_question,
    messages_from_json,
    messages_to_json,
    to_messages,
)
from toolsemble.review._automatic import Callback
from toolsemble.review._request import ReviewRequest
from toolsemble.review._store.rows import split_decision

if TYPE_CHECKING:
    from toolsemble.agent._agent import Agent
    from toolsemble.agent._journal.journal import RunJournal
    from toolsemble.review._request import ReviewDecision
    from toolsemble.review._store.store import ReviewStoreProtocol


LOGGER = logging.getLogger("toolsemble.engines")
LOGGER.addHandler(logging.NullHandler())  # a program without logging prints nothing

CANCELLED = errors.RunCancelledError.__name__
"""The failure kind of a cancelled run."""


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """The outcome of a run on an engine; the journal has the whole result.

    >>> RunOutcome("order-7", "Refunded.").text
    'Refunded.'
    """

    run_id: str
    """The id of the run."""
    text: str
    """The answer."""
    stop_reason: str = "answer"
    """Why the run ended, as in ``AgentResult``."""


class BeginSettings(TypedDict, total=False):
    """The settings of a run, as ``RunJournal.begin`` takes them."""

    memory_id: str | None
    """The conversation or user id."""
    history: Sequence[Message] | None
    """Earlier messages."""
    parameters: Mapping[str, Any] | None
    """JSON values that the run's tools share."""


def write_request(run_id: str, agent: str, prompt: Prompt, begin: BeginSettings) -> dict[str, Any]:
    """Return the request for a run as JSON values; raise if it is not valid.

    >>> sorted(write_request("order-7", "clerk", "Refund order 7", {}))
    ['agent', 'prompt', 'run_id', 'settings']
    """
    texts: dict[str, object] = {"run_id": run_id, "agent": agent}
    for name, value in texts.items():
        if not isinstance(value, str) or not value.strip():
            raise errors.ToolConfigurationError(f"A run needs {name}, a str, not {value!r:.80}")
    messages, history = to_messages(prompt), begin.get("history")
    check_question(messages, has_earlier=bool(history) or begin.get("memory_id") is not None)
    settings: dict[str, Any] = {"memory_id": begin.get("memory_id"), "parameters": dict(begin.get("parameters") or {})}
    if history is not None:
        settings["history"] = messages_to_json(history)
    request = {"run_id": run_id, "agent": agent, "prompt": messages_to_json(messages), "settings": settings}
    try:
        copied: dict[str, Any] = json.loads(compact_json(request))
    except (TypeError, ValueError) as problem:
        raise errors.ToolConfigurationError(
            f"The parameters of run '{run_id}' are not JSON values: {problem}"
        ) from None
    return copied


def check_request(known: Any, request: Mapping[str, Any]) -> None:
    """Raise if a run was started with another prompt, agent or settings."""
    if known != request:
        raise errors.ToolConfigurationError(
            f"Run '{request['run_id']}' was begun with another prompt, agent or settings; choose another run_id"
        )


def write_answer(request: ReviewRequest, decision: ReviewDecision, person: str, role: str) -> str:
    """Return the answer to a request as JSON text, bound to the arguments that the person saw."""
    kind, text, always = split_decision(decision)
    detail = {"continue": ("always", always), "edit": ("revised", text), "exit_early": ("reason", text)}[kind]
    answer = {"request_id": request.id, "decision": kind, "arguments_digest": request.arguments_digest}
    return compact_json({**answer, detail[0]: detail[1], "person": person, "role": role})


def read_failure(run_id: str, kind: str, message: str) -> Exception:
    """Return the error of an unsuccessful run, from its kind and its message."""
    if kind == CANCELLED:
        return errors.RunCancelledError(f"Run '{run_id}' was cancelled", run_id=run_id)
    return errors.AgentExecutionError(f"Run '{run_id}' failed: {message}")


class AgentRuns:
    """A worker's agents, with the journal of their runs and the store of their approvals."""

    def __init__(
        self,
        engine: str,
        agents: Mapping[str, Agent[Any]] | None,
        journal: RunJournal | None,
        store: ReviewStoreProtocol | None,
    ) -> None:
        if not agents or journal is None:
            raise errors.ToolDefinitionError(f"A worker of {engine} needs agents by name, and journal=RunJournal(...)")
        for name, agent in agents.items():
            if not callable(getattr(agent, "run_journaled", None)):
                raise errors.ToolDefinitionError(f"{engine} takes agents by name; '{name:.80}' is {agent!r:.80}")
        self._agents = agents
        self._journal = journal
        self._store = store

    async def do(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Start or resume a run; return its outcome, or what it waits for, as JSON values.

        Raise RunBusyError, or RunInterruptedError, if the engine has to call again.
        """
        settings = dict(request["settings"])
        if "history" in settings:
            settings["history"] = messages_from_json(settings["history"])
        settings |= {"run_id": request["run_id"], "parameters": settings["parameters"] or None}
        agent, prompt = self._find(request["agent"]), [*messages_from_json(request["prompt"])]
        try:
            result = await agent.run_journaled(self._journal, request["agent"], prompt, settings)
        except errors.RunParkedError as parked:
            return {"waiting": [each.to_json() for each in _find_questions(parked)]}
        return {"text": result.text, "stop_reason": result.stop_reason}

    def is_ready(self, request: Mapping[str, Any], waiting: Iterable[str]) -> bool:
        """Return whether a waiting run can resume: a person has answered, or settled a call."""
        record = self._journal.find(request["run_id"])
        if record is None or record.state != "waiting":
            return True
        ids = {ReviewRequest.from_json(each).id for each in waiting}
        return bool(ids) and self._find(request["agent"]).find_open_requests(ids) != ids

    def answer(self, run_id: str, text: str) -> None:
        """Store the answer to a run's request; log a refused one."""
        try:
            answer = Callback.read(text.encode())
            request = None if self._store is None else self._store.find(answer.request_id)
            if self._store is None or request is None or request.run_id != run_id:
                why = "has no such request" if self._store else "takes no answers; pass store=... to the engine"
                LOGGER.warning("An answer to run '%s' was refused: this worker %s", run_id, why)
                return
            digest, person, role = answer.arguments_digest, answer.person, answer.role
            self._store.answer(request, answer.decision, person=person, role=role, arguments_digest=digest)
        except (ValueError, errors.ReviewRefusedError) as refusal:
            LOGGER.warning("An answer to run '%s' was refused: %s", run_id, refusal)

    def cancel(self, run_id: str) -> None:
        """Cancel a run in the journal, so that it cannot resume; do nothing if it never started."""
        if self._journal.find(run_id) is not None:
            self._journal.cancel(run_id, store=self._store)
            self._journal.close_questions(self._agents)

    def drain(self) -> None:
        """Stop the runs before their next turn; leave their review requests open."""
        self._journal.drain()

    def _find(self, name: str) -> Agent[Any]:
        if name not in self._agents:
            raise errors.ToolConfigurationError(
                f"This worker has no agent '{name:.80}'; it has {', '.join(self._agents)}"
            )
        return self._agents[name]


MUST_CALL_AGAIN = (errors.RunBusyError, errors.RunInterruptedError)
"""The errors after which an engine retries: another driver owns the run, or this worker is stopping."""


def _find_questions(parked: errors.RunParkedError) -> list[ReviewRequest]:
    """Return the requests that a parked run waits for; none if a call has to be settled."""
    cause: Any = parked.__cause__
    return [] if cause is None else [each.request for each in (cause, *cause.others)]


class RunEngine(ABC):
    """An engine that drives agent runs; the base class for Temporal and DBOS."""

    async def begin(self, run_id: str, agent: str, prompt: Prompt, **settings: Unpack[BeginSettings]) -> None:
        """Queue a run; do nothing if it was already queued with the same prompt, agent and settings.

        A failed run resumes; a cancelled one does not.

        :param settings: ``memory_id``, ``history`` and ``parameters``, as in ``RunJournal.begin``
        """
        request = write_request(run_id, agent, prompt, settings)
        check_request(await self._begin(run_id, request), request)

    async def result(self, run_id: str) -> RunOutcome:
        """Wait until a run ends, and return its outcome.

        Raise :class:`~toolsemble.RunCancelledError`, or :class:`~toolsemble.AgentExecutionError` if it failed.
        """
        return RunOutcome(run_id, **await self._finish(run_id))

    async def waiting(self, run_id: str) -> list[ReviewRequest]:
        """Return the requests that a parked run waits for; none if it is not parked."""
        return [ReviewRequest.from_json(each) for each in await self._find_waiting(run_id)]

    async def answer(
        self, run_id: str, request: ReviewRequest, decision: ReviewDecision, *, person: str = "", role: str = ""
    ) -> None:
        """Send the answer to a request to the workers, which log an answer that the store refuses.

        :param request: a request that :meth:`waiting` returned
        :param person: who decided
        :param role: the person's role
        """
        await self._send_answer(run_id, request.id, write_answer(request, decision, person, role))

    @abstractmethod
    async def cancel(self, run_id: str) -> None:
        """Cancel a run: its calls in flight are cancelled, it cannot resume, and its review requests are closed."""

    @abstractmethod
    async def _begin(self, run_id: str, request: dict[str, Any]) -> Any:
        """Queue a run, or resume a failed one with the same request; return its original request."""

    @abstractmethod
    async def _finish(self, run_id: str) -> dict[str, Any]:
        """Wait until a run ends, and return its outcome as JSON values; raise the error of a failed run."""

    @abstractmethod
    async def _find_waiting(self, run_id: str) -> list[str]:
        """Return the requests that a parked run waits for, as JSON text."""

    @abstractmethod
    async def _send_answer(self, run_id: str, request_id: str, text: str) -> None:
        """Send the answer to a request to the workers."""
