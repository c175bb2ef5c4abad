"""The journal layer of a run: claims it, replays recorded steps, and releases it when it ends or waits."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from toolsemble._engine.work.wait import RunInThread
from toolsemble._runtime.text import describe_error, preview
from toolsemble._vocabulary import errors
from toolsemble._vocabulary.place import Place
from toolsemble.agent._result import AgentResult
from toolsemble.agent._run.journal_format import read_result, write_result
from toolsemble.agent._run.spending import current_spending
from toolsemble.agent._run.state import RunState
from toolsemble.agent._settings import AgentConfig
from toolsemble.models._message import Message
from toolsemble.review._request import ReviewRequest

if TYPE_CHECKING:
    from toolsemble.agent._journal.driver import RunDriver
    from toolsemble.agent._journal.journal import RunJournal
    from toolsemble.agent._journal.storage import RunRow


T = TypeVar("T")


class JournalLayer:
    """The journal layer of one run, from claim to release."""

    def __init__(
        self,
        journal: RunJournal,
        config: AgentConfig,
        run_id: str,
        prompt: Sequence[Message],
        settings: Mapping[str, Any],
    ) -> None:
        self._config = config
        self._journal = journal
        self._run_id = run_id
        begun = {name: settings.get(name) for name in ("memory_id", "history", "parameters")}
        self._claim = partial(journal.claim, run_id, config.name, prompt, **begun)

    async def drive(self, state: RunState, run: Callable[[], Awaitable[AgentResult]]) -> AgentResult:
        """Return the run's recorded result, or run from the recorded steps."""
        try:
            return await self._drive(state, run)
        except errors.JournalError as error:
            raise errors.AgentExecutionError(str(error), partial=error.partial) from error

    async def _drive(self, state: RunState, run: Callable[[], Awaitable[AgentResult]]) -> AgentResult:
        claimed = await self._become_driver()
        if isinstance(claimed, tuple):
            return read_result(str(claimed.result), self._run_id, self._config.output)
        driver = claimed
        driver.on_usage = _add_usage
        driver.find_waited = state.spending.clock.find_waited
        try:
            state.enter_journal(Place(driver, "", is_scope=True), driver.earlier, is_new=driver.is_new)
            result = await run()
            await _run_in_thread(lambda: driver.finish("done", result=write_result(result)))
            if driver.has_questions:
                await _run_in_thread(driver.close_questions)
        except BaseException as error:
            await self._give_back(driver, state, error)
            raise
        finally:
            driver.close()
        return result

    async def _become_driver(self) -> RunDriver | RunRow:
        """Claim the run; release it if the task is cancelled meanwhile."""
        claimed: list[RunDriver | RunRow] = []
        try:
            await _run_in_thread(lambda: claimed.append(self._claim()))
        except BaseException:
            for each in claimed:
                if not isinstance(each, tuple):
                    each.close()
            raise
        return claimed[0]

    async def _give_back(self, driver: RunDriver, state: RunState, error: BaseException) -> None:
        """Record why the run stops in this process; raise the matching error if it differs."""
        if isinstance(error, errors.RunCancelledError):
            await _run_in_thread(driver.close_questions)
        elif isinstance(error, errors.CallPausedError):
            await self._park(driver, (error, *error.others))
            parked = errors.RunParkedError(f"Run '{self._run_id}' waits for approval: {error}", run_id=self._run_id)
            parked.partial, parked.pending = error.partial, tuple(each.request for each in (error, *error.others))
            raise parked from error
        elif isinstance(error, errors.RunBusyError):
            return  # another driver owns the run: write nothing
        elif isinstance(error, errors.RunParkedError):
            await _run_in_thread(partial(driver.finish, "waiting"))
        elif isinstance(error, errors.RunInterruptedError):
            await _run_in_thread(partial(driver.finish, "queued"))
        elif isinstance(error, (errors.JournalError, asyncio.CancelledError)):
            with suppress(Exception):  # the run ends here anyway; other processes wait until this one has ended
                await _run_in_thread(partial(driver.finish, "queued"))
        elif isinstance(error, Exception) and not _has_begun(driver, state, error):
            with suppress(
                errors.JournalError, errors.RunError
            ):  # the original error says more; another process may own the run
                await _run_in_thread(driver.withdraw)
        elif isinstance(error, Exception):
            with suppress(errors.JournalError):  # as above; the run counts as abandoned
                if driver.has_questions:
                    await _run_in_thread(driver.withdraw_questions)
                await _run_in_thread(partial(driver.finish, "failed", error=describe_error(error)))
        # Anything else ends the program: the run is left for the next driver.

    async def _park(self, driver: RunDriver, paused: Sequence[errors.CallPausedError]) -> None:
        """Record what the run waits for, and release it."""
        self._journal.note_parked(self._run_id, {each.request.id: each.reviewer for each in paused})
        waiting = {each.request.id: _describe_request(each.request) for each in paused}
        await _run_in_thread(partial(driver.finish, "waiting", waiting=json.dumps(waiting)))


def _has_begun(driver: RunDriver, state: RunState, error: Exception) -> bool:
    """Return whether a failed run got past its setup; one that lacks deps or a prompt, for example, did not."""
    is_setup = isinstance(error, errors.ToolConfigurationError) and not isinstance(error, errors.RunChangedError)
    return driver.has_written or (state.is_prepared and not is_setup)


def _describe_request(request: ReviewRequest) -> str:
    """Describe a call that waits for approval."""
    arguments = request.arguments
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False, default=str)
    return f"{request.tool_name}({preview(text)})"


def _add_usage(amounts: Sequence[float]) -> None:
    """Count the usage inside a replayed call; a current spending always exists during calls."""
    current_spending.get().add_inner(amounts)  # type: ignore[union-attr]  # set around all calls of a turn


async def _run_in_thread(function: Callable[[], T]) -> T:
    """Return the result of a function that writes to disk, even if the task is cancelled meanwhile."""
    return await RunInThread(function).ado()  # type: ignore[no-any-return]  # the function's result
