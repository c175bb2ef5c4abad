"""The lock of a conversation: runs that continue the same one wait for each other."""

from __future__ import annotations

from toolsemble._engine.context import ToolContext
from toolsemble._engine.work.deadline import TimedOutError
from toolsemble._engine.work.wait import Acquire
from toolsemble._runtime.locks.holds import TABLE, Hold, current_hold
from toolsemble._runtime.locks.table import DeadlockError
from toolsemble._vocabulary.errors import ToolExecutionError


async def lock_conversation(memory: object, conversation_id: str, context: ToolContext) -> Hold:
    """Wait until no other run of this process uses a conversation; return the lock, to be released by ``leave``.

    Runs get it in the order in which they came. A run inside a call of the run that holds it shares it. Raise
    :class:`ToolExecutionError` at the deadline of the enclosing call, and if the wait would be a deadlock.
    """
    # Brief: a body that outlives its call, such as one in a thread after its timeout, does not block the next run.
    hold = Hold([(memory, conversation_id)], current_hold(), brief=True)
    try:
        if not TABLE.acquire(hold):
            await Acquire(hold, context).ado()
    except BaseException as error:
        hold.leave()
        if isinstance(error, (DeadlockError, TimedOutError)):
            raise ToolExecutionError(_describe(conversation_id, error)) from None
        raise
    hold.enter()
    return hold


def _describe(conversation_id: str, error: Exception) -> str:
    busy = f"Another run uses the conversation '{conversation_id:.80}'"
    if isinstance(error, TimedOutError):
        return f"{busy}, and did not end before the deadline of this call"
    return f"Deadlock: {busy[0].lower()}{busy[1:]}, and waits for something that an enclosing call of this run holds"
