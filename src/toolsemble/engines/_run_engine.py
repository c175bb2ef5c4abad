"""``RunEngine``: what every engine that drives runs can be asked to do."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Unpack

from toolsemble.engines._agent_runs import BeginSettings, RunOutcome, check_request, write_answer, write_request
from toolsemble.models._prompt import Prompt
from toolsemble.review._request import ReviewRequest

if TYPE_CHECKING:
    from toolsemble.review._decision import ReviewDecision


class RunEngine(ABC):
    """An engine that drives runs of agents; the base class of those for Temporal and DBOS."""

    async def begin(self, run_id: str, agent: str, prompt: Prompt, **settings: Unpack[BeginSettings]) -> None:
        """Queue a run; do nothing if it was begun already with the same prompt, agent and settings.

        A run that has failed continues; one that was cancelled does not.

        :param settings: ``memory_id``, ``history`` and ``parameters``, as in ``RunJournal.begin``
        """
        request = write_request(run_id, agent, prompt, settings)
        check_request(await self._begin(run_id, request), request)

    async def result(self, run_id: str) -> RunOutcome:
        """Wait for the end of a run, and return its outcome.

        Raise :class:`~toolsemble.RunCancelledError`, or :class:`~toolsemble.AgentExecutionError` if it failed.
        """
        return RunOutcome(run_id, **await self._finish(run_id))

    async def waiting(self, run_id: str) -> list[ReviewRequest]:
        """Return the requests that a parked run waits for; none if it is not parked."""
        return [ReviewRequest.from_json(each) for each in await self._find_waiting(run_id)]

    async def answer(
        self, run_id: str, request: ReviewRequest, decision: ReviewDecision, *, person: str = "", role: str = ""
    ) -> None:
        """Send the answer to a request to the workers; one that the store refuses is logged by them.

        :param request: one of those that :meth:`waiting` returns
        :param person: who decided
        :param role: the role of the person
        """
        await self._send_answer(run_id, request.id, write_answer(request, decision, person, role))

    @abstractmethod
    async def cancel(self, run_id: str) -> None:
        """Cancel a run: its calls in flight are cancelled, nobody continues it, and its questions are closed."""

    @abstractmethod
    async def _begin(self, run_id: str, request: dict[str, Any]) -> Any:
        """Queue a run, or continue a failed one with the same request; return the request that it was begun with."""

    @abstractmethod
    async def _finish(self, run_id: str) -> dict[str, Any]:
        """Wait for the end of a run, and return its outcome as JSON values; raise what it has failed with."""

    @abstractmethod
    async def _find_waiting(self, run_id: str) -> list[str]:
        """Return the requests that a parked run waits for, as JSON texts."""

    @abstractmethod
    async def _send_answer(self, run_id: str, request_id: str, text: str) -> None:
        """Send the answer to a request to the workers."""
